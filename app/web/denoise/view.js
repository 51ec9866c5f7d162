// Denoising, seen: the block as a grid of positions over steps, for Spiffy and for plain denoising
// at the same step, the draft graph of the call that decided it, and the ranking behind it. What is
// shown is a function of (calls, place); the place is a denoising step of the whole text.

import { ViewInAddress } from "../address.js";
import { clear, h } from "../dom.js";
import { answered } from "../feed.js";
import { formAbove, hasStarted } from "../form.js";
import { onGoTo, taken } from "../goto.js";
import { News } from "../news.js";
import { keepTickets } from "../studio/shelf.js";
import { GHOST } from "../tree/boxes.js";
import { Turns } from "../turns.js";
import { DraftCard } from "./draft.js";
import { GraphCard } from "./graph.js";
import { BlockGrid } from "./grid.js";
import { Guide } from "./guide.js";
import { seek, showLinked, stateOf } from "./linked.js";
import { Player } from "./player.js";
import { RankingTable } from "./ranking.js";
import { DenoiseRun } from "./run.js";
import { StatusLine, setChip } from "./status.js";
import { callEdge, stepsPart } from "./steps.js";
import { TextSoFar } from "./text.js";
import { saidOf, wordList } from "./words.js";

const KEYS =
  "Space plays · ← → one step · Shift ← → one call · Home End · ↑ ↓ drafts · f fits the graph · " +
  "Esc closes";

export async function mount(page) {
  await formAbove("ds-d");
  const source = { ...page.server, news: new News("calls") },
    view = new DenoiseView(page.element, source, (name) => page[name]());
  page.watch("value", () => {
    const value = page.props.value || {};
    if (value.error) view.complain(value.error);
    else if (value.tickets) {
      hasStarted("ds-d");
      view.choose(value.tickets);
    }
  });
}

export class DenoiseView {
  constructor(element, source, trigger) {
    Object.assign(this, { source, trigger, row: null, unlike: null, asking: new Turns() });
    const about = { reach: () => this.reach, busy: () => this.busy };
    this.runs = ["A", "B"].map(
      (letter) => new DenoiseRun(letter, source, (run) => this._hear(run)),
    );
    this.player = new Player(about, (moved) => (moved ? this._draw() : this._mark()));
    this._build(element);
    this._listen();
    this.wanted = null; // the step that the address names
    this.address = new ViewInAddress("denoise", this.scope, {
      state: () => stateOf(this),
      runs: () => this.tickets,
      show: (...asked) => showLinked(this, ...asked),
    });
    this.runs[0].feed.wake();
  }

  _build(element) {
    const go = (at) => this.player.go(at),
      pick = (row) => this.pick(row);
    this.status = new StatusLine(this.runs, this.source, (tickets) => this.choose(tickets));
    this.guide = new Guide(this.player);
    this.text = new TextSoFar(go);
    this.graph = new GraphCard(this.source, {
      picked: pick,
      turned: () => this._draw(),
      complain: (sentence) => this.complain(sentence),
    });
    this.ranking = new RankingTable(this.source, () => this.address.moved());
    this.draft = new DraftCard(pick, () => pick(null));
    this.ranking.element.prepend(this.draft.element);
    this.grids = [new BlockGrid(go), new BlockGrid(go)];
    this.announce = h("div", { class: "ds-unseen", "aria-live": "polite" });
    const words = h("summary", {}, "The words on this page");
    this.scope = h(
      "div",
      { class: "ds-scope dn-scope nothing" },
      this.status.element,
      this.guide.element,
      this.text.element,
      h(
        "div",
        { class: "dn-grids" },
        this.grids.map((grid) => grid.card),
      ),
      h("div", { class: "dn-below" }, this.graph.element, this.ranking.element),
      h("details", { class: "dn-explained" }, words, wordList()),
      h("p", { class: "dn-keys ds-soft" }, KEYS),
      this.status.shelves,
      this.announce,
    );
    clear(element).append(this.scope);
  }

  // ── what comes from the server ─────────────────────────────────────────────────────────────

  _hear(run) {
    return {
      model: (model) => this.status.model(model),
      rounds: () => this._rounds(run),
      state: (_, ended) => this._state(run, ended),
      lost: () => this._lost(run),
      silent: () => setChip(this.status.modelChip, "failed", "the server does not answer"),
    };
  }

  /** Somebody opens these runs. */
  choose(tickets) {
    this.address?.leave();
    this.open(tickets);
  }

  open(tickets) {
    this.player.restart();
    this.complain("");
    for (const run of this.runs) run.forget();
    for (const grid of this.grids) grid.clear();
    this.graph.leave();
    this.asking.end();
    this.unlike = this.row = null;
    this.draft.close();
    this.ranking.read = false;
    this.scope.classList.add("nothing");
    tickets.slice(0, 2).forEach((ticket, i) => this.runs[i].feed.open(ticket));
    keepTickets("denoise", tickets);
    this.wanted = null;
    this.status.tell({});
    this.address?.write();
  }

  /** Once, when both headers are there: what the runs do not share. */
  async _ask() {
    if (this.unlike || !this.runs.every((run) => run.header)) return;
    this.unlike = [];
    const isWanted = this.asking.take(),
      tickets = this.runs.map((run) => run.feed.ticket),
      answer = await answered(this.source.differences({ tickets })),
      unknown = "the server did not say whether these runs can be compared";
    if (!isWanted()) return;
    this.unlike = answer.error ? [unknown] : answer.unlike || [];
    if (this.unlike.length) this._drawAll();
  }

