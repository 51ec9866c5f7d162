// A block over time: positions across, steps down, a bracket for every model call.

import { h, percent, plural, s, words } from "../dom.js";
import { folding, menu } from "../parts.js";
import { pictureButtons } from "../save/buttons.js";
import { wideFor } from "../save/paper.js";
import { outOfSight, picture } from "../save/picture.js";
import { TYPE } from "../tree/camera.js";
import { blockOf } from "./steps.js";
import { saidOf } from "./words.js";

const LEAST = 260; // pixels of its width at the usual text size
const WIDE = 298; // the same where it is presented
const ROUND = 14; // pixels below it there
const HEAD = 26; // pixels of a grid without its rows
const DN_CELL = 7.2; // width of a monospace character in a chip

/** Of each of so many rows; `most`: pixels of the grid, where the screen sets them. */
function rowHeight(rows, most) {
  const fits = most ? Math.floor((most - HEAD) / rows) : Number.POSITIVE_INFINITY;
  return Math.max(15, Math.min(24, Math.round(344 / rows), fits));
}

export class BlockGrid {
  /** onPick(step) when a row is clicked. */
  constructor(onPick) {
    this.svg = s("svg.dn-grid", { role: "img" });
    this.element = h("div.dn-grid-box", this.svg);
    this.card = this._card();
    this.svg.addEventListener("click", (event) => {
      const row = event.target.closest("[data-step]");
      if (row) onPick(Number(row.getAttribute("data-step")));
    });
    new ResizeObserver(
      () => this.run && this.element.clientWidth !== this.drawnWidth && this._draw(),
    ).observe(this.element);
  }

  _card() {
    const name = () => `draftscope-block-${this.run.name.toLowerCase()}`,
      draw = () => this._picture(),
      save = menu("Save the grid", [pictureButtons("this grid", draw, name)]);
    this.save = save.querySelector("summary");
    this.heading = h("h2.ds-cut");
    this.note = h("p.dn-note");
    const about = { class: "ds-card dn-card", "aria-label": "The block over time" },
      head = h("header", this.heading, h("span.ds-spring"), save);
    return folding(h("section", about, head, this.note, this.element), head);
  }

  /** A run at a place of the text; undefined: there is none to show. */
  draw(run, place) {
    this.card.hidden = !run;
    if (!run) return this.clear();
    const at = Math.min(place, run.steps.length - 1),
      step = run.steps[at];
    const spent = `${plural(step.at + 1, "call")} for ${plural(at + 1, "step")}`;
    this.heading.replaceChildren(
      run.title,
      h("small", `${spent}${at < place ? " (no further)" : ""}`),
    );
    this.card.setAttribute("aria-label", `The block over time: ${run.title}`);
    this.save.setAttribute("aria-label", `Save the grid: ${run.title}`);
    const calls = run.drafts
      ? "Bracket: one model call; ✓: a call saved."
      : "Every step is one model call.";
    this.note.textContent = `Across: positions. Down: steps. ${calls}`;
    this.show(run, at);
  }

  /** The whole block, for a file: drawn as wide as that wants it. */
  _picture() {
    const other = new BlockGrid(() => {}),
      width = wideFor(this.element.clientWidth, LEAST);
    return outOfSight(this.element.parentNode, other.element, (host) => {
      host.style.width = `${width}px`;
      other.show(this.run, this.end - 1);
      other.svg.querySelector(".row.now").classList.remove("now");
      return picture(other.svg);
    });
  }

  /** The block around step `place`; rows after it are not revealed yet. */
  show(run, place) {
    const [first, end] = blockOf(run.steps, place);
    const key = `${first} ${end} ${run.steps[end - 1].at}`;
    const fresh = key !== this.key || run !== this.run;
    Object.assign(this, { run, place, first, end, key });
    if (fresh) this._draw();
    else this._reveal();
  }

  clear() {
    this.run = this.key = null;
    this.svg.replaceChildren();
  }

