// Figures: lines with intervals, points, and stacked bars, as light SVG. Every figure can be read as
// a table and saved as picture or CSV. Series differ in colour, dash and marker at once.

import { button, h, percent, s } from "./dom.js";
import { fileName, picture, pictureButtons, savers } from "./save.js";

const PLOT_W = 460,
  PLOT_H = 240,
  LEFT = 50,
  RIGHT = 12,
  TOP = 10,
  BOTTOM = 42;
const MARKERS = [
  "M-3.4 0a3.4 3.4 0 1 0 6.8 0a3.4 3.4 0 1 0-6.8 0z",
  "M-3 -3h6v6h-6z",
  "M0 -4L3.8 3H-3.8z",
  "M0 -4.3L4.3 0L0 4.3L-4.3 0z",
  "M-3.8 -3H3.8L0 4z",
  "M-3.4 -3.4L3.4 3.4M-3.4 3.4L3.4 -3.4",
];

/** A number for an axis or a table. */
export function shortNumber(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (Number.isInteger(value)) return String(value);
  const size = Math.abs(value);
  return size >= 100
    ? value.toFixed(0)
    : size >= 10
      ? value.toFixed(1)
      : size >= 0.1
        ? value.toFixed(2)
        : size >= 0.0005
          ? String(Number(value.toFixed(3)))
          : value.toExponential(0);
}

