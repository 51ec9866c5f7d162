// What-if: one collected text, and what any method, budget or option would have drafted on it. Every
// turn of a knob is simulated on the server from the file; no model runs.

import { button, clear, h } from "./dom.js";
import { answered } from "./feed.js";
import { Figure, press, shortNumber } from "./plots.js";
import { fileName, pictureButtons, saveButton, takeAnswer, wholeTree } from "./save.js";
import { pointAt } from "./strip.js";
import { NodeTable } from "./table.js";
import { TreeView } from "./tree.js";

const BUDGET_STOPS = [
  1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024,
];

const ESTIMATE =
  "An estimate, not a measurement of this machine: τ here with the stage times of the shipped example runs. The command cost, with --json, measures yours.";

export class WhatIf {
  constructor(element, source) {
    this.source = source;
    this.pinned = []; // curves kept for comparison
    this.place = 0;
    this._build(element);
    this._list();
  }

  _build(element) {
    this.files = h("select", { "aria-label": "Collected text" });
    this.files.addEventListener("change", () => this.open(this.files.value));
    this.method = h("select", { "aria-label": "Method" });
    this.method.addEventListener("change", () => this._choose(this.method.value));
    this.knobs = h("div", { class: "ds-knobs" });
    this.said = h("p", { class: "ds-banner", role: "alert", hidden: true });
    this.exact = h("span", { class: "ds-exact", role: "status" });
    this.tiles = h("div", { class: "ds-tiles" });
    this.strip = h("div", {
      class: "ds-strip",
      role: "listbox",
      tabindex: 0,
      "aria-multiselectable": "true",
      "aria-label": "The text, token by token",
    });
    this.strip.addEventListener("click", (event) => {
      const token = event.target.closest("[data-place]");
      if (token) this.go(Number(token.getAttribute("data-place")));
    });
    this.strip.addEventListener("keydown", (event) => this._key(event));
    this.prompt = h("p", { class: "ds-soft ds-tell" });
    this.tau = new Figure({
      title: "τ by budget",
      says: "Tokens per forward pass of the target over the whole text, simulated: where the curve is flat, more nodes buy nothing.",
      x: "draft budget B",
      y: "τ",
      source: this.source,
    });
    this.lengths = new Figure({
      title: "Acceptance lengths",
      says: "Rounds of this setting by the tokens they were good for: accepted nodes + 1. Their mean is τ.",
      x: "accepted + 1",
      y: "rounds",
      source: this.source,
    });
    this.speed = new Figure({
      title: "Expected speed by budget",
      says: ESTIMATE,
      x: "draft budget B",
      y: "tokens/s",
      source: this.source,
    });
    this.best = h("p", { class: "ds-tell ds-best", role: "status" });
    this.speed.element.append(this.best);
    this.speed.tools.prepend(
      button(
        "Open…",
        {
          class: "ds-small ds-opens-cost",
          "aria-label": "Open a result of cost",
          title: "What `cost --json` wrote: this machine's own times",
        },
        () => press("ds-w-cost"),
      ),
    );
    this.keep = button(
      "Keep this curve",
      { class: "ds-button", title: "Keep it to compare with the next setting" },
      () => this._pin(),
    );
    this.all = button(
      "All methods",
      { class: "ds-button", title: "Draw every method's curve, as it comes, beside this setting" },
      () => this._all(),
    );
    this.forget = button("Forget kept curves", { class: "ds-button", hidden: true }, () =>
      this._unpin(),
    );
    this.tree = new TreeView("ds-whatif", (row) => this._select(row));
    this.nodes = new NodeTable((row) => this._select(row));
    this.node = h(
      "p",
      { class: "ds-tell", role: "status" },
      "Click a node, or step through them with ↑ ↓, to read its numbers.",
    );
    this.heading = h("h2", {}, "Round");
    const fit = button(
      "⤢",
      { "aria-label": "Fit the whole tree", title: "Fit the whole tree" },
      () => this.tree.round && this.tree.fit(),
    );
    this.flip = button(
      "Table",
      { class: "ds-button", "aria-pressed": "false", title: "The nodes as a table" },
      () => this._flip(),
    );
    this.body = h(
      "div",
      { class: "ds-below" },
      h(
        "section",
        { class: "ds-card ds-lab", "aria-label": "Setting" },
        h(
          "header",
          {},
          h("h2", {}, "What if"),
          this.method,
          h("span", { class: "ds-spring" }),
          this.exact,
        ),
        this.knobs,
        h(
          "header",
          {},
          this.tiles,
          h("span", { class: "ds-spring" }),
          this.keep,
          this.all,
          this.forget,
        ),
      ),
      h(
        "section",
        { class: "ds-card ds-lab", "aria-label": "Curves" },
        h(
          "div",
          { class: "ds-figures" },
          this.tau.element,
          this.speed.element,
          this.lengths.element,
        ),
      ),
      h(
        "section",
        { class: "ds-card ds-lab", "aria-label": "Text and draft" },
        h(
          "header",
          {},
          this.heading,
          h(
            "span",
            { class: "ds-soft" },
            "of the simulated run; click a token, or step with ← → on the text",
          ),
          h("span", { class: "ds-spring" }),
          this.flip,
          fit,
          pictureButtons(
            "this tree",
            () => wholeTree(this.tree),
            () => fileName(`what-if ${this.chosen.name} ${this.budget}`),
          ),
          ["dot", "graphml"].map((form) =>
            saveButton(
              { dot: "DOT", graphml: "GraphML" }[form],
              {
                class: "ds-button",
                title: `Save this draft as ${form}`,
                "aria-label": `Save this draft as ${form}`,
              },
              () => takeAnswer(this.source.export({ ...this.asked, form })),
            ),
          ),
        ),
        this.strip,
        h("div", { class: "ds-whatif-tree" }, this.tree.element, this.nodes.element),
        this.node,
      ),
    );
    this.body.hidden = true;
    this.empty = h(
      "p",
      { class: "ds-soft ds-tell" },
      "A collected text holds what every drafter said at every position of one greedy text. Open one, or make one: python -m app collect OUT --prompt …",
    );
    this.scope = h(
      "div",
      { class: "ds-scope" },
      h(
        "section",
        { class: "ds-card ds-lab", "aria-label": "Collected text" },
        h(
          "header",
          {},
          h("h2", {}, "Collected text"),
          this.files,
          h("span", { class: "ds-spring" }),
          button(
            "Open a collected text…",
            { class: "ds-button ds-opens", title: "A .safetensors file of the command collect" },
            () => press("ds-w-open"),
          ),
        ),
        this.prompt,
        this.empty,
        this.said,
      ),
      this.body,
    );
    clear(element).append(this.scope);
  }

