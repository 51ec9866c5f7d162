// The figures beside the tree, or below it, by their kind.

import { h } from "../dom.js";
import { Figure } from "../figure.js";
import { cache, clock, lanes, race } from "./lanes.js";
import { block, listColumns, queue } from "./lists.js";
import { matrix } from "./mask.js";
import { noiseOf, terms, weights } from "./scores.js";

export const BESIDE_TREE = ["queue", "mask", "terms", "weights"]; // others stand below the tree

/** The companion of a step; `link` = {point(row)} shows a row in the tree. */
export function companion(side, link) {
  const made = {
    lanes,
    race,
    columns: listColumns,
    queue,
    mask: matrix,
    noise: noiseOf,
    cache,
    clock,
    terms,
    weights,
    block,
    plots,
  }[side.kind](side, link);
  return h("div", { class: `ds-side-figure ${side.kind}` }, made);
}

/** Figures of measurements. */
function plots(side) {
  return side.figures.map((each) => {
    const figure = new Figure();
    figure.draw(each);
    return figure.element;
  });
}
