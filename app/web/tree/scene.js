// The drawing of a tree. Boxes and chips are made when they first come into sight; edges are one
// path per status, and zoomed far out so are the boxes. A move of the window sets one transform.

import { s } from "../dom.js";
import { blocks, chipBox, curve, edgePaths } from "./boxes.js";
import { FAR, FARTHER, TOKEN, TYPE } from "./camera.js";

const CHAR = 6.7 * TYPE; // pixels of the screen, of a character of TOKEN pixels
const FEW_LETTERS = 6; // room for fewer: a token stands without its sign, which the box shows too
const ODDS = 11; // pixels of the smallest letters in the plane: tree.css
const NEARBY = 40; // pixels around the window where boxes are made too
const FEW = 60; // boxes that are drawn one by one however small they are

export class TreeScene {
  /** make(row) gives a row's box, which is asked for once. */
  constructor(svg, make) {
    Object.assign(this, { svg, make });
    this.element = s("g.ds-scene", { role: "presentation" });
    this.view = { k: 1, kx: 1, x: 0, y: 0 };
    this.nodes = new Map();
    this.hits = new Set(); // rows that hold what is searched
    this.least = FAR; // the smallest scale with numbers
  }

  /** Draw a plan's edges; its boxes come with `settle`. */
  draw(plan) {
    this.plan = plan;
    this.nodes = new Map();
    this.chips = new Map();
    this.shown = new Set();
    this.curves = plan.curves();
    this.edges = edgePaths();
    this.trail = s("path.ds-edge.trail", { d: "" });
    this.layer = s("g", { role: "presentation" }); // a tree owns its items through those
    this.blocks = s("g.ds-blocks"); // drawn once they are seen
    const ghost = plan.ghostCurve();
    const parts = document.createDocumentFragment();
    parts.append(
      ...Object.values(this.edges),
      ...(ghost ? [s("path.ds-edge.ghost", { d: ghost })] : []),
      this.blocks,
      this.trail,
      this.layer,
    );
    this.element.replaceChildren(parts);
  }

  clear() {
    this.element.replaceChildren();
  }

  /** The box of a row, made on first use. */
  node(row) {
    let node = this.nodes.get(row);
    if (!node) {
      node = this.make(row);
      node.classList.toggle("hit", this.hits.has(row));
      this.nodes.set(row, node);
      if (this.plan.place.has(row)) this.layer.append(node);
      this._cut(node);
    }
    return node;
  }

  _chip(parent) {
    let made = this.chips.get(parent);
    if (!made) {
      made = chipBox(this.plan, this.plan.chip(parent), this.plan.chipPlace.get(parent));
      this.chips.set(parent, made);
      this._markChip(parent, made);
      this.layer.append(made);
      this._cut(made);
    }
    return made;
  }

  _markChip(parent, chip) {
    const holds = [...this.hits].some((row) => this.plan.chipOf(row) === parent);
    chip.classList.toggle("hit", holds);
  }

  /** Mark these rows, and the chips that they are folded into, and no others. */
  hit(rows) {
    this.hits = new Set(rows);
    for (const [row, node] of this.nodes) node.classList.toggle("hit", this.hits.has(row));
    for (const [parent, chip] of this.chips) this._markChip(parent, chip);
  }

  /** Mark a row, and every way from the root to it. */
  select(row) {
    const node = this.node(row);
    const ways = this.plan.ways(row);
    node.classList.add("selected");
    node.setAttribute("aria-selected", "true");
    for (const [parent] of ways) this.node(parent).classList.add("lit");
    const stroke = (edge) => curve(this.plan, ...edge.map((at) => this.plan.at(at)));
    this.trail.setAttribute("d", ways.map(stroke).join(""));
  }

  /** Scroll the page so far that the selected box is above its bars, and above a sheet that tells
   * of it, as soon as the tree has its size beside that. */
  inSight() {
    const reveal = () =>
        this.layer.querySelector(".selected")?.scrollIntoView({ block: "nearest" }),
      isPage = window.parent === window; // one around a frame is not this view's
    if (isPage) requestAnimationFrame(() => setTimeout(reveal));
  }

  deselect(row) {
    for (const node of this.nodes.values()) node.classList.remove("selected", "lit");
    this.nodes.get(row)?.setAttribute("aria-selected", "false");
    this.trail.setAttribute("d", "");
  }