  complain(sentence) {
    this.said.hidden = !sentence;
    this.said.textContent = sentence || "";
  }

  async _ask(name, asked) {
    const answer = await answered(this.source[name](asked));
    this.complain(answer.error);
    return answer.error ? null : answer;
  }

  async _list() {
    const answer = await this._ask("files", {});
    const files = answer ? answer.files : [];
    this.files.replaceChildren(
      ...files.map((file) => h("option", { value: file.name }, file.title)),
    );
    this.files.hidden = !files.length;
    if (files.length && !this.file) this.open(files[0].name);
  }

  async open(name, title) {
    this.opening = name;
    const about = await this._ask("about", { file: name });
    if (!about || this.opening !== name) return;
    if (title) {
      this.files.append(h("option", { value: name }, title));
      this.files.hidden = false;
    }
    this.files.value = name;
    this.file = name;
    this.about = about;
    this.body.hidden = false;
    this.empty.hidden = true;
    this.prompt.textContent = `${about.model}: ${about.prompt}`;
    this.method.replaceChildren(
      ...about.methods.map((each) => h("option", { value: each.name }, each.title)),
    );
    this.tokens = about.text.map((text, place) =>
      h(
        "span",
        { class: "ds-token", role: "option", "data-place": place, "aria-selected": "false" },
        text.replace(/\n/g, "⏎") || "∅",
      ),
    );
    this.strip.replaceChildren(...this.tokens);
    Object.assign(this, { place: 0, pinned: [], curve: null, found: null });
    this.forget.hidden = true;
    const wanted = about.methods.find((each) => each.name === about.method) || about.methods[0];
    this.method.value = wanted.name;
    this._choose(wanted.name);
  }

