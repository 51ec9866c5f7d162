// The view as a whole: one pane, or up to four in a comparison, with status, tools and keys around
// them. A source gives it rounds ({updates, inspect, stop, compare}) and more where it can ({save,
// draw, take, share, examples, example, runs, measure}); live runs and opened traces are the same to
// it. Rounds stay here: stepping and scrubbing never ask the server.

import { onBack, onShown } from "./address.js";
import { Alone } from "./alone.js";
import { Together } from "./compare/together.js";
import { button, clear, h } from "./dom.js";
import { openForm } from "./form.js";
import { shelve } from "./gallery.js";
import { awaits, onGoTo, taken } from "./goto.js";
import { Permalink } from "./link.js";
import { Pane } from "./pane.js";
import { LETTERS } from "./parts.js";
import { helpDialog, Legend } from "./studio/help.js";
import { actsOf, takesKey } from "./studio/keys.js";
import { RoundsPlayer } from "./studio/rounds-player.js";
import { Search } from "./studio/search.js";
import { emptyView, keepTickets, keptTickets, Shelf } from "./studio/shelf.js";
import { StatusLine, setChip } from "./studio/status.js";
import { Toolbar } from "./studio/toolbar.js";

export class Studio {
  /** where: {view, places, stop}: its tab, how many runs it shows at once, whose Stop it hears. */
  constructor(element, source, trigger, where = {}) {
    this.source = source;
    this.trigger = trigger;
    this.where = { view: "run", places: 4, stop: "ds", ...where };
    this.made = 0; // panes so far: the ids on a page stay apart
    this.panes = [this._pane("A")];
    this.active = this.panes[0];
    this._parts();
    this._build(element);
    this._arrange();
    this._listen(element);
    this.panes[0].feed.wake();
  }

  // ── the parts ──────────────────────────────────────────────────────────────────────────────

  _pane(letter) {
    const name = `ds-${this.where.view}-tree-${this.made++}`;
    const pane = new Pane(letter, name, this.source, {
      picked: (picked, row) => this._picked(picked, row),
      say: (words) => (this.announce.textContent = words),
      pointed: (pointed, row) => this._pointed(pointed, row),
      complain: (sentence) => this.complain(sentence),
      model: (model) => this.status.model(model),
      rounds: (_feed, first) => this._rounds(pane, first),
      state: (_feed, ended) => this._runState(pane, ended),
      lost: () => this._lost(pane),
      silent: () => this.status.silent(),
    });
    return pane;
  }

  _parts() {
    const { source, where } = this,
      many = where.places > 1,
      chosen = (tickets, names) => this._chosen(tickets, names);
    this.shelf = source.examples ? new Shelf(source, many, chosen) : null;
    this.empty = emptyView(source, many, chosen);
    this.help = helpDialog();
    this.legend = new Legend();
    this.link = new Permalink(this);
    this.search = new Search({
      panes: () => this.panes,
      found: (pane, row) => this._found(pane, row),
      leave: () => this.active.tree.svg.focus(),
    });
    this.status = new StatusLine(source, !many, {
      ticket: () => this.panes[0].feed.ticket,
      examples: () => this.shelf.open(),
      again: () => this.again(),
      save: () => this.panes[0].saveTrace(),
    });
    this.player = new RoundsPlayer({
      guide: () => this.guide,
      may: () => !this.toolbar.play.disabled,
      changed: (on) => {
        this.toolbar.playing(on);
        if (on) this._draw();
      },
    });
    const does = {
      step: (by) => this.step(by),
      play: () => this.player.toggle(),
      live: () => this.goLive(),
      fold: () => this.toggleFold(),
      table: () => this.toggleTable(),
      help: () => this.help.showModal(),
      trees: (act) => this.trees(act),
      show: (part) => this.showPart(part),
    };
    this.toolbar = new Toolbar(does, this.search, this.link.button);
  }

