// A statistical figure as `analysis` describes it, drawn by Plotly, which is loaded when the first
// one comes into sight, with its table, pictures and numbers behind "⋯". Colours are names of the
// stylesheet, `var(--ds-…)`, until they are drawn.

import { namesApart } from "./apart.js";
import { briefOf, painted, recordsOf, seriesOf } from "./described.js";
import { button, h, say, shortNumber, unbroken, withInterval } from "./dom.js";
import { choice, folding, menu, optionsOf, sheet } from "./parts.js";
import { pictureButtons, savers } from "./save/buttons.js";
import { fileName } from "./save/files.js";
import { wideFor } from "./save/paper.js";
import { inLight } from "./save/picture.js";

const SCRIPT = "web/plotly.min.js";
const CONFIG = { displayModeBar: false, doubleClick: false, showTips: false };
const SCALE = 1.6; // a picture that is saved: its width by its height
const LEAST = 240; // pixels: it is drawn so wide, and scaled to less
const ROOMY = 480; // pixels: in less room its type is smaller,
const SMALLER = 10 / 12; // and no smaller than this, 7 points
const LOW = { usual: 230, causes: 290 }; // pixels: a narrow one is so high, for its legend
const NONE = "rgba(0, 0, 0, 0)";
const TYPE = 12; // pixels: the type that a description is written for
const CLOSE = { rootMargin: "300px" }; // how far out of sight a figure is drawn

let script = null;
/** Plotly, fetched once from this server. */
function plotly() {
  if (window.Plotly) return Promise.resolve(window.Plotly);
  script ??= new Promise((done, fail) => {
    const made = document.createElement("script");
    made.src = new URL(SCRIPT, document.baseURI).href;
    made.addEventListener("load", () => done(window.Plotly));
    made.addEventListener("error", () => {
      script = null;
      fail(new Error("the figure cannot be drawn: its script did not come"));
    });
    document.head.append(made);
  });
  return script;
}

const drawn = new WeakMap(); // element → its figure, which goes with the page's part
let theme = null;
/** Figures take the colours of the theme that somebody changes to. */
function followTheme(figure) {
  drawn.set(figure.element, figure);
  if (theme) return;
  theme = new MutationObserver(() => {
    for (const each of document.querySelectorAll(".ds-figure")) drawn.get(each)?.again();
  });
  theme.observe(document.body, { attributes: true, attributeFilter: ["class"] });
}

export class Figure {
  /** source: the server's functions where it can make a Parquet file; `tablesOnly`: it has no
   *  script that draws. onPick({key, name, x}) when a bar is pressed. onChoose(): somebody chose
   *  from the list. listed: whether that is a list beside the title. lazy: drawn when it comes
   *  into sight. */
  constructor(source, { onPick, onChoose = () => {}, listed = true, lazy = true } = {}) {
    Object.assign(this, { source, onPick, live: [], near: !lazy });
    this.title = h("h3");
    this.says = h("p.ds-says");
    this.box = h("div.ds-plot", { role: onPick ? "group" : "img" });
    this.tableBox = h("div.ds-table", { hidden: true });
    this.note = h("p.ds-soft.ds-plot-note", { hidden: true });
    this.list = choice("What is shown", [], (value) => {
      this.choose(value);
      onChoose();
    });
    this.list.hidden = true;
    this.listed = listed;
    this.tools = h("span.ds-plot-tools", this.list);
    this.brief = h("small.ds-brief.ds-cut.ds-soft");
    const spring = h("span.ds-spring"),
      head = h("figcaption", this.title, this.brief, spring, this.tools),
      about = { class: "ds-figure waiting", "aria-busy": "true" },
      parts = [head, this.says, this.box, this.tableBox, this.note];
    this.element = folding(h("figure", about, parts), head);
    new ResizeObserver(() => this.again()).observe(this.box);
    if (lazy) new IntersectionObserver((all) => this._sight(all.at(-1)), CLOSE).observe(this.box);
  }

  /** Show a figure as the server describes it, {data, layout}; waiting: its points are on their
   * way. */
  draw(json, waiting = false) {
    this.waiting = waiting;
    this.element.classList.toggle("waiting", waiting);
    this.element.setAttribute("aria-busy", String(waiting));
    const { meta } = json.layout,
      { title, says, choices = [] } = meta;
    if (this.json?.layout.meta.title !== title) this._name(title);
    this.json = json;
    this.says.replaceChildren(...unbroken(says ?? ""));
    this.says.hidden = !says;
    this.list.hidden = !this.listed || choices.length < 2;
    this.list.replaceChildren(...optionsOf(choices.map((each) => [each, each])));
    this.choose(choices.includes(this.chosen) ? this.chosen : meta.chosen);
  }

  _name(title) {
    const label = `As a table: ${title}`,
      seen = { class: "ds-small", "aria-pressed": "false", "aria-label": label },
      [draw, named] = [() => this._picture(), () => fileName(title)];
    this.title.textContent = title;
    this.box.setAttribute("aria-label", title);
    this.list.setAttribute("aria-label", `What is shown: ${title}`);
    this.switch = button("table", seen, () => this._flip());
    this.menu?.remove();
    const isDrawn = !this.source?.tablesOnly,
      drawing = isDrawn ? [this.switch, pictureButtons(`the figure ${title}`, draw, named)] : [],
      files = savers(title, () => this.records, this.source);
    this.menu = menu(`Table and files: ${title}`, [...drawing, files]);
    this.tools.append(this.menu);
    if (this.source?.tablesOnly !== this.tableBox.hidden) return;
    this._flip();
  }

  /** Show one entry of the list. */
  choose(entry) {
    this.chosen = entry;
    if (!this.json) return;
    if (entry) this.list.value = entry;
    const { meta } = this.json.layout;
    this.series = seriesOf(this.json, entry);
    this.records = recordsOf(this.series, meta);
    this._sum();
    this._tabulate(meta);
    this.again();
  }

