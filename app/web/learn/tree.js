// The tree in a lesson: some rows of a round, at the places they have in the whole tree.

import { h, percent, s, words } from "../dom.js";
import { pictureButtons } from "../save/buttons.js";
import { fileName } from "../save/files.js";
import { picture } from "../save/picture.js";
import { cutWords, GHOST, roomFor } from "../tree/boxes.js";
import { FAR, SMALLEST, TYPE } from "../tree/camera.js";
import { TreeView } from "../tree.js";
import { LessonPlan, MOST_SCALE, subtree } from "./plan.js";

const LEAST_SCALE = 0.42, // how small a tree is drawn
  READ_SCALE = 0.85 * TYPE, // below: boxes of one line, if they are larger then
  NOTE = 7.9, // of the plane: as wide a letter of a note is at most
  LETTER = 7.8, // and one of a token
  EDGE = 6, // of the plane: between it and the box's edge
  GUESS = 9.5, // the radius of a number by which a node is guessed
  NARROWEST = 0.57, // so much of that at least, where a token would be cut
  LARGE_SCALE = 1.2 * TYPE; // below: those of other shapes, if their type is larger then
// Pixels around a tree; lower, for the labels of the depths; and below it, for its buttons.
const ROOM = { around: 22, axis: 10, tools: 28 };
const ABOVE = 12,
  BELOW = 6; // pixels above and below a presented tree, besides a line of the labels
// Pixels, and presented a share of the window: a tree in less may have slim boxes.
const SLIM_ROOM = 420,
  SLIM_SHARE = 1 / 3;
// Where the page scrolls, as in narrow.css, a tree is as high as it takes. Of these shapes of its
// boxes it has the first one whose numbers can be read.
const SCROLLS = [
  { where: matchMedia("(max-width: 45em)"), shapes: ["slim"], most: 1.15 },
  { where: matchMedia("(max-height: 600px)"), shapes: ["", "narrow", "slim"], most: 1 },
];
const NARROW = { pad: 8, axis: 24, name: 20, lowest: 150 };

export class LessonTree extends TreeView {
  /** hear: {picked(row), pointed(row or null)}, rows of the whole tree. */
  constructor(name, hear) {
    super(
      name,
      (row) => hear.picked(this.own(row)),
      (row) => hear.pointed(row === null ? null : this.own(row)),
    );
    this.scene.least = SMALLEST;
    this.title = h("p.ds-lesson-name");
    const named = () => fileName(`${this.called} ${this.spec.title}`.trim()),
      files = pictureButtons("this tree", () => picture(this.svg), named);
    this.tools = h("span.ds-plot-tools.ds-lesson-tools", files);
    this.frameBox = h("div.ds-lesson-tree", this.element, this.title, this.tools);
  }

  /** How the tree is drawn where the page scrolls; undefined: it does not. */
  get scrolls() {
    return SCROLLS.find(({ where }) => where.matches);
  }

  /** In a window of another size: the part that a step shows, wherever its window stood. */
  _resized() {
    if (!this.round) return;
    if (this.scrolls && this.wide === this.window.size[0]) this.reframe();
    else this.draw(this.round.whole, this.spec, this.called);
  }

  /** The row of the whole tree that a row shown is, and back. */
  own(row) {
    return row < 0 ? row : this.round.rows[row];
  }

  shownAs(row) {
    return row < 0 ? row : this.round.rows.indexOf(row);
  }

  /** called: chapter and step, which a saved picture has as its name. */
  draw(full, spec, called) {
    Object.assign(this, { spec, called });
    this.wide = this.scrolls && this.window.size[0];
    this.svg.classList.toggle("untold", !!full.untold);
    this.title.textContent = spec.title;
    this.show(subtree(full, spec), false);
    this.reframe();
  }

  /** Frame it anew, as the step wants it. */
  reframe() {
    this.frame();
    const row = this.spec.select === null ? -2 : this.shownAs(this.spec.select);
    if (!this.has(row)) return;
    this.select(row);
    if (this._whole(this.plan) >= LEAST_SCALE) this.frame(); // all is in sight: nothing moves
  }

  /** Where the page scrolls all of it is in sight: nothing has to move. */
  select(row) {
    super.select(row);
    if (this.scrolls && this.plan) this.frame();
  }

  planned(round) {
    if (this.scrolls) return this._scrolling(round);
    const within = this._within,
      shaped = (shape) => new LessonPlan(round, shape, within),
      plan = shaped("");
    const presented = !this._room.tools;
    if (!presented && this._whole(plan) >= LARGE_SCALE) return plan;
    const shapes = ["narrow"],
      isTight = !round.notes && this._whole(plan) < READ_SCALE; // boxes of one line have more air
    const room = presented ? SLIM_SHARE * window.innerWidth : SLIM_ROOM;
    if (this.frameBox.clientWidth < room && !round.sources) shapes.push("slim");
    if (!round.lines) shapes.push("large");
    const all = [...(isTight ? [shaped("flat")] : []), plan, ...shapes.map(shaped)],
      scale = (each) => Math.min(this._whole(each), MOST_SCALE),
      size = (each) => scale(each) * (scale(each) < FAR ? 1 : (each.large ?? 1)),
      type = (each) => Math.round(1000 * size(each)),
      larger = (best, other) => (type(other) > type(best) ? other : best);
    return all.reduce(larger);
  }

  /** The first plan with numbers that can be read across the page; boxes of a graph keep words. */
  _scrolling(round) {
    const wide = this.window.size[0] - 2 * NARROW.pad,
      high = Number.POSITIVE_INFINITY,
      shapes = round.sources ? ["narrow"] : this.scrolls.shapes,
      plans = shapes.map((shape) => new LessonPlan(round, shape, { wide, high }));
    return plans.find(({ width }) => wide / width >= FAR) ?? plans.at(-1);
  }

