// Causes of death: why walks ended and what became of drafted nodes, each part one click from its
// rounds.

import { button, h, percent, plural } from "../dom.js";
import { answered } from "../feed.js";
import { goTo } from "../goto.js";
import { card, choice, optionsOf, sheet } from "../parts.js";
import { shortNumber } from "../plot-axes.js";
import { withInterval } from "../plots.js";
import { savers } from "../save.js";
import { figuresOf } from "./figures.js";
import { describe } from "./summaries.js";

/** [cause, its look, what it is called of a node: at a rejected node the wanted token was another] */
const PARTS = [
  ["accepted", "accepted", "accepted"],
  ["outranked", "outranked", "outranked: a sibling was the target's token"],
  ["not drafted: pruned by budget", "pruned", "rejected: the wanted token was pruned by budget"],
  [
    "not drafted: outside the candidates",
    "outside",
    "rejected: the wanted token was outside the candidates",
  ],
  ["not drafted: beyond the last depth", "beyond", "rejected: at the last depth"],
  ["not drafted: this round drafted nothing", "nodraft", "rejected"],
  ["refused by speculative sampling", "refused", "rejected: refused by speculative sampling"],
  ["unreached", "unreached", "unreached"],
];
const ABOUT = [
  [
    "stops",
    "Why the walk ended",
    "One cause a round, by the depth where its walk stopped. Each part opens its rounds.",
    "depth",
    "share of rounds",
  ],
  [
    "causes",
    "What became of drafted nodes",
    "All nodes by their depth; unreached ones are unobserved, never counted as rejected.",
    "depth",
    "share of nodes",
  ],
  [
    "sorts",
    "Why the walk ended, by sort of token",
    "The same causes, by the sort of the token that the target wanted.",
    "token",
    "share of rounds",
  ],
];
/** figure → [what its x is, what is counted] */
const COUNTED = {
  stops: ["depth", "stops"],
  causes: ["depth", "nodes"],
  sorts: ["token_class", "stops"],
};
const MOST = 40; // examples that the server names

export class CausesCard {
  constructor(source, complain) {
    Object.assign(this, { source, complain });
    this.figures = figuresOf(ABOUT, source);
    this.who = choice("Run whose causes are shown", [], () => this._draw());
    this.examples = h("div", { class: "ds-found-box", "aria-live": "polite" });
    this.siblings = h("div", { class: "ds-table" });
    const shown = Object.values(this.figures).map((figure) => figure.element),
      hint = h("span", { class: "ds-soft" }, "click a bar for its examples");
    this.element = card(
      "Causes of death",
      [h("h2", {}, "Causes of death"), this.who, hint],
      h("div", { class: "ds-figures" }, shown),
      this.examples,
      this.siblings,
    );
  }

  draw(runs, found) {
    const was = this.who.value;
    Object.assign(this, { runs, found });
    this.who.replaceChildren(
      ...optionsOf(runs.map((run) => [run.letter, `${run.letter} ${run.title}`])),
    );
    if (runs.some((run) => run.letter === was)) this.who.value = was;
    this._draw();
  }

  _draw() {
    const run = this.runs.find((each) => each.letter === this.who.value);
    if (!run) return;
    this.finding = null;
    this.examples.replaceChildren();
    for (const name of Object.keys(COUNTED)) this._stack(run, name);
    this._siblings(run);
  }

  _own(table, run) {
    return this.found[table].filter((row) => row.run === run.letter);
  }

  _stack(run, name) {
    const [over, unit] = COUNTED[name],
      rows = this._own(name, run),
      xs = [...new Set(rows.map((row) => row[over]))];
    if (over === "depth") xs.sort((a, b) => a - b);
    const parts = PARTS.map(([cause, style, ofNode]) => ({
      name: unit === "nodes" ? ofNode : cause,
      cause,
      style,
      values: new Map(rows.filter((row) => row.cause === cause).map((row) => [row[over], row])),
    })).filter((part) => part.values.size);
    const causes = new Map(parts.map((part) => [part.name, part.cause]));
    this.figures[name].stacks(parts, xs, (words, x) =>
      this._find(
        run,
        { cause: causes.get(words), unit, [over]: x },
        `${words}, ${over === "depth" ? `depth ${x}` : x}`,
      ),
    );
  }

  /** Examples of one part, each opens in Run. */
  async _find(run, wanted, title) {
    const asked = { ticket: run.ticket, ...wanted };
    this.finding = asked;
    const answer = await answered(this.source.find(asked));
    if (this.finding !== asked) return; // another part was picked meanwhile, or another run
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
      h(
        "h4",
        { class: "ds-sub" },
        `${title}: `,
        h("small", { class: "ds-soft" }, `${words}; each opens in Run`),
      ),
      h("div", { class: "ds-finds" }, answer.examples.map(opener)),
    );
    this.examples.scrollIntoView({ block: "nearest" });
  }

  /** How the draft goes on behind a sibling. */
  _siblings(run) {
    const title = "After a sibling",
      rows = this._own("siblings", run).filter((row) => row.observed);
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
