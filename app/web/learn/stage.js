// The figure of a step: one or two trees, or none, and what stands beside or below them. A node and
// a row of the figure beside it point at each other.

import { h, sayBeside } from "../dom.js";
import { BESIDE_TREE, companion } from "./companions.js";
import { LessonTree } from "./tree.js";

const AXIS = 1.5; // boxes: as high as what is around a tree

/** How many boxes stand below one another in a tree. */
function lowest({ y, ghost }) {
  return 1 + Math.max(...y, ghost?.y ?? 0);
}

export class LessonStage {
  /** picked(row): a person picks a node of the first tree; true: it is not to be shown. */
  constructor(picked) {
    this.picked = picked;
    this.trees = ["ds-lesson-a", "ds-lesson-b"].map((name) => this._tree(name));
    this.side = h("div", { class: "ds-lesson-side" });
    this.note = h("p", { class: "ds-lesson-note" });
    const frames = this.trees.map((tree) => tree.frameBox);
    this.room = h("div", { class: "ds-lesson-trees" }, frames);
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
    const high = trees.map(({ name }) => `minmax(0, ${AXIS + lowest(known[name])}fr)`);
    this.room.style.setProperty("--ds-rows", high.join(" "));
    for (const [at, tree] of this.trees.entries()) tree.frameBox.hidden = !trees[at];
    for (const [at, spec] of trees.entries()) this.trees[at].draw(known[spec.name], spec, called);
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
