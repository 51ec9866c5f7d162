// What-if: one collected text, and what any method, budget or option would have drafted on it.
// Every turn of a knob is simulated on the server from the file; no model runs.

import { namedRow, ViewInAddress } from "../address.js";
import { clear, h, number, plural, say } from "../dom.js";
import { answered, sent } from "../feed.js";
import { News } from "../news.js";
import { awaited, banner, card, choice, opener, optionsOf, TAU, tile } from "../parts.js";
import { Turns } from "../turns.js";
import { Collecting } from "./collecting.js";
import { Curves } from "./curves.js";
import { DraftCard } from "./draft.js";
import { offerText, showCosts, showPlaced, showText } from "./files.js";
import { Knobs, settingOf } from "./knobs.js";
import { fileOf, showLinked, stateOf } from "./linked.js";
import { MoreTexts } from "./texts.js";

const EMPTY =
  "A collected text holds what every drafter said at every position of one text. Open " +
  "one, or make one: ";
const COLLECT = "python -m app collect --out FILE --prompt …";
const MOST = 1024; // nodes of a budget
const REST = 120; // milliseconds without a turn, after which the curve is asked for

export function mount(page) {
  const source = { ...page.server, news: new News() };
  new WhatIf(page.element, source, (route, file) => sent(page, route, file));
}

export class WhatIf {
  /** send(route, file): what a route of the server makes of a file. */
  constructor(element, source, send) {
    Object.assign(this, { source, send, place: 0 });
    Object.assign(this, { texts: new Turns(), costs: new Turns(), curving: new Turns() });
    this.unnamed = ""; // why what the address names is not on view
    this.knobs = new Knobs((curve) => this.turned(curve));
    this.curves = new Curves(
      source,
      () => this._others(),
      (file) => showCosts(this, send("open_cost", file)),
    );
    this.draft = new DraftCard(source, {
      go: (place) => this.go(place),
      asked: () => this.asked,
      name: () => `${this.knobs.method.name} ${this.knobs.budget}`,
      moved: () => this.address.moved(),
    });
    this.more = new MoreTexts(() => this._others());
    this.collecting = new Collecting(source, {
      begun: () => this.expect(),
      asked: () => this.address.moved(),
      collected: (file, title, setting, isWanted) =>
        isWanted() ? this.open(file, title, setting) : offerText(this, file, title, setting),
      stopped: (isWanted) => isWanted() && this.coming.toggleAttribute("hidden", true),
      failed: (isWanted) => isWanted() && this.settle(),
    });
    this._build(element);
    this.address = new ViewInAddress("whatif", this.scope, {
      state: () => stateOf(this),
      runs: () => fileOf(this),
      show: (state, runs, _, isWanted) => showLinked(this, state, runs, isWanted),
      go: (asked) => this._go(asked),
    });
  }

  /** A run is asked about: its text is collected, and shown at the round on view. Or a file is. */
  async _go(asked) {
    await this.list();
    if (asked.path) return showPlaced(this, asked);
    this.leave();
    this.collecting.begin(asked.ticket, { place: asked.place });
  }

  /** Whether the text on view is one that ships. */
  get ships() {
    return !!this.listed?.includes(this.file);
  }

