// The text of the simulated run, token by token, and the draft of one of its rounds.

import { button, h, sayBeside, tool } from "../dom.js";
import { card, menu } from "../parts.js";
import { pictureButtons, saveButton } from "../save/buttons.js";
import { fileName, takeAnswer } from "../save/files.js";
import { pointAt, tokenList, tokenOption } from "../strip.js";
import { NodeTable } from "../table.js";
import { savedTree } from "../tree/whole.js";
import { TreeView } from "../tree.js";

const READ = "Click a node, or step through them with ↑ ↓, to read its numbers.";
const NEXT = {
  ArrowUp: "up",
  ArrowDown: "down",
  "Shift ArrowLeft": "parent",
  "Shift ArrowRight": "child",
};
const HOW = "of the simulated run; click a token, or step with ← → on the text";

/** How each token of a text came, from the lengths of the rounds. */
export function cameOf(lengths) {
  const round = (length) => [...Array(length - 1).fill("accepted"), "bonus"];
  return ["prefill", ...lengths.flatMap(round)];
}

/** Where the round at a place begins, and the one after it (Infinity: none). */
export function roundAt(starts, place) {
  const here = starts.findLast((start) => start <= place) ?? 0;
  return [here, starts.find((start) => start > here) ?? Infinity];
}

export class DraftCard {
  /** hear: {go(place), asked() what the server is asked for this draft, name() of the setting,
   * moved() another node is selected, or the nodes are drawn otherwise}. */
  constructor(source, hear) {
    this.hear = hear;
    this.starts = [];
    const picked = (row) => {
      this.select(row);
      hear.moved();
    };
    this.row = null; // the node that is selected
    this.tree = new TreeView("ds-whatif", picked);
    this.tree.svg.addEventListener("keydown", (event) => {
      const by = NEXT[`${event.shiftKey ? "Shift " : ""}${event.key}`];
      if (!by || !this.tree.round) return;
      event.preventDefault();
      picked(this.tree.neighbour(by));
    });
    this.nodes = new NodeTable(picked);
    this.node = h("p.ds-tell", { role: "status" }, READ);
    this.heading = h("h2", "Round");
    const several = { "aria-multiselectable": "true" };
    this.strip = tokenList(several, "place", (place) => hear.go(place));
    this.strip.addEventListener("keydown", (event) => this._key(event));
    const head = [this.heading, h("span.ds-soft", HOW), h("span.ds-spring")];
    this.element = card(
      "Text and draft",
      [...head, ...this._tools(source)],
      this.strip,
      h("div.ds-whatif-tree", this.tree.element, this.nodes.element),
      this.node,
    );
  }

  _tools(source) {
    const table = { "aria-pressed": "false", title: "The nodes as a table" };
    this.flip = button("Table", table, () => {
      this.tabulate(!this.tabular);
      this.hear.moved();
    });
    const save = (form, words) => {
      const label = `Save this draft as ${form}`,
        about = { class: "ds-small", title: label, "aria-label": label };
      return saveButton(words, about, () =>
        takeAnswer(source.export({ ...this.hear.asked(), form })),
      );
    };
    return [
      this.flip,
      tool("⤢", "Fit the whole tree", () => this.tree.round && this.tree.fit()),
      menu("Save this draft", [
        pictureButtons(
          "this tree",
          () => savedTree(this.tree, source.draw, this.hear.asked()),
          () => fileName(`what-if ${this.hear.name()}`),
        ),
        save("dot", "DOT"),
        save("graphml", "GraphML"),
      ]),
    ];
  }

  /** Another text: its tokens. */
  read(text) {
    this.tokens = text.map((words, place) =>
      tokenOption("", words, { "data-place": place }, words.replace(/\n/g, "⏎") || "∅"),
    );
    this.strip.replaceChildren(...this.tokens);
  }

  /** The run of a setting, at a place of the text. */
  show(found, place) {
    const [here, next] = roundAt(found.starts, place),
      came = cameOf(found.lengths);
    this.starts = found.starts;
    this.tokens.forEach((token, at) => {
      const current = at > here && at <= next,
        look = ["ds-token", came[at] || "prefill", current && "current", at === here && "root"];
      token.className = look.filter(Boolean).join(" ");
      token.setAttribute("aria-selected", String(current));
    });
    pointAt(this.strip, this.tokens[place]);
    this.place = place;
    this.row = null;
    this.tree.show(found.round, false);
    if (!this.nodes.element.hidden) this.nodes.show(found.round, null);
    const words = [found.round.fewer, READ].filter(Boolean).join(" ");
    if (this.node.textContent !== words) this.node.textContent = words; // else it is spoken again
    const number = found.starts.indexOf(here) + 1;
    this.heading.textContent = `Round ${Math.max(1, number)} of ${found.rounds}`;
  }

  /** One node in words. */
  select(row) {
    this.tree.select(row);
    this.nodes.select(row);
    const known = this.tree.has(row);
    this.row = known ? row : null;
    const words = known ? this.tree.node(row).getAttribute("aria-label") : "";
    sayBeside(this.tree.element.parentNode, this.node, words);
  }

  get tabular() {
    return !this.nodes.element.hidden;
  }

  /** The nodes as a table, or as a tree. */
  tabulate(on) {
    this.nodes.element.hidden = !on;
    this.tree.element.hidden = on;
    this.flip.setAttribute("aria-pressed", String(on));
    if (!this.tree.round) return;
    if (on) this.nodes.show(this.tree.round, this.tree.selected);
    else this.tree.frame(true);
  }

  _key(event) {
    const [here] = roundAt(this.starts, this.place),
      at = this.starts.indexOf(here);
    const to = {
      ArrowLeft: this.starts[at - 1],
      ArrowRight: this.starts[at + 1],
      Home: 0,
      End: this.starts.at(-1),
    }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    this.hear.go(to);
  }
}
