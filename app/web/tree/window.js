// The window onto a tree: which part of it is in sight, and how a person moves it. What a view
// looks like at a size is a pure function: camera.js.

import {
  afar,
  carried,
  centred,
  columned,
  FAR,
  FARTHER,
  FARTHEST,
  fitted,
  fittedColumns,
  following,
  intoSight,
  kept,
  largestFor,
  pathScale,
  TYPE,
  wholeRun,
  wholeScale,
  zoomed,
} from "./camera.js";

const GLIDE = 260; // milliseconds from one round to the next

export class TreeWindow {
  /** changed(): another part is in sight; moved(): a person's hands did it. */
  constructor(svg, changed, moved) {
    Object.assign(this, { svg, changed, moved });
    this.plan = null;
    this.columns = null; // those that the tree shares with other trees
    this.spine = null; // the run that the tree is a part of
    this.readable = FAR; // the smallest scale at which a whole tree is read
    this.zoom = 0.95 * TYPE; // what a person last chose
    this.byHand = false; // whether the scale is a person's choice, and so stays
    this.ofRun = false; // whether all of the run is shown
    this.view = { k: 1, kx: 1, x: 0, y: 0 };
    this.framed = null; // the view that `frame` gave
  }

  get size() {
    return this.measured ?? this.measure();
  }

  /** Once in a run of script: after each change a measure lays the page out anew. */
  measure() {
    const { width, height } = this.svg.getBoundingClientRect();
    this.isSeen = width > 0;
    this.measured = [width || 800, height || 500];
    queueMicrotask(() => {
      this.measured = null;
    });
    return this.measured;
  }

  /** The smallest window of the trees in the same columns: their scale is that of it. */
  get room() {
    const sizes = this.columns?.trees.map((tree) => tree.window.size) ?? [this.size];
    return [0, 1].map((side) => Math.min(...sizes.map((size) => size[side])));
  }

  /** The smallest scale that nobody chose: while the tree is presented, 0 else. */
  get least() {
    return this.svg.closest(".ds-presenting") ? afar(window.innerWidth) : 0;
  }

  /** Whether a person moved it at a scale of their choice: then another size leaves it as it is. */
  get isKept() {
    const { view, framed, zoom, least } = this;
    return view !== framed && view.k === zoom && view.k >= least;
  }

  /** Whether the whole tree can be read at once; a presented draft graph, which has few boxes, as
   * on the page. */
  get holdsAll() {
    const { plan, room, columns } = this,
      least = plan.round.lines ? 0 : this.least;
    const [wide, tall] = columns
      ? [columns.all * plan.stepX, columns.tall]
      : [plan.width, plan.height];
    return wholeScale(room, wide, tall) >= Math.max(this.readable, least);
  }

  show(view) {
    cancelAnimationFrame(this.gliding);
    Object.assign(this, { view, ofRun: false });
    this.changed();
  }

  /** The whole tree when it can be read, else the accepted path, which runs straight; keep: at the
   * scale it has. All of the run stays so. */
  frame(keep) {
    this._frame(keep);
    this.framed = this.view;
  }

  _frame(keep) {
    if (this.spine && this.ofRun) return this.fitRun();
    const { plan, size, room, columns, zoom, least } = this;
    const [, above] = plan.at(0);
    const half = plan.boxH / 2;
    if (this.spine && this.byHand && this.view.k >= least) {
      const wide = (plan.round.path.length + 1) * plan.stepX;
      return this.show(carried(this.view, size, wide, above + half));
    }
    if (!keep && this.holdsAll) return this.fit();
    if (columns)
      return this.show(columned(size, room, columns, plan, zoom, above, half, least || undefined));
    const steps = plan.round.path.length + (plan.round.ghost ? 1 : 0);
    const wide = steps * plan.stepX;
    const k = keep ? this.view.k : pathScale(size, wide, zoom, least || undefined);
    this.show(centred(size, k, above, plan.height, half));
  }

  /** The scale of the whole tree, and of those beside it: farther out there is nothing more. */
  get _whole() {
    const { room, columns, plan } = this,
      [wide, tall] = columns ? [columns.all * plan.stepX, columns.tall] : [plan.width, plan.height];
    return Math.max(FARTHEST, Math.min(1, wholeScale(room, wide, tall)));
  }

  /** All of the run, as a view. */
  get _wholeRun() {
    const { spine, plan, size } = this,
      line = plan.at(0)[1] + plan.boxH / 2;
    return wholeRun(size, spine.plan.columns, -spine.columnsTo(0), plan.stepX, line);
  }

  /** Show all of the run. */
  fitRun() {
    if (!this.spine) return this.fit();
    this.byHand = true;
    this.show(this._wholeRun);
    this.ofRun = true;
  }

