// The shared text: below each token a line for every run, in the run's colour.

import { roundAt } from "../align.js";
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
    this.tokens = [];
  }

  draw(sides, parts, panes) {
    const count = parts ?? Math.max(...sides.map((tokens) => tokens.length));
    if (count < this.tokens.length || (parts !== null && !this.parted)) this._clear();
    for (let place = 0; place < count; place++) {
      if (place >= this.tokens.length)
        this._add(place, sides.map((tokens) => tokens[place]).find(Boolean));
      this.tokens[place].lines.forEach((mark, side) => this._line(mark, side, sides[side], place));
    }
    if (parts !== null) this._part(sides, parts, panes);
  }

  _clear() {
    this.tokens = [];
    this.parted = null;
    clear(this.element);
  }

  _add(place, token) {
    const lines = Array.from({ length: this.count }, () => h("i", {}));
    const box = h("span", {
      class: "ds-two",
      role: "option",
      "data-place": place,
      "aria-selected": "false",
      "aria-label": unseenName(token.text),
    });
    const text = token.text.split("\n");
    box.append(
      h("span", { class: "ds-two-text" }, text.length > 1 ? text.join("⏎") : token.text || "∅"),
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
      place < tokens.length ? [` · ${panes[side].letter} `, h("b", {}, tokens[place].text)] : [],
    );
    this.parted ??= this.element.appendChild(h("span", { class: "ds-parted" }));
    this.parted.replaceChildren("here the texts part", ...said);
  }

  mark(place, sides) {
    const rounds = sides.map((tokens) => roundAt(tokens, place));
    this.tokens.forEach(({ box, lines }, at) => {
      box.classList.toggle("here", at === place);
      box.setAttribute("aria-selected", String(at === place));
      lines.forEach((line, side) =>
        line.classList.toggle(
          "current",
          rounds[side] >= 0 && roundAt(sides[side], at) === rounds[side],
        ),
      );
    });
    const here = this.tokens[place];
    pointAt(this.element, here?.box);
    if (here) keepInSight(this.element, here.box);
  }
}
