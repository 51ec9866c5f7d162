// The shelf: the example traces that ship, and the runs this browser tab has seen. One click opens.

const SHELF = "draftscope-shelf", SHELVED = 24;

/** Runs of this browser tab, by ticket, the newest first; storage may be forbidden. */
function shelved() {
  try {
    return (sessionStorage.getItem(SHELF) || "").split(" ").filter(Boolean);
  } catch (error) {
    return [];
  }
}

function shelve(tickets) {
  try {
    const all = new Set([...tickets, ...shelved()]);
    sessionStorage.setItem(SHELF, [...all].slice(0, SHELVED).join(" "));
  } catch (error) {
    // then only the examples are offered
  }
}

/** Go to a view, and there to a run, a round (from 0) and a node. */
function goTo(detail) {
  window.draftscopeGoto = detail;
  window.dispatchEvent(new CustomEvent("draftscope-goto", { detail }));
}

class Gallery {
  /** onPick(tickets): what a person chose. `all` offers a prompt's runs together. */
  constructor(source, onPick, all) {
    Object.assign(this, { source, onPick, all });
    this.element = h("div", { class: "ds-gallery" });
  }

  /** Show what there is; asked for anew each time, since runs come and go. */
  async draw() {
    const [examples, runs] = await Promise.all([this._ask("gallery"), this._ask("runs", { tickets: shelved() })]);
    const sections = (examples.prompts || []).map((entry) => this._prompt(entry));
    const mine = (runs.runs || []).filter((run) => run.rounds);
    if (mine.length) sections.unshift(this._section("Runs of this tab", "", mine.map((run) => this._run(run))));
    this.element.replaceChildren(...sections);
  }

  async _ask(name, asked) {
    try {
      return (await this.source[name](asked || {})) || {};
    } catch (error) {
      return {};
    }
  }

  _prompt({ topic, prompt, runs }) {
    const names = runs.map((run) => run.name);
    const cards = runs.map((run) => this._card(run.title, `τ ${run.tau.toFixed(2)}`, `${run.title}: ${prompt}`, () => this._examples([run.name])));
    if (this.all) {
      const few = ["ddtree-16", "treeflash", "dart", "dflash"].map((end) => `${topic}-${end}`).filter((name) => names.includes(name));
      if (few.length > 1) cards.push(this._card(`All ${few.length}`, "side by side", `compare ${few.length} methods`, () => this._examples(few)));
    }
    return this._section(topic[0].toUpperCase() + topic.slice(1), prompt, cards);
  }

  _run(run) {
    const name = run.method + (run.budget ? `, B = ${run.budget}` : "");
    return this._card(name, plural(run.rounds, "round"), `${name}: ${run.prompt}`, () => this.onPick([run.ticket]));
  }

  _section(title, words, cards) {
    return h("section", { class: "ds-shelf", "aria-label": title }, h("h3", {}, title, h("small", {}, words)), h("div", { class: "ds-cards" }, cards));
  }

  _card(title, words, label, act) {
    return button("", { class: "ds-example", "aria-label": label, title: label }, act).appendChild(h("b", {}, title)).parentNode.appendChild(h("span", {}, words)).parentNode;
  }

  async _examples(names) {
    const answers = await Promise.all(names.map((name) => this._ask("example", { name })));
    const tickets = answers.map((answer) => answer.ticket).filter(Boolean);
    if (tickets.length) this.onPick(tickets, names);
  }
}