  /** Another method: its knobs, at their usual places. */
  _choose(name) {
    this.chosen = this.about.methods.find((each) => each.name === name);
    this.values = Object.fromEntries(this.chosen.knobs.map((knob) => [knob.name, knob.value]));
    const at = BUDGET_STOPS.findIndex((stop) => stop >= (this.budget || 16));
    const stop = (i) => BUDGET_STOPS[i];
    this.budget = stop(at);
    this.knobs.replaceChildren(
      this._budget(at, stop),
      ...this.chosen.knobs.map((knob) => (knob.flag ? this._flag(knob) : this._knob(knob))),
    );
    this._turned(true);
  }

  _budget(at, stop) {
    const label = "draft budget B",
      output = h("output", {}, String(stop(at)));
    const slider = this._slider(label, [0, BUDGET_STOPS.length - 1, 1], at, stop, (place) => {
      this.budget = stop(place);
      output.textContent = String(this.budget);
      this._turned(false);
    });
    return h("label", { class: "ds-knob" }, h("span", {}, label, output), slider);
  }

  /** An option: a slider over the part of its range where people turn, and a number that takes all of it. */
  _knob(knob) {
    const power = (place) => Number(`1e${place}`),
      shown = knob.log ? power : (value) => value;
    const number = h("input", {
      type: "number",
      min: knob.min,
      max: knob.max,
      step: knob.log ? "any" : knob.step,
      value: knob.value,
      "aria-label": `${knob.label}, as a number`,
    });
    const place = (value) => (knob.log ? Math.log10(value) : value);
    const set = (value) => {
      this.values[knob.name] = value;
      this._turned(true);
    };
    const slider =
      knob.slider &&
      this._slider(knob.label, knob.slider, place(knob.value), shown, (at) => {
        number.value = shown(at);
        set(shown(at));
      });
    number.addEventListener("change", () => {
      if (number.value === "") number.value = this.values[knob.name];
      const value = Number(number.value);
      if (slider) {
        slider.value = place(value);
        slider.setAttribute("aria-valuetext", String(value));
      }
      set(value);
    });
    return h(
      "div",
      { class: "ds-knob", title: knob.help },
      h("span", {}, knob.label, number),
      slider,
    );
  }

  _slider(label, [min, max, step], value, shown, turned) {
    const input = h("input", {
      type: "range",
      min,
      max,
      step,
      value,
      "aria-label": label,
      "aria-valuetext": String(shown(value)),
    });
    input.addEventListener("input", () => {
      const now = Number(input.value);
      input.setAttribute("aria-valuetext", String(shown(now)));
      turned(now);
    });
    return input;
  }

  _flag(knob) {
    const input = h("input", { type: "checkbox" });
    input.checked = knob.value;
    input.addEventListener("change", () => {
      this.values[knob.name] = input.checked;
      this._turned(true);
    });
    return h("label", { class: "ds-knob", title: knob.help }, h("span", {}, knob.label), input);
  }

  get asked() {
    return {
      file: this.file,
      method: this.chosen.name,
      budget: this.budget,
      options: this.values,
      place: this.place,
      cost: this.cost,
    };
  }

  /** A knob was turned; only the latest setting is asked for. */
  _turned(curve) {
    this.fresh = this.fresh || curve;
    if (this.busy) return (this.again = true);
    this._simulate();
  }

  async _simulate() {
    this.busy = true;
    do {
      this.again = false;
      const asked = this.asked,
        found = await this._ask("simulate", asked);
      if (asked.file !== this.file) continue;
      if (found) this._draw(found);
      else this._blank();
    } while (this.again);
    this.busy = false;
    clearTimeout(this.timer);
    if (this.fresh && this.found) this.timer = setTimeout(() => this._curve(), 120);
  }

