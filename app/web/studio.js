// The view as a whole: one pane, or up to four in a comparison, with status, tools and keys around
// them. A source gives it rounds ({updates, trees, inspect, stop, compare}) and more where it can
// ({save, draw, take, share, examples, example, runs, measure}); live runs and opened traces are
// the same to it. What is said of rounds stays here, and so do trees once they came (trees.js).

import { Alone } from "./alone.js";
import { Together } from "./compare/together.js";
import { clear } from "./dom.js";
import { setForm } from "./form.js";
import { Gallery, shelve } from "./gallery.js";
import { Permalink } from "./link.js";
import { Pane } from "./pane.js";
import { LETTERS } from "./parts.js";
import { Player } from "./player.js";
import { StatusLine, setChip } from "./status.js";
import { describe, RunActions } from "./studio/actions.js";
import { allRounds } from "./studio/all-rounds.js";
import { Frame } from "./studio/frame.js";
import { helpDialog, Legend } from "./studio/help.js";
import { Look } from "./studio/look.js";
import { Opening } from "./studio/opening.js";
import { listenToPage } from "./studio/page.js";
import { RunsOnView } from "./studio/runs-on-view.js";
import { Search } from "./studio/search.js";
import { EMPTY, emptyView, Shelf } from "./studio/shelf.js";
import { Toolbar } from "./studio/toolbar.js";
import { Turns } from "./turns.js";

const CUT = "The run before was stopped. Its rounds are in Examples, under “Opened in this tab”.";

export class Studio {
  /** where: {view, places, stop, bar}: its tab, how many runs, whose Stop, any form's line. */
  constructor(element, source, trigger, where = {}) {
    Object.assign(this, { source, trigger });
    this.where = { view: "run", places: 4, stop: "ds", ...where };
    this.look = new Look(this);
    this.arranged = new Turns();
    this.picking = new Turns(); // of examples
    this.runs = new RunsOnView(this.where, {
      made: (letter, name) => this._pane(letter, name),
      began: () => this._began(),
      parted: () => this._parted(),
      cut: () => this.status.note(CUT),
      complain: (sentence) => this.complain(sentence),
    });
    this._parts();
    this._build(element);
    this._arrange();
    listenToPage(this, element);
    this.panes[0].feed.wake();
  }

  // ── the parts ──────────────────────────────────────────────────────────────────────────────

  _pane(letter, name) {
    const pane = new Pane(letter, name, this.source, {
      picked: (picked, row) => this._picked(picked, row),
      say: (words) => this.say(words),
      pointed: (pointed, row) => this._pointed(pointed, row),
      round: (at) => this.reach(at),
      moved: () => this.link.moved(),
      complain: (sentence) => this.complain(sentence),
      model: (model) => this.status.model(model),
      rounds: (_feed, first) => this._rounds(pane, first),
      state: () => this._runState(pane),
      lost: () => this._lost(pane),
      silent: (why) => this.status.silent(why),
    });
    pane.tree.onFold = () => this.search.refresh();
    if (this.look.tabular) pane.tabulate(true);
    return pane;
  }

  _parts() {
    const { source, where } = this,
      many = where.places > 1,
      chosen = (tickets) => this._chosen(tickets);
    const gallery = () => source.examples && new Gallery(source, chosen, many, this.picking);
    this.shelf = source.examples ? new Shelf(gallery()) : null;
    this.empty = emptyView(EMPTY[many ? "several" : "one"], gallery());
    this.legend = new Legend();
    this.help = helpDialog(this.legend);
    this.link = new Permalink(this);
    this.opening = new Opening(this);
    this.search = new Search(this);
    this.actions = new RunActions(this, !many);
    this.status = new StatusLine("The run on view", this.shelf, this.actions.all);
    this.player = new Player({
      guide: () => this.guide,
      may: () => !this.toolbar.moves.play.disabled,
      changed: (on) => {
        this.toolbar.moves.playing(on);
        if (on) this._draw();
      },
    });
    this.rounds = allRounds(this);
    this.toolbar = new Toolbar(this);
  }

  _build(element) {
    this.frame = new Frame(this);
    if (this.where.bar) this.status.standIn(this.where.bar, this.where.stop);
    this.empty.hidden = !!this.shelf; // until it is known that the page opens nothing by itself
    this.panes[0].picture.append(this.empty);
    clear(element).append(this.scope);
  }

  get scope() {
    return this.frame.scope;
  }

  say(words) {
    this.frame.say(words);
  }

  /** Show the panes there are: one run by itself, or several side by side. */
  _arrange() {
    this.player.pause();
    const { panes, source, comparing } = this,
      isWanted = this.arranged.take(),
      changed = () => this._draw();
    panes.forEach((pane, at) => pane.rename(LETTERS[at]));
    this.guide = comparing
      ? new Together(panes, changed, source, isWanted)
      : new Alone(panes[0], changed, source, this.rounds, (pane) => this.opening.at(pane));
    this.frame.arrange(panes, this.guide, (pane) => this.runs.part(pane));
    for (const pane of panes)
      if (!pane.chip.hidden && pane.feed.run) this.status.run(pane, comparing ? pane.letter : "");
    this.rounds.stale(true);
    this.guide.enter();
  }

  get panes() {
    return this.runs.panes;
  }

  /** The pane in hand. */
  get active() {
    return this.runs.active;
  }

  get comparing() {
    return this.panes.length > 1;
  }

