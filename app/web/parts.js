// Parts that the tabs share: a table, a choice, a menu, a tile, a card.

import { button, h, say } from "./dom.js";

export const LETTERS = "ABCD"; // of the runs on view; the same as analysis.charts.palette

/** What τ is. Where the text ends within a draft, tokens by rounds are less. */
export const TAU =
  "block efficiency: accepted nodes + 1, mean over rounds; of the last round it also counts what " +
  "the walk found behind the end of the text, which is not written";

/** The class of the colour that a run has by its place, or by its letter. */
export function slot(at) {
  const place = typeof at === "string" ? LETTERS.indexOf(at) : at;
  return `ds-slot-${place + 1}`;
}

/** A run's letter on its colour. */
export function sign(letter) {
  return h("i", { class: `ds-letter ${slot(letter)}` }, letter);
}

/** A meaning in a legend: how it looks, with a sign or not, and its words. */
export function entry(look, words, sign = null) {
  return h("span.entry", h("i", { class: look }, sign), words);
}

/** A bar as long as its share of a track, 0 to 1: nothing at 0, and else never too short to see.
 * looks: of the bar and of the track. */
export function bar(share, look = "", around = "") {
  const made = h("i", { class: `fill ${look}` });
  made.style.width = `${share > 0 ? Math.max(1, 100 * Math.min(1, share)) : 0}%`;
  return h("span", { class: `track ${around}`, "aria-hidden": "true" }, made);
}

/** Where is said what went wrong: see `say`. */
export function banner(sentence = "") {
  const made = h("p.ds-banner", { role: "alert" });
  say(made, sentence);
  return made;
}

/** A box for a few words to look for. */
export function searchBox(placeholder, label, more = {}) {
  return h("input", {
    type: "text",
    class: "ds-search",
    placeholder,
    "aria-label": label,
    autocomplete: "off",
    spellcheck: "false",
    maxlength: 80,
    ...more,
  });
}

/** A list of [what, its words]. */
export function meanings(entries) {
  const row = ([what, words]) => h("div", h("dt", what), h("dd", words));
  return h("dl", entries.map(row));
}

/** The same for the words of a page, folded. */
export function explained(entries) {
  return h("details.ds-explained", h("summary", "The words on this page"), meanings(entries));
}

/** Keys, and what each does: [keys, words] each. */
export function keyList(keys) {
  const each = (names) => names.split(" ").map((key) => h("kbd", key));
  return meanings(keys.map(([names, words]) => [each(names), words]));
}

/** A dialog over the page that a press outside of it closes. */
export function dialog(label, extra, ...parts) {
  const made = h("dialog", { class: `ds-help ${extra}`.trim(), "aria-label": label }, parts);
  const close = button("Close", {}, () => made.close());
  made.append(h("div.ds-help-foot", close));
  made.addEventListener("click", (event) => event.target === made && made.close());
  return made;
}

/** A table of numbers. heads: words, or [words, what they mean]; a row is [its name, cell, …] and a
 * cell words, an element, a list of them, or a td; lookOf(at): the class of a row. */
export function sheet(label, heads, rows, lookOf = () => null) {
  const head = (each) => {
    const [words, title] = Array.isArray(each) ? each : [each];
    return h(words ? "th" : "td", { title: title || null }, words);
  };
  const cellOf = (cell) => (cell?.localName === "td" ? cell : h("td", cell));
  const line = ([name, ...cells], at) =>
    h("tr", { class: lookOf(at) }, h("th", name), cells.map(cellOf));
  return h(
    "table",
    { "aria-label": label },
    h("thead", h("tr", heads.map(head))),
    h("tbody", rows.map(line)),
  );
}

/** A list to choose from: options as [value, words]. */
export function choice(label, options, onChange) {
  const made = h("select", { "aria-label": label }, optionsOf(options));
  made.addEventListener("change", () => onChange(made.value));
  return made;
}

export function optionsOf(options) {
  return options.map(([value, words]) => h("option", { value }, words));
}

/** A button of a menu. */
export function action(words, title, act) {
  return button(words, { title }, act);
}

/** Everything that can be done with a thing, behind one "⋯". A press outside closes it, and so does
 *  what was chosen, unless that has more to say there (data-stays). */
