// The draft tree: one SVG. Positions come from Python (app/view/layout.py); selecting, searching and
// zooming only toggle classes and one transform. Boxes are made when they first come into sight;
// zoomed far out, one path per status stands for all of them. So 1,024 nodes stay fluid.

import { fill, h, percent, s } from "./dom.js";

export const BOX_W = 116,
  BOX_H = 40,
  STEP_X = 160,
  STEP_Y = 46,
  BAR = 45; // as in app/view/tree.py
const EDIT_W = 126,
  EDIT_H = 16,
  EDIT_GAP = 34; // a draft graph's box, and a line in it
export const MARK = { a: "✓", r: "×", u: "·" };
export const STATUS = { a: "accepted", r: "rejected", u: "unreached", s: "side" };
export const GHOST = -1;
const CLOSEST = 2.5,
  FARTHEST = 0.02;
const FAR = 0.6,
  FARTHER = 0.28; // below: no numbers and bars; no boxes one by one

export class TreeView {
  /** `name` makes ids unique on the page; onSelect(row) is called when a person picks a node,
   * onPoint(row) when one is pointed at; null: no more. */
  constructor(name, onSelect, onPoint) {
    this.name = name;
    this.onSelect = onSelect;
    this.onPoint = onPoint || (() => {});
    this.round = null;
    this.selected = this.pointed = this.marked = null;
    this.zoom = 0.85; // what the person last chose
    this.view = { k: 1, kx: 1, x: 0, y: 0 }; // kx > k only where a tall tree is seen as a whole
    this._sizes();
    this._build();
    this._listen();
  }

