// The draft tree: one SVG. Positions come from Python (app/view/layout.py, fold.py). What is drawn
// is a function of a plan (round and fold), a window (what is in sight) and the rows that are
// selected, marked or found; each has its module in tree/.

import { h, s } from "./dom.js";
import { TreeAxis } from "./tree/axis.js";
import { GHOST, ghostBox, nodeBox, tipLines } from "./tree/boxes.js";
import { listenToHands } from "./tree/hands.js";
import { TreeMap } from "./tree/map.js";
import { planFor } from "./tree/plan.js";
import { Pointing } from "./tree/pointing.js";
import { TreeScene } from "./tree/scene.js";
import { Spine } from "./tree/spine.js";
import { TreeWindow } from "./tree/window.js";
import { Turns } from "./turns.js";

const SPOKEN = "Draft tree of this round";
const SPOKEN_KEYS = "Up and down arrows move between nodes",
  SPOKEN_MORE = // where a node has an inspector
    ", shift with left and right to parent and child, Enter opens a node, u opens what is " +
    "folded. Press question mark for all keys";

export class TreeView {
  /** `name` makes ids unique on the page; onSelect(row) is called when a person picks a node,
   * onPoint(row) when one is pointed at; null: no more. onOpen(rows) answers with the tree folded
   * but for these rows' children, or with null; without it the tree is never folded. onRound(at):
   * another round of the run was pressed. */
  constructor(name, onSelect, onPoint, onOpen, onRound) {
    Object.assign(this, { name, onSelect, onPoint: onPoint || (() => {}), onOpen, onRound });
    this.onMove = null; // called when a person moved it
    this.onSize = null; // stands it, and those in the same columns, in a window of another size
    this.onFold = null; // called when other nodes of the same round are drawn
    this.folded = !!onOpen; // what a person last chose
    this.opened = new Set(); // rows whose folded children are drawn
    this.folds = new Turns();
    this.plan = this.selected = this.marked = this.slim = null;
    this._build();
    listenToHands(this);
    new ResizeObserver(() => this._resized()).observe(this.svg);
  }

  _build() {
    const about = {
      class: "ds-tree",
      role: "tree",
      tabindex: 0,
      "aria-label": SPOKEN,
      "aria-describedby": `${this.name}-keys`,
    };
    this.svg = s("svg", about);
    this.scene = new TreeScene(this.svg, (row) => this.box(row));
    this.axis = new TreeAxis();
    const { band, ground, labels } = this.axis;
    this.spine = new Spine();
    this.svg.append(band, this.spine.element, this.scene.element, ground, labels);
    const changed = () => [this.pointing.hide(), this._apply()]; // a hand at rest is elsewhere now
    this.window = new TreeWindow(this.svg, changed, () => this.onMove?.());
    this.map = new TreeMap((x, y) => this.window.jump(x, y));
    this.pointing = new Pointing(this);
    const spoken = `${SPOKEN_KEYS}${this.onOpen ? SPOKEN_MORE : ""}.`,
      how = h("span.ds-unseen", { id: `${this.name}-keys` }, spoken);
    this.element = h("div.ds-canvas", this.svg, this.map.svg, this.pointing.tip, how);
  }

  get round() {
    return this.plan?.round ?? null;
  }

  /** Draw a round; keep tells whether the person's zoom stays. run: {rounds, at, sees} of the run
   * that it is a part of, whose other rounds are drawn around it. */
  show(round, keep, run) {
    this.window.measure(); // before anything is changed
    this.unseen = !this.window.isSeen;
    const before = this.window.spine && this.plan && { ...this.window.view };
    const same = before && run?.rounds === this.spine.plan.rounds,
      columns = same ? this.spine.columnsTo(run.at) : 0,
      line = before && this.plan.at(0)[1];
    this.run = run ?? null;
    for (const rows of [this.opened, this.scene.hits]) rows.clear();
    this.pointing.forget();
    this.selected = this.marked = null;
    this._draw(round, this.folded ? round.fold : null);
    this.frame(keep);
    if (this.unseen) return;
    this.settle(); // no frame without its boxes
    if (columns) this.window.glide(before, columns, line - this.plan.at(0)[1]);
  }

  /** More rounds of the run have come, or their trees. */
  grown() {
    if (!this.run || !this.plan) return;
    this.spine.show(this.run, this.plan);
    this._apply();
  }

  /** Draw all nodes of a round, or those of a fold. */
  _draw(round, fold) {
    this.plan = this.window.plan = this.planned(round, fold || null);
    this.window.spine = this.run ? this.spine : null;
    if (this.run) this.spine.show(this.run, this.plan);
    else this.spine.clear();
    this.scene.draw(this.plan);
    this.axis.draw(this.plan, this.window.columns);
    this.call(this.owner);
    if (this.selected !== null && !this.plan.place.has(this.selected)) this.selected = null;
    if (this.selected !== null) this.select(this.selected);
    if (this.marked !== null) this.mark(this.marked);
  }

  /** Name the tree, of several on the page by its owner. */
  call(owner = "") {
    this.owner = owner;
    const words = [this.round?.title ?? SPOKEN, owner, this.plan?.fold && "folded"];
    this.svg.setAttribute("aria-label", words.filter(Boolean).join(", "));
  }

  planned(round, fold) {
    const onward = !!this.run && this.run.at < this.run.rounds.length - 1;
    return planFor(round, fold, { onward, slim: this.slim }, this.window.size);
  }

  /** The box of a row, to be drawn. */
  box(row) {
    const { round } = this,
      place = this.plan.at(row) || [0, 0];
    if (row === GHOST) return ghostBox(this.plan, round, `${this.name}-node-ghost`, place);
    return nodeBox(this.plan, round, row, `${this.name}-node-${row}`, place);
  }

