// Two to four runs side by side, stepping by the place in their text: the shared text with a line
// for every run's rounds, a scrubber over places, and the runs' numbers. Which rounds are shown is a
// function of (rounds, place): see align.js.

import { beginnings, contrasts, extent, laid, nextOf, partsAt, roundAt, twin } from "./align.js";
import { PACE, summarise } from "./charts.js";
import { button, clear, h, percent, plural, s, scrub, scrubber } from "./dom.js";
import { answered } from "./feed.js";
import { Measures } from "./measures.js";
import { savers } from "./save.js";
import { CAME, pointAt } from "./strip.js";

export class Together {
  /** changed() is called when another place is shown, or could be. */
  constructor(panes, changed, source) {
    Object.assign(this, { panes, changed, source });
    this.follow = panes.some((pane) => pane.feed.active);
    this.sides = panes.map(() => []);
    this.cautions = null;
    this.linkable = true;
    this.strip = new BandStrip(panes.length, (place) => this.go(place));
    this.lanes = new Lanes(panes.length, (place) => this.go(place));
    this.scrub = scrubber("Token of the text", (to) => this.go(to));
    this.heading = h("h2", { class: "ds-place" });
    this.notes = h("ul", { class: "ds-cautions", role: "status", hidden: true });
    this.table = h("tbody", {});
    this.element = h("div", { class: "ds-guide" }, this._card());
    this.measures = new Measures(panes, source);
    this.below = this.measures.element;
    // The place that was looked at before stays: the round shown begins there.
    this.place = Math.max(
      0,
      laid(panes[0].rounds).findIndex((token) => token.round === panes[0].at),
    );
  }

  enter() {
    this.take();
    this._share(); // the same rounds, but other runs beside them
  }

  _card() {
    const line = (side, words) =>
      h("span", { class: "entry" }, h("i", { class: `ds-line ${side}` }), words);
    this.differ = button(
      "≠ next",
      {
        class: "ds-differ",
        title: "Next place where the acceptance differs (d)",
        "aria-label": "Next place where the acceptance differs",
      },
      () => this.stepContrast(1),
    );
    this.count = h("span", { class: "ds-soft" });
    const letters = this.panes.map((pane) => pane.letter).join(", ");
    const head = (name, title) => h("th", { title }, name);
    return h(
      "section",
      { class: "ds-card ds-compare", "aria-label": "Runs on one text" },
      h(
        "header",
        {},
        h("h2", {}, "Text"),
        h(
          "span",
          { class: "ds-key" },
          h("span", { class: "entry" }, `below each token, from the top: ${letters}`),
          line("solid", "accepted"),
          line("dashed", "bonus"),
          h("span", { class: "entry" }, h("i", { class: "ds-line tick" }), "a round begins"),
        ),
        h("span", { class: "ds-spring" }),
        this.count,
        this.differ,
      ),
      this.notes,
      this.strip.element,
      h(
        "div",
        { class: "ds-pair" },
        h("div", { class: "ds-lanes-box" }, this.lanes.element, this.scrub),
        h(
          "div",
          { class: "ds-table" },
          h(
            "table",
            {},
            h(
              "thead",
              {},
              h(
                "tr",
                {},
                head("", ""),
                head("τ", "block efficiency: accepted nodes + 1, mean over rounds"),
                head("tokens/s", PACE),
                head("accepted", "accepted nodes by drafted nodes"),
                head("rounds", "one forward pass of the target each"),
                head("this token", "how the token at this place came"),
              ),
            ),
            this.table,
          ),
          savers("Runs on one text", () => this._records(), this.source),
        ),
      ),
    );
  }

  /** The numbers of the table, a line a run. */
  _records() {
    return this.panes.map((pane, side) => {
      const sum = summarise(pane.rounds),
        token = this.sides[side][this.place];
      return {
        run: pane.letter,
        method: pane.title,
        tau: sum.tau,
        tokens_per_second: sum.speed,
        accepted: sum.accepted,
        drafted: sum.drafted,
        rounds: sum.rounds,
        place: this.place + 1,
        token: token ? CAME[token.came] : null,
      };
    });
  }

