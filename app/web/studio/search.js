// Finding a token in the trees on view, and words in the text of their runs.

import { h, plural } from "../dom.js";
import { searchBox } from "../parts.js";
import { nearest } from "../rounds/rows.js";

export class Search {
  /** studio: whose trees and text are searched. */
  constructor(studio) {
    this.studio = studio;
    this.hits = [];
    this.hit = -1;
    this.rounds = []; // rows of those whose text has the words
    this.found = h("span.ds-found", { "aria-live": "polite" });
    this.box = searchBox("Find  /", "Find a token in this tree", {
      title: "Find a token, or words of the text (/)",
    });
    this.box.addEventListener("input", () => this.look());
    this.box.addEventListener("keydown", (event) => this._key(event));
  }

  /** Mark what is looked for in the trees as they are now. */
  look() {
    const wanted = this.box.value.trim();
    this.hits = this.studio.panes.flatMap((pane) =>
      pane.tree.search(wanted).map((row) => ({ pane, row })),
    );
    this.hit = -1;
    const folded = this.hits.filter(({ pane, row }) => !pane.tree.plan.place.has(row)).length;
    this.rounds = wanted ? this.studio.rounds.holding(wanted) : [];
    const rounds = this._isBeyond ? this.rounds.length : 0;
    this.found.textContent = wanted ? countOf(this.hits.length, folded, rounds) : "";
  }

  /** Whether a round that is not on view has the words. */
  get _isBeyond() {
    const shown = new Map(this.studio.panes.map(({ letter, at }) => [letter, at]));
    return this.rounds.some(({ run, at }) => shown.get(run) !== at);
  }

  /** Other trees are on view. */
  refresh() {
    if (this.box.value) this.look();
  }

  _key(event) {
    if (event.key === "Enter") this._next(event.shiftKey ? -1 : 1);
    if (event.key === "Escape") {
      this.box.value = "";
      this.look();
      this.studio.active.tree.svg.focus();
    }
    if (event.key === "Enter" || event.key === "Escape") event.preventDefault();
    event.stopPropagation();
  }

  /** The next match of these trees, and behind the last one the next round. */
  _next(by) {
    const { length } = this.hits,
      to = this.hit < 0 && by < 0 ? length - 1 : this.hit + by;
    if (this._isBeyond && (to < 0 || to >= length)) return this._round(by);
    if (!length) return;
    this.hit = (to + length) % length;
    const { pane, row } = this.hits[this.hit];
    this.studio.found(pane, row);
    this.found.textContent = `${this.hit + 1} of ${this.hits.length}`;
  }

  _round(by) {
    const { rounds, studio } = this,
      { letter, at } = studio.active,
      here = rounds.findIndex((row) => row.run === letter && row.at === at),
      to = here < 0 ? nearest(rounds, { letter, at }, by) : here + by;
    const row = rounds[(to + rounds.length) % rounds.length],
      pane = studio.panes.find((each) => each.letter === row.run);
    studio.choose(pane, row.at);
  }
}

/** How many matches there are, how many of them are not drawn, and how many rounds of the text
 * have the words where there is more to be found in others. */
export function countOf(all, folded, rounds = 0) {
  const count = plural(all, "match").replace("matchs", "matches"),
    here = folded ? `${count}, ${folded} folded` : count;
  if (!rounds) return here;
  return `${all ? here : "0 here"} · ${plural(rounds, "round")} in the run`;
}