  // ── runs ───────────────────────────────────────────────────────────────────────────────────

  /** Somebody opens a run, and beside it other ones. */
  open(...tickets) {
    this.link.leave();
    this.runs.open(tickets);
  }

  /** Put a run beside what is shown, or in the place of what the page itself opened. */
  beside(ticket) {
    this.link.leave();
    this.opening.alone ? this.open(ticket) : this.runs.beside(ticket);
  }

  /** Runs were chosen from the shelf: one to look at, or more of them for the comparison. */
  _chosen(tickets) {
    this.shelf.close();
    this.opening.chosen(tickets);
    if (this.where.places === 1 || tickets.length > 1) this.open(...tickets);
    else this.beside(tickets[0]);
  }

  _began() {
    if (!this.opening.coming.size) setForm(this.where.stop, false); // what was opened is to be seen
    this.vacate();
    this._parted();
    this.link.opened();
  }

  /** The shelf fills the canvas while nothing is on view and nothing is coming. */
  vacate() {
    const [{ feed }] = this.panes;
    this.empty.hidden = this.comparing || !!feed.rounds.length || feed.active || !!feed.emptiness;
    this._see();
  }

  /** Several runs are seen once all have come, or none comes: each would move the others. */
  _see() {
    if (this.guide.isHere || !this.empty.hidden || this.status.complaint) this.frame.blank(false);
  }

  _parted() {
    this._arrange();
    this.runs.keep();
    describe(this.status, this.panes);
    this._working();
  }

  /** Stop is there while a run goes on; it stays as it was until it is known what was opened. */
  _working() {
    const { busy } = this.runs;
    if (busy === null || busy === this.busy) return;
    this.busy = busy;
    this.trigger(busy ? "running" : "settled");
  }

  _rounds(pane, first) {
    if (!this.panes.includes(pane)) return;
    this.vacate();
    if (first === 0 && pane.feed.ticket) shelve([pane.feed.ticket]);
    describe(this.status, this.panes);
    this.guide.take(pane, first);
    this.rounds.stale();
  }

  _draw() {
    const { guide, panes } = this;
    this.toolbar.at(guide, Math.max(...panes.map((pane) => pane.rounds.length)), this.runs.busy);
    this.actions.allow(panes[0].rounds.length > 0, this.comparing);
    const shown = panes.map((pane) => pane.at).join();
    if (shown !== this.shown) this._moved(shown);
    this.rounds.moved();
    this.link.moved();
    this._see();
  }

  /** Another round is on view, in one pane or in both. */
  _moved(shown) {
    this.shown = shown;
    this.look.told();
    this.legend.explain(
      this.panes.flatMap((pane) => pane.rounds),
      this.panes[0].feed.header?.causes,
    );
    if (!this.guide.follow) this.say(this.guide.words);
    this.search.refresh();
  }

  // ── stepping ───────────────────────────────────────────────────────────────────────────────

  /** Go to a round of a run, of the first unless another is named; gives a promise of whether it is
   * shown: false where it cannot be, null where another one was wanted meanwhile. */
  reach(at, pane = this.panes[0]) {
    this.player.pause();
    return this.guide.reach(at, pane);
  }

  /** Show a round that was chosen, and stay there, even where it is the newest of a run that goes
   * on; gives what `reach` does. */
  choose(pane, at) {
    this._picked(pane);
    const isShown = this.reach(at, pane);
    this.guide.follow = false;
    return isShown;
  }

  // ── nodes ──────────────────────────────────────────────────────────────────────────────────

  /** A tree was touched; with a row, a node of it was opened. */
  _picked(pane, row) {
    if (!this.panes.includes(pane)) return;
    this.runs.active = pane;
    if (row === undefined) return;
    this.player.pause();
    this.guide.follow = false;
    this._draw();
  }

  /** A node is pointed at; its counterparts in other trees, in words. */
  _pointed(pane, row) {
    if (!this.comparing || !this.panes.includes(pane)) return "";
    this.guide.point(pane, row);
    return row === null ? "" : this.guide.pointed(pane, row);
  }

  /** A node was found in a tree. */
  found(pane, row) {
    this._picked(pane);
    this.select(row);
  }

  select(row) {
    this.guide.follow = false;
    this.active.select(row);
    this._draw();
  }

  /** The next tree of a comparison is in hand. */
  other() {
    if (!this.comparing) return;
    this._picked(this.panes[(this.panes.indexOf(this.active) + 1) % this.panes.length]);
    this.active.tree.svg.focus();
  }

  // ── the server ─────────────────────────────────────────────────────────────────────────────

  _runState(pane) {
    if (!this.panes.includes(pane)) return;
    const { feed } = pane;
    this.status.run(pane, this.comparing ? pane.letter : "");
    pane.wait(this.status.waitingFor(pane));
    this.vacate();
    this.opening.fill();
    if (feed.run.message && !feed.emptiness) this.complain(feed.run.message);
    this._working();
    if (feed.active) return this.guide.goesOn();
    if (feed.emptiness) this.say(pane.blank(feed.emptiness));
    this.opening.settled(pane);
    this.guide.settle();
  }

  _lost(pane) {
    setChip(pane.chip, "", "");
    const looked = pane.rounds.length ? ": what is here can be looked at, and not saved" : "";
    this.complain(`this run is no longer on the server${looked}`);
    this.vacate();
    this.runs.keep();
    this._working();
  }

  complain(sentence) {
    this.status.complain(sentence);
    this._see();
  }
}
