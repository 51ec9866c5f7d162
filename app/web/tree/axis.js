// The labels above a tree: one for each depth, or for each column that it shares with others.

import { number, s } from "../dom.js";

const LABEL = 5.8; // widths that a label needs, in its type's size: it is larger while presented
const LETTER = 0.68; // and each letter: in a narrower column the TVD goes, and a long word is cut
const SEEN = 12; // pixels of the root's box: with less of it in sight a label says where it is

export class TreeAxis {
  constructor() {
    this.band = s("rect.ds-column-here", { y: 0, height: "100%", hidden: true });
    this.labels = s("g.ds-axis", { "aria-hidden": "true" });
    this.back = s("text", { x: 5, y: 15 }, "‹ root");
    this.ground = s("rect.ds-axis-ground", { width: "100%", height: 21 });
  }

  clear() {
    this.labels.replaceChildren();
    this.band.toggleAttribute("hidden", true);
  }

  /** columns: {lead, here, labels, …} of compare/columns.js, or null. */
  draw({ round, width, boxW, stepX, deepest = Math.round((width - boxW) / stepX) }, columns) {
    const lead = columns?.lead ?? 0;
    const own = (depth) =>
      depth ? `${round.word || "depth"} ${depth}` : round.lines ? "" : "root";
    const count = columns ? columns.labels.length : deepest + 1;
    this.texts = Array.from({ length: count }, (_, at) => {
      const tvd = round.tvd[at - lead - 1];
      return {
        words: columns ? columns.labels[at] : own(at),
        tvd: typeof tvd === "number" ? `  TVD ${number(tvd)}` : "",
      };
    });
    const labels = this.texts.map(({ words, tvd }, at) => {
      const label = s("text", { y: 15, class: columns?.here === at ? "here" : "" }, words);
      if (tvd) label.append(s("tspan.tvd", tvd));
      return label;
    });
    this.labels.replaceChildren(...labels, this.back);
  }

  /** Put the labels above their columns; those that would overlap go, also at the left edge where
   * the root is further left. */
  place({ stepX, boxW }, { kx, x }, columns) {
    const { lead, here } = columns ?? { lead: 0, here: 0 };
    const step = stepX * kx;
    this.type ||= Number.parseFloat(getComputedStyle(this.back).fontSize);
    const size = this.type; // not asked at each move: that would lay the page out
    const every = Math.ceil((LABEL * size) / step);
    const from = (column) => (x + ((column - lead) * stepX + 2) * kx).toFixed(1);
    this.band.toggleAttribute("hidden", !columns);
    if (columns) {
      this.band.setAttribute("x", from(here - 0.08));
      this.band.setAttribute("width", (step * 0.92).toFixed(1));
    }
    const isBack = x + boxW * kx < SEEN;
    this.back.classList.toggle("gone", !isBack);
    [...this.labels.children].slice(0, -1).forEach((label, at) => {
      const left = from(at);
      label.setAttribute("transform", `translate(${left})`); // an x would set its letters anew
      label.classList.toggle("gone", (at - here) % every !== 0 || (isBack && left < LABEL * size));
      const { words, tvd } = this.texts[at];
      const room = Math.floor((every * step) / (LETTER * size)) - 1; // letters
      const cut = columns && words.length > room;
      const said = cut ? `${words.slice(0, room - 1)}…` : words;
      if (label.firstChild.data !== said) label.firstChild.data = said; // and so would the same
      label.classList.toggle("brief", words.length + tvd.length > room);
    });
  }
}
