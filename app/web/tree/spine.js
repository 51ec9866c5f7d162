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
    this.columns = new Map(); // of the text, as they are drawn: {key, element}
    this.element = s("g.ds-spine", { "aria-hidden": "true" });
    this.words = s("g"); // of the shape
    this.at = 0;
    this.tall = 1; // times that the shape is as high
  }

  /** The rounds of the run, and which of them the tree draws; sees(first, last): these are drawn
   * one by one. */
  show({ rounds, at, sees }, tree) {
    if (rounds !== this.plan.rounds) this.columns.clear();
    this.plan.take(rounds);
    Object.assign(this, { at, tree, sees, drawn: null });
  }

  clear() {
    this.tree = null;
    this.columns.clear();
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
      const scale = `scale(${kx.toFixed(4)} ${k.toFixed(4)})`,
        [left, top] = [x - here * step, y + origin * k]; // of the text's first box
      element.setAttribute("transform", `translate(${left.toFixed(1)} ${top.toFixed(1)}) ${scale}`);
    }
    const { drawn } = this,
      letters = level === "shape" ? 0 : lettersOf(tree, kx);
    const same = drawn?.level === level && drawn.letters === letters;
    if (same && (level === "shape" || (from >= drawn.from && to <= drawn.to))) return;
    const more = Math.ceil((to - from + 1) * WINDOWS),
      last = Math.min(to + more, plan.columns - 1);
    this.drawn = { level, letters, from: Math.max(0, from - more), to: to + more };
    element.setAttribute("class", `ds-spine ${level}`);
    if (level === "shape") {
      this.columns.clear();
      return element.replaceChildren(...this._shape());
    }
    this._tokens(last);
    this.sees(plan.roundAt(this.drawn.from), plan.roundAt(last));
  }

  // ── near: tokens, and what hangs off them ──────────────────────────────────────────────────

  /** The columns up to `last`, each drawn anew only where something of it has changed. */
  _tokens(last) {
    const { plan, tree, drawn, element } = this;
    const [first, end] = [plan.starts[this.at], plan.starts[this.at + 1]];
    const taken = new Map(); // column → heights that the tree in hand has boxes at
    for (const [left, top] of [...tree.place.values(), ...tree.chipPlace.values()]) {
      const column = first + Math.round(left / tree.stepX);
      taken.set(column, [...(taken.get(column) ?? []), top - tree.at(0)[1]]);
    }
    const { boxW, boxH, stepX, stepY, left, slim } = tree,
      look = [drawn.letters, boxW, boxH, stepX, stepY, left, slim].join();
    const columns = new Map();
    for (let column = drawn.from; column <= last; column++) {
      // The tree in hand draws its own tokens and branches; its root hangs on the round before.
      if (column > first && column <= end) continue;
      const heights = taken.get(column) ?? [],
        isTree = !!plan.rounds[plan.roundAt(column)].parents,
        key = [look, column === first, isTree, ...heights].join();
      let each = this.columns.get(column);
      if (each?.key !== key) {
        const parts = this._column(column, column === first, heights);
        each = { key, element: s("g", parts) };
      }
      columns.set(column, each);
    }
    if (!this.columns.size) element.replaceChildren();
    for (const [column, each] of this.columns)
      if (columns.get(column) !== each) each.element.remove();
    const isNew = ([column, each]) => this.columns.get(column) !== each;
    element.append(...[...columns].filter(isNew).map(([, each]) => each.element));
    this.columns = columns;
  }

  /** Where the line of the text is at 0. */
  _column(column, isRoot, taken) {
    const { plan, tree, drawn } = this;
    const left = column * tree.stepX;
    const token = plan.token(column);
    const parts = [];
    const { letters } = drawn;
    const cut = (words) => (words.length > letters ? `${words.slice(0, letters - 1)}…` : words);
    const back = left - tree.stepX + tree.boxW;
    const middle = tree.boxH / 2;
    if (column > 0)
      parts.push(s("path", { class: edgeOf(token.came), d: `M${back} ${middle}H${left}` }));
    if (!isRoot) {
      const size = { width: tree.boxW, height: tree.boxH, rx: token.row < 0 ? tree.boxH / 2 : 7 };
      const said = oddsOf(token);
      const lines = tree.slim ? said : [said.join("   ")];
      const inset = left + (token.row < 0 && !tree.slim ? INSET : tree.left);
      parts.push(
        s("rect", { class: `box ${token.came}`, x: left, y: 0, ...size }),
        s("text.token", { x: inset, y: TOKEN_Y }, cut(token.short)),
        ...lines.map((words, i) => s("text.odds", { x: inset, y: 30 + 17 * i }, words)),
      );
    }
    for (const [side, by] of [
      ["above", -1],
      ["below", 1],
    ])
      parts.push(...this._side(plan.branches(column)[side], by, { left, back, taken, cut }));
    return parts;
  }

  _side(branches, by, { left, back, taken, cut }) {
    const { tree } = this;
    const shown = branches.slice(0, branches.length > MOST ? MOST - 1 : MOST);
    const entries = shown.map(({ label, nodes }) => `× ${cut(label)}${nodes ? ` +${nodes}` : ""}`);
    if (branches.length > shown.length) entries.push(`+${branches.length - shown.length}`);
    const middle = tree.boxH / 2;
    return entries.flatMap((words, i) => {
      const at = by * (tree.stepY + i * tree.stepY * 0.62);
      if (taken.some((other) => Math.abs(other - at) < tree.boxH)) return [];
      const bend = (left - back) / 2;
      const to = at + middle,
        d = `M${back} ${middle}C${back + bend} ${middle} ${left - bend} ${to} ${left} ${to}`;
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

/** How many letters of a token are seen in its box. */
function lettersOf({ boxW }, kx) {
  return Math.floor((boxW * Math.min(kx, 1) - 8) / 7);
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
