// Two runs side by side, stepping by the place in their text: the shared text with the rounds of one
// above it and of the other below it, a scrubber over places, and both runs' numbers. Which rounds
// are shown is a function of (rounds, place): see align.js.

class Together {
  /** changed() is called when another place is shown, or could be; compare() asks the server. */
  constructor(panes, changed, compare) {
    this.panes = panes;
    this.changed = changed;
    this.compare = compare;
    this.follow = panes.some((pane) => pane.feed.active);
    this.sides = [[], []];
    this.cautions = null;
    this.strip = new PairStrip((place) => this.go(place));
    this.lanes = new Lanes((place) => this.go(place));
    this.scrub = h("input", { type: "range", min: 0, max: 0, step: 1, value: 0, class: "ds-scrub", disabled: true, "aria-label": "Token of the text" });
    this.scrub.addEventListener("input", () => this.go(Number(this.scrub.value)));
    this.heading = h("h2", { class: "ds-place" });
    this.notes = h("ul", { class: "ds-cautions", role: "status", hidden: true });
    this.table = h("tbody", {});
    this.element = h("div", { class: "ds-guide" }, this._card());
    // The place that was looked at before stays: the round shown begins there.
    this.place = Math.max(0, laid(panes[0].rounds).findIndex((token) => token.round === panes[0].at));
  }

  enter() {
    this.take();
  }

  _card() {
    const line = (side, words) => h("span", { class: "entry" }, h("i", { class: "ds-line " + side }), words);
    this.differ = button("≠ next", { class: "ds-differ", title: "Next place where the acceptance differs (d)", "aria-label": "Next place where the acceptance differs" }, () => this.stepContrast(1));
    this.count = h("span", { class: "ds-soft" });
    const head = (name, title) => h("th", { title }, name);
    return h("section", { class: "ds-card ds-compare", "aria-label": "Two runs on one text" },
      h("header", {}, h("h2", {}, "Text"),
        h("span", { class: "ds-key" }, line("up", "above: A's rounds"), line("down", "below: B's rounds"),
          line("solid", "accepted"), line("dashed", "bonus"), h("span", { class: "entry" }, h("i", { class: "ds-line tick" }), "a round begins")),
        h("span", { class: "ds-spring" }), this.count, this.differ),
      this.notes, this.strip.element,
      h("div", { class: "ds-pair" },
        h("div", { class: "ds-lanes-box" }, this.lanes.element, this.scrub),
        h("div", { class: "ds-table" }, h("table", {},
          h("thead", {}, h("tr", {}, head("", ""), head("τ", "block efficiency: accepted nodes + 1, mean over rounds"),
            head("tokens/s", "new tokens by the seconds of all stages"),
            head("accepted", "accepted nodes by drafted nodes"), head("rounds", "one forward pass of the target each"),
            head("this token", "how the token at this place came"))),
          this.table))));
  }

  // ── where we are ───────────────────────────────────────────────────────────────────────────

  get titles() {
    return [this.heading];
  }

  get words() {
    return `token ${this.place + 1} of ${this.reach}, A ${this.panes[0].kind}, B ${this.panes[1].kind}`;
  }

  get atStart() {
    return this.place <= 0;
  }

  get atEnd() {
    return nextOf(this.stops, this.place, 1) === null;
  }