  /** The runs on view. */
  get tickets() {
    return this.runs.map(({ feed }) => feed.ticket).filter(Boolean);
  }

  complain(sentence) {
    this.status.complain(sentence);
  }

  _rounds(run) {
    run.take();
    const file = run.feed.run && run.feed.run.source === "file";
    if (this.player.follow && !file) this.player.place = this.player.last;
    if (!run.steps.length && !run.header) return;
    this.status.tell(this.main);
    this._ask();
    this._drawAll();
    seek(this);
  }

  _state(run, ended) {
    this.status.state(run);
    this.status.draw(this.shown.length > 1);
    this._working();
    if (ended && !this.busy) this.player.follow = false;
    this._mark();
    seek(this);
  }

  _working() {
    const busy = this.runs.some((each) => each.feed.active);
    if (busy !== this.busy) this.trigger(busy ? "running" : "settled");
    this.busy = busy;
    this.status.working(busy);
  }

  _lost(run) {
    run.forget();
    this.complain("this run is no longer on the server");
    this._working();
    for (const grid of this.grids) grid.clear();
    if (!this.runs.some((each) => each.feed.run)) {
      keepTickets("denoise", []);
      this.scope.classList.add("nothing");
    }
    this._drawAll();
  }

  // ── where we are ───────────────────────────────────────────────────────────────────────────

  /** The run whose graph and ranking are shown: the one that drafts. */
  get main() {
    return this.shown.find((run) => run.drafts) || this.shown[0] || this.runs[0];
  }

  /** The runs there is something of, plain denoising first. */
  get shown() {
    const some = this.runs.filter((run) => run.steps.length);
    return some.sort((a, b) => Number(a.drafts) - Number(b.drafts));
  }

  get reach() {
    return Math.max(0, ...this.runs.map((run) => run.steps.length));
  }

  _call(by) {
    const { steps } = this.main;
    this.player.pause();
    if (steps.length)
      this.player.go(callEdge(steps, Math.min(this.player.place, steps.length - 1), by));
  }

  pick(wanted) {
    const { tree, whole } = this.graph,
      round = tree.round,
      row = round && wanted !== null && tree.has(wanted) ? wanted : null;
    this.row = row;
    if (round) tree.select(row);
    if (row === null) this.draft.close();
    else if (row === GHOST) this.draft.stop(round.ghost);
    else this.draft.show(round.nodes[row]);
    this.ranking.mark(row > 0 && !whole ? round.nodes[row].edits : null);
    if (row === null) this.ranking.read = false;
    this.address?.moved();
  }

  // ── drawing ────────────────────────────────────────────────────────────────────────────────

  _drawAll() {
    const shown = this.shown,
      pair = shown.length > 1;
    if (!pair && !shown.length) return;
    if (this.scope.classList.contains("nothing")) this.graph.forget();
    this.scope.classList.remove("nothing");
    this.scope.classList.toggle("pair", pair);
    const parts = pair ? stepsPart(shown[0].steps, shown[1].steps) : undefined;
    this.guide.draw(shown, this.reach, parts, (pair && this.unlike) || []);
    this.status.draw(pair);
    this._draw();
  }

  _mark() {
    this.guide.mark(this.main, this.reach, this.busy);
  }

  _draw() {
    if (!this.reach) return;
    const { place, playing } = this.player,
      { shown, main } = this,
      step = main.stepAt(place),
      at = main.steps.indexOf(step);
    this._mark();
    this.text.draw(main, place);
    this.grids.forEach((grid, i) => grid.draw(shown[i], place));
    this.graph.draw(main, step);
    this.ranking.show(main.calls[step.at], step, main.known(step), at);
    this.address.moved();
    this.announce.textContent = playing ? "" : `Step ${at + 1}: ${saidOf(step)}`;
  }

  // ── keys ───────────────────────────────────────────────────────────────────────────────────

  _listen() {
    this.onKey = (event) => {
      if (!this.scope.isConnected) return document.removeEventListener("keydown", this.onKey);
      if (!this.scope.getClientRects().length || event.defaultPrevented) return;
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const target = event.target;
      if (target.closest("input:not(.ds-scrub), textarea, select, [contenteditable], dialog[open]"))
        return;
      if (event.key === " " && target.closest("button, summary")) return;
      if (this._key(event)) event.preventDefault();
    };
    document.addEventListener("keydown", this.onKey);
    window.addEventListener("draftscope-stop", ({ detail }) => {
      if (detail === "ds-d") for (const run of this.runs) run.feed.halt();
    });
    onGoTo(this.scope, () => this.goTo());
  }

  /** Open the run that somebody on the page asked for. */
  goTo() {
    const { ticket, tickets = ticket && [ticket] } = taken("denoise") ?? {};
    if (tickets) this.choose(tickets);
  }

  /** Whether the key meant something here. */
  _key({ key, shiftKey }) {
    const { player, graph } = this,
      along = (by) => (shiftKey ? this._call(by) : player.step(by)),
      drafts = graph.tree.round;
    const acts = {
      " ": () => player.toggle(),
      ArrowLeft: () => along(-1),
      ArrowRight: () => along(1),
      Home: () => player.step(-this.reach),
      End: () => player.step(this.reach),
      ...(drafts && {
        ArrowUp: () => this.pick(graph.next(this.row, -1)),
        ArrowDown: () => this.pick(graph.next(this.row, 1)),
        f: () => graph.tree.fit(),
      }),
      ...(this.row !== null && { Escape: () => this.pick(null) }),
    };
    acts[key]?.();
    return key in acts;
  }
}
