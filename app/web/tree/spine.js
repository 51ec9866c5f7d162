// The run around the round in hand: its text as one straight path, and each round's rejected
// branches where they were drafted. Far out it is the run's shape, nearer its tokens, and nearest
// its boxes with q and p.

import { percent, s } from "../dom.js";
import { INSET, TOKEN_Y } from "./boxes.js";
import { FAR, FARTHER, TYPE } from "./camera.js";
import { RunPlan } from "./run-plan.js";

const MOST = 3; // branches drawn on one side of a token
const WINDOWS = 1; // windows beside the one in sight that are drawn too
const HIGH = 54; // pixels of TVD 1 in the shape
const DEEP = 11; // pixels of a doubling of siblings
const HALF = 7; // pixels of half the text's line in the shape
const TALL = 84; // pixels above and below the text's line that are its shape
const EDGE = 26; // pixels above and below the shape, of which all others are stretched
const TALLEST = 3; // times that they are
const WORDS = 12.5 * TYPE; // pixels of a column that has room for its token above its bars
const LETTER = 6.7 * TYPE;
const FEWEST = 4; // letters that words need room for

export class Spine {
  constructor() {
    this.plan = new RunPlan();
    this.element = s("g.ds-spine", { "aria-hidden": "true" });
    this.words = s("g"); // of the shape
    this.at = 0;
    this.tall = 1; // times that the shape is as high
  }

  /** The rounds of the run, and which of them the tree draws; sees(first, last): these are drawn
   * one by one. */
  show({ rounds, at, sees }, tree) {
    this.plan.take(rounds);
    Object.assign(this, { at, tree, sees, drawn: null });
  }

  clear() {
    this.tree = null;
    this.element.replaceChildren();
  }

  /** Columns from the root of the round in hand to that of another one. */
  columnsTo(at) {
    return this.plan.starts[at] - this.plan.starts[this.at];
  }

  /** Draw what the window [w, hgt] shows at a view. */
  place(view, [w, hgt]) {
    const { tree, plan, element } = this;
    if (!tree) return;
    const { k, kx, x, y } = view;
    const step = tree.stepX * kx;
    const here = plan.starts[this.at];
    const level = k >= FAR ? "near" : kx >= FARTHER ? "tokens" : "shape";
    const from = Math.max(0, Math.floor(here - x / step));
    const to = Math.min(plan.columns - 1, Math.ceil(here + (w - x) / step));
    const origin = tree.at(0)[1];
    if (level === "shape") {
      const middle = y + (origin + tree.boxH / 2) * k;
      this.tall = Math.max(1, Math.min(TALLEST, (hgt / 2 - EDGE) / TALL));
      const scale = `scale(${step} ${this.tall.toFixed(3)})`;
      element.setAttribute("transform", `translate(${x - here * step} ${middle}) ${scale}`);
      this.words.replaceChildren(...this._words(step, middle, from, to));
    } else {
      const scale = `scale(${kx.toFixed(4)} ${k.toFixed(4)})`;
      element.setAttribute("transform", `translate(${x.toFixed(1)} ${y.toFixed(1)}) ${scale}`);
    }
    const { drawn } = this;
    const same = drawn?.level === level && (level === "shape" || drawn.kx === kx);
    if (same && (level === "shape" || (from >= drawn.from && to <= drawn.to))) return;
    const more = Math.ceil((to - from + 1) * WINDOWS);
    this.drawn = { level, kx, from: Math.max(0, from - more), to: to + more };
    element.setAttribute("class", `ds-spine ${level}`);
    element.replaceChildren(...(level === "shape" ? this._shape() : this._tokens(view)));
    if (level !== "shape") this.sees(plan.roundAt(this.drawn.from), plan.roundAt(this.drawn.to));
  }

  // ── near: tokens, and what hangs off them ──────────────────────────────────────────────────

  _tokens({ kx }) {
    const { plan, tree, drawn } = this;
    const [first, last] = [plan.starts[this.at], plan.starts[this.at + 1]];
    const taken = new Map(); // column → heights that the tree in hand has boxes at
    for (const [left, top] of [...tree.place.values(), ...tree.chipPlace.values()]) {
      const column = first + Math.round(left / tree.stepX);
      taken.set(column, [...(taken.get(column) ?? []), top]);
    }
    const made = [];
    for (let column = drawn.from; column <= Math.min(drawn.to, plan.columns - 1); column++) {
      // The tree in hand draws its own tokens and branches; its root hangs on the round before.
      if (column > first && column <= last) continue;
      made.push(...this._column(column, first, kx, taken.get(column) ?? []));
    }
    return made;
  }

  _column(column, first, kx, taken) {
    const { plan, tree } = this;
    const left = (column - first) * tree.stepX;
    const top = tree.at(0)[1];
    const token = plan.token(column);
    const parts = [];
    const letters = Math.floor((tree.boxW * Math.min(kx, 1) - 8) / 7);
    const cut = (words) => (words.length > letters ? `${words.slice(0, letters - 1)}…` : words);
    const back = left - tree.stepX + tree.boxW;
    const middle = top + tree.boxH / 2;
    if (column > 0)
      parts.push(s("path", { class: edgeOf(token.came), d: `M${back} ${middle}H${left}` }));
    if (column !== first) {
      const size = { width: tree.boxW, height: tree.boxH, rx: token.row < 0 ? tree.boxH / 2 : 7 };
      const said = oddsOf(token);
      const lines = tree.slim ? said : [said.join("   ")];
      const inset = left + (token.row < 0 && !tree.slim ? INSET : tree.left);
      parts.push(
        s("rect", { class: `box ${token.came}`, x: left, y: top, ...size }),
        s("text.token", { x: inset, y: top + TOKEN_Y }, cut(token.short)),
        ...lines.map((words, i) => s("text.odds", { x: inset, y: top + 30 + 17 * i }, words)),
      );
    }
    for (const [side, by] of [
      ["above", -1],
      ["below", 1],
    ])
      parts.push(...this._side(plan.branches(column)[side], by, { left, top, back, taken, cut }));
    return parts;
  }

