// The text as a strip of tokens, one band per round. How a token came has a colour and an
// underline: drafted and accepted (solid), bonus (dashed), the prompt's own first token (double).

import { h, onRest } from "./dom.js";

export const CAME = { p: "prefill", a: "accepted", b: "bonus" };
const CAME_WORDS = {
  p: "the first token, from the prompt's own forward pass",
  a: "drafted and accepted",
  b: "bonus: the target's token where the walk stopped",
};

const UNSEEN = { " ": "space", "\n": "line break", "\t": "tab" };

/** The name of a token that has nothing to see; null for one whose text says it. */
export function unseenName(text) {
  if (text.trim()) return null;
  const parts = [...text].map((each) => UNSEEN[each] ?? "blank");
  return parts.join(" ") || "no text";
}

let pointedAt = 0; // options so far: their ids stay apart

/** Tell screen readers which option of a list is the current one, if any is. */
export function pointAt(list, option) {
  if (!option) return list.removeAttribute("aria-activedescendant");
  option.id = option.id || `ds-option-${++pointedAt}`;
  list.setAttribute("aria-activedescendant", option.id);
}

/** A text as a list of tokens, each with a number as its data-NAME. about: further attributes;
 * onPick(number, token) when one is clicked. */
export function tokenList(about, name, onPick) {
  const made = h("div", {
    class: "ds-strip",
    role: "listbox",
    tabindex: 0,
    "aria-label": "The text, token by token",
    ...about,
  });
  made.addEventListener("click", (event) => {
    const token = event.target.closest(`[data-${name}]`);
    if (token) onPick(Number(token.getAttribute(`data-${name}`)), token);
  });
  return made;
}

/** A token of such a list; about: its number, and further attributes. */
export function tokenOption(look, text, about, parts = linesOf(text)) {
  const usual = { role: "option", "aria-selected": "false", "aria-label": unseenName(text) };
  const kept = WORD.test(text) ? " word" : "";
  return h("span", { class: `ds-token ${look}${kept}`, ...usual, ...about }, parts);
}

// A word stays beside its space: a space alone at a line's end would show a piece of its box there.
const WORD = /^ \S{1,30}$/;

/** Where a line may end before a token. */
function lineEnd(text) {
  return WORD.test(text) ? [h("wbr")] : [];
}

/** A text with its line breaks, each with a sign. */
function linesOf(text) {
  const sign = () => [h("span.ds-newline", { "aria-hidden": "true" }, "⏎"), h("br")];
  return text.split("\n").flatMap((line, at) => [...(at ? sign() : []), line || null]);
}

/** Scroll a list by whole lines until a part of it is in sight, with what comes after it. */
export function keepInSight(list, part) {
  const line = part.offsetTop - list.querySelector("[role=option]").offsetTop;
  const above = part.offsetTop < list.scrollTop;
  const below = part.offsetTop + part.offsetHeight > list.scrollTop + list.clientHeight;
  if (above || below) list.scrollTop = line;
}

export class Strip {
  /** onPick(roundNumber, row) when a token is clicked; onRange(roundNumber, event) when one is
   * pressed with Shift, or a hand is drawn over it then. */
  constructor(onPick, onRange) {
    this.bands = [];
    let isRange = false;
    this.element = tokenList(
      { "aria-multiselectable": "true" },
      "round",
      (round, token) => isRange || onPick(round, Number(token.getAttribute("data-row"))),
    );
    const over = (event) => {
      const token = event.target.closest("[data-round]");
      if (token) isRange = onRange(Number(token.getAttribute("data-round")), event);
    };
    this.element.addEventListener("pointerdown", over);
    onRest(this.element, over);
    this.element.addEventListener(
      "pointermove",
      (event) => event.buttons && isRange && over(event),
    );
    // Else the browser selects the words between.
    this.element.addEventListener("mousedown", (event) => event.shiftKey && event.preventDefault());
  }

  /** Add the tokens of rounds, the first of them number `first`. The page is measured once: for
   * each round anew, a long run would be laid out thousands of times. */
  append(rounds, first) {
    const atEnd =
      this.element.scrollHeight - this.element.scrollTop - this.element.clientHeight < 60;
    const bands = rounds.map((round, i) => this._band(round, first + i));
    this.bands.push(...bands);
    const ends = rounds.map((round) => lineEnd(round.text[0]?.[0] ?? ""));
    this.element.append(...bands.flatMap((band, i) => [...ends[i], band]));
    if (atEnd) this.element.scrollTop = this.element.scrollHeight;
  }

  _band(round, at) {
    const band = h("span", { class: `ds-band${at % 2 ? " odd" : ""}` });
    for (const [i, [text, came, row]] of round.text.entries()) {
      const title = `round ${at + 1}: ${CAME_WORDS[came]}`,
        about = { "data-round": at, "data-row": row, title };
      band.append(...(i ? lineEnd(text) : []), tokenOption(CAME[came], text, about));
    }
    return band;
  }

  mark(at) {
    const band = this.bands[at];
    if (band) keepInSight(this.element, band); // it measures: before anything is changed
    this._select(false);
    this.current = band;
    pointAt(this.element, band?.firstChild);
    this._select(true);
  }

  /** Mark the bands of rounds that are selected. */
  choose(numbers) {
    const chosen = new Set(numbers);
    this.bands.forEach((band, at) => band.classList.toggle("chosen", chosen.has(at)));
  }

  _select(chosen) {
    this.current?.classList.toggle("current", chosen);
    for (const token of this.current?.querySelectorAll("[role=option]") ?? [])
      token.setAttribute("aria-selected", String(chosen));
  }
}
