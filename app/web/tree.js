// The draft tree: one SVG. Positions come from Python (app/view/layout.py, fold.py); selecting,
// searching and zooming only toggle classes and one transform. Boxes are made when they first come
// into sight; zoomed far out, one path per status stands for all of them.

import {
  centred,
  columned,
  FAR,
  FARTHER,
  fitted,
  fittedColumns,
  following,
  intoSight,
  pathScale,
  TOKEN,
  wholeScale,
  zoomed,
} from "./camera.js";
import { h, s } from "./dom.js";
import { listenToHands } from "./hands.js";
import {
  blocks,
  chipBox,
  chipLines,
  curve,
  edgePaths,
  GHOST,
  ghostBox,
  nodeBox,
  sizes,
  tipLines,
} from "./tree-boxes.js";
import { TreeMap } from "./tree-map.js";

const CHAR = 6.7; // pixels of the screen, of a character of TOKEN pixels
const AXIS_LABEL = 64; // pixels a depth's label needs
const SPOKEN_KEYS =
  "Up and down arrows move between nodes, shift with left and right to parent and child, " +
  "Enter opens a node, u opens what is folded. Press question mark for all keys.";

export class TreeView {
  /** `name` makes ids unique on the page; onSelect(row) is called when a person picks a node,
   * onPoint(row) when one is pointed at; null: no more. onOpen(rows) answers with the tree folded
   * but for these rows' children, or with null; without it the tree is never folded. */
  constructor(name, onSelect, onPoint, onOpen) {
    Object.assign(this, { name, onSelect, onPoint: onPoint || (() => {}), onOpen });
    this.round = null;
    this.columns = null; // those that it shares with other trees
    this.onMove = null; // called when a person moved it
    this.folded = !!onOpen; // what a person last chose
    this.selected = this.pointed = this.marked = null;
    this.zoom = 0.95; // what a person last chose
    this.view = { k: 1, kx: 1, x: 0, y: 0 };
    Object.assign(this, sizes());
    this._build();
    listenToHands(this);
    new ResizeObserver(() => this._resized()).observe(this.svg);
  }

  _build() {
    this.scene = s("g", {});
    this.hereBand = s("rect", { class: "ds-column-here", y: 0, height: "100%", hidden: true });
    this.axis = s("g", { class: "ds-axis", "aria-hidden": "true" });
    this.svg = s(
      "svg",
      {
        class: "ds-tree",
        role: "tree",
        tabindex: 0,
        "aria-label": "Draft tree of this round",
        "aria-describedby": `${this.name}-keys`,
      },
      this.hereBand,
      this.scene,
      s("rect", { class: "ds-axis-ground", width: "100%", height: 21 }),
      this.axis,
    );
    this.map = new TreeMap((x, y) => this._jump(x, y));
    this.tip = h("div", { class: "ds-tip", hidden: true, "aria-hidden": "true" });
    const keys = h("span", { id: `${this.name}-keys`, class: "ds-unseen" }, SPOKEN_KEYS);
    this.element = h("div", { class: "ds-canvas" }, this.svg, this.map.svg, this.tip, keys);
  }

  // ── drawing ────────────────────────────────────────────────────────────────────────────────

  /** Draw a round; keep tells whether the person's zoom stays. */
  show(round, keep) {
    this.round = round;
    Object.assign(this, sizes(round.lines));
    this.rows = round.y.length;
    this.opened = new Set();
    this.selected = this.pointed = this.marked = null;
    this.hits = new Set();
    this._draw(this.folded ? round.fold : null);
    this.unseen = !this.svg.getClientRects().length;
    this.frame(keep);
  }

  /** Draw all nodes, or those of a fold. */
  _draw(fold) {
    const { round } = this;
    this.fold = fold || null;
    this.nodes = new Map();
    this.chips = new Map();
    this.shown = new Set();
    this._place();
    this._measure();
    this.trail = s("path", { class: "ds-edge trail", d: "" });
    this.layer = s("g", {});
    const scene = document.createDocumentFragment();
    const below = s("g", { class: "ds-blocks" }, this._blocks());
    scene.append(...this._edges(), below, this.trail, this.layer);
    this.scene.replaceChildren(scene);
    this._axisLabels();
    this.map.draw(this.width, this.height, this._blocks());
    this.svg.setAttribute("aria-label", `Draft tree of this round${fold ? ", folded" : ""}`);
    if (this.selected !== null && !this.place.has(this.selected)) this.selected = null;
    if (round && this.selected !== null) this.select(this.selected);
  }

