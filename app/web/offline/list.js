// The runs of a site as a table: looked through by words, sorted by a number, opened by a press,
// and ticked to be compared.

import { button, h, number, plural } from "../dom.js";
import { compareTicked, TAU, tickBox, wordFilter } from "../parts.js";

// The columns that a press on their head sorts, and how they are written.
const LISTED = [
  ["budget", "B", "draft budget", String],
  ["temperature", "T", "temperature of the target's sampling", (value) => String(value)],
  ["tau", "τ", TAU, (value) => number(value)],
  ["tokens", "tokens", "tokens of the text", String],
  ["rounds", "rounds", "target forward passes", String],
];

export class RunList {
  /** open(names): somebody chose runs. */
  constructor(runs, open) {
    this.runs = runs;
    this.open = open;
    this.order = null;
    this.lines = runs.map((run) => this._line(run));
    this.body = h("tbody", {});
    const shown = h("p", { class: "ds-soft", role: "status" });
    const filter = wordFilter("Filter the runs", this.lines, (count) => {
      shown.textContent = count < runs.length ? `${count} of ${plural(runs.length, "run")}` : "";
    });
    const together = compareTicked(this.body, this.lines, (lines) =>
      open(lines.map((line) => line.run.name)),
    );
    const table = h(
      "table",
      { class: "ds-site-runs", "aria-label": "Runs" },
      h("thead", {}, this._head()),
      this.body,
    );
    this.element = h(
      "section",
      { class: "ds-card ds-site-list", "aria-label": "The runs" },
      h(
        "header",
        {},
        h("h2", {}, plural(runs.length, "recorded run")),
        filter,
        shown,
        h("span", { class: "ds-spring" }),
        together,
      ),
      h("div", { class: "ds-table" }, table),
    );
    this._draw();
  }

  _head() {
    const sorter = ([key, words, title]) =>
      h(
        "th",
        { "data-key": key, "aria-sort": "none" },
        button(words, { title: `${title}: sort by it` }, () => this._sort(key)),
      );
    this.heads = LISTED.map(sorter);
    return h("tr", {}, h("td", {}), h("th", {}, "run"), this.heads, h("th", {}, "prompt"));
  }

  _line(run) {
    const tick = tickBox(run.label),
      words = [h("b", {}, `${run.method} ${run.apart}`.trimEnd()), h("small", {}, run.label)],
      about = { class: "ds-site-run", title: run.label },
      opener = button(words, about, () => this.open([run.name]));
    const cells = LISTED.map(([key, , , written]) =>
      h("td", {}, run[key] === null ? "–" : written(run[key])),
    );
    const prompt = h("td", { class: "ds-site-prompt ds-cut", title: run.prompt }, run.prompt);
    const element = h("tr", {}, h("td", {}, tick), h("th", {}, opener), cells, prompt);
    return { run, element, tick };
  }

  /** By this number: the largest first, then the smallest, then as they were. */
  _sort(key) {
    const { order } = this;
    if (order?.key !== key) this.order = { key, by: -1 };
    else this.order = order.by < 0 ? { key, by: 1 } : null;
    for (const head of this.heads) {
      const own = head.getAttribute("data-key") === this.order?.key;
      const says = own ? (this.order.by < 0 ? "descending" : "ascending") : "none";
      head.setAttribute("aria-sort", says);
    }
    this._draw();
  }

  _draw() {
    this.body.replaceChildren(...inOrder(this.lines, this.order).map((line) => line.element));
  }
}

/** Lines by a number of their runs; those without it last. */
function inOrder(lines, order) {
  if (!order) return lines;
  const value = ({ run }) => run[order.key] ?? order.by * Infinity;
  return [...lines].sort((one, other) => order.by * (value(one) - value(other)) || 0);
}
