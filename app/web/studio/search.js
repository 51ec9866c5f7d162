// Finding a token in the trees on view.

import { h, plural } from "../dom.js";
import { searchBox } from "../parts.js";

export class Search {
  /** hear: {panes(), found(pane, row), leave()}. */
  constructor(hear) {
    this.hear = hear;
    this.hits = [];
    this.hit = -1;
    this.found = h("span", { class: "ds-found", "aria-live": "polite" });
    this.box = searchBox("Find a token  /", "Find a token in this tree");
    this.box.addEventListener("input", () => this.look());
    this.box.addEventListener("keydown", (event) => this._key(event));
  }

  /** Mark what is looked for in the trees as they are now. */
  look() {
    const wanted = this.box.value.trim();
    this.hits = this.hear
      .panes()
      .flatMap((pane) => pane.tree.search(wanted).map((row) => ({ pane, row })));
    this.hit = -1;
    const folded = this.hits.filter(({ pane, row }) => !pane.tree.plan.place.has(row)).length;
    this.found.textContent = wanted ? countOf(this.hits.length, folded) : "";
  }

  /** Other trees are on view. */
  refresh() {
    if (this.box.value) this.look();
  }

  _key(event) {
    if (event.key === "Enter" && this.hits.length) this._next(event.shiftKey ? -1 : 1);
    if (event.key === "Escape") {
      this.box.value = "";
      this.look();
      this.hear.leave();
    }
    if (event.key === "Enter" || event.key === "Escape") event.preventDefault();
    event.stopPropagation();
  }

  _next(by) {
    this.hit = (this.hit + by + this.hits.length) % this.hits.length;
    const { pane, row } = this.hits[this.hit];
    this.hear.found(pane, row);
    this.found.textContent = `${this.hit + 1} of ${this.hits.length}`;
  }
}

/** How many matches there are, and how many of them are not drawn. */
export function countOf(all, folded) {
  const count = plural(all, "match").replace("matchs", "matches");
  return folded ? `${count}, ${folded} folded` : count;
}