  _build(element) {
    this.announce = h("div", { class: "ds-unseen", "aria-live": "polite" });
    this.stage = h("div", { class: "ds-panes" });
    this.around = h("div", { class: "ds-around" });
    this.below = h("div", { class: "ds-below" });
    this.panes[0].picture.append(this.empty);
    const card = { class: "ds-card ds-stage", "aria-label": "Draft tree" },
      parts = [this.stage, this.below, this.legend.element, this.toolbar.element],
      fill = [this.status.element, this.around, h("section", card, parts)];
    this.scope = h(
      "div",
      { class: "ds-scope" },
      h("div", { class: "ds-fill" }, fill),
      this.help,
      this.shelf ? this.shelf.element : "",
      this.announce,
    );
    this.scope.setAttribute("data-show", "tree");
    this.toolbar.showing("tree");
    clear(element).append(this.scope);
  }

  showPart(name) {
    this.scope.setAttribute("data-show", name);
    this.toolbar.showing(name);
    if (name === "tree") for (const pane of this.panes) if (pane.shown) pane.tree.frame(true);
    this.guide.measures?.stale();
  }

  /** Draw every node of the trees, or fold them again. */
  toggleFold() {
    const folded = !this.panes[0].tree.folded;
    for (const pane of this.panes) pane.tree.setFolded(folded);
    this.toolbar.folding(this.panes);
  }

  /** Open what is folded below the node in hand, or everything. */
  unfold() {
    this.active.tree.unfold(this.active.row);
    this.toolbar.folding(this.panes);
  }

  toggleTable() {
    this.tabular = !this.tabular;
    this.toolbar.tabular(this.tabular);
    for (const pane of this.panes) pane.tabulate(this.tabular);
  }

  /** Put the parts where one run, or several, want them. */
  _arrange() {
    this.player.pause();
    const { panes, toolbar, comparing: pair } = this,
      changed = () => this._draw();
    this.scope.classList.toggle("comparing", pair);
    toolbar.parts.get("stages").hidden = pair;
    this.scope.setAttribute("data-runs", panes.length);
    panes.forEach((pane, at) => pane.rename(LETTERS[at]));
    this.guide = pair
      ? new Together(panes, changed, this.source)
      : new Alone(panes[0], changed, this.source);
    const { element, below, titles, aside } = this.guide;
    this.around.replaceChildren(element);
    this.below.replaceChildren(below);
    toolbar.titles.replaceChildren(...titles);
    toolbar.drawings.replaceChildren(...(pair ? [] : [panes[0].svgButton, panes[0].menu.button]));
    for (const pane of panes) pane.head.replaceChildren(...(pair ? this._paneHead(pane) : []));
    this.stage.replaceChildren(...panes.map((pane) => pane.element), ...(aside ? [aside] : []));
    this.status.chips.replaceChildren(...panes.map((pane) => pane.chip));
    for (const pane of panes) if (!pane.chip.hidden && pane.feed.run) this._sayState(pane);
    this.guide.enter();
  }

  _paneHead(pane) {
    const small = (words, label, title, act) =>
      button(words, { class: "ds-button", "aria-label": label, title }, act);
    const save = small("Trace", `Save trace ${pane.letter}`, "Download this run as .jsonl.gz", () =>
      pane.saveTrace(),
    );
    const end = small(
      "×",
      `Take run ${pane.letter} out of the comparison`,
      "Take this run out",
      () => this.part(pane),
    );
    return [
      pane.sign,
      pane.name,
      pane.heading,
      pane.shared,
      h("span", { class: "ds-spring" }),
      pane.svgButton,
      pane.menu.button,
      ...(this.source.save ? [save] : []),
      end,
    ];
  }

  get comparing() {
    return this.panes.length > 1;
  }

  get busy() {
    return this.panes.some((pane) => pane.feed.active);
  }

  trees(act) {
    for (const pane of this.panes) if (pane.tree.round) act(pane.tree);
  }

