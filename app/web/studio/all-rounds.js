// The table of all rounds as a part of a studio: a row leads to its round, and to its tree.

import { RoundsTable } from "../rounds/view.js";

/** The table of the runs that a studio shows. */
export function allRounds(studio) {
  return new RoundsTable(`ds-${studio.where.view}`, {
    panes: () => studio.panes,
    active: () => studio.active,
    reach: (pane, at) => studio.choose(pane, at),
    tree: () => toTree(studio),
    say: (words, more) => studio.say(more ? `${words}, ${studio.guide.words}` : words),
    changed: () => studio.link.moved(),
    selected: (rows, lines) => studio.guide.selected?.(rows, lines),
  });
}

/** From the table to the tree, which may stand beside it. */
function toTree({ active, look }) {
  const { svg } = active.tree;
  if (!svg.checkVisibility()) look.showPart("tree");
  svg.focus();
}
