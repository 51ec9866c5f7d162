// The shelf: files given on the command line, the example traces that ship, and the runs this
// browser tab has opened. One click opens.

import { button, h, plural, runName } from "./dom.js";
import { exampleOf } from "./named.js";
import { compareTicked, tickBox, wordFilter } from "./parts.js";
import { sorted } from "./sorting.js";
import { keepList, keptList } from "./storage.js";
import { Turns } from "./turns.js";

const SHELF = "draftscope-shelf",
  SHELVED = 24;
const MANY_FILES = 12; // more than need no filter
const AGAIN = 1500; // milliseconds between questions while the server is still reading the files
const LATER = 4000; // and while a folder may get more

/** Runs of this browser tab, by ticket, the newest first. */
export function shelved() {
  return keptList(SHELF);
}

export function shelve(tickets) {
  keepList(SHELF, [...new Set([...tickets, ...shelved()])].slice(0, SHELVED));
}

/** The first words of a prompt. most: letters. */
export function firstOf(prompt, most = 60) {
  return prompt.length > most ? `${prompt.slice(0, most - 1)}…` : prompt;
}

/** Whether some of these runs have another temperature. */
function differ(runs) {
  return new Set(runs.map((run) => run.temperature)).size > 1;
}

export class Gallery {
  /** onPick(tickets): what a person chose. `all` offers a prompt's runs together. `beside`: one
   *  that is picked takes no other's place. picking: Turns, ended where other runs come. */
  constructor(source, onPick, all, picking = new Turns(), beside = all) {
    Object.assign(this, { source, onPick, all, picking, beside, drawing: new Turns() });
    this.element = h("div.ds-gallery");
  }

  /** Show what there is; asked for anew each time, since runs come and go. */
  async draw() {
    const isWanted = this.drawing.take(),
      asked = [this._ask("examples"), this._ask("runs", { tickets: shelved() })],
      [examples, runs] = await Promise.all(asked);
    if (!isWanted()) return;
    const sections = (examples.prompts || []).map((entry) =>
      entry.files ? this._given(entry) : this._prompt(entry),
    );
    const mine = (runs.runs || []).filter((run) => run.rounds);
    const own = mine.map((run) => this._run(run, differ(mine)));
    if (own.length) sections.unshift(this._section("Opened in this tab", "", own));
    this.element.replaceChildren(...sections);
    this._follow(examples);
  }

  /** Ask again as long as the server reads on or a folder may get more. What is filtered and ticked
   * stays, unless files came or went. */
  _follow({ prompts = [] }) {
    clearTimeout(this.timer);
    const entry = prompts.find(({ files }) => files);
    if (!entry?.reading && !entry?.grows) return;
    const again = async () => {
      if (!this.element.isConnected) return;
      if (!this.element.getClientRects().length) return this._follow({ prompts }); // not in sight
      const examples = await this._ask("examples");
      const now = examples.prompts?.find(({ files }) => files);
      if (now) this._learn(now);
      this._follow(now ? examples : { prompts });
    };
    this.timer = setTimeout(again, entry.reading ? AGAIN : LATER);
  }

  _learn(entry) {
    const names = new Set(entry.files.map(({ name }) => name));
    if (names.size !== this.given?.size || [...names].some((name) => !this.given.has(name)))
      return this.section.replaceWith(this._given(entry));
    for (const { name, words } of entry.files) {
      if (this.told.get(name) === words) continue; // a card may say why its file did not open
      this.told.set(name, words);
      this._tell(name, words);
    }
    this._order(entry.files);
  }

  _tell(name, words) {
    const card = this.given?.get(name);
    if (card) card.querySelector("span").textContent = words;
  }

  async _ask(name, asked) {
    try {
      return (await this.source[name](asked || {})) || {};
    } catch {
      return {};
    }
  }

