// τ and speed of the methods in one picture: what a method gains a round, and what is left of it
// when its own cost is paid.

import { number, ratio, s, words } from "../dom.js";
import { TYPE } from "../tree/camera.js";

const WIDEST = 1100; // pixels: in more room all of it is larger
// Pixels of the picture's height, and at its right for the names of what stands there: on a narrow
// window those go above and below.
const WIDE = { H: 300 * TYPE, RIGHT: 176 * TYPE };
const NARROW = { H: 420 * TYPE, RIGHT: 20 };
const PHONE = 720 * TYPE;
const LEFT = 54 * TYPE;
const TOP = 14 * TYPE;
const BOTTOM = 40 * TYPE;
const LINE = 15 * TYPE; // pixels of a name: its height,
const LETTER = 7 * TYPE; // and the width of a letter
const DOT = 7; // room around a dot,
const RADIUS = 5; // and the dot itself
const LONGEST = 40; // letters of a name
const FASTER = "faster than plain decoding";
const SLOWER = "slower";

/** rows: {title, tau, speed, low, high}; those without a speed are not drawn; low and high may be
 * null. width: pixels that there are for it. null: too few. */
export function scatter(rows, width = WIDEST) {
  const W = Math.min(width, WIDEST),
    { H, RIGHT } = W < PHONE ? NARROW : WIDE;
  const points = rows.filter((row) => row.speed && row.tau);
  if (points.length < 2) return null;
  const most = (name) => Math.max(...points.map((row) => row[name]));
  const widest = Math.max(2, ...points.map((row) => row.high ?? row.tau)),
    fastest = Math.max(1.2, 1.1 * most("speed")),
    slowest = Math.min(0.9, 0.8 * Math.min(...points.map((row) => row.speed)));
  const x = (tau) => LEFT + ((tau - 1) / (widest - 1)) * (W - LEFT - RIGHT);
  const y = (speed) => TOP + ((fastest - speed) / (fastest - slowest)) * (H - TOP - BOTTOM);
  const grid = [0.25, 0.5, 0.75, 1, 1.25, 1.5, 2, 3, 4]
    .filter((speed) => speed >= slowest && speed <= fastest)
    .flatMap((speed) => [
      s("path", { class: speed === 1 ? "plain" : "grid", d: `M${LEFT} ${y(speed)}H${W - RIGHT}` }),
      words(null, LEFT - 14, y(speed) + 4, ratio(speed), "end"),
    ]);
  const ticks = Array.from({ length: Math.floor(widest) }, (_, i) =>
    words(null, x(i + 1), H - BOTTOM + 16 * TYPE, i + 1, "middle"),
  );
  const end = W - 4,
    said = (text, top) => box(end - text.length * LETTER, top, text.length * LETTER, LINE);
  const places = named(
    points.map((row) => ({
      row,
      from: x(row.low ?? row.tau),
      at: x(row.tau),
      to: x(row.high ?? row.tau),
      y: y(row.speed),
    })),
    W,
    [said(FASTER, y(1) - LINE), said(SLOWER, y(1))],
  );
  const dots = places.map(({ row, from, at, to, y: up, name }) =>
    s(
      "g",
      { class: `dot ${row.speed === 1 ? "" : row.speed > 1 ? "faster" : "slower"}` },
      s("title", {}, `${row.title}: τ ${number(row.tau)}, ${ratio(row.speed)} plain decoding`),
      s("path", { class: "whisker", d: `M${from} ${up}H${to}` }),
      s("circle", { cx: at, cy: up, r: RADIUS }),
      words("name", name.left, name.top + LINE - 4, shortened(row.title)),
    ),
  );
  return s(
    "svg",
    {
      class: "ds-scatter",
      viewBox: `0 0 ${W} ${H}`,
      role: "img",
      "aria-label": spoken(points),
    },
    grid,
    ticks,
    words(null, (LEFT + W - RIGHT) / 2, H - 6, "τ: tokens a forward pass of the target", "middle"),
    words("says", end, y(1) - 5, FASTER, "end"),
    words("says", end, y(1) + 14 * TYPE, SLOWER, "end"),
    dots,
  );
}

/** The points {row, from, at, to, y} of a picture so wide, each with the box of its `name`: right
 * of its whisker where nothing is in the way, else left of it, above, below, or the place of these
 * that covers least. others: boxes of other words. */
export function named(points, width = WIDEST, others = []) {
  const taken = points.map(({ from, at, to, y }) => {
    const left = Math.min(from, at - RADIUS);
    return box(left, y - DOT, Math.max(to, at + RADIUS) - left, 2 * DOT);
  });
  taken.push(...others);
  return points.map((point) => {
    const { row, from, at, to, y } = point,
      wide = shortened(row.title).length * LETTER,
      within = (left) => Math.max(LEFT, Math.min(width - wide, left));
    const places = [
      [Math.max(to, at + RADIUS) + DOT, y - LINE / 2],
      [from - DOT - wide, y - LINE / 2],
      [at - wide / 2, y - DOT - LINE],
      [at - wide / 2, y + DOT],
      [to, y - DOT - LINE],
      [to, y + DOT],
    ].map(([left, top]) => box(within(left), top, wide, LINE));
    const name = places.reduce((best, each) => (hidden(each) < hidden(best) ? each : best));
    taken.push(name);
    return { ...point, name };
  });

  function hidden(place) {
    return taken.reduce((sum, other) => sum + overlap(place, other), 0);
  }
}

function shortened(title) {
  return title.length > LONGEST ? `${title.slice(0, LONGEST - 1)}…` : title;
}

function box(left, top, wide, tall) {
  return { left, top, right: left + wide, bottom: top + tall };
}

function overlap(a, b) {
  const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left),
    tall = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
  return wide > 0 && tall > 0 ? wide * tall : 0;
}

function spoken(points) {
  const [best] = [...points].sort((a, b) => b.speed - a.speed);
  const how = `${best.title}, at ${ratio(best.speed)} plain decoding`;
  return `Speed by τ of ${points.length} methods; the fastest is ${how}`;
}