  /** Where each drawn row stands: rows that are folded away have no place. */
  _place() {
    const { round, fold } = this;
    const rows = fold ? fold.rows : round.y.map((_, row) => row);
    const ys = fold ? fold.y : round.y;
    const at = (row, y) => [round.depths[row] * this.stepX, y * this.stepY];
    this.place = new Map(rows.map((row, i) => [row, at(row, ys[i])]));
    const beyond = (row, y) => [(round.depths[row] + 1) * this.stepX, y * this.stepY];
    this.chipPlace = new Map((fold?.chips || []).map((c) => [c.parent, beyond(c.parent, c.y)]));
    const ghostY = fold ? fold.ghost : round.ghost?.y;
    if (round.ghost) this.place.set(GHOST, beyond(round.ghost.parent, ghostY));
  }

  has(row) {
    return !!this.round && ((row >= 0 && row < this.rows) || (row === GHOST && !!this.round.ghost));
  }

  at(row) {
    return this.place.get(row);
  }

  label(row) {
    const { round } = this;
    return row === GHOST ? round.ghost.label : round.labels[round.tokens[row]];
  }

  /** The box of a row, made on first use. */
  node(row) {
    let node = this.nodes.get(row);
    if (!node) {
      node = row === GHOST ? this._ghostNode() : this._node(row);
      node.classList.toggle("hit", this.hits.has(row));
      this.nodes.set(row, node);
      if (this.place.has(row)) this.layer.append(node);
      this._cut(node);
    }
    return node;
  }

  _node(row) {
    const place = this.at(row) || [0, 0];
    return nodeBox(this, this.round, row, `${this.name}-node-${row}`, place);
  }

  _ghostNode() {
    return ghostBox(this, this.round, `${this.name}-node-ghost`, this.at(GHOST));
  }

  _chip(parent) {
    let made = this.chips.get(parent);
    if (!made) {
      const chip = this.fold.chips.find((each) => each.parent === parent);
      made = chipBox(this, chip, this.chipPlace.get(parent));
      this.chips.set(parent, made);
      this.layer.append(made);
      this._cut(made);
    }
    return made;
  }

  /** Where boxes are small on the screen, their tokens are cut to what can be read. */
  _cut(node) {
    const text = node.querySelector("[data-words]");
    if (!text) return;
    const words = text.getAttribute("data-words");
    const room = Math.floor((this.boxW * this.view.kx - 6) / CHAR);
    const brief = text.getAttribute("data-brief");
    const cut = brief && words.length > room ? brief : words;
    const short = this.far && cut.length > room ? `${cut.slice(0, Math.max(2, room - 1))}…` : cut;
    const next = this.far ? short : words;
    if (text.textContent !== next) text.textContent = next;
  }

  /** Show the boxes in sight and those that are marked, hide the others. */
  _cull() {
    const [w, hgt] = this._size();
    const { k, kx, x, y } = this.view;
    const margin = 40;
    const sight = {
      left: (-margin - x) / kx,
      right: (w + margin - x) / kx,
      top: (-margin - y) / k,
      bottom: (hgt + margin - y) / k,
    };
    const inSight = ([px, py]) =>
      px < sight.right &&
      px + this.boxW > sight.left &&
      py < sight.bottom &&
      py + this.boxH > sight.top;
    const small = k < FARTHER && this.place.size > 60;
    this.svg.classList.toggle("blocks", small);
    const next = new Set(this._marked());
    if (!small) for (const [row, place] of this.place) if (inSight(place)) next.add(row);
    for (const row of this.shown) if (!next.has(row)) this.nodes.get(row)?.classList.add("out");
    for (const row of next) if (!this.shown.has(row)) this.node(row).classList.remove("out");
    this.shown = next;
    for (const [parent, place] of this.chipPlace) {
      const seen = !small && inSight(place);
      if (seen || this.chips.has(parent)) this._chip(parent).classList.toggle("out", !seen);
    }
    this._cullEdges(sight);
  }