  // ── where we are ───────────────────────────────────────────────────────────────────────────

  get titles() {
    return [this.heading];
  }

  get words() {
    return (
      `token ${this.place + 1} of ${this.reachable}, ` +
      this.panes.map((pane) => `${pane.letter} ${pane.kind}`).join(", ")
    );
  }

  get atStart() {
    return this.place <= 0;
  }

  get atEnd() {
    return nextOf(this.stops, this.place, 1) === null;
  }

  /** To the next place where any run begins a round. */
  step(by) {
    const to = nextOf(this.stops, this.place, by);
    if (to !== null) this.go(to);
  }

  stepContrast(by) {
    const to = nextOf(this.unlike, this.place, by);
    if (to !== null) this.go(to);
  }

  home() {
    this.go(0);
  }

  end() {
    this.go(this.reachable - 1);
  }

  go(place) {
    this.follow = false;
    this._show(place);
  }

  /** To where round number `at` of the first run begins. */
  reach(at) {
    this.go(this.sides[0].findIndex((token) => token.round === at));
  }

  live() {
    this.follow = true;
    this._show(this._latest());
  }

  /** The last place of the run that is being decoded, else of the text. */
  _latest() {
    const busy = this.panes.findIndex((pane) => pane.feed.active && pane.rounds.length);
    return (busy >= 0 ? Math.min(this.sides[busy].length, this.reachable) : this.reachable) - 1;
  }

  // ── what has come ──────────────────────────────────────────────────────────────────────────

  take() {
    this.sides = this.panes.map((pane) => laid(pane.rounds));
    this.parts = partsAt(...this.sides);
    this.reachable = Math.max(1, extent(...this.sides)); // the first rounds can always be looked at
    this.stops = beginnings(this.sides, this.reachable);
    this.unlike = contrasts(this.sides, this.reachable);
    this.strip.draw(this.sides, this.parts, this.panes);
    this.lanes.draw(this.sides, this.reachable, this.panes);
    this._ask();
    // A run that is being decoded is followed; opened traces stay where they are.
    const sources = this.panes.map((pane) => pane.feed.run?.source);
    if (sources.every((source) => source === "file")) this.follow = false;
    this._show(this.follow && sources.every(Boolean) ? this._latest() : this.place);
    this.measures.stale();
  }

  settle() {
    this.take();
    this.follow = this.follow && this.panes.some((pane) => pane.feed.active);
    this._draw();
  }

  /** Once, when all headers are there. */
  async _ask() {
    if (this.cautions || !this.panes.every((pane) => pane.feed.header)) return;
    this.cautions = [];
    const answer = await answered(
      this.source.compare({ tickets: this.panes.map((pane) => pane.feed.ticket) }),
    );
    this.cautions = answer.error
      ? [`it is not known whether these runs can be compared: ${answer.error}`]
      : answer.cautions;
    this.linkable = answer.linkable !== false;
    this._share();
    this._note();
  }

  _show(place) {
    this.place = Math.max(0, Math.min(this.reachable - 1, place));
    let moved = false;
    this.panes.forEach((pane, side) => {
      const at = roundAt(this.sides[side], this.place);
      const other = at < 0 || at !== pane.at || !pane.shown;
      if (at >= 0 && other) pane.show(at);
      if (at < 0) pane.blank(this._absence(pane));
      moved = moved || other;
    });
    if (moved) this._share();
    this._draw();
  }

  _absence(pane) {
    if (pane.feed.active)
      return pane.rounds.length ? "This token is not decoded yet." : "This run waits for its turn.";
    return pane.rounds.length ? "This run ended before this token." : "This run has no rounds.";
  }

