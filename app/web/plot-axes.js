// The axes of a figure: from numbers to places in a picture, with ticks and names. Nothing that is
// drawn by them leaves the picture.

import { s } from "./dom.js";

export const PLOT = { w: 460, h: 240, left: 50, right: 448, top: 10, bottom: 198 };
const LETTER = 6.2; // about the width of a letter of a tick

/** A number for an axis or a table. */
export function shortNumber(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (Number.isInteger(value)) return String(value);
  const size = Math.abs(value);
  if (size >= 10) return value.toFixed(size >= 100 ? 0 : 1);
  if (size >= 0.1) return value.toFixed(2);
  return size >= 0.0005 ? String(Number(value.toFixed(3))) : value.toExponential(0);
}

/** Round numbers between two bounds, about as many as asked for. */
export function roundSteps(from, to, many) {
  const rough = (to - from) / many || 1,
    power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((m) => m >= rough * 0.999),
    found = [];
  for (let v = Math.ceil(from / step - 1e-9) * step; v <= to + step * 1e-6; v += step)
    found.push(Math.abs(v) < 1e-12 ? 0 : Number(v.toPrecision(10)));
  return found;
}

/** Powers of ten between two bounds, every second or third where there are many. */
export function powersOfTen(from, to) {
  const low = Math.ceil(Math.log10(from) - 1e-9),
    high = Math.floor(Math.log10(to) + 1e-9),
    every = Math.max(1, Math.ceil((high - low) / 6));
  return Array.from({ length: Math.floor((high - low) / every) + 1 }, (_, at) =>
    Number(`1e${high - at * every}`),
  ).reverse();
}

/** Words cut to a width, with "…". */
export function fitted(words, width) {
  const room = Math.max(2, Math.floor(width / LETTER));
  return words.length <= room ? words : `${words.slice(0, room - 1)}…`;
}

export class Axes {
  /** range: {x: [a, b], y: [a, b], log, ticks, names}; `log`: x by its logarithm. Where there are
   *  names, x counts them from 0. points: what else must be inside where a range is not given. */
  constructor(about, range, points) {
    const numbers = (values) => values.filter((v) => typeof v === "number");
    const ys = numbers(points.flatMap((p) => [p.y, p.low, p.high])),
      xs = numbers(points.map((p) => p.x));
    this.about = about;
    this.range = range;
    this.xs = range.names
      ? [0, Math.max(1, range.names.length)]
      : range.x || [Math.min(...xs, 1), Math.max(...xs, 2)];
    this.ys = range.y || [Math.min(0, ...ys), Math.max(0.01, ...ys) * 1.06];
  }

  x(value) {
    const on = this.range.log ? Math.log : (v) => v;
    return along(value, this.xs, [PLOT.left, PLOT.right], on);
  }

  y(value) {
    return along(value, this.ys, [PLOT.bottom, PLOT.top], (v) => v);
  }

  /** The width that one of some names, or of `many` bars, has. */
  wide(many = this.range.names?.length) {
    return (PLOT.right - PLOT.left) / Math.max(1, many);
  }

  draw() {
    return [...this._across(), ...this._down(), ...this._names()];
  }

  _across() {
    return roundSteps(...this.ys, 5).flatMap((value) => {
      const y = this.y(value),
        at = { class: "tick", x: PLOT.left - 6, y: (y + 3.5).toFixed(1), "text-anchor": "end" };
      return [
        s("path", { class: "grid", d: `M${PLOT.left} ${y.toFixed(1)}H${PLOT.right}` }),
        s("text", at, shortNumber(value)),
      ];
    });
  }

  _down() {
    const { names, ticks, log } = this.range,
      values = ticks || (log ? powersOfTen(...this.xs) : roundSteps(...this.xs, 9));
    const all = names
      ? names.map((name, at) => [PLOT.left + this.wide() * (at + 0.5), String(name)])
      : values.map((v) => [this.x(v), shortNumber(v)]);
    // Where they are long, every second one stands lower.
    const room = names ? this.wide() : 50,
      long = all.some(([, words]) => words.length * LETTER > room);
    return all.map(([x, words], at) =>
      this._tick(x, words, long && at % 2, long ? 2 * room : room),
    );
  }

  _tick(x, words, lower, room) {
    const shown = fitted(words, room),
      half = (shown.length * LETTER) / 2;
    const at = {
      class: "tick",
      x: Math.max(half, Math.min(PLOT.w - half, x)).toFixed(1),
      y: PLOT.bottom + (lower ? 24 : 13),
      "text-anchor": "middle",
    };
    return s("text", at, shown, shown === words ? null : s("title", {}, words));
  }

  _names() {
    const middle = (from, to) => (from + to) / 2;
    const below = { class: "name", x: middle(PLOT.left, PLOT.right), y: PLOT.h - 4 },
      beside = {
        class: "name",
        x: -middle(PLOT.top, PLOT.bottom),
        y: 12,
        transform: "rotate(-90)",
      };
    return [
      s("path", { class: "axis", d: `M${PLOT.left} ${PLOT.top}V${PLOT.bottom}H${PLOT.right}` }),
      s("text", { ...below, "text-anchor": "middle" }, this.about.x),
      s("text", { ...beside, "text-anchor": "middle" }, this.about.y),
    ];
  }

  /** "diagonal", where y is x, or {x} or {y}: a thin line for the eye. */
  guide(what) {
    if (what === "diagonal") return s("path", { class: "guide", d: this._diagonal() });
    if ("x" in what) return this._straight(`${this.x(what.x)} ${PLOT.top}V${PLOT.bottom}`);
    return this._straight(`${PLOT.left} ${this.y(what.y)}H${PLOT.right}`);
  }

  _straight(d) {
    return s("path", { class: "guide", d: `M${d}` });
  }

  /** A curve where x goes by its logarithm. */
  _diagonal() {
    const [from, to] = this.xs,
      parts = this.range.log ? 48 : 1;
    const at = (share) =>
      this.range.log ? from * (to / from) ** share : from + (to - from) * share;
    const values = Array.from({ length: parts + 1 }, (_, i) => at(i / parts));
    return `M${values.map((v) => `${this.x(v).toFixed(1)} ${this.y(v).toFixed(1)}`).join("L")}`;
  }
}

/** A place between two ends by a value between two bounds; values outside come to the nearest end. */
function along(value, [low, high], [from, to], on) {
  const share = (on(value) - on(low)) / (on(high) - on(low) || 1);
  return from + Math.max(0, Math.min(1, share)) * (to - from);
}
