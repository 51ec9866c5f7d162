// The measurements of the runs on view, below the trees: TVD, coverage and acceptance per depth,
// with intervals, from the server's own tables (analysis), so that no number has a second
// definition. And the stage times of every round.

import { RoundBars, STAGES, StageBar, took } from "./charts.js";
import { duration, h, number, withInterval } from "./dom.js";
import { answered } from "./feed.js";
import { Figures } from "./figure.js";
import { LETTERS, sheet, sign } from "./parts.js";
import { savers } from "./save/buttons.js";

const SHOWN = ["tvd-by-depth", "acceptance-by-depth", "coverage-by-depth"]; // of the catalogue
const DEEPEST = 16; // depths of the table of numbers
const TALL = 90; // of the timeline, in its own units
const MEASURE_EVERY = 2500; // milliseconds between two looks at a run that is being decoded

export class Measures {
  constructor(panes, source) {
    Object.assign(this, { panes, source });
    this.figures = new Figures(SHOWN, source);
    this.said = h("p.ds-soft", { role: "status" });
    this.summary = h("div.ds-table");
    this.element = h(
      "section.ds-card.ds-measures",
      { "aria-label": "Measures of the runs" },
      h("header", h("h2", panes.length > 1 ? "The runs" : "The run"), this.said),
      this.summary,
      this.figures.element,
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
    const [pane] = this.panes,
      tvd = pane.rounds[pane.at]?.tvd ?? [],
      points = tvd.map((y, i) => ({ x: i + 1, y }));
    if (this.found && this.measured.length === 1)
      this.figures.all["tvd-by-depth"].ring(points, "The rings are the round on view.");
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
    this.figures.draw(this.found.figures);
    this.at();
    this._summarise(this._rows("depths"));
  }

  /** τ with its interval and TVD per depth, as one table. */
  _summarise(depths) {
    const deepest = Math.max(2, ...this.found.depths.map((row) => row.depth));
    const shown = Array.from({ length: Math.min(DEEPEST, deepest) }, (_, i) => i + 1),
      tau = this._rows("tau");
    const lines = depths.map(([pane, rows], at) => {
      const own = tau[at][1][0],
        by = new Map(rows.map((row) => [row.depth, row]));
      const cells = shown.map((depth) => {
        const { tvd: y = null, tvd_low: low, tvd_high: high } = by.get(depth) ?? {};
        return y === null ? "–" : withInterval({ y, low, high });
      });
      return [[sign(pane.letter), pane.title], own ? tauWords(own) : "–", ...cells];
    });
    const heads = [
      "",
      ["τ", "block efficiency with its 95 % bootstrap interval over rounds"],
      ...shown.map((depth) => [`TVD ${depth}`, "mean TVD with its 95 % interval"]),
    ];
    const table = sheet("The runs", heads, lines);
    const recordOf = ([pane, rows], at) => {
      const tvd = Object.fromEntries(rows.map((row) => [`tvd_${row.depth}`, row.tvd]));
      return tau[at][1].map((own) => ({ method: pane.title, ...own, ...tvd }));
    };
    const records = () => depths.flatMap(recordOf);
    this.summary.replaceChildren(table, savers("The runs", records, this.source));
  }
}

/** τ with two decimals, as everywhere, and its interval where that is known. */
export function tauWords({ tau, low, high }) {
  const known = typeof low === "number" && typeof high === "number";
  return number(tau) + (known ? ` [${number(low)}, ${number(high)}]` : "");
}

/** Stage times of every round, stacked: draft, build, verify, commit. */
export class Timeline {
  /** onPick(round, event) when its bar is pressed, or drawn over. */
  constructor(onPick) {
    const parts = STAGES.map((name) => `part ${name}`),
      about = { role: "img", "aria-label": "Stage times of every round" };
    this.bars = new RoundBars("ds-timeline", parts, TALL, onPick, about);
    this.top = h("span.ds-timeline-top");
    this.stages = new StageBar();
    const words =
      "The drafter drafts, the tree is built, the target verifies it, and what it accepts is " +
      "committed. Observing and drawing are not counted.";
    this.note = h("span.ds-soft", words);
    this.box = h("div.ds-timeline-box", this.bars.svg, this.top);
    this.element = h(
      "section.ds-card.ds-timeline-card",
      { "aria-label": "Timeline of stage times" },
      h("header", h("h2", "Stage times by round"), h("span.ds-spring"), this.note),
      this.box,
      this.stages.element,
    );
    new IntersectionObserver((all) => {
      this.inSight = all.at(-1).isIntersecting;
      this._draw();
    }).observe(this.element);
  }

  /** Show these rounds, once it is in sight. */
  draw(rounds, current) {
    Object.assign(this, { rounds, current });
    this._draw();
  }

  _draw() {
    const { rounds, current } = this;
    if (!this.inSight || !rounds) return;
    if (this.bars.lacks(rounds)) {
      const longest = Math.max(...rounds.map(took)),
        unit = (TALL - 2) / (longest || 1);
      this.bars.draw(rounds, ({ times }) => STAGES.map((name) => times[name] * unit));
      this.box.hidden = this.note.hidden = !(longest > 0);
      this.top.textContent = duration(longest);
    }
    this.bars.mark(current);
    if (rounds[current]) this.stages.draw(rounds[current]);
  }
}
