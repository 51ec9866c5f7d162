// The runs of a site as a table: looked through by words, sorted by a number, opened by a press at
// a round, and ticked to be compared.

import { HIGH, RoundBars } from "../charts.js";
import { button, h, number, plural } from "../dom.js";
import { compareTicked, TAU, tickBox, wordFilter } from "../parts.js";
import { pressed, setHeads, sorted, sortHead } from "../sorting.js";

// The columns that a press on their head sorts, and how they are written.
const LISTED = [
  ["budget", "B", "draft budget", String],
  ["temperature", "T", "temperature of the target's sampling", (value) => String(value)],
  ["tau", "τ", TAU, (value) => number(value)],
  ["tokens", "tokens", "tokens of the text", String],
  ["rounds", "rounds", "target forward passes", String],
];

/** What the bars of a long run are. */
const meansOf = (each) => `a bar is the mean of ${each} rounds, and opens the first of them`;

/** A near miss beside a small box would open the run. */
function target(tick) {
  return h("label.ds-site-tick", tick);
}

export class RunList {
  /** open(names, round): somebody chose runs; round: from 1, where they chose one. */
  constructor(runs, open) {
    this.runs = runs;
    this.open = open;
    this.order = null;
    // One scale for all: of runs with a bar for each round, the shorter took fewer passes.
    this.longest = Math.max(...runs.map(({ shape }) => shape.accepted.length));
    this.tallest = Math.max(4, ...runs.map(({ shape }) => Math.max(...shape.accepted) + 1));
    this.lines = runs.map((run) => this._line(run));
    this.body = h("tbody");
    this.head = h("tr");
    const shown = h("p.ds-soft", { role: "status" });
    const filter = wordFilter("Filter the runs", this.lines, (count) => {
      shown.textContent = count < runs.length ? `${count} of ${plural(runs.length, "run")}` : "";
      this._prompts();
    });
    const together = compareTicked(this.body, this.lines, (lines) =>
      open(lines.map((line) => line.run.name)),
    );
    const head = h("thead", this.head),
      table = h("table.ds-site-runs", { "aria-label": "Runs" }, head, this.body);
    this.element = h(
      "section.ds-card.ds-site-list",
      { "aria-label": "The runs" },
      h(
        "header",
        h("h2", plural(runs.length, "recorded run")),
        filter,
        shown,
        h("span.ds-spring"),
        together,
      ),
      h("p.ds-soft", "Press a run to see its drafted trees. Tick two to four to compare them."),
      h("div.ds-table", table),
    );
    this._draw();
  }

  _heads() {
    const heads = LISTED.map(([name, words, title]) =>
      sortHead({ name, words, title: `${title}: sort by it` }, this.order, () => this._sort(name)),
    );
    const title = "accepted nodes of each round, and the bonus token",
      shape = h("th", { title }, "round by round");
    return [h("td"), h("th", "run"), ...heads, shape, h("th", "prompt")];
  }

  _line(run) {
    const tick = tickBox(run.label),
      words = [h("b", `${run.method} ${run.apart}`.trimEnd()), h("small", run.label)],
      about = { class: "ds-site-run", title: run.label },
      opener = button(words, about, () => this.open([run.name]));
    const cells = LISTED.map(([key, , , written]) =>
      h("td", run[key] === null ? "–" : written(run[key])),
    );
    const prompt = h("td.ds-site-prompt.ds-cut", { title: run.prompt }, run.prompt),
      { each } = run.shape,
      shape = h("td", { title: each > 1 ? meansOf(each) : null }, this._shape(run)),
      element = h("tr", h("td", target(tick)), h("th", opener), cells, shape, prompt);
    return { run, element, tick, prompt };
  }

  _shape({ name, shape: { accepted, each } }) {
    const pick = (at) => this.open([name], at * each + 1),
      bars = new RoundBars("ds-shape", ["accepted", "bonus"], HIGH, pick, {
        "aria-hidden": "true",
      }),
      unit = HIGH / this.tallest;
    bars.least = Math.max(bars.least, this.longest);
    bars.draw(accepted, (count) => [count * unit, unit]);
    bars.mark(-1);
    return bars.svg;
  }

  /** Runs on one prompt that stand below each other show it once. */
  _prompts() {
    let above = null;
    const isSeen = (line) => !line.element.hidden;
    for (const { run, prompt } of this.shown.filter(isSeen)) {
      prompt.classList.toggle("same", run.prompt === above);
      above = run.prompt;
    }
  }

  /** By this number: the largest first, then the smallest, then as they were. */
  _sort(name) {
    this.order = pressed(this.order, name, true);
    this._draw();
  }

  _draw() {
    const { order, lines } = this;
    this.shown = order ? sorted(lines, ({ run }) => run[order.name], order.down) : lines;
    setHeads(this.head, this._heads());
    this.body.replaceChildren(...this.shown.map((line) => line.element));
    this._prompts();
  }
}
