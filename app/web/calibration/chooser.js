// The runs that Calibration measures: up to four, chosen from the shelf or sent by another tab.

import { button, h, runName } from "../dom.js";
import { answered } from "../feed.js";
import { firstOf, Gallery, shelve, shelved } from "../gallery.js";
import { exampleOf } from "../named.js";
import { sign } from "../parts.js";
import { keptTickets, lettersFor, UNASKED } from "../studio/shelf.js";
import { Turns } from "../turns.js";

const MOST = 4;
const PROMPT = 28; // letters of a run's prompt
const GONE = "a run that was chosen is no longer on the server";
const CHOOSE = "Examples that ship, and runs opened in this tab: one click adds them, up to four";

/** What is not measured among some runs, in a sentence; "": all are. */
function absent(runs, measured) {
  const without = runs.filter((run) => !measured.includes(run));
  const called = without.map(({ file, method, prompt }) => file || `${method} on “${prompt}”`);
  return called.length ? `without rounds so far, and left out: ${called.join(", ")}` : "";
}

/** The runs of this browser tab that somebody asked for, else all of them. */
function newest() {
  const all = shelved(),
    unasked = keptTickets(UNASKED),
    own = all.filter((ticket) => !unasked.includes(ticket));
  return own.length ? own : all;
}

export class RunChooser {
  /** hear: {leave() somebody chooses, chosen(runs, missing sentence), complain(sentence)}.
   * A run is {ticket, letter, title, prompt}. */
  constructor(source, hear) {
    Object.assign(this, { source, hear, runs: [], asked: [], turns: new Turns() });
    this.list = h("span.ds-chosen.ds-row");
    this.empty = h("p.ds-tell", { role: "status" });
    this.shelf = new Gallery(source, (tickets) => this.add(tickets), true);
    this.fold = h("details.ds-fold-runs", h("summary", CHOOSE), this.shelf.element);
    this.fold.addEventListener("toggle", () => this.fold.open && this.shelf.draw());
  }

  /** What an address says of the runs. */
  get made() {
    return this.runs.map((run) => run.made);
  }

  /** Nobody chose yet: the newest runs of this browser tab, or an example that ships. What the
   *  page opened by itself counts only where there is no other. */
  begin() {
    if (this.begun) return this.beginning;
    this.begun = true;
    this.beginning = this._begin();
    return this.beginning;
  }

  async _begin() {
    const isWanted = this.turns.take(),
      kept = await answered(this.source.runs({ tickets: newest().slice(0, MOST) }));
    if (!isWanted()) return; // somebody was quicker
    if (kept.error) {
      this.begun = false;
      return this.hear.complain(kept.error);
    }
    const done = kept.runs.filter((run) => run.rounds),
      missing = absent(kept.runs, done);
    if (done.length) await this._take(done, undefined, missing);
    else await this._example(isWanted, missing);
  }

  async _example(isWanted, missing) {
    const { first } = await answered(this.source.examples({})),
      { ticket } = await exampleOf(this.source, first?.run?.[0]),
      { runs } = await answered(this.source.runs({ tickets: ticket ? [ticket] : [] }));
    if (isWanted()) await this._take(runs || [], ticket, missing);
  }

  /** Measure these runs and no others. */
  only(tickets) {
    this.begun = true;
    shelve(tickets);
    return this._choose(tickets.slice(0, MOST));
  }

  /** Somebody chose these runs: they are measured beside those that were chosen before. */
  add(tickets) {
    this.hear.leave();
    this.begun = true;
    shelve(tickets);
    const held = this.asked.filter((ticket) => ticket !== this.example);
    return this._choose([...new Set([...held, ...tickets])].slice(-MOST));
  }

  /** The runs of these tickets, as far as the server still has them. */
  async _choose(tickets) {
    this.asked = tickets; // by the time of its answer, more may be asked for
    const isWanted = this.turns.take(),
      answer = await answered(this.source.runs({ tickets }));
    if (!isWanted()) return;
    if (answer.error) {
      this.asked = this.runs.map((run) => run.ticket);
      return this.hear.complain(answer.error);
    }
    const some = answer.runs.filter((run) => run.rounds),
      gone = answer.runs.length < tickets.length && GONE;
    await this._take(some, undefined, gone || absent(answer.runs, some));
  }

  /** `example` is the ticket of one that nobody chose, `missing` says what is not there. */
  _take(runs, example, missing) {
    this.example = example;
    this.asked = runs.map((run) => run.ticket);
    const letters = lettersFor(this.asked);
    this.runs = runs.map((run, at) => ({
      ticket: run.ticket,
      title: runName(run),
      letter: letters[at],
      prompt: run.prompt,
      made: run.made,
    }));
    this.runs.sort((one, other) => (one.letter < other.letter ? -1 : 1));
    this.list.replaceChildren(...this.runs.map((run) => this._entry(run)));
    const shown = `An example that ships: ${runs[0]?.method} on “${runs[0]?.prompt}”.`;
    this.empty.textContent = example ? `${shown} Choose others below.` : "Choose runs below.";
    this.empty.hidden = !example && runs.length > 0;
    return this.hear.chosen(this.runs, missing);
  }

  /** Call the runs as figures do, with what sets each apart from the others. `names`: by letter,
   *  which begins them. */
  name(names) {
    for (const run of this.runs) {
      run.title = names[run.letter].slice(2);
      run.called.textContent = run.title;
    }
  }

  _entry(run) {
    const leaveOut = () => {
      this.hear.leave();
      return this._choose(this.asked.filter((ticket) => ticket !== run.ticket));
    };
    const about = { "aria-label": `Leave ${run.letter} out`, title: "Leave this run out" };
    run.called = h("span", run.title);
    return h(
      "span",
      { title: run.prompt },
      sign(run.letter),
      run.called,
      h("small.ds-soft", firstOf(run.prompt, PROMPT)),
      button("×", { class: "ds-small", ...about }, leaveOut),
    );
  }
}
