// The view as a whole: status, tools, keys and playing around one pane, or up to four in a
// comparison. A source gives it rounds ({updates, inspect, stop, compare}) and more where it can ({save,
// draw, take, share, gallery, example, runs, measure}); live runs and opened traces are the same to
// it. Rounds stay here: stepping and scrubbing never ask the server.

import { onBack, onShown } from "./address.js";
import { Alone } from "./alone.js";
import { Together } from "./compare/together.js";
import { button, clear, h, plural } from "./dom.js";
import { openForm } from "./form.js";
import { Gallery, shelve } from "./gallery.js";
import { awaits, goTo, onGoTo, taken } from "./goto.js";
import { Permalink } from "./link.js";
import { Pane } from "./pane.js";
import { LETTERS } from "./parts.js";

const KEYS = [
  ["← →", "round before, round after; in a comparison, where a round begins"],
  ["Home End", "first round, last round"],
  ["↑ ↓", "node above, node below, at the same depth"],
  ["Shift ← →", "parent, child (the accepted one first)"],
  ["Enter", "open the inspector for the node"],
  ["Space", "play, pause"],
  ["f", "fit the whole tree"],
  ["u", "open what is folded below the node, or everything; again folds"],
  ["a", "back to the accepted path"],
  ["+ −", "zoom in, zoom out; also Ctrl and the wheel, or a pinch; drag to move"],
  ["/", "search a token; Enter goes to the next one"],
  ["d", "in a comparison, the next place where acceptance differs; D: before"],
  ["o", "in a comparison, the next tree"],
  ["t", "nodes as a table, or as a tree"],
  ["e", "examples that ship, and runs of this tab"],
  ["s", "save: pictures, tables, the run"],
  ["?", "this help"],
  ["Esc", "close the inspector or the search"],
];
const PLAY_EVERY = 900; // milliseconds a round stays when playing