  /** To the next place where either run begins a round. */
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
    this.go(this.reach - 1);
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
    return (busy >= 0 ? Math.min(this.sides[busy].length, this.reach) : this.reach) - 1;
  }

  // ── what has come ──────────────────────────────────────────────────────────────────────────

  take() {
    this.sides = this.panes.map((pane) => laid(pane.rounds));
    const [one, other] = this.sides;
    this.parts = partsAt(one, other);
    this.reach = Math.max(1, extent(one, other)); // the first rounds can always be looked at
    this.stops = beginnings(one, other, this.reach);
    this.unlike = contrasts(one, other, this.reach);
    this.strip.draw(one, other, this.parts);
    this.lanes.draw(this.sides, this.reach);
    this._ask();
    this._show(this.follow ? this._latest() : this.place);
  }

  settle() {
    this.take();
    this.follow = this.follow && this.panes.some((pane) => pane.feed.active);
    this._draw();
  }

  /** Once, when both headers are there. */
  async _ask() {
    if (this.cautions || !this.panes.every((pane) => pane.feed.header)) return;
    this.cautions = [];
    const [ticket, other] = this.panes.map((pane) => pane.feed.ticket);
    try {
      this.cautions = (await this.compare({ ticket, other })).cautions || [];
    } catch (error) {
      this.cautions = ["the server did not say whether these runs can be compared"];
    }
    this._note();
  }

  _show(place) {
    this.place = Math.max(0, Math.min(this.reach - 1, place));
    this.panes.forEach((pane, side) => {
      const at = roundAt(this.sides[side], this.place);
      if (at >= 0 && (at !== pane.at || !pane.tree.round)) pane.show(at);
      if (at < 0) pane.blank(this._absence(pane));
    });
    this._draw();
  }

  _absence(pane) {
    if (pane.feed.active) return pane.rounds.length ? "This token is not decoded yet." : "This run waits for its turn.";
    return pane.rounds.length ? "This run ended before this token." : "This run has no rounds.";
  }

  _draw() {
    const token = this.sides[0][this.place] || this.sides[1][this.place];
    this.heading.textContent = `Token ${this.place + 1} of ${this.reach} `;
    if (token) this.heading.append(h("small", {}, `“${token.text.replace(/\n/g, "⏎")}”`));
    this.strip.mark(this.place, this.sides);
    this.lanes.mark(this.place, this.reach);
    this.scrub.disabled = this.reach < 2;
    this.scrub.max = String(this.reach - 1);
    this.scrub.value = String(this.place);
    this.scrub.setAttribute("aria-valuetext", `token ${this.place + 1} of ${this.reach}`);
    this.differ.disabled = nextOf(this.unlike, this.place, 1) === null;
    this.count.textContent = `acceptance differs at ${plural(this.unlike.length, "token")}`;
    this._numbers();
    this._note();
    this.changed();
  }

  _numbers() {
    const rows = this.panes.map((pane, side) => {
      const sum = summarise(pane.rounds), token = this.sides[side][this.place];
      const cell = (value) => h("td", {}, value);
      return h("tr", {}, h("th", {}, h("i", { class: "ds-letter" }, pane.letter), pane.feed.header ? pane.feed.header.method : "–"),
        cell(sum.rounds ? sum.tau.toFixed(2) : "–"), cell(sum.speed === null ? "–" : sum.speed.toFixed(1)),
        cell(sum.drafted ? `${percent(sum.accepted / sum.drafted)} of ${sum.drafted}` : "–"), cell(String(sum.rounds)),
        cell(token ? `${{ a: "✓ ", b: "◇ ", p: "● " }[token.came]}${CAME[token.came]}` : "–"));
    });
    this.table.replaceChildren(...rows);
  }

  /** What cannot be compared, plainly. */
  _note() {
    const found = [...(this.cautions || [])];
    if (this.parts === 0) found.unshift("the texts differ from the first token on: no two places belong together, so only the first rounds are shown");
    else if (this.parts !== null) found.unshift(`the texts differ from token ${this.parts + 1} on: only the ${plural(this.parts, "token")} before it are compared`);
    this.notes.hidden = !found.length;
    this.notes.replaceChildren(...found.map((sentence) => h("li", {}, "⚠ " + sentence)));
  }
}

/** The shared text: each token with a line above it for A and one below it for B. */
class PairStrip {
  constructor(onPick) {
    this.element = h("div", { class: "ds-strip ds-pair-strip", role: "listbox", tabindex: 0, "aria-label": "The shared text, token by token" });
    this.tokens = [];
    this.element.addEventListener("click", (event) => {
      const token = event.target.closest("[data-place]");
      if (token) onPick(Number(token.getAttribute("data-place")));
    });
  }

