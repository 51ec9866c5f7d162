// A table of any number of rows of which only those in sight are on the page. One line is in hand:
// the focus stays on the table, which names that line (aria-activedescendant).

import { h, onRest } from "../dom.js";
import { setHeads, sortHead } from "../sorting.js";

const LINE = 28; // pixels of a line until one was measured
const SPARE = 6; // lines above and below those in sight
const MOVES = { ArrowUp: -1, ArrowDown: 1, Home: -Infinity, End: Infinity };

function titleOf({ about, name }) {
  return `${about}; in a filter: ${name}`;
}

export class RowGrid {
  /** hear: {cell(row, column), marks(row) as a class, press(column), hand(at, extend), enter(at),
   * leave()}. name: of this table among those of the page. */
  constructor(name, label, hear) {
    Object.assign(this, { name, hear });
    this.rows = [];
    this.columns = [];
    this.lines = new WeakMap(); // row → its line, which is the same while a run goes on
    this.at = -1; // the line in hand
    this.range = null; // [first, last] of the lines that are selected
    this.tall = LINE;
    this.head = h("tr", { "aria-rowindex": 1 });
    this.body = h("tbody");
    this.table = h(
      "table",
      { role: "grid", tabindex: 0, "aria-label": label, "aria-multiselectable": "true" },
      h("thead", this.head),
      this.body,
    );
    this.long = h("div.ds-rounds-long", this.table);
    this.element = h("div.ds-rounds-box", this.long);
    this.element.addEventListener("scroll", () => this._later(), { passive: true });
    this.table.addEventListener("keydown", (event) => this._key(event));
    // On the way down: while a run goes on the lines are put in anew, which ends a click. A click
    // without a press is a screen reader's.
    this.body.addEventListener("mousedown", (event) => {
      event.preventDefault(); // else Shift selects the text between
      if (event.button === 0) this._press(event);
    });
    this.body.addEventListener("click", (event) => event.detail || this._press(event));
    onRest(this.body, (press) => this._press(press));
    this.body.addEventListener("dblclick", () => this.at >= 0 && hear.enter(this.at));
    new ResizeObserver(() => this._later()).observe(this.element);
  }

  /** The columns, and by which the rows are sorted: {name, down} or null. */
  heads(columns, by) {
    if (columns.length === this.columns.length && by === this.by) return;
    Object.assign(this, { columns, by, lines: new WeakMap() });
    const made = columns.map((column) => {
      const { name, head: words } = column,
        about = { name, words, title: titleOf(column), look: `of-${name}` };
      return sortHead(about, by, () => this.hear.press(column));
    });
    setHeads(this.head, made);
    this.table.setAttribute("aria-colcount", columns.length);
  }

  /** Show these rows, with one of them in hand (−1: none). What is selected stays where the same
   * rows stand there. */
  show(rows, at) {
    const stays = this.range?.every((each) => rows[each] && rows[each] === this.rows[each]);
    this.rows = rows;
    if (!stays) Object.assign(this, { at, range: null });
    this.table.setAttribute("aria-rowcount", rows.length + 1);
    this.draw();
  }

  /** Take a line in hand; `extend` selects all from the last one that was taken without. */
  hand(at, extend = false) {
    const to = Math.max(0, Math.min(this.rows.length - 1, at));
    if (!extend) this.from = to;
    const from = Math.min(this.from ?? to, this.rows.length - 1);
    this.at = to;
    this.range = extend ? [Math.min(from, to), Math.max(from, to)] : null;
    this.reveal();
  }

  /** Scroll so far that the line in hand is in sight. */
  reveal() {
    const { element, at } = this;
    if (at >= 0) {
      const head = this.head.getBoundingClientRect().height,
        top = at * this.tall,
        room = element.clientHeight - head;
      if (element.scrollTop > top) element.scrollTop = top;
      else if (element.scrollTop + room < top + this.tall)
        element.scrollTop = top + this.tall - room;
    }
    this.draw();
  }

  _later() {
    this.waiting ||= requestAnimationFrame(() => {
      this.waiting = null;
      this.draw();
    });
  }

  draw() {
    const { element, rows, body } = this;
    if (!element.clientHeight) return; // not on view
    const first = Math.max(0, Math.floor(element.scrollTop / this.tall) - SPARE),
      last = Math.ceil((element.scrollTop + element.clientHeight) / this.tall) + SPARE,
      lines = rows.slice(first, last).map((row, i) => this._line(row, first + i));
    body.replaceChildren(...lines);
    const tall = lines[0]?.getBoundingClientRect().height;
    if (tall && Math.abs(tall - this.tall) > 0.01) {
      this.tall = tall; // the text may be larger in this browser
      return this.draw();
    }
    const head = this.head.getBoundingClientRect().height;
    this.long.style.height = `${head + rows.length * this.tall}px`;
    this.long.style.paddingTop = `${first * this.tall}px`;
    const inHand = this.at >= first && this.at < first + lines.length;
    if (inHand) this.table.setAttribute("aria-activedescendant", `${this.name}-${this.at}`);
    else this.table.removeAttribute("aria-activedescendant");
  }

  _line(row, at) {
    const { lines, hear, range } = this,
      isChosen = !!range && at >= range[0] && at <= range[1],
      marks = [hear.marks(row), at === this.at ? "in-hand" : "", isChosen ? "chosen" : ""];
    const now = {
      id: `${this.name}-${at}`,
      class: marks.filter(Boolean).join(" "),
      "aria-rowindex": at + 2,
      "aria-selected": String(isChosen),
      "data-at": at,
    };
    const line = lines.get(row) ?? h("tr", this._cells(row));
    lines.set(row, line);
    for (const [name, value] of Object.entries(now)) line.setAttribute(name, value);
    return line;
  }

  _cells(row) {
    return this.columns.map((column) => {
      const tag = column.name === "round" ? "th" : "td";
      return h(tag, { class: `of-${column.name}` }, this.hear.cell(row, column));
    });
  }

  // ── hands ──────────────────────────────────────────────────────────────────────────────────

  _press({ target, shiftKey }) {
    const line = target.closest("tr");
    this.table.focus({ preventScroll: true });
    if (line) this.hear.hand(Number(line.getAttribute("data-at")), shiftKey);
  }

  _key(event) {
    const { key, shiftKey, target } = event;
    if (target !== this.table || event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.tall) - 2);
    const by = { ...MOVES, PageUp: -page, PageDown: page }[key];
    if (by && this.rows.length) this.hear.hand(Math.max(0, Math.max(0, this.at) + by), shiftKey);
    else if (key === "Enter" && this.at >= 0) this.hear.enter(this.at);
    else if (key === "Escape" && this.range) this.hear.leave();
    else if (!by) return;
    event.preventDefault();
    event.stopPropagation();
  }
}
