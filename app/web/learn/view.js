// Learn: a guided course. Every tree in it is drawn by the one tree component (tree.js); what a
// step shows comes as plain data from app/learn. A step is a function of (chapter, step).

import { ViewInAddress } from "../address.js";
import { clear, h } from "../dom.js";
import { answered } from "../feed.js";
import { goTo } from "../goto.js";
import { awaited, banner } from "../parts.js";
import { Player } from "../player.js";
import { PRESENTED, stopPresenting, togglePresent } from "../present.js";
import { keyHelp, listenToLesson } from "./keys.js";
import { Knobs, placesFor, stateAt } from "./knobs.js";
import { CourseNav } from "./nav.js";
import { LessonStage } from "./stage.js";
import { onward, paragraphs, question, spoken } from "./words.js";

const READ = { least: 3500, word: 260 }; // milliseconds that a step stays, and for each word
const HIGHEST = 9; // pixels below the top of the window, where they begin if all is not in sight
const LOWEST = 0.5; // of the window: where a step's words may begin

/** The course is fetched once, then it needs no server. */
export async function mount({ element, server }) {
  clear(element).append(h("div.ds-scope", awaited()));
  const course = await answered(server.course({}));
  if (!course.error) return new Learn(element, course, goTo);
  element.replaceChildren(banner(course.error));
}

export class Learn {
  /** goTo(detail): go to another tab; without it there is none. */
  constructor(element, course, goTo) {
    this.course = course;
    this.goTo = goTo;
    this.chapter = 0;
    this.step = 0;
    this.seen = new Set();
    this.answers = new Map();
    this.places = new Map(); // of the sliders of a step
    this.player = new Player({
      guide: () => this._played(),
      may: () => true,
      changed: (on) => this.nav.moves.playing(on),
      stays: () => Math.max(READ.least, READ.word * this.words.textContent.split(/\s+/).length),
    });
    this.stage = new LessonStage((row) => this._picked(row));
    this._build(element);
    listenToLesson(this, element);
    this.root.addEventListener(PRESENTED, ({ detail }) => this._presented(detail));
    this.address = new ViewInAddress("learn", this.root, {
      state: () => ({ learn: this.told }),
      show: (state) => this.follow((state?.learn ?? this.told).split(".").map(Number)),
    });
  }

  // ── the parts ──────────────────────────────────────────────────────────────────────────────

