// The same node in other trees: its counterparts are marked, named, and counted.

import { standing, twin } from "../align.js";
import { plural } from "../dom.js";
import { GHOST } from "../tree/boxes.js";

/** A run as align.js wants it. */
function sideOf(together, pane) {
  const tokens = together.sides[together.panes.indexOf(pane)];
  return { rounds: pane.rounds, at: pane.at, tokens };
}

/** The row of `other` that stands for the same text as a row of `pane`: GHOST where its target
 *  wanted that and its drafter had it not, null where nothing does. */
function twinOf(together, pane, row, other) {
  const { linkable, parts } = together;
  if (!linkable || parts === 0 || !pane.shown || !other.shown || row === null) return null;
  return twin(sideOf(together, pane), row, sideOf(together, other));
}

/** A node is pointed at or selected: its counterparts are marked in the other trees. */
export function markTwins(together, pane, row) {
  for (const other of together.panes)
    if (other !== pane) other.tree.mark(twinOf(together, pane, row, other));
}

/** The counterparts of a node, in words. */
export function twinWords(together, pane, row) {
  return together.panes
    .filter((other) => other !== pane)
    .map((other) => {
      const there = twinOf(together, pane, row, other);
      if (there === GHOST) return `wanted in ${other.letter}`;
      return there === null ? `not in ${other.letter}` : `also in ${other.letter}`;
    })
    .join(", ");
}

/** How many of a tree's nodes another one drafted too: its root was text by then, not a draft. */
function sharedWords(together, pane) {
  const told = [];
  for (const other of together.panes) {
    if (other === pane || !pane.shown || !other.shown || pane.drafted === 0) continue;
    let both = 0;
    for (let row = 1; row <= pane.drafted; row++)
      if ((twinOf(together, pane, row, other) ?? GHOST) > 0) both += 1;
    told.push(`${told.length ? both : plural(both, "node")} also in ${other.letter}`);
  }
  const linked = told.length && together.linkable && together.parts !== 0;
  return linked ? told.join(", ") : "";
}

export function sayShared(together) {
  for (const pane of together.panes) pane.shared.textContent = sharedWords(together, pane);
}

/**
 * A promise of where every run stands with the text before a row of `pane`, in the order of the
 * panes: {at, row}, or {why} where no number of it answers the same question.
 */
export function standings(together, pane, row) {
  const mine = sideOf(together, pane);
  const own = together.panes.indexOf(pane);
  const standingOf = async (other, at) => {
    if (!together.linkable && other !== pane) return { why: "another tokenizer" };
    if (together.prompts[at] !== together.prompts[own])
      return { why: "another prompt, so its p and q answer another question" };
    const found = await standing(mine, row, sideOf(together, other), other.trees);
    if (found) return found;
    return { why: other.rounds.length ? "its trees do not hold the text before" : "no round yet" };
  };
  return Promise.all(together.panes.map(standingOf));
}
