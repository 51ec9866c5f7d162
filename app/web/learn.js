// Learn: a guided course. Every tree in it is drawn by the one tree component (tree.js); what a step
// shows comes as plain data from app/learn. A step is a function of (chapter, step): nothing else.

import { button, clear, h } from "./dom.js";
import { BESIDE, companion, LessonTree } from "./learn-figures.js";

const LEARN_KEYS = [
  ["← →", "step before, step after"],
  ["PgUp PgDn", "the same, for clickers; with shift: chapter before, chapter after"],
  ["1 … 9 0", "chapter; 0 is the tenth"],
  ["Home End", "first, last step of the chapter"],
  ["Space", "play, pause"],
  ["p", "projector: large type, the whole window"],
  ["↑ ↓", "node above, node below; shift with ← → for parent and child"],
  ["f", "fit the tree"],
  ["a b c", "answer the question at a chapter's end"],
  ["Esc", "leave the projector"],
  ["?", "this help"],
];
const READ = { least: 3500, word: 260 }; // milliseconds a step stays when playing
const LEARN_HASH = /(?:^#|&)learn=(\d{1,2})\.(\d{1,2})(?=&|$)/;

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
    this.go(...(this._linked() || [0, 0]));
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
    this.list = h(
      "ol",
      { class: "ds-chapters" },
      this.course.chapters.map((chapter, at) => {
        const entry = button("", { class: "ds-chapter" }, () => this.go(at, 0));
        entry.append(h("i", {}, String(at + 1)), h("span", {}, chapter.name));
        return h("li", {}, entry);
      }),
    );
    this.kicker = h("p", { class: "ds-kicker" });
    this.title = h("h2", { class: "ds-lesson-title" });
    this.words = h("div", { class: "ds-lesson-words" });
    this.back = button("‹", { "aria-label": "Step before", title: "Step before (←)" }, () =>
      this.move(-1),
    );
    this.play = button("▶", { "aria-label": "Play", title: "Play (space)" }, () =>
      this.togglePlay(),
    );
    this.next = button("›", { "aria-label": "Step after", title: "Step after (→)" }, () =>
      this.move(1),
    );
    this.dots = h("span", {
      class: "ds-dots",
      role: "group",
      "aria-label": "Steps of this chapter",
    });
    this.count = h("span", { class: "ds-soft ds-count" });
    this.large = button(
      "Aa",
      { "aria-label": "Projector", "aria-pressed": "false", title: "Projector: large type (p)" },
      () => this.project(),
    );
    const help = button("?", { "aria-label": "Keys", title: "Keys (?)" }, () =>
      this.dialog.showModal(),
    );
    this.controls = h(
      "div",
      { class: "ds-lesson-controls" },
      this.dots,
      this.back,
      this.play,
      this.next,
      this.count,
      h("span", { class: "ds-spring" }),
      this.large,
      help,
    );
    this.text = h(
      "div",
      { class: "ds-lesson-text" },
      this.kicker,
      this.title,
      this.words,
      h("span", { class: "ds-spring" }),
      this.controls,
    );
    this.side = h("div", { class: "ds-lesson-side" });
    this.note = h("p", { class: "ds-lesson-note", "aria-live": "polite" });
    this.stage = h(
      "div",
      { class: "ds-lesson-trees" },
      this.trees.map((tree) => tree.frameBox),
    );
    this.said = h("p", { class: "ds-unseen", id: "ds-lesson-said" });
    this.figure = h(
      "div",
      {
        class: "ds-lesson-figure",
        role: "group",
        "aria-label": "Figure",
        "aria-describedby": "ds-lesson-said",
      },
      this.stage,
      this.side,
      this.note,
    );
    this.announce = h("div", { class: "ds-unseen", "aria-live": "polite" });
    this.root = h(
      "div",
      { class: "ds-scope ds-learn" },
      h("nav", { class: "ds-card ds-learn-nav", "aria-label": "Chapters" }, this.list),
      h("section", { class: "ds-card ds-lesson", "aria-label": "Lesson" }, this.text, this.figure),
      this.said,
      this.announce,
      this._help(),
    );
    clear(element).append(this.root);
  }

  _help() {
    const rows = LEARN_KEYS.map(([key, what]) =>
      h("div", {}, h("dt", {}, ...key.split(" ").map((k) => h("kbd", {}, k))), h("dd", {}, what)),
    );
    this.dialog = h(
      "dialog",
      { class: "ds-help", "aria-label": "Keys" },
      h("h3", {}, "Keys"),
      h("dl", {}, rows),
      button("Close", { class: "ds-button" }, () => this.dialog.close()),
    );
    this.dialog.addEventListener(
      "click",
      (event) => event.target === this.dialog && this.dialog.close(),
    );
    return this.dialog;
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
    this._remember();
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

  _linked() {
    const found = LEARN_HASH.exec(window.location.hash);
    return found && [Number(found[1]) - 1, Number(found[2]) - 1];
  }

  /** The address names the step, as long as the course is on view. */
  _remember() {
    const shown = this.root.getClientRects().length,
      hash = shown ? `#learn=${this.chapter + 1}.${this.step + 1}` : "";
    if (window.location.hash === hash || (!shown && !this._linked())) return;
    const { pathname, search } = window.location;
    try {
      window.history.replaceState(null, "", hash || pathname + search);
    } catch {
      // a sandboxed frame has no address of its own
    }
  }

  // ── drawing ────────────────────────────────────────────────────────────────────────────────

  _draw() {
    const chapter = this.course.chapters[this.chapter],
      shown = this.shown;
    this.kicker.textContent = `Chapter ${this.chapter + 1} of ${this.course.chapters.length} · ${chapter.question}`;
    this.title.textContent = chapter.title;
    this.words.replaceChildren(
      ...(this.asking
        ? this._quiz(chapter.quiz)
        : shown.text.map((spans) => h("p", {}, spans.map(spanOf)))),
    );
    this._steps();
    this._figure(shown);
    this.said.textContent = shown.alt;
    this.announce.textContent = `Chapter ${this.chapter + 1}, step ${this.step + 1} of ${this.length(this.chapter)}. ${this.words.textContent} Figure: ${shown.alt}`;
  }

  _steps() {
    const count = this.length(this.chapter);
    this.dots.replaceChildren(
      ...Array.from({ length: count }, (_, at) =>
        button(
          "",
          {
            class:
              "ds-dot" +
              (at === count - 1 ? " question" : "") +
              (this.seen.has(`${this.chapter}.${at}`) ? " seen" : ""),
            "aria-label": at === count - 1 ? "Question" : `Step ${at + 1}`,
            "aria-current": at === this.step ? "step" : null,
          },
          () => this.go(this.chapter, at),
        ),
      ),
    );
    this.count.textContent = `${this.step + 1} / ${count}`;
    [...this.list.children].forEach((item, at) => {
      const total = this.length(at),
        seen = Array.from({ length: total }, (_, i) => this.seen.has(`${at}.${i}`)).filter(
          Boolean,
        ).length;
      const entry = item.firstChild;
      entry.setAttribute("aria-current", at === this.chapter ? "true" : "false");
      entry.classList.toggle("done", seen === total);
      entry.title = `${this.course.chapters[at].title}: ${seen} of ${total} steps seen`;
      entry.style.setProperty("--seen", `${(100 * seen) / total}%`);
    });
    const current = this.list.children[this.chapter];
    this.list.scrollLeft = Math.max(
      0,
      current.offsetLeft - this.list.clientWidth / 2 + current.offsetWidth / 2,
    );
    this.back.disabled = this.chapter === 0 && this.step === 0;
    this.next.disabled = this.atEnd;
  }

  _figure(shown) {
    this.note.textContent = "";
    this.figure.classList.toggle("beside", !!shown.side && BESIDE.includes(shown.side.kind));
    this.figure.classList.toggle("wide", !!shown.side && shown.side.kind === "mask");
    this.figure.classList.toggle("two", shown.trees.length > 1);
    this.figure.classList.toggle("alone", !shown.trees.length);
    this.stage.hidden = !shown.trees.length;
    this.side.hidden = !shown.side;
    this.side.replaceChildren(
      ...(shown.side ? [companion(shown.side, { point: (row) => this._point(row) })] : []),
    );
    this.trees.forEach((tree, at) => {
      const spec = shown.trees[at];
      tree.frameBox.hidden = !spec;
      if (spec) tree.draw(this.course.trees[spec.name], spec);
    });
  }

  _quiz(quiz) {
    const given = this.answers.get(this.chapter);
    const options = quiz.options.map((option, at) => {
      const state =
        given === at
          ? at === quiz.answer
            ? " right"
            : " wrong"
          : given !== undefined && at === quiz.answer
            ? " right"
            : "";
      const made = button(
        "",
        { class: `ds-option${state}`, "aria-pressed": String(given === at) },
        () => this.answer(at),
      );
      made.append(
        h("kbd", {}, "abc"[at]),
        h("span", {}, option.label),
        h(
          "span",
          { class: "sign", "aria-hidden": "true" },
          state === " right" ? "✓" : state === " wrong" ? "×" : "",
        ),
      );
      return made;
    });
    const why =
      given === undefined
        ? []
        : [h("p", { class: "ds-answer", role: "status" }, quiz.options[given].why)];
    return [
      h("p", { class: "ds-question" }, quiz.question),
      h("div", { class: "ds-options" }, options),
      ...why,
    ];
  }

  answer(at) {
    const quiz = this.course.chapters[this.chapter].quiz;
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

  _node(by) {
    const tree = this.trees[0];
    if (tree.round && !tree.frameBox.hidden) this._picked(tree, tree.own(tree.neighbour(by)));
  }

  // ── playing ────────────────────────────────────────────────────────────────────────────────

  togglePlay() {
    if (this.playing) return this.pause();
    if (this.atEnd) this.go(0, 0);
    this.play.textContent = "❚❚";
    this.play.setAttribute("aria-label", "Pause");
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
    this.play.textContent = "▶";
    this.play.setAttribute("aria-label", "Play");
  }

  project() {
    const on = this.root.classList.toggle("large");
    this.large.setAttribute("aria-pressed", String(on));
    document.documentElement.classList.toggle("ds-projecting", on);
    this._steps(); // the list of chapters is another width now
  }

  // ── keys ───────────────────────────────────────────────────────────────────────────────────

  _listen(element) {
    this.onKey = (event) => {
      if (!element.isConnected) return document.removeEventListener("keydown", this.onKey);
      if (!element.getClientRects().length || event.defaultPrevented || this._typing(event)) return;
      this._key(event);
    };
    document.addEventListener("keydown", this.onKey);
    this.onHash = () => {
      if (!element.isConnected) return window.removeEventListener("hashchange", this.onHash);
      const linked = this._linked();
      if (linked) this.go(...linked);
    };
    window.addEventListener("hashchange", this.onHash);
    new IntersectionObserver(() => this._remember()).observe(this.root);
    let x = null;
    this.text.addEventListener("touchstart", (event) => (x = event.touches[0].clientX), {
      passive: true,
    });
    this.text.addEventListener("touchend", (event) => {
      const by = x === null ? 0 : event.changedTouches[0].clientX - x;
      if (Math.abs(by) > 60) this.move(by < 0 ? 1 : -1);
      x = null;
    });
  }

  _typing(event) {
    if (this.dialog.open || event.ctrlKey || event.metaKey || event.altKey) return true;
    const tag = event.target.tagName;
    return (
      tag === "INPUT" ||
      tag === "TEXTAREA" ||
      tag === "SELECT" ||
      (tag === "BUTTON" && (event.key === " " || event.key === "Enter"))
    );
  }

  _key(event) {
    const step = (by) => (this.pause(), this.move(by));
    const page = (by) =>
      event.shiftKey ? (this.pause(), this.go(this.chapter + by, 0)) : step(by); // clickers send these
    const acts = {
      ArrowLeft: () => (event.shiftKey ? this._node("parent") : step(-1)),
      ArrowRight: () => (event.shiftKey ? this._node("child") : step(1)),
      ArrowUp: () => this._node("up"),
      ArrowDown: () => this._node("down"),
      PageUp: () => page(-1),
      PageDown: () => page(1),
      Home: () => this.go(this.chapter, 0),
      End: () => this.go(this.chapter, this.length(this.chapter) - 1),
      " ": () => this.togglePlay(),
      p: () => this.project(),
      f: () => this.trees.forEach((tree) => !tree.frameBox.hidden && tree.fit()),
      "?": () => this.dialog.showModal(),
      Escape: () => this.root.classList.contains("large") && this.project(),
      a: () => this.answer(0),
      b: () => this.answer(1),
      c: () => this.answer(2),
    };
    const act =
      acts[event.key] ||
      (/^[0-9]$/.test(event.key) &&
        (() => (this.pause(), this.go((Number(event.key) || 10) - 1, 0))));
    if (!act) return;
    event.preventDefault();
    act();
  }
}

/** A span of text: a string, or a term, a token, a number. */
function spanOf(span) {
  if (typeof span === "string") return span;
  const [kind, words] = Object.entries(span)[0];
  return h({ term: "em", token: "code", num: "b" }[kind], { class: `ds-said ${kind}` }, words);
}
