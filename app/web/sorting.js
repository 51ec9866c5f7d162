// How a table is sorted by one of its columns: the order of its rows, and heads that a press sorts
// by. An order is {name of the column, down}, or null: the rows stay as they are.

import { button, h } from "./dom.js";

const WORDS = new Intl.Collator("en", { numeric: true });
const MARKS = { none: "", ascending: " ▲", descending: " ▼" };

/** Rows by what key(row) gives, numbers or words, down or up. What is not known, null or undefined,
 * comes last either way; equal ones stay. */
export function sorted(rows, key, down) {
  const sign = down ? -1 : 1;
  const order = ([one], [other]) => {
    if (one === null || other === null) return (one === null) - (other === null);
    return sign * (typeof one === "string" ? WORDS.compare(one, other) : one - other);
  };
  const keyed = rows.map((row) => [key(row) ?? null, row]);
  return keyed.sort(order).map(([, row]) => row);
}

/** How a press on a head changes the order: `down` or up first, then the other way, then none. */
export function pressed(by, name, down = false) {
  if (by?.name !== name) return { name, down };
  return by.down === down ? { name, down: !down } : null;
}

/** The head of a column, which a press sorts by. look: its class; by: the order now. */
export function sortHead({ name, words, title = null, look = null }, by, press) {
  const way = by?.name !== name ? "none" : by.down ? "descending" : "ascending",
    mark = h("span", { "aria-hidden": "true" }, MARKS[way]);
  return h("th", { class: look, "aria-sort": way }, button([words, mark], { title }, press));
}

/** Put the heads of a table into their row; the focus stays at its place. */
export function setHeads(row, heads) {
  const had = [...row.children].findIndex((each) => each.contains(document.activeElement));
  row.replaceChildren(...heads);
  row.children[had]?.querySelector("button")?.focus();
}
