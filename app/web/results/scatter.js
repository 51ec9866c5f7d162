// τ and speed of the methods in one picture: what a method gains a round, and what is left of it
// when its own cost is paid.

import { number, ratio, s, words } from "../dom.js";
import { wideFor } from "../save/paper.js";
import { outOfSight, picture } from "../save/picture.js";

// All in heights of the type that is drawn: it is larger where somebody set so, and presented.
const LEAST = 340; // pixels of a saved picture: it is drawn so wide, and scaled to less
const USUAL = 11.5; // pixels of it
const WIDEST = 96; // in more room all of it is larger
// The picture's height, and what is at its right for the names of what stands there: on a narrow
// window those go above and below.
const WIDE = { tall: 27, right: 15.3 };
const NARROW = { tall: 37.5, right: 1.75 };
const SLIM = { tall: 50, right: 1.75 }; // on a phone with large letters
const PHONE = 62.6;
const SLIMMEST = 25;
const LEFT = 4.7; // for the speeds at the axis
const TOP = 2.4;
const BOTTOM = 3.5;
const LINE = 1.3; // of a name: its height,
const LETTER = 0.61; // and the width of a letter
const DOT = 0.47; // of a line: room around a dot,
const RADIUS = 0.34; // and the dot itself
const LONGEST = 40; // letters of a name
const TAU = "τ: tokens a round";
const BARS = "with its 95 % interval";
const FASTER = "faster than plain decoding";
const SLOWER = "slower";

/** The picture for a place on the page, in its type: presented it fills the place. `width`: another
 * than that of the place. */
export function scatterIn(place, rows, width) {
  const { clientWidth, clientHeight } = place,
    tall = !width && place.closest(".ds-presenting") && clientHeight,
    size = Number.parseFloat(getComputedStyle(place).fontSize);
  return scatter(rows, size, { wide: width || clientWidth, tall });
}

/** The picture for a file, drawn as wide as that wants it. */
export function savedScatter(place, rows) {
  const width = wideFor(place.clientWidth, LEAST),
    svg = scatterIn(place, rows, width);
  return outOfSight(place, svg, (host) => {
    host.style.width = `${width}px`;
    return picture(svg);
  });
}

/** rows: {title, tau, speed, low, high}; those without a speed are not drawn; low and high may be
 * null. size: pixels of its type; room: those that there are for it, `tall` where all of that is to
 * be used. null: too few rows. */
function scatter(rows, size = USUAL, { wide, tall } = {}) {
  const most = WIDEST * size,
    W = Math.min(wide || most, most),
    shape = W < SLIMMEST * size ? SLIM : W < PHONE * size ? NARROW : WIDE,
    points = rows.filter((row) => row.speed && row.tau);
  const told = [TAU, ...(points.some(({ low }) => Number.isFinite(low)) ? [BARS] : [])],
    axis = shape === SLIM ? told : [told.join(", ")],
    more = (axis.length - 1) * LINE;
  const H = tall ? (tall * W) / (wide || W) : (shape.tall + more) * size,
    [left, right, bottom] = [LEFT, shape.right, BOTTOM + more].map((each) => each * size),
    [above, line, letter] = [TOP, LINE, LETTER].map((each) => each * size);
  if (points.length < 2) return null;
  const widest = Math.max(2, ...points.map((row) => row.high ?? row.tau)),
    fastest = Math.max(1.2, 1.1 * Math.max(...points.map((row) => row.speed))),
    slowest = Math.min(0.9, 0.8 * Math.min(...points.map((row) => row.speed)));
  const x = (tau) => left + ((tau - 1) / (widest - 1)) * (W - left - right);
  const y = (speed) => above + ((fastest - speed) / (fastest - slowest)) * (H - above - bottom);
  const grid = [0.25, 0.5, 0.75, 1, 1.25, 1.5, 2, 3, 4]
    .filter((speed) => speed >= slowest && speed <= fastest)
    .flatMap((speed) => [
      s("path", { class: speed === 1 ? "plain" : "grid", d: `M${left} ${y(speed)}H${W - right}` }),
      words(null, left - 1.2 * size, y(speed) + 0.35 * size, ratio(speed), "end"),
    ]);
  const ticks = Array.from({ length: Math.floor(widest) }, (_, i) =>
    words(null, x(i + 1), H - bottom + 1.4 * size, i + 1, "middle"),
  );
  const end = W - 4,
    said = (text, top) => box(end - text.length * letter, top, text.length * letter, line);
  const places = named(
    points.map((row) => ({
      row,
      from: x(row.low ?? row.tau),
      at: x(row.tau),
      to: x(row.high ?? row.tau),
      y: y(row.speed),
    })),
    { wide: W, from: left, line, letter },
    [said(FASTER, y(1) - line), said(SLOWER, y(1))],
  );
  const dots = places.map(({ row, from, at, to, y: up, name }) =>
    s(
      "g",
      { class: `dot ${row.speed === 1 ? "" : row.speed > 1 ? "faster" : "slower"}` },
      s("title", `${row.title}: τ ${number(row.tau)}, ${ratio(row.speed)} plain decoding`),
      s("path.whisker", { d: `M${from} ${up}H${to}` }),
      s("circle", { cx: at, cy: up, r: RADIUS * line }),
      words("name", name.left, name.top + line - 0.35 * size, shortened(row.title)),
    ),
  );
  return s(
    "svg.ds-scatter",
    { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": spoken(points) },
    grid,
    ticks,
    words(null, 4, size, "speed, × plain decoding"),
    axis.map((each, at) =>
      words(
        null,
        (left + W - right) / 2,
        H - 0.5 * size - (axis.length - 1 - at) * line,
        each,
        "middle",
      ),
    ),
    words("says", end, y(1) - 0.5 * size, FASTER, "end"),
    words("says", end, y(1) + 1.25 * size, SLOWER, "end"),
    dots,
  );
}

const PLACED = {
  wide: WIDEST * USUAL,
  from: LEFT * USUAL,
  line: LINE * USUAL,
  letter: LETTER * USUAL,
};

/** The points {row, from, at, to, y} of a picture so wide, each with the box of its `name`: right
 * of its whisker where nothing is in the way, else left of it, above, below, or the place of these
 * that covers least. others: boxes of other words. */
export function named(points, picture = {}, others = []) {
  const { wide: all, from: least, line, letter } = { ...PLACED, ...picture };
  const [room, radius] = [DOT, RADIUS].map((each) => each * line);
  const taken = points.map(({ from, at, to, y }) => {
    const left = Math.min(from, at - radius);
    return box(left, y - room, Math.max(to, at + radius) - left, 2 * room);
  });
  taken.push(...others);
  return points.map((point) => {
    const { row, from, at, to, y } = point,
      wide = shortened(row.title).length * letter,
      within = (left) => Math.max(least, Math.min(all - wide, left));
    const places = [
      [Math.max(to, at + radius) + room, y - line / 2],
      [from - room - wide, y - line / 2],
      [at - wide / 2, y - room - line],
      [at - wide / 2, y + room],
      [to, y - room - line],
      [to, y + room],
    ].map(([left, top]) => box(within(left), top, wide, line));
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