  /** Show the plane as a view has it. */
  place(view) {
    const { k, kx, x, y } = view;
    this.view = view;
    this.far = k < this.least;
    const type = this.far ? 1 : Math.max(1 / TYPE, Math.min(1, k / FAR));
    const scale = `scale(${kx.toFixed(4)} ${k.toFixed(4)})`;
    this.element.setAttribute("transform", `translate(${x.toFixed(1)} ${y.toFixed(1)}) ${scale}`);
    this.svg.classList.toggle("far", this.far);
    this.svg.classList.toggle("farther", k < FARTHER);
    const token = `${Math.max(ODDS, (TOKEN * type) / k).toFixed(2)}px`;
    if (token === this.token) return; // each change sets all letters anew
    this.token = token;
    this.svg.style.setProperty("--token", token);
  }

  /** Follow a move, once a frame: draw boxes in sight and those of `marked` rows, and as much of
   * their tokens as can be read. */
  settle(size, marked) {
    const sight = this._sight(size);
    this._cull(sight, marked);
    this._cullEdges(sight);
    const cutFor = this.far ? this.view.kx : 0;
    if (this.cutFor === cutFor) return;
    this.cutFor = cutFor;
    for (const node of [...this.nodes.values(), ...this.chips.values()]) this._cut(node);
  }

  /** The part of the plane that the window shows. */
  _sight([w, hgt]) {
    const { k, kx, x, y } = this.view;
    return {
      left: (-NEARBY - x) / kx,
      right: (w + NEARBY - x) / kx,
      top: (-NEARBY - y) / k,
      bottom: (hgt + NEARBY - y) / k,
    };
  }

  /** Show the boxes in sight and those that are marked, hide the others. */
  _cull(sight, marked) {
    const { plan } = this;
    const small = this.view.k < FARTHER && plan.place.size > FEW;
    this.svg.classList.toggle("blocks", small);
    if (small && !this.blocks.firstChild) this.blocks.append(...blocks(plan));
    const next = new Set(marked);
    const near = ([, place]) => !small && plan.crosses(place, sight);
    for (const entry of plan.place) if (near(entry)) next.add(entry[0]);
    for (const row of this.shown) if (!next.has(row)) this.nodes.get(row)?.classList.add("out");
    for (const row of next) if (!this.shown.has(row)) this.node(row).classList.remove("out");
    this.shown = next;
    for (const entry of plan.chipPlace) {
      const [parent] = entry;
      const seen = near(entry);
      if (seen || this.chips.has(parent)) this._chip(parent).classList.toggle("out", !seen);
    }
  }

  /** Only edges that cross the picture: drawing thousands of dashes off it would cost the most. */
  _cullEdges({ top, bottom, left, right }) {
    const strokes = { s: [], u: [], r: [], a: [] };
    for (const { from, to, kind, d } of this.curves) {
      const above = Math.max(from[1], to[1]) + this.plan.boxH < top;
      if (above || Math.min(from[1], to[1]) > bottom || to[0] < left || from[0] > right) continue;
      strokes[kind].push(d);
    }
    for (const [kind, curves] of Object.entries(strokes)) {
      const d = curves.join("");
      if (this.edges[kind].getAttribute("d") !== d) this.edges[kind].setAttribute("d", d);
    }
  }

  /** Where boxes are small on the screen, their tokens are cut to what can be read; elsewhere some
   * have narrower letters. */
  _cut(node) {
    const text = node.querySelector("[data-words]");
    if (!text) return;
    const length = !this.far && text.getAttribute("data-length");
    if (length) text.setAttribute("textLength", length);
    else text.removeAttribute("textLength");
    const words = text.getAttribute("data-words");
    const room = Math.floor((this.plan.boxW * this.view.kx - 6) / CHAR);
    const brief = text.getAttribute("data-brief");
    const bare = room < FEW_LETTERS && text.getAttribute("data-bare");
    const cut = bare || (brief && words.length > room ? brief : words);
    const short = this.far && cut.length > room ? `${cut.slice(0, Math.max(2, room - 1))}…` : cut;
    const next = this.far ? short : words;
    if (text.textContent !== next) text.textContent = next;
  }
}