  _build(element) {
    const spring = () => h("span.ds-spring");
    const opens = {
      class: "ds-opens",
      title: "A .safetensors file of the command collect",
    };
    const open = opener("Open a collected text…", opens, (file) =>
      showText(this, this.send("open", file), "the opened file"),
    );
    this.files = choice("Collected text", [], (name) => this.turnTo(name));
    this.method = choice("Method", [], (name) => this._choose(name));
    this.said = banner();
    this.exact = h("span.ds-exact", { role: "status" });
    this.tiles = h("div.ds-tiles");
    this.prompt = h("p.ds-soft.ds-tell");
    this.given = h("p.ds-soft.ds-tell", { hidden: true });
    this.apart = new Map(); // of texts collected for a run: where they leave it
    this.made = new Map(); // and what an address says of that run
    this.words = h("div", this.prompt, this.given, this.more.element);
    this.empty = h("p.ds-soft.ds-tell", EMPTY, h("code", COLLECT));
    this.words.hidden = this.empty.hidden = true; // until it is known whether there is a text
    const title = [h("h2", "What if"), this.method, spring(), this.exact],
      below = h("header", this.tiles, spring(), this.curves.tools),
      setting = card("Setting", title, this.knobs.element, below),
      parted = [setting, this.curves.element, this.draft.element];
    this.body = h("div.ds-below.ds-simulation.ds-coming", parted); // until the first answer
    this.body.hidden = true;
    this.coming = awaited();
    const head = [h("h2", "Collected text"), this.files, spring(), open],
      parts = [this.collecting.element, this.words, this.empty, this.said];
    this.top = card("Collected text", head, ...parts);
    this.top.classList.add("ds-coming"); // until there is a list
    this.scope = h("div.ds-scope", this.top, this.coming, this.body);
    clear(element).append(this.scope);
  }

  complain(sentence) {
    say(this.said, sentence || this.unnamed);
  }

  /** An answer, or null with a sentence said; null alone where nobody waits for it any more. */
  async hear(asked, isWanted = () => true) {
    const answer = await answered(asked);
    if (!isWanted()) return null;
    this.complain(answer.error);
    return answer.error ? null : answer;
  }

  async list() {
    if (this.listed) return;
    const files = (await this.hear(this.source.files({})))?.files ?? [];
    if (this.listed) return; // an address was followed meanwhile
    this.files.replaceChildren(...optionsOf(files.map(({ name, title }) => [name, title])));
    this.files.hidden = !files.length;
    this.listed = files.map((each) => each.name);
    this.top.classList.remove("ds-coming");
  }

  /** Somebody chose a text. */
  turnTo(name, title) {
    this.leave();
    return this.open(name, title, { more: this.more.chosen.join(",") });
  }

  /** Somebody asks for another text than the one that is on its way. */
  leave() {
    this.address?.leave();
    this.unnamed = "";
    this.collecting.forget();
  }

  /** A text is on its way: until it is there, nothing of another may look as if it were its. Gives
   *  whether it is still wanted. */
  expect() {
    this.awaited = true;
    this.present();
    return this.texts.take();
  }

  /** None comes: the one before is shown, or one to begin with. */
  settle(setting = {}) {
    this._kept();
    if (!this.file && this.listed?.length) return this.open(this.listed[0], null, setting);
  }

  /** Show the words about the text on view. */
  present() {
    const shown = this.file && !this.awaited;
    this.body.hidden = this.words.hidden = !shown;
    this.coming.hidden = !this.awaited;
    this.files.value = shown ? this.file : "";
    this.empty.hidden = !!this.file || !!this.awaited;
  }

  /** Show a text; `title` of one that is not in the list yet, `setting`: what to begin with, by the
   *  names of an address, as far as the text answers for it. Gives false where it does not open. */
  async open(name, title, setting = {}) {
    const isWanted = this.texts.take();
    this._stale(true);
    const about = await this.hear(this.source.about({ file: name }), isWanted);
    if (!isWanted()) return true;
    if (!about) return this._kept();
    Object.assign(this, { file: name, about, found: null, awaited: false });
    this.place = Math.max(0, Math.min(about.text.length, setting.place ?? 1) - 1);
    this.row = namedRow(setting.node);
    this.more.chosen = setting.more?.split(",") ?? [];
    offerText(this, name, title, setting);
    this.prompt.textContent = `${about.model}: ${about.prompt}`;
    say(this.given, about.given || this.apart.get(name));
    this.method.replaceChildren(...optionsOf(about.methods.map((each) => [each.name, each.title])));
    this.draft.read(about.text);
    this.curves.clear(about.methods, about.figures);
    this._say("", "");
    const find = (method) => about.methods.find((each) => each.name === method),
      wanted = find(setting.method) || find(about.method) || about.methods[0];
    this.knobs.budget = Math.min(Number(setting.budget) || this.knobs.budget, MOST);
    this.method.value = wanted.name;
    this.draft.tabulate(setting.nodes === "table");
    const named = Array.isArray(setting.kept) ? setting.kept : [],
      kept = named.map((each) => each && [find(each.method), each.options]);
    this.curves.keep(kept.filter((each) => each?.[0]).map((each) => settingOf(...each)));
    this._choose(wanted.name, setting.options);
    this.address.moved();
    return true;
  }

