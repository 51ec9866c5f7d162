// Figures: lines with intervals, points, bars, and stacked bars, as light SVG. Every figure can be
// read as a table and saved as picture or numbers. Series differ in colour, dash and marker at once.

import { button, h, percent, s } from "./dom.js";
import { menu, sheet } from "./parts.js";
import { Axes, PLOT, shortNumber } from "./plot-axes.js";
import { fileName, picture, pictureButtons, savers } from "./save.js";

const MARKERS = [
  "M-3.4 0a3.4 3.4 0 1 0 6.8 0a3.4 3.4 0 1 0-6.8 0z",
  "M-3 -3h6v6h-6z",
  "M0 -4L3.8 3H-3.8z",
  "M0 -4.3L4.3 0L0 4.3L-4.3 0z",
  "M-3.8 -3H3.8L0 4z",
  "M-3.4 -3.4L3.4 3.4M-3.4 3.4L3.4 -3.4",
];
const FEW = 5; // a point of fewer observations is faint
const CROWDED = 80; // points of a line that are too many to mark each
const ASIDE = 0.6; // of a name's width, what its series share

export class Figure {
  /** about: {title, says, x, y, source}: what it means in one sentence, what the axes are called,
   *  and the server's functions where it can make a Parquet file. */
  constructor(about) {
    this.about = about;
    this.records = []; // the numbers as they are, a line each
    this.svg = s("svg", {
      class: "ds-plot",
      viewBox: `0 0 ${PLOT.w} ${PLOT.h}`,
      role: "img",
      "aria-label": about.title,
    });
    this.legend = h("div", { class: "ds-key ds-plot-key" });
    this.tableBox = h("div", { class: "ds-table", hidden: true });
    this.note = h("p", { class: "ds-soft ds-plot-note", hidden: true });
    this.says = h("p", { class: "ds-says", hidden: !about.says }, about.says);
    this.menu = this._menu();
    this.tools = h("span", { class: "ds-plot-tools" }, this.menu);
    this.element = h(
      "figure",
      { class: "ds-figure" },
      h(
        "figcaption",
        {},
        h("h3", { title: about.help || "" }, about.title),
        h("span", { class: "ds-spring" }),
        this.tools,
      ),
      this.says,
      this.svg,
      this.tableBox,
      this.legend,
      this.note,
    );
  }

  _menu() {
    const { title, source } = this.about,
      seen = { class: "ds-small", "aria-pressed": "false", "aria-label": `As a table: ${title}` };
    this.switch = button("table", seen, () => this._flip());
    const draw = () => picture(this.svg),
      name = () => fileName(title);
    return menu(`Table and files: ${title}`, [
      this.switch,
      pictureButtons(`the figure ${title}`, draw, name, "ds-small"),
      savers(title, () => this.records, source),
    ]);
  }

  _flip() {
    this.menu.removeAttribute("open");
    this.tableBox.hidden = !this.tableBox.hidden;
    this.svg.classList.toggle("gone", !this.tableBox.hidden);
    this.switch.textContent = this.tableBox.hidden ? "table" : "figure";
    this.switch.setAttribute("aria-pressed", String(!this.tableBox.hidden));
  }

  say(words) {
    this.note.hidden = !words;
    this.note.textContent = words || "";
  }

  /** Lines: series [{name, points: [{x, y, low, high, n, words}], only: "points" or "bars"}]; the
   *  range of `Axes`. Where it has names, the series stand side by side at each; n: how many
   *  observations a point is of. */
  lines(series, range = {}, extras = []) {
    const drawn = series.filter((each) => each.points.length),
      points = drawn.flatMap((each) => each.points);
    this.axes = new Axes(this.about, range, range.names ? points.map(({ x, ...p }) => p) : points);
    const parts = drawn.map((each, at) => this._series(each, at, drawn.length));
    this._put(
      [...extras.map((what) => this.axes.guide(what)), ...parts],
      drawn.map((each, at) => [each.name, each.style ?? at, each.only]),
    );
    const named = (x) => range.names?.[x] ?? x,
      columns = drawn.map((each) => new Map(each.points.map((p) => [named(p.x), withInterval(p)])));
    this._tabulate(
      drawn.map((each) => each.name),
      columns,
      range.names,
    );
    this.records = drawn.flatMap(({ name, points: all }) =>
      all.map(({ x, y, low, high, n, words }) => ({
        series: name,
        [this.about.x]: named(x),
        [this.about.y]: y,
        ...(typeof low === "number" ? { low, high } : {}),
        ...(typeof n === "number" ? { n } : {}),
        ...(words ? { words } : {}),
      })),
    );
    this.say(drawn.length ? "" : "nothing to show yet");
  }