  /** Rows that are drawn wherever the window stands. */
  _marked() {
    const rows = [...this.hits];
    if (this.marked !== null) rows.push(this.marked);
    if (this.selected !== null) rows.push(this.selected, ...this._ways(this.selected).flat());
    return rows.filter((row) => this.place.has(row));
  }

  clear() {
    this.round = null;
    this.selected = null;
    this.scene.replaceChildren();
    this.axis.replaceChildren();
    this.map.clear();
  }

  _measure() {
    const places = [...this.place.values(), ...this.chipPlace.values()];
    this.width = Math.max(...places.map(([x]) => x)) + this.boxW;
    this.height = Math.max(...places.map(([, y]) => y)) + this.boxH;
  }

  /** One path per status, accepted on top; which curves they hold is decided by `_cullEdges`. */
  _edges() {
    const { round } = this;
    const path = new Set(round.path);
    // A node of a graph has several parents; only the pathway that was taken is drawn as accepted.
    const kind = (parent, row) => (path.has(parent) ? round.status[row] : "u");
    const line = (from, to, k) => ({ from, to, kind: k, d: curve(this, from, to) });
    this.curves = [...this.place.keys()]
      .filter((row) => row !== GHOST)
      .flatMap((row) =>
        this.parents(row).map((from) => line(this.at(from), this.at(row), kind(from, row))),
      );
    for (const chip of this.fold?.chips || []) {
      const to = this.chipPlace.get(chip.parent);
      this.curves.push(line(this.at(chip.parent), to, chip.status));
    }
    this.edges = edgePaths();
    const ghost = round.ghost && curve(this, this.at(round.ghost.parent), this.at(GHOST));
    const last = ghost ? [s("path", { class: "ds-edge ghost", d: ghost })] : [];
    return [...Object.values(this.edges), ...last];
  }

  /** Only edges that cross the picture: drawing thousands of dashes off it would cost the most. */
  _cullEdges({ top, bottom, left, right }) {
    const strokes = { s: [], u: [], r: [], a: [] };
    for (const { from, to, kind, d } of this.curves) {
      const above = Math.max(from[1], to[1]) + this.boxH < top;
      if (above || Math.min(from[1], to[1]) > bottom || to[0] < left || from[0] > right) continue;
      strokes[kind].push(d);
    }
    for (const [kind, curves] of Object.entries(strokes)) {
      const d = curves.join("");
      if (this.edges[kind].getAttribute("d") !== d) this.edges[kind].setAttribute("d", d);
    }
  }

  _blocks() {
    const rows = [...this.place].filter(([row]) => row !== GHOST);
    const places = rows.map(([row, [x, y]]) => [this.round.status[row], x, y]);
    return blocks(this, places, this.at(GHOST));
  }

  /** Stand in columns that are the same in other trees: {lead, here, labels, …} of columns.js. */
  stand(columns) {
    this.columns = columns;
    if (!this.round) return;
    this._axisLabels();
    this.frame(true);
  }

  _axisLabels() {
    const { round, columns } = this;
    const lead = columns?.lead ?? 0;
    const deepest = Math.round((this.width - this.boxW) / this.stepX);
    const own = (depth) =>
      depth ? `${round.word || "depth"} ${depth}` : round.lines ? "" : "root";
    const count = columns ? columns.labels.length : deepest + 1;
    const labels = Array.from({ length: count }, (_, at) => {
      const tvd = round.tvd[at - lead - 1];
      const words = columns ? columns.labels[at] : own(at);
      const label = s("text", { y: 15, class: columns?.here === at ? "here" : "" }, words);
      if (typeof tvd === "number")
        label.append(s("tspan", { class: "tvd" }, `  TVD ${tvd.toFixed(2)}`));
      return label;
    });
    this.axis.replaceChildren(...labels);
  }

  // ── folding ────────────────────────────────────────────────────────────────────────────────

  /** Whether some of the round's nodes are not drawn, or would not be. */
  get foldable() {
    return !!this.round?.fold && !!this.onOpen;
  }

