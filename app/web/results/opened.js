// A file that was opened here, as the server tells it: sentences and tables of words.

import { toClipboard } from "../clipboard.js";
import { h } from "../dom.js";
import { Figure } from "../figure.js";
import { banner, card, sheet } from "../parts.js";
import { saveButton } from "../save/buttons.js";

export class OpenedFile {
  constructor(source) {
    this.source = source;
    this.element = h("div", { hidden: true });
  }

  /** A checkpoint is examined for some seconds. */
  wait(name) {
    this.show(name, { title: "An opened file", about: "reading…" });
  }

  /** told: {title, about, sheets: [{title, heads, words, rows}], strips: [[title, marks]], lines,
   * flags: [[engine, note, flags]], figure}, or {error}. */
  show(name, told) {
    const { error, title, about, sheets = [], strips = [], lines = [], flags = [] } = told;
    const body = error
      ? [banner(error)]
      : [
          h("p.ds-soft.ds-tell", inCode(about)),
          ...sheets.map(drawn),
          ...strips.map(([words, marks]) => [h("h3.ds-sub", words), h("p.ds-marks", marks)]),
          h("section.ds-findings", listOf(lines)),
          flags.flatMap(pasted),
          told.figure ? this._figure(told.figure) : [],
        ];
    const head = [h("h2", title || "An opened file"), h("span", name)];
    this.element.replaceChildren(card("An opened file", head, ...body.flat()));
    this.element.hidden = false;
    this.element.scrollIntoView({ block: "start" });
  }

  _figure(json) {
    const figure = new Figure(this.source);
    figure.draw(json);
    return h("div.ds-figures", figure.element);
  }
}

/** Words in which what stands between backticks is code. */
function inCode(words) {
  const code = (part, at) => (at % 2 ? h("code", part) : part);
  return words.split(/`([^`]+)`/).map(code);
}

/** An engine's flags, to be pasted. */
function pasted([engine, note, flags]) {
  const label = `Copy the flags of ${engine}${note ? `, ${note}` : ""}`,
    copy = saveButton("Copy", { class: "ds-small", "aria-label": label }, async () => {
      await toClipboard(flags);
      copy.textContent = "Copied";
    });
  const head = h("h3.ds-sub", engine, " ", copy);
  return [head, h("p.ds-tell", h("code", flags)), h("p.ds-soft", note)];
}

function listOf(lines) {
  const entries = lines.map((line) => h("li", inCode(line)));
  return h("ul", entries);
}

/** A table; `words` are the numbers of the columns that hold words. */
function drawn({ title, heads, words, rows }) {
  const made = sheet(title || "Sums", heads, rows);
  for (const row of made.rows) for (const at of words) row.cells[at]?.classList.add("ds-words");
  return [title ? h("h3.ds-sub", title) : "", h("div.ds-wide.ds-table", made)];
}