  clear() {
    this.plan = this.window.plan = this.selected = null;
    for (const part of [this.spine, this.scene, this.axis, this.map]) part.clear();
  }

  has(row) {
    return !!this.plan?.has(row);
  }

  label(row) {
    return this.plan.label(row);
  }

  /** The box of a row. */
  node(row) {
    return this.scene.node(row);
  }

  /** Whether some of the round's nodes are not drawn, or would not be. */
  get foldable() {
    return !!this.round?.fold && !!this.onOpen;
  }

  /** Draw every node, or fold the tree again. */
  setFolded(on) {
    const { round } = this;
    this.folded = on && !!this.onOpen;
    if (!round) return;
    this.opened.clear();
    this._draw(round, this.folded ? round.fold : null);
    this.onFold?.();
    this.frame(false);
  }

  /** Draw the children of these rows too, and what leads to them. */
  async open(rows) {
    const { round } = this;
    for (const row of rows) this.opened.add(row);
    const isWanted = this.folds.take(),
      fold = await this.onOpen([...this.opened]);
    if (this.round !== round || !this.folded || !isWanted()) return;
    if (!fold) return this.setFolded(false);
    this._draw(round, fold);
    this.onFold?.();
    if (this.window.holdsAll) this.fit();
    else this._apply();
  }

  /** Open what is folded under a row, or everything. */
  async unfold(row) {
    const one = row !== null && this.plan.chipPlace.has(row);
    await (one ? this.open([row]) : this.setFolded(!this.folded));
  }

  /** Slim boxes or usual ones, as beside other trees; null: those that the window has room for. */
  reshape(slim) {
    this.slim = slim;
    const { round, fold, boxW } = this.plan ?? {};
    if (round && this.planned(round, fold).boxW !== boxW) this._draw(round, fold);
  }

  /** Stand in columns that are the same in other trees: {lead, here, labels, …} of columns.js. */
  stand(columns) {
    this.window.columns = columns;
    if (!this.plan) return;
    this.axis.draw(this.plan, columns);
    this._again();
  }

  /** Frame it anew, with what is selected in sight. */
  _again() {
    this.frame(false);
    if (this.selected !== null) this.window.reveal(this.selected);
  }

  frame(keep) {
    this.window.frame(keep);
  }

  fit() {
    if (this.plan) this.window.fit();
  }

  fitRun() {
    if (this.plan) this.window.fitRun();
  }

  /** `point`: of the window, where a person's hand is. */
  zoomBy(factor, point) {
    if (this.plan) this.window.zoomBy(factor, point);
  }

  panBy(dx, dy) {
    return this.plan ? this.window.panBy(dx, dy) : dy;
  }

  /** The window has moved, or what is drawn in it is another thing. */
  _apply() {
    const { view, size, columns } = this.window;
    this.sight = size;
    this.scene.place(view);
    if (!this.plan) return;
    this.spine.place(view, size);
    this.svg.classList.toggle("shape", this.spine.drawn?.level === "shape");
    this.axis.place(this.plan, view, columns);
    this.map.mark(this.plan, view, size);
    this.settling ||= requestAnimationFrame(() => {
      this.settling = null;
      if (this.plan) this.settle();
    });
  }

  settle() {
    this.scene.settle(this.sight, this._marked());
  }

  /** Rows that are drawn wherever the window stands. */
  _marked() {
    const rows = [...this.scene.hits];
    if (this.marked !== null) rows.push(this.marked);
    if (this.selected !== null) rows.push(this.selected, ...this.plan.ways(this.selected).flat());
    return rows.filter((row) => this.plan.place.has(row));
  }

  /** A window of another size shows the same, or all as before. */
  _resized() {
    this.axis.type = null;
    if (!this.plan) return;
    const size = this.window.size.join(),
      hidden = !this.window.isSeen;
    if (!hidden && (this.unseen || (size !== this.size && !this.window.isKept))) {
      this.reshape(this.slim);
      if (this.onSize) this.onSize();
      else this._again();
    }
    Object.assign(this, { size, unseen: hidden });
    this._apply();
  }

  select(row) {
    if (!this.plan) return;
    this.scene.deselect(this.selected);
    this.selected = row;
    this.svg.removeAttribute("aria-activedescendant");
    if (row === null) return this._apply();
    if (!this.plan.place.has(row)) return this._uncover(row);
    this.scene.select(row);
    this.svg.setAttribute("aria-activedescendant", this.node(row).id);
    this.window.reveal(row);
    this._apply();
  }

  /** Open whatever hides a row, then select it. */
  async _uncover(row) {
    const hiding = this.plan.ways(row).filter(([, at]) => !this.plan.place.has(at));
    await this.open(hiding.map(([parent]) => parent));
    if (this.selected === null && this.plan.place.has(row)) this.select(row);
  }

  /** Mark the counterpart of a node of another tree; null: none. */
  mark(row) {
    if (!this.plan) return;
    this.scene.nodes.get(this.marked)?.classList.remove("twin");
    this.marked = row !== null && this.plan.place.has(row) ? row : null;
    if (this.marked !== null) this.node(row).classList.add("twin");
    this._apply();
  }

  /** Where an arrow leads: by = "up" | "down" | "parent" | "child". */
  neighbour(by) {
    return this.plan.neighbour(this.selected, by);
  }

  /** Mark the nodes whose token holds the text; returns their rows in the order of the plan. */
  search(text) {
    if (!this.plan) return [];
    const rows = this.plan.holding(text.toLowerCase());
    this.scene.hit(rows);
    this.svg.classList.toggle("searching", text !== "");
    this._apply();
    return rows;
  }

  /** The words of a row's tip: its label and further lines. */
  told(row) {
    return tipLines(this.round, row, this.label(row));
  }
}
