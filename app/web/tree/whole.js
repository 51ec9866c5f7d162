// A picture of a whole tree.

import { paper } from "../save/paper.js";
import { outOfSight, picture, servedPicture } from "../save/picture.js";
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

/** The whole tree for a file: where that is to be so wide, the server draws it anew in type that is
 * read. draw: its function; asked: what names the round. */
export function savedTree(tree, draw, asked) {
  const { inches } = paper;
  return inches
    ? servedPicture(draw({ ...asked, whole: true, legend: true, inches }))
    : wholeTree(tree);
}