  /** Draw every node, or fold the tree again. */
  setFolded(on) {
    this.folded = on && !!this.onOpen;
    if (!this.round) return;
    this.opened.clear();
    this._draw(this.folded ? this.round.fold : null);
    this.frame(false);
  }

  /** Draw the children of these rows too, and what leads to them. */
  async open(rows) {
    const { round } = this;
    for (const row of rows) this.opened.add(row);
    const fold = await this.onOpen([...this.opened]);
    if (this.round !== round || !this.folded) return;
    if (!fold) return this.setFolded(false);
    this._draw(fold);
    if (wholeScale(this._size(), this.width, this.height) >= 0.6) this.fit();
    else this._apply();
  }

  /** Open what is folded under a row, or everything. */
  unfold(row) {
    if (!this.foldable) return;
    const inside = this.fold && row !== null && this.chipPlace.has(row);
    if (inside) this.open([row]);
    else this.setFolded(!this.folded);
  }

  // ── the view ───────────────────────────────────────────────────────────────────────────────

  _size() {
    const box = this.svg.getBoundingClientRect();
    return [box.width || 800, box.height || 500];
  }

  _apply() {
    const { k, kx, x, y } = this.view;
    const scale = `scale(${kx.toFixed(4)} ${k.toFixed(4)})`;
    this.scene.setAttribute("transform", `translate(${x.toFixed(1)} ${y.toFixed(1)}) ${scale}`);
    this.far = k < FAR;
    this.svg.classList.toggle("far", this.far);
    this.svg.classList.toggle("farther", k < FARTHER);
    this.svg.style.setProperty("--token", `${(TOKEN / k).toFixed(2)}px`);
    const every = Math.ceil(AXIS_LABEL / (this.stepX * kx)); // closer they would overlap
    const lead = this.columns?.lead ?? 0;
    const from = (column) => (x + ((column - lead) * this.stepX + 2) * kx).toFixed(1);
    this.hereBand.toggleAttribute("hidden", !this.columns || !this.round);
    if (this.columns) {
      this.hereBand.setAttribute("x", from(this.columns.here - 0.08));
      this.hereBand.setAttribute("width", (this.stepX * kx * 0.92).toFixed(1));
    }
    [...this.axis.children].forEach((label, at) => {
      label.setAttribute("x", from(at));
      label.classList.toggle("gone", (at - (this.columns?.here ?? 0)) % every !== 0);
      label.classList.toggle("brief", this.stepX * kx < 120);
    });
    if (this.round) this.map.mark(this.view, this._size());
    if (!this.culling)
      this.culling = requestAnimationFrame(() => {
        this.culling = null;
        if (this.round) this._settle();
      });
  }

  /** What follows a move once a frame: boxes in sight, and their tokens' lengths. */
  _settle() {
    this._cull();
    if (this.cutFor === (this.far ? this.view.kx : 0)) return;
    this.cutFor = this.far ? this.view.kx : 0;
    for (const node of [...this.nodes.values(), ...this.chips.values()]) this._cut(node);
  }

  /** The whole tree when it can be read, else the accepted path, which runs straight. */
  frame(keep) {
    const size = this._size();
    if (this.columns) return this._frameColumns(size);
    if (!keep && wholeScale(size, this.width, this.height) >= 0.6) return this.fit();
    const steps = this.round.path.length + (this.round.ghost ? 1 : 0);
    const k = keep ? this.view.k : pathScale(size, steps * this.stepX, this.zoom);
    this.view = centred(size, k, this.at(0)[1], this.height, this.boxH / 2);
    this._apply();
  }

  _frameColumns(size) {
    const above = this.at(0)[1];
    const half = this.boxH / 2;
    const { columns, stepX, zoom, height } = this;
    this.view = columned(size, columns, stepX, zoom, above, height, half);
    this._apply();
  }

  /** Show all of it. */
  fit() {
    if (!this.round) return;
    const size = this._size();
    this.view = this.columns
      ? fittedColumns(size, this.columns, this.stepX, this.height)
      : fitted(size, this.width, this.height);
    this._apply();
  }

