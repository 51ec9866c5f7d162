// A picture of a whole tree.

import { h } from "../dom.js";
import { picture } from "../save/picture.js";
import { TreeView } from "../tree.js";
import { TYPE } from "./camera.js";

const MARGIN = 24; // pixels around it

/** The whole tree at full size, whatever part of it is in sight. */
export function wholeTree(tree) {
  const other = new TreeView(`${tree.name}-whole`, () => {});
  const host = h("div", { "aria-hidden": "true" }, other.element);
  host.style.cssText = "position:absolute;left:-99999px;top:0;width:10px;height:10px";
  tree.element.parentNode.append(host);
  try {
    other.reshape(false); // its window is none
    other.show(tree.round);
    host.style.width = `${other.plan.width * TYPE + 2 * MARGIN}px`;
    host.style.height = `${other.plan.height * TYPE + 2 * MARGIN}px`;
    other.window.show({ k: TYPE, kx: TYPE, x: MARGIN, y: MARGIN });
    other.settle();
    return picture(other.svg);
  } finally {
    host.remove();
  }
}
