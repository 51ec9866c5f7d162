// The shared text: below each token a line for every run, in the run's colour.

import { placesOf } from "../align.js";
import { clear, h } from "../dom.js";
import { slot } from "../parts.js";
import { CAME, keepInSight, pointAt, tokenList, unseenName } from "../strip.js";

export class BandStrip {
  constructor(count, onPick) {
    this.count = count;
    const about = {
      class: "ds-strip ds-pair-strip",
      "aria-label": "The shared text, token by token",
    };
    this.element = tokenList(about, "place", (place) => onPick(place));
    this._clear();
  }

  /** Draw what has come: rounds never change, so the places before it stay as they are. */
  draw(sides, parts, panes) {
    const count = parts ?? Math.max(...sides.map((tokens) => tokens.length)),
      isShorter = sides.some((tokens, side) => tokens.length < this.known[side]);
    if (isShorter || count < this.tokens.length || (parts !== null && !this.parted)) this._clear();
    const news = this.known.filter((known, side) => known < sides[side].length);
    this.known = sides.map((tokens) => tokens.length);
    for (let place = Math.min(count, ...news); place < count; place++) {
      if (place >= this.tokens.length)
        this._add(place, sides.map((tokens) => tokens[place]).find(Boolean));
      this.tokens[place].lines.forEach((mark, side) => this._line(mark, side, sides[side], place));
    }
    if (parts !== null) this._part(sides, parts, panes);
  }

  _clear() {
    this.tokens = [];
    this.known = Array(this.count).fill(0); // tokens of each run that are drawn
    this.current = []; // the lines of the rounds at the place on view
    this.here = null; // the token there
    this.parted = null;
    clear(this.element);
  }

  _add(place, token) {
    const lines = Array.from({ length: this.count }, () => h("i"));
    const box = h("span.ds-two", {
      role: "option",
      "data-place": place,
      "aria-selected": "false",
      "aria-label": unseenName(token.text),
    });
    const text = token.text.split("\n");
    box.append(
      h("span.ds-two-text", text.length > 1 ? text.join("⏎") : token.text || "∅"),
      ...lines,
    );
    this.element.append(box);
    if (text.length > 1) this.element.append(h("br"));
    this.tokens.push({ box, lines });
  }

  /** How the token came in one run, and whether a round begins with it. */
  _line(mark, side, tokens, place) {
    const token = tokens[place],
      begins = token && (place === 0 || tokens[place - 1].round !== token.round);
    const odd = token && token.round % 2 ? " odd" : "";
    const how = token ? `${CAME[token.came]}${odd}${begins ? " begins" : ""}` : "none";
    const wanted = `${slot(side)} ${how}`;
    if (mark.getAttribute("class") !== wanted) mark.setAttribute("class", wanted);
  }

  _part(sides, place, panes) {
    const said = sides.flatMap((tokens, side) =>
      place < tokens.length ? [` · ${panes[side].letter} `, h("b", tokens[place].text)] : [],
    );
    this.parted ??= this.element.appendChild(h("span.ds-parted"));
    this.parted.replaceChildren("here the texts part", ...said);
  }

  mark(place, sides) {
    this._markHere(false);
    this.here = this.tokens[place]?.box ?? null;
    this.current = sides.flatMap((tokens, side) =>
      placesOf(tokens, place).flatMap((at) => this.tokens[at]?.lines[side] ?? []),
    );
    this._markHere(true);
    pointAt(this.element, this.here);
    if (this.here) keepInSight(this.element, this.here);
  }

  _markHere(on) {
    this.here?.classList.toggle("here", on);
    this.here?.setAttribute("aria-selected", String(on));
    for (const line of this.current) line.classList.toggle("current", on);
  }
}
