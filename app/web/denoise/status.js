// The line above the view: the model, the runs, what can be saved; and the shelf while nothing is
// on view.

import { button, h } from "../dom.js";
import { toolbar } from "../roving.js";
import { saveButton } from "../save/buttons.js";
import { takeAnswer } from "../save/files.js";
import { DenoiseShelf } from "./shelf.js";
import { wordList } from "./words.js";

const EMPTY = "A block being denoised, call by call";
const WAITING = "Waiting for the first model call…";
const WHAT =
  "A diffusion model starts from masked positions and unmasks the surest ones, step by step. " +
  "Spiffy drafts the states a block may reach, runs them in the same model call, and every draft " +
  "the model's own steps lead through saves a call: the text stays the same.";

export class StatusLine {
  /** onOpen(tickets): what a person chose from the shelf. */
  constructor(runs, source, onOpen) {
    const shelf = (pick) => new DenoiseShelf(source, pick, (sentence) => this.complain(sentence));
    this.runs = runs;
    this.modelChip = h("span", { class: "ds-chip", role: "status", "data-state": "loading" });
    this.modelChip.textContent = "model: waking up";
    this.about = h("span", { class: "ds-about" });
    this.banner = h("p", { class: "ds-banner", role: "alert", hidden: true });
    this.saves = runs.map((run) =>
      saveButton("Save trace", { class: "ds-button", hidden: true }, () =>
        takeAnswer(source.save({ ticket: run.feed.ticket }), "application/gzip"),
      ),
    );
    this.emptyTitle = h("h2", { class: "ds-empty-title" }, EMPTY);
    this.gallery = shelf(onOpen);
    this.gallery.draw();
    this.shelf = shelf((tickets) => {
      this.shelves.close();
      onOpen(tickets);
    });
    this.shelves = this._dialog();
    this.element = h("div", { class: "ds-top-line" }, this._line(), this.banner, this._empty());
  }

  _line() {
    const examples = button("Examples", { class: "ds-button", title: "Examples that ship" }, () =>
      this.shelf.draw().then(() => this.shelves.open || this.shelves.showModal()),
    );
    return h(
      "div",
      { class: "ds-status" },
      this.modelChip,
      this.runs.map((run) => run.chip),
      h("span", { class: "ds-spring" }),
      toolbar("The runs on view", h("span", { class: "dn-takes" }, examples, this.saves)),
      this.about,
    );
  }

  _empty() {
    const how = "Write a prompt and press Start, or open a run that was recorded.";
    return h(
      "div",
      { class: "ds-card dn-empty" },
      this.emptyTitle,
      h("p", {}, WHAT),
      h("p", { class: "ds-soft" }, how),
      this.gallery.element,
      wordList(),
    );
  }

  /** The shelf again, over a run that is on view. */
  _dialog() {
    const close = () => made.close();
    const made = h(
      "dialog",
      { class: "ds-help ds-shelves", "aria-label": "Examples" },
      this.shelf.element,
      button("Close", { class: "ds-button" }, close),
    );
    made.addEventListener("click", (event) => event.target === made && close());
    return made;
  }

  complain(sentence) {
    this.banner.textContent = sentence;
    this.banner.hidden = !sentence;
  }

  model({ state, message }) {
    setChip(this.modelChip, state, state === "ready" ? "model ready" : `model: ${message}`);
  }

  /** Name the run on view; it may have no header yet. */
  tell({ header }) {
    const graph = header?.graph && `graph ${header.graph}`;
    this.about.textContent = header ? [...header.facts, graph].filter(Boolean).join(" · ") : "";
  }

  state(run) {
    const { state, message, ahead } = run.feed.run;
    const words = {
      waiting: ahead ? `waiting, ${ahead} before it` : "waiting",
      running: "denoising",
    };
    const who = run.header ? run.title : `run ${run.letter}`;
    setChip(run.chip, state, `${who}: ${words[state] ?? state}`);
    if (state === "failed" || message) this.complain(message);
  }

  /** Which runs can be saved, under which name. */
  draw(pair) {
    this.runs.forEach((run, at) => {
      const name = run.name.replace("Plain", "plain");
      this.saves[at].hidden = !run.steps.length;
      this.saves[at].textContent = pair ? `Save ${name} trace` : "Save trace";
    });
  }

  working(busy) {
    this.emptyTitle.textContent = busy ? WAITING : EMPTY;
  }
}

export function setChip(chip, state, words) {
  chip.hidden = false;
  chip.setAttribute("data-state", state);
  chip.textContent = words;
}
