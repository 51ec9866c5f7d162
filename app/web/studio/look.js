// The drawing of every run on view: the tree or a table, folded or whole, or another part.

import { plural } from "../dom.js";

export class Look {
  constructor(studio) {
    this.studio = studio;
    this.tabular = false;
    this.part = "tree";
  }

  /** The tree, the stage times or a table of all rounds, or what the runs measure. */
  showPart(name) {
    const { frame, panes, guide } = this.studio;
    this.part = name;
    frame.show(name);
    if (name === "tree")
      for (const pane of panes) if (pane.shown) pane.tree.frame(!pane.tree.window.columns);
    guide.measures?.stale();
    if (name === "rounds") this.studio.rounds.stale();
    this.studio.link.moved();
  }

  /** The part, how the nodes are drawn, and what the table of rounds shows, for the address. */
  get state() {
    const { tree } = this.studio.panes[0],
      whole = !tree.folded,
      { tabular } = this;
    return {
      zoom: this.studio.comparing ? undefined : tree.window.chosen,
      show: this.part === "tree" ? undefined : this.part,
      nodes: tabular ? (whole ? "both" : "table") : whole ? "whole" : undefined,
      ...this.studio.rounds.state,
    };
  }

  /** Take them from an address. */
  restore({ show = "tree", nodes = "", zoom, ...rounds }) {
    this.studio.rounds.restore(rounds);
    if (zoom && !this.studio.comparing) this.studio.panes[0].tree.window.choose(zoom);
    if (this.tabular !== /table|both/.test(nodes)) this.toggleTable();
    if (this.studio.panes[0].tree.folded === /whole|both/.test(nodes)) this.toggleFold();
    this.showPart(this.studio.toolbar.parts.has(show) ? show : "tree");
  }

  /** Draw every node of the trees, or fold them again. */
  toggleFold() {
    const { panes } = this.studio;
    const folded = !panes[0].tree.folded;
    for (const pane of panes) pane.tree.setFolded(folded);
    this.told();
    this.studio.link.moved();
  }

  /** Open what is folded below the node in hand, or everything. */
  async unfold() {
    const { studio } = this,
      { tree, row, drafted } = studio.active;
    if (!tree.foldable) return studio.say("nothing is folded");
    await tree.unfold(row);
    this.told();
    studio.say(`${tree.plan.drawn} of ${plural(drafted, "node")} drawn`);
  }

  toggleTable() {
    this.tabular = !this.tabular;
    this.studio.scope.classList.toggle("tabular", this.tabular);
    for (const pane of this.studio.panes) pane.tabulate(this.tabular);
    this.told();
    this.studio.link.moved();
  }

  /** The tools say how the nodes are drawn. */
  told() {
    this.studio.toolbar.drawn(this.studio.panes, this.tabular);
  }

  /** act(tree) for every tree that is drawn. */
  trees(act) {
    for (const pane of this.studio.panes) if (pane.tree.round) act(pane.tree);
    this.studio.link.moved();
  }
}
