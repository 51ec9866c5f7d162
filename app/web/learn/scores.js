// Scores: noise added to log p, DART's two terms and what they count.

import { h, number } from "../dom.js";
import { bar, entry, sheet } from "../parts.js";

const TERM_WORDS = { above: "the parent's score", q: "drafter's term", ngram: "n-gram term" };

/** log p + g per token, in some tables. */
export function noiseOf(side) {
  const heads = side.heads ?? ["", "log p", "g", "sum"];
  const line = ({ label, terms, sum, mark }) => [
    label,
    ...terms.map((term) => number(term)),
    number(sum) + (mark === "chosen" ? " ◆" : ""),
  ];
  const tables = side.lists.map(({ title, rows }) =>
    captioned(title, heads, rows.map(line), (at) => rows[at].mark),
  );
  const note = side.note ? [h("p.ds-soft", side.note)] : [];
  return [h("div.ds-lists", tables), ...note];
}

/** Scores as stacked bars, left of 0: the parent's part, the drafter's term, the n-gram term. */
export function terms(side, link) {
  const sum = (item) => (side.above ? item.above : 0) + item.q + item.ngram;
  const longest = Math.max(...side.items.map((item) => -sum(item)), 0.1);
  const rows = side.items.map((item) => {
    const parts = [
      ["above", side.above ? item.above : 0],
      ["q", item.q],
      ["ngram", item.ngram],
    ].filter(([, value]) => value);
    const partOf = ([name, value]) => {
      const title = `${TERM_WORDS[name]} ${number(value)}`,
        part = h("i", { class: `part ${name}`, title });
      part.style.width = `${(100 * Math.abs(value)) / longest}%`;
      return part;
    };
    const bar = h("span.ds-stack", { "aria-hidden": "true" }, parts.map(partOf));
    const row = h("li", h("span.label", item.label), bar, h("span.odds", number(sum(item))));
    row.addEventListener("pointerenter", () => link.point(item.row));
    return row;
  });
  const key = ["above", "q", "ngram"].filter(
    (name) => (name !== "above" || side.above) && (name !== "ngram" || side.ngram),
  );
  const entries = key.map((name) => entry(`part ${name}`, TERM_WORDS[name])),
    heading = h("h3", "score: shorter is better");
  return [heading, h("ol.ds-terms", rows), h("p.ds-soft.ds-part-key", entries)];
}

export function weights(side) {
  const rows = side.rows.map(({ label, weight, q, ngram }) => [
    label,
    number(weight),
    [bar(q, "", "hot"), number(q)],
    [bar(ngram, "", "new"), number(ngram)],
  ]);
  return [captioned("what a term counts", ["", "weight", "drafter", "n-gram"], rows)];
}

/** A table whose title can be seen. */
function captioned(title, ...parts) {
  const made = sheet(title, ...parts);
  made.prepend(h("caption", title));
  return made;
}
