// Results: one table of all methods on the same prompts. What is chosen above it picks the rows; a
// heading sorts them.

import { ViewInAddress } from "../address.js";
import { button, clear, h } from "../dom.js";
import { answered } from "../feed.js";
import { awaited, banner, card, choice, folding, menu } from "../parts.js";
import { pictureButtons } from "../save/buttons.js";
import { fileName } from "../save/files.js";
import { setHeads, sorted, sortHead } from "../sorting.js";
import { lookAt, lookedAt } from "../studio/shelf.js";
import { Turns } from "../turns.js";
import { COLUMNS, columnsFor } from "./columns.js";
import { OpenedFile } from "./opened.js";
import { aboutOf, COMMAND, choicesOf, OWN, rowsOf } from "./rows.js";
import { savedScatter, scatterIn } from "./scatter.js";

const LABELS = {
  temperature: (value) => (value ? `T = ${value}` : "greedy (T = 0)"),
  source: (value) => (value === "all" ? "all prompts" : value),
  budget: (value) => (value === OWN ? "each method's own budget" : `budget ${value}`),
};
const FIRST = ["tau", "speed"]; // columns of a phone, until all are wanted: view.css
const BY_SPEED = COLUMNS.find(({ name }) => name === "speed");

export function mount({ element, server }) {
  new Results(element, server);
}

export class Results {
  constructor(element, source) {
    this.chosen = {};
    this.order = BY_SPEED;
    this.source = source;
    this.files = new Turns();
    this.file = null; // {path, name} of the file that is on view, {paths, name} of several
    this.opened = new OpenedFile(source);
    this.place = h("div.ds-scope", this.opened.element, awaited());
    clear(element).append(this.place);
    this.shipped = answered(source.table({}));
    this.address = new ViewInAddress("results", this.place, {
      state: () => this.rows && this._state(),
      runs: () => (this.file?.path ? [this.file.path, this.file.name] : []),
      show: async (state, runs) => {
        const [path, name] = runs ?? [];
        await this._turnTo(path ? { path, name } : null, state ?? {});
      },
      go: (file) => this._take(file),
    });
  }

  /** What is chosen and the column that sorts, for the address. */
  _state() {
    return { ...this.chosen, sort: this.order.name };
  }

  /** What an address names, or the usual choices. */
  _show({ sort, ...named }) {
    this.order = COLUMNS.find(({ name }) => name === sort) ?? BY_SPEED;
    for (const [name, values] of Object.entries(this.options)) {
      const sizes = values.filter((value) => value !== OWN),
        usual = (name === "budget" && sizes.at(-1)) || values[0];
      this.chosen[name] = values.find((value) => String(value) === String(named[name])) ?? usual;
      this.picks[name].value = values.indexOf(this.chosen[name]);
    }
    this._draw();
  }

  /** Show what an opened file says, above the shipped table unless it is a table itself; without a
   *  file that table alone. `state` of the table: as it is, unless given. */
  async _turnTo(file, state) {
    const isWanted = this.files.take();
    if (!this.rows || file?.paths || file?.path !== this.file?.path) {
      if (file) this.opened.wait(file.name);
      const of = { ...file, ...lookedAt(this.counted) }, // which step times are asked of
        asked = file ? answered(this.source.open(of)) : {},
        [told, shipped] = await Promise.all([asked, this.shipped]);
      if (!isWanted()) return;
      if (file && !told.table) this.opened.show(file.name, told);
      if (told.counted) lookAt("results");
      if (!told.timed) this.counted = told.counted ? file.path : null;
      const answer = told.table ?? shipped,
        usual = told.table ? {} : this.rows && this._state();
      this.file = told.error ? null : file; // a reload is not to complain again
      if (answer.error) return this._place(banner(answer.error));
      this.ownTable = !!told.table;
      this._make(answer, told.table ? file.name : "");
      state ??= usual || {};
    }
    if (!file || this.ownTable) this.opened.element.hidden = true;
    this._show(state ?? this._state());
    this.files.end();
  }

