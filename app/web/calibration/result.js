// A result file of the command calibrate, opened.

import { h } from "../dom.js";
import { card } from "../parts.js";
import { column } from "../plots.js";
import { depthRange, figuresOf, widthChoice } from "./figures.js";

const ABOUT = [
  [
    "tvd",
    "Calibrate: TVD by depth",
    "½ Σ |q − p| along the target's own continuations: mean over anchors and its 95 % interval.",
    "depth",
    "TVD",
  ],
  [
    "cover",
    "Calibrate: coverage by depth",
    "How much of p the K best tokens hold, along the target's own continuations.",
    "depth",
    "coverage",
  ],
];

export class ResultCard {
  constructor(source) {
    this.figures = figuresOf(ABOUT, source);
    this.widths = widthChoice(this.figures.cover, () => this._draw());
    this.about = h("span", { class: "ds-soft" });
    this.element = card(
      "A calibrate result",
      [h("h2", {}, "A result of calibrate"), this.about],
      h("div", { class: "ds-figures" }, this.figures.tvd.element, this.figures.cover.element),
    );
    this.element.hidden = true;
  }

  show({ curves, about }) {
    this.curves = curves;
    this.about.textContent = about || "";
    this.element.hidden = false;
    this._draw();
    this.element.scrollIntoView({ block: "nearest" });
  }

  _draw() {
    if (!this.curves) return;
    const names = [...new Set(this.curves.map((row) => row.series))],
      range = depthRange(this.curves);
    const lines = (y, low, high) =>
      names.map((name) => {
        const own = this.curves.filter((row) => row.series === name);
        return { name, band: true, points: column(own, "depth", y, low, high) };
      });
    this.figures.tvd.lines(lines("tvd", "tvd_low", "tvd_high"), range);
    this.figures.cover.lines(lines(`coverage_${this.widths.value}`), range);
  }
}