  _prompt({ topic, prompt, runs, together }) {
    const cards = runs.map((run) =>
      this._card(run.title, run.words, `${run.title}: ${prompt}`, () => this._examples([run.name])),
    );
    if (this.all && together) {
      const { names, title, words } = together;
      cards.push(this._card(title, words, `${title}: ${prompt}`, () => this._examples(names)));
    }
    return this._section(topic[0].toUpperCase() + topic.slice(1), prompt, cards);
  }

  /** Files given on the command line: a click opens one; those that are ticked open together. */
  _given({ topic, note, files }) {
    const cards = files.map((file) => this._file(file)),
      list = h("div.ds-cards.ds-given");
    this.given = new Map(files.map((file, at) => [file.name, cards[at].open]));
    this.told = new Map(files.map(({ name, words }) => [name, words]));
    const together = compareTicked(list, cards, (ticked) =>
      this._examples(ticked.map((card) => card.name)),
    );
    const section = this._section(topic, note, []);
    this.section = section;
    const tools = h(
      "div.ds-cards.ds-given-tools",
      files.length > MANY_FILES ? wordFilter("Filter the files", cards) : null,
      this._lowest(),
      together,
    );
    section.lastChild.replaceWith(tools, list);
    Object.assign(this, { cards, list });
    this._order(files);
    return section;
  }

  /** A button that puts the files that accepted least first; `lowest` stays where files come. */
  _lowest() {
    const title = "Put the files with the smallest τ first";
    this.first = button("Lowest τ first", { title }, () => {
      this.lowest = !this.lowest;
      this._order(this.files);
    });
    return this.first;
  }

  /** The cards by their files' names, or by τ: those without one come last. */
  _order(files) {
    this.files = files;
    const taus = new Map(files.map(({ name, tau }) => [name, tau]));
    this.first.hidden = files.filter(({ tau }) => tau !== null).length <= MANY_FILES;
    this.first.setAttribute("aria-pressed", String(!!this.lowest));
    const cards = this.lowest ? sorted(this.cards, ({ name }) => taus.get(name)) : this.cards,
      elements = cards.map((card) => card.element);
    if (elements.every((element, at) => element === this.list.children[at])) return;
    const had = document.activeElement;
    this.list.replaceChildren(...elements);
    if (this.list.contains(had)) had.focus();
  }

  _file({ name, label, words, prompt, opens }) {
    const open = this._card(label, words, `${label}: ${prompt || words}`, () =>
      this._examples([name]),
    );
    if (prompt) open.append(h("span", firstOf(prompt)));
    open.disabled = !opens;
    const tick = this.beside && opens ? tickBox(label) : null;
    const element = tick ? h("span.ds-tickable", tick, open) : open;
    return { name, element, open, tick };
  }

  /** heated: its temperature is said. */
  _run(run, heated) {
    const heat = heated ? `, T ${run.temperature ?? "not told"}` : "",
      name = runName(run) + heat,
      rounds = plural(run.rounds, "round"),
      [title, words] = run.file ? [run.file, `${name}, ${rounds}`] : [name, rounds];
    const card = this._card(title, words, `${name}: ${run.prompt}`, () => {
      if (!this.beside) this.picking.end(); // an example that was clicked before
      this.onPick([run.ticket]);
    });
    if (run.prompt) card.append(h("span", firstOf(run.prompt, 40)));
    return card;
  }

  _section(title, words, cards) {
    return h(
      "section.ds-shelf",
      { "aria-label": title },
      h("h3", title, h("small", words)),
      h("div.ds-cards", cards),
    );
  }

  _card(title, words, label, act) {
    const parts = [h("b", title), h("span", words)];
    return button(parts, { class: "ds-example", title: label }, act);
  }

  async _examples(names) {
    const isWanted = this.beside ? this.picking.join() : this.picking.take(),
      answers = await Promise.all(names.map((name) => exampleOf(this.source, name)));
    answers.forEach(({ error }, at) => error && this._tell(names[at], error));
    const tickets = answers.map((answer) => answer.ticket).filter(Boolean);
    if (!tickets.length) isWanted.giveBack?.();
    else if (isWanted()) this.onPick(tickets);
  }
}
