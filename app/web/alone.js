// One run: its text as a strip, its rounds as bars and a scrubber, its numbers. What is shown is a
// function of (rounds, at); the tree itself is the pane's.

import { LengthChart, summarise, Tiles, took } from "./charts.js";
import { duration, h, ranging, scrubber, scrubTo, tool } from "./dom.js";
import { Measures, Timeline } from "./measures.js";
import { Strip } from "./strip.js";

const BIG = 300; // a tree of more nodes is redrawn less often while it streams

export class Alone {
  /** changed() is called when another round is shown, or could be. rounds: the table of them, where
   *  a range is selected. opensAt(pane): the round at which a recorded run is shown first. */
  constructor(pane, changed, source, rounds, opensAt) {
    Object.assign(this, { pane, changed, opensAt });
    this.follow = true; // null: if its file turns out to be still written
    this.chosen = 0; // how often a round was gone to
    this.going = null; // the round that is shown as soon as its tree is here
    this.drawn = 0;
    const here = () => Math.max(0, pane.at),
      range = ranging(here, (from, to) => rounds.select(from, to));
    const onBar = (at, event) => range(at, event) || this.go(at);
    this.strip = new Strip((at, row) => this.go(at, row), range);
    this.lengths = new LengthChart(onBar);
    this.timeline = new Timeline(onBar);
    this.measures = new Measures([pane], source);
    this.below = h("div.ds-below", this.timeline.element, this.measures.element);
    this.range = h("div.ds-range", { hidden: true });
    this.leave = tool("×", "Let go of these rounds", () => rounds.leave(), "Esc");
    this.tiles = new Tiles();
    this.took = h("span.ds-soft", { title: "the time of all its stages; Stages shows each" });
    this.element = h("div.ds-guide", this._card());
  }

  /** Begin with what the pane already holds. */
  enter() {
    this.pane.alone();
    this.measures.stale();
    this.strip.append(this.pane.rounds, 0);
    if (this.pane.shown) this._show(this.pane.at);
    else if (this.pane.rounds.length) this._reach(this.opensAt(this.pane));
    else this._draw();
  }

  /** The text, its rounds as bars, and the run's numbers. */
  _card() {
    this.scrub = scrubber("Round", (to) => this.go(to));
    const title = "accepted nodes of each round, and the bonus token";
    const chart = h("div.ds-chart", { title }, this.lengths.element, this.scrub);
    const about = { class: "ds-card ds-text", "aria-label": "Text and rounds" };
    return h("section", about, this.strip.element, chart, this.tiles.element, this.range);
  }

  /** Mark the rows of rounds that are selected; lines(): what they say together, as elements. */
  selected(rows, lines) {
    const numbers = rows.map(({ at }) => at);
    this.strip.choose(numbers);
    for (const { bars } of [this.lengths, this.timeline]) bars.choose(numbers);
    this.range.hidden = !rows.length;
    this.range.replaceChildren(...(rows.length ? [...lines(), this.leave] : []));
  }

  // ── where we are ───────────────────────────────────────────────────────────────────────────

  get titles() {
    return [this.pane.heading, this.took];
  }

  get key() {
    return [];
  }

  /** Whether there is something to see, or why there is nothing. */
  get isHere() {
    return this.pane.isHere;
  }

  get words() {
    return `round ${this.pane.at + 1} of ${this.pane.rounds.length}, ${this.pane.kind}`;
  }

  get atStart() {
    return this.pane.at <= 0;
  }

  get atEnd() {
    return this.pane.at >= this.pane.rounds.length - 1;
  }

  step(by) {
    this.go((this.going ?? this.pane.at) + by);
  }

  home() {
    this.go(0);
  }

  end() {
    this.go(this.pane.rounds.length - 1);
  }

  /** Go to a round, and there to a row; gives whether it is shown, as a promise. */
  async go(at, row) {
    const count = this.pane.rounds.length;
    if (!count) return false;
    const to = Math.max(0, Math.min(count - 1, at));
    this.chosen += 1;
    this.follow = this.pane.feed.decoding && to === count - 1 && row === undefined;
    const isShown = await this._reach(to);
    if (isShown && row !== undefined) this.pane.select(row);
    return isShown;
  }

  reach(at) {
    return this.go(at);
  }

  /** Show a round once its tree is here; null: another one was wanted meanwhile. */
  async _reach(at) {
    const isHere = this.pane.trees.want(at);
    this.going = at;
    if (isHere !== true) this._draw();
    const isShown = isHere === true || (await isHere);
    if (this.going === at) this.going = null;
    if (!isShown) return null;
    if (at !== this.pane.at) this._show(at);
    else this._draw();
    return true;
  }

  live() {
    this.follow = this.pane.feed.decoding;
    if (this.pane.rounds.length) this._reach(this.pane.rounds.length - 1);
  }

  // ── what has come ──────────────────────────────────────────────────────────────────────────

  /** Rounds from number `first` on have come. */
  take(_pane, first) {
    this.strip.append(this.pane.rounds.slice(first), first);
    this.measures.stale();
    this.pane.tree.grown();
    const isNew = this.pane.at < 0 && this.going === null;
    if (this.pane.rounds.length > first && (isNew || this.follow)) this._followLatest();
    else this._draw();
  }

  _followLatest() {
    const last = this.pane.rounds.length - 1,
      feed = this.pane.feed;
    // A live run is followed, and so is a file that goes on.
    if (feed.run.source === "file" && this.pane.at < 0 && !feed.decoding) {
      this.follow = feed.active ? null : false;
      return this._reach(this.opensAt(this.pane));
    }
    const busy =
      feed.active && this.pane.rounds[last].drafted >= BIG && performance.now() - this.drawn < 450;
    if (busy) return this._draw();
    this._reach(last);
  }

  /** There is news of a run that has not ended. */
  goesOn() {
    if (this.follow === null && this.pane.feed.decoding) this.live();
  }

  /** The run has ended: its last round may not have been drawn. */
  settle() {
    const last = this.pane.rounds.length - 1;
    if (this.follow && last >= 0 && this.pane.at !== last) this._reach(last);
    this.measures.stale();
    this._draw();
  }

  /** Alone there is no other tree. */
  point() {}

  pointed() {
    return "";
  }

  _show(at) {
    const round = this.pane.rounds[at];
    this.strip.mark(at); // it measures itself: before the tree is changed
    this.pane.show(at);
    this.drawn = performance.now();
    this.took.textContent = duration(took(round));
    this.measures.at();
    this._draw();
  }

  _draw() {
    const { rounds, at } = this.pane,
      count = rounds.length;
    if (this.lengths.bars.lacks(rounds)) this._sum(rounds);
    this.lengths.bars.mark(at);
    this.timeline.draw(rounds, at);
    this.below.hidden = !count;
    scrubTo(this.scrub, at, count, count ? `round ${at + 1} of ${count}` : "no round");
    this.changed();
  }

  /** What is of all rounds: not at each step. */
  _sum(rounds) {
    const sum = summarise(rounds);
    this.tiles.draw(sum);
    this.lengths.draw(rounds, sum.tau);
  }
}