  _build() {
    this.scene = s("g", {});
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
      this.scene,
      s("rect", { class: "ds-axis-ground", width: "100%", height: 21 }),
      this.axis,
    );
    this.map = s("svg", {
      class: "ds-map gone",
      "aria-hidden": "true",
      preserveAspectRatio: "none",
    });
    this.tip = h("div", { class: "ds-tip", hidden: true, "aria-hidden": "true" });
    this.element = h(
      "div",
      { class: "ds-canvas" },
      this.svg,
      this.map,
      this.tip,
      h(
        "span",
        { id: `${this.name}-keys`, class: "ds-unseen" },
        "Up and down arrows move between nodes, shift with left and right to parent and child, " +
          "Enter opens a node. Press question mark for all keys.",
      ),
    );
  }

  // ── drawing ────────────────────────────────────────────────────────────────────────────────

  /** Draw a round; keep tells whether the person's zoom stays. */
  show(round, keep) {
    this.round = round;
    this._sizes(round.lines);
    this.selected = this.pointed = this.marked = null;
    this.nodes = new Map();
    this.shown = new Set();
    this.hits = new Set();
    this.rows = round.y.length;
    this.place = round.y.map((y, row) => [round.depths[row] * this.stepX, y * this.stepY]);
    this.ghostPlace = round.ghost && [
      (round.depths[round.ghost.parent] + 1) * this.stepX,
      round.ghost.y * this.stepY,
    ];
    this._measure();
    this.trail = s("path", { class: "ds-edge trail", d: "" });
    this.layer = s("g", {});
    const scene = document.createDocumentFragment();
    scene.append(
      ...this._edges(),
      s("g", { class: "ds-blocks" }, this._blocks()),
      this.trail,
      this.layer,
    );
    this.scene.replaceChildren(scene);
    this._axisLabels();
    this._drawMap();
    this.unseen = !this.svg.getClientRects().length;
    this.frame(keep);
  }

  /** A draft graph's boxes list edits, a line each, and so are larger. */
  _sizes(lines) {
    const most = lines ? Math.max(1, ...lines.map((edits) => edits.length)) : 0;
    [this.boxW, this.boxH] = lines ? [EDIT_W, 25 + EDIT_H * most] : [BOX_W, BOX_H];
    [this.stepX, this.stepY] = [
      this.boxW + (lines ? EDIT_GAP : STEP_X - BOX_W),
      this.boxH + (lines ? 12 : STEP_Y - BOX_H),
    ];
  }

  has(row) {
    return !!this.round && ((row >= 0 && row < this.rows) || (row === GHOST && !!this.round.ghost));
  }

  at(row) {
    return row === GHOST ? this.ghostPlace : this.place[row];
  }

  label(row) {
    return row === GHOST ? this.round.ghost.label : this.round.labels[this.round.tokens[row]];
  }

  /** The box of a row, made on first use. */
  node(row) {
    let node = this.nodes.get(row);
    if (!node) {
      node = row === GHOST ? this._ghostNode() : this._node(row);
      node.classList.toggle("hit", this.hits.has(row));
      this.nodes.set(row, node);
      this.layer.append(node);
    }
    return node;
  }

  /** Show the boxes in sight and those that are marked, hide the others. */
  _cull() {
    const [w, hgt] = this._size(),
      { k, kx, x, y } = this.view,
      margin = 40;
    const left = (-margin - x) / kx,
      right = (w + margin - x) / kx;
    const top = (-margin - y) / k,
      bottom = (hgt + margin - y) / k;
    const next = new Set(this.hits);
    if (this.marked !== null) next.add(this.marked);
    if (this.selected !== null)
      this._ways(this.selected)
        .flat()
        .concat(this.selected)
        .forEach((row) => next.add(row));
    const blocks = k < FARTHER && this.rows > 60;
    this.svg.classList.toggle("blocks", blocks);
    for (let row = this.round.ghost ? GHOST : 0; !blocks && row < this.rows; row++) {
      const [px, py] = this.at(row);
      if (px < right && px + this.boxW > left && py < bottom && py + this.boxH > top) next.add(row);
    }
    for (const row of this.shown) if (!next.has(row)) this.nodes.get(row).classList.add("out");
    for (const row of next) if (!this.shown.has(row)) this.node(row).classList.remove("out");
    this.shown = next;
    this._cullEdges(top, bottom, left, right);
  }

  clear() {
    this.round = null;
    this.selected = null;
    this.scene.replaceChildren();
    this.axis.replaceChildren();
    this.map.replaceChildren();
    this.map.classList.add("gone");
  }

  _measure() {
    let width = 0,
      height = 0;
    const places = this.round.ghost ? [...this.place, this.ghostPlace] : this.place;
    for (const [x, y] of places) {
      width = Math.max(width, x);
      height = Math.max(height, y);
    }
    this.width = width + this.boxW;
    this.height = height + this.boxH;
  }

  /** One path per status, accepted on top; which curves they hold is decided by `_cullEdges`. */
  _edges() {
    const path = new Set(this.round.path),
      status = this.round.status;
    // A node of a graph has several parents; only the pathway that was taken is drawn as accepted.
    const kind = (parent, row) => (path.has(parent) ? status[row] : "u");
    this.curves = this.round.parents.flatMap((_, row) =>
      this.parents(row).map((parent) => ({
        parent,
        row,
        kind: kind(parent, row),
        d: this._curve(this.place[parent], this.place[row]),
      })),
    );
    this.edges = {};
    for (const k of ["s", "u", "r", "a"])
      this.edges[k] = s("path", { class: `ds-edge ${STATUS[k]}` });
    const edges = Object.values(this.edges);
    if (this.round.ghost) {
      const from = this.place[this.round.ghost.parent];
      edges.push(s("path", { class: "ds-edge ghost", d: this._curve(from, this.ghostPlace) }));
    }
    return edges;
  }

  /** Only edges that cross the picture: drawing thousands of dashes off it would cost the most. */
  _cullEdges(top, bottom, left, right) {
    const strokes = { s: [], u: [], r: [], a: [] };
    this.curves.forEach(({ parent, row, kind, d }) => {
      const [x0, y0] = this.place[parent],
        [x1, y1] = this.place[row];
      if (
        Math.max(y0, y1) + this.boxH < top ||
        Math.min(y0, y1) > bottom ||
        x1 < left ||
        x0 > right
      )
        return;
      strokes[kind].push(d);
    });
    for (const k of Object.keys(strokes)) {
      const d = strokes[k].join("");
      if (this.edges[k].getAttribute("d") !== d) this.edges[k].setAttribute("d", d);
    }
  }

  _curve([x0, y0], [x1, y1]) {
    const a = x0 + this.boxW,
      b = y0 + this.boxH / 2,
      c = y1 + this.boxH / 2,
      bend = (x1 - a) / 2;
    return `M${a} ${b.toFixed(1)}C${a + bend} ${b.toFixed(1)} ${x1 - bend} ${c.toFixed(1)} ${x1} ${c.toFixed(1)}`;
  }

  _node(row) {
    const round = this.round,
      [x, y] = this.place[row],
      status = round.status[row];
    const token = round.tokens[row],
      label = round.labels[token];
    const q = row ? round.q[row] : null,
      p = row && round.p ? round.p[row] : null;
    const help = this._sign(row);
    const node = s("g", {
      class: `ds-node ${row ? STATUS[status] : "root"}`,
      id: `${this.name}-node-${row}`,
      role: "treeitem",
      transform: `translate(${x} ${y.toFixed(1)})`,
      "data-row": row,
      "aria-level": round.depths[row] + 1,
      "aria-selected": "false",
      "aria-label": row
        ? `${label}, ${STATUS[status]}, ${round.lines ? "" : `q ${percent(q)}, `}p ${percent(round.lines ? q : p)}${help && `, ${help}`}`
        : `${label}, root`,
    });
    node.append(s("rect", { class: "box", width: this.boxW, height: this.boxH, rx: 7 }));
    const mark = row ? MARK[status] : "●";
    if (round.lines) return fill(node, {}, this._edits(row, mark, label));
    node.append(
      s(
        "text",
        { class: "token", x: 8, y: row ? 15 : 24 },
        `${mark} ${round.short[token] || label}`,
      ),
    );
    if (row) {
      node.append(...this._bar("q", q, 8));
      if (p !== null) node.append(...this._bar("p", p, 14 + BAR));
      if (help)
        node.append(
          s(
            "text",
            { class: "odds cue", x: this.boxW - 3, y: 28, "text-anchor": "end" },
            round.signs[row],
          ),
        );
    }
    return node;
  }

  /** A draft of a block state: its formula, then its edits. */
  _edits(row, mark, label) {
    const lines = this.round.lines[row],
      made = [s("text", { class: "token", x: 8, y: 16 }, `${mark} ${label}`)];
    lines.forEach(([position, token, p], i) => {
      const y = 33 + EDIT_H * i;
      made.push(
        s("text", { class: "odds edit", x: 26, y, "text-anchor": "end" }, String(position)),
        s("text", { class: "edit", x: 33, y }, token),
        s(
          "text",
          { class: "odds edit", x: this.boxW - 7, y, "text-anchor": "end" },
          p === null ? "" : percent(p),
        ),
      );
    });
    return made;
  }

  /** What the mark in a node's box means; "" where there is none. */
  _sign(row) {
    const round = this.round;
    return (row >= 0 && round.signs && round.sign_help[round.signs[row]]) || "";
  }

  _bar(name, odds, x) {
    const width = Math.max(1, BAR * (odds || 0)).toFixed(1);
    return [
      s("text", { class: "odds", x, y: 28 }, `${name} ${percent(odds)}`),
      s("rect", { class: `bar ${name}`, x, y: 32, width, height: 3.5 }),
    ];
  }

  _ghostNode() {
    const ghost = this.round.ghost,
      [x, y] = this.ghostPlace;
    const node = s(
      "g",
      {
        class: "ds-node ghost",
        id: `${this.name}-node-ghost`,
        role: "treeitem",
        "data-row": GHOST,
        transform: `translate(${x} ${y.toFixed(1)})`,
        "aria-selected": "false",
        "aria-level": this.round.depths[ghost.parent] + 2,
        "aria-label": `${ghost.label}, the target's ${this.round.lines ? "step" : "token"} where the walk stopped, ${ghost.why}`,
      },
      s("rect", {
        class: "box",
        width: this.boxW,
        height: this.boxH,
        rx: Math.min(20, this.boxH / 2),
      }),
      s("text", { class: "token", x: 13, y: ghost.p === null ? 24 : 15 }, `◇ ${ghost.short}`),
      ...(ghost.p === null ? [] : this._bar("p", ghost.p, 14)),
    );
    return node;
  }

  _axisLabels() {
    const deepest = Math.round((this.width - this.boxW) / this.stepX);
    const labels = [];
    for (let depth = 0; depth <= deepest; depth++) {
      const tvd = this.round.tvd[depth - 1];
      const label = s(
        "text",
        { y: 15 },
        depth ? `${this.round.word || "depth"} ${depth}` : this.round.lines ? "" : "root",
      );
      if (typeof tvd === "number")
        label.append(s("tspan", { class: "tvd" }, `  TVD ${tvd.toFixed(2)}`));
      labels.push(label);
    }
    this.axis.replaceChildren(...labels);
  }

  // ── the view ───────────────────────────────────────────────────────────────────────────────

  _size() {
    const box = this.svg.getBoundingClientRect();
    return [box.width || 800, box.height || 500];
  }

  _apply() {
    const { k, kx, x, y } = this.view;
    this.scene.setAttribute(
      "transform",
      `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${kx.toFixed(4)} ${k.toFixed(4)})`,
    );
    this.svg.classList.toggle("far", k < FAR);
    this.svg.classList.toggle("farther", k < FARTHER);
    const every = Math.ceil(64 / (this.stepX * kx)); // labels closer than that would overlap
    [...this.axis.children].forEach((label, depth) => {
      label.setAttribute("x", (x + (depth * this.stepX + 2) * kx).toFixed(1));
      label.classList.toggle("gone", depth % every !== 0);
      label.classList.toggle("brief", this.stepX * kx < 120);
    });
    this._frameMap();
    if (!this.culling)
      this.culling = requestAnimationFrame(() => {
        this.culling = null;
        if (this.round) this._cull();
      });
  }

  /** The whole tree when it can be read, else the accepted path, which runs straight. */
  frame(keep) {
    const [w, hgt] = this._size(),
      pad = 26;
    const whole = Math.min((w - 2 * pad) / this.width, (hgt - 2 * pad - 8) / this.height);
    if (!keep && whole >= 0.66) return this.fit();
    const steps = this.round.path.length + (this.round.ghost ? 1 : 0);
    const k = keep
      ? this.view.k
      : Math.max(FAR + 0.02, Math.min(this.zoom, (w - 2 * pad) / (steps * this.stepX)));
    const above = this.place[0][1],
      below = this.height - above;
    // The path stands in the middle, unless one side of it has nothing to show there.
    let y = Math.min(Math.max(hgt / 2, hgt - below * k - pad), above * k + pad + 8);
    if (above * k + pad + 8 > hgt / 2 && below * k + pad > hgt / 2)
      y = hgt / 2 - (this.boxH / 2) * k;
    this.view = { k, kx: k, x: pad, y: y - above * k };
    this._apply();
  }

  /** Show all of it; a tall tree is widened until its depths can be told apart. */
  fit() {
    if (!this.round) return;
    const [w, hgt] = this._size(),
      pad = 26;
    const across = (w - 2 * pad) / this.width;
    const k = Math.max(FARTHEST, Math.min(across, (hgt - 2 * pad - 8) / this.height, 1.15));
    const kx = k < FARTHER ? Math.max(k, Math.min(across, FARTHER)) : k;
    this.view = { k, kx, x: (w - this.width * kx) / 2, y: 8 + (hgt - this.height * k) / 2 };
    this._apply();
  }

  /** Every box at full size at once, for a picture of the whole; the element must be large enough. */
  expand(margin) {
    this.view = { k: 1, kx: 1, x: margin, y: margin };
    this._apply();
    this._cull();
  }

  zoomBy(factor, cx, cy) {
    if (!this.round) return;
    const [w, hgt] = this._size(),
      { k, kx, x, y } = this.view;
    const at = [cx === undefined ? w / 2 : cx, cy === undefined ? hgt / 2 : cy];
    const next = Math.min(CLOSEST, Math.max(FARTHEST, k * factor));
    const wide = next > k ? Math.max(next, kx) : Math.max(next, (kx * next) / k);
    this.view = {
      k: next,
      kx: wide,
      x: at[0] - ((at[0] - x) * wide) / kx,
      y: at[1] - ((at[1] - y) * next) / k,
    };
    this.zoom = next;
    this._apply();
  }

  panBy(dx, dy) {
    this.view.x += dx;
    this.view.y += dy;
    this._apply();
  }

  /** Bring a node inside the picture when it is not. */
  reveal(row) {
    const place = this.at(row);
    const [w, hgt] = this._size(),
      { k, kx, x, y } = this.view,
      pad = 30;
    const left = x + place[0] * kx,
      top = y + place[1] * k;
    const right = left + this.boxW * kx,
      bottom = top + this.boxH * k;
    const dx = left < pad ? pad - left : right > w - pad ? w - pad - right : 0;
    const dy = top < pad ? pad - top : bottom > hgt - pad ? hgt - pad - bottom : 0;
    if (dx || dy) this.panBy(dx, dy);
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
    const seen = new Set([row]),
      edges = [];
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
    const before = this.nodes.get(this.selected);
    if (before) before.setAttribute("aria-selected", "false");
    this.selected = row;
    this.trail.setAttribute("d", "");
    this.svg.removeAttribute("aria-activedescendant");
    if (row === null) return this._apply();
    const node = this.node(row),
      strokes = [];
    node.classList.add("selected");
    node.setAttribute("aria-selected", "true");
    this.svg.setAttribute("aria-activedescendant", node.id);
    for (const [parent, at] of this._ways(row)) {
      strokes.push(this._curve(this.at(parent), this.at(at)));
      this.node(parent).classList.add("lit");
    }
    this.trail.setAttribute("d", strokes.join(""));
    this.reveal(row);
    this._apply();
  }

  /** Mark the counterpart of a node of another tree; null: none. */
  mark(row) {
    if (!this.round) return;
    const before = this.nodes.get(this.marked);
    if (before) before.classList.remove("twin");
    this.marked = row;
    if (row !== null) this.node(row).classList.add("twin");
    this._apply();
  }

  /** Where an arrow leads: by = "up" | "down" | "parent" | "child". */
  neighbour(by) {
    const round = this.round;
    if (this.selected === null) return round.path[round.path.length - 1];
    const row = this.selected;
    if (by === "parent") return row === 0 ? 0 : this.parent(row);
    if (by === "child") {
      const kids = this._kids(row);
      return kids.find((kid) => round.status[kid] === "a") ?? kids[0] ?? row;
    }
    const depth = row === GHOST ? round.depths[round.ghost.parent] + 1 : round.depths[row];
    const column = this._column(depth);
    const at = column.indexOf(row) + (by === "up" ? -1 : 1);
    return column[Math.max(0, Math.min(column.length - 1, at))];
  }

  _kids(row) {
    const kids = [];
    for (let child = 1; child < this.rows; child++)
      if (this.parents(child).includes(row)) kids.push(child);
    if (this.round.ghost && this.round.ghost.parent === row) kids.push(GHOST);
    return kids;
  }

  _column(depth) {
    const rows = [];
    this.round.depths.forEach((d, row) => d === depth && rows.push(row));
    if (this.round.ghost && this.round.depths[this.round.ghost.parent] + 1 === depth)
      rows.push(GHOST);
    const y = (row) => (row === GHOST ? this.round.ghost.y : this.round.y[row]);
    return rows.sort((a, b) => y(a) - y(b));
  }

  /** Mark the nodes whose token holds the text; returns their rows from top to bottom. */
  search(text) {
    const wanted = text.toLowerCase(),
      hits = [];
    if (!this.round) return hits;
    for (let row = this.round.ghost ? GHOST : 0; wanted && row < this.rows; row++) {
      if (this.label(row).toLowerCase().includes(wanted)) hits.push(row);
    }
    this.hits = new Set(hits);
    for (const [row, node] of this.nodes) node.classList.toggle("hit", this.hits.has(row));
    this.svg.classList.toggle("searching", wanted !== "");
    this._apply();
    return hits.sort((a, b) => this.at(a)[0] - this.at(b)[0] || this.at(a)[1] - this.at(b)[1]);
  }

  // ── the small map ──────────────────────────────────────────────────────────────────────────

  _drawMap() {
    this.map.setAttribute("viewBox", `-40 -40 ${this.width + 80} ${this.height + 80}`);
    this.window = s("rect", { class: "window" });
    this.map.replaceChildren(...this._blocks(), this.window);
  }

  /** All boxes as one path per status. */
  _blocks() {
    const paths = { s: [], u: [], r: [], a: [] };
    this.place.forEach(([x, y], row) =>
      paths[this.round.status[row]].push(
        `M${x} ${y.toFixed(1)}h${this.boxW}v${this.boxH}h${-this.boxW}z`,
      ),
    );
    const made = Object.keys(paths).map((k) =>
      s("path", { class: STATUS[k], d: paths[k].join("") }),
    );
    if (this.round.ghost) {
      const [x, y] = this.ghostPlace;
      made.push(
        s("path", {
          class: "ghost",
          d: `M${x} ${y.toFixed(1)}h${this.boxW}v${this.boxH}h${-this.boxW}z`,
        }),
      );
    }
    return made;
  }

  _frameMap() {
    const [w, hgt] = this._size(),
      { k, kx, x, y } = this.view;
    const all =
      x >= -4 && y >= -4 && x + this.width * kx <= w + 4 && y + this.height * k <= hgt + 4;
    this.map.classList.toggle("gone", all || w < 520);
    const rect = { x: -x / kx, y: -y / k, width: w / kx, height: hgt / k };
    for (const [name, value] of Object.entries(rect))
      this.window.setAttribute(name, value.toFixed(0));
  }

  _jump(event) {
    const box = this.map.getBoundingClientRect(),
      [w, hgt] = this._size(),
      { k, kx } = this.view;
    const x = ((event.clientX - box.left) / box.width) * (this.width + 80) - 40;
    const y = ((event.clientY - box.top) / box.height) * (this.height + 80) - 40;
    this.view = { k, kx, x: w / 2 - x * kx, y: hgt / 2 - y * k };
    this._apply();
  }

  // ── hands ──────────────────────────────────────────────────────────────────────────────────

  _listen() {
    const fingers = new Map();
    let moved = 0;
    const local = (event) => {
      const box = this.svg.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    // The wheel alone scrolls the page: a tree that fills the window must not hold it. A trackpad's
    // pinch arrives as a wheel with Ctrl, in small steps.
    this.svg.addEventListener(
      "wheel",
      (event) => {
        if (!this.round || !(event.ctrlKey || event.metaKey)) return;
        event.preventDefault();
        const most = 60,
          turned = event.deltaY * (event.deltaMode === 1 ? 30 : 1);
        this.zoomBy(Math.exp(-0.008 * Math.max(-most, Math.min(most, turned))), ...local(event));
      },
      { passive: false },
    );
    this.svg.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      fingers.set(event.pointerId, [event.clientX, event.clientY]);
      if (fingers.size === 1) moved = 0;
    });
    this.svg.addEventListener("pointermove", (event) => {
      const last = fingers.get(event.pointerId);
      if (!last) return this._hover(event);
      const others = [...fingers].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
      const now = [event.clientX, event.clientY];
      moved += Math.abs(now[0] - last[0]) + Math.abs(now[1] - last[1]);
      if (moved > 4) {
        this.svg.setPointerCapture(event.pointerId);
        this.svg.classList.add("dragging");
        this.tip.hidden = true;
      }
      if (others.length) this._pinch(others[0], last, now);
      else if (moved > 4) this.panBy(now[0] - last[0], now[1] - last[1]);
      fingers.set(event.pointerId, now);
    });
    const lift = (event) => {
      fingers.delete(event.pointerId);
      this.svg.classList.remove("dragging");
    };
    this.svg.addEventListener("pointerup", lift);
    this.svg.addEventListener("pointercancel", lift);
    this.svg.addEventListener("pointerleave", () => {
      this.tip.hidden = true;
      if (this.pointed !== null) this.onPoint((this.pointed = null));
    });
    this.svg.addEventListener("click", (event) => {
      const row = this._rowAt(event);
      this.tip.hidden = true;
      if (moved <= 4 && row !== null) this.onSelect(row);
    });
    this.svg.addEventListener("dblclick", () => this.fit());
    this.map.addEventListener("pointerdown", (event) => {
      this.map.setPointerCapture(event.pointerId);
      this._jump(event);
    });
    this.map.addEventListener("pointermove", (event) => event.buttons && this._jump(event));
    new ResizeObserver(() => {
      if (!this.round) return;
      const hidden = !this.svg.getClientRects().length;
      if (this.unseen && !hidden) this.frame(false); // it was drawn without a size
      this.unseen = hidden;
      this._apply();
    }).observe(this.svg);
  }

  _pinch(other, last, now) {
    const box = this.svg.getBoundingClientRect();
    const far = (a) => Math.hypot(a[0] - other[0], a[1] - other[1]) || 1;
    this.zoomBy(
      far(now) / far(last),
      (now[0] + other[0]) / 2 - box.left,
      (now[1] + other[1]) / 2 - box.top,
    );
  }

  /** The row under the pointer: by place, so that it also works where boxes are only a path. */
  _rowAt(event) {
    if (!this.round) return null;
    const box = this.svg.getBoundingClientRect(),
      { k, kx, x, y } = this.view;
    const px = (event.clientX - box.left - x) / kx,
      py = (event.clientY - box.top - y) / k;
    for (let row = this.round.ghost ? GHOST : 0; row < this.rows; row++) {
      const [left, top] = this.at(row);
      if (px >= left && px <= left + this.boxW && py >= top && py <= top + this.boxH) return row;
    }
    return null;
  }

  _hover(event) {
    const row = this._rowAt(event);
    this.tip.hidden = row === null;
    this.svg.classList.toggle("over", row !== null);
    if (row !== this.pointed) this.onPoint((this.pointed = row));
    if (this.tip.hidden) return;
    const round = this.round,
      ghost = row === GHOST;
    const label = this.label(row);
    const what = ghost
      ? `${round.lines ? "the target's step" : "target's token"}, ${round.ghost.why}`
      : round.lines
        ? round.nodes[row].why
        : row === 0
          ? "root: the bonus token of the round before"
          : `${STATUS[round.status[row]]} · q ${percent(round.q[row])} · p ${percent(round.p?.[row])}`;
    const help = this._sign(row);
    this.tip.replaceChildren(
      h("b", {}, label),
      h("span", {}, what),
      ...(help ? [h("span", {}, `${round.signs[row]} ${help}`)] : []),
    );
    const box = this.element.getBoundingClientRect();
    const x = Math.min(event.clientX - box.left + 14, box.width - this.tip.offsetWidth - 8);
    const y = event.clientY - box.top + 18;
    this.tip.style.transform = `translate(${Math.max(4, x)}px, ${y}px)`;
  }
}