  // ── runs ───────────────────────────────────────────────────────────────────────────────────

  /** Show the run of a ticket, and beside it other ones. */
  open(...tickets) {
    const [ticket, ...more] = tickets.filter(Boolean).slice(0, this.where.places),
      first = this.panes[0];
    this.complain("");
    if ([ticket, ...more].join() === this.tickets.join()) return; // on view already
    this._unpair();
    first.open(ticket);
    this.empty.hidden = !!more.length || !!first.rounds.length;
    for (const other of more) this._pair(other);
    this._began();
  }

  get tickets() {
    return this.panes.map((pane) => pane.feed.ticket).filter((ticket) => ticket !== null);
  }

  /** Runs were chosen from the shelf: one to look at, or more of them for the comparison. */
  _chosen(tickets, names = []) {
    this.shelf.close();
    names.forEach((name, at) => this.link.names.set(tickets[at], name));
    if (this.where.places === 1 || tickets.length > 1) this.open(...tickets);
    else this.beside(tickets[0]);
  }

  /** Fill the form with the settings of what is shown, to be changed and started. */
  again() {
    this.trigger("refill", { tickets: this.tickets });
    openForm(this.where.stop);
  }

  /** Put a run beside what is shown; without any it is shown alone. */
  beside(ticket) {
    if (!this.panes[0].feed.run) return this.open(ticket);
    if (this.panes.some((pane) => pane.feed.ticket === ticket)) return;
    if (this.panes.length >= this.where.places)
      return this.complain(
        `${this.panes.length} runs are on view: take one out (×) to add another`,
      );
    this.complain("");
    this.empty.hidden = true;
    this._pair(ticket);
    this._began();
  }

  /** Take a run out of the comparison. */
  part(pane) {
    pane.feed.close();
    this.panes = this.panes.filter((each) => each !== pane);
    if (!this.panes.includes(this.active)) this.active = this.panes[0];
    this._arrange();
    this.status.describe(this.panes);
    this._explain();
    keepTickets(this.where.view, this.tickets);
    if (!this.busy) this.trigger("settled");
  }

  _pair(ticket) {
    const pane = this._pane(LETTERS[this.panes.length]);
    this.panes.push(pane);
    if (this.tabular) pane.tabulate(true);
    pane.open(ticket);
  }

  _unpair() {
    for (const pane of this.panes.splice(1)) pane.feed.close();
    this.active = this.panes[0];
  }

  _began() {
    this._arrange();
    keepTickets(this.where.view, this.tickets);
    this.status.describe(this.panes);
    this.link.opened();
    this.trigger("running");
  }

  _rounds(pane, first) {
    if (!this.panes.includes(pane)) return;
    if (pane.rounds.length) this.empty.hidden = true;
    if (first === 0 && pane.feed.ticket) shelve([pane.feed.ticket]);
    this.status.describe(this.panes);
    this.guide.take(pane, first);
    if (first === 0) this._explain();
  }

  _explain() {
    this.legend.explain(this.panes.flatMap((pane) => pane.rounds));
  }

  _draw() {
    const { guide, panes } = this,
      count = Math.max(...panes.map((pane) => pane.rounds.length));
    this.toolbar.at(guide, count, this.busy);
    this.status.allow(panes[0].rounds.length > 0, this.comparing);
    const shown = panes.map((pane) => pane.at).join();
    if (shown !== this.shown) this._moved(shown);
    this.link.moved();
  }

  /** Another round is on view, in one pane or in both. */
  _moved(shown) {
    this.shown = shown;
    this.toolbar.folding(this.panes);
    if (!this.guide.follow) this.announce.textContent = this.guide.words;
    this.search.refresh();
  }

  // ── stepping ───────────────────────────────────────────────────────────────────────────────

  step(by) {
    this.guide.step(by);
  }