  /** A distribution: bars at whole numbers, series side by side. */
  bars(series, xs, range = {}) {
    const at = new Map(xs.map((x, place) => [x, place]));
    const placed = series.map(({ points, ...each }) => ({
      ...each,
      only: "bars",
      points: points.filter((p) => at.has(p.x)).map((p) => ({ ...p, x: at.get(p.x) })),
    }));
    this.lines(placed, { ...range, names: xs });
  }

  /** Shares stacked to 1 at every x: parts [{name, style, values: Map x → {share, count}}].
   *  onPick(name, x) when clicked. */
  stacks(parts, xs, onPick) {
    this.svg.setAttribute("role", onPick ? "group" : "img"); // readers see no parts of an image
    this.axes = new Axes(this.about, { y: [0, 1], names: xs }, []);
    this._put(
      xs.flatMap((x, at) => this._stack(parts, x, at, onPick)),
      parts.map((part) => [part.name, part.style, "box"]),
    );
    const shown = ({ share, count }) => `${percent(share)} (${count})`;
    this._tabulate(
      parts.map((part) => part.name),
      parts.map(({ values }) => new Map([...values].map(([x, found]) => [x, shown(found)]))),
      xs,
    );
    this.records = xs.flatMap((x) =>
      parts
        .filter((part) => part.values.has(x))
        .map(({ name, values }) => {
          const { share, count } = values.get(x);
          return { cause: name, [this.about.x]: x, share, count };
        }),
    );
    this.say(xs.length ? "" : "nothing to show yet");
  }

  _stack(parts, x, at, onPick) {
    const wide = this.axes.wide();
    let from = 0;
    return parts
      .filter((part) => part.values.has(x))
      .map(({ name, style, values }) => {
        const { share, count } = values.get(x),
          words = `${percent(share)} (${count})`,
          top = this.axes.y(from + share);
        const bar = s(
          "rect",
          {
            class: `ds-part ${style}`,
            x: (PLOT.left + (at + 0.1) * wide).toFixed(1),
            width: (wide * 0.8).toFixed(1),
            y: top.toFixed(1),
            height: (this.axes.y(from) - top).toFixed(1),
            "aria-label": `${name}, ${this.about.x} ${x}: ${words}`,
            ...(onPick && { tabindex: 0, role: "button" }),
          },
          s("title", {}, `${name}: ${words}`),
        );
        from += share;
        if (onPick) onPress(bar, () => onPick(name, x));
        return bar;
      });
  }

  _series({ points, only, name, band, onPick, style: own }, at, many) {
    const { axes } = this,
      style = own ?? at,
      known = points.filter((p) => typeof p.y === "number"),
      group = s("g", { class: `ds-series c${style % 6}${only ? " only" : ""}` });
    const aside = 0.5 + ((at + 0.5) / many - 0.5) * ASIDE;
    const across = (p) =>
      axes.range.names ? PLOT.left + axes.wide() * (p.x + aside) : axes.x(p.x);
    const place = (p, side = "y") => `${across(p).toFixed(1)} ${axes.y(p[side]).toFixed(1)}`;
    if (only === "bars") group.append(...known.map((p) => this._bar(p, across(p), many)));
    group.append(...intervals(known, place, band && !axes.range.names));
    if (!only) group.append(...lineThrough(known, place));
    for (const p of only === "bars" || known.length > CROWDED ? [] : known) {
      const few = p.n < FEW ? " few" : "",
        look = { class: `mark${few}`, d: MARKERS[style % 6], transform: `translate(${place(p)})` };
      const mark = s("path", look, s("title", {}, this._told(name, p)));
      if (onPick) mark.addEventListener("click", () => onPick(p));
      group.append(mark);
    }
    return group;
  }

