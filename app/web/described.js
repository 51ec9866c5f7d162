// What the description of a figure says, as `analysis` makes it: pure functions.

import { shortNumber } from "./dom.js";

const SIZES = new Set("size width thickness standoff xshift l r t b".split(" "));

/** A description with the colours that the stylesheet's names have, and its type, marks and margins
 *  `times` as large. */
export function painted(value, colourOf, times = 1, name = "") {
  if (name === "meta") return value;
  if (Array.isArray(value)) return value.map((each) => painted(each, colourOf, times, name));
  if (value && typeof value === "object")
    return Object.fromEntries(
      Object.entries(value).map(([key, each]) => [key, painted(each, colourOf, times, key)]),
    );
  if (typeof value === "number") return SIZES.has(name) ? value * times : value;
  const colour = typeof value === "string" && /^var\((--ds-[a-z0-9-]+)\)$/.exec(value);
  return colour ? colourOf(colour[1]) : value;
}

/** The series that are shown: those of the choice, with their points. */
export function seriesOf({ data }, chosen) {
  return data
    .map(({ meta }) => meta)
    .filter((meta) => meta?.points?.length && (!meta.choice || meta.choice === chosen));
}

/** The numbers as records, a line each. */
export function recordsOf(series, { x, y, places }) {
  return series.flatMap(({ name, points }) =>
    points.map(({ x: at, y: value, ...rest }) => ({
      series: name,
      [x]: places.length ? places[at] : at,
      [y]: value,
      ...rest,
    })),
  );
}

/** The number to begin with, in words: of the ring's point, the highest bar, of bars on each other
 *  the largest part of the first one, or where the first line begins; "" where places along x have
 *  no names. */
export function briefOf(series, { data, layout: { meta, xaxis, barmode } }, [ringed]) {
  const all = series.flatMap(({ name, points }) => points.map((point) => ({ name, ...point })));
  if (!all.length || !xaxis?.tickvals) return ""; // a file without a server has no axes
  const first = Math.min(...all.map(({ x }) => x)),
    bars = barmode === "stack" ? all.filter(({ x }) => x === first) : all,
    highest = bars.reduce((most, each) => (each.y > most.y ? each : most)),
    isBars = data.some(({ type }) => type === "bar"),
    { x, y, name = "" } = ringed ?? (isBars ? highest : all[0]),
    at = meta.places.length ? meta.places[x] : shortNumber(x);
  return `${shortNumber(y)}, ${meta.x} = ${at}${series.length > 1 ? `, ${name}` : ""}`;
}