  /** Another tree of the same columns was moved: show the same ones. */
  follow(other) {
    if (!this.round || !this.columns || !other.columns) return;
    const shift = (this.columns.lead - other.columns.lead) * this.stepX;
    this.view = following(this.view, other.view, this._size(), shift);
    this._apply();
  }

  /** Every box at full size at once, for a picture of the whole; the element must be large enough. */
  expand(margin) {
    this.view = { k: 1, kx: 1, x: margin, y: margin };
    this._apply();
    this._settle();
  }

  zoomBy(factor, cx, cy) {
    if (!this.round) return;
    const [w, hgt] = this._size();
    this.view = zoomed(this.view, factor, [cx ?? w / 2, cy ?? hgt / 2]);
    this.zoom = this.view.k;
    this._apply();
    if (cx !== undefined) this.onMove?.();
  }

  panBy(dx, dy) {
    this.view.x += dx;
    this.view.y += dy;
    this._apply();
    this.onMove?.();
  }

  /** Bring a node inside the picture when it is not. */
  reveal(row) {
    const move = intoSight(this.view, this._size(), this.at(row), [this.boxW, this.boxH]);
    if (move.some(Boolean)) this.panBy(...move);
  }

  _jump(x, y) {
    const [w, hgt] = this._size();
    const { k, kx } = this.view;
    this.view = { k, kx, x: w / 2 - x * kx, y: hgt / 2 - y * k };
    this._apply();
  }

  /** A window of another size shows the same part, or all of the tree if it did before. */
  _resized() {
    if (!this.round) return;
    const hidden = !this.svg.getClientRects().length;
    const size = this._size().join();
    if (!hidden && (this.unseen || (size !== this.size && this.zoom !== this.view.k))) {
      this.frame(false);
      if (this.selected !== null) this.reveal(this.selected);
    }
    this.size = size;
    this.unseen = hidden;
    this._apply();
  }

  // ── selection ──────────────────────────────────────────────────────────────────────────────

  parent(row) {
    return row === GHOST ? this.round.ghost.parent : this.round.parents[row];
  }

  /** All parents of a row: several in a draft graph, the first of them is `parent`. */
  parents(row) {
    if (row === GHOST) return [this.round.ghost.parent];
    if (this.round.sources) return this.round.sources[row];
    return row === 0 ? [] : [this.round.parents[row]];
  }

  /** Every edge [parent, row] of every pathway from the root to a row. */
  _ways(row) {
    const seen = new Set([row]);
    const edges = [];
    for (const at of seen)
      for (const parent of this.parents(at)) {
        edges.push([parent, at]);
        seen.add(parent);
      }
    return edges;
  }

  select(row) {
    if (!this.round) return;
    for (const node of this.nodes.values()) node.classList.remove("selected", "lit");
    this.nodes.get(this.selected)?.setAttribute("aria-selected", "false");
    this.selected = row;
    this.trail.setAttribute("d", "");
    this.svg.removeAttribute("aria-activedescendant");
    if (row === null) return this._apply();
    if (!this.place.has(row)) return this._uncover(row);
    const node = this.node(row);
    const strokes = [];
    node.classList.add("selected");
    node.setAttribute("aria-selected", "true");
    this.svg.setAttribute("aria-activedescendant", node.id);
    for (const [parent, at] of this._ways(row)) {
      strokes.push(curve(this, this.at(parent), this.at(at)));
      this.node(parent).classList.add("lit");
    }
    this.trail.setAttribute("d", strokes.join(""));
    this.reveal(row);
    this._apply();
  }

  /** Open whatever hides a row, then select it. */
  async _uncover(row) {
    const hiding = this._ways(row)
      .filter(([, at]) => !this.place.has(at))
      .map(([parent]) => parent);
    await this.open(hiding);
    if (this.selected === null && this.place.has(row)) this.select(row);
  }

  /** Mark the counterpart of a node of another tree; null: none. */
  mark(row) {
    if (!this.round) return;
    this.nodes.get(this.marked)?.classList.remove("twin");
    this.marked = row !== null && this.place.has(row) ? row : null;
    if (this.marked !== null) this.node(row).classList.add("twin");
    this._apply();
  }

