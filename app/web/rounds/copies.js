// Buttons that copy the rows of the table of rounds.

import { toClipboard } from "../clipboard.js";
import { button, h, plural } from "../dom.js";
import { FORMS } from "./formats.js";

const SAID = 1500; // milliseconds that "copied" stays

export class Copies {
  /** table: of rounds, whose chosen rows these copy. */
  constructor(table) {
    this.table = table;
    this.buttons = Object.keys(FORMS).map((form) =>
      button(form, { title: `Copy these rows as ${form}` }, ({ target }) =>
        this._copy(form, target),
      ),
    );
    const about = { role: "group", "aria-label": "Copy these rows" },
      words = h("span.ds-soft", { "aria-hidden": "true" }, "Copy");
    this.element = h("span.ds-rounds-copy", about, words, this.buttons);
  }

  /** Whether there is anything to copy. */
  allow(some) {
    for (const each of this.buttons) each.disabled = !some;
  }

  async _copy(form, pressedButton) {
    const { chosen: rows, columns, hear, count } = this.table;
    let words = `${plural(rows.length, "row")} copied as ${form}`;
    try {
      await toClipboard(FORMS[form](rows, columns));
    } catch (error) {
      words = `not copied: ${error.message}`;
    }
    hear.say(words);
    count.textContent = words;
    pressedButton.focus();
    setTimeout(() => (count.textContent = this.table.counted), SAID);
  }
}
