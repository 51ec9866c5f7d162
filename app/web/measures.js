// What the runs on view measure, below the trees: TVD, coverage and acceptance per depth, with
// intervals, from the server's own tables (analysis), so that no number has a second definition.
// And the stage times of every round.

import { STAGES } from "./charts.js";
import { h, milliseconds, s } from "./dom.js";
import { answered } from "./feed.js";
import { LETTERS, sign } from "./parts.js";
import { column, Figure, withInterval } from "./plots.js";
import { savers } from "./save.js";

const DEEPEST = 6; // depths of the table of numbers
const MEASURE_EVERY = 2500; // milliseconds between two looks at a run that is being decoded

export class Measures {
  constructor(panes, source) {
    Object.assign(this, { panes, source });
    this.tvd = new Figure({
      title: "TVD by depth",
      help: "½ Σ |q − p| at observed depths: mean ± 1.96 standard errors",
      x: "depth",
      y: "TVD",
      source,
    });
    this.accept = new Figure({
      title: "Acceptance by depth",
      help: "accepted ÷ observed positions: a position whose parent was not accepted is unobserved. Wilson's 95 % interval",
      x: "depth",
      y: "accepted",
      source,
    });
    this.cover = new Figure({
      title: "Coverage by depth",
      help: "C_K: p of the drafter's K best tokens, mean over observed positions",
      x: "depth",
      y: "coverage",
      source,
    });
    this.widths = h(
      "select",
      { "aria-label": "K of coverage" },
      [1, 2, 4, 8, 16].map((k) => h("option", { value: k }, `K = ${k}`)),
    );
    this.widths.value = "8";
    this.widths.addEventListener("change", () => this._draw());
    this.cover.tools.prepend(panes.length > 1 ? this.widths : "");
    this.said = h("p", { class: "ds-soft", role: "status" });
    this.summary = h("div", { class: "ds-table" });
    this.element = h(
      "section",
      { class: "ds-card ds-measures", "aria-label": "Measures of the runs" },
      h("header", {}, h("h2", {}, panes.length > 1 ? "The runs" : "The run"), this.said),
      this.summary,
      h("div", { class: "ds-figures" }, this.tvd.element, this.accept.element, this.cover.element),
    );
    this.element.hidden = !source.measure;
    this.asked = 0;
    if (source.measure) {
      this.watcher = new IntersectionObserver((entries) => {
        this.inSight = entries.some((entry) => entry.isIntersecting);
        if (this.inSight && this.old) this._look();
      });
      this.watcher.observe(this.element);
    }
  }

  /** The rounds have changed. */
  stale() {
    this.old = true;
    if (this.inSight) this._look();
  }

  /** Another round is shown: its own TVD is drawn beside the run's. */
  at() {
    if (this.found && this.panes.length === 1) this._drawTvd();
  }

