// All rounds of the runs on view as a table: sorted, filtered, copied. A row leads to its round;
// the numbers above it are of the rows that are shown, or of those that are selected.

import { h, plural, say, tool } from "../dom.js";
import { searchBox, sign } from "../parts.js";
import { pressed } from "../sorting.js";
import { Copies } from "./copies.js";
import { filterOf } from "./filter.js";
import { RowGrid } from "./grid.js";
import { beginningIn, COLUMNS, cellText, columnsFor, inOrder, nearest, rowsOf } from "./rows.js";
import { sumLines } from "./sums.js";

const NOTHING = { keep: () => true };
const REST = 800; // milliseconds of a hand that types

export class RoundsTable {
  /** hear: {panes(), active() the pane in hand, reach(pane, at) gives a promise of whether it
   * could, tree() shows the tree, say(words, more: beside what was said just now), changed() when
   * filter or order are others, selected(rows, lines() gives what they say together)}. */
  constructor(name, hear) {
    this.hear = hear;
    this.by = null;
    this.filter = NOTHING;
    this.old = true;
    this.grid = new RowGrid(`${name}-rounds`, "Rounds", {
      cell: (row, column) => this._cell(row, column),
      marks: (row) => this._marks(row),
      press: ({ name: pressedName }) => this.sort(pressed(this.by, pressedName)),
      hand: (at, extend) => this._hand(at, extend),
      enter: (at) => this._enter(at),
      leave: () => this.leave(),
    });
    this._head(name);
    this.sums = h("div.ds-rounds-sums");
    const parts = [this.head, this.said, this.sums, this.grid.element];
    this.element = h("section.ds-rounds", { "aria-label": "Rounds" }, parts);
    new ResizeObserver(() => this.old && this.refresh()).observe(this.element);
  }

  _head(name) {
    const note = `${name}-rounds-said`;
    this.box = searchBox("Filter: words, or tvd > 0.5", "Filter the rounds", {
      class: "ds-search ds-rounds-filter",
      "aria-describedby": note,
      maxlength: 200,
    });
    this.box.addEventListener("input", () => this._typed());
    this.box.addEventListener("keydown", (event) => this._key(event));
    this.count = h("span.ds-soft");
    this.said = h("p.ds-rounds-said", { id: note, role: "alert", hidden: true });
    this.copies = new Copies(this);
    this.head = h(
      "div.ds-rounds-head.ds-row",
      this.box,
      tool("‹", "Match before (N)", () => this.step(-1)),
      tool("›", "Match after (n)", () => this.step(1)),
      this.count,
      h("span.ds-spring"),
      this.copies.element,
    );
  }

  // ── which rows ─────────────────────────────────────────────────────────────────────────────

  /** Rounds have come. isOther: of other runs than those whose lines an address named. */
  stale(isOther = false) {
    this.old = true;
    if (isOther) this.wanted = null;
    if (!this.isSeen && !this.wanted) return;
    this.waiting ||= requestAnimationFrame(() => {
      this.waiting = null;
      if (this.old) this.refresh();
    });
  }

  /** The page is laid out only where that is open: else for each piece of news. */
  get isSeen() {
    return !!this.element.closest("[data-show=rounds]") && this.element.checkVisibility();
  }

  get _runs() {
    return this.hear.panes().map(({ letter, rounds, feed }) => ({
      letter,
      rounds,
      causes: feed.header?.causes,
    }));
  }

  /** The rows of all rounds in whose text these words begin. */
  holding(words) {
    return this._runs.flatMap((run) => beginningIn(rowsOf([run]), words));
  }

  /** Read the rounds, the filter and the order again. */
  refresh() {
    const panes = this.hear.panes();
    this.old = !this.isSeen;
    this.runs = this._runs;
    this.columns = columnsFor(panes.length);
    this.all = rowsOf(this.runs);
    this._read();
    this.rows = inOrder(this.all.filter(this.filter.keep), this.by);
    this.grid.heads(this.columns, this.by);
    this.grid.show(this.rows, this._here);
    this._select();
    this._describe();
  }

  /** Select the lines that an address names, once they are there, or none will come. */
  _select() {
    if (!this.wanted || !this.all.length) return;
    const isThere = this.rows.length > Math.max(...this.wanted);
    if (!isThere && this.hear.panes().some(({ feed }) => feed.active)) return;
    if (isThere) this.wanted.forEach((at, end) => this.grid.hand(at, end > 0));
    this.wanted = null;
    this.hear.changed();
  }

  /** Read the filter. One that cannot be read leaves the rows as they are, and says why. */
  _read() {
    const causes = Object.assign({}, ...this.runs.map((run) => run.causes)),
      read = filterOf(this.box.value, this.columns, causes);
    this.fault = read.error ?? "";
    if (!this.typing || !this.fault) this._tellFault();
    if (!this.fault) this.filter = read;
  }

  _tellFault() {
    if (this.said.textContent !== this.fault) say(this.said, this.fault);
    if (this.fault) this.box.setAttribute("aria-invalid", "true");
    else this.box.removeAttribute("aria-invalid");
  }

  /** While somebody types the rows follow; what they are is said once the hand rests. */
  _typed() {
    clearTimeout(this.typing);
    this.typing = setTimeout(() => this._rest(), REST);
    this.grid.element.scrollTop = 0;
    this.refresh();
    this.hear.changed();
  }