  /** No answer to this setting: nothing of the one before may look as if it were its. */
  _blank() {
    this.found = this.curve = null;
    this.body.classList.add("ds-stale");
    this.exact.className = "ds-exact not";
    this.exact.replaceChildren(h("b", {}, "no answer"));
    this.tiles.replaceChildren();
    this.lengths.lines([]);
    this.speed.lines([]);
    this.best.textContent = "";
    this._curves();
  }

  async _curve() {
    this.fresh = false;
    const asked = (this.curving = this.asked),
      name = this._name(),
      answer = await this._ask("curve", asked);
    if (!answer || this.fresh || this.curving !== asked) return;
    this.curve = { name, points: this._points(answer) };
    this._curves();
    this._speeds(name, answer.cost);
  }

  /** A result of the command cost was opened: its times in place of the estimate's. */
  measured({ cost, of }) {
    this.complain("");
    Object.assign(this, { cost, of });
    this.speed.says.textContent = `τ here with the times that cost measured: ${of}.`;
    this._turned(true);
  }

  /** Cost curve, and the budget it names. */
  _speeds(name, cost) {
    this.speed.element.hidden = !cost && !this.cost;
    this.best.textContent = cost
      ? ""
      : `This drafter was not timed in the result that is open (${this.of}).`;
    if (!cost) return this.speed.lines([]);
    const points = cost.points.map(({ budget, speed }) => ({ x: budget, y: speed })),
      top = 1.08 * Math.max(cost.plain, ...points.map((p) => p.y)),
      ends = [1, points[points.length - 1].x];
    this.speed.lines(
      [
        { name, points },
        { name: "plain decoding", points: ends.map((x) => ({ x, y: cost.plain })) },
      ],
      { x: ends, y: [0, top], log: true, ticks: points.map((p) => p.x) },
    );
    const most = cost.points.find((p) => p.budget === cost.best).speed;
    this.best.textContent = `Best budget by ${this.cost ? "these times" : "this estimate"}: ${cost.best}, at ${shortNumber(most)} tokens/s; plain decoding ${shortNumber(cost.plain)}.`;
  }

  _name() {
    const usual = new Map(this.chosen.knobs.map((knob) => [knob.name, knob.value]));
    const changed = Object.entries(this.values)
      .filter(([name, value]) => usual.get(name) !== value)
      .map(([name, value]) => `${name} ${value}`);
    return [this.chosen.title, ...changed].join(", ");
  }

  /** Keep the curve drawn; the oldest of more than four goes. */
  _pin() {
    if (!this.curve) return;
    this.pinned = [
      ...this.pinned.filter((each) => each.name !== this.curve.name),
      this.curve,
    ].slice(-4);
    this._kept();
  }

  _unpin() {
    this.pinned = [];
    this._kept();
  }

  /** Every listed method's curve, with its options as they come. */
  async _all() {
    const file = this.file,
      listed = this.about.methods.filter((each) => !each.name.includes("+")).slice(0, 4),
      found = [];
    for (const { name, title } of listed) {
      const answer = await this._ask("curve", { file, method: name, options: {} });
      if (!answer || this.file !== file) return;
      found.push({ name: title, points: this._points(answer) });
    }
    this.pinned = found;
    this._kept();
  }

  _kept() {
    this.forget.hidden = !this.pinned.length;
    this._curves();
  }

  _points(answer) {
    return answer.points.map((each) => ({
      x: each.budget,
      y: each.tau,
      words: each.exact ? "exact" : "not exact",
    }));
  }