  /** The card of a table of methods; `name` of the file that it was opened from. */
  _make(answer, name) {
    this.rows = answer.rows;
    this.ran = this.rows.every((row) => row.ran);
    this.columns = columnsFor(this.rows);
    this.options = choicesOf(this.rows);
    const pick = ([name, values]) => {
      const words = values.map((value, at) => [at, LABELS[name](value)]);
      return choice(name, words, (at) => {
        this.chosen[name] = values[at];
        this._draw();
        this.address.moved();
      });
    };
    const lists = Object.entries(this.options).map((each) => [each[0], pick(each)]);
    this.picks = Object.fromEntries(lists);
    this.picture = h("div.ds-wide.ds-scattered");
    this.untimed = h("p.ds-soft.ds-tell");
    new ResizeObserver(() => this._drawPicture()).observe(this.picture);
    const draw = () => savedScatter(this.picture, this.shown),
      called = () => fileName(`methods ${this.setting.textContent}`);
    this.save = menu("Save the picture", pictureButtons("this picture", draw, called));
    this.head = h("tr");
    this.lines = h("tbody");
    const about = { class: "ds-results", "aria-label": "All methods" };
    this.table = h("table", about, h("thead", this.head), this.lines);
    const turn = () => this._widen(!this.table.matches(".whole"));
    this.whole = button("All columns", { class: "ds-small ds-columns" }, turn);
    this._widen(false);
    this.setting = h("span.ds-setting"); // where the lists are not to be seen
    const title = [h("h2", "All methods, the same prompts"), h("span", name), this.setting],
      head = [title, Object.values(this.picks), this.save],
      beside = h("div.ds-row", this.untimed, h("span.ds-spring"), this.whole),
      parts = [told(aboutOf(answer)), this.picture, beside, h("div.ds-wide", this.table)];
    this._place(card("All methods", head, ...parts));
  }

  /** On a phone: all columns, or the first. */
  _widen(on) {
    this.table.classList.toggle("whole", on);
    this.whole.setAttribute("aria-pressed", String(on));
  }

  /** Put what the server answered below an opened file. */
  _place(shown) {
    this.place.replaceChildren(this.opened.element, shown);
  }

  /** A file was opened on the page. */
  async _take({ path, paths, name }) {
    this.address?.leave();
    this.file = null; // the same one may be opened again
    await this._turnTo({ path, paths, name });
    this.address?.moved();
  }

  _draw() {
    const { name, key, up } = this.order,
      rows = sorted(rowsOf(this.rows, this.chosen), key, !up),
      most = Math.max(...rows.map((row) => row.high ?? row.tau));
    this.shown = rows;
    this._drawPicture();
    this.setting.textContent = Object.entries(this.chosen)
      .map(([name, value]) => LABELS[name](value))
      .join(" · ");
    const head = this.columns.map((column) => {
      const made = sortHead(column, { name, down: !up }, () => this._sort(column));
      made.append(h("small", column.says));
      return made;
    });
    if (!FIRST.includes(name)) this._widen(true);
    setHeads(this.head, [h("th", "Method"), ...head]);
    this.lines.replaceChildren(...rows.map((row) => line(row, most, this)));
  }

  _drawPicture() {
    const rows = this.shown,
      drawn = scatterIn(this.picture, rows),
      untimed = rows.filter((row) => !row.speed).map((row) => row.title);
    this.save.hidden = !drawn;
    this.picture.hidden = !drawn;
    this.picture.replaceChildren(drawn ?? "");
    this.untimed.hidden = !drawn || !untimed.length;
    this.untimed.textContent = `not timed: ${untimed.join(", ")}`;
  }

  _sort(column) {
    this.order = column;
    this._draw();
    this.address.moved();
  }
}

/** What the numbers are of: on a phone its first words, until a press. */
function told(about) {
  const head = h("header", h("small.ds-brief.ds-cut.ds-soft", about)),
    whole = h("p.ds-soft.ds-tell", about, " Make yours: ", h("code", COMMAND));
  return folding(h("div", head, whole), head);
}

function line(row, most, { columns, ran }) {
  const about = [
    row.size === OWN && row.budget > 1 && `B = ${row.budget}`,
    row.knows ? `q depends on the ${row.knows}` : "no drafter",
    row.ran && !ran && `in ${row.texts} real runs`,
  ];
  const words = about.filter(Boolean).join(", "),
    cells = columns.map(({ cell }) => h("td", cell(row, most)));
  return h("tr", h("th", row.title, h("small", words)), cells);
}
