// The tree in a lesson: some rows of a round, at the places they have in the whole tree.

import { h, percent, s } from "../dom.js";
import { fileName, picture, pictureButtons } from "../save.js";
import { TreeView } from "../tree.js";
import { BOX_H, BOX_W, GHOST, STEP_X, STEP_Y } from "../tree-boxes.js";

const READABLE = 0.62,
  LARGEST = 1.9; // how small and how large a tree is drawn

/** Some rows of a round, at the places they have in the whole tree. */
function subtree(full, spec) {
  const rows = spec.rows || full.y.map((_, row) => row),
    at = new Map(rows.map((row, i) => [row, i]));
  const take = (list) => list && rows.map((row) => list[row]);
  const ghost = full.ghost && !spec.rows ? full.ghost : undefined;
  return {
    ...full,
    rows,
    ghost,
    whole: full,
    parents: rows.map((row) => at.get(full.parents[row]) ?? -1),
    depths: take(full.depths),
    y: take(full.y),
    tokens: take(full.tokens),
    q: take(full.q),
    p: take(full.p),
    signs: take(full.signs),
    status: take([...full.status]).join(""),
    path: full.path.filter((row) => at.has(row)).map((row) => at.get(row)),
    sources:
      full.sources &&
      rows.map((row) =>
        full.sources[row].filter((from) => at.has(from)).map((from) => at.get(from)),
      ),
    marks: Object.fromEntries(
      Object.entries(spec.marks).map(([row, mark]) => [
        Number(row) < 0 ? row : at.get(Number(row)),
        mark,
      ]),
    ),
    notes: spec.labels ? rows.map((row) => spec.labels[row] || "") : take(full.words),
    tvd: [],
  };
}

export class LessonTree extends TreeView {
  /** hear: {picked(row), pointed(row or null)}, rows of the whole tree. */
  constructor(name, hear) {
    super(name, (row) => hear.picked(this.own(row)));
    this.hear = hear;
    this.title = h("p", { class: "ds-lesson-name" });
    this.tools = h(
      "span",
      { class: "ds-plot-tools ds-lesson-tools" },
      pictureButtons(
        "this tree",
        () => picture(this.svg),
        () => fileName(name + (this.spec.title ? ` ${this.spec.title}` : "")),
        "ds-small",
      ),
    );
    this.frameBox = h("div", { class: "ds-lesson-tree" }, this.element, this.title, this.tools);
    this.svg.addEventListener("pointerleave", () => hear.pointed(null));
    new ResizeObserver(() => this.round && this.settle()).observe(this.svg);
  }

  /** The row of the whole tree that a row shown is, and back. */
  own(row) {
    return row < 0 ? row : this.round.rows[row];
  }

  shownAs(row) {
    return row < 0 ? row : this.round.rows.indexOf(row);
  }

  draw(full, spec) {
    this.spec = spec;
    this.svg.classList.toggle("untold", !!full.untold);
    this.title.textContent = spec.title;
    this.show(subtree(full, spec), false);
    this.settle();
  }

  /** Frame it anew, as the step wants it. */
  settle() {
    this.frame();
    const row = this.spec.select === null ? -2 : this.shownAs(this.spec.select);
    if (this.has(row)) this.select(row);
  }

  /** The whole of it when that can be read, larger than life where there is room. */
  frame() {
    const [w, hgt] = this._size(),
      pad = 22;
    const whole = Math.min((w - 2 * pad) / this.width, (hgt - 2 * pad - 8) / this.height);
    if (whole < READABLE) return super.frame(false);
    const k = Math.min(whole, LARGEST);
    this.view = { k, kx: k, x: (w - this.width * k) / 2, y: 10 + (hgt - this.height * k) / 2 };
    this._apply();
  }

  _measure() {
    const whole = this.round.whole,
      right = whole.ghost ? whole.depths[whole.ghost.parent] + 1 : 0;
    this.width = Math.max(...whole.depths, right) * STEP_X + BOX_W;
    this.height = Math.max(...whole.y, whole.ghost ? whole.ghost.y : 0) * STEP_Y + BOX_H;
  }

  _node(row) {
    const node = super._node(row),
      { untold, notes, marks } = this.round;
    if (untold) {
      if (row) node.classList.replace("unreached", "drafted");
      const text = node.querySelector(".token"),
        label = this.label(row);
      if (row) text.textContent = this.round.short[this.round.tokens[row]] || label;
      node.setAttribute("aria-label", this.words(row));
    }
    if (notes) this._note(node, notes[row]);
    if (marks[row]) node.classList.add(`mark-${marks[row]}`);
    return node;
  }

  _ghostNode() {
    const node = super._ghostNode();
    if (this.round.marks[GHOST]) node.classList.add(`mark-${this.round.marks[GHOST]}`);
    return node;
  }

  /** Of all pathways of a graph those that were taken, if a walk is shown. */
  _ways(row) {
    const { marks, sources } = this.round,
      all = super._ways(row);
    const taken = sources ? all.filter((edge) => edge.every((at) => marks[at] === "chosen")) : [];
    return taken.length ? taken : all;
  }

  /** Words in place of numbers and bars. */
  _note(node, words) {
    node.querySelectorAll(".odds, .bar").forEach((part) => part.remove());
    node.querySelector(".token").setAttribute("y", words ? 17 : 24);
    if (words) node.append(s("text", { class: "odds note", x: 8, y: 32 }, words));
  }

  /** A node before the target has spoken. */
  words(row) {
    const { notes, q } = this.round,
      label = this.label(row);
    if (notes) return `${label}${notes[row] ? `, ${notes[row]}` : ""}`;
    return row ? `${label}, drafted, q ${percent(q[row])}` : `${label}, root`;
  }

  hover(event) {
    super.hover(event);
    const row = this._rowAt(event);
    if (row !== null && row >= 0 && this.round.untold)
      this.tip.replaceChildren(h("b", {}, this.label(row)), h("span", {}, this.words(row)));
    this.hear.pointed(row === null ? null : this.own(row));
  }
}
