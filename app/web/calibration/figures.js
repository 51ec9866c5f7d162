// The figures of Calibration: what each means, and the points it draws from analysis' tables.

import { plural } from "../dom.js";
import { choice, optionsOf } from "../parts.js";
import { column, Figure } from "../plots.js";

const WIDTHS = Array.from({ length: 16 }, (_, i) => i + 1),
  POWERS = [1, 2, 4, 8, 16];

/** [name, title, what it says, x, y] */
const ABOUT = [
  [
    "tvd",
    "TVD by depth",
    "How far the drafter's q is from the target's p, ½ Σ |q − p|: 0 is the same distribution, 1 has nothing in common. Mean ± 1.96 standard errors.",
    "depth",
    "TVD",
  ],
  [
    "cover",
    "Top-K coverage by depth",
    "How much of the target's p the drafter's K best tokens hold: at temperature 1, how often its token is among them. Means over observed positions, fewer at every depth.",
    "depth",
    "coverage",
  ],
  [
    "wide",
    "Top-K coverage by K",
    "What one more candidate at a depth is worth: where the curve is flat, a wider tree buys little.",
    "K",
    "coverage",
  ],
  [
    "accept",
    "Acceptance by depth",
    "How often the target's token was drafted, given that everything before it was accepted. Wilson's 95 % interval.",
    "depth",
    "accepted",
  ],
  [
    "lengths",
    "Acceptance lengths",
    "How many tokens a round was good for: accepted nodes + 1. Their mean is τ.",
    "accepted + 1",
    "share of rounds",
  ],
  [
    "path",
    "Reliability of path probability",
    "Nodes by the product of q along their path, against the share that was accepted: below the dashed curve, where both are the same, the drafter promises too much. Bins of equal mass, Wilson's interval.",
    "path probability",
    "accepted",
  ],
  [
    "step",
    "Reliability of q, parent accepted",
    "Nodes whose parent was accepted, by their own q, against the share that was accepted: on the diagonal q means what it says.",
    "q",
    "accepted",
  ],
  [
    "surrogate",
    "Σq against accepted nodes",
    "Rounds by the sum of their nodes' path probabilities, which best-first building maximises, against what was accepted.",
    "Σ q",
    "accepted nodes",
  ],
];

export function figuresOf(about, source) {
  return Object.fromEntries(
    about.map(([name, title, says, x, y]) => [name, new Figure({ title, says, x, y, source })]),
  );
}

/** Depths from 1 to the deepest of some rows, as the range of an axis. */
export function depthRange(rows) {
  const deepest = Math.max(2, ...rows.map((row) => row.depth));
  return { x: [1, deepest], y: [0, 1], ticks: Array.from({ length: deepest }, (_, i) => i + 1) };
}

/** A list of K beside a figure's title. */
export function widthChoice(figure, onChange) {
  const options = WIDTHS.map((k) => [k, `K = ${k}`]),
    made = choice(`K: ${figure.about.title}`, options, onChange);
  made.value = "8";
  figure.tools.prepend(made);
  return made;
}

export class CalibrationFigures {
  constructor(source) {
    const all = figuresOf(ABOUT, source);
    this.all = all;
    this.widths = widthChoice(all.cover, () => this._cover());
    this.depth = choice(`Depth: ${all.wide.about.title}`, [], () => this._wide());
    all.wide.tools.prepend(this.depth);
    const elements = (...names) => names.map((name) => all[name].element);
    this.alongText = elements("lengths", "accept", "wide", "cover", "tvd");
    this.reliability = elements("path", "step", "surrogate");
  }

  /** runs: [{letter, title}]; found: the server's tables. */
  draw(runs, found) {
    Object.assign(this, { runs, found, range: depthRange(found.depths) });
    this._perDepth("tvd", "tvd", "probed");
    this._perDepth("accept", "acceptance", "observed");
    this._cover();
    const was = this.depth.value || "1";
    this.depth.replaceChildren(...optionsOf(this.range.ticks.map((d) => [d, `depth ${d}`])));
    this.depth.value = Number(was) <= this.range.ticks.length ? was : "1";
    this._wide();
    this._lengths();
    this._reliability();
  }

  /** A series of each run: the points that `make` gives for its rows of a table. */
  _each(table, make) {
    return this.runs.map((run) => ({
      name: `${run.letter} ${run.title}`,
      points: make(this.found[table].filter((row) => row.run === run.letter)),
    }));
  }

  _perDepth(figure, y, n) {
    const points = (rows) => column(rows, "depth", y, `${y}_low`, `${y}_high`, n);
    this.all[figure].lines(this._each("depths", points), this.range);
  }

  _cover() {
    if (!this.found) return;
    const name = `coverage_${this.widths.value}`,
      points = (rows) => column(rows, "depth", name, null, null, "probed");
    this.all.cover.lines(this._each("depths", points), this.range);
  }

  _wide() {
    if (!this.found) return;
    const depth = Number(this.depth.value);
    const points = (rows) =>
      rows
        .filter((row) => row.depth === depth)
        .flatMap((row) => WIDTHS.map((k) => ({ x: k, y: row[`coverage_${k}`], n: row.probed })))
        .filter((p) => typeof p.y === "number");
    const range = { x: [1, 16], y: [0, 1], ticks: POWERS, log: true };
    this.all.wide.lines(this._each("depths", points), range);
  }

  _lengths() {
    const { lengths } = this.found,
      longest = Math.max(2, ...lengths.map((row) => row.length)),
      xs = Array.from({ length: longest }, (_, i) => i + 1);
    const points = (rows) =>
      rows.map((row) => ({ x: row.length, y: row.share, words: plural(row.rounds, "round") }));
    this.all.lengths.bars(this._each("lengths", points), xs);
  }

  _reliability() {
    const bins = (rows) => column(rows, "mean_q", "share", "share_low", "share_high", "nodes");
    for (const name of ["path", "step"]) {
      const rows = this.found[name],
        top = upTo(
          rows.flatMap((row) => [row.mean_q, row.share_high]),
          1,
        );
      const least = Math.min(top / 10, ...rows.map((row) => row.mean_q).filter((q) => q > 0));
      const range = name === "path" ? { x: [least, top], log: true } : { x: [0, top] };
      this.all[name].lines(this._each(name, bins), { ...range, y: [0, top] }, ["diagonal"]);
    }
    const sums = this.found.surrogate_curve,
      most = upTo(sums.flatMap((row) => [row.expected, row.high ?? row.accepted]));
    this.all.surrogate.lines(
      this._each("surrogate_curve", (rows) =>
        column(rows, "expected", "accepted", "low", "high", "rounds"),
      ),
      { x: [0, most], y: [0, most] },
      ["diagonal"],
    );
  }
}

/** A bound a little above the largest value. */
function upTo(values, most = Infinity) {
  return Math.min(most, 1.05 * Math.max(0.1, ...values.filter((v) => typeof v === "number")));
}
