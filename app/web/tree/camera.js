// Where a tree stands in its window: pure functions of sizes. A view is {k, kx, x, y}: the scale,
// the scale across (larger than k only where a tall tree is seen as a whole), and the shift.

/** The text size that somebody set in the browser, by the usual one: all scales go with it. */
export const TYPE = globalThis.document
  ? Number.parseFloat(getComputedStyle(document.documentElement).fontSize) / 16
  : 1;
export const FAR = 0.8 * TYPE; // below: no numbers, and tokens are cut to their boxes
export const SMALLEST = 0.7; // the same for few boxes, whose letters shrink instead
export const FARTHER = 0.32 * TYPE; // below: no boxes one by one
export const TOKEN = 11 * TYPE; // pixels of the screen, the smallest text
export const LARGEST = 1.5 * TYPE; // of a tree shown as a whole: small ones fill their room
const GROWN = 1.6; // times: so much larger a small tree may be there
const LETTER = 13; // pixels of a token in the plane: tree.css
const READ_AFAR = 20 / 1920; // of a screen's width: a token's size where the tree is presented
const CLOSEST = 2.5;
export const FARTHEST = 0.02;
const EDGE = 110; // pixels from the window's edge, where its map and its legend are
const PAD = 26; // around the tree: the key stands below it
const TIGHT = 6; // the same where a path is wider than the window
const AXIS = 8; // all is so much lower, for the labels of the depths
const LABELS = 20 * TYPE; // pixels of these labels
const NEARLY = 0.83; // of the scale that is read from afar: enough where a path is whole then
const FEW = 6; // columns: where fewer fit, those behind the one on view come before the roots

/** The scale at which all of a tree is in sight. */
export function wholeScale([w, hgt], width, height) {
  return Math.min((w - 2 * PAD) / width, (hgt - 2 * (PAD + AXIS)) / height);
}

/** The scale at which tokens are read from the last row, on a screen of this width. */
export function afar(screen) {
  return Math.max(FAR, (READ_AFAR * screen) / LETTER);
}

/** How large a small tree may be; least: the smallest scale, where it is presented. */
export function largestFor(least) {
  return Math.max(LARGEST, GROWN * least);
}

/** All of a tree, a small one up to the scale `largest`; a tall one is widened until its depths can
 * be told apart. */
export function fitted(size, width, height, largest = LARGEST) {
  const [w, hgt] = size;
  const across = (w - 2 * PAD) / width;
  const k = Math.max(FARTHEST, Math.min(wholeScale(size, width, height), largest));
  const kx = k < FARTHER ? Math.max(k, Math.min(across, FARTHER)) : k;
  return { k, kx, x: (w - width * kx) / 2, y: AXIS + (hgt - height * k) / 2 };
}

/** A scale k with all of the tree in the middle, or the line `above` where it is too tall, unless
 * one side has nothing to show there. In a low window that line comes first, below the labels. */
export function centred([, hgt], k, above, height, half) {
  const below = height - above;
  const room = hgt - height * k - AXIS;
  if (room >= 2 * PAD) return { k, kx: k, x: PAD, y: AXIS + room / 2 };
  let y = Math.min(Math.max(hgt / 2, hgt - below * k - PAD), above * k + PAD + AXIS);
  if (above * k + PAD + AXIS > hgt / 2 && below * k + PAD > hgt / 2) y = hgt / 2 - half * k;
  y = Math.max(LABELS, Math.min(y, hgt - 2 * half * k - TIGHT));
  return { k, kx: k, x: PAD, y: y - above * k };
}

/** The scale at which so wide a path is in sight and its boxes can be read with their numbers;
 * least: the smallest. */
export function pathScale([w], wide, wanted, least = FAR + 0.02) {
  return Math.max(least, Math.min(wanted, (w - 2 * PAD) / wide));
}

/** A run of so many columns as a whole; `before` of them are at the left of the tree's root, whose
 * middle line is `line`. */
