// What a setting comes to at every budget: τ, the speed that may be expected, and how long its
// rounds are.

import { button, h } from "../dom.js";
import { card, opener } from "../parts.js";
import { shortNumber } from "../plot-axes.js";
import { Figure } from "../plots.js";

const ESTIMATE =
  "An estimate, not a measurement of this machine: τ here with the stage times of the shipped " +
  "example runs. The command cost, with --json, measures yours.";
const FLAT =
  "Tokens per forward pass of the target over the whole text, simulated: where the curve is " +
  "flat, more nodes buy nothing.";
const LENGTHS =
  "Rounds of this setting by the tokens they were good for: accepted nodes + 1. Their mean is τ.";
const TICKS = [1, 2, 4, 8, 16, 32, 64, 128, 256];
const KEPT = 4; // curves kept at most

/** Points of a curve that the server simulated. */
export function pointsOf({ points }) {
  return points.map(({ budget, tau, exact }) => ({
    x: budget,
    y: tau,
    words: exact ? "exact" : "not exact",
  }));
}

/** How often each length came, from 1 to the longest. */
export function countsOf(lengths) {
  const longest = Math.max(2, ...lengths);
  return Array.from({ length: longest }, (_, i) => ({
    x: i + 1,
    y: lengths.filter((length) => length === i + 1).length,
  }));
}

export class Curves {
  /** onAll(): every method's curve is asked for. */
  constructor(source, onAll) {
    const figure = (title, says, x, y) => new Figure({ title, says, x, y, source });
    this.tau = figure("τ by budget", FLAT, "draft budget B", "τ");
    this.speed = figure("Expected speed by budget", ESTIMATE, "draft budget B", "tokens/s");
    this.lengths = figure("Acceptance lengths", LENGTHS, "accepted + 1", "rounds");
    this.best = h("p", { class: "ds-tell ds-best", role: "status" });
    this.speed.element.append(this.best);
    this.speed.tools.prepend(
      opener("Open…", "ds-w-cost", {
        class: "ds-small ds-opens-cost",
        "aria-label": "Open a result of cost",
        title: "What `cost --json` wrote: this machine's own times",
      }),
    );
    this.clear();
    this.tools = this._tools(onAll);
    const shown = [this.tau, this.speed, this.lengths].map((each) => each.element);
    this.element = card("Curves", null, h("div", { class: "ds-figures" }, shown));
  }

  _tools(onAll) {
    const act = (words, title, to) => button(words, { class: "ds-button", title }, to);
    this.forget = act("Forget kept curves", "Leave only this setting's", () => this.keep([]));
    this.forget.hidden = true;
    return [
      act("Keep this curve", "Keep it to compare with the next setting", () => this._pin()),
      act("All methods", "Draw every method's curve, as it comes, beside this setting", onAll),
      this.forget,
    ];
  }

  clear() {
    Object.assign(this, { kept: [], curve: null, now: null, most: 1 });
    if (this.forget) this.forget.hidden = true;
  }

  _pin() {
    const { curve } = this;
    if (curve) this.keep([...this.kept.filter((each) => each.name !== curve.name), curve]);
  }

  /** Curves to compare with; the oldest of too many go. */
  keep(curves) {
    this.kept = curves.slice(-KEPT);
    this.forget.hidden = !curves.length;
    this._draw();
  }

  /** The run of one setting: its place among the curves, and its lengths. */
  at(name, budget, found) {
    this.now = { x: budget, y: found.tau };
    const points = countsOf(found.lengths),
      xs = points.map((p) => p.x);
    this.lengths.bars([{ name: `${name}, B = ${budget}`, points }], xs);
    this._draw();
  }

  /** No answer to a setting: nothing of the one before may look as if it were its. */
  blank() {
    this.now = this.curve = null;
    this.lengths.lines([]);
    this.speed.lines([]);
    this.best.textContent = "";
    this._draw();
  }

  /** A setting's curve, and what it costs; `of`: whose times were opened, if any were. */
  show(name, answer, of) {
    this.curve = { name, points: pointsOf(answer) };
    this._draw();
    this._speeds(name, answer.cost, of);
  }

  _draw() {
    const { now, curve } = this,
      kept = this.kept.filter((each) => each.name !== curve?.name),
      all = [...kept, ...(curve ? [curve] : [])],
      top = Math.max(1.5, now?.y ?? 0, ...all.flatMap((each) => each.points.map((p) => p.y))),
      most = Math.max(TICKS.at(-1), now?.x ?? 0);
    const here = { name: "this setting", only: "points", style: 5, points: now ? [now] : [] };
    this.tau.lines([...all, here], {
      x: [1, most],
      y: [1, top * 1.05],
      log: true,
      ticks: most > TICKS.at(-1) ? [...TICKS, most] : TICKS,
    });
  }

  /** These times in place of the estimate's. */
  measured(of) {
    this.speed.says.textContent = `τ here with the times that cost measured: ${of}.`;
  }

  _speeds(name, cost, of) {
    this.speed.element.hidden = !cost && !of;
    const missing = `This drafter was not timed in the result that is open (${of}).`;
    this.best.textContent = cost ? "" : missing;
    if (!cost) return this.speed.lines([]);
    const points = cost.points.map(({ budget, speed }) => ({ x: budget, y: speed })),
      top = 1.08 * Math.max(cost.plain, ...points.map((p) => p.y)),
      ends = [1, points.at(-1).x];
    const plain = { name: "plain decoding", points: ends.map((x) => ({ x, y: cost.plain })) };
    this.speed.lines([{ name, points }, plain], {
      x: ends,
      y: [0, top],
      log: true,
      ticks: points.map((p) => p.x),
    });
    const most = cost.points.find((p) => p.budget === cost.best).speed,
      speeds = `${shortNumber(most)} tokens/s; plain decoding ${shortNumber(cost.plain)}`;
    this.best.textContent = `Best budget by ${of ? "these times" : "this estimate"}: ${cost.best}, at ${speeds}.`;
  }
}
