// The view as a whole. A source ({news, inspect, save, halt}) gives it rounds; live runs and opened
// traces are the same to it. Rounds stay here: stepping and scrubbing never ask the server.

const KEYS = [
  ["← →", "round before, round after"],
  ["Home End", "first round, last round"],
  ["↑ ↓", "node above, node below, at the same depth"],
  ["Shift ← →", "parent, child (the accepted one first)"],
  ["Enter", "open the inspector for the node"],
  ["Space", "play, pause"],
  ["f", "fit the whole tree"],
  ["a", "back to the accepted path"],
  ["+ −", "zoom in, zoom out"],
  ["/", "search a token; Enter goes to the next one"],
  ["?", "this help"],
  ["Esc", "close the inspector or the search"],
];
const PLAY_EVERY = 900; // milliseconds a round stays when playing
const LIVE_EVERY = 110; // at most about nine looks a second
const BIG = 300; // a tree of more nodes is redrawn less often while it streams

class Studio {
  constructor(element, source, trigger) {
    this.source = source;
    this.trigger = trigger;
    this.rounds = [];
    this.at = -1;
    this.row = null;
    this.follow = true;
    this.run = null;
    this.details = new Map();
    this.drawn = 0;
    this._build(element);
    this._draw();
    this._listen(element);
    this._poll();
  }

  // ── the parts ──────────────────────────────────────────────────────────────────────────────

  _build(element) {
    this.tree = new TreeView((row) => this.inspect(row));
    this.strip = new Strip((at, row) => this.goTo(at, row));
    this.lengths = new LengthChart((at) => this.goTo(at));
    this.stages = new StageBar();
    this.tiles = new Tiles();
    this.inspector = new Inspector(() => this.closeInspector());
    this.empty = h("div", { class: "ds-empty" },
      h("p", { class: "ds-empty-title" }, "Every drafted tree, as the target sees it"),
      h("p", {}, "Write a prompt and press Start, or open a saved trace. Each round appears here: what the drafter proposed, what the target took, and why the rest ended."));
    this.heading = h("h2", { class: "ds-round-title" }, "No round yet");
    this.announce = h("div", { class: "ds-unseen", "aria-live": "polite" });
    clear(element).append(
      h("div", { class: "ds-scope" },
        this._statusLine(),
        h("section", { class: "ds-card ds-text", "aria-label": "Generated text" },
          h("header", {}, h("h2", {}, "Text"), this._textKey()), this.strip.element),
        this._roundCard(),
        h("section", { class: "ds-card ds-stage", "aria-label": "Draft tree" },
          this._toolbar(), h("div", { class: "ds-split" },
            h("div", { class: "ds-picture" }, this.tree.element, this.empty), this.inspector.element),
          this._legend()),
        this._help(), this.announce));
  }

  _statusLine() {
    this.modelChip = h("span", { class: "ds-chip", role: "status", "data-state": "loading" }, "model: waking up");
    this.modelBar = h("span", { class: "ds-progress", hidden: true }, h("i", {}));
    this.runChip = h("span", { class: "ds-chip run", role: "status", hidden: true });
    this.about = h("span", { class: "ds-about" });
    this.banner = h("p", { class: "ds-banner", role: "alert", hidden: true });
    this.saveButton = button("Save trace", { class: "ds-button", disabled: true, title: "Download this run as .jsonl.gz" }, () => this.save());
    return h("div", { class: "ds-top-line" },
      h("div", { class: "ds-status" }, this.modelChip, this.modelBar, this.runChip, this.about, h("span", { class: "ds-spring" }), this.saveButton),
      this.banner);
  }

  _textKey() {
    const entry = (name, words) => h("span", { class: "entry" }, h("span", { class: "ds-token " + name }, "abc"), words);
    return h("span", { class: "ds-key" }, entry("accepted", "drafted, accepted"), entry("bonus", "bonus"), entry("prefill", "from prefill"));
  }