  /** Where an arrow leads: by = "up" | "down" | "parent" | "child". */
  neighbour(by) {
    const { round, selected: row } = this;
    if (row === null) return round.path[round.path.length - 1];
    if (by === "parent") return row === 0 ? 0 : this.parent(row);
    if (by === "child") {
      const kids = this._kids(row);
      return kids.find((kid) => round.status[kid] === "a") ?? kids[0] ?? row;
    }
    const column = this._column(this._depth(row));
    const at = column.indexOf(row) + (by === "up" ? -1 : 1);
    return column[Math.max(0, Math.min(column.length - 1, at))];
  }

  _depth(row) {
    const { depths, ghost } = this.round;
    return row === GHOST ? depths[ghost.parent] + 1 : depths[row];
  }

  /** The drawn children of a row. */
  _kids(row) {
    const rows = [...this.place.keys()].filter(
      (child) => child && this.parents(child).includes(row),
    );
    return rows.sort((a, b) => (a === GHOST) - (b === GHOST) || a - b);
  }

  _column(depth) {
    const rows = [...this.place.keys()].filter((row) => this._depth(row) === depth);
    return rows.sort((a, b) => this.at(a)[1] - this.at(b)[1]);
  }

  /** Mark the nodes whose token holds the text; returns their rows, those drawn from top to bottom
   * and then those that are folded away. */
  search(text) {
    if (!this.round) return [];
    const wanted = text.toLowerCase();
    const rows = Array.from({ length: this.rows }, (_, row) => row);
    if (this.round.ghost) rows.unshift(GHOST);
    const hits = rows.filter((row) => wanted && this.label(row).toLowerCase().includes(wanted));
    this.hits = new Set(hits);
    for (const [row, node] of this.nodes) node.classList.toggle("hit", this.hits.has(row));
    this.svg.classList.toggle("searching", wanted !== "");
    this._apply();
    const place = (row) => this.at(row) || [Number.MAX_VALUE, row];
    return hits.sort((a, b) => place(a)[0] - place(b)[0] || place(a)[1] - place(b)[1]);
  }

  // ── hands ──────────────────────────────────────────────────────────────────────────────────

  /** [row, chip's parent] under the pointer, null each: by place, so that it also works where
   * boxes are only a path. */
  _under(event) {
    const box = this.svg.getBoundingClientRect();
    const { k, kx, x, y } = this.view;
    const px = (event.clientX - box.left - x) / kx;
    const py = (event.clientY - box.top - y) / k;
    const hit = ([, [left, top]]) =>
      px >= left && px <= left + this.boxW && py >= top && py <= top + this.boxH;
    const row = [...this.place].find(hit)?.[0] ?? null;
    return [row, row === null ? ([...this.chipPlace].find(hit)?.[0] ?? null) : null];
  }

  _rowAt(event) {
    return this.round ? this._under(event)[0] : null;
  }

  press(event) {
    if (!this.round) return;
    const [row, parent] = this._under(event);
    this.tip.hidden = true;
    if (row !== null) this.onSelect(row);
    else if (parent !== null) this.open([parent]);
  }

  leave() {
    this.tip.hidden = true;
    if (this.pointed !== null) this._point(null);
  }

  _point(row) {
    this.pointed = row;
    this.onPoint(row);
  }

  hover(event) {
    const [row, parent] = this.round ? this._under(event) : [null, null];
    this.tip.hidden = row === null && parent === null;
    this.svg.classList.toggle("over", !this.tip.hidden);
    if (row !== this.pointed) this._point(row);
    if (this.tip.hidden) return;
    const chip = parent !== null && this.fold.chips.find((each) => each.parent === parent);
    const [first, ...lines] = chip ? chipLines(chip) : tipLines(this.round, row, this.label(row));
    this.tip.replaceChildren(h("b", {}, first), ...lines.map((line) => h("span", {}, line)));
    const box = this.element.getBoundingClientRect();
    const x = Math.min(event.clientX - box.left + 14, box.width - this.tip.offsetWidth - 8);
    const y = event.clientY - box.top + 18;
    this.tip.style.transform = `translate(${Math.max(4, x)}px, ${y}px)`;
  }
}