  _draw() {
    const token = this.sides.map((side) => side[this.place]).find(Boolean);
    this.heading.textContent = `Token ${this.place + 1} of ${this.reachable} `;
    if (token) this.heading.append(h("small", {}, `“${token.text.replace(/\n/g, "⏎")}”`));
    this.strip.mark(this.place, this.sides);
    this.lanes.mark(this.place);
    this.scrub.disabled = this.reachable < 2;
    this.scrub.max = String(this.reachable - 1);
    this.scrub.value = String(this.place);
    this.scrub.setAttribute("aria-valuetext", `token ${this.place + 1} of ${this.reachable}`);
    this.differ.disabled = nextOf(this.unlike, this.place, 1) === null;
    this.count.textContent = `acceptance differs at ${plural(this.unlike.length, "token")}`;
    this._numbers();
    this._note();
    this.changed();
  }

  _numbers() {
    const rows = this.panes.map((pane, side) => {
      const sum = summarise(pane.rounds),
        token = this.sides[side][this.place];
      const cell = (value) => h("td", {}, value);
      return h(
        "tr",
        {},
        h("th", {}, h("i", { class: "ds-letter" }, pane.letter), pane.title),
        cell(sum.rounds ? sum.tau.toFixed(2) : "–"),
        cell(sum.speed === null ? "–" : sum.speed.toFixed(1)),
        cell(sum.drafted ? `${percent(sum.accepted / sum.drafted)} of ${sum.drafted}` : "–"),
        cell(String(sum.rounds)),
        cell(token ? `${{ a: "✓ ", b: "◇ ", p: "● " }[token.came]}${CAME[token.came]}` : "–"),
      );
    });
    this.table.replaceChildren(...rows);
  }

  /** What cannot be compared, plainly. */
  _note() {
    const found = [...(this.cautions || [])];
    if (this.parts === 0)
      found.unshift(
        "the texts differ from the first token on: no two places belong together, so only the first rounds are shown",
      );
    else if (this.parts !== null)
      found.unshift(
        `the texts differ from token ${this.parts + 1} on: only the ${plural(this.parts, "token")} before it are compared`,
      );
    this.notes.hidden = !found.length;
    this.notes.replaceChildren(...found.map((sentence) => h("li", {}, `⚠ ${sentence}`)));
  }

  // ── the same node elsewhere ────────────────────────────────────────────────────────────────

  _side(pane) {
    const side = this.panes.indexOf(pane);
    return { rounds: pane.rounds, at: pane.at, tokens: this.sides[side] };
  }

  /** The node of `other` that stands for the same text as a row of `pane`, or null. */
  _twin(pane, row, other) {
    if (!this.linkable || this.parts === 0 || !pane.shown || !other.shown || row === null)
      return null;
    return twin(this._side(pane), row, this._side(other));
  }

  /** A node is pointed at or selected: its counterparts are marked in the other trees. */
  point(pane, row) {
    for (const other of this.panes)
      if (other !== pane) other.tree.mark(this._twin(pane, row, other));
  }

  /** The counterparts of the selected node, in words. */
  pointed(pane, row) {
    const told = this.panes
      .filter((other) => other !== pane)
      .map((other) => {
        const there = this._twin(pane, row, other);
        return there === null ? `not in ${other.letter}` : `also in ${other.letter}`;
      });
    return told.join(", ");
  }

  /** How many of each tree's nodes another one has too. */
  _share() {
    for (const pane of this.panes) {
      const told = [];
      for (const other of this.panes) {
        if (other === pane || !pane.shown || !other.shown || pane.drafted === 0) continue;
        let both = 0;
        for (let row = 1; row <= pane.drafted; row++)
          if (this._twin(pane, row, other) !== null) both += 1;
        told.push(`${both} in ${other.letter}`);
      }
      pane.shared.textContent =
        told.length && this.linkable && this.parts !== 0 ? `of its nodes ${told.join(", ")}` : "";
    }
  }
}

