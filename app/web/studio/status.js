// Beside the prompt, in the form's one line (above the view where there is no form): the states of
// model and runs, what is on view, and one menu with what can be done with it.

import { button, h, plural } from "../dom.js";
import { askForFiles, goTo } from "../goto.js";
import { menu } from "../parts.js";
import { toolbar } from "../roving.js";

const NOTED = 6000; // milliseconds that a note stays
const RUN_WORDS = { done: "done", stopped: "stopped", failed: "failed" };
const FILE_WORDS = {
  running: "reading the trace",
  done: "trace",
  stopped: "trace, interrupted",
  failed: "failed",
};

export class StatusLine {
  /** does: {examples, again, save}; `alone`: the view holds one run only. */
  constructor(source, alone, does) {
    const live = !!source.examples;
    this.source = source;
    this.modelChip = h(
      "span",
      { class: "ds-chip", role: "status", "data-state": "loading" },
      "model: waking up",
    );
    this.modelBar = h("span", { class: "ds-progress", hidden: true }, h("i", {}));
    this.about = h("span", { class: "ds-about" });
    this.chips = h("span", { class: "ds-chips" });
    this.banner = h("p", { class: "ds-banner", role: "alert", hidden: true });
    const ticket = () => does.ticket();
    this.examples = action("Examples", "Examples, files and runs of this tab (e)", does.examples);
    this.again = action("Run again…", "Fill the form with this run's settings", does.again);
    this.compare = action("Compare…", "Put this run into a comparison", () =>
      goTo({ view: "compare", ticket: ticket() }),
    );
    const whatIf = "What every method and budget would have drafted on this prompt";
    this.whatIf = action("What if…", whatIf, () => goTo({ view: "whatif", ticket: ticket() }));
    const anything = "Open any file where it belongs; files may also be dropped on the page";
    this.open = action("Open…", anything, () => askForFiles());
    this.folder = action("Open a folder…", "Open a folder's traces, or a checkpoint", () =>
      askForFiles(true),
    );
    this.save = action("Save trace", "Download this run as .jsonl.gz", does.save);
    for (const each of [this.examples, this.again, this.open, this.folder]) each.hidden = !live;
    this.compare.hidden = this.whatIf.hidden = !live || !alone;
    this.files = h("span", { class: "ds-drawings" }); // of the run on view: see Frame
    const actions = [this.open, this.folder, this.again, this.compare, this.whatIf];
    actions.push(this.save, this.files);
    this.menu = menu("What to do with this run", actions);
    this.line = this._line();
    this.element = h("div", { class: "ds-top-line" }, this.line, this.banner);
    this.allow(false);
    this.examples.disabled = false;
  }

  _line() {
    const states = [this.modelChip, this.modelBar, this.chips, this.about];
    const parts = [...states, h("span", { class: "ds-spring" }), this.examples, this.menu];
    return toolbar("The run on view", h("div", { class: "ds-status" }, parts));
  }

  /** Stand in the form's line, which is outside of the view. */
  standIn(bar) {
    bar.append(h("div", { class: "ds-scope ds-beside-prompt" }, this.line));
  }

  /** Whether there is a run to do things with, and whether one alone can be saved here. */
  allow(some, several) {
    for (const each of [this.save, this.compare, this.whatIf, this.again]) each.disabled = !some;
    this.save.hidden = several || !this.source.save;
  }

  model(model) {
    const words = model.state === "ready" ? "model ready" : `model: ${model.message}`,
      absent = model.state === "absent"; // a file has no model
    setChip(this.modelChip, model.state, absent ? "" : words);
    const known = model.state === "loading" && typeof model.fraction === "number";
    this.modelBar.hidden = !known;
    if (known) this.modelBar.firstChild.style.width = `${Math.round(100 * model.fraction)}%`;
  }

  silent() {
    setChip(this.modelChip, "failed", "the server does not answer");
  }

  /** The runs on view, in words. */
  describe(panes) {
    const { header } = panes[0].feed,
      several = panes.length > 1;
    this.about.replaceChildren(
      ...(header ? [h("q", { title: header.prompt }, header.prompt)] : []),
      h("span", { title: lengthOf(header) }, several ? "" : aboutRun(header)),
    );
    for (const pane of panes) {
      pane.name.textContent = pane.feed.header ? pane.title : "";
      pane.name.title = aboutRun(pane.feed.header);
    }
  }

  /** A run's state beside the model's; `several`: with its letter. */
  run(pane, several) {
    const { run } = pane.feed;
    setChip(pane.chip, run.state, (several ? `${pane.letter}: ` : "") + stateOf(run));
  }

  /** A sentence that is not a complaint; it goes by itself. */
  note(sentence) {
    this.complain(sentence);
    this.banner.classList.add("note");
    setTimeout(() => this.complaint === sentence && this.complain(""), NOTED);
  }

  /** Say what a run without rounds waits for; "": it has some, or nothing comes. */
  waitingFor({ rounds, feed }) {
    if (rounds.length || !feed.active) return "";
    const waking = this.modelChip.getAttribute("data-state") === "loading";
    return waking && feed.decoding ? this.modelChip.textContent : stateOf(feed.run);
  }

  complain(sentence) {
    this.banner.classList.remove("note");
    this.banner.hidden = !sentence;
    this.banner.textContent = sentence;
  }

  get complaint() {
    return this.banner.hidden ? "" : this.banner.textContent;
  }
}

function action(words, title, act) {
  return button(words, { class: "ds-button", title }, act);
}

function stateOf(run) {
  const file = run.source === "file";
  if (run.state === "waiting")
    return run.ahead ? `waiting: ${plural(run.ahead, "run")} ahead` : "waiting for the model";
  if (run.state === "running" && run.reading) return run.reading;
  return file ? FILE_WORDS[run.state] : RUN_WORDS[run.state] || "running";
}

/** A chip's state and words; without words it goes. */
export function setChip(chip, state, words) {
  chip.hidden = !words;
  if (chip.getAttribute("data-state") !== state) chip.setAttribute("data-state", state);
  if (chip.textContent !== words) chip.textContent = chip.title = words;
}

/** A run's method, model and settings on one line; the seed where it matters. */
function aboutRun(header) {
  if (!header) return "";
  const pick = new Map(header.settings),
    parts = [header.method, header.model];
  if (pick.has("budget")) parts.push(`B ${pick.get("budget")}`);
  if (pick.has("temperature")) parts.push(`T ${Number(pick.get("temperature"))}`);
  if (pick.has("seed") && Number(pick.get("temperature"))) parts.push(`seed ${pick.get("seed")}`);
  return parts.filter(Boolean).join(" · ");
}

function lengthOf(header) {
  return header ? plural(header.prompt_tokens, "prompt token") : "";
}