  /** The scale that a person chose among a run's rounds, for the address: "run" for all of them. */
  get chosen() {
    if (!this.spine || !this.byHand) return undefined;
    return this.ofRun ? "run" : String(Math.round(1000 * this.view.k) / 1000);
  }

  /** Take it from an address, now or as soon as there is a tree. */
  choose(zoom) {
    const k = Number(zoom);
    Object.assign(this, { byHand: true, ofRun: zoom === "run" });
    if (!this.ofRun) Object.assign(this, { zoom: k, view: { ...this.view, k, kx: k } });
    if (this.plan) this.frame(false);
  }

  /** Show all of it. */
  fit() {
    this.byHand = false;
    const { plan, size, room, columns } = this,
      most = largestFor(this.least);
    this.show(
      columns
        ? fittedColumns(size, room, columns, plan, most)
        : fitted(size, plan.width, plan.height, most),
    );
  }

  /** The window of another tree of the same columns was moved: show the same ones. */
  follow(other) {
    if (!this.columns || !other.columns) return;
    const shift = (this.columns.lead - other.columns.lead) * this.plan.stepX;
    Object.assign(this, { zoom: other.zoom, byHand: other.byHand });
    this.show(following(this.view, other.view, this.size, shift));
  }

  /** Zoom about a point of the window; without one about its middle. */
  zoomBy(factor, point) {
    const [w, hgt] = this.size,
      run = this.spine && this._wholeRun,
      least = run ? (run.kx < FARTHER ? run.k : Math.min(run.k, this._whole)) : this._whole;
    if (run && factor < 1 && this.view.k * factor <= run.k && least === run.k) {
      this.fitRun();
      return point && this.moved();
    }
    const view = zoomed(this.view, factor, point ?? [w / 2, hgt / 2], Math.min(least, this.view.k));
    this.zoom = view.k;
    this.byHand = true;
    this.show(this._kept(view));
    if (point) this.moved();
  }

  /** A view with a box of the tree in sight, or a token of the run's text. */
  _kept(view) {
    const { plan, spine, size } = this,
      middle = ([left, top]) => [left + plan.boxW / 2, top + plan.boxH / 2],
      points = [...plan.place.values()].map(middle);
    if (spine) {
      const [, line] = middle(plan.at(0)),
        first = spine.columnsTo(0),
        here = Math.round((size[0] / 2 - view.x) / view.kx / plan.stepX),
        column = Math.max(first, Math.min(first + spine.plan.columns - 1, here));
      points.push([column * plan.stepX + plan.boxW / 2, line]);
    }
    return kept(view, size, points);
  }

  /** Gives how much of the way down was left over: no tree would stay in sight. */
  panBy(dx, dy) {
    const { view } = this,
      to = this._kept({ ...view, x: view.x + dx, y: view.y + dy });
    this.show(to);
    this.moved();
    return dy - (to.y - view.y);
  }

  /** Go from where the window stood, seen from another round's root, to where it stands now. */
  glide(from, columns, rise) {
    const to = this.view;
    const { stepX } = this.plan;
    const start = { ...from, x: from.x + columns * stepX * from.kx, y: from.y + rise * from.k };
    cancelAnimationFrame(this.gliding);
    const far = Math.abs(start.x - to.x) > 3 * this.size[0];
    if (far || matchMedia("(prefers-reduced-motion: reduce)").matches) return;
    const began = performance.now();
    const move = (now) => {
      const share = Math.min(1, Math.max(0, (now - began) / GLIDE));
      const eased = 1 - (1 - share) ** 3;
      const between = (name) => start[name] + (to[name] - start[name]) * eased;
      this.view = { k: between("k"), kx: between("kx"), x: between("x"), y: between("y") };
      if (share < 1) this.gliding = requestAnimationFrame(move);
      else this.view = to;
      this.changed();
    };
    move(began);
  }

  /** Bring a node inside the picture when it is not. */
  reveal(row) {
    const { plan } = this;
    const move = intoSight(this.view, this.size, plan.at(row), [plan.boxW, plan.boxH]);
    if (move.some(Boolean)) this.panBy(...move);
  }

  /** Bring a point of the plane to the middle. */
  jump(x, y) {
    const [w, hgt] = this.size;
    const { k, kx } = this.view;
    this.show({ k, kx, x: w / 2 - x * kx, y: hgt / 2 - y * k });
  }

  /** The point of the plane under the pointer. */
  point({ clientX, clientY }) {
    const box = this.svg.getBoundingClientRect();
    const { k, kx, x, y } = this.view;
    return [(clientX - box.left - x) / kx, (clientY - box.top - y) / k];
  }
}
