// Causes of death: why walks ended and what became of drafted nodes, each part one click from its
// rounds.

import { button, h, percent, plural, shortNumber, withInterval } from "../dom.js";
import { answered } from "../feed.js";
import { Figure } from "../figure.js";
import { goTo } from "../goto.js";
import { card, choice, LETTERS, optionsOf, sheet } from "../parts.js";
import { savers } from "../save/buttons.js";
import { Turns } from "../turns.js";
import { describe } from "./summaries.js";

/** figure → [what its x is, what is counted] */
const COUNTED = {
  "stops-by-depth": ["depth", "stops"],
  "causes-by-depth": ["depth", "nodes"],
  "stops-by-token": ["token_class", "stops"],
};
const MOST = 40; // examples that the server names

export class CausesCard {
  /** changed(): another run's causes are shown, or another part's examples. */
  constructor(source, complain, changed) {
    Object.assign(this, { source, complain, changed, picked: null, finding: new Turns() });
    this.figures = Object.keys(COUNTED).map((name) => this._figure(name));
    this.who = choice("Run whose causes are shown", [], () => {
      this._draw();
      changed();
    });
    this.examples = h("div.ds-found-box", { "aria-live": "polite" });
    this.siblings = h("div.ds-table");
    const shown = this.figures.map(({ figure }) => figure.element),
      hint = h("span.ds-soft", "press a bar, or a cell of its table, for examples"),
      head = [h("h2", "Causes of death"), this.who, hint],
      parts = [h("div.ds-figures", shown), this.examples, this.siblings];
    this.element = card("Causes of death", head, ...parts);
  }

  draw(runs, found) {
    const was = this.who.value;
    Object.assign(this, { runs, found });
    const options = runs.map(({ letter, title }) => [letter, `${letter} ${title}`]);
    this.who.replaceChildren(...optionsOf(options));
    if (runs.some((run) => run.letter === was)) this.who.value = was;
    for (const { name, figure } of this.figures) figure.draw(found.figures[name]);
    this._draw();
  }

  _draw() {
    const run = this._run;
    if (!run) return;
    this.finding.end();
    this.picked = null;
    this.examples.replaceChildren();
    for (const { figure } of this.figures) figure.choose(this.found.names[run.letter]);
    this._siblings(run);
  }

  _figure(name) {
    const [over, unit] = COUNTED[name];
    const onPick = ({ key, name: words, x }) => {
      const where = over === "depth" ? `depth ${x}` : x;
      this.picked = { figure: name, cause: key, at: x };
      this.changed();
      return this._find(this._run, { cause: key, unit, [over]: x }, `${words}, ${where}`);
    };
    return { name, figure: new Figure(this.source, { onPick, listed: false }) };
  }

  /** The run, and the part whose examples are shown, for the address. */
  get state() {
    const at = this.runs.indexOf(this._run);
    return { who: at > 0 ? LETTERS[at] : undefined, find: this.picked ?? undefined };
  }

  /** Take them from an address. */
  async restore({ who = "A", find }) {
    const run = this.runs[LETTERS.indexOf(who)];
    if (run) this.who.value = run.letter;
    this._draw();
    const figure = this.figures.find(({ name }) => name === find?.figure)?.figure,
      series = figure?.series.find(({ key }) => key === find.cause),
      at = series?.points.find(({ x }) => figure.json.layout.meta.places[x] === find.at);
    if (at) await figure.pick(series, at.x);
  }

  get _run() {
    return this.runs.find((each) => each.letter === this.who.value);
  }

  /** Examples of one part, each opens in Run. */
  async _find(run, wanted, title) {
    const asked = { ticket: run.ticket, ...wanted };
    const isWanted = this.finding.take(),
      answer = await answered(this.source.find(asked));
    if (!isWanted()) return;
    if (answer.error) return this.complain(answer.error);
    const count = answer.examples.length,
      words = plural(count, "example") + (count === MOST ? " (the first ones)" : "");
    const opener = ({ round, index, row }) => {
      const at = wanted.unit === "stops" ? -1 : row,
        about = { class: "ds-small", "aria-label": `Open round ${round}, node ${row}` };
      return button(`round ${round}`, about, () =>
        goTo({ view: "run", ticket: run.ticket, round: index, row: at }),
      );
    };
    this.examples.replaceChildren(
      h("h4.ds-sub", `${title}: `, h("small.ds-soft", `${words}; each opens in Run`)),
      h("div.ds-finds", answer.examples.map(opener)),
    );
    this.examples.scrollIntoView({ block: "nearest" });
  }

  /** How the draft goes on behind a sibling. */
  _siblings(run) {
    const title = "After another than the best token",
      own = this.found.siblings.filter((row) => row.run === run.letter),
      rows = own.filter((row) => row.observed);
    const heads = ["depth 2 and deeper", "observed", "accepted", "drafter's best right", "TVD"];
    const lines = rows.map((row) => [
      row.context,
      row.observed,
      withInterval({ y: row.acceptance, low: row.low, high: row.high }),
      percent(row.top1),
      shortNumber(row.tvd),
    ]);
    this.siblings.replaceChildren(
      sheet(title, heads, lines),
      savers(title, () => rows.map((row) => ({ ...describe(run), ...row })), this.source),
    );
  }
}
