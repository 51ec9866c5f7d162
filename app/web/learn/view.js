// Learn: a guided course. Every tree in it is drawn by the one tree component (tree.js); what a
// step shows comes as plain data from app/learn. A step is a function of (chapter, step).

import { ViewInAddress } from "../address.js";
import { clear, h } from "../dom.js";
import { answered } from "../feed.js";
import { isPresented, PRESENTED, togglePresent } from "../present.js";
import { BESIDE_TREE, companion } from "./companions.js";
import { actOf, isTyping, keyHelp, listenForSwipes } from "./keys.js";
import { CourseNav } from "./nav.js";
import { LessonTree } from "./tree.js";
import { paragraphs, question } from "./words.js";

const LOWEST = 0.3; // of the window: where a step's words may begin
const READ = { least: 3500, word: 260 }; // milliseconds a step stays when playing

/** The course is fetched once, then it needs no server. */
export async function mount({ element, server }) {
  const course = await answered(server.course({}));
  if (!course.error) return new Learn(element, course);
  element.replaceChildren(h("p", { class: "ds-banner", role: "alert" }, course.error));
}

export class Learn {
  constructor(element, course) {
    this.course = course;
    this.chapter = 0;
    this.step = 0;
    this.seen = new Set();
    this.answers = new Map();
    this.trees = ["ds-lesson-a", "ds-lesson-b"].map((name) => this._tree(name));
    this._build(element);
    this._listen(element);
    this.address = new ViewInAddress("learn", this.root, {
      state: () => ({ learn: `${this.chapter + 1}.${this.step + 1}` }),
      show: (state) => this._show(state?.learn),
    });
  }

  // ── the parts ──────────────────────────────────────────────────────────────────────────────

  _tree(name) {
    const tree = new LessonTree(name, {
      picked: (row) => this._picked(tree, row),
      pointed: (row) => this._light(row),
    });
    return tree;
  }

  _build(element) {
    this.nav = new CourseNav(this.course, {
      go: (chapter, step) => this.go(chapter, step),
      move: (by) => this.move(by),
      play: () => this.togglePlay(),
      present: () => this.present(),
      help: () => this.dialog.showModal(),
    });
    this.kicker = h("p", { class: "ds-kicker" });
    this.title = h("h2", { class: "ds-lesson-title" });
    this.words = h("div", { class: "ds-lesson-words" });
    this.text = h(
      "div",
      { class: "ds-lesson-text" },
      this.kicker,
      this.title,
      this.words,
      h("span", { class: "ds-spring" }),
      this.nav.controls,
    );
    this.side = h("div", { class: "ds-lesson-side" });
    this.note = h("p", { class: "ds-lesson-note", "aria-live": "polite" });
    this.stage = h(
      "div",
      { class: "ds-lesson-trees" },
      this.trees.map((tree) => tree.frameBox),
    );
    this.said = h("p", { class: "ds-unseen", id: "ds-lesson-said" });
    const figure = {
      class: "ds-lesson-figure",
      role: "group",
      "aria-label": "Figure",
      "aria-describedby": "ds-lesson-said",
    };
    this.figure = h("div", figure, this.stage, this.side, this.note);
    this.announce = h("div", { class: "ds-unseen", "aria-live": "polite" });
    this.dialog = keyHelp();
    this.root = h(
      "div",
      { class: "ds-scope ds-learn" },
      this.nav.element,
      h("section", { class: "ds-card ds-lesson", "aria-label": "Lesson" }, this.text, this.figure),
      this.said,
      this.announce,
      this.dialog,
    );
    clear(element).append(this.root);
  }

  // ── where we are ───────────────────────────────────────────────────────────────────────────

  /** Steps of a chapter, its question counted as the last. */
  length(chapter) {
    return this.course.chapters[chapter].steps.length + 1;
  }

  get asking() {
    return this.step === this.length(this.chapter) - 1;
  }

  get shown() {
    const { steps } = this.course.chapters[this.chapter];
    return steps[Math.min(this.step, steps.length - 1)];
  }

  /** Show a step; what is out of range is brought into it. */
  go(chapter, step) {
    this.chapter = Math.max(0, Math.min(this.course.chapters.length - 1, chapter));
    this.step = Math.max(0, Math.min(this.length(this.chapter) - 1, step));
    this.seen.add(`${this.chapter}.${this.step}`);
    this._draw();
    this.address?.write();
    this._reveal();
  }

  /** On a phone the page scrolls: a step begins with its words in sight. */
  _reveal() {
    const { top, height } = this.kicker.getBoundingClientRect();
    const low = window.innerHeight * LOWEST;
    if (height && (top < 0 || top > low)) this.kicker.scrollIntoView({ block: "start" });
  }

  move(by) {
    const to = this.step + by;
    if (to >= 0 && to < this.length(this.chapter)) return this.go(this.chapter, to);
    const chapter = this.chapter + by;
    if (chapter < 0 || chapter >= this.course.chapters.length) return this.pause();
    this.go(chapter, by > 0 ? 0 : this.length(chapter) - 1);
  }

  get atEnd() {
    return this.chapter === this.course.chapters.length - 1 && this.asking;
  }

