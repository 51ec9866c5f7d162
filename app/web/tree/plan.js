// Where the parts of a draft tree stand and how they hang together: a function of a round and of
// what is folded. Nothing here touches the page.

import { curve, GHOST, sizes } from "./boxes.js";
import { FAR, wholeScale } from "./camera.js";

const PHONE = 480; // pixels: a narrower window shows two usual boxes
const NARROWER = 1.15; // so much larger narrow boxes must be: they say less of a token

export class TreePlan {
  /** fold: {rows, y, ghost, chips} of app/view/fold.py; null: every node is drawn. look: {shape:
   * "flat", "narrow" or "slim" boxes, onward: the text goes on at the right of the path}. */
  constructor(round, fold, { shape = "", onward = false, within } = {}) {
    Object.assign(this, { round, fold, within }, sizes(round.lines, shape, !!round.p));
    this._place();
    if (onward) this._makeWay();
    Object.assign(this, this.extent());
  }

  /** Where each drawn row and each chip stands: rows that are folded away have no place. */
  _place() {
    const { round, fold } = this;
    const rows = fold ? fold.rows : round.y.map((_, row) => row);
    const ys = fold ? fold.y : round.y;
    const at = (row, y) => [round.depths[row] * this.stepX, y * this.stepY];
    this.place = new Map(rows.map((row, i) => [row, at(row, ys[i])]));
    const beyond = (row, y) => [(round.depths[row] + 1) * this.stepX, y * this.stepY];
    this.chipPlace = new Map((fold?.chips || []).map((c) => [c.parent, beyond(c.parent, c.y)]));
    const ghostY = fold ? fold.ghost : round.ghost?.y;
    if (round.ghost) this.place.set(GHOST, beyond(round.ghost.parent, ghostY));
  }

  /** Move the branches apart that would lie on the text as it goes on behind the path. */
  _makeWay() {
    const { round, place, chipPlace, stepX, stepY } = this;
    const onPath = new Set([...round.path, GHOST]);
    const line = place.get(0)[1];
    const end = round.path.length * stepX;
    const branch = (row) => {
      let at = row;
      while (!onPath.has(this.parent(at))) at = this.parent(at);
      return at;
    };
    const above = new Map(); // a branch's row → whether it hangs above the path
    const side = (row, y) => {
      const root = branch(row);
      if (!above.has(root)) above.set(root, (place.get(root)?.[1] ?? y) < line);
      return above.get(root);
    };
    const all = [...place.keys()]
      .filter((row) => !onPath.has(row))
      .map((row) => [place, row, side(row, 0)]);
    for (const [row, [, y]] of chipPlace)
      all.push([chipPlace, row, onPath.has(row) ? y < line : side(row, y)]);
    const need = { true: 0, false: 0 };
    for (const [places, row, up] of all) {
      const [x, y] = places.get(row);
      const room = up ? line - y : y - line;
      if (x > end) need[up] = Math.max(need[up], stepY - room);
    }
    for (const [places, row, up] of all) {
      const [x, y] = places.get(row);
      places.set(row, [x, up ? y : y + need.true + need.false]);
    }
    for (const row of onPath) {
      if (place.has(row)) place.set(row, [place.get(row)[0], line + need.true]);
    }
  }

  /** {width, height} of what is drawn. */
  extent() {
    const places = [...this.place.values(), ...this.chipPlace.values()];
    return {
      width: Math.max(...places.map(([x]) => x)) + this.boxW,
      height: Math.max(...places.map(([, y]) => y)) + this.boxH,
    };
  }

  /** Whether the round has this row, drawn or folded away. */
  has(row) {
    const { y, ghost } = this.round;
    return (row >= 0 && row < y.length) || (row === GHOST && !!ghost);
  }

  at(row) {
    return this.place.get(row);
  }

  chip(parent) {
    return this.fold.chips.find((each) => each.parent === parent);
  }

  /** The row whose chip another one is folded into; null: it is drawn. */
  chipOf(row) {
    let at = row;
    while (!this.place.has(at)) at = this.parent(at);
    return at !== row && this.chipPlace.has(at) ? at : null;
  }

  label(row) {
    const { ghost, labels, tokens } = this.round;
    return row === GHOST ? ghost.label : labels[tokens[row]];
  }

  // ── who hangs on whom ──────────────────────────────────────────────────────────────────────

  parent(row) {
    return row === GHOST ? this.round.ghost.parent : this.round.parents[row];
  }

  /** All parents of a row: several in a draft graph, the first of them is `parent`. */
  parents(row) {
    if (row === GHOST) return [this.round.ghost.parent];
    if (this.round.sources) return this.round.sources[row];
    return row === 0 ? [] : [this.round.parents[row]];
  }

  /** Every edge [parent, row] of every pathway from the root to a row. */
  ways(row) {
    const seen = new Set([row]);
    const edges = [];
    for (const at of seen)
      for (const parent of this.parents(at)) {
        edges.push([parent, at]);
        seen.add(parent);
      }
    return edges;
  }