  _roundCard() {
    this.scrub = h("input", { type: "range", min: 0, max: 0, step: 1, value: 0, class: "ds-scrub", disabled: true, "aria-label": "Round" });
    this.scrub.addEventListener("input", () => this.goTo(Number(this.scrub.value)));
    this.playButton = button("▶", { "aria-label": "Play", title: "Play (space)" }, () => this.togglePlay());
    this.liveButton = button("Live", { class: "ds-live", "aria-pressed": "true", title: "Follow the run" }, () => this.goLive());
    const step = (sign, label, keys, by) => button(sign, { "aria-label": label, title: `${label} (${keys})` }, () => this.goTo(this.at + by));
    this.previous = step("‹", "Round before", "←", -1);
    this.next = step("›", "Round after", "→", 1);
    return h("section", { class: "ds-card ds-rounds", "aria-label": "Rounds" },
      h("div", { class: "ds-chart" },
        h("header", {}, h("h2", {}, "Accepted per round"),
          h("span", { class: "ds-key" }, h("span", { class: "entry" }, h("i", { class: "swatch accepted" }), "accepted"),
            h("span", { class: "entry" }, h("i", { class: "swatch bonus" }), "+ 1 bonus"))),
        this.lengths.element, this.scrub),
      h("div", { class: "ds-side" }, this.tiles.element, this.stages.element));
  }

  _toolbar() {
    this.found = h("span", { class: "ds-found", "aria-live": "polite" });
    this.searchBox = h("input", { type: "text", class: "ds-search", placeholder: "Find a token  /", "aria-label": "Find a token in this tree", autocomplete: "off", spellcheck: "false", maxlength: 80 });
    this.searchBox.addEventListener("input", () => this._search());
    this.searchBox.addEventListener("keydown", (event) => this._searchKey(event));
    const tool = (sign, label, act) => button(sign, { "aria-label": label, title: label }, act);
    const transport = h("div", { class: "ds-transport", role: "group", "aria-label": "Step through rounds" },
      this.previous, this.playButton, this.next, this.liveButton);
    return h("header", { class: "ds-toolbar" }, transport, this.heading, h("span", { class: "ds-spring" }),
      h("span", { class: "ds-tools" }, this.found, this.searchBox,
        tool("−", "Zoom out (−)", () => this.tree.zoomBy(1 / 1.3)), tool("+", "Zoom in (+)", () => this.tree.zoomBy(1.3)),
        tool("⤢", "Fit the whole tree (f)", () => this.tree.fit()),
        tool("?", "Keys (?)", () => this.dialog.showModal())));
  }

  _legend() {
    const entry = (name, sign, words) => h("span", { class: "entry" }, h("i", { class: "box " + name }, sign), words);
    return h("footer", { class: "ds-legend" }, entry("accepted", "✓", "accepted"), entry("rejected", "×", "rejected"),
      entry("unreached", "·", "unreached: unobserved, not rejected"), entry("ghost", "◇", "target's token, not drafted"),
      h("span", { class: "entry" }, h("i", { class: "mini q" }), "q drafter"), h("span", { class: "entry" }, h("i", { class: "mini p" }), "p target"));
  }

  _help() {
    const rows = KEYS.map(([key, what]) => h("div", {}, h("dt", {}, ...key.split(" ").map((k) => h("kbd", {}, k))), h("dd", {}, what)));
    this.dialog = h("dialog", { class: "ds-help", "aria-label": "Keys" }, h("h3", {}, "Keys"), h("dl", {}, rows),
      button("Close", { class: "ds-button" }, () => this.dialog.close()));
    this.dialog.addEventListener("click", (event) => event.target === this.dialog && this.dialog.close());
    return this.dialog;
  }

  // ── rounds ─────────────────────────────────────────────────────────────────────────────────

  /** Show the run of a ticket; an unfinished one before it is stopped. */
  open(ticket) {
    if (this.run && this._active()) this.source.halt({ ticket: this.run.ticket }).catch(() => {});
    this._forget();
    this.run = { ticket, state: "waiting", more: false };
    this._remember(ticket);
    this.trigger("running");
    this._wake();
  }

  _forget() {
    this.rounds = [];
    this.at = -1;
    this.row = null;
    this.follow = true;
    this.details.clear();
    this._pause();
    this.closeInspector();
    this.strip.clear();
    this.tree.clear();
    this.about.textContent = "";
    this.heading.textContent = "No round yet";
    this.banner.hidden = true;
    this.empty.hidden = false;
    this._draw();
  }

