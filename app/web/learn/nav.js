// Where the course stands: the chapters, the steps of one as dots, and the buttons between them.

import { button, h, tool } from "../dom.js";
import { toolbar } from "../roving.js";
import { Transport } from "../transport.js";

export class CourseNav {
  /** hear: {go(chapter, step), move(by), play(), present(), help()}. */
  constructor(course, hear) {
    this.course = course;
    this.hear = hear;
    const chapters = course.chapters.map((chapter, at) => {
      const words = [h("i", String(at + 1)), h("span", chapter.name)],
        entry = button(words, { class: "ds-chapter" }, () => hear.go(at, 0));
      return h("li", { role: "none" }, entry);
    });
    this.list = toolbar("Chapters", h("ol.ds-chapters", chapters));
    this.moves = new Transport("Step", { step: (by) => hear.move(by), play: () => hear.play() });
    const { back, play, next } = this.moves;
    this.dots = h("span.ds-dots", { role: "group", "aria-label": "Steps of this chapter" });
    this.count = h("span.ds-soft.ds-count");
    const large = { "aria-pressed": "false", title: "Large type, the whole screen (p)" };
    this.large = button("Present", large, () => hear.present());
    this.element = h("nav.ds-card.ds-learn-nav", { "aria-label": "Course" }, this.list);
    const keys = tool("?", "Keys", () => hear.help(), "?");
    const parts = [
      this.dots,
      back,
      play,
      next,
      this.count,
      h("span.ds-spring"),
      h("span.ds-row.ds-together", this.large, keys), // in one line
    ];
    this.controls = toolbar("Steps", h("div.ds-lesson-controls.ds-row", parts));
  }

  /** lengths: steps of each chapter; seen(chapter, step): whether somebody was there. */
  draw(chapter, step, lengths, seen) {
    const count = lengths[chapter];
    this.chapter = chapter;
    this._dots(count, step, (at) => seen(chapter, at));
    this.count.textContent = `${step + 1} / ${count}`;
    lengths.forEach((total, at) => this._chapter(at, at === chapter, total, seen));
    this.moves.back.disabled = chapter === 0 && step === 0;
    this.moves.next.disabled = chapter === lengths.length - 1 && step === count - 1;
  }

  /** A dot for each step. Those that are there stay: one of them may have the focus. */
  _dots(count, step, seen) {
    const { children } = this.dots;
    while (children.length > count) this.dots.lastChild.remove();
    while (children.length < count) {
      const at = children.length;
      this.dots.append(button("", {}, () => this.hear.go(this.chapter, at)));
    }
    [...children].forEach((dot, at) => {
      const last = at === count - 1;
      dot.className = `ds-dot${last ? " question" : ""}${seen(at) ? " seen" : ""}`;
      dot.setAttribute("aria-label", last ? "Question" : `Step ${at + 1}`);
      dot.setAttribute("aria-current", at === step ? "step" : "false");
    });
  }

  _chapter(at, current, total, seen) {
    const entry = this.list.children[at].firstChild,
      done = Array.from({ length: total }, (_, i) => seen(at, i)).filter(Boolean).length;
    entry.setAttribute("aria-current", String(current));
    entry.classList.toggle("done", done === total);
    entry.title = `${this.course.chapters[at].title}: ${done} of ${total} steps seen`;
    entry.style.setProperty("--seen", `${(100 * done) / total}%`);
  }
}
