// Denoising, seen: the block as a grid of positions over steps, for Spiffy and for plain denoising
// at the same step, the draft graph of the call that decided it, and the ranking behind it. What is
// shown is a function of (calls, place); the place is a denoising step of the whole text.

import { ViewInAddress } from "../address.js";
import { clear, h } from "../dom.js";
import { answered, goesOn } from "../feed.js";
import { Filling } from "../filling.js";
import { formAbove, recallForm, triggerOf } from "../form.js";
import { Gallery } from "../gallery.js";
import { onKeys } from "../keys.js";
import { News } from "../news.js";
import { explained, meanings, unfold } from "../parts.js";
import { StatusLine } from "../status.js";
import { EMPTY, emptyView, keepTickets, Shelf } from "../studio/shelf.js";
import { GHOST } from "../tree/boxes.js";
import { Turns } from "../turns.js";
import { DraftCard } from "./draft.js";
import { GraphCard } from "./graph.js";
import { BlockGrid } from "./grid.js";
import { Guide } from "./guide.js";
import { actOf, KEYS } from "./keys.js";
import { seek, showLinked, stateOf } from "./linked.js";
import { StepsPlayer } from "./player.js";
import { RankingTable } from "./ranking.js";
import { DenoiseRun } from "./run.js";
import { stepsPart } from "./steps.js";
import { TextSoFar } from "./text.js";
import { DN_WORDS, saidOf } from "./words.js";

const FORM = "ds-d"; // the prefix of its form

export async function mount(page) {
  const bar = (await formAbove(FORM)).querySelector(".ds-bar"),
    source = { ...page.server, news: new News() },
    view = new DenoiseView(page.element, source, triggerOf(page, FORM), bar);
  recallForm(FORM, view.trigger);
  page.watch("value", () => {
    const value = page.props.value || {};
    if (value.error) view.complain(value.error);
    else if (value.tickets) {
      view.filling.starts(value.tickets);
      view.choose(value.tickets);
    }
  });
}

export class DenoiseView {
  /** bar: the form's line, where the states of model and runs stand. */
  constructor(element, source, trigger, bar) {
    const turns = { asking: new Turns(), picking: new Turns() };
    Object.assign(this, { source, trigger, row: null, unlike: null, ...turns });
    const about = { reach: () => this.reach, busy: () => this.busy },
      complain = (sentence) => this.complain(sentence);
    this.runs = ["A", "B"].map(
      (letter) => new DenoiseRun(letter, source, (run) => this._hear(run), complain),
    );
    this.filling = new Filling(trigger, FORM);
    this.player = new StepsPlayer(about, (moved) => (moved ? this._draw() : this._mark()));
    this._build(element);
    this.status.standIn(bar, FORM);
    this._listen();
    this.wanted = null; // the step that the address names
    this.address = new ViewInAddress("denoise", this.scope, {
      state: () => stateOf(this),
      runs: () => this.tickets,
      show: (...asked) => showLinked(this, ...asked).finally(() => this._working()),
      go: ({ ticket, tickets = [ticket] }) => this.choose(tickets),
    });
    this.runs[0].feed.wake();
  }

  _build(element) {
    const go = (at) => this.player.go(at),
      pick = (row) => this.pick(row);
    const chosen = (tickets) => this.choose(tickets),
      shelved = { ...this.source, runs: null }, // those of Run and Compare are not opened here
      gallery = () => new Gallery(shelved, chosen, true, this.picking, false);
    this.shelf = new Shelf(gallery());
    const away = h("p.ds-away.waiting"),
      blocks = [emptyView(EMPTY.blocks, gallery()), meanings(DN_WORDS), away];
    this.empty = h("div.ds-card.dn-empty.awaiting", blocks);
    const saves = this.runs.map((run) => run.save);
    this.status = new StatusLine("The runs on view", this.shelf, saves);
    this.status.chips.append(...this.runs.map((run) => run.chip));
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
    this.announce = h("div.ds-unseen", { "aria-live": "polite" });
    const cards = this.grids.map((grid) => grid.card);
    this.scope = h(
      "div.ds-scope.dn-scope.nothing",
      this.status.element,
      this.empty,
      this.guide.element,
      this.text.element,
      h("div.dn-grids", cards),
      h("div.dn-below", this.graph.element, this.ranking.element),
      explained(DN_WORDS),
      h("p.dn-keys.ds-soft", KEYS),
      this.shelf.element,
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
      silent: (why) => this.status.silent(why),
    };
  }

