// Calibration: what the runs on view say about their drafters. Findings first, then the figures
// they rest on, then every cause of death with its examples. Numbers come from analysis only.

import { onShown, ViewInAddress } from "../address.js";
import { clear, h, say } from "../dom.js";
import { answered, sent } from "../feed.js";
import { Figures } from "../figure.js";
import { NEEDS_FILE, namesOf, ticketsOf, whenEnded } from "../named.js";
import { News } from "../news.js";
import { awaited, banner, card, opener } from "../parts.js";
import { Turns } from "../turns.js";
import { CausesCard } from "./causes.js";
import { RunChooser } from "./chooser.js";
import { DiagnosisCard } from "./diagnosing.js";
import { errorsOf, findingsOf, numbersOf, words } from "./summaries.js";

const OBSERVED =
  "Observed positions only: a depth is observed when everything before it was accepted. " +
  "Faint points are of fewer than five.";

/** The figures shown, by their names in analysis' catalogue. */
const ALONG = [
  "lengths",
  "acceptance-by-depth",
  "coverage-by-width",
  "coverage-by-depth",
  "tvd-by-depth",
];
const RELIABILITY = ["reliability-path", "reliability-step", "expected-accepted"];
const RESULT = ["tvd-by-depth", "coverage-by-depth"];

export function mount(page) {
  const source = { ...page.server, news: new News() };
  new Calibration(page.element, source, (file) => sent(page, "open", file));
}

export class Calibration {
  /** send(file): what the server makes of a result of the command calibrate. */
  constructor(element, source, send) {
    this.source = source;
    this.send = send;
    this.runs = [];
    this.looks = new Turns();
    this.files = new Turns();
    const complain = (sentence) => this.complain(sentence);
    this.chooser = new RunChooser(source, {
      leave: () => this.address?.leave(),
      chosen: (runs, missing) => this._look(runs, missing),
      complain,
    });
    const changed = () => this.address.moved();
    this.along = new Figures(ALONG, source, { onChoose: changed });
    this.reliability = new Figures(RELIABILITY, source, { onChoose: changed });
    this.causes = new CausesCard(source, complain, changed);
    this._build(element);
    this._working(true);
    this.address = new ViewInAddress("calibration", this.scope, {
      state: () => (this.found ? this._state() : null),
      runs: () => this.runs.map(({ ticket }) => ticket),
      show: (state, runs, _, isWanted) => this._show(state, runs, isWanted),
      go: (asked) => this._go(asked),
    });
    onShown(this.scope, () => this.address.turns.isTaken || this.chooser.begin());
  }

  /** The runs, and what is chosen in their figures. */
  _state() {
    const figures = { ...this.along.chosen, ...this.reliability.chosen };
    return {
      ...namesOf(this.chooser.made),
      ...this.causes.state,
      figures: Object.keys(figures).length ? figures : undefined,
      show: this.file.hidden ? undefined : "file",
    };
  }

  /** Measure the runs that an address names, or something to begin with. */
  async _show(state, runs, isWanted) {
    const { tickets, said } = await ticketsOf(this.source, state, runs, isWanted);
    if (!isWanted()) return;
    this.complain(said);
    await whenEnded(this.source, tickets, isWanted, () => this._see());
    if (!isWanted()) return;
    if (tickets.length) await this.chooser.only(tickets);
    else await this.chooser.begin();
    if (!this.found || !isWanted()) return;
    for (const figures of [this.along, this.reliability]) figures.restore(state?.figures ?? {});
    await this.causes.restore(state ?? {});
    if (!isWanted()) return;
    const lacks = state?.show === "file" && this.file.hidden;
    if (said || lacks) this.complain(said || NEEDS_FILE);
  }