  /** Show the step that an address names. */
  _show(named = `${this.chapter + 1}.${this.step + 1}`) {
    this.go(...named.split(".").map((part) => Number(part) - 1));
  }

  // ── drawing ────────────────────────────────────────────────────────────────────────────────

  _draw() {
    const { chapters } = this.course,
      { question: asked, title, quiz } = chapters[this.chapter],
      { shown } = this;
    const words = this.asking
      ? question(quiz, this.answers.get(this.chapter), (at) => this.answer(at))
      : paragraphs(shown.text);
    this.kicker.textContent = `Chapter ${this.chapter + 1} of ${chapters.length} · ${asked}`;
    this.title.textContent = title;
    this.words.replaceChildren(...words);
    this._drawNav();
    this._figure(shown);
    this.said.textContent = shown.alt;
    const steps = this.length(this.chapter);
    const where = `Chapter ${this.chapter + 1}, step ${this.step + 1} of ${steps}.`;
    this.announce.textContent = `${where} ${this.words.textContent} Figure: ${shown.alt}`;
  }

  _drawNav() {
    const lengths = this.course.chapters.map((_, at) => this.length(at)),
      seen = (chapter, step) => this.seen.has(`${chapter}.${step}`);
    this.nav.draw(this.chapter, this.step, lengths, seen);
  }

  _figure({ side, trees }) {
    const look = {
      beside: side && BESIDE_TREE.includes(side.kind),
      wide: side?.kind === "mask",
      two: trees.length > 1,
      alone: !trees.length,
    };
    this.note.textContent = "";
    for (const [name, on] of Object.entries(look)) this.figure.classList.toggle(name, !!on);
    this.stage.hidden = !trees.length;
    this.side.hidden = !side;
    this.side.replaceChildren(
      ...(side ? [companion(side, { point: (row) => this._point(row) })] : []),
    );
    this.trees.forEach((tree, at) => {
      tree.frameBox.hidden = !trees[at];
      if (trees[at]) tree.draw(this.course.trees[trees[at].name], trees[at]);
    });
  }

  answer(at) {
    const { quiz } = this.course.chapters[this.chapter];
    if (!this.asking || at >= quiz.options.length) return;
    this.pause();
    this.answers.set(this.chapter, at);
    this._draw();
    this.words.querySelectorAll(".ds-option")[at].focus();
    this.announce.textContent = quiz.options[at].why;
  }

  // ── nodes ──────────────────────────────────────────────────────────────────────────────────

  _picked(tree, row) {
    this.pause();
    tree.select(tree.shownAs(row));
    const own = tree.shownAs(row);
    if (own >= -1 && tree.has(own))
      this.note.textContent = tree.node(own).getAttribute("aria-label");
    this._light(row);
  }

  /** A row of the companion is pointed at: show it in the tree. */
  _point(row) {
    const tree = this.trees[0],
      own = tree.shownAs(row);
    if (own >= 0) tree.select(own);
    this._light(row);
  }

  /** A node is pointed at: show its row in the mask. */
  _light(row) {
    for (const line of this.side.querySelectorAll(".ds-mask .line"))
      line.classList.toggle("lit", line.getAttribute("data-row") === String(row));
  }

  node(by) {
    const tree = this.trees[0];
    if (tree.round && !tree.frameBox.hidden) this._picked(tree, tree.own(tree.neighbour(by)));
  }

  fit() {
    for (const tree of this.trees) if (!tree.frameBox.hidden) tree.fit();
  }

  // ── playing ────────────────────────────────────────────────────────────────────────────────

  togglePlay() {
    if (this.playing) return this.pause();
    if (this.atEnd) this.go(0, 0);
    this.nav.playing(true);
    this._wait();
  }

  /** A step stays as long as it takes to read; a question ends the play. */
  _wait() {
    const words = this.words.textContent.split(/\s+/).length;
    this.playing = setTimeout(
      () => {
        if (!this.root.getClientRects().length || this.atEnd) return this.pause();
        this.move(1);
        if (this.asking) this.pause();
        else this._wait();
      },
      Math.max(READ.least, READ.word * words),
    );
  }

  pause() {
    clearTimeout(this.playing);
    this.playing = null;
    this.nav.playing(false);
  }

  get presenting() {
    return isPresented(this.root);
  }

  present() {
    togglePresent(this.root);
  }

  _presented(on) {
    this.nav.large.setAttribute("aria-pressed", String(on));
    this._drawNav(); // the list of chapters is another width now
  }

  // ── keys ───────────────────────────────────────────────────────────────────────────────────

  _listen(element) {
    this.onKey = (event) => {
      if (!element.isConnected) return document.removeEventListener("keydown", this.onKey);
      if (!element.getClientRects().length || event.defaultPrevented) return;
      const act = this.dialog.open || isTyping(event) ? null : actOf(event, this);
      if (!act) return;
      event.preventDefault();
      act();
    };
    document.addEventListener("keydown", this.onKey);
    this.root.addEventListener(PRESENTED, ({ detail }) => this._presented(detail));
    listenForSwipes(this.text, (by) => this.move(by));
  }
}
