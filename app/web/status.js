// Beside the prompt, in the form's one line (above the view where there is no form): the states of
// model and runs, what is on view, and one menu with what can be done with it.

import { h, plural, say } from "./dom.js";
import { isWritten } from "./form.js";
import { action, banner, menu } from "./parts.js";
import { toolbar } from "./roving.js";
import { openers } from "./studio/shelf.js";

const NOTED = 6000; // milliseconds that a note stays
const RUN_WORDS = { done: "done", stopped: "stopped", failed: "failed" };
const FILE_WORDS = {
  waiting: "reading the file",
  running: "reading the file",
  done: "recorded",
  stopped: "recorded, interrupted",
  failed: "failed",
};

export class StatusLine {
  /** label: of the row; shelf: of the examples, null where there is no server; actions: the rest of
   * the menu. */
  constructor(label, shelf, actions) {
    const loading = { role: "status", "data-state": "loading" };
    this.modelChip = h("span.ds-chip", loading, "model: waking up");
    this.modelBar = h("span.ds-progress", { hidden: true }, h("i"));
    this.about = h("span.ds-about");
    this.chips = h("span.ds-chips");
    this.banner = banner();
    this.line = this._line(label, shelf, [...(shelf ? openers() : []), ...actions]);
    this.element = h("div.ds-top-line", this.line, this.banner);
  }

  _line(label, shelf, actions) {
    const words = "Examples, files and what was opened in this tab (e)",
      examples = shelf ? action("Examples", words, () => shelf.open()) : "",
      states = [this.modelChip, this.modelBar, this.chips, this.about],
      more = menu("What to do with this run", actions),
      tools = [h("span.ds-spring"), examples, more];
    return toolbar(label, h("div.ds-status.ds-row", states, tools));
  }

  /** Stand in the line of a form, which is outside of the view. The prompt of what is on view is
   *  said there only where the form's own is another. */
  standIn(bar, prefix) {
    bar.append(h("div.ds-scope.ds-beside-prompt", this.line));
    this.form = prefix;
    for (const name of ["input", "focusin", "focusout"])
      bar.addEventListener(name, () => this._compare());
  }

  _compare() {
    const isOther = !!this.form && isWritten(this.form, this.prompt);
    this.about.classList.toggle("unlike", isOther);
  }

  /** Whether the states are not seen yet: those of some would move the others. */
  blank(on) {
    this.chips.classList.toggle("ds-coming", on);
  }

  model(model) {
    const words = model.state === "ready" ? "model ready" : `model: ${model.message}`,
      absent = model.state === "absent"; // a file has no model
    setChip(this.modelChip, model.state, absent ? "" : words);
    const known = model.state === "loading" && typeof model.fraction === "number";
    this.modelBar.hidden = !known;
    if (known) this.modelBar.firstChild.style.width = `${Math.round(100 * model.fraction)}%`;
  }

  silent(why) {
    setChip(this.modelChip, "failed", why);
  }

  /** The run on view: its header, and `words` about it, which `title` adds to. */
  tell(header, words, title) {
    const { prompt } = header ?? {};
    this.prompt = prompt;
    this._compare();
    this.about.replaceChildren(
      ...(header ? [h("q.ds-cut", { title: prompt }, prompt), h("span", { title }, words)] : []),
    );
  }

  /** A run's state beside the model's; `name`: which of several it is, or "". What several wait
   *  for is said briefly: their chips stand beside each other. */
  run({ chip, feed }, name) {
    const named = (words) => (name && `${name}: `) + words,
      { ahead, state, source } = feed.run;
    if (!source) return setChip(chip, state, ""); // the server has not said yet what it is
    const brief = ahead ? `${plural(ahead, "run")} ahead` : "waiting",
      words = named(stateOf(feed.run));
    setChip(chip, state, name && state === "waiting" ? named(brief) : words, words);
  }

  /** A sentence that is not a complaint; it goes by itself. */
  note(sentence) {
    this.complain(sentence);
    this.banner.classList.add("note");
    setTimeout(() => this.complaint === sentence && this.complain(""), NOTED);
  }

  /** Say what a run without rounds waits for; "": it has some, or nothing comes. */
  waitingFor({ feed }) {
    if (feed.rounds.length || !feed.active || !feed.run.source) return "";
    const waking = this.modelChip.getAttribute("data-state") === "loading";
    return waking && feed.decoding ? this.modelChip.textContent : stateOf(feed.run);
  }

  /** `text`: what could not be put on the clipboard, to be copied by hand. */
  complain(sentence, text = "") {
    this.banner.classList.remove("note");
    say(this.banner, sentence);
    if (!text) return;
    const field = h("input.ds-search", { "aria-label": "Copy this by hand" });
    Object.assign(field, { value: text, readOnly: true });
    this.banner.append(" Copy it here: ", field);
    field.select();
  }

  get complaint() {
    return this.banner.hidden ? "" : this.banner.textContent;
  }
}

/** The words for a run that waits. */
export function waitingFor(run) {
  return run.ahead ? `waiting: ${plural(run.ahead, "run")} ahead` : "waiting for the model";
}

function stateOf(run) {
  const file = run.source === "file";
  if (run.state === "waiting" && !file) return waitingFor(run);
  if (run.state === "running" && run.reading) return run.reading;
  return file ? FILE_WORDS[run.state] : RUN_WORDS[run.state] || "running";
}

/** A chip's state and words, and more of them where it is pointed at; without words it goes. */
export function setChip(chip, state, words, title = words) {
  chip.hidden = !words;
  if (chip.getAttribute("data-state") !== state) chip.setAttribute("data-state", state);
  if (chip.textContent !== words) chip.textContent = words;
  chip.title = title;
}