  async _look() {
    const wait = this.asked + MEASURE_EVERY - performance.now();
    if (this.busy) return;
    if (wait > 0 && this.panes.some((pane) => pane.feed.active)) {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.old && this.inSight && this._look(), wait);
      return;
    }
    const shown = this.panes.filter((pane) => pane.rounds.length && pane.feed.ticket);
    if (!shown.length) return;
    this.busy = true;
    this.old = false;
    this.asked = performance.now();
    if (!this.found) this.said.textContent = "measuring…";
    const answer = await answered(
      this.source.measure({ tickets: shown.map((pane) => pane.feed.ticket) }),
    );
    this.said.textContent = answer.error || "";
    if (!answer.error) {
      this.found = answer;
      this.measured = shown;
      this._draw();
    }
    this.busy = false;
    if (this.old && this.inSight) this._look();
  }

  /** [pane, its rows of a table]. */
  _rows(table) {
    return this.measured.map((pane, at) => [
      pane,
      this.found[table].filter((row) => row.run === LETTERS[at]),
    ]);
  }

  _draw() {
    if (!this.found) return;
    const depths = this._rows("depths"),
      alone = this.measured.length === 1;
    this.deepest = Math.max(2, ...this.found.depths.map((row) => row.depth));
    const range = {
      x: [1, this.deepest],
      y: [0, 1],
      ticks: Array.from({ length: this.deepest }, (_, i) => i + 1),
    };
    this.range = range;
    this._drawTvd();
    const part = (name, rows, stem) => ({
      name,
      points: column(rows, "depth", stem, `${stem}_low`, `${stem}_high`),
    });
    this.accept.lines(
      alone
        ? [
            part("given its parent", depths[0][1], "acceptance"),
            part("drafter's best token right", depths[0][1], "top1"),
            part("from the root on", depths[0][1], "marginal"),
          ]
        : depths.map(([pane, rows]) => part(this._name(pane), rows, "acceptance")),
      range,
    );
    const k = this.widths.value,
      cover = (name, rows, width) => ({ name, points: column(rows, "depth", `coverage_${width}`) });
    this.cover.lines(
      alone
        ? [1, 4, 16].map((width) => cover(`C${width}`, depths[0][1], width))
        : depths.map(([pane, rows]) => cover(`${this._name(pane)}, C${k}`, rows, k)),
      range,
    );
    this._summarise(depths);
  }

  _drawTvd() {
    const series = this._rows("depths").map(([pane, rows]) => ({
      name: this.measured.length === 1 ? "mean of the run" : this._name(pane),
      points: column(rows, "depth", "tvd", "tvd_low", "tvd_high"),
    }));
    const pane = this.panes[0],
      round = pane.rounds[pane.at];
    if (this.measured.length === 1 && round && round.tvd.length) {
      series.push({
        name: "this round",
        only: "points",
        style: 3,
        points: round.tvd.map((y, i) => ({ x: i + 1, y })),
      });
    }
    this.tvd.lines(series, this.range);
  }

  _name(pane) {
    return `${pane.letter} ${pane.title}`;
  }

  /** τ with its interval and TVD per depth, as one table. */
  _summarise(depths) {
    const shown = Array.from({ length: Math.min(DEEPEST, this.deepest) }, (_, i) => i + 1),
      tau = this._rows("tau");
    const lines = depths.map(([pane, rows], at) => {
      const own = tau[at][1][0],
        by = new Map(rows.map((row) => [row.depth, row]));
      const cells = shown.map((depth) =>
        by.has(depth) && by.get(depth).tvd !== null
          ? withInterval({
              y: by.get(depth).tvd,
              low: by.get(depth).tvd_low,
              high: by.get(depth).tvd_high,
            })
          : "–",
      );
      return h(
        "tr",
        {},
        h("th", {}, sign(pane.letter), pane.title),
        h("td", {}, own ? withInterval({ y: own.tau, low: own.low, high: own.high }) : "–"),
        cells.map((cell) => h("td", {}, cell)),
      );
    });
    const table = h(
      "table",
      {},
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          h("th", {}),
          h("th", { title: "block efficiency with its 95 % bootstrap interval over rounds" }, "τ"),
          shown.map((depth) =>
            h("th", { title: "mean TVD with its 95 % interval" }, `TVD ${depth}`),
          ),
        ),
      ),
      h("tbody", {}, lines),
    );
    const records = () =>
      depths.flatMap(([pane, rows], at) =>
        tau[at][1].length
          ? [
              {
                method: pane.title,
                ...tau[at][1][0],
                ...Object.fromEntries(rows.map((row) => [`tvd_${row.depth}`, row.tvd])),
              },
            ]
          : [],
      );
    this.summary.replaceChildren(table, savers("The runs", records, this.source));
  }
}

/** Stage times of every round, stacked: draft, build, verify, commit. */
export class Timeline {
  constructor(onPick) {
    this.svg = s("svg", {
      class: "ds-timeline",
      role: "img",
      "aria-label": "Stage times of every round",
      preserveAspectRatio: "none",
    });
    this.top = h("span", { class: "ds-timeline-top" });
    this.element = h(
      "section",
      { class: "ds-card ds-timeline-card", "aria-label": "Timeline of stage times" },
      h(
        "header",
        {},
        h("h2", {}, "Stage times by round"),
        h(
          "span",
          { class: "ds-key" },
          STAGES.map((name) =>
            h("span", { class: "entry" }, h("i", { class: `stage ${name}` }), name),
          ),
        ),
        h("span", { class: "ds-spring" }),
        h(
          "span",
          { class: "ds-soft" },
          "observing and drawing stand outside; Save… has it for Perfetto",
        ),
      ),
      h("div", { class: "ds-timeline-box" }, this.svg, this.top),
    );
    this.svg.addEventListener("click", (event) => {
      const box = this.svg.getBoundingClientRect(),
        at = Math.floor(((event.clientX - box.left) / box.width) * this.slots);
      if (at >= 0 && at < this.count) onPick(at);
    });
    this.slots = 1;
  }

  draw(rounds, current) {
    const H = 90;
    if (this.count !== rounds.length || this.first !== rounds[0]) {
      this.count = rounds.length;
      this.first = rounds[0];
      this.slots = Math.max(24, rounds.length);
      const total = (round) => STAGES.reduce((sum, name) => sum + round.times[name], 0),
        most = Math.max(1e-6, ...rounds.map(total));
      const wide = this.slots > 160 ? 1 : 0.8,
        paths = Object.fromEntries(STAGES.map((name) => [name, []]));
      rounds.forEach((round, at) => {
        let y = H;
        for (const name of STAGES) {
          const tall = (round.times[name] / most) * (H - 2);
          if (tall > 0.05)
            paths[name].push(
              `M${(at + (1 - wide) / 2).toFixed(2)} ${y.toFixed(2)}v${(-tall).toFixed(2)}h${wide}v${tall.toFixed(2)}z`,
            );
          y -= tall;
        }
      });
      this.svg.setAttribute("viewBox", `0 0 ${this.slots} ${H}`);
      this.here = s("rect", { class: "here", y: 0, width: 1, height: H, x: 0 });
      this.svg.replaceChildren(
        this.here,
        ...STAGES.map((name) => s("path", { class: `part ${name}`, d: paths[name].join("") })),
      );
      this.top.textContent = rounds.length ? milliseconds(most) : "";
    }
    if (this.here) this.here.setAttribute("x", String(Math.max(0, current)));
  }
}
