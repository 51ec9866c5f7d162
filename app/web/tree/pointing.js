// The row under the pointer of a tree: a few lines beside it, and what a press does. It is found by
// place, so that it also works where boxes are only a path.

import { h } from "../dom.js";
import { chipLines } from "./boxes.js";
import { tokenLines } from "./spine.js";

export class Pointing {
  /** tree: a TreeView, which says what a row is and hears what was picked. */
  constructor(tree) {
    this.tree = tree;
    this.row = null;
    this.tip = h("div.ds-tip", { hidden: true, "aria-hidden": "true" });
  }

  /** [row, chip's parent], null each. */
  _under(event) {
    const { tree } = this;
    return tree.plan ? tree.plan.under(tree.window.point(event)) : [null, null];
  }

  press(event) {
    const [row, parent] = this._under(event);
    this.hide();
    if (row !== null) this.tree.onSelect(row);
    else if (parent !== null) this.tree.open([parent]);
    else {
      const token = this._beside(event);
      if (token) this.tree.onRound?.(token.at);
    }
  }

  /** A token of another round of the run. */
  _beside(event) {
    const { tree } = this;
    return tree.plan && tree.run && tree.spine.under(tree.window.point(event), tree.window.view);
  }

  hover(event) {
    const [row, parent] = this._under(event);
    const token = row === null && parent === null ? this._beside(event) : null;
    const some = row !== null || parent !== null || token;
    this.tree.svg.classList.toggle("over", some);
    this._point(row);
    if (!some) return this.hide();
    if (token) return this._say(tokenLines(token), event);
    this._say(row === null ? chipLines(this.tree.plan.chip(parent)) : this.tree.told(row), event);
  }

  leave() {
    this.hide();
    this._point(null);
  }

  /** Another tree is drawn: the rows are other ones. */
  forget() {
    this.hide();
    this.row = null;
  }

  _point(row) {
    if (row === this.row) return;
    this.row = row;
    this.tree.onPoint(row);
  }

  hide() {
    this.tip.hidden = true;
  }

  /** Lines where the pointer is, inside the element that holds the tip. */
  _say([first, ...lines], { clientX, clientY }) {
    const { tip } = this;
    tip.hidden = false;
    tip.replaceChildren(h("b", first), ...lines.map((line) => h("span", line)));
    const box = tip.parentNode.getBoundingClientRect();
    const x = Math.min(clientX - box.left + 14, box.width - tip.offsetWidth - 8);
    const y = clientY - box.top + 18;
    tip.style.transform = `translate(${Math.max(4, x)}px, ${y}px)`;
  }
}