  _rest() {
    clearTimeout(this.typing);
    this.typing = null;
    this._tellFault();
    if (!this.fault) this.hear.say(this.counted);
  }

  sort(by) {
    this.by = by;
    this.refresh();
    this.hear.changed();
  }

  /** Filter, order and the lines that are selected, for the address. */
  get state() {
    const { by } = this,
      { range } = this.grid;
    return {
      filter: this.box.value.trim() || undefined,
      sort: by ? (by.down ? "-" : "") + by.name : undefined,
      rows: range ? range.map((at) => at + 1).join("-") : undefined,
    };
  }

  /** Take them from an address. */
  restore({ filter = "", sort = "", rows = "" }) {
    const name = sort.replace("-", "");
    this.box.value = filter.slice(0, this.box.maxLength); // an address may hold any length
    this.filter = NOTHING;
    this.by = COLUMNS.some((each) => each.name === name)
      ? { name, down: sort.startsWith("-") }
      : null;
    this.wanted = rows ? rows.split("-").map((line) => line - 1) : null;
    this.stale();
  }

  /** The number of the line whose round the pane in hand shows; −1: none. */
  get _here() {
    const { letter, at } = this.hear.active();
    return this.rows.findIndex((row) => row.run === letter && row.at === at);
  }

  /** Another round is on view. */
  moved() {
    if (this.wanted) return this.refresh();
    if (!this.isSeen) return;
    if (this.old) return this.refresh();
    const { grid } = this,
      { letter, at } = this.hear.active(),
      shown = `${letter} ${at}`;
    if (grid.range || shown === this.shown) return grid.draw(); // it stays where it was scrolled to
    this.shown = shown;
    grid.at = this._here;
    grid.from = grid.at < 0 ? undefined : grid.at;
    grid.reveal();
  }

  // ── going to a round ───────────────────────────────────────────────────────────────────────

  /** To the next row of the table, or the one before: around its end. */
  step(by) {
    if (this.old || !this.isSeen) this.refresh();
    const { rows } = this;
    if (!rows.length) return this.hear.say("no round matches");
    const here = this._here,
      next = (here + by + rows.length) % rows.length,
      to = here < 0 ? nearest(rows, this.hear.active(), by, this.by) : next;
    this.grid.hand(to);
    this._reach(to);
  }

  async _reach(at) {
    const row = this.rows[at],
      pane = this.hear.panes().find(({ letter }) => letter === row.run),
      could = await this.hear.reach(pane, row.at);
    if (could === null) return; // somebody went on
    const where = `${at + 1} of ${this.rows.length}`;
    const beyond =
      `round ${row.round} of ${row.run} cannot be drawn beside the others: ` +
      "the texts differ there, or it added no token";
    if (!could) this.hear.say(beyond);
    else if (document.activeElement !== this.grid.table) this.hear.say(`row ${where}`, true);
    this.count.textContent = could ? this.counted : beyond;
  }

  _hand(at, extend) {
    this.grid.hand(at, extend);
    this._describe();
    this.hear.changed();
    if (!extend) this._reach(this.grid.at);
  }

  _enter(at) {
    this._reach(at);
    this.hear.tree();
  }

  /** Select rounds of the run alone, all of them in their order: those between two. */
  select(from, to) {
    Object.assign(this, { by: null, filter: NOTHING });
    this.box.value = "";
    this.refresh();
    this.grid.hand(from);
    this._hand(to, true);
  }

  /** Let go of what is selected. */
  leave() {
    if (!this.grid.range) return;
    this.grid.hand(this.grid.at);
    this._describe();
    this.hear.changed();
  }

  _key(event) {
    if (event.key === "Enter" && this.typing) this._rest();
    if (event.key === "Enter") this.step(event.shiftKey ? -1 : 1);
    if (event.key === "Escape") {
      this.box.value = "";
      this._typed();
      this._rest();
      this.grid.table.focus();
    }
    if (event.key === "ArrowDown") this.grid.table.focus();
    if (["Enter", "Escape", "ArrowDown"].includes(event.key)) event.preventDefault();
    event.stopPropagation();
  }

  // ── what a row looks like ──────────────────────────────────────────────────────────────────

  _cell(row, column) {
    if (column.name === "run") return sign(row.run);
    const words = cellText(row, column);
    if (column.name !== "round" || !row.faults.length) return words;
    return h("span", { title: `${row.faults.join("; ")}: it counts in no figure` }, `⚠ ${words}`);
  }

  _marks(row) {
    const pane = this.hear.panes().find(({ letter }) => letter === row.run);
    return pane?.at === row.at ? "here" : "";
  }

  // ── what the rows say together ─────────────────────────────────────────────────────────────

  /** The rows that are selected, else all that are shown. */
  get chosen() {
    const { range } = this.grid;
    return range ? this.rows.slice(range[0], range[1] + 1) : this.rows;
  }

  get counted() {
    const { length } = this.rows,
      all = this.all.length;
    return length === all ? plural(all, "round") : `${length} of ${plural(all, "round")}`;
  }

  _describe() {
    this.count.textContent = this.counted;
    this.copies.allow(this.rows.length);
    const isRange = !!this.grid.range,
      lines = () => sumLines(this.runs, this.chosen, isRange);
    this.sums.replaceChildren(...lines());
    this.hear.selected?.(isRange ? this.chosen : [], lines);
  }
}
