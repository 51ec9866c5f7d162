// The columns that trees side by side share: one for each place in the text, the same in all of
// them. Pure functions.

import { rootPlace } from "../align.js";
import { STEP_X } from "../tree/boxes.js";
import { FAR, pathScale } from "../tree/camera.js";

const WORD = 9; // characters of a token above its column

/** Whether so many columns can only be read with slim boxes, in the narrowest of these windows:
 * [width, height] each. */
export function needsSlim(sizes, wide) {
  return sizes.some((size) => pathScale(size, wide * STEP_X, 1, 0) < FAR);
}

/** The words of a column: the token's number, and the token where the text has come so far. */
function heading(place, sides) {
  const token = sides.map((side) => side[place]).find(Boolean);
  if (!token) return String(place + 1);
  const text = token.text.replace(/\n/g, "⏎").replace(/ /g, "␣");
  const word = text.length > WORD ? `${text.slice(0, WORD - 1)}…` : text;
  return `${place + 1} ${word || "∅"}`;
}

/**
 * The columns of each tree: [{lead, wide, all, here, labels}], null for one that is not shown.
 * shown: [{rounds, at}] with null in place of those; sides: the runs' tokens by place.
 */
export function columnsOf(shown, sides, place) {
  const roots = shown.map((each) => each && rootPlace(each.rounds, each.at));
  const known = roots.filter((root) => root !== null);
  if (!known.length) return shown.map(() => null);
  const first = Math.min(...known);
  const past = (count) => (each, at) =>
    each ? roots[at] - first + count(each.rounds[each.at]) : 0;
  const path = (round) => round.path.length + (round.ghost ? 1 : 0);
  const deepest = (round) => 1 + Math.max(...round.depths, round.ghost ? path(round) - 1 : 0);
  const all = Math.max(...shown.map(past(deepest)), place - first + 1);
  const labels = Array.from({ length: all }, (_, column) => heading(first + column, sides));
  const wide = Math.max(...shown.map(past(path)));
  return roots.map((root) =>
    root === null ? null : { lead: root - first, wide, all, here: place - first, labels },
  );
}
