// The texts that the curve of τ is drawn over, beside the one that is shown.

import { h } from "../dom.js";

export const TOGETHER = 8; // texts of a curve

export class MoreTexts {
  /** hear(): others were chosen. */
  constructor(hear) {
    this.hear = hear;
    this.chosen = [];
    this.words = h("summary");
    this.list = h("div.ds-more-texts");
    this.element = h("details.ds-fold-runs", this.words, this.list);
  }

  /** texts: [name, title] of all; shown: the one on view, which is always among the curve's. */
  show(texts, shown) {
    const others = texts.filter(([name]) => name !== shown);
    this.chosen = this.chosen.filter((name) => others.some((each) => each[0] === name));
    this.list.replaceChildren(...others.map(([name, title]) => this._entry(name, title)));
    this.element.hidden = !others.length;
    this._tell();
  }

  _entry(name, title) {
    const box = h("input", { type: "checkbox" });
    box.checked = this.chosen.includes(name);
    box.addEventListener("change", () => {
      const rest = this.chosen.filter((each) => each !== name);
      this.chosen = box.checked ? [...rest, name] : rest;
      this._tell();
      this.hear();
    });
    return h("label", box, title);
  }

  _tell() {
    const count = this.chosen.length + 1,
      full = count >= TOGETHER;
    this.words.textContent =
      count > 1 ? `Curve of τ over ${count} texts, with a band` : "Curve of τ over more texts…";
    for (const box of this.list.querySelectorAll("input")) box.disabled = full && !box.checked;
  }
}