  draw(one, other, parts) {
    const count = parts ?? Math.max(one.length, other.length);
    if (count < this.tokens.length || (parts !== null && !this.parted)) this._clear();
    for (let place = 0; place < count; place++) {
      if (place >= this.tokens.length) this._add(place, one[place] || other[place]);
      this._line(this.tokens[place].up, one, place);
      this._line(this.tokens[place].down, other, place);
    }
    if (parts !== null && !this.parted) this._part(one[parts], other[parts]);
  }

  _clear() {
    this.tokens = [];
    this.parted = null;
    clear(this.element);
  }

  _add(place, token) {
    const up = h("i", {}), down = h("i", {}), box = h("span", { class: "ds-two", role: "option", "data-place": place, "aria-selected": "false" });
    const lines = token.text.split("\n");
    box.append(up, h("span", { class: "ds-two-text" }, lines.length > 1 ? lines.join("⏎") : token.text || "∅"), down);
    this.element.append(box);
    if (lines.length > 1) this.element.append(h("br"));
    this.tokens.push({ box, up, down });
  }

  /** How the token came in one run, and whether a round begins with it. */
  _line(mark, tokens, place) {
    const token = tokens[place], begins = token && (place === 0 || tokens[place - 1].round !== token.round);
    const odd = token && token.round % 2 ? " odd" : "";
    const wanted = token ? `${CAME[token.came]}${odd}${begins ? " begins" : ""}` : "none";
    if (mark.getAttribute("class") !== wanted) mark.setAttribute("class", wanted);
  }

  _part(one, other) {
    this.parted = h("span", { class: "ds-parted" }, "⑂ here the texts part: A ", h("b", {}, one.text), " · B ", h("b", {}, other.text));
    this.element.append(this.parted);
  }

  mark(place, sides) {
    const rounds = sides.map((tokens) => roundAt(tokens, place));
    this.tokens.forEach(({ box, up, down }, at) => {
      box.classList.toggle("here", at === place);
      box.setAttribute("aria-selected", String(at === place));
      up.classList.toggle("current", rounds[0] >= 0 && roundAt(sides[0], at) === rounds[0]);
      down.classList.toggle("current", rounds[1] >= 0 && roundAt(sides[1], at) === rounds[1]);
    });
    const here = this.tokens[place];
    if (!here) return;
    const top = here.box.offsetTop - this.element.offsetTop, view = this.element;
    if (top < view.scrollTop) view.scrollTop = top - 8;
    const bottom = top + here.box.offsetHeight;
    if (bottom > view.scrollTop + view.clientHeight) view.scrollTop = bottom - view.clientHeight + 8;
  }
}

/** Both runs' rounds over the whole text: one lane each, a box per round. */
class Lanes {
  constructor(onPick) {
    this.element = s("svg", { class: "ds-lanes", "aria-hidden": "true", preserveAspectRatio: "none" });
    const pick = (event) => {
      const box = this.element.getBoundingClientRect();
      onPick(Math.floor(((event.clientX - box.left) / box.width) * this.reach));
    };
    this.element.addEventListener("pointerdown", (event) => {
      this.element.setPointerCapture(event.pointerId);
      pick(event);
    });
    this.element.addEventListener("pointermove", (event) => event.buttons && pick(event));
  }

  draw(sides, reach) {
    this.reach = reach;
    this.element.setAttribute("viewBox", `0 0 ${reach} 30`);
    this.here = s("rect", { class: "here", y: 0, width: 1, height: 30, x: 0 });
    const lanes = sides.flatMap((tokens, side) => {
      const top = side ? 17 : 1, shapes = { a: "", b: "", p: "" }, starts = [];
      tokens.slice(0, reach).forEach((token, place) => {
        shapes[token.came] += `M${place} ${top}h1v12h-1z`;
        if (place && tokens[place - 1].round !== token.round) starts.push(`M${place} ${top - 1}v14`);
      });
      return [s("path", { class: "accepted", d: shapes.a }), s("path", { class: "bonus", d: shapes.b + shapes.p }), s("path", { class: "starts", d: starts.join("") })];
    });
    this.element.replaceChildren(...lanes, this.here);
  }

  mark(place) {
    this.here.setAttribute("x", String(place));
  }
}