  _curves() {
    const now = {
      name: "this setting",
      only: "points",
      style: 5,
      points: this.found ? [{ x: this.budget, y: this.found.tau }] : [],
    };
    const kept = this.pinned.filter((each) => !this.curve || each.name !== this.curve.name),
      all = [...kept, ...(this.curve ? [this.curve] : [])],
      top = Math.max(
        1.5,
        ...all.flatMap((each) => each.points.map((p) => p.y)),
        this.found ? this.found.tau : 0,
      );
    const most = Math.max(256, this.budget);
    this.tau.lines([...all, now], {
      x: [1, most],
      y: [1, top * 1.05],
      log: true,
      ticks: [1, 2, 4, 8, 16, 32, 64, 128, 256, ...(most > 256 ? [most] : [])],
    });
  }

  _draw(found) {
    this.found = found;
    this.body.classList.remove("ds-stale");
    const tile = (value, name, title) =>
      h("div", { class: "ds-tile", title }, h("b", {}, value), h("span", {}, name));
    this.tiles.replaceChildren(
      tile(found.tau.toFixed(2), "τ", "block efficiency: accepted nodes + 1, mean over rounds"),
      tile(String(found.rounds), "rounds", "forward passes of the target"),
      tile(String(found.tokens), "tokens", "new tokens of the text"),
      tile(String(found.round.y.length - 1), "nodes here", "drafted in the round shown"),
    );
    this.exact.className = `ds-exact${found.exact ? "" : " not"}`;
    this.exact.replaceChildren(
      h("b", {}, found.exact ? "✓ exact" : "≈ not exact"),
      h("span", {}, found.note),
    );
    const counts = new Map();
    for (const length of found.lengths) counts.set(length, (counts.get(length) || 0) + 1);
    const longest = Math.max(2, ...counts.keys()),
      points = Array.from({ length: longest }, (_, i) => ({ x: i + 1, y: counts.get(i + 1) || 0 }));
    this.lengths.lines([{ name: `${this._name()}, B = ${found.budget}`, points }], {
      x: [1, longest],
      ticks: Array.from({ length: longest }, (_, i) => i + 1),
    });
    this._curves();
    this._bands(found);
    this.tree.show(found.round, false);
    if (!this.nodes.element.hidden) this.nodes.show(found.round, null);
    this.node.textContent = "Click a node, or step through them with ↑ ↓, to read its numbers.";
    const at = found.starts.filter((start) => start <= this.place).length;
    this.heading.textContent = `Round ${Math.max(1, at)} of ${found.rounds}`;
  }

  /** Which rounds write which tokens, and how each came. */
  _bands(found) {
    const came = ["prefill"];
    found.lengths.forEach((length) => {
      for (let i = 1; i < length; i++) came.push("accepted");
      came.push("bonus");
    });
    const here = found.starts.filter((start) => start <= this.place).pop() ?? 0,
      next = found.starts.find((start) => start > here) ?? Infinity;
    this.tokens.forEach((token, place) => {
      const current = place > here && place <= next;
      token.className = `ds-token ${came[place] || "prefill"}${current ? " current" : ""}${place === here ? " root" : ""}`;
      token.setAttribute("aria-selected", String(current));
    });
    pointAt(this.strip, this.tokens[this.place]);
  }

  /** One node in words. */
  _select(row) {
    this.tree.select(row);
    this.nodes.select(row);
    const label = this.tree.has(row) ? this.tree.node(row).getAttribute("aria-label") : "";
    this.node.textContent = label;
  }

  _flip() {
    const on = this.nodes.element.hidden;
    this.nodes.element.hidden = !on;
    this.tree.element.hidden = on;
    this.flip.setAttribute("aria-pressed", String(on));
    if (on && this.found) this.nodes.show(this.found.round, this.tree.selected);
    if (!on && this.tree.round) this.tree.frame(true);
  }

  go(place) {
    this.place = Math.max(0, Math.min(this.tokens.length - 1, place));
    this._turned(false);
  }

  _key(event) {
    const starts = this.found ? this.found.starts : [],
      here = starts.filter((start) => start <= this.place).length - 1;
    const to = {
      ArrowLeft: starts[here - 1],
      ArrowRight: starts[here + 1],
      Home: 0,
      End: starts[starts.length - 1],
    }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    this.go(to);
  }
}