export function menu(label, items) {
  const words = h("summary", { "aria-label": label, title: label }, "⋯"),
    list = h("div.ds-menu-list", items.flat()),
    made = h("details.ds-menu", words, list);
  const close = () => made.removeAttribute("open"),
    away = (event) => made.contains(event.target) || close();
  made.addEventListener("focusout", (event) => {
    if (event.relatedTarget && !made.contains(event.relatedTarget)) close();
  });
  made.addEventListener("toggle", () => {
    const listen = made.open ? "addEventListener" : "removeEventListener";
    document[listen]("pointerdown", away, { capture: true });
    list.style.right = ""; // where there is no room at its left it goes to the right
    const { left } = list.getBoundingClientRect();
    if (made.open && left < 0) list.style.right = `${left - 8}px`;
  });
  const leave = () => {
    const held = list.contains(document.activeElement);
    close();
    if (held) words.focus(); // what had the focus is hidden
  };
  const chosen = ({ target }) => target.closest("button:not([data-stays])") && leave();
  list.addEventListener("click", chosen, { capture: true }); // a dialog gives the focus back
  made.addEventListener("draftscope-said", leave);
  made.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && made.open) {
      event.stopPropagation();
      close();
      return words.focus();
    }
    const to = entryAfter(event, made, list);
    if (!to) return;
    event.preventDefault();
    event.stopPropagation();
    made.open = true;
    to.focus();
  });
  return made;
}

/** The entry of a menu that a key leads to: down and up go along them, and Tab into them. */
function entryAfter({ key, shiftKey, target }, made, list) {
  const entries = [...list.querySelectorAll("button:enabled")].filter(
      (each) => !made.open || each.checkVisibility(),
    ),
    at = entries.indexOf(target);
  if (key === "Tab" && !shiftKey && made.open && at < 0) return entries[0];
  if (key === "ArrowDown") return entries[(at + 1) % entries.length];
  return key === "ArrowUp" ? entries.at(at < 0 ? -1 : at - 1) : null;
}

/** One number with its name; `title` says what it is. */
export function tile(value, name, title) {
  return h("div.ds-tile", { title }, h("b", String(value)), h("span", name));
}

/** A card of the tabs without trees. label is read aloud; what is shown above it is head. */
export function card(label, head, ...body) {
  return h("section.ds-card.ds-lab", { "aria-label": label }, head && h("header", head), body);
}

/** On a phone only the head of a place is seen, with its main number, until a press on it opens the
 *  rest (phone.css). */
export function folding(place, head) {
  const about = { class: "ds-unfold", "aria-label": "Unfold", "aria-expanded": "false" },
    others = "button:not(.ds-unfold), select, details";
  head.append(button("", about, () => {}));
  head.addEventListener("click", ({ target }) => {
    if (!target.closest(others)) unfold(place, !place.classList.contains("open"));
  });
  place.classList.add("ds-folding");
  return place;
}

/** Open what is folded on a phone, or fold it again. */
export function unfold(place, isOpen = true) {
  place.classList.toggle("open", isOpen);
  place.querySelector(".ds-unfold").setAttribute("aria-expanded", String(isOpen));
}

/** Where cards will stand, as long as the server is asked for them. */
export function awaited() {
  const place = () => h("section.ds-card.ds-lab");
  return h("div.ds-below.ds-awaited", place(), place());
}

/** A button that lets somebody choose a file, and hands it to `take`. */
export function opener(words, attributes, take) {
  const input = h("input", { type: "file" });
  input.addEventListener("change", () => {
    const [file] = input.files;
    input.value = ""; // the same file may be chosen again
    if (file) take(file);
  });
  return button(words, attributes, () => input.click());
}

const SEVERAL = 4; // runs that a view shows at once

/** A box to type into: only lines with all these words stay in sight. lines: [{element}, …];
 * heard(count): how many those are. */
export function wordFilter(label, lines, heard = () => {}) {
  const box = searchBox("Filter", label);
  box.addEventListener("input", () => {
    const wanted = box.value.toLowerCase().split(" ");
    for (const { element } of lines) {
      const text = element.textContent.toLowerCase();
      element.hidden = !wanted.every((word) => text.includes(word));
    }
    heard(lines.filter(({ element }) => !element.hidden).length);
  });
  return box;
}

/** A line's box to tick. */
export function tickBox(label) {
  const title = "Tick two to four to compare them";
  return h("input", { type: "checkbox", "aria-label": `Tick ${label}`, title });
}

/** A button that opens the lines of a list that are ticked, two to four. lines: [{tick}, …], those
 * that cannot be ticked without one. */
export function compareTicked(list, lines, open) {
  const ticked = () => lines.filter(({ tick }) => tick?.checked);
  const together = button("", { hidden: true }, () => open(ticked()));
  list.addEventListener("change", () => {
    const count = ticked().length;
    together.hidden = count < 2;
    together.textContent = `Compare the ${count} ticked`;
    for (const { tick } of lines) if (tick) tick.disabled = count >= SEVERAL && !tick.checked;
  });
  return together;
}