export function wholeRun([w, hgt], columns, before, step, line) {
  const k = Math.min(1, (w - 2 * PAD) / (columns * step));
  return { k, kx: k, x: PAD + before * step * k, y: hgt / 2 - line * k };
}

/** A view at the scales of another one, with `wide` columns from the root on in the middle. */
export function carried({ k, kx }, [w, hgt], wide, line) {
  return { k, kx, x: Math.max(PAD, (w - wide * kx) / 2), y: hgt / 2 - line * k };
}

/** Zoom by a factor about a point of the window; least: the smallest scale. */
export function zoomed({ k, kx, x, y }, factor, [atX, atY], least = FARTHEST) {
  const next = Math.min(CLOSEST, Math.max(least, k * factor));
  const wide = next > k ? Math.max(next, kx) : Math.max(next, (kx * next) / k);
  return { k: next, kx: wide, x: atX - ((atX - x) * wide) / kx, y: atY - ((atY - y) * next) / k };
}

/** How far a box must move to be in sight: [dx, dy]. */
export function intoSight({ k, kx, x, y }, [w, hgt], [left, top], [boxW, boxH]) {
  const shift = (from, to, room) =>
    from < PAD ? PAD - from : to > room - PAD ? room - PAD - to : 0;
  const [x0, y0] = [x + left * kx, y + top * k];
  return [shift(x0, x0 + boxW * kx, w), shift(y0, y0 + boxH * k, hgt)];
}

/** A view that a hand moved, so that one of these points of the plane stays in sight. */
export function kept({ k, kx, x, y }, [w, hgt], points) {
  const shift = (at, room) => {
    const edge = Math.min(EDGE, room / 4);
    return Math.min(Math.max(at, edge), room - edge) - at;
  };
  const far = ([dx, dy]) => Math.abs(dx) + Math.abs(dy),
    moves = points.map(([px, py]) => [shift(x + px * kx, w), shift(y + py * k, hgt)]),
    [dx, dy] = moves.reduce((least, move) => (far(move) < far(least) ? move : least));
  return { k, kx, x: x + dx, y: y + dy };
}

// ── columns that several trees share ───────────────────────────────────────────────────────────

/**
 * As `centred`, among columns of other trees too. columns: {lead, wide, here, tall}: columns before
 * the root, columns of the widest accepted path, the one that must be in sight, and the height of
 * the tallest tree. room: the smallest window of these trees; plan: {stepX, height}; least: the
 * smallest scale.
 */
export function columned(size, room, columns, { stepX: step, height }, zoom, above, half, least) {
  const { lead, wide, here, tall } = columns,
    whole = (room[0] - PAD - TIGHT) / (step * wide),
    smallest = least && whole > NEARLY * least ? Math.min(least, whole) : least;
  const k = pathScale(room, wide * step, Math.min(zoom, wholeScale(room, 1, tall)), smallest);
  const fit = (room[0] - PAD - TIGHT) / (step * k),
    onward = fit < FEW ? Math.min(wide - fit, here - 1) : 0,
    over = Math.max(0, here + 1 - fit, onward);
  return { ...centred(size, k, above, height, half), x: PAD + (lead - over) * step * k };
}

/** As `fitted`, all trees at one scale, that of the smallest window. all: columns of all trees;
 * tall: the tallest one. */
export function fittedColumns(size, room, { lead, all, tall }, plan, largest) {
  const { stepX: step, height } = plan;
  const view = fitted(room, all * step, tall, largest);
  return { ...view, x: view.x + lead * step * view.kx, y: AXIS + (size[1] - height * view.k) / 2 };
}

/** The view of a tree beside another one that was moved: the same columns, its own middle line. */
export function following(view, { k, kx, x }, [, hgt], shift) {
  const middle = (hgt / 2 - view.y) / view.k;
  return { k, kx, x: x + shift * kx, y: hgt / 2 - middle * k };
}