  _build(element) {
    const about = "calibration.parquet or .csv, as the command calibrate writes it",
      opens = { class: "ds-opens", title: about },
      open = opener("Open a calibrate result…", opens, (file) => this._open(this.send(file)));
    const spring = h("span.ds-spring"),
      soft = { class: "ds-soft", role: "status", hidden: true };
    this.said = banner();
    this.reading = h("span", soft, "measuring…");
    this.findings = h("div.ds-findings-box", { role: "status" });
    this.numbers = h("div.ds-table");
    this.errors = h("div.ds-table");
    const { list, empty, fold } = this.chooser;
    const of = (label, title, ...parts) => card(label, h("h2", title), ...parts),
      observed = h("p.ds-soft.ds-tell", OBSERVED);
    this.body = h(
      "div.ds-below",
      of("Findings", "What was found", this.findings, this.numbers, words()),
      of("Per depth", "Along the accepted text", observed, this.along.element),
      of("Reliability", "Does q mean what it says?", this.errors, this.reliability.element),
      this.causes.element,
    );
    this.body.hidden = true;
    this.coming = awaited();
    const head = [h("h2", "Runs"), list, this.reading, spring, open];
    this.chosen = card("Runs", head, empty, this.said, fold);
    this.last = h("div", new DiagnosisCard(this.source).element);
    const parts = [this.chosen, this._result(), this.coming, this.body, this.last];
    this.scope = h("div.ds-scope", parts);
    for (const each of [this.chosen, this.coming]) each.classList.add("ds-coming");
    clear(element).append(this.scope);
  }

  /** It is known which runs are measured, or that it takes a while. */
  _see() {
    for (const each of [this.chosen, this.coming]) each.classList.remove("ds-coming");
  }

  /** A result file of the command calibrate, once one is opened. */
  _result() {
    this.measured = new Figures(RESULT, this.source);
    this.about = h("span.ds-soft");
    const head = [h("h2", "A result of calibrate"), this.about];
    this.file = card("A calibrate result", head, this.measured.element);
    this.file.hidden = true;
    return this.file;
  }

  /** Measure the run that another tab asked for, or open a file. */
  async _go({ ticket, path }) {
    if (ticket) await this.chooser.add([ticket]);
    if (path) await this._open(this.source.open({ path }), this.chooser.begin());
  }

  async _look(runs, missing) {
    const tickets = runs.map((run) => run.ticket),
      letters = runs.map((run) => run.letter).join("");
    const isWanted = this.looks.take();
    this.runs = runs;
    this._see();
    this._working(runs.length > 0);
    const answer = runs.length ? await answered(this.source.calibrate({ tickets, letters })) : null;
    if (!isWanted()) return;
    this._working(false);
    this.complain(answer?.error || missing);
    this.found = answer && !answer.error ? answer : null;
    this.body.hidden = !this.found;
    if (this.found) this._draw(answer);
    this.address.write();
  }

  /** Until the answer is there the view shows the runs before, dimmed. */
  _working(busy) {
    this.reading.hidden = this.coming.hidden = !busy;
    if (this.found) this.coming.hidden = true;
    this.last.classList.toggle("ds-coming", !this.coming.hidden); // it stands below
    this.body.classList.toggle("ds-stale", busy);
    this.scope.setAttribute("aria-busy", String(busy));
  }

  complain(sentence) {
    say(this.said, sentence);
    if (!sentence || this.found) return;
    this._see();
    this._working(false);
    this.body.hidden = true;
  }

  _draw(found) {
    const { runs, source } = this;
    this.chooser.name(found.names);
    this.findings.replaceChildren(...findingsOf(runs, found));
    this.numbers.replaceChildren(...numbersOf(runs, found, source));
    this.errors.replaceChildren(...errorsOf(runs, found, source));
    this.along.draw(found.figures);
    this.reliability.draw(found.figures);
    this.causes.draw(runs, found);
  }

  /** Show the file that the server is opening; `begun`: runs, which clear what was said. */
  async _open(opening, begun) {
    const isWanted = this.files.take(),
      answer = await answered(opening);
    await begun;
    if (!isWanted()) return;
    this.complain(answer.error);
    if (answer.error) return;
    this.measured.draw(answer.figures);
    this.about.textContent = answer.about;
    this.file.hidden = false;
    this.address.moved();
    this.file.scrollIntoView({ block: "nearest" });
  }
}