  _draw() {
    this.drawnWidth = this.element.clientWidth;
    const room = (this.drawnWidth || 500) - 20,
      rows = this.end - this.first,
      scale = Math.min(this._largest(rows), room / LEAST),
      width = room / scale,
      size = this.run.steps[this.first].size;
    const wide = width > 430 || this.presented;
    this.left = width > 430 ? 92 : this.presented ? 80 : 74;
    this.right = width - 40;
    this.column = (this.right - this.left) / size;
    const most = Number.parseFloat(getComputedStyle(this.svg).maxHeight) / scale;
    this.height = rowHeight(rows, most);
    const top = 20,
      tall = HEAD + rows * this.height;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${tall}`);
    this.svg.setAttribute("height", tall * scale);
    this.svg.replaceChildren(
      ...this._columns(size),
      words("head", width - 4, 12, "p", "end"),
      words("head", 4, 12, "call"),
      words("head", this.left - 8, 12, "step", "end"),
      ...this._calls(top, width, wide),
      ...this._rows(top, width, size),
    );
    this._reveal();
  }

  get presented() {
    return !!this.element.closest(".ds-presenting");
  }

  /** Presented, so many rows fill the window as far as their positions have room. */
  _largest(rows) {
    if (!this.presented) return TYPE;
    const high = window.innerHeight - this.element.getBoundingClientRect().top - ROUND,
      all = HEAD + rows * rowHeight(rows);
    return Math.max(TYPE, Math.min(high / all, (this.drawnWidth - 20) / WIDE));
  }

  _x(position) {
    return this.left + (position + 0.5) * this.column;
  }

  _columns(size) {
    const every = Math.max(1, Math.ceil(18 / this.column));
    return Array.from({ length: size }, (_, at) => at)
      .filter((at) => at % every === 0)
      .map((at) => words("head", this._x(at).toFixed(1), 12, at, "middle"));
  }

  /** A band and a bracket for every model call. */
  _calls(top, width, wide) {
    const made = [];
    for (let at = this.first; at < this.end; at++) {
      const step = this.run.steps[at];
      if (step.k) continue;
      let count = 1;
      while (at + count < this.end && this.run.steps[at + count].k) count++;
      const y = top + (at - this.first) * this.height,
        tall = count * this.height;
      const number = words("number", 4, y + Math.min(tall / 2 + 4, tall - 3), step.at + 1);
      if (count > 1 && wide) number.append(s("tspan.saves", ` ✓${count - 1}`));
      const saved = `${count} steps, ${plural(count - 1, "call")} saved`;
      made.push(
        s(
          "g",
          { class: `call${step.at % 2 ? " odd" : ""}`, "data-from": at },
          s("rect.band", { x: 0, y, width, height: tall }),
          s("path.edge", { d: `M0 ${y}H${width}` }),
          s("path.bracket", { d: count > 1 ? `M${this.left - 34} ${y + 3}h-5v${tall - 6}h5` : "" }),
          number,
          s("title", `call ${step.at + 1}: ${count > 1 ? saved : "one step"}`),
        ),
      );
    }
    return made;
  }

  _rows(top, width, size) {
    const came = Array(size).fill(null); // how each position came so far
    for (const [position] of this.run.calls[this.run.steps[this.first].at].known || [])
      came[position] = "known";
    return this.run.steps.slice(this.first, this.end).map((step, i) => {
      const at = this.first + i,
        y = top + i * this.height;
      const now = new Set(step.picks.map(([position]) => position));
      const threads = this._threads(came, y);
      now.forEach((position) => (came[position] = step.free ? "free" : "paid"));
      const dots = came
        .map((how, position) =>
          how ? "" : `M${this._x(position).toFixed(1)} ${y + this.height / 2}h0`,
        )
        .join("");
      const sure = Math.min(...step.picks.map((pick) => pick[3] ?? 0));
      const base = y + this.height / 2 + 4; // of its words
      return s(
        "g",
        { class: `row${step.free ? " free" : ""}`, "data-step": at },
        s("rect.hit", { x: 0, y, width, height: this.height }),
        words("number", this.left - 8, base, at + 1, "end"),
        s(
          "g.body",
          s("path.dots", { d: dots }),
          threads,
          this._chips(step, y),
          words("sure", width - 4, base, percent(sure), "end"),
        ),
      );
    });
  }

  /** Draw what is known already: a line down each column. */
  _threads(came, y) {
    return ["free", "paid", "known"].map((how) =>
      s("path", {
        class: `thread ${how}`,
        d: came
          .map((each, position) =>
            each === how ? `M${this._x(position).toFixed(1)} ${y}v${this.height}` : "",
          )
          .join(""),
      }),
    );
  }

  /** The tokens that a step unmasks; wider than their column where there is room. */
  _chips(step, y) {
    const picks = [...step.picks].sort((a, b) => a[0] - b[0]);
    const by = step.free ? "by an accepted draft" : "the call's own step";
    return picks.map(([position, label, , p], i) => {
      const x = this._x(position);
      const low = i ? (this._x(picks[i - 1][0]) + x) / 2 + 0.5 : this.left,
        high = i + 1 < picks.length ? (x + this._x(picks[i + 1][0])) / 2 - 0.5 : this.right;
      const wanted = Math.max(this.column - 1, Math.min(130, label.length * DN_CELL + 8)),
        width = Math.min(wanted, high - low);
      const left = Math.max(low, Math.min(x - width / 2, high - width)),
        room = Math.floor((width - 5) / DN_CELL);
      const text = label.length <= room ? label : room > 1 ? `${label.slice(0, room - 1)}…` : "";
      const tall = this.height - 3;
      return s(
        "g.chip",
        { transform: `translate(${left.toFixed(1)} ${y + 1.5})` },
        s("rect.box", { width: width.toFixed(1), height: tall, rx: 3.5 }),
        s("rect.bar", {
          x: 2,
          y: tall - 3.4,
          width: Math.max(0.5, (width - 4) * (p || 0)).toFixed(1),
          height: 2,
        }),
        words(null, (width / 2).toFixed(1), tall / 2 + 2, text, "middle"),
        s("title", `position ${position}: ${label}, p ${percent(p)}, ${by}`),
      );
    });
  }

  _reveal() {
    for (const row of this.svg.querySelectorAll(".row")) {
      const at = Number(row.getAttribute("data-step"));
      row.classList.toggle("later", at > this.place);
      row.classList.toggle("now", at === this.place);
    }
    for (const call of this.svg.querySelectorAll(".call"))
      call.classList.toggle("later", Number(call.getAttribute("data-from")) > this.place);
    const step = this.run.steps[this.place];
    this.svg.setAttribute(
      "aria-label",
      `Block ${step.block + 1} after step ${this.place + 1}: ${saidOf(step)}`,
    );
  }
}
