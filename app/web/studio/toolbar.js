// The tools below the view: stepping, what is shown, zoom, folding, table.

import { button, h, tool } from "../dom.js";
import { toolbar } from "../roving.js";
import { Transport } from "../transport.js";

const PARTS = [
  ["tree", "Tree", "The draft tree"],
  ["stages", "Stages", "Stage times of every round"],
  ["rounds", "Rounds", "Every round as a row: sort, filter, copy"],
  ["stats", "Stats", "TVD, coverage and acceptance per depth"],
];

export class Toolbar {
  /** studio: whose trees these are the tools of. */
  constructor(studio) {
    this.titles = h("div.ds-titles");
    const parts = [
      this._transport(studio),
      this.titles,
      h("span.ds-spring"),
      this._tools(studio),
      this._switch(studio),
    ];
    this.element = toolbar("Steps and tools", h("div.ds-toolbar", parts));
  }

  _transport(studio) {
    this.moves = new Transport("Round", {
      step: (by) => studio.guide.step(by),
      play: () => studio.player.toggle(),
      live: () => {
        studio.player.pause();
        studio.guide.live();
      },
    });
    const { back, play, next, live } = this.moves,
      label = { class: "ds-transport", role: "group", "aria-label": "Step through rounds" };
    return h("div", label, back, play, next, live);
  }

  _tools(studio) {
    const toggle = (words, title, act) => button(words, { "aria-pressed": "false", title }, act),
      tree = (sign, title, act) => tool(sign, title, () => studio.look.trees(act));
    this.run = tree("⟷", "The whole run (w)", (each) => each.fitRun());
    this.fold = toggle("All nodes", "Draw every node (u)", () => studio.look.toggleFold());
    this.table = toggle("Table", "Nodes as a table (t)", () => studio.look.toggleTable());
    this.drawing = [
      tree("−", "Zoom out (−)", (each) => each.zoomBy(1 / 1.3)),
      tree("+", "Zoom in (+)", (each) => each.zoomBy(1.3)),
      tree("⤢", "Fit this round (f)", (each) => each.fit()),
      this.run,
      this.fold,
    ];
    for (const each of [...this.drawing, this.table]) each.classList.add("ds-of-tree");
    return h(
      "span.ds-tools.ds-row",
      studio.search.found,
      studio.search.box,
      this.drawing,
      this.table,
      tool("?", "Words and keys (?)", () => studio.help.showModal()),
    );
  }

  /** The switch of the stage: tree, stage times, a table of all rounds, or the measures. */
  _switch(studio) {
    this.parts = new Map(
      PARTS.map(([name, label, title]) => [
        name,
        button(label, { title, "aria-pressed": "false" }, () => studio.look.showPart(name)),
      ]),
    );
    const about = { class: "ds-switch", role: "group", "aria-label": "Show" };
    return h("span", about, ...this.parts.values());
  }

  /** Which part is shown. */
  showing(name) {
    for (const [each, made] of this.parts) made.setAttribute("aria-pressed", String(each === name));
  }

  /** Where the guide is, how many rounds there are, and whether a run goes on. */
  at(guide, count, busy) {
    this.moves.back.disabled = guide.atStart;
    this.moves.next.disabled = guide.atEnd;
    this.moves.play.disabled = count < 2;
    this.moves.following(busy, guide.follow);
    for (const part of this.parts.values()) part.disabled = !count; // else a white page
  }

  /** How the nodes are drawn. As a table there is no drawing to move. */
  drawn(panes, tabular) {
    const trees = panes.map(({ tree }) => tree);
    this.table.setAttribute("aria-pressed", String(tabular));
    for (const each of this.drawing) each.disabled = tabular;
    this.fold.disabled = tabular || !trees.some(({ foldable }) => foldable);
    this.fold.setAttribute("aria-pressed", String(!trees[0].folded));
  }
}