  /** Put the ring at some points [{x, y}]; `words` say what it is, where the figure does not. */
  ring(points, words) {
    this.live = points;
    if (words) this.say(points.length ? words : "");
    if (this.json) this._sum();
    this.again();
  }

  _sum() {
    this.brief.textContent = briefOf(this.series, this.json, this.live);
  }

  say(words) {
    say(this.note, words);
  }

  _flip() {
    const on = this.tableBox.hidden;
    this.tableBox.hidden = !on;
    this.box.hidden = on;
    this.switch.setAttribute("aria-pressed", String(on));
  }

  _tabulate({ title, x, places }) {
    const all = [...new Set(this.series.flatMap(({ points }) => points.map((p) => p.x)))];
    const cell = (meta, at) => {
      const point = meta.points.find((p) => p.x === at),
        words = point ? withInterval(point) : "–";
      if (!point || !this.onPick) return words;
      const label = `${meta.name}, ${x} ${places[at]}: ${words}`;
      return button(words, { class: "ds-small", "aria-label": label }, () => this.pick(meta, at));
    };
    const rows = all
      .sort((a, b) => a - b)
      .map((at) => [
        places.length ? places[at] : shortNumber(at),
        ...this.series.map((meta) => cell(meta, at)),
      ]);
    const heads = [x, ...this.series.map(({ name }) => name)];
    this.tableBox.replaceChildren(sheet(title, heads, rows));
  }

  pick({ key, name }, at) {
    return this.onPick({ key, name, x: this.json.layout.meta.places[at] });
  }

  _sight({ isIntersecting }) {
    this.near = isIntersecting;
    this.again();
  }

  // ── drawing ────────────────────────────────────────────────────────────────────────────────

  /** Draw what is described, once, as soon as it is in sight. */
  again() {
    this.due = true;
    if (this.frame || !this.near) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = null;
      if (this.due && this.json && this.box.clientWidth) this._draw();
    });
  }

  async _draw() {
    if (this.source?.tablesOnly || this.waiting) return;
    this.due = false;
    try {
      const { react } = await plotly(),
        type = Number.parseFloat(getComputedStyle(this.box).fontSize),
        { data, layout } = this._described(type / TYPE),
        size = { width: this.box.clientWidth, height: this.box.clientHeight };
      if (!size.width) return;
      const { title, updatemenus, ...rest } = layout,
        annotations = namesApart(layout, size.height / type);
      await react(this.box, data, { ...rest, annotations, ...size, dragmode: false }, CONFIG);
    } catch (error) {
      return this.say(error.message);
    }
    if (!drawn.has(this.element) && this.onPick)
      this.box.on("plotly_click", ({ points: [{ data, pointIndex }] }) =>
        this.pick(data.meta, data.meta.points[pointIndex].x),
      );
    followTheme(this);
  }

  /** The description with what is chosen, the ring's place and the colours of the page. */
  _described(times = 1) {
    const { data, layout } = this.json,
      look = getComputedStyle(this.element),
      at = (layout.meta.choices || []).indexOf(this.chosen);
    const labels = at < 0 ? {} : layout.updatemenus[0].buttons[at].args[1];
    const traces = data.map((trace) => ({
      ...trace,
      visible: !trace.meta?.choice || trace.meta.choice === this.chosen,
      ...(trace.meta?.live && { x: this.live.map((p) => p.x), y: this.live.map((p) => p.y) }),
    }));
    const colourOf = (name) => look.getPropertyValue(name).trim();
    return painted({ data: traces, layout: { ...layout, ...labels } }, colourOf, times);
  }

  /** The figure with its title for a paper, as SVG: {text, width, height}. The rings are of what is
   * on view, so they are left out. */
  async _picture() {
    const { toImage } = await plotly(),
      width = wideFor(this.box.clientWidth, LEAST),
      low = this.onPick ? LOW.causes : LOW.usual,
      size = { width, height: Math.round(Math.max(low, width / SCALE)) },
      times = Math.min(1, Math.max(SMALLER, width / ROOMY)),
      { data, layout } = inLight(() => this._described(times)),
      { updatemenus, ...rest } = layout,
      annotations = namesApart(layout, size.height / (TYPE * times)),
      ground = { paper_bgcolor: NONE, plot_bgcolor: NONE };
    const figure = {
      data: data.filter(({ meta }) => !meta?.live),
      layout: { ...rest, annotations, ...ground, ...size },
    };
    const text = await toImage(figure, { format: "svg", imageDataOnly: true, ...size });
    return { text, ...size };
  }
}

/** Figures by their names in the catalogue. */
export class Figures {
  constructor(names, source, options) {
    this.all = Object.fromEntries(names.map((name) => [name, new Figure(source, options)]));
    const shown = Object.values(this.all).map((figure) => figure.element);
    this.element = h("div.ds-figures", shown);
  }

  draw(found) {
    for (const [name, figure] of Object.entries(this.all)) figure.draw(found[name]);
  }

  /** What was chosen where it is not the usual, by the figures' names; for the address. */
  get chosen() {
    const other = ({ json, chosen }) => json && chosen && chosen !== json.layout.meta.chosen;
    const found = Object.entries(this.all).filter(([, figure]) => other(figure));
    return Object.fromEntries(found.map(([name, { chosen }]) => [name, chosen]));
  }

  /** Choose what an address names, as far as it can be chosen. */
  restore(named) {
    for (const [name, figure] of Object.entries(this.all)) {
      const { choices = [], chosen } = figure.json.layout.meta;
      figure.choose(choices.includes(named[name]) ? named[name] : chosen);
    }
  }
}