  /** Presented there are no buttons, and the labels are as large as the words. */
  get _room() {
    if (!this.frameBox.closest(".ds-presenting")) return ROOM;
    const numbers = this.spec?.numbers ? GUESS : 0,
      above = Number.parseFloat(getComputedStyle(this.svg).fontSize) + ABOVE + numbers;
    return { around: (above + BELOW) / 2, axis: (above - BELOW) / 2, tools: 0 };
  }

  /** The pixels that a tree may take. */
  get _within() {
    const [wide, high] = this.window.size,
      { around, tools } = this._room;
    const { least } = this.window;
    return { wide: wide - 2 * around, high: high - 2 * around - tools, least };
  }

  /** The scale at which the shown part of a plan fills the window. */
  _whole({ shown }) {
    const { wide, high } = this._within;
    return Math.min(wide / shown.width, high / shown.height);
  }

  /** The whole of it when that can be read, larger than life where there is room. */
  frame() {
    const { left, top, width, height } = this.plan.shown;
    const [w, hgt] = this.window.size;
    if (this.scrolls) return this._frameAcross(w);
    this.frameBox.style.height = "";
    const whole = this._whole(this.plan);
    if (whole < LEAST_SCALE) return super.frame(false);
    const k = Math.min(whole, MOST_SCALE);
    const x = (w - width * k) / 2 - left * k;
    const { axis, tools } = this._room;
    this.window.show({ k, kx: k, x, y: (hgt - tools - height * k) / 2 + axis - top * k });
  }

  /** All of its depths in sight, and as much room below as its branches take. */
  _frameAcross(w) {
    const { width, height } = this.plan;
    const { pad, lowest } = NARROW,
      axis = NARROW.axis + (this.spec.title ? NARROW.name : 0),
      around = axis + this.tools.offsetHeight;
    const k = Math.min((w - 2 * pad) / width, this.scrolls.most);
    const high = Math.max(lowest, height * k + around + 2 * pad);
    this.frameBox.style.height = `${Math.ceil(high)}px`;
    const y = axis + (high - around - height * k) / 2;
    this.window.show({ k, kx: k, x: (w - width * k) / 2, y });
  }

  box(row) {
    const box = super.box(row);
    const { notes, marks } = this.round;
    if (row !== GHOST) this._untell(box, row);
    if (row !== GHOST && notes) this._note(box, notes[row]);
    if (!this.round.lines) this._lengthen(box, row);
    if (marks[row]) box.classList.add(`mark-${marks[row]}`);
    const number = row === GHOST ? undefined : this.spec.numbers?.[this.own(row)];
    if (number) this._number(box, number);
    return box;
  }

  /** Before the target has spoken a box says nothing of what became of it. */
  _untell(box, row) {
    if (!this.round.untold) return;
    box.setAttribute("aria-label", this.words(row));
    if (!row) return;
    box.classList.replace("unreached", "drafted");
    const text = box.querySelector(".token");
    const label = this.round.short[this.round.tokens[row]] || this.label(row);
    text.textContent = cutWords(roomFor(this.plan, this.round, row), label);
    text.setAttribute("data-words", text.textContent); // which it is drawn from at another zoom
  }

  /** A token that its box has no room for is whole in narrower letters, if it can be read then. */
  _lengthen(box, row) {
    const text = box.querySelector(".token"),
      cut = text.getAttribute("data-words");
    if (!cut.endsWith("…")) return;
    const { letters } = roomFor(this.plan, this.round, row),
      [mark] = /^([●◇✓×·○] )?/.exec(cut),
      whole = mark + this.label(row);
    if (whole.length * NARROWEST > letters) return;
    text.textContent = whole;
    const { boxW, large = 1 } = this.plan,
      free = boxW - text.getAttribute("x") - EDGE,
      length = Math.min(Math.floor(letters) * LETTER * large, free);
    for (const [name, value] of Object.entries({ "data-words": whole, "data-length": length }))
      text.setAttribute(name, value);
    text.setAttribute("textLength", length);
    text.setAttribute("lengthAdjust", "spacingAndGlyphs");
  }

  /** The number by which a node is guessed; a sign of its box stands beside it. */
  _number(node, number) {
    const { boxW } = this.plan;
    node.querySelector(".cue")?.setAttribute("x", boxW - GUESS - 4);
    node.append(
      s("circle.ds-guess", { cx: boxW - 1, cy: 3, r: GUESS }),
      words("ds-guess", boxW - 1, 7, number, "middle"),
    );
  }

  /** Words in place of numbers and bars. */
  _note(node, said) {
    node.querySelectorAll(".odds, .bar").forEach((part) => part.remove());
    const { left, boxW, large = 1 } = this.plan;
    node.querySelector(".token").setAttribute("y", said ? 17 : large > 1 ? 28 : 24);
    if (!said) return;
    const note = words("odds note", left, large > 1 ? 36 : 32, said),
      room = boxW - 2 * left;
    node.append(" ", note);
    if (said.length * NOTE * large <= room) return;
    note.setAttribute("textLength", room); // its letters a little narrower
    note.setAttribute("lengthAdjust", "spacingAndGlyphs");
  }

  /** A node before the target has spoken, as it is drawn. */
  words(row) {
    const { notes, q } = this.round,
      label = this.label(row);
    if (notes) return [label, notes[row]].filter(Boolean).join(" ");
    return row ? `${label} q ${percent(q[row])}, drafted` : `● ${label}, root`;
  }

  told(row) {
    return this.round.untold && row >= 0 ? [this.label(row), this.words(row)] : super.told(row);
  }
}