  /** Somebody opens these runs. */
  choose(tickets) {
    this.shelf.close();
    this.picking.end(); // an example that was clicked before
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
    this._tell();
    this.address?.write();
  }

  /** Once, when both headers are there: what the runs do not share. */
  async _ask() {
    if (this.unlike || !this.runs.every((run) => run.header)) return;
    this.unlike = [];
    const isWanted = this.asking.take(),
      tickets = this.runs.map((run) => run.feed.ticket),
      answer = await answered(this.source.compare({ tickets })),
      unknown = "the server did not say whether these runs can be compared";
    if (!isWanted()) return;
    this.unlike = answer.error ? [unknown] : answer.cautions;
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
    this.filling.of(this.runs);
    const file = run.feed.run && run.feed.run.source === "file";
    if (this.player.follow && !file) this.player.place = this.player.last;
    if (!run.steps.length && !run.header) return;
    this._tell();
    this._ask();
    this._drawAll();
    seek(this);
  }

  _state(run, ended) {
    const { feed } = run;
    this.status.run(run, run.name);
    if (feed.run.message) this.complain(feed.run.message);
    this._tell();
    this._working();
    if (ended && !this.busy) this.player.follow = false;
    ended ? this._drawAll() : this._mark();
    seek(this);
  }

  _working() {
    const feeds = this.runs.map(({ feed }) => feed),
      on = goesOn(feeds) ?? this.isOn;
    this.busy = feeds.some(({ active }) => active);
    if (on !== this.isOn) this.trigger(on ? "running" : "settled");
    this.isOn = on;
    const words = this.runs.map((each) => this.status.waitingFor(each)).find(Boolean);
    this.empty.classList.toggle("awaiting", this.busy);
    this.status.blank(this.runs.some(({ opens }) => opens));
    this.empty.lastChild.textContent = words ?? "";
  }

  /** What is on view, and which runs can be saved. */
  _tell() {
    const { header } = this.main,
      words = header?.facts?.join(" · ") ?? "";
    this.status.tell(header, words, words);
    const { shown } = this;
    for (const run of this.runs) {
      run.save.hidden = !run.steps.length;
      run.save.textContent = shown.length > 1 ? `Save ${run.name} trace` : "Save trace";
    }
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

  pick(wanted) {
    const { tree, whole } = this.graph,
      round = tree.round,
      row = round && wanted !== null && tree.has(wanted) ? wanted : null;
    this.row = row;
    if (round) tree.select(row);
    if (row !== null) unfold(this.graph.element);
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
    if (!shown.length || this.runs.some((run) => run.opens)) return; // a pair is drawn as one
    if (this.scope.classList.contains("nothing")) this.graph.forget();
    this.scope.classList.remove("nothing");
    this.scope.classList.toggle("pair", pair);
    this.grids.forEach(({ card }, at) => card.classList.toggle("ds-folding", pair && !at));
    const parts = pair ? stepsPart(shown[0].steps, shown[1].steps) : undefined;
    const ended = !this.runs.some((run) => run.feed.active);
    this.guide.draw(shown, this.reach, parts, (pair && this.unlike) || [], ended);
    this._tell();
    this._draw();
  }

  _mark() {
    const plain = this.runs.find((run) => run !== this.main && run.feed.run);
    this.guide.mark(this.main, this.reach, this.busy, plain);
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
    onKeys(this.scope, (event) => actOf(this, event));
    window.addEventListener("draftscope-stop", ({ detail }) => {
      if (detail === FORM) for (const run of this.runs) run.feed.halt();
    });
  }
}
