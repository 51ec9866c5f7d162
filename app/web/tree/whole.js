// A picture of a whole tree.

import { outOfSight, picture } from "../save/picture.js";
import { TreeView } from "../tree.js";
import { TYPE } from "./camera.js";

const MARGIN = 24; // pixels around it

/** The whole tree at full size, whatever part of it is in sight. */
export function wholeTree(tree) {
  const other = new TreeView(`${tree.name}-whole`, () => {});
  return outOfSight(tree.element.parentNode, other.element, (host) => {
    other.reshape(false); // its window is none
    other.show(tree.round);
    host.style.width = `${other.plan.width * TYPE + 2 * MARGIN}px`;
    host.style.height = `${other.plan.height * TYPE + 2 * MARGIN}px`;
    other.window.measure();
    other.window.show({ k: TYPE, kx: TYPE, x: MARGIN, y: MARGIN });
    other.settle();
    return picture(other.svg);
  });
}
