// Two to four runs side by side, stepping by the place in their text: the shared text with a line
// for every run's rounds, a scrubber over places, and the runs' numbers. Which rounds are shown is
// a function of (rounds, place): see align.js.

import { beginnings, contrasts, extent, laid, nextOf, partsAt, roundAt } from "../align.js";
import { h, scrubber, scrubTo } from "../dom.js";
import { answered, NO_ROUNDS } from "../feed.js";
import { boxAt, Lanes, startAt } from "../lanes.js";
import { Measures } from "../measures.js";
import { sign, slot } from "../parts.js";
import { Turns } from "../turns.js";
import { Beside, rowAt } from "./beside.js";
import { Card } from "./card.js";
import { columnsOf, needsSlim } from "./columns.js";
import { markTwins, sayShared, twinWords } from "./links.js";
import { BandStrip } from "./text.js";

export class Together {
  /** changed() is called when another place is shown, or could be. isWanted(): these are the runs
   *  on view. */
  constructor(panes, changed, source, isWanted) {
    Object.assign(this, { panes, changed, source, isWanted });
    this.follow = panes.some((pane) => pane.feed.active);
    this.chosen = 0; // how often a place was gone to
    this.going = null; // the place that is shown as soon as its trees are here
    this.shows = new Turns();
    this.sides = panes.map(() => []);
    this.cautions = null; // until the server has told them
    this.linkable = true;
    this.strip = new BandStrip(panes.length, (place) => this.go(place));
    this.lanes = new Lanes((place) => this.go(place));
    this.scrub = scrubber("Token of the text", (to) => this.go(to));
    this.heading = h("h2.ds-place.ds-cut");
    this.prompts = panes.map(() => 0);
    this.unlike = [];
    this.card = new Card(this, () => this.stepContrast(1));
    this.element = h("div.ds-guide", this.card.element);
    this.beside = new Beside(this, source);
    this.aside = this.beside.element;
    this.measures = new Measures(panes, source);
    this.below = this.measures.element;
    for (const pane of panes) {
      pane.spined = false;
      pane.tree.onMove = () => this._follow(pane);
      pane.tree.onSize = () => this._stand(true);
    }
    // The place that was looked at before stays: the round shown begins there.
    this.place = Math.max(
      0,
      laid(panes[0].rounds).findIndex((token) => token.round === panes[0].at),
    );
  }

  enter() {
    for (const pane of this.panes) pane.own.close();
    this.take();
    sayShared(this); // the same rounds, but other runs beside them
  }

  // ── where we are ───────────────────────────────────────────────────────────────────────────

  get titles() {
    return [this.card.differ, this.heading, this.card.count];
  }

  /** The legend's entries for the text. */
  get key() {
    return this.card.key;
  }

  get words() {
    return [this.where, ...this.panes.map(({ letter, kind }) => `${letter} ${kind}`)].join(", ");
  }

  /** Which token is on view, in words. */
  get where() {
    if (this.sides.some((tokens) => tokens.length))
      return `token ${this.place + 1} of ${this.reachable}`;
    return this.panes.some(({ feed }) => feed.active) ? "no token yet" : "no token";
  }

  get atStart() {
    return this.place <= 0;
  }

  get atEnd() {
    return nextOf(this.stops, this.place, 1) === null;
  }

  /** To the next place where any run begins a round. */
  step(by) {
    const to = nextOf(this.stops, this.going ?? this.place, by);
    if (to !== null) this.go(to);
  }

  stepContrast(by) {
    const to = nextOf(this.unlike, this.going ?? this.place, by);
    if (to !== null) this.go(to);
  }

  home() {
    this.go(0);
  }

  end() {
    this.go(this.reachable - 1);
  }

  /** Go to a place; gives whether it is shown, as a promise. */
  go(place) {
    this.follow = false;
    this.chosen += 1;
    return this._show(place);
  }

  /** To where round number `at` of a run begins. It cannot be shown where it lies behind the place
   *  where the texts part, nor when it added no token. */
  reach(at, pane = this.panes[0]) {
    const side = this.sides[this.panes.indexOf(pane)],
      place = side.findIndex((token) => token.round === at),
      can = place >= 0 && place < this.reachable;
    return can && this.go(place);
  }

  /** Whether a place, from 1, can be shown, and a run has come as far if it does. */
  holds(place, pane) {
    const isComing = pane.feed.active && this.sides[this.panes.indexOf(pane)].length < place;
    return place <= this.reachable && !isComing;
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
    this.lanes.draw(
      this.reachable,
      this.panes.map(({ letter }) => sign(letter)),
      this.sides.map((tokens, side) => laneOf(tokens.slice(0, this.reachable), side)),
    );
    this._ask();
    // A run that is being decoded is followed; opened traces stay where they are.
    const sources = this.panes.map((pane) => pane.feed.run?.source);
    if (sources.every((source) => source === "file")) this.follow = false;
    const stays = this.going ?? this.place;
    this._show(this.follow && sources.every(Boolean) ? this._latest() : stays);
    this.measures.stale();
  }

  /** Opened traces stay where they are. */
  goesOn() {}

  settle() {
    this.take();
    this.follow = this.follow && this.panes.some((pane) => pane.feed.active);
    this._draw();
  }