  _take(run) {
    const first = this.rounds.length;
    run.rounds.forEach((round, i) => this.strip.append(round, first + i));
    this.rounds.push(...run.rounds);
    if (run.header) this._describe(run.header);
    if (!run.rounds.length) return;
    this.empty.hidden = true;
    this.saveButton.disabled = false;
    if (this.at < 0 || this.follow) this._followLatest();
    else this._draw();
  }

  _followLatest() {
    const last = this.rounds[this.rounds.length - 1];
    const busy = this._active() && last.y.length > BIG && performance.now() - this.drawn < 450;
    if (busy) return this._draw();
    // A trace opens at its first round, a live run is followed.
    this._show(this.run.source === "file" && this.at < 0 ? 0 : this.rounds.length - 1);
  }

  goTo(at, row) {
    if (!this.rounds.length) return;
    const to = Math.max(0, Math.min(this.rounds.length - 1, at));
    this.follow = this._active() && to === this.rounds.length - 1 && row === undefined;
    if (to !== this.at) this._show(to);
    else this._draw();
    if (row !== undefined) this._select(row);
  }

  goLive() {
    this.follow = true;
    this._pause();
    if (this.rounds.length) this._show(this.rounds.length - 1);
  }

  _show(at) {
    const round = this.rounds[at], reopen = this.inspector.open;
    this.at = at;
    this.row = null;
    this.tree.show(round, false);
    this.drawn = performance.now();
    this.strip.mark(at);
    this.stages.draw(round.times);
    const nodes = round.y.length - 1;
    this.heading.textContent = `Round ${at + 1} `;
    const kind = nodes ? `${plural(nodes, "node")} drafted, ${round.accepted} accepted` : "nothing drafted";
    this.heading.append(h("small", {}, kind));
    if (this.searchBox.value) this._search();
    if (reopen) this.closeInspector();
    if (!this.follow) this.announce.textContent = `round ${at + 1} of ${this.rounds.length}, ${kind}`;
    this._draw();
  }

  _draw() {
    const sum = summarise(this.rounds), count = this.rounds.length;
    this.tiles.draw(sum);
    this.lengths.draw(this.rounds, this.at, sum.tau);
    this.scrub.disabled = count < 2;
    this.scrub.max = String(Math.max(0, this.lengths.slots - 1));
    this.scrub.max = String(Math.max(0, count - 1));
    this.scrub.style.width = `${(100 * Math.max(1, count)) / this.lengths.slots}%`;
    this.scrub.value = String(Math.max(0, this.at));
    this.scrub.setAttribute("aria-valuetext", count ? `round ${this.at + 1} of ${count}` : "no round");
    this.previous.disabled = this.at <= 0;
    this.next.disabled = this.at >= count - 1;
    this.playButton.disabled = count < 2;
    this.liveButton.hidden = !this._active();
    this.liveButton.setAttribute("aria-pressed", String(this.follow));
    this.saveButton.disabled = count === 0;
  }

  _describe(header) {
    const pick = new Map(header.settings), parts = [header.method, header.model];
    for (const [name, sign] of [["budget", "B "], ["temperature", "T "], ["seed", "seed "]]) {
      if (pick.has(name)) parts.push(sign + pick.get(name));
    }
    parts.push(plural(header.prompt_tokens, "prompt token"));
    this.about.textContent = parts.filter(Boolean).join(" · ");
    this.about.title = "prompt: " + header.prompt;
  }

  // ── playing ────────────────────────────────────────────────────────────────────────────────

  togglePlay() {
    if (this.playing) return this._pause();
    if (this.rounds.length < 2) return;
    this.follow = false;
    this.playButton.textContent = "❚❚";
    this.playButton.setAttribute("aria-label", "Pause");
    if (this.at >= this.rounds.length - 1) this._show(0);
    this.playing = setInterval(() => {
      if (this.at >= this.rounds.length - 1) this._pause();
      else this._show(this.at + 1);
    }, PLAY_EVERY);
    this._draw();
  }

