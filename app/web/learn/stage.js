// The figure of a step: one or two trees, or none, and what stands beside or below them. A node and
// a row of the figure beside it point at each other.

import { h, sayBeside } from "../dom.js";
import { BESIDE_TREE, companion } from "./companions.js";
import { LessonTree } from "./tree.js";

const AXIS = 1.5, // boxes: as high as what is around a tree
  BOX = 3, // times as wide as high
  LARGER = 1.2; // times: two trees stand beside each other where they are so much larger then

/** How many boxes stand beside and below one another in a tree: [across, down]. */
function extentOf({ depths, y, ghost }) {
  const beyond = ghost ? depths[ghost.parent] + 1 : 0;
  return [1 + Math.max(...depths, beyond), 1 + AXIS + Math.max(...y, ghost?.y ?? 0)];
}

/** The rows and columns of trees of these extents in a room of this size, as a grid has them. */
function gridOf(extents, wide, high) {
  const sum = (at) => extents.reduce((all, each) => all + each[at], 0),
    most = (at) => Math.max(...extents.map((each) => each[at]));
  const scale = (across, down) => Math.min(wide / (BOX * across), high / down),
    isBeside = scale(sum(0), most(1)) > LARGER * scale(most(0), sum(1)),
    parts = (at) => extents.map((each) => `minmax(0, ${each[at]}fr)`).join(" ");
  return isBeside ? ["minmax(0, 1fr)", parts(0)] : [parts(1), "minmax(0, 1fr)"];
}

export class LessonStage {
  /** picked(row): a person picks a node of the first tree; true: it is not to be shown. */
  constructor(picked) {
    this.picked = picked;
    this.trees = ["ds-lesson-a", "ds-lesson-b"].map((name) => this._tree(name));
    this.side = h("div.ds-lesson-side");
    this.note = h("p.ds-lesson-note");
    const frames = this.trees.map((tree) => tree.frameBox);
    this.room = h("div.ds-lesson-trees", frames);
    this.extents = [];
    new ResizeObserver(() => this._arrange()).observe(this.room);
    const about = {
      class: "ds-lesson-figure",
      role: "group",
      "aria-label": "Figure",
      "aria-describedby": "ds-lesson-said",
    };
    this.element = h("div", about, this.room, this.side, this.note);
  }

  _tree(name) {
    const tree = new LessonTree(name, {
      picked: (row) => this.picked(row) || this._look(tree, row),
      pointed: (row) => this._light(row),
    });
    return tree;
  }

  /** known: all trees of the course by name; {side, trees}: what a step shows; called: its chapter
   *  and number. */
  draw(known, { side, trees }, called) {
    const look = {
      beside: side && BESIDE_TREE.includes(side.kind),
      wide: side?.kind === "mask",
      two: trees.length > 1,
      alone: !trees.length,
    };
    this.note.textContent = "";
    for (const [name, on] of Object.entries(look)) this.element.classList.toggle(name, !!on);
    this.room.hidden = !trees.length;
    this.side.hidden = !side;
    this.side.replaceChildren(
      ...(side ? [companion(side, { point: (row) => this._point(row) })] : []),
    );
    this.extents = trees.map(({ name }) => extentOf(known[name]));
    this._arrange();
    for (const [at, tree] of this.trees.entries()) tree.frameBox.hidden = !trees[at];
    for (const [at, spec] of trees.entries()) this.trees[at].draw(known[spec.name], spec, called);
  }

  /** Two trees below or beside each other. */
  _arrange() {
    const { clientWidth, clientHeight } = this.room,
      [rows, columns] = gridOf(this.extents, clientWidth, clientHeight);
    this.room.style.setProperty("--ds-rows", rows);
    this.room.style.setProperty("--ds-columns", columns);
  }

  _look(tree, row) {
    const own = tree.shownAs(row);
    tree.select(own);
    if (own >= -1 && tree.has(own))
      sayBeside(this.room, this.note, tree.node(own).getAttribute("aria-label"));
    this._light(row);
  }

  /** A row of the companion is pointed at: show it in the tree. */
  _point(row) {
    const tree = this.trees[0],
      own = tree.shownAs(row);
    if (own >= 0) tree.select(own);
    this._light(row);
  }

  /** A node is pointed at: show its row in the mask. */
  _light(row) {
    for (const line of this.side.querySelectorAll(".ds-mask .line"))
      line.classList.toggle("lit", line.getAttribute("data-row") === String(row));
  }

  /** Show the node above or below, the parent or the child. */
  node(by) {
    const tree = this.trees[0];
    if (tree.round && !tree.frameBox.hidden) this._look(tree, tree.own(tree.neighbour(by)));
  }

  fit() {
    for (const tree of this.trees) if (!tree.frameBox.hidden) tree.fit();
  }
}