  /** Once, when all headers are there. */
  async _ask() {
    if (this.isAsked || !this.panes.every((pane) => pane.feed.header)) return;
    this.isAsked = true;
    const answer = await answered(
      this.source.compare({ tickets: this.panes.map((pane) => pane.feed.ticket) }),
    );
    if (!this.isWanted()) return;
    this.cautions = answer.error
      ? [`it is not known whether these runs can be compared: ${answer.error}`]
      : answer.cautions;
    this.linkable = answer.linkable !== false;
    this.panes.forEach((pane, at) => {
      pane.apart = answer.apart?.[at] ?? "";
      pane.name.textContent = pane.title;
    });
    if (answer.prompts?.length) this.prompts = answer.prompts;
    sayShared(this);
    this._draw();
  }

  /** Whether all is there that takes room on the page. */
  get isHere() {
    return (this.cautions || !this.isAsked) && this.panes.every((pane) => pane.isHere);
  }

  /** Show a place once the trees there are here; null: another one was wanted meanwhile. */
  async _show(place) {
    const to = Math.max(0, Math.min(this.reachable - 1, place)),
      isWanted = this.shows.take(),
      here = this.panes.map(({ trees }, side) => {
        const at = roundAt(this.sides[side], to);
        return at < 0 || trees.want(at);
      });
    if (here.some((each) => each !== true)) {
      this.going = to;
      this._draw();
      const came = await Promise.all(here);
      if (!isWanted()) return null;
      this.going = null;
      if (!came.every(Boolean)) return null;
    }
    this._stay(to);
    return true;
  }

  /** Draw the rounds at a place. */
  _stay(place) {
    const asked = this.beside.pane; // what the inspector shows follows the place
    let moved = false,
      isOther = place !== this.place;
    Object.assign(this, { place, going: null });
    this.strip.mark(place, this.sides); // all is measured before anything is changed
    for (const { tree } of this.panes) tree.window.measure();
    this.panes.forEach((pane, side) => {
      const at = roundAt(this.sides[side], this.place);
      const other = at < 0 || at !== pane.at || !pane.shown;
      if (at >= 0 && other) pane.show(at);
      if (at < 0) pane.blank(this._absence(pane));
      moved = moved || other;
      isOther = isOther || (other && pane === asked);
    });
    if (moved) sayShared(this);
    this._stand(moved);
    this._draw();
    if (isOther && asked?.shown) this._inspect(asked);
  }

  /** The token of this place in the inspector, which may have been closed on the way. */
  _inspect(pane) {
    if (!pane.inspector.open) pane.inspector.wait("…");
    pane.select(rowAt(this.sides[this.panes.indexOf(pane)], this.place));
  }

  /** All trees in the same columns, with this place in sight. While nothing is another, they stay
   *  where somebody moved them. */
  _stand(moved) {
    const shown = this.panes.map((pane) =>
      pane.shown ? { rounds: pane.rounds, at: pane.at } : null,
    );
    const columns = columnsOf(shown, this.sides, this.place, this.parts);
    const said = JSON.stringify(columns);
    if (!moved && said === this.standing) return;
    this.standing = said;
    const there = this.panes.filter((pane) => pane.shown);
    const slim = needsSlim(
      there.map((pane) => pane.tree.window.size),
      Math.max(...columns.map((each) => each?.wide ?? 0)),
    );
    for (const pane of there) pane.tree.reshape(slim);
    const trees = there.map((pane) => pane.tree),
      tall = Math.max(0, ...trees.map((tree) => tree.plan.height));
    this.panes.forEach((pane, at) => {
      if (columns[at]) pane.tree.stand({ ...columns[at], tall, trees });
    });
  }

  /** A tree was moved or zoomed: the others show the same columns. */
  _follow(moved) {
    for (const pane of this.panes)
      if (pane !== moved && pane.shown) pane.tree.window.follow(moved.tree.window);
  }

  _absence(pane) {
    if (pane.feed.active)
      return pane.rounds.length ? "This token is not decoded yet." : "This run waits for its turn.";
    return pane.rounds.length
      ? "This run ended before this token."
      : pane.feed.emptiness || NO_ROUNDS;
  }

  _draw() {
    const token = this.sides.map((side) => side[this.place]).find(Boolean),
      { where } = this;
    this.heading.textContent = `${where[0].toUpperCase()}${where.slice(1)} `;
    if (token) this.heading.append(h("small", `“${token.text.replace(/\n/g, "⏎")}”`));
    this.lanes.mark(token ? this.place : -1); // out of sight
    scrubTo(this.scrub, this.place, this.reachable, where);
    this.card.draw();
    this.changed();
  }

  // ── the same node elsewhere ────────────────────────────────────────────────────────────────

  point(pane, row) {
    markTwins(this, pane, row);
  }

  pointed(pane, row) {
    return twinWords(this, pane, row);
  }
}

/** The lane of a run: how its tokens came, and where its rounds begin. */
function laneOf(tokens, side) {
  const boxes = { a: [], b: [], p: [] },
    starts = [];
  tokens.forEach(({ came, round }, place) => {
    boxes[came].push(boxAt(place));
    if (place && tokens[place - 1].round !== round) starts.push(startAt(place));
  });
  return [
    [`accepted ${slot(side)}`, boxes.a],
    [`bonus ${slot(side)}`, [...boxes.b, ...boxes.p]],
    ["starts", starts],
  ];
}