export class Figure {
  /** about: {title, says, x, y, source}: what it means in one sentence, what the axes are called, and
   *  the server's functions where it can make a Parquet file. */
  constructor(about) {
    this.about = about;
    this.svg = s("svg", {
      class: "ds-plot",
      viewBox: `0 0 ${PLOT_W} ${PLOT_H}`,
      role: "img",
      "aria-label": about.title,
    });
    this.legend = h("div", { class: "ds-key ds-plot-key" });
    this.table = h("table", { "aria-label": about.title });
    this.tableBox = h("div", { class: "ds-table", hidden: true }, this.table);
    this.note = h("p", { class: "ds-soft ds-plot-note", hidden: true });
    this.switch = button(
      "table",
      { class: "ds-small", title: "As a table", "aria-label": `As a table: ${about.title}` },
      () => this._flip(),
    );
    this.tools = h(
      "span",
      { class: "ds-plot-tools" },
      this.switch,
      pictureButtons(
        `the figure ${about.title}`,
        () => picture(this.svg),
        () => fileName(about.title),
        "ds-small",
      ),
      savers(about.title, () => this.records, about.source),
    );
    this.records = []; // the numbers as they are, a line each
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
      (this.says = h("p", { class: "ds-says", hidden: !about.says }, about.says)),
      this.svg,
      this.tableBox,
      this.legend,
      this.note,
    );
  }

  _flip() {
    this.tableBox.hidden = !this.tableBox.hidden;
    this.svg.classList.toggle("gone", !this.tableBox.hidden);
    this.switch.textContent = this.tableBox.hidden ? "table" : "figure";
    this.switch.setAttribute("aria-pressed", String(!this.tableBox.hidden));
  }

  say(words) {
    this.note.hidden = !words;
    this.note.textContent = words || "";
  }

  /** Lines: series [{name, points: [{x, y, low, high, words}], only: "points"}], range {x: [a, b], y: [a, b]}.
   *  Where the range has names, x counts them from 0 and the series stand side by side at each. */
  lines(series, range = {}, extras = []) {
    const { names } = range,
      aside = (at, many) => 0.5 + ((at + 0.5) / many - 0.5) * 0.6;
    const drawn = series
      .filter((each) => each.points.length)
      .map((each, at, all) =>
        names
          ? {
              ...each,
              points: each.points.map((p) => ({
                ...p,
                x: names[p.x],
                at: p.x + aside(at, all.length),
              })),
            }
          : each,
      );
    this._scale(
      drawn.flatMap((each) => each.points),
      names ? { ...range, x: [0, names.length] } : range,
    );
    const parts = drawn.map((each, at) => this._line(each, each.style ?? at));
    this._put(
      [...extras.map((words) => this._extra(words)), ...parts],
      drawn.map((each, at) => [each.name, each.style ?? at, each.only]),
    );
    this._tabulate(
      drawn.map((each) => each.name),
      drawn.map((each) => new Map(each.points.map((p) => [p.x, withInterval(p)]))),
      names,
    );
    this.records = drawn.flatMap(({ name, points }) =>
      points.map(({ x, y, low, high, words }) => ({
        series: name,
        [this.about.x]: x,
        [this.about.y]: y,
        ...(typeof low === "number" ? { low, high } : {}),
        ...(words ? { words } : {}),
      })),
    );
    this.say(drawn.length ? "" : "nothing to show yet");
  }

  /** Shares stacked to 1 at every x: parts [{name, style, values: Map x → {share, count}}]. onPick(name, x) when clicked. */
  stacks(parts, xs, onPick) {
    this.svg.setAttribute("role", onPick ? "group" : "img"); // an image's parts are hidden from screen readers
    this._scale([{ x: 0, y: 0 }], { x: [0, Math.max(1, xs.length)], y: [0, 1], names: xs });
    const wide = (this.right - LEFT) / Math.max(1, xs.length),
      bars = [];
    xs.forEach((x, at) => {
      let from = 0;
      for (const { name, style, values } of parts) {
        const found = values.get(x);
        if (!found) continue;
        const top = this.y(from + found.share),
          bar = s(
            "rect",
            {
              class: `ds-part ${style}`,
              x: (LEFT + at * wide + wide * 0.1).toFixed(1),
              width: (wide * 0.8).toFixed(1),
              y: top.toFixed(1),
              height: Math.max(0, this.y(from) - top).toFixed(1),
              tabindex: onPick ? 0 : undefined,
              role: onPick ? "button" : undefined,
              "aria-label": `${name}, ${this.about.x} ${x}: ${percent(found.share)} (${found.count})`,
            },
            s("title", {}, `${name}: ${percent(found.share)} (${found.count})`),
          );
        from += found.share;
        if (onPick) {
          bar.addEventListener("click", () => onPick(name, x));
          bar.addEventListener("keydown", (event) => {
            if (event.key !== "Enter" && event.key !== " ") return;
            event.preventDefault();
            event.stopPropagation();
            onPick(name, x);
          });
        }
        bars.push(bar);
      }
    });
    this._put(
      bars,
      parts.map((part) => [part.name, part.style, "box"]),
    );
    this._tabulate(
      parts.map((part) => part.name),
      parts.map(
        (part) =>
          new Map(
            xs.map((x) => [
              x,
              part.values.has(x)
                ? `${percent(part.values.get(x).share)} (${part.values.get(x).count})`
                : "–",
            ]),
          ),
      ),
      xs,
    );
    this.records = xs.flatMap((x) =>
      parts
        .filter((part) => part.values.has(x))
        .map((part) => ({
          cause: part.name,
          [this.about.x]: x,
          share: part.values.get(x).share,
          count: part.values.get(x).count,
        })),
    );
    this.say(xs.length ? "" : "nothing to show yet");
  }

  _scale(points, range) {
    const ys = points.flatMap((p) => [p.y, p.low, p.high]).filter((v) => typeof v === "number"),
      xs = points.map((p) => p.x).filter((v) => typeof v === "number");
    const [x0, x1] = range.x || [Math.min(...xs, 1), Math.max(...xs, 2)],
      [y0, y1] = range.y || [Math.min(0, ...ys), Math.max(0.01, ...ys) * 1.06];
    this.right = PLOT_W - RIGHT;
    this.log = range.log;
    const onX = (v) => (this.log ? Math.log2(v) : v);
    this.x = (v) => LEFT + ((onX(v) - onX(x0)) / (onX(x1) - onX(x0) || 1)) * (this.right - LEFT);
    this.y = (v) => TOP + (1 - (v - y0) / (y1 - y0 || 1)) * (PLOT_H - TOP - BOTTOM);
    this.grid = this._axes([x0, x1], [y0, y1], range);
  }

  _axes([x0, x1], [y0, y1], range) {
    const made = [];
    for (const value of steps(y0, y1, 5)) {
      made.push(
        s("path", { class: "grid", d: `M${LEFT} ${this.y(value).toFixed(1)}H${this.right}` }),
        s(
          "text",
          { class: "tick", x: LEFT - 6, y: (this.y(value) + 3.5).toFixed(1), "text-anchor": "end" },
          shortNumber(value),
        ),
      );
    }
    const names = range.names,
      wide = names && (this.right - LEFT) / Math.max(1, names.length);
    const ticks = names
      ? names.map((name, at) => [LEFT + wide * (at + 0.5), name])
      : (range.ticks || steps(x0, x1, 9)).map((v) => [this.x(v), shortNumber(v)]);
    const long = ticks.some(([, words]) => String(words).length > (names ? wide / 6.2 : 8)); // then every second one stands lower
    ticks.forEach(([x, words], at) =>
      made.push(
        s(
          "text",
          {
            class: "tick",
            x: x.toFixed(1),
            y: PLOT_H - BOTTOM + (long && at % 2 ? 24 : 13),
            "text-anchor": "middle",
          },
          words,
        ),
      ),
    );
    made.push(
      s("path", { class: "axis", d: `M${LEFT} ${TOP}V${PLOT_H - BOTTOM}H${this.right}` }),
      s(
        "text",
        { class: "name", x: (LEFT + this.right) / 2, y: PLOT_H - 4, "text-anchor": "middle" },
        this.about.x,
      ),
      s(
        "text",
        {
          class: "name",
          x: -(TOP + PLOT_H - BOTTOM) / 2,
          y: 12,
          transform: "rotate(-90)",
          "text-anchor": "middle",
        },
        this.about.y,
      ),
    );
    return made;
  }

  _line({ points, only, name, band, onPick }, style) {
    const known = points.filter((p) => typeof p.y === "number"),
      across = (p) => this.x(p.at ?? p.x).toFixed(1),
      place = (p) => `${across(p)} ${this.y(p.y).toFixed(1)}`;
    const bounds = known.filter((p) => typeof p.low === "number" && typeof p.high === "number"),
      group = s("g", { class: `ds-series c${style % 6}${only ? " only" : ""}` });
    if (band && bounds.length > 1) {
      const edge = (side) => (p) => `${across(p)} ${this.y(p[side]).toFixed(1)}`;
      group.append(
        s("path", {
          class: "band",
          d:
            "M" +
            [...bounds.map(edge("high")), ...bounds.slice().reverse().map(edge("low"))].join("L") +
            "z",
        }),
      );
    } else if (bounds.length) {
      for (const p of bounds)
        group.append(
          s("path", {
            class: "bound",
            d: `M${across(p)} ${this.y(p.low).toFixed(1)}V${this.y(p.high).toFixed(1)}`,
          }),
        );
    }
    if (only !== "points")
      group.append(
        s("path", { class: "line", d: known.length ? `M${known.map(place).join("L")}` : "" }),
      );
    for (const p of known.length > 80 ? [] : known) {
      const mark = s(
        "path",
        { class: "mark", d: MARKERS[style % 6], transform: `translate(${place(p)})` },
        s(
          "title",
          {},
          `${name}, ${this.about.x} ${typeof p.x === "number" ? shortNumber(p.x) : p.x}: ${withInterval(p)}${p.words ? ` · ${p.words}` : ""}`,
        ),
      );
      if (onPick) mark.addEventListener("click", () => onPick(p));
      group.append(mark);
    }
    return group;
  }

  /** "diagonal", or {x} or {y}: a thin line for the eye. */
  _extra(what) {
    if (what === "diagonal")
      return s("path", { class: "guide", d: `M${LEFT} ${PLOT_H - BOTTOM}L${this.right} ${TOP}` }); // both axes alike
    if ("x" in what)
      return s("path", { class: "guide", d: `M${this.x(what.x)} ${TOP}V${PLOT_H - BOTTOM}` });
    return s("path", { class: "guide", d: `M${LEFT} ${this.y(what.y)}H${this.right}` });
  }

  _put(parts, names) {
    this.svg.replaceChildren(...this.grid, ...parts);
    this.legend.replaceChildren(
      ...names.map(([name, style, kind]) =>
        h(
          "span",
          { class: "entry" },
          kind === "box"
            ? h("i", { class: `ds-part ${style}` })
            : s(
                "svg",
                { class: "ds-sample", viewBox: "0 0 30 12", "aria-hidden": "true" },
                s(
                  "g",
                  { class: `ds-series c${style % 6}` },
                  ...(kind === "points" ? [] : [s("path", { class: "line", d: "M1 6H29" })]),
                  s("path", { class: "mark", d: MARKERS[style % 6], transform: "translate(15 6)" }),
                ),
              ),
          name,
        ),
      ),
    );
  }

  _tabulate(names, columns, xs) {
    const all =
      xs || [...new Set(columns.flatMap((column) => [...column.keys()]))].sort((a, b) => a - b);
    this.table.replaceChildren(
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          h("th", {}, this.about.x),
          names.map((name) => h("th", {}, name)),
        ),
      ),
      h(
        "tbody",
        {},
        all.map((x) =>
          h(
            "tr",
            {},
            h("th", {}, typeof x === "number" ? shortNumber(x) : x),
            columns.map((column) => h("td", {}, column.get(x) ?? "–")),
          ),
        ),
      ),
    );
  }
}

export function withInterval({ y, low, high }) {
  const bounds =
    typeof low === "number" && typeof high === "number"
      ? ` [${shortNumber(low)}, ${shortNumber(high)}]`
      : "";
  return shortNumber(y) + bounds;
}

/** Round numbers between two bounds, about as many as asked for. */
function steps(from, to, many) {
  const rough = (to - from) / many || 1,
    power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((m) => m >= rough * 0.999),
    found = [];
  for (let v = Math.ceil(from / step - 1e-9) * step; v <= to + step * 1e-6; v += step)
    found.push(Math.abs(v) < 1e-12 ? 0 : Number(v.toPrecision(10)));
  return found;
}

/** Points of one column of a table of records, with its interval. */
export function column(rows, x, y, low, high) {
  return rows
    .map((row) => ({ x: row[x], y: row[y], low: low && row[low], high: high && row[high] }))
    .filter((p) => typeof p.y === "number");
}

/** Press Gradio's own upload button, which is not displayed: it knows how to send a file. */
export function press(id) {
  const found = document.getElementById(id),
    own = found && (found.matches("button") ? found : found.querySelector("button"));
  if (own) own.click();
}