  _build(element) {
    this.nav = new CourseNav(this.course, {
      go: (chapter, step) => this.go(chapter, step),
      move: (by) => this.move(by),
      play: () => this.togglePlay(),
      present: () => this.present(),
      help: () => this.dialog.showModal(),
    });
    this.kicker = h("p.ds-kicker");
    this.title = h("h2.ds-lesson-title", { tabindex: -1 });
    this.words = h("div.ds-lesson-words");
    this.knobs = new Knobs({
      moved: (places) => this._moved(places),
      settled: () => this.address.write(),
    });
    this.text = h(
      "div.ds-lesson-text",
      this.kicker,
      this.title,
      this.words,
      this.knobs.element,
      h("span.ds-spring"),
      this.nav.controls,
    );
    this.said = h("p.ds-unseen", { id: "ds-lesson-said" });
    this.announce = h("div.ds-unseen", { "aria-live": "polite" });
    this.dialog = keyHelp();
    const about = { class: "ds-card ds-lesson", "aria-label": "Lesson" };
    this.root = h(
      "div.ds-scope.ds-learn",
      this.nav.element,
      h("section", about, this.text, this.stage.element),
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
    const { steps, quiz } = this.course.chapters[this.chapter];
    return steps[this.asking ? quiz.step : this.step];
  }

  get here() {
    return `${this.chapter}.${this.step}`;
  }

  get sliders() {
    return (!this.asking && this.shown.sliders) || [];
  }

  get stands() {
    return this.places.get(this.here) ?? placesFor(this.sliders);
  }

  /** The question on view: that of the chapter, or of a step that asks for a guess. */
  get asked() {
    return this.asking ? this.course.chapters[this.chapter].quiz : this.shown.ask;
  }

  /** The number of the answer to it; undefined: none was given yet. */
  get given() {
    return this.answers.get(this.here);
  }

  /** Whether a node is to be guessed. */
  get predicting() {
    return !this.asking && !!this.shown.ask && this.given === undefined;
  }

  /** What is drawn: the step, its state at the places of its sliders, or what a guess reveals. */
  get state() {
    const { ask } = this.shown;
    if (ask && !this.predicting && !this.asking) return { ...this.shown, trees: ask.trees };
    return this.sliders.length ? this.shown.states[stateAt(this.sliders, this.stands)] : this.shown;
  }

  /** Show what a link names: a chapter, a step, places of its sliders, from 1. */
  follow(named) {
    const [chapter, step, ...places] = named.map((at) => at - 1);
    this.go(chapter, step);
    if (places.length && this.sliders.length) this._moved(placesFor(this.sliders, places));
  }

  /** Show a step; what is out of range is brought into it. In a chapter that is entered all
   *  questions are open: another class may answer them. */
  go(chapter, step) {
    const to = Math.max(0, Math.min(this.course.chapters.length - 1, chapter));
    if (to !== this.chapter) this._ask(to);
    this.chapter = to;
    this.step = Math.max(0, Math.min(this.length(this.chapter) - 1, step));
    this.seen.add(this.here);
    this._draw();
    this.address?.write();
    this._reveal();
  }

  _ask(chapter) {
    for (const here of this.answers.keys())
      if (here.startsWith(`${chapter}.`)) this.answers.delete(here);
  }

  /** On a phone the page scrolls: a step begins with its words in sight. One that was walked to has
   *  them at the top, for as much of its figure as there is room. */
  _reveal(isWalked) {
    const { top, height } = this.kicker.getBoundingClientRect(),
      { bottom } = this.stage.element.getBoundingClientRect();
    const low = isWalked && bottom > window.innerHeight ? HIGHEST : window.innerHeight * LOWEST;
    if (height && (top < 0 || top > low)) this.kicker.scrollIntoView({ block: "start" });
  }

  move(by) {
    const to = this.step + by;
    const chapter = this.chapter + by;
    if (to >= 0 && to < this.length(this.chapter)) this.go(this.chapter, to);
    else if (chapter < 0 || chapter >= this.course.chapters.length) return this.pause();
    else this.go(chapter, by > 0 ? 0 : this.length(chapter) - 1);
    this._reveal(true);
  }

  get onView() {
    return this.root.getClientRects().length > 0;
  }

  get atEnd() {
    return this.chapter === this.course.chapters.length - 1 && this.asking;
  }

  /** Chapter, step and the places of its sliders, from 1, as the address has them. */
  get told() {
    const moved = this.places.get(this.here) ?? [];
    return [this.chapter, this.step, ...moved].map((at) => at + 1).join(".");
  }

  // ── drawing ────────────────────────────────────────────────────────────────────────────────

  _draw() {
    const { chapters } = this.course,
      { question: about, title } = chapters[this.chapter],
      { shown, asked, asking, given } = this,
      keys = asking ? "abc" : "123456789",
      held = this.words.contains(document.activeElement);
    this.kicker.textContent = `Chapter ${this.chapter + 1} of ${chapters.length} · ${about}`;
    this.title.textContent = title;
    this.words.replaceChildren(
      ...(asking ? [] : paragraphs(shown.text)),
      ...(asked ? question(asked, given, (at) => this.answer(at), keys) : []),
      ...this._onward(),
    );
    if (held) this.title.focus({ preventScroll: true }); // what had the focus is gone
    this._drawNav();
    this._drawState();
    this.said.textContent = shown.alt;
    const steps = this.length(this.chapter);
    const where = `Chapter ${this.chapter + 1}, step ${this.step + 1} of ${steps}.`;
    this.announce.textContent = `${where} ${spoken(this.words)} Figure: ${shown.alt}`;
  }

  /** From a chapter's first step and its question to its run. */
  _onward() {
    const run = (!this.asking && this.shown.run) || this.course.chapters[this.chapter].run;
    if (!run || (this.step && !this.asking)) return [];
    const chapter = this.chapter + 1;
    const isPresented = () => this.nav.large.getAttribute("aria-pressed") === "true";
    const open = async (own) => {
      const presented = isPresented();
      if (presented) await stopPresenting();
      this.goTo({ view: "run", filling: run.filling, chapter, own, presented });
    };
    return [onward(run, this.goTo && open)];
  }

  /** The figure, and the sliders with what they say. */
  _drawState() {
    const { sliders, stands, state } = this;
    this.knobs.draw(sliders, stands, sliders.length ? paragraphs(state.text) : []);
    this.stage.draw(this.course.trees, state, `learn ${this.chapter + 1}.${this.step + 1}`);
  }

  /** Sliders are moved. */
  _moved(places) {
    this.pause();
    this.places.set(this.here, places);
    this._drawState();
    this.said.textContent = `${this.shown.alt} ${this.state.alt}`;
  }

  _drawNav() {
    const lengths = this.course.chapters.map((_, at) => this.length(at)),
      seen = (chapter, step) => this.seen.has(`${chapter}.${step}`);
    this.nav.draw(this.chapter, this.step, lengths, seen);
  }

  answer(at) {
    if (!this.asked?.options[at]) return;
    this.pause();
    this.answers.set(this.here, at);
    this._draw();
    this.words.querySelectorAll(".ds-option")[at].focus();
    this.announce.textContent = this.words.querySelector(".ds-answer").textContent;
  }

  /** A person picks a node: it may be a guess, which it then returns. */
  _picked(row) {
    this.pause();
    const guess = this.predicting ? this.asked.options.findIndex((each) => each.row === row) : -1;
    if (guess >= 0) this.answer(guess);
    return guess >= 0;
  }

  node(by) {
    this.pause();
    this.stage.node(by);
  }

  fit() {
    this.stage.fit();
  }

  // ── playing and presenting ─────────────────────────────────────────────────────────────────

  /** How it is played: only while it is in sight, and a question waits for its answer. */
  _played() {
    const step = (by) => {
      this.move(by);
      if (this.asking || this.predicting) this.pause();
    };
    return { atEnd: !this.onView || this.atEnd, home: () => this.go(0, 0), step };
  }

  togglePlay() {
    this.player.toggle();
  }

  pause() {
    this.player.pause();
  }

  present() {
    togglePresent(this.root);
  }

  _presented(on) {
    this.nav.large.setAttribute("aria-pressed", String(on));
    this._drawNav(); // the list of chapters is another width now
  }
}