  /** The drawn children of a row. */
  _kids(row) {
    const rows = [...this.place.keys()].filter(
      (child) => child && this.parents(child).includes(row),
    );
    return rows.sort((a, b) => (a === GHOST) - (b === GHOST) || a - b);
  }

  /** How many drafted nodes are drawn. */
  get drawn() {
    return [...this.place.keys()].filter((row) => row > 0).length;
  }

  _depth(row) {
    const { depths, ghost } = this.round;
    return row === GHOST ? depths[ghost.parent] + 1 : depths[row];
  }

  /** The drawn rows of a depth, from top to bottom. */
  _column(depth) {
    const rows = [...this.place.keys()].filter((row) => this._depth(row) === depth);
    return rows.sort((a, b) => this.at(a)[1] - this.at(b)[1]);
  }

  /** Where an arrow leads from a row (null: none): by = "up" | "down" | "parent" | "child". */
  neighbour(row, by) {
    const { path, status } = this.round;
    if (row === null) return path[path.length - 1];
    if (by === "parent") return row === 0 ? 0 : this.parent(row);
    if (by === "child") {
      const kids = this._kids(row);
      return kids.find((kid) => status[kid] === "a") ?? kids[0] ?? row;
    }
    const column = this._column(this._depth(row));
    const at = column.indexOf(row) + (by === "up" ? -1 : 1);
    return column[Math.max(0, Math.min(column.length - 1, at))];
  }

  /** The rows whose token holds a text in small letters: those drawn from top to bottom, column by
   * column, and then those that are folded away. */
  holding(text) {
    const rows = this.round.y.map((_, row) => row);
    if (this.round.ghost) rows.unshift(GHOST);
    const hits = rows.filter((row) => text && this.label(row).toLowerCase().includes(text));
    const place = (row) => this.at(row) || [Number.MAX_VALUE, row];
    return hits.sort((a, b) => place(a)[0] - place(b)[0] || place(a)[1] - place(b)[1]);
  }

  // ── what is drawn ──────────────────────────────────────────────────────────────────────────

  /** Edges of nodes and chips: {from, to, kind: a letter of the status, d}. */
  curves() {
    const { round } = this;
    const path = new Set(round.path);
    // A node of a graph has several parents; only the pathway that was taken is drawn as accepted.
    const kind = (parent, row) => (path.has(parent) ? round.status[row] : "u");
    const line = (from, to, of) => ({ from, to, kind: of, d: curve(this, from, to) });
    const nodes = [...this.place.keys()]
      .filter((row) => row !== GHOST)
      .flatMap((row) =>
        this.parents(row).map((from) => line(this.at(from), this.at(row), kind(from, row))),
      );
    const chips = (this.fold?.chips || []).map((chip) =>
      line(this.at(chip.parent), this.chipPlace.get(chip.parent), chip.status),
    );
    return [...nodes, ...chips];
  }

  /** The way to the ghost, or null. */
  ghostCurve() {
    const { ghost } = this.round;
    return ghost ? curve(this, this.at(ghost.parent), this.at(GHOST)) : null;
  }

  /** Whether a box crosses a part {left, right, top, bottom} of the plane. */
  crosses([x, y], { left, right, top, bottom }) {
    return x < right && x + this.boxW > left && y < bottom && y + this.boxH > top;
  }

  /** [row, chip's parent] at a point, null each. */
  under([px, py]) {
    const hit = ([, [left, top]]) =>
      px >= left && px <= left + this.boxW && py >= top && py <= top + this.boxH;
    const row = [...this.place].find(hit)?.[0] ?? null;
    return [row, row === null ? ([...this.chipPlace].find(hit)?.[0] ?? null) : null];
  }
}

/** The plan of a round in a window of this size. slim: with slim boxes, or with usual ones; null:
 * as there is room. A long tree has narrow boxes where they are larger on the screen then, and a
 * tall one boxes of one line, if q and p can be read then and cannot be otherwise. Where neither
 * is seen whole, its depths are, if they can; on a phone as many of them as can be. */
export function planFor(round, fold, { onward, slim }, size) {
  const shaped = (shape) => new TreePlan(round, fold, { shape, onward });
  if (slim !== null) return shaped(slim ? "slim" : "");
  const plan = shaped(""),
    whole = ({ width, height }) => wholeScale(size, width, height),
    across = ({ width }) => wholeScale(size, width, 1);
  if (round.lines || whole(plan) >= 1) return plan;
  const narrow = shaped("narrow");
  if (whole(narrow) >= Math.max(FAR, NARROWER * whole(plan))) return narrow;
  if (whole(plan) >= FAR) return plan;
  const others = ["flat", "slim"].map(shaped);
  const read = others.find((each) => whole(each) >= FAR);
  const deep = [plan, narrow, others[1]].find((each) => across(each) >= FAR);
  return read ?? deep ?? (size[0] < PHONE ? others[1] : plan);
}