/** The shared text: below each token a line for every run. */
class BandStrip {
  constructor(count, onPick) {
    this.count = count;
    this.element = h("div", {
      class: "ds-strip ds-pair-strip",
      role: "listbox",
      tabindex: 0,
      "aria-label": "The shared text, token by token",
    });
    this.tokens = [];
    this.element.addEventListener("click", (event) => {
      const token = event.target.closest("[data-place]");
      if (token) onPick(Number(token.getAttribute("data-place")));
    });
  }

  draw(sides, parts, panes) {
    const count = parts ?? Math.max(...sides.map((tokens) => tokens.length));
    if (count < this.tokens.length || (parts !== null && !this.parted)) this._clear();
    for (let place = 0; place < count; place++) {
      if (place >= this.tokens.length)
        this._add(place, sides.map((tokens) => tokens[place]).find(Boolean));
      this.tokens[place].lines.forEach((mark, side) => this._line(mark, sides[side], place));
    }
    if (parts !== null && !this.parted) this._part(sides, parts, panes);
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
  _line(mark, tokens, place) {
    const token = tokens[place],
      begins = token && (place === 0 || tokens[place - 1].round !== token.round);
    const odd = token && token.round % 2 ? " odd" : "";
    const wanted = token ? `${CAME[token.came]}${odd}${begins ? " begins" : ""}` : "none";
    if (mark.getAttribute("class") !== wanted) mark.setAttribute("class", wanted);
  }

  _part(sides, place, panes) {
    const said = sides.flatMap((tokens, side) =>
      place < tokens.length ? [` · ${panes[side].letter} `, h("b", {}, tokens[place].text)] : [],
    );
    this.parted = h("span", { class: "ds-parted" }, "⑂ here the texts part", ...said);
    this.element.append(this.parted);
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
    if (!here) return;
    const top = here.box.offsetTop,
      view = this.element;
    if (top < view.scrollTop) view.scrollTop = top - 8;
    const bottom = top + here.box.offsetHeight;
    if (bottom > view.scrollTop + view.clientHeight)
      view.scrollTop = bottom - view.clientHeight + 8;
  }
}

/** All runs' rounds over the whole text: one lane each, a box per round. */
class Lanes {
  constructor(count, onPick) {
    this.svg = s("svg", { class: "ds-lanes", "aria-hidden": "true", preserveAspectRatio: "none" });
    this.svg.style.height = `${4 + 16 * count}px`;
    this.names = h("div", { class: "ds-lane-names", "aria-hidden": "true" });
    this.element = h("div", { class: "ds-lanes-row" }, this.names, this.svg);
    scrub(this.svg, (share) => onPick(Math.floor(share * this.reach)));
  }

  draw(sides, reach, panes) {
    const height = 4 + 16 * sides.length;
    this.reach = reach;
    this.names.replaceChildren(...panes.map((pane) => h("span", {}, pane.letter)));
    this.svg.setAttribute("viewBox", `0 0 ${reach} ${height}`);
    this.here = s("rect", { class: "here", y: 0, width: 1, height, x: 0 });
    const lanes = sides.flatMap((tokens, side) => {
      const top = 3 + 16 * side,
        shapes = { a: "", b: "", p: "" },
        starts = [];
      tokens.slice(0, reach).forEach((token, place) => {
        shapes[token.came] += `M${place} ${top}h1v12h-1z`;
        if (place && tokens[place - 1].round !== token.round)
          starts.push(`M${place} ${top - 1}v14`);
      });
      return [
        s("path", { class: "accepted", d: shapes.a }),
        s("path", { class: "bonus", d: shapes.b + shapes.p }),
        s("path", { class: "starts", d: starts.join("") }),
      ];
    });
    this.svg.replaceChildren(...lanes, this.here);
  }

  mark(place) {
    this.here.setAttribute("x", String(place));
  }
}
