// τ and speed of the methods in one picture: what a method gains a round, and what is left of it
// when its own cost is paid.

import { number, ratio, s } from "../dom.js";

const W = 860;
const H = 300;
const LEFT = 46;
const RIGHT = 130; // for the names of what stands at the right
const TOP = 14;
const BOTTOM = 40;
const LINE = 14; // between two names

/** rows: {title, tau, speed, low, high}; those without a speed are not drawn; low and high may be
 * null. null: too few. */
export function scatter(rows) {
  const points = rows.filter((row) => row.speed && row.tau);
  if (points.length < 2) return null;
  const most = (name) => Math.max(...points.map((row) => row[name]));
  const [widest, fastest] = [Math.ceil(most("tau")), Math.max(1.2, 1.1 * most("speed"))];
  const x = (tau) => LEFT + ((tau - 1) / (widest - 1 || 1)) * (W - LEFT - RIGHT);
  const y = (speed) => TOP + (1 - speed / fastest) * (H - TOP - BOTTOM);
  const text = (words, at, more) => s("text", { ...at, ...more }, words);
  const grid = [0.5, 1, 1.5, 2, 3, 4]
    .filter((speed) => speed <= fastest)
    .flatMap((speed) => [
      s("path", { class: speed === 1 ? "plain" : "grid", d: `M${LEFT} ${y(speed)}H${W - RIGHT}` }),
      text(ratio(speed), { x: LEFT - 6, y: y(speed) + 4 }, { "text-anchor": "end" }),
    ]);
  const ticks = Array.from({ length: widest }, (_, i) =>
    text(String(i + 1), { x: x(i + 1), y: H - BOTTOM + 16 }, { "text-anchor": "middle" }),
  );
  const places = apart(points.map((row) => ({ row, x: x(row.high ?? row.tau), y: y(row.speed) })));
  const dots = places.map(({ row, x: end, y: up, name }) =>
    s(
      "g",
      { class: `dot ${row.speed === 1 ? "" : row.speed > 1 ? "faster" : "slower"}` },
      s("title", {}, `${row.title}: τ ${number(row.tau)}, ${ratio(row.speed)} plain decoding`),
      s("path", { class: "whisker", d: `M${x(row.low ?? row.tau)} ${up}H${end}` }),
      s("circle", { cx: x(row.tau), cy: up, r: 5 }),
      Math.abs(name - up) > 3
        ? s("path", { class: "lead", d: `M${end + 2} ${up}L${end + 6} ${name}` })
        : null,
      text(row.title, { x: end + 8, y: name + 4 }, { class: "name" }),
    ),
  );
  return s(
    "svg",
    { class: "ds-scatter", viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": spoken(points) },
    grid,
    ticks,
    text(
      "τ: tokens a forward pass of the target",
      { x: (LEFT + W - RIGHT) / 2, y: H - 6 },
      { "text-anchor": "middle" },
    ),
    text(
      "faster than plain decoding",
      { x: W - 4, y: y(1) - 5 },
      { class: "says", "text-anchor": "end" },
    ),
    text("slower", { x: W - 4, y: y(1) + 14 }, { class: "says", "text-anchor": "end" }),
    dots,
  );
}

/** Names beside their dots, moved up or down where two would lie on each other. */
function apart(points) {
  const placed = [];
  for (const point of [...points].sort((a, b) => a.y - b.y)) {
    const near = (name) =>
      placed.some(
        (other) => Math.abs(other.x - point.x) < 120 && Math.abs(other.name - name) < LINE,
      );
    let name = point.y;
    while (near(name)) name += 2;
    placed.push({ ...point, name });
  }
  return placed;
}

function spoken(points) {
  const [best] = [...points].sort((a, b) => b.speed - a.speed);
  const how = `${best.title}, at ${ratio(best.speed)} plain decoding`;
  return `Speed by τ of ${points.length} methods; the fastest is ${how}`;
}
