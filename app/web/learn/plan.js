// Where the boxes of a lesson's tree stand: some rows of a round, in the room of the whole tree.

import { squeezed } from "../tree/boxes.js";
import { FAR, TYPE } from "../tree/camera.js";
import { TreePlan } from "../tree/plan.js";

const MOST_LETTERS = 22, // of a token that a box is widened for
  LETTER = 8.5, // of the plane: a letter of a token,
  LARGE_LETTER = 11; // and of a large one
export const MOST_SCALE = 2.2; // how large a tree is drawn
const LEAST_SHARE = 0.6, // of the whole tree: the picture does not jump with every node that comes
  READ = FAR + 0.001, // where the numbers of squeezed boxes are just read
  SPREAD = 1.8, // so much farther from each other rows may stand where there is height to spare,
  ROOMIER = 10; // and so much higher large boxes, whose words else have just enough

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
    short: full.short && lengthened(full),
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

/** The words of tokens whose usual boxes have no room for all of their letters: all, up to a number
 * of them. */
function lengthened({ short, labels }) {
  const words = ([token, cut]) => [
    token,
    labels[token].length > MOST_LETTERS ? cut : labels[token],
  ];
  return Object.fromEntries(Object.entries(short).map(words));
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
    Object.assign(this, this._widened());
    super._place();
    this._spread(wide, high);
  }

  /** Where only its width keeps a tree from being larger, boxes and rows use the height. */
  _spread(wide, high) {
    const { shown, boxH, stepY, large, round } = this,
      between = shown.height - boxH,
      free = high / Math.min(wide / shown.width, MOST_SCALE) - boxH;
    if (!Number.isFinite(high) || between <= 0 || free <= between) return;
    const spare = (free - between) / (between / stepY + 1), // of each row
      roomier = large && !round.notes ? Math.min(ROOMIER, spare) : 0;
    Object.assign(this, { roomier, boxH: boxH + roomier });
    this.stepY *= Math.min(SPREAD, (free - roomier) / between);
    super._place();
  }

  /** Boxes as wide as their longest words, as long as no tree is smaller for it than life. */
  _widened() {
    const { boxW, boxH, stepX, stepY, letters, large, slim, lattice, within } = this,
      { columns, rows } = lattice,
      scale = Math.min(
        Math.max(TYPE, within.least ?? 0),
        within.high / ((rows - 1) * stepY + boxH),
      ),
      gap = stepX - boxW,
      free = (within.wide / scale - (columns - 1) * gap) / columns,
      lacks = Math.min(MOST_LETTERS, this._longest) - letters;
    if (slim || this.round.lines || lacks <= 0 || free <= boxW || !Number.isFinite(within.high))
      return {};
    const letter = large ? LARGE_LETTER : LETTER,
      wider = Math.min(free - boxW, lacks * letter);
    return { boxW: boxW + wider, stepX: stepX + wider, letters: letters + wider / letter };
  }

  /** Letters of the longest token, with its mark and sign. */
  get _longest() {
    const { whole, ghost, short, labels } = this.round,
      words = whole.tokens.map((token) => short?.[token] || labels[token]),
      mark = 2 + (whole.signs ? 2 : 0);
    return mark + Math.max(...[...words, ghost?.short ?? ""].map((each) => each.length));
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

  /** The part that is shown, in the middle of at least a share of the whole: {left, top, width,
   * height}. */
  get shown() {
    const places = [...this.place.values()],
      all = this.extent();
    const side = (at, box, whole) => {
      const from = Math.min(...places.map((place) => place[at])),
        size = Math.max(...places.map((place) => place[at])) - from + box,
        wide = Math.max(size, LEAST_SHARE * whole);
      return [from - (wide - size) / 2, wide];
    };
    const [left, width] = side(0, this.boxW, all.width);
    const [top, height] = side(1, this.boxH, all.height);
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