  /** Go to a round of the first run. */
  reach(at) {
    this.player.pause();
    this.guide.reach(at);
  }

  goLive() {
    this.player.pause();
    this.guide.live();
  }

  // ── nodes ──────────────────────────────────────────────────────────────────────────────────

  /** A tree was touched; with a row, a node of it was opened. */
  _picked(pane, row) {
    if (!this.panes.includes(pane)) return;
    this.active = pane;
    for (const each of this.panes) each.element.classList.toggle("active", each === pane);
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

  select(row) {
    this.guide.follow = false;
    this.active.select(row);
    this._draw();
  }

  _found(pane, row) {
    this._picked(pane);
    this.select(row);
  }

  /** The next tree of a comparison is in hand. */
  other() {
    if (!this.comparing) return;
    this._picked(this.panes[(this.panes.indexOf(this.active) + 1) % this.panes.length]);
    this.active.tree.svg.focus();
  }

  // ── keys and the page ──────────────────────────────────────────────────────────────────────

  _listen(element) {
    this.onKey = (event) => {
      if (!element.isConnected) return document.removeEventListener("keydown", this.onKey);
      if (!element.getClientRects().length || event.defaultPrevented) return;
      if (!this.help.open && !this.shelf?.isOpen && !takesKey(event)) this._key(event);
    };
    document.addEventListener("keydown", this.onKey);
    this.onStop = ({ detail }) => {
      if (detail === this.where.stop) for (const pane of this.panes) pane.feed.halt();
    };
    window.addEventListener("draftscope-stop", this.onStop);
    onGoTo(this.scope, () => this._goto());
    onShown(this.scope, () => this.link.moved()); // another tab had the address
    onBack(this.scope, this.where.view, (tickets) => this._back(tickets));
  }

  _key(event) {
    const act = actsOf(this, event.shiftKey)[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  /** The browser went back, or forward, to runs that were on view. */
  _back(tickets) {
    const { place } = this.link;
    this.open(...tickets);
    if (place) this.link.seek(place);
  }

  /** Somebody on the page asked for a run, a round or a node of this view. */
  _goto() {
    const asked = taken(this.where.view);
    if (!asked) return;
    const { ticket, round, row } = asked;
    if (ticket && this.where.places > 1) this.beside(ticket);
    else if (ticket && ticket !== this.panes[0].feed.ticket) this.open(ticket);
    this.scope.scrollIntoView({ block: "start" });
    if (typeof round === "number")
      this.link.seek({
        round: round + 1,
        node: row === undefined ? undefined : row < 0 ? "ghost" : row,
      });
  }

  // ── the server ─────────────────────────────────────────────────────────────────────────────

  _runState(pane, ended) {
    if (!this.panes.includes(pane)) return;
    const run = pane.feed.run;
    this._sayState(pane);
    if (run.message) this.complain(run.message);
    if (pane.feed.active) return;
    this.guide.settle();
    this._explain();
    if (ended && !this.busy) this.trigger("settled");
  }

  _sayState(pane) {
    this.status.run(pane, this.comparing);
  }

  _lost(pane) {
    setChip(pane.chip, "", "");
    const looked = pane.rounds.length ? ": it can be looked at, but not inspected or saved" : "";
    this.complain(`this run is no longer on the server${looked}`);
    this.empty.hidden = this.comparing || !!looked;
    keepTickets(this.where.view, this.tickets);
    if (!this.busy) this.trigger("settled");
  }

  complain(sentence) {
    this.status.complain(sentence);
  }

  /** What a reload had on view, unless somebody asked for something else. */
  restore() {
    if (awaits(this.where.view)) return this._goto();
    const { place } = this.link,
      said = this.status.complaint,
      tickets = keptTickets(this.where.view);
    if (!tickets.length) return;
    this.open(...tickets);
    if (place) this.link.seek(place);
    if (said) this.complain(said); // of the link that was followed in vain
  }
}
