// A file that was opened here, as the server tells it: sentences and tables of words.

import { h } from "../dom.js";
import { banner, card, sheet } from "../parts.js";

export class OpenedFile {
  constructor() {
    this.element = h("div", { hidden: true });
  }

  /** A checkpoint is examined for some seconds. */
  wait(name) {
    this.show(name, { title: "An opened file", about: "reading…" });
  }

  /** told: {title, about, sheets: [{title, heads, rows}], strips: [[title, marks]], lines}, or
   * {error}. */
  show(name, { error, title, about, sheets = [], strips = [], lines = [] }) {
    const body = error
      ? [banner(error)]
      : [
          h("p", { class: "ds-soft ds-tell" }, inCode(about)),
          ...sheets.map(drawn),
          ...strips.map(([words, marks]) => [
            h("h3", { class: "ds-sub" }, words),
            h("p", { class: "ds-marks" }, marks),
          ]),
          h("section", { class: "ds-findings" }, listOf(lines)),
        ];
    const head = [h("h2", {}, title || "An opened file"), h("span", {}, name)];
    this.element.replaceChildren(card("An opened file", head, ...body.flat()));
    this.element.hidden = false;
    this.element.scrollIntoView({ block: "start" });
  }
}

/** Words in which what stands between backticks is code. */
function inCode(words) {
  const code = (part, at) => (at % 2 ? h("code", {}, part) : part);
  return words.split(/`([^`]+)`/).map(code);
}

function listOf(lines) {
  return h(
    "ul",
    {},
    lines.map((line) => h("li", {}, inCode(line))),
  );
}

function drawn({ title, heads, rows }) {
  return [
    title ? h("h3", { class: "ds-sub" }, title) : "",
    h("div", { class: "ds-wide ds-table" }, sheet(title || "Sums", heads, rows)),
  ];
}