  _pause() {
    clearInterval(this.playing);
    this.playing = null;
    this.playButton.textContent = "▶";
    this.playButton.setAttribute("aria-label", "Play");
  }

  // ── one node ───────────────────────────────────────────────────────────────────────────────

  _select(row) {
    if (!this.tree.has(row)) return;
    this.row = row;
    this.follow = false;
    this.tree.select(row);
    this.announce.textContent = this.tree.node(row).getAttribute("aria-label");
    this._draw();
    if (this.inspector.open) this._detail(row);
  }

  inspect(row) {
    this._pause();
    if (!this.inspector.open) this.inspector.wait("…");
    this._select(row);
  }

  async _detail(row) {
    const key = `${this.at}/${row}`, at = this.at, ticket = this.run.ticket;
    const wanted = () => this.run && this.run.ticket === ticket && this.at === at && this.row === row && this.inspector.open;
    if (!this.details.has(key)) {
      this.inspector.wait(this.tree.label(row));
      try {
        const answer = await this.source.inspect({ ticket, round: at, row });
        if (answer.error) return wanted() && this.inspector.complain(answer.error);
        this.details.set(key, answer);
      } catch (error) {
        return wanted() && this.inspector.complain("the server did not answer");
      }
    }
    if (wanted()) this.inspector.show(this.details.get(key));
  }

  closeInspector() {
    const had = this.inspector.open && this.inspector.element.contains(document.activeElement);
    this.inspector.close();
    if (this.tree.round) this.tree.select(null);
    this.row = null;
    if (had) this.tree.svg.focus();
  }

  _search() {
    this.hits = this.tree.search(this.searchBox.value.trim());
    this.hit = -1;
    this.found.textContent = this.searchBox.value.trim() ? plural(this.hits.length, "match").replace("matchs", "matches") : "";
  }

  _searchKey(event) {
    if (event.key === "Enter" && this.hits && this.hits.length) {
      this.hit = (this.hit + (event.shiftKey ? -1 : 1) + this.hits.length) % this.hits.length;
      this._select(this.hits[this.hit]);
      this.found.textContent = `${this.hit + 1} of ${this.hits.length}`;
    }
    if (event.key === "Escape") {
      this.searchBox.value = "";
      this._search();
      this.tree.svg.focus();
    }
    if (event.key === "Enter" || event.key === "Escape") event.preventDefault();
    event.stopPropagation();
  }

  // ── keys ───────────────────────────────────────────────────────────────────────────────────

  _listen(element) {
    this.onKey = (event) => {
      if (!element.isConnected) return document.removeEventListener("keydown", this.onKey);
      if (!element.getClientRects().length || event.defaultPrevented) return;
      if (!this._typing(event)) this._key(event);
    };
    document.addEventListener("keydown", this.onKey);
    this.onStop = () => this.run && this._active() && this.source.halt({ ticket: this.run.ticket }).then(() => this._wake());
    window.addEventListener("draftscope-stop", this.onStop);
  }

  _typing(event) {
    if (this.dialog.open || event.ctrlKey || event.metaKey || event.altKey) return true;
    const tag = event.target.tagName;
    const range = tag === "INPUT" && event.target.type === "range";
    if (range) return event.key.startsWith("Arrow") || event.key === "Home" || event.key === "End";
    return tag === "INPUT" || tag === "TEXTAREA" || tag === "SELECT" ||
      (tag === "BUTTON" && (event.key === " " || event.key === "Enter"));
  }

