// The draft graph of the call that decided a step, or the run's calibrated graph as formulas.

import { button, h, plural, tool } from "../dom.js";
import { answered } from "../feed.js";
import { entry, folding, menu } from "../parts.js";
import { pictureButtons, saveButton } from "../save/buttons.js";
import { handOut, takeAnswer } from "../save/files.js";
import { SMALLEST } from "../tree/camera.js";
import { savedTree } from "../tree/whole.js";
import { TreeView } from "../tree.js";
import { Turns } from "../turns.js";

const NO_DRAFTS = "The first call of a block drafts nothing: no ranking of it is known yet.";
const NOTES = {
  drafts:
    "A box is the block with these positions set (position, token, p). Level n: n steps ahead. " +
    "Every line between boxes is a pathway, the one step that leads from state to state.",
  whole:
    "A box is a formula: set the i-th position of the ranking to its j-th best token. Counted on " +
    "other prompts; ✓ 3 of 29: accepted in 3 of the 29 calls of this run that drafted it.",
};
const TABS = [
  ["Drafts", false, "The drafts of this call"],
  ["Calibrated", true, "The run's draft graph as formulas, before any token is known"],
];
const LEGEND = [
  ["accepted", "✓", "accepted: a call saved"],
  ["rejected", "×", "rejected"],
  ["unreached", "·", "unreached"],
  ["ghost", "◇", "where the model went on"],
];

export class GraphCard {
  /** hear: {picked(row), turned(), complain(sentence)}. */
  constructor(source, hear) {
    Object.assign(this, { source, hear, whole: null, turns: new Turns() });
    this.tree = new TreeView("dn-graph", hear.picked);
    this.tree.scene.least = this.tree.window.readable = SMALLEST;
    this.title = h("h2");
    this.note = h("p.dn-note");
    this.away = h("p.ds-away", NO_DRAFTS);
    this.tabs = TABS.map(([words, whole, title]) =>
      button(words, { class: "dn-tab", title, "aria-pressed": String(!whole) }, () =>
        this.turn(whole),
      ),
    );
    this.tools = this._tools();
    const spring = h("span.ds-spring"),
      tabs = h("span.dn-tabs", { role: "group", "aria-label": "Which graph" }, this.tabs),
      head = h("header", tabs, this.title, spring, this.tools),
      about = { class: "ds-card ds-stage dn-graph", "aria-label": "Draft graph" },
      picture = h("div.ds-picture", this.tree.element, this.away),
      key = LEGEND.map(([name, sign, words]) => entry(`box ${name}`, words, sign)),
      legend = h("footer.ds-legend", key);
    this.element = folding(h("section", about, head, this.note, picture, legend), head);
  }

  _tools() {
    const dot = {
      class: "ds-small",
      "aria-label": "Save the draft graph as DOT",
      title: "Save the draft graph for graphviz",
    };
    return h(
      "span.ds-tools.ds-row",
      tool("−", "Zoom out", () => this.tree.zoomBy(1 / 1.3)),
      tool("+", "Zoom in", () => this.tree.zoomBy(1.3)),
      tool("⤢", "Fit the whole graph (f)", () => this.tree.fit()),
      menu("Save the graph", [
        pictureButtons(
          "the draft graph",
          () => this._picture(),
          () => `draftscope-${this.whole ? "calibrated-graph" : `graph-call-${this.call + 1}`}`,
        ),
        saveButton("DOT", dot, () => this._dot()),
      ]),
    );
  }

  _picture() {
    const { ticket } = this.run.feed,
      { sketch, draw } = this.source;
    return this.whole
      ? savedTree(this.tree, ({ inches }) => sketch({ ticket, inches }))
      : savedTree(this.tree, draw, { ticket, round: this.call });
  }

  /** As graphviz reads it: the calibrated graph is here, a call's comes from the server. */
  _dot() {
    const type = "text/vnd.graphviz",
      asked = { ticket: this.run.feed.ticket, round: this.call, form: "dot" };
    return this.whole
      ? handOut("draftscope-calibrated-graph.dot", new Blob([this.whole.dot], { type }))
      : takeAnswer(this.source.export(asked));
  }

  /** To the formulas of the run's calibrated graph, or back to this call's drafts. Gives whether
   *  it is drawn. */
  async turn(whole) {
    const isWanted = this.turns.take(),
      asked = { ticket: this.run.feed.ticket },
      answer = whole ? await answered(this.source.outline(asked)) : null;
    if (!isWanted()) return false;
    if (answer?.error) {
      this.hear.complain(answer.error);
      return false;
    }
    this.whole = answer;
    this.forget();
    this.hear.turned();
    return true;
  }

  /** Other runs are on view. */
  leave() {
    this.turns.end();
    this.whole = null;
  }

  /** Draw anew the next time: the drawing is of a run that has gone, or of another graph. */
  forget() {
    this.key = null;
  }

  /** The graph of the call that decided `step`, or the whole one. */
  draw(run, step) {
    const call = run.calls[step.at],
      whole = this.whole,
      graph = whole ? whole.graph : call.drafted ? call : null;
    Object.assign(this, { run, call: step.at });
    this.element.hidden = !run.drafts;
    this._show(`${run.feed.ticket} ${whole ? "whole" : step.at}`, graph);
    this.away.hidden = !!graph;
    this.tools.classList.toggle("off", !graph);
    this.element.classList.toggle("whole", !!whole);
    this.tabs.forEach((tab, i) => tab.setAttribute("aria-pressed", String(Boolean(i) === !!whole)));
    const about = graph
      ? `${plural(call.drafted, "draft")}, ${call.accepted} accepted`
      : "no drafts";
    this.title.replaceChildren(
      whole ? `${run.header.graph} ` : `Call ${step.at + 1} `,
      h("small", whole ? plural(graph.y.length - 1, "formula") : about),
    );
    this.note.textContent = NOTES[whole ? "whole" : "drafts"];
    if (graph && !whole) this.tree.mark(call.path[step.k] ?? null);
  }

  _show(key, graph) {
    if (key === this.key) return;
    this.key = key;
    this.hear.picked(null);
    if (!graph) return this.tree.clear();
    this.tree.show(graph, false);
  }

  /** The draft after or before `row`, level by level; null: none is picked yet. */
  next(row, by) {
    const rows = this.tree.round.y.length,
      from = row === null || row < 0 ? (by > 0 ? 0 : rows) : row;
    return Math.max(0, Math.min(rows - 1, from + by));
  }
}
