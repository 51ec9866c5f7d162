// The columns that trees side by side share: one for each place in the text, the same in all of
// them, each with its tree's own words. Pure functions.

import { rootPlace } from "../align.js";
import { STEP_X } from "../tree/boxes.js";
import { FAR, pathScale } from "../tree/camera.js";

const WORD = 9; // characters of a token above its column

/** Whether so many columns can only be read with slim boxes, in the narrowest of these windows:
 * [width, height] each. */
export function needsSlim(sizes, wide) {
  return sizes.some((size) => pathScale(size, wide * STEP_X, 1, 0) < FAR);
}

/** The words of a column: the token's number, and the token of the run's own text, or of another's
 * where that has not come so far and the texts have not parted. */
function heading(place, own, sides, parts) {
  const shared = parts === null || place < parts ? sides.map((side) => side[place]) : [],
    token = own[place] ?? shared.find(Boolean);
  if (!token) return String(place + 1);
  const text = token.text.replace(/\n/g, "⏎").replace(/ /g, "␣");
  const word = text.length > WORD ? `${text.slice(0, WORD - 1)}…` : text;
  return `${place + 1} ${word || "∅"}`;
}

/**
 * The columns of each tree: [{lead, wide, all, here, labels}], null for one that is not shown.
 * shown: [{rounds, at}] with null in place of those; sides: the runs' tokens by place; parts: the
 * place where these part, or null.
 */
export function columnsOf(shown, sides, place, parts) {
  const roots = shown.map((each) => each && rootPlace(each.rounds, each.at));
  const known = roots.filter((root) => root !== null);
  if (!known.length) return shown.map(() => null);
  const first = Math.min(...known);
  const past = (count) => (each, at) =>
    each ? roots[at] - first + count(each.rounds[each.at]) : 0;
  const path = (round) => round.path.length + (round.ghost ? 1 : 0);
  const deepest = (round) => 1 + Math.max(...round.depths, round.ghost ? path(round) - 1 : 0);
  const all = Math.max(...shown.map(past(deepest)), place - first + 1);
  const labelsOf = (own) =>
    Array.from({ length: all }, (_, column) => heading(first + column, own, sides, parts));
  const wide = Math.max(...shown.map(past(path))),
    here = place - first;
  return roots.map((root, at) =>
    root === null ? null : { lead: root - first, wide, all, here, labels: labelsOf(sides[at]) },
  );
}