  _key(event) {
    const node = (by) => this.tree.round && this._select(this.tree.neighbour(by));
    const acts = {
      ArrowLeft: () => (event.shiftKey ? node("parent") : this.goTo(this.at - 1)),
      ArrowRight: () => (event.shiftKey ? node("child") : this.goTo(this.at + 1)),
      ArrowUp: () => node("up"),
      ArrowDown: () => node("down"),
      Home: () => this.goTo(0),
      End: () => this.goTo(this.rounds.length - 1),
      Enter: () => this.tree.round && this.inspect(this.row ?? this.tree.neighbour("here")),
      " ": () => this.togglePlay(),
      f: () => this.tree.fit(),
      a: () => this.tree.round && this.tree.frame(false),
      "+": () => this.tree.zoomBy(1.3),
      "=": () => this.tree.zoomBy(1.3),
      "-": () => this.tree.zoomBy(1 / 1.3),
      "/": () => this.searchBox.focus(),
      "?": () => this.dialog.showModal(),
      Escape: () => this.closeInspector(),
    };
    const act = acts[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  // ── the server ─────────────────────────────────────────────────────────────────────────────

  _active() {
    return !!this.run && (this.run.state === "waiting" || this.run.state === "running" || this.run.more);
  }

  _wake() {
    clearTimeout(this.timer);
    if (this.polling) this.again = true;
    else this._poll();
  }

  async _poll() {
    this.polling = true;
    this.again = false;
    let pause = null;
    try {
      const ticket = this.run ? this.run.ticket : null;
      const news = await this.source.news({ ticket, since: this.rounds.length });
      pause = this._hear(news, ticket);
    } catch (error) {
      this._chip(this.modelChip, "failed", "the server does not answer");
      pause = 2000;
    }
    this.polling = false;
    if (this.again) pause = 0;
    if (pause !== null) this.timer = setTimeout(() => this._poll(), pause);
  }

  /** Take one answer; returns when to ask again, or null. */
  _hear(news, ticket) {
    this._modelState(news.model);
    const loading = news.model.state === "loading" ? 500 : null;
    if (!this.run || this.run.ticket !== ticket) return this.run ? 0 : loading;
    if (!news.run) {
      this.run = null;
      this._remember(null);
      this._chip(this.runChip, "", "");
      if (this.rounds.length) this.complain("this run is no longer on the server: it can be looked at, but not inspected or saved");
      this.trigger("settled");
      return loading;
    }
    const was = this._active();
    const { rounds, header, ...state } = news.run;
    this.run = state;
    this._take(news.run);
    this._runState(state);
    if (!this._active()) {
      if (this.follow && this.rounds.length && state.source !== "file" && this.at !== this.rounds.length - 1) this._show(this.rounds.length - 1);
      this._draw();
      if (was) this.trigger("settled");
      return loading;
    }
    return state.more ? 0 : state.state === "waiting" ? 350 : LIVE_EVERY;
  }

  _modelState(model) {
    const words = { loading: `model: ${model.message}`, ready: "model ready", failed: `model: ${model.message}` };
    this._chip(this.modelChip, model.state, words[model.state]);
    const known = model.state === "loading" && typeof model.fraction === "number";
    this.modelBar.hidden = !known;
    if (known) this.modelBar.firstChild.style.width = `${Math.round(100 * model.fraction)}%`;
  }

  _runState(run) {
    const ahead = run.ahead ? `waiting: ${plural(run.ahead, "run")} ahead` : "waiting for the model";
    const file = run.source === "file";
    const words = { waiting: ahead, running: "running", done: file ? "trace" : "done", stopped: file ? "trace, interrupted" : "stopped", failed: "failed" };
    this._chip(this.runChip, run.state, words[run.state]);
    if (run.message) this.complain(run.message);
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

  async save() {
    this.saveButton.disabled = true;
    try {
      const answer = await this.source.save({ ticket: this.run ? this.run.ticket : null });
      if (answer.error) this.complain(answer.error);
      else this._download(answer.name, answer.data);
    } catch (error) {
      this.complain("the trace could not be saved: the server did not answer");
    }
    this.saveButton.disabled = false;
  }

  _download(name, data) {
    const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([bytes], { type: "application/gzip" }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  /** The ticket survives a reload of this tab, and nothing else does. */
  _remember(ticket) {
    try {
      if (ticket) sessionStorage.setItem("draftscope-ticket", ticket);
      else sessionStorage.removeItem("draftscope-ticket");
    } catch (error) {
      // storage may be forbidden; then a reload starts afresh
    }
  }

  restore() {
    try {
      const ticket = sessionStorage.getItem("draftscope-ticket");
      if (ticket) this.open(ticket);
    } catch (error) {
      // as above
    }
  }
}