  _side(branches, by, { left, top, back, taken, cut }) {
    const { tree } = this;
    const shown = branches.slice(0, branches.length > MOST ? MOST - 1 : MOST);
    const entries = shown.map(({ label, nodes }) => `× ${cut(label)}${nodes ? ` +${nodes}` : ""}`);
    if (branches.length > shown.length) entries.push(`+${branches.length - shown.length}`);
    const middle = tree.boxH / 2;
    return entries.flatMap((words, i) => {
      const at = top + by * (tree.stepY + i * tree.stepY * 0.62);
      if (taken.some((other) => Math.abs(other - at) < tree.boxH)) return [];
      const from = top + middle;
      const bend = (left - back) / 2;
      const to = at + middle,
        d = `M${back} ${from}C${back + bend} ${from} ${left - bend} ${to} ${left} ${to}`;
      return [
        s("path.ds-edge.rejected", { d }),
        s("text.token.twig", { x: left + 5, y: at + middle + 4 }, words),
      ];
    });
  }

  // ── far: the run's shape ───────────────────────────────────────────────────────────────────

  /** In columns by pixels: above the text TVD, below it the siblings drafted in vain. */
  _shape() {
    const { plan } = this;
    const paths = {};
    const bar = (kind, column, y, tall) => {
      const d = `M${column + 0.08} ${y.toFixed(1)}h.84v${tall.toFixed(1)}h-.84z`;
      paths[kind] = (paths[kind] ?? "") + d;
    };
    plan.rounds.forEach((round, at) => {
      const start = plan.starts[at];
      if (!at) bar("root", 0, -HALF, 2 * HALF);
      for (let step = 1; step <= plan.starts[at + 1] - start; step++) {
        const taken = step < round.path.length;
        bar(taken ? "accepted" : "bonus", start + step, -HALF, 2 * HALF);
        const tvd = round.tvd[step - 1];
        if (typeof tvd === "number") bar("tvd", start + step, -HALF - 3 - HIGH * tvd, HIGH * tvd);
        const deep = DEEP * Math.log2(1 + plan.beside(start + step));
        if (deep) bar(taken ? "rejected" : `end ${round.cause}`, start + step, HALF + 3, deep);
      }
    });
    const wide = plan.starts[this.at + 1] - plan.starts[this.at];
    const here = {
      class: "here",
      x: plan.starts[this.at] + 1,
      width: wide,
      y: -TALL,
      height: 2 * TALL,
    };
    return [
      s("rect", here),
      ...Object.entries(paths).map(([kind, d]) => s("path", { class: kind, d })),
      this.words,
    ];
  }

  /** The tokens of these columns, above their bars, from bottom to top; none without room. */
  _words(step, middle, from, to) {
    const { plan, tall } = this,
      top = -(HALF + 3 + HIGH),
      letters = Math.floor((middle + top * tall - EDGE) / LETTER);
    if (step < WORDS || letters < FEWEST) return [];
    const [upright, y] = [`scale(${1 / step} ${1 / tall}) rotate(-90)`, top - 6 / tall];
    return Array.from({ length: to - from + 1 }, (_, i) => {
      const { short } = plan.token(from + i),
        said = short.replaceAll("\n", "⏎").replaceAll(" ", "␣"),
        words = said.length > letters ? `${said.slice(0, letters - 1)}…` : said,
        transform = `translate(${from + i + 0.5} ${y}) ${upright}`;
      return s("text.word", { x: 0, y: 4 * TYPE, transform }, words);
    });
  }

  // ── pointing ───────────────────────────────────────────────────────────────────────────────

  /** The token of the text at a point of the plane, or null; k: the view's scale. */
  under([px, py], { k, kx }) {
    const { plan, tree } = this;
    if (!tree) return null;
    const column = plan.starts[this.at] + Math.floor(px / tree.stepX);
    const high = kx >= FARTHER ? 2.4 * tree.stepY : (TALL * this.tall) / k;
    const far = Math.abs(py - tree.at(0)[1] - tree.boxH / 2);
    if (far > high || column < 0 || column >= plan.columns) return null;
    const token = plan.token(column);
    return token.at === this.at ? null : token;
  }
}

/** The look of the edge to a token, as in a tree. */
function edgeOf(came) {
  return `ds-edge ${came === "bonus" ? "ghost" : came}`;
}

/** q and p of a token in words, as far as they are known. */
function oddsOf({ q, p }) {
  return [q === null ? "" : `q ${percent(q)}`, p === null ? "" : `p ${percent(p)}`].filter(Boolean);
}

/** The lines of the tip for a token of another round. */
export function tokenLines(token) {
  const { at, label, round, came } = token;
  return [
    label,
    [came, ...oddsOf(token)].join(" · "),
    `round ${at + 1}: ${round.accepted} accepted of ${round.drafted}` +
      (round.ghost ? `; ${round.ghost.why}` : ""),
  ];
}