  /** Another text could not be opened: this one stays. */
  _kept() {
    this.awaited = false;
    this._stale(this.busy || !this.found);
    this.present();
    return false;
  }

  _choose(name, options) {
    const chosen = this.about.methods.find((each) => each.name === name);
    this.knobs.show(chosen, options);
    this.turned(true);
  }

  get asked() {
    const { file, place, cost, knobs } = this;
    return { ...knobs.setting, file, budget: knobs.budget, place, cost };
  }

  // ── asking ─────────────────────────────────────────────────────────────────────────────────

  /** A knob was turned: what is on view is dimmed until its answer is there. Only the latest
   *  setting is asked for. */
  turned(curve) {
    if (curve) this.curving.end();
    this.fresh = this.fresh || curve;
    this._stale(true);
    if (this.busy) this.again = true;
    else this._simulate();
  }

  _stale(on) {
    this.body.classList.toggle("ds-stale", on);
    this.body.setAttribute("aria-busy", String(on));
  }

  async _simulate() {
    this.busy = true;
    do {
      this.again = false;
      const asked = this.asked,
        isWanted = () => asked.file === this.file && asked.method === this.knobs.method.name,
        found = await this.hear(this.source.simulate(asked), isWanted);
      if (!isWanted()) continue;
      if (found) this._draw(found, asked);
      else this._blank();
    } while (this.again);
    this.busy = false;
    this.body.classList.remove("ds-coming");
    this._stale(!this.found);
    clearTimeout(this.timer);
    if (this.fresh && this.found) this.timer = setTimeout(() => this._curve(), REST);
  }

  /** No answer to this setting: nothing of the one before may look as if it were its. */
  _blank() {
    Object.assign(this, { found: null, row: undefined });
    this._say(" not", "no answer");
    this.curves.blank();
  }

  /** Whether the answer is exact, and its figures; `spoken`: what a screen reader says first. */
  _say(look, exact, note, tiles = [], spoken = "") {
    this.exact.className = `ds-exact${look}`;
    const more = note?.replace(/^(not )?exact:? ?/, ""); // as the sentence begins by itself
    const first = spoken ? h("span.ds-unseen", spoken) : "";
    this.exact.replaceChildren(first, h("b", exact), more ? ` ${more}` : "");
    this.tiles.replaceChildren(...tiles);
  }

  async _curve() {
    this.fresh = false;
    const asked = { ...this.asked, kept: this.curves.kept, more: this.more.chosen },
      isWanted = this.curving.take(),
      answer = await this.hear(this.source.curve(asked), isWanted);
    if (answer) this.curves.show(answer, this.of);
    else if (isWanted()) this.curves.none();
  }

  _others() {
    if (!this.found) return;
    this._curve();
    this.address.moved();
  }

  go(place) {
    this.place = Math.max(0, Math.min(this.about.text.length - 1, place));
    this.turned(false);
  }

  // ── drawing ────────────────────────────────────────────────────────────────────────────────

  _draw(found, { name, method, options, budget }) {
    this.found = found;
    this.address.moved();
    const drafted = found.round.y.length - 1;
    const look = found.exact ? ["", "✓ exact"] : [" not", "≈ not exact"],
      spoken = `τ ${number(found.tau)}, ${plural(found.rounds, "round")}. `;
    const tiles = [
      tile(number(found.tau), "τ", TAU),
      tile(found.rounds, "rounds", "forward passes of the target"),
      tile(found.tokens, "tokens", "new tokens of the text"),
      tile(drafted, "nodes here", "drafted in the round shown"),
    ];
    this._say(...look, found.note, tiles, spoken);
    this.curves.at({ name, method, options }, budget, found);
    this.draft.show(found, this.place);
    if (this.row !== undefined) this.draft.select(this.row);
    this.row = undefined;
  }
}
