// The trees of a run's rounds. What the page says of every round comes with the news; a round's
// tree takes longer to make, and is asked for when it is to be drawn, with those beside it. It
// completes the round that is there.

import { answered } from "./feed.js";

const BESIDE = 16; // rounds before and after the one on view whose trees are fetched beforehand
const TOGETHER = 16; // rounds that are asked for at once, or more that are in sight

export class Trees {
  /** source: {trees}; feed: of the run; came(error): trees have come, or why they did not. */
  constructor(source, feed, came) {
    Object.assign(this, { source, feed, came });
    this.waiting = []; // {at, pass, done}: who waits for a tree
    this.forget();
  }

  /** Another run is on view. */
  forget() {
    this.at = null; // the round on view
    this.sight = null; // [first, last] round that is in sight around it
    this._end(() => true, null);
  }

  isHere(at) {
    return !!this.feed.rounds[at]?.parents;
  }

  /** The tree of a round that is to be on view: true where it is here, else a promise of true, or
   * of null where another one is wanted meanwhile, or it does not come. */
  want(at) {
    this._end(({ pass }) => pass, null);
    this.at = at;
    if (!this.isHere(at)) return this._wait(at, true);
    this._ask();
    return true;
  }

  /** A promise of whether the tree of any round is here. */
  load(at) {
    return this.isHere(at) ? Promise.resolve(true) : this._wait(at, false);
  }

  /** These rounds are in sight. */
  see(first, last) {
    this.sight = [first, last];
    this._ask();
  }

  _wait(at, pass) {
    return new Promise((done) => {
      this.waiting.push({ at, pass, done });
      this._ask();
    });
  }

  /** Tell those who wait for such a tree whether it is here. */
  _end(isSuch, is) {
    const told = this.waiting.filter(isSuch);
    this.waiting = this.waiting.filter((each) => !told.includes(each));
    for (const { done } of told) done(is);
  }

  /** One question at a time: what is wanted changes while somebody steps. */
  async _ask() {
    const asked = this.busy ? null : this._next();
    if (!asked) return;
    this.busy = true;
    const { rounds, ticket } = this.feed,
      [round, until] = asked,
      { trees = [], error } = await answered(this.source.trees({ ticket, round, until }));
    this.busy = false;
    trees.forEach((tree, i) => Object.assign(rounds[round + i], tree));
    if (rounds === this.feed.rounds) {
      this._end(({ at }) => this.isHere(at), true);
      if (!trees.length) this._end(() => true, null);
      this.came(error);
      if (!trees.length) return; // it is not asked again by itself
    }
    this._ask();
  }

  /** [first, last] of the rounds to ask for: one that is waited for, those in sight, those beside
   * the one on view; null: none. */
  _next() {
    const { waiting, sight, at } = this;
    if (waiting.length) return this._lacking(waiting.at(-1).at, waiting.at(-1).at + TOGETHER - 1);
    const seen = sight && this._lacking(...sight);
    if (seen || at === null) return seen;
    const ahead = this._lacking(at, at + BESIDE);
    if (ahead) return this._lacking(ahead[0], ahead[0] + TOGETHER - 1);
    const behind = this._lacking(at - BESIDE, at);
    return behind && this._lacking(behind[1] - TOGETHER + 1, behind[1]);
  }

  /** The first and the last of some rounds whose trees are not here; null: all are. */
  _lacking(first, last) {
    let from = Math.max(0, first),
      to = Math.min(last, this.feed.rounds.length - 1);
    while (from <= to && this.isHere(from)) from += 1;
    while (from <= to && this.isHere(to)) to -= 1;
    return from <= to ? [from, to] : null;
  }
}
