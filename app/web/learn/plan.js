// Where the boxes of a lesson's tree stand: some rows of a round, in the room of the whole tree.

import { squeezed } from "../tree/boxes.js";
import { FAR } from "../tree/camera.js";
import { TreePlan } from "../tree/plan.js";

const LEAST_SHARE = 0.6, // of the whole tree: the picture does not jump with every node that comes
  READ = FAR + 0.001; // where the numbers of squeezed boxes are just read

/** Some rows of a round, at the places they have in the whole tree. */
export function subtree(full, spec) {
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

/** The rows of a lesson, in as much room as the whole tree takes. */
export class LessonPlan extends TreePlan {
  /** within: {wide, high} in pixels, in which boxes are as narrow and as near to each other as it
   * takes to read their numbers. */
  constructor(round, shape, within) {
    super(round, null, { shape, within });
  }

  _place() {
    const { wide, high } = this.within;
    Object.assign(this, squeezed(this, this.lattice, { wide: wide / READ, high: high / READ }));
    super._place();
  }

  /** How many boxes stand beside and below one another in the whole tree. */
  get lattice() {
    const { depths, ghost, y } = this.round.whole;
    return {
      columns: 1 + Math.max(...depths, ghost ? depths[ghost.parent] + 1 : 0),
      rows: 1 + Math.max(...y, ghost ? ghost.y : 0),
    };
  }

  extent() {
    const { columns, rows } = this.lattice;
    return {
      width: (columns - 1) * this.stepX + this.boxW,
      height: (rows - 1) * this.stepY + this.boxH,
    };
  }

  /** The last depth with a box: none behind it has a label, which would have no room. */
  get deepest() {
    const { depths, ghost, path } = this.round;
    return Math.max(...depths, ghost ? path.length : 0);
  }

  /** The part that is shown, and at least a share of the whole: {left, top, width, height}. */
  get shown() {
    const places = [...this.place.values()];
    const side = (at, box, whole) => {
      const from = Math.min(...places.map((place) => place[at])),
        size = Math.max(...places.map((place) => place[at])) - from + box,
        wide = Math.max(size, LEAST_SHARE * whole);
      return [Math.max(0, Math.min(from - (wide - size) / 2, whole - wide)), wide];
    };
    const [left, width] = side(0, this.boxW, this.width);
    const [top, height] = side(1, this.boxH, this.height);
    return { left, top, width, height };
  }

  /** Of all pathways of a graph those that were taken, if a walk is shown. */
  ways(row) {
    const { marks, sources } = this.round;
    const all = super.ways(row);
    const taken = sources ? all.filter((edge) => edge.every((at) => marks[at] === "chosen")) : [];
    return taken.length ? taken : all;
  }
}