  _bar(p, x, many) {
    const wide = (this.axes.wide() * ASIDE) / many,
      top = this.axes.y(p.y);
    const look = {
      class: `bar${p.n < FEW ? " few" : ""}`,
      x: (x - wide / 2).toFixed(1),
      y: top.toFixed(1),
      width: wide.toFixed(1),
      height: (PLOT.bottom - top).toFixed(1),
    };
    return s("rect", look, s("title", {}, this._told("", p)));
  }

  _told(name, p) {
    const x = this.axes.range.names?.[p.x] ?? p.x,
      at = `${this.about.x} ${typeof x === "number" ? shortNumber(x) : x}`;
    const told = [`${name ? `${name}, ` : ""}${at}: ${withInterval(p)}`, p.words];
    if (typeof p.n === "number") told.push(`n = ${p.n}${p.n < FEW ? ", too few to rely on" : ""}`);
    return told.filter(Boolean).join(" · ");
  }

  _put(parts, names) {
    this.svg.replaceChildren(...this.axes.draw(), ...parts);
    this.legend.replaceChildren(
      ...names.map(([name, style, kind]) =>
        h("span", { class: "entry" }, sample(style, kind), name),
      ),
    );
  }

  _tabulate(names, columns, xs) {
    const all = xs || [...new Set(columns.flatMap((each) => [...each.keys()]))].sort(ascending);
    const rows = all.map((x) => [
      typeof x === "number" ? shortNumber(x) : x,
      ...columns.map((each) => each.get(x) ?? "–"),
    ]);
    this.tableBox.replaceChildren(sheet(this.about.title, [this.about.x, ...names], rows));
  }
}

const ascending = (a, b) => a - b;

/** A line through points, faint to and from those of few observations. */
function lineThrough(known, place) {
  const part = (faint) => {
    const drawn = known.slice(1).filter((p, at) => (p.n < FEW || known[at].n < FEW) === faint),
      d = drawn.map((p) => `M${place(known[known.indexOf(p) - 1])}L${place(p)}`).join("");
    return s("path", { class: `line${faint ? " few" : ""}`, d });
  };
  return known.length ? [part(false), part(true)] : [];
}

/** A band through the bounds of all points, or a whisker at each. */
function intervals(known, place, band) {
  const bounds = known.filter((p) => typeof p.low === "number" && typeof p.high === "number");
  if (band && bounds.length > 1) {
    const high = bounds.map((p) => place(p, "high")),
      low = bounds.map((p) => place(p, "low")).reverse();
    return [s("path", { class: "band", d: `M${[...high, ...low].join("L")}z` })];
  }
  return bounds.map((p) =>
    s("path", {
      class: `bound${p.n < FEW ? " few" : ""}`,
      d: `M${place(p, "low")}L${place(p, "high")}`,
    }),
  );
}

/** How a series looks, for the legend. */
function sample(style, kind) {
  if (kind === "box") return h("i", { class: `ds-part ${style}` });
  const bar = s("rect", { class: "bar", x: 9, y: 1, width: 12, height: 10 }),
    mark = s("path", { class: "mark", d: MARKERS[style % 6], transform: "translate(15 6)" }),
    line = s("path", { class: "line", d: "M1 6H29" });
  const parts = { bars: [bar], points: [mark] }[kind] || [line, mark];
  return s(
    "svg",
    { class: "ds-sample", viewBox: "0 0 30 12", "aria-hidden": "true" },
    s("g", { class: `ds-series c${style % 6}` }, parts),
  );
}

/** A part of a picture that can be pressed like a button. */
function onPress(part, act) {
  part.addEventListener("click", act);
  part.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    event.stopPropagation();
    act();
  });
}

export function withInterval({ y, low, high }) {
  const known = typeof low === "number" && typeof high === "number";
  return shortNumber(y) + (known ? ` [${shortNumber(low)}, ${shortNumber(high)}]` : "");
}

/** Points of one column of a table of records, with its interval and how many it is of. */
export function column(rows, x, y, low, high, n) {
  return rows
    .map((row) => ({ x: row[x], y: row[y], low: row[low], high: row[high], n: row[n] }))
    .filter((p) => typeof p.y === "number");
}