export class Studio {
  /** where: {view, places, stop}: its tab, how many runs it shows at once, whose Stop it hears. */
  constructor(element, source, trigger, where = {}) {
    this.source = source;
    this.trigger = trigger;
    this.where = { view: "run", places: 4, stop: "ds", ...where };
    this.made = 0; // panes so far: the ids on a page stay apart
    this.panes = [this._pane("A")];
    this.active = this.panes[0];
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
      model: (model) => this._modelState(model),
      rounds: (_feed, first) => this._rounds(pane, first),
      state: (_feed, ended) => this._runState(pane, ended),
      lost: () => this._lost(pane),
      silent: () => this._chip(this.modelChip, "failed", "the server does not answer"),
    });
    return pane;
  }

  _build(element) {
    const many = this.where.places > 1,
      source = this.source;
    this.gallery = source.examples
      ? new Gallery(source, (tickets, names) => this._chosen(tickets, names), many)
      : null;
    this.empty = h(
      "div",
      { class: "ds-empty" },
      h(
        "p",
        { class: "ds-empty-title" },
        many ? "Two to four runs on one text" : "Every drafted tree, as the target sees it",
      ),
      h(
        "p",
        {},
        many
          ? "Choose methods and press Start, or put examples and traces side by side. The trees step together by the place in the text."
          : "Write a prompt and press Start, or open a run that was recorded. Each round appears here: what the drafter proposed, what the target took, and why the rest ended.",
      ),
      this.gallery ? this.gallery.element : "",
    );
    if (this.gallery) this.gallery.draw();
    this.panes[0].picture.append(this.empty);
    this.announce = h("div", { class: "ds-unseen", "aria-live": "polite" });
    this.cueKey = h("span", { class: "ds-cue-key", hidden: true });
    this.stage = h("div", { class: "ds-panes" });
    const top = this._statusLine(),
      toolbar = this._toolbar();
    this.around = h("div", { class: "ds-around" });
    this.below = h("div", { class: "ds-below" });
    this.scope = h(
      "div",
      { class: "ds-scope" },
      h(
        "div",
        { class: "ds-fill" },
        top,
        this.around,
        h(
          "section",
          { class: "ds-card ds-stage", "aria-label": "Draft tree" },
          this.stage,
          this.below,
          this._legend(),
          toolbar,
        ),
      ),
      this._help(),
      this._examples(),
      this.announce,
    );
    this.scope.setAttribute("data-show", "tree");
    this.parts.get("tree").setAttribute("aria-pressed", "true");
    clear(element).append(this.scope);
  }

  _statusLine() {
    this.modelChip = h(
      "span",
      { class: "ds-chip", role: "status", "data-state": "loading" },
      "model: waking up",
    );
    this.modelBar = h("span", { class: "ds-progress", hidden: true }, h("i", {}));
    this.about = h("span", { class: "ds-about" });
    this.chips = h("span", { class: "ds-chips" });
    this.banner = h("p", { class: "ds-banner", role: "alert", hidden: true });
    this.examplesButton = button(
      "Examples",
      {
        class: "ds-button",
        title: "Examples, files of the command line, and runs of this tab (e)",
        hidden: !this.source.examples,
      },
      () => this.showExamples(),
    );
    this.compareButton = button(
      "Compare…",
      { class: "ds-button", disabled: true, title: "Put this run into a comparison" },
      () => goTo({ view: "compare", ticket: this.panes[0].feed.ticket }),
    );
    this.compareButton.hidden = this.where.places > 1 || !this.source.examples;
    this.whatIfButton = button(
      "What if…",
      {
        class: "ds-button",
        disabled: true,
        title: "What every method and budget would have drafted on this prompt",
      },
      () => goTo({ view: "whatif", ticket: this.panes[0].feed.ticket }),
    );
    this.whatIfButton.hidden = this.compareButton.hidden;
    this.againButton = button(
      "Run again…",
      { class: "ds-button", disabled: true, title: "Fill the form with this run's settings" },
      () => this.again(),
    );
    this.againButton.hidden = !this.source.examples;
    this.saveButton = button(
      "Save trace",
      { class: "ds-button", disabled: true, title: "Download this run as .jsonl.gz" },
      () => this.panes[0].saveTrace(),
    );
    return h(
      "div",
      { class: "ds-top-line" },
      h(
        "div",
        { class: "ds-status" },
        this.modelChip,
        this.modelBar,
        this.chips,
        this.about,
        h("span", { class: "ds-spring" }),
        this.examplesButton,
        this.againButton,
        this.compareButton,
        this.whatIfButton,
        this.saveButton,
      ),
      this.banner,
    );
  }

  _toolbar() {
    const step = (sign, label, keys, by) =>
      button(sign, { "aria-label": label, title: `${label} (${keys})` }, () => this.step(by));
    this.previous = step("‹", "Round before", "←", -1);
    this.next = step("›", "Round after", "→", 1);
    this.playButton = button("▶", { "aria-label": "Play", title: "Play (space)" }, () =>
      this.togglePlay(),
    );
    this.liveButton = button(
      "Live",
      { class: "ds-live", "aria-pressed": "true", title: "Follow the run" },
      () => this.goLive(),
    );
    this.found = h("span", { class: "ds-found", "aria-live": "polite" });
    this.searchBox = h("input", {
      type: "text",
      class: "ds-search",
      placeholder: "Find a token  /",
      "aria-label": "Find a token in this tree",
      autocomplete: "off",
      spellcheck: "false",
      maxlength: 80,
    });
    this.searchBox.addEventListener("input", () => this._search());
    this.searchBox.addEventListener("keydown", (event) => this._searchKey(event));
    const tool = (sign, label, act) => button(sign, { "aria-label": label, title: label }, act);
    const transport = h(
      "div",
      { class: "ds-transport", role: "group", "aria-label": "Step through rounds" },
      this.previous,
      this.playButton,
      this.next,
      this.liveButton,
    );
    this.titles = h("div", { class: "ds-titles" });
    this.foldButton = button(
      "All nodes",
      { class: "ds-button", "aria-pressed": "false", title: "Draw every node, or fold again (u)" },
      () => this.toggleFold(),
    );
    this.drawings = h("span", { class: "ds-drawings" });
    this.link = new Permalink(this);
    this.tableButton = button(
      "Table",
      { class: "ds-button", "aria-pressed": "false", title: "Nodes as a table (t)" },
      () => this.toggleTable(),
    );
    return h(
      "header",
      { class: "ds-toolbar" },
      transport,
      this.titles,
      h("span", { class: "ds-spring" }),
      h(
        "span",
        { class: "ds-tools" },
        this.found,
        this.searchBox,
        tool("−", "Zoom out (−)", () => this._trees((tree) => tree.zoomBy(1 / 1.3))),
        tool("+", "Zoom in (+)", () => this._trees((tree) => tree.zoomBy(1.3))),
        tool("⤢", "Fit the whole tree (f)", () => this._trees((tree) => tree.fit())),
        this.foldButton,
        this.tableButton,
        this.drawings,
        this.link.button,
        tool("?", "Keys and marks (?)", () => this.dialog.showModal()),
      ),
      this._switch(),
    );
  }

  /** What the stage shows: the tree, the stage times of all rounds, or what the run measures. */
  _switch() {
    const parts = [
      ["tree", "Tree", "The draft tree"],
      ["stages", "Stages", "Stage times of every round"],
      ["stats", "Stats", "TVD, coverage and acceptance per depth"],
    ];
    this.parts = new Map(
      parts.map(([name, label, title]) => [
        name,
        button(label, { title, "aria-pressed": "false" }, () => this.showPart(name)),
      ]),
    );
    return h(
      "span",
      { class: "ds-switch", role: "group", "aria-label": "Show" },
      ...this.parts.values(),
    );
  }

  showPart(name) {
    this.scope.setAttribute("data-show", name);
    for (const [each, made] of this.parts) made.setAttribute("aria-pressed", String(each === name));
    if (name === "tree") for (const pane of this.panes) if (pane.shown) pane.tree.frame(true);
    this.guide.measures?.stale();
  }

  _legend() {
    const entry = (name, sign, words) =>
      h("span", { class: "entry" }, h("i", { class: `box ${name}` }, sign), words);
    return h(
      "footer",
      { class: "ds-legend" },
      entry("accepted", "✓", "accepted"),
      entry("rejected", "×", "rejected"),
      entry("unreached", "·", "unreached: unobserved, not rejected"),
      entry("ghost", "◇", "target's token, not drafted"),
      h("span", { class: "entry" }, h("i", { class: "mini q" }), "q drafter"),
      h("span", { class: "entry" }, h("i", { class: "mini p" }), "p target"),
      this.cueKey,
    );
  }

  _help() {
    const rows = KEYS.map(([key, what]) =>
      h("div", {}, h("dt", {}, ...key.split(" ").map((k) => h("kbd", {}, k))), h("dd", {}, what)),
    );
    this.dialog = h(
      "dialog",
      { class: "ds-help", "aria-label": "Keys" },
      h("h3", {}, "Text"),
      h("p", { class: "ds-key" }, textKey()),
      h("h3", {}, "Keys"),
      h("dl", {}, rows),
      button("Close", { class: "ds-button" }, () => this.dialog.close()),
    );
    this.dialog.addEventListener(
      "click",
      (event) => event.target === this.dialog && this.dialog.close(),
    );
    return this.dialog;
  }

  /** The shelf of examples and earlier runs, over the page. */
  _examples() {
    if (!this.gallery) return "";
    const shelf = new Gallery(
      this.source,
      (tickets, names) => this._chosen(tickets, names),
      this.where.places > 1,
    );
    this.shelf = h(
      "dialog",
      { class: "ds-help ds-shelves", "aria-label": "Examples and runs" },
      shelf.element,
      button("Close", { class: "ds-button" }, () => this.shelf.close()),
    );
    this.shelf.addEventListener(
      "click",
      (event) => event.target === this.shelf && this.shelf.close(),
    );
    this.showExamples = () => shelf.draw().then(() => this.shelf.open || this.shelf.showModal());
    return this.shelf;
  }

  /** Runs were chosen from the shelf: one to look at, or more of them for the comparison. */
  _chosen(tickets, names = []) {
    if (this.shelf) this.shelf.close();
    names.forEach((name, at) => this.link.names.set(tickets[at], name));
    if (this.where.places === 1 || tickets.length > 1) this.open(...tickets);
    else this.beside(tickets[0]);
  }

  /** Draw every node of the trees, or fold them again. */
  toggleFold() {
    const folded = !this.panes[0].tree.folded;
    for (const pane of this.panes) pane.tree.setFolded(folded);
    this._foldState();
  }

  _foldState() {
    this.foldButton.hidden = !this.panes.some((pane) => pane.tree.foldable);
    this.foldButton.textContent = this.panes[0].tree.folded ? "All nodes" : "Fold";
    this.foldButton.setAttribute("aria-pressed", String(!this.panes[0].tree.folded));
  }

  toggleTable() {
    this.tabular = !this.tabular;
    this.tableButton.textContent = this.tabular ? "Tree" : "Table";
    this.tableButton.setAttribute("aria-pressed", String(this.tabular));
    for (const pane of this.panes) pane.tabulate(this.tabular);
  }

  /** Put the parts where one run, or several, want them. */
  _arrange() {
    this._pause();
    const pair = this.comparing,
      changed = () => this._draw();
    this.scope.classList.toggle("comparing", pair);
    this.parts.get("stages").hidden = pair;
    this.scope.setAttribute("data-runs", this.panes.length);
    this.panes.forEach((pane, at) => pane.rename(LETTERS[at]));
    this.guide = pair
      ? new Together(this.panes, changed, this.source)
      : new Alone(this.panes[0], changed, this.source);
    this.around.replaceChildren(this.guide.element);
    this.below.replaceChildren(this.guide.below);
    this.titles.replaceChildren(...this.guide.titles);
    this.drawings.replaceChildren(
      ...(pair ? [] : [this.panes[0].svgButton, this.panes[0].menu.button]),
    );
    for (const pane of this.panes) pane.head.replaceChildren(...(pair ? this._paneHead(pane) : []));
    this.stage.replaceChildren(
      ...this.panes.map((pane) => pane.element),
      ...(this.guide.aside ? [this.guide.aside] : []),
    );
    this.chips.replaceChildren(...this.panes.map((pane) => pane.chip));
    for (const pane of this.panes) if (!pane.chip.hidden && pane.feed.run) this._sayState(pane);
    this.guide.enter();
  }

  _paneHead(pane) {
    const save = button(
      "Trace",
      {
        class: "ds-button",
        "aria-label": `Save trace ${pane.letter}`,
        title: "Download this run as .jsonl.gz",
      },
      () => pane.saveTrace(),
    );
    const end = button(
      "×",
      {
        class: "ds-button",
        "aria-label": `Take run ${pane.letter} out of the comparison`,
        title: "Take this run out",
      },
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

  _trees(act) {
    for (const pane of this.panes) if (pane.tree.round) act(pane.tree);
  }

  // ── runs ───────────────────────────────────────────────────────────────────────────────────

  /** Show the run of a ticket, and beside it other ones. */
  open(...tickets) {
    const [ticket, ...more] = tickets.filter(Boolean).slice(0, this.where.places),
      first = this.panes[0];
    this.banner.hidden = true;
    if ([ticket, ...more].join() === this.panes.map((pane) => pane.feed.ticket).join()) return; // on view already
    this._unpair();
    first.open(ticket);
    this.empty.hidden = !!more.length || !!first.rounds.length;
    more.forEach((other) => this._pair(other));
    this._began();
  }

  /** Fill the form with the settings of what is shown, to be changed and started. */
  again() {
    this.trigger("refill", { tickets: this.panes.map((pane) => pane.feed.ticket).filter(Boolean) });
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
    this.banner.hidden = this.empty.hidden = true;
    this._pair(ticket);
    this._began();
  }

  /** Take a run out of the comparison. */
  part(pane) {
    pane.feed.close();
    this.panes = this.panes.filter((each) => each !== pane);
    if (!this.panes.includes(this.active)) this.active = this.panes[0];
    this._arrange();
    this._describe();
    this._cueKey();
    this._remember();
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
    this._remember();
    this._describe();
    this.link.opened();
    this.trigger("running");
  }

  _rounds(pane, first) {
    if (!this.panes.includes(pane)) return;
    if (pane.rounds.length) this.empty.hidden = true;
    if (first === 0 && pane.feed.ticket) shelve([pane.feed.ticket]);
    this._describe();
    this.guide.take(pane, first);
    if (first === 0) this._cueKey();
  }

  _draw() {
    const guide = this.guide,
      count = Math.max(...this.panes.map((pane) => pane.rounds.length));
    this.previous.disabled = guide.atStart;
    this.next.disabled = guide.atEnd;
    this.playButton.disabled = count < 2;
    this.liveButton.hidden = !this.busy;
    this.liveButton.setAttribute("aria-pressed", String(guide.follow));
    for (const each of [this.saveButton, this.compareButton, this.whatIfButton, this.againButton])
      each.disabled = this.panes[0].rounds.length === 0;
    this.saveButton.hidden = this.comparing || !this.source.save;
    const shown = this.panes.map((pane) => pane.at).join();
    if (shown !== this.shown) this._moved(shown);
    this.link.moved();
  }

  /** Another round is on view, in one pane or in both. */
  _moved(shown) {
    this.shown = shown;
    this._foldState();
    if (!this.guide.follow) this.announce.textContent = this.guide.words;
    if (this.searchBox.value) this._search();
  }

  _describe() {
    const told = this.panes.map((pane) => aboutRun(pane.feed.header));
    const header = this.panes[0].feed.header;
    this.about.replaceChildren(
      ...(header ? [h("q", { title: header.prompt }, header.prompt)] : []),
      h("span", {}, this.comparing ? "" : told[0]),
    );
    this.panes.forEach((pane, at) => {
      pane.name.textContent = pane.feed.header ? pane.title : "";
      pane.name.title = told[at];
    });
  }

  /** What the marks in the boxes mean, if these drafts have any. */
  _cueKey() {
    const words = Object.assign(
      {},
      ...this.panes.flatMap((pane) => pane.rounds.map((round) => round.sign_help || {})),
    );
    const entries = Object.keys(words)
      .sort()
      .map((mark) => h("span", { class: "entry" }, h("b", {}, mark), words[mark]));
    this.cueKey.replaceChildren(...entries);
    this.cueKey.hidden = !entries.length;
  }

  // ── stepping and playing ───────────────────────────────────────────────────────────────────

  step(by) {
    this.guide.step(by);
  }

  /** Go to a round of the first run. */
  reach(at) {
    this._pause();
    this.guide.reach(at);
  }

  goLive() {
    this._pause();
    this.guide.live();
  }

  togglePlay() {
    if (this.playing) return this._pause();
    if (this.playButton.disabled) return;
    this.guide.follow = false;
    this.playButton.textContent = "❚❚";
    this.playButton.setAttribute("aria-label", "Pause");
    if (this.guide.atEnd) this.guide.home();
    this.playing = setInterval(() => {
      if (this.guide.atEnd) this._pause();
      else this.guide.step(1);
    }, PLAY_EVERY);
    this._draw();
  }

  _pause() {
    clearInterval(this.playing);
    this.playing = null;
    this.playButton.textContent = "▶";
    this.playButton.setAttribute("aria-label", "Play");
  }

  // ── nodes ──────────────────────────────────────────────────────────────────────────────────

  /** A tree was touched; with a row, a node of it was opened. */
  _picked(pane, row) {
    if (!this.panes.includes(pane)) return;
    this.active = pane;
    for (const each of this.panes) each.element.classList.toggle("active", each === pane);
    if (row === undefined) return;
    this._pause();
    this.guide.follow = false;
    this._draw();
  }

  /** A node is pointed at; its counterparts in other trees, in words. */
  _pointed(pane, row) {
    if (!this.comparing || !this.panes.includes(pane)) return "";
    this.guide.point(pane, row);
    return row === null ? "" : this.guide.pointed(pane, row);
  }

  _select(row) {
    this.guide.follow = false;
    this.active.select(row);
    this._draw();
  }

  _search() {
    const wanted = this.searchBox.value.trim();
    this.hits = this.panes.flatMap((pane) =>
      pane.tree.search(wanted).map((row) => ({ pane, row })),
    );
    this.hit = -1;
    this.found.textContent = wanted
      ? plural(this.hits.length, "match").replace("matchs", "matches")
      : "";
  }

  _searchKey(event) {
    if (event.key === "Enter" && this.hits && this.hits.length) {
      this.hit = (this.hit + (event.shiftKey ? -1 : 1) + this.hits.length) % this.hits.length;
      this._picked(this.hits[this.hit].pane);
      this._select(this.hits[this.hit].row);
      this.found.textContent = `${this.hit + 1} of ${this.hits.length}`;
    }
    if (event.key === "Escape") {
      this.searchBox.value = "";
      this._search();
      this.active.tree.svg.focus();
    }
    if (event.key === "Enter" || event.key === "Escape") event.preventDefault();
    event.stopPropagation();
  }

  _other() {
    if (!this.comparing) return;
    this._picked(this.panes[(this.panes.indexOf(this.active) + 1) % this.panes.length]);
    this.active.tree.svg.focus();
  }

  // ── keys ───────────────────────────────────────────────────────────────────────────────────

  _listen(element) {
    this.onKey = (event) => {
      if (!element.isConnected) return document.removeEventListener("keydown", this.onKey);
      if (!element.getClientRects().length || event.defaultPrevented) return;
      if (!this._typing(event)) this._key(event);
    };
    document.addEventListener("keydown", this.onKey);
    this.onStop = ({ detail }) =>
      detail === this.where.stop && this.panes.forEach((pane) => pane.feed.halt());
    window.addEventListener("draftscope-stop", this.onStop);
    onGoTo(this.scope, () => this._goto());
    onShown(this.scope, () => this.link.moved()); // another tab had the address
    onBack(this.scope, this.where.view, (tickets) => this._back(tickets));
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

  _typing(event) {
    if (this.dialog.open || this.shelf?.open || event.ctrlKey || event.metaKey || event.altKey)
      return true;
    const tag = event.target.tagName;
    const range = tag === "INPUT" && event.target.type === "range";
    if (range) return event.key.startsWith("Arrow") || event.key === "Home" || event.key === "End";
    return (
      tag === "INPUT" ||
      tag === "TEXTAREA" ||
      tag === "SELECT" ||
      (tag === "BUTTON" && (event.key === " " || event.key === "Enter"))
    );
  }

  _key(event) {
    const tree = this.active.tree,
      node = (by) => tree.round && this._select(tree.neighbour(by));
    const acts = {
      ArrowLeft: () => (event.shiftKey ? node("parent") : this.step(-1)),
      ArrowRight: () => (event.shiftKey ? node("child") : this.step(1)),
      ArrowUp: () => node("up"),
      ArrowDown: () => node("down"),
      Home: () => this.guide.home(),
      End: () => this.guide.end(),
      Enter: () => tree.round && this.active.inspect(this.active.row ?? tree.neighbour("here")),
      " ": () => this.togglePlay(),
      f: () => this._trees((each) => each.fit()),
      u: () => {
        tree.unfold(this.active.row);
        this._foldState();
      },
      a: () => this._trees((each) => each.frame(false)),
      "+": () => this._trees((each) => each.zoomBy(1.3)),
      "=": () => this._trees((each) => each.zoomBy(1.3)),
      "-": () => this._trees((each) => each.zoomBy(1 / 1.3)),
      d: () => this.comparing && this.guide.stepContrast(1),
      D: () => this.comparing && this.guide.stepContrast(-1),
      o: () => this._other(),
      t: () => this.toggleTable(),
      e: () => this.gallery && this.showExamples(),
      s: () => this.active.menu.button.disabled || this.active.menu.open(),
      "/": () => this.searchBox.focus(),
      "?": () => this.dialog.showModal(),
      Escape: () => this.panes.forEach((pane) => pane.closeInspector()),
    };
    const act = acts[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  // ── the server ─────────────────────────────────────────────────────────────────────────────

  _modelState(model) {
    const words = {
      loading: `model: ${model.message}`,
      ready: "model ready",
      failed: `model: ${model.message}`,
    };
    this._chip(this.modelChip, model.state, words[model.state]);
    const known = model.state === "loading" && typeof model.fraction === "number";
    this.modelBar.hidden = !known;
    if (known) this.modelBar.firstChild.style.width = `${Math.round(100 * model.fraction)}%`;
  }

  _runState(pane, ended) {
    if (!this.panes.includes(pane)) return;
    const run = pane.feed.run;
    this._sayState(pane);
    if (run.message) this.complain(run.message);
    if (pane.feed.active) return;
    this.guide.settle();
    this._cueKey();
    if (ended && !this.busy) this.trigger("settled");
  }

  _sayState(pane) {
    const run = pane.feed.run,
      file = run.source === "file";
    const ahead = run.ahead
      ? `waiting: ${plural(run.ahead, "run")} ahead`
      : "waiting for the model";
    const words = {
      waiting: ahead,
      running: file ? "reading the trace" : run.reading || "running",
      done: file ? "trace" : "done",
      stopped: file ? "trace, interrupted" : "stopped",
      failed: "failed",
    };
    this._chip(pane.chip, run.state, (this.comparing ? `${pane.letter}: ` : "") + words[run.state]);
  }

  _lost(pane) {
    this._chip(pane.chip, "", "");
    const looked = pane.rounds.length ? ": it can be looked at, but not inspected or saved" : "";
    this.complain(`this run is no longer on the server${looked}`);
    this.empty.hidden = this.comparing || !!looked;
    this._remember();
    if (!this.busy) this.trigger("settled");
  }

  _chip(chip, state, words) {
    chip.hidden = !words;
    if (chip.getAttribute("data-state") !== state) chip.setAttribute("data-state", state);
    if (chip.textContent !== words) chip.textContent = words;
  }

  complain(sentence) {
    this.banner.hidden = false;
    this.banner.textContent = sentence;
  }

  /** The tickets survive a reload of this tab, and nothing else does. */
  _remember() {
    try {
      const tickets = this.panes.map((pane) => pane.feed.ticket).filter(Boolean);
      sessionStorage.setItem(`draftscope-tickets-${this.where.view}`, tickets.join(" "));
    } catch {
      // storage may be forbidden; then a reload starts afresh
    }
  }

  /** What a reload had on view, unless somebody asked for something else. */
  restore() {
    if (awaits(this.where.view)) return this._goto();
    const { place } = this.link,
      said = this.banner.hidden ? "" : this.banner.textContent;
    try {
      const tickets = (sessionStorage.getItem(`draftscope-tickets-${this.where.view}`) || "")
        .split(" ")
        .filter(Boolean);
      if (!tickets.length) return;
      this.open(...tickets);
      if (place) this.link.seek(place);
      if (said) this.complain(said); // of the link that was followed in vain
    } catch {
      // as above
    }
  }
}

/** What the lines below a token of the text mean. */
function textKey() {
  const entries = [
    ["accepted", "drafted, accepted"],
    ["bonus", "bonus"],
    ["prefill", "from prefill"],
  ];
  return entries.map(([name, words]) =>
    h("span", { class: "entry" }, h("i", { class: `ds-token ${name}` }, "abc"), words),
  );
}

/** A run's method, model and settings on one line. */
function aboutRun(header) {
  if (!header) return "";
  const pick = new Map(header.settings),
    parts = [header.method, header.model];
  for (const [name, sign] of [
    ["budget", "B "],
    ["temperature", "T "],
    ["seed", "seed "],
  ]) {
    if (pick.has(name)) parts.push(sign + pick.get(name));
  }
  parts.push(plural(header.prompt_tokens, "prompt token"));
  return parts.filter(Boolean).join(" · ");
}
