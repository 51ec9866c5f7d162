// Learn: a guided course. Every tree in it is drawn by the one tree component (tree.js); what a step
// shows comes as plain data from app/learn. A step is a function of (chapter, step): nothing else.

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

const READABLE = 0.62, LARGEST = 1.9; // how small and how large a tree is drawn

// ── the tree in a lesson ─────────────────────────────────────────────────────────────────────────

/** Some rows of a round, at the places they have in the whole tree. */
function subtree(full, spec) {
  const rows = spec.rows || full.y.map((_, row) => row), at = new Map(rows.map((row, i) => [row, i]));
  const take = (list) => list && rows.map((row) => list[row]);
  const ghost = full.ghost && !spec.rows ? full.ghost : undefined;
  return {
    ...full, rows, ghost, whole: full,
    parents: rows.map((row) => at.get(full.parents[row]) ?? -1),
    depths: take(full.depths), y: take(full.y), tokens: take(full.tokens), q: take(full.q), p: take(full.p),
    signs: take(full.signs), status: take([...full.status]).join(""),
    path: full.path.filter((row) => at.has(row)).map((row) => at.get(row)),
    sources: full.sources && rows.map((row) => full.sources[row].filter((from) => at.has(from)).map((from) => at.get(from))),
    marks: Object.fromEntries(Object.entries(spec.marks).map(([row, mark]) => [Number(row) < 0 ? row : at.get(Number(row)), mark])),
    notes: spec.labels ? rows.map((row) => spec.labels[row] || "") : take(full.words),
    tvd: [],
  };
}

class LessonTree extends TreeView {
  /** hear: {picked(row), pointed(row or null)}, rows of the whole tree. */
  constructor(name, hear) {
    super(name, (row) => hear.picked(this.own(row)));
    this.hear = hear;
    this.title = h("p", { class: "ds-lesson-name" });
    this.tools = h("span", { class: "ds-plot-tools ds-lesson-tools" }, pictureButtons("this tree", () => picture(this.svg), () => fileName(name + (this.spec.title ? " " + this.spec.title : "")), "ds-small"));
    this.frameBox = h("div", { class: "ds-lesson-tree" }, this.element, this.title, this.tools);
    this.svg.addEventListener("pointerleave", () => hear.pointed(null));
    new ResizeObserver(() => this.round && this.settle()).observe(this.svg);
  }

  /** The row of the whole tree that a row shown is, and back. */
  own(row) {
    return row < 0 ? row : this.round.rows[row];
  }

  shownAs(row) {
    return row < 0 ? row : this.round.rows.indexOf(row);
  }

  draw(full, spec) {
    this.spec = spec;
    this.svg.classList.toggle("untold", !!full.untold);
    this.title.textContent = spec.title;
    this.show(subtree(full, spec), false);
    this.settle();
  }

  /** Frame it anew, as the step wants it. */
  settle() {
    this.frame();
    const row = this.spec.select === null ? -2 : this.shownAs(this.spec.select);
    if (this.has(row)) this.select(row);
  }

  /** The whole of it when that can be read, larger than life where there is room. */
  frame() {
    const [w, hgt] = this._size(), pad = 22;
    const whole = Math.min((w - 2 * pad) / this.width, (hgt - 2 * pad - 8) / this.height);
    if (whole < READABLE) return super.frame(false);
    const k = Math.min(whole, LARGEST);
    this.view = { k, kx: k, x: (w - this.width * k) / 2, y: 10 + (hgt - this.height * k) / 2 };
    this._apply();
  }

  _measure() {
    const whole = this.round.whole, right = whole.ghost ? whole.depths[whole.ghost.parent] + 1 : 0;
    this.width = Math.max(...whole.depths, right) * STEP_X + BOX_W;
    this.height = Math.max(...whole.y, whole.ghost ? whole.ghost.y : 0) * STEP_Y + BOX_H;
  }

  _node(row) {
    const node = super._node(row), { untold, notes, marks } = this.round;
    if (untold) {
      if (row) node.classList.replace("unreached", "drafted");
      const text = node.querySelector(".token"), label = this.label(row);
      if (row) text.textContent = this.round.short[this.round.tokens[row]] || label;
      node.setAttribute("aria-label", this.words(row));
    }
    if (notes) this._note(node, notes[row]);
    if (marks[row]) node.classList.add("mark-" + marks[row]);
    return node;
  }

  _ghostNode() {
    const node = super._ghostNode();
    if (this.round.marks[GHOST]) node.classList.add("mark-" + this.round.marks[GHOST]);
    return node;
  }

  /** Of all pathways of a graph those that were taken, if a walk is shown. */
  _ways(row) {
    const { marks, sources } = this.round, all = super._ways(row);
    const taken = sources ? all.filter((edge) => edge.every((at) => marks[at] === "chosen")) : [];
    return taken.length ? taken : all;
  }

  /** Words in place of numbers and bars. */
  _note(node, words) {
    node.querySelectorAll(".odds, .bar").forEach((part) => part.remove());
    node.querySelector(".token").setAttribute("y", words ? 17 : 24);
    if (words) node.append(s("text", { class: "odds note", x: 8, y: 32 }, words));
  }

  /** A node before the target has spoken. */
  words(row) {
    const { notes, q } = this.round, label = this.label(row);
    if (notes) return `${label}${notes[row] ? ", " + notes[row] : ""}`;
    return row ? `${label}, drafted, q ${percent(q[row])}` : `${label}, root`;
  }

  _hover(event) {
    super._hover(event);
    const row = this._rowAt(event);
    if (row !== null && row >= 0 && this.round.untold) this.tip.replaceChildren(h("b", {}, this.label(row)), h("span", {}, this.words(row)));
    this.hear.pointed(row === null ? null : this.own(row));
  }
}

// ── what stands beside the tree ──────────────────────────────────────────────────────────────────

const SIGNS = { chosen: "◆", hot: "▪", new: "+" };
const BESIDE = ["queue", "mask", "terms", "weights"]; // others stand below the tree

/** The companion of a step; `link` = {point(row)} shows a row in the tree. */
function companion(side, link) {
  const made = { lanes, race, columns: columnsOf, queue, mask: matrix, noise: noiseOf, cache, terms, weights, block, plots }[side.kind](side, link);
  return h("div", { class: `ds-side-figure ${side.kind}` }, made);
}

function track(odds, mark) {
  const fill = h("i", { class: "fill" });
  fill.style.width = `${Math.max(1, 100 * Math.min(1, odds || 0))}%`;
  return h("span", { class: "track " + mark, "aria-hidden": "true" }, fill);
}

/** Tokens with bars: the lists of depths, p after a node, child orders. */
function columnsOf(side) {
  const lists = side.lists.map((list) => h("section", { class: "ds-list" }, h("h4", {}, list.title),
    h("ol", {}, list.items.map((item) => h("li", { class: item.mark }, h("span", { class: "label" }, item.label),
      track(item.odds, item.mark), h("span", { class: "odds" }, percent(item.odds)), h("span", { class: "sign" }, SIGNS[item.mark] || "")))),
    list.note ? h("p", { class: "ds-soft" }, list.note) : null));
  const product = side.product.length ? [h("p", { class: "ds-product" }, ...side.product.slice(0, -1).map((part) => part + " "), h("b", {}, side.product.at(-1)))] : [];
  return [h("div", { class: "ds-lists" }, lists), ...product];
}

function queue(side, link) {
  const entry = (item, extra) => {
    const row = h("li", { class: `${item.mark} ${extra}` }, h("span", { class: "sign" }, extra ? "→" : SIGNS[item.mark] || ""),
      h("span", { class: "label" }, item.label), h("span", { class: "odds" }, tiny(item.odds)), track(item.odds, item.mark));
    row.addEventListener("pointerenter", () => link.point(item.row));
    return row;
  };
  return [h("h4", {}, "taken now"), h("ol", { class: "ds-queue taken" }, side.popped ? entry(side.popped, "popped") : h("li", { class: "ds-soft" }, "nothing")),
    h("h4", {}, `waiting, best first (${side.items.length})`), h("ol", { class: "ds-queue" }, side.items.map((item) => entry(item, "")))];
}

/** The mask as a grid; a row pointed at is shown in the tree. */
function matrix(side, link) {
  const n = side.labels.length, left = 5.6, numbers = 1.3, size = n + left;
  const grid = s("svg", { class: "ds-mask", viewBox: `0 0 ${size + 0.2} ${n + 1.4}`, role: "img", "aria-hidden": "true" });
  side.labels.forEach((label, row) => {
    const line = s("g", { class: "line" + (row === side.row ? " here" : row === side.parent ? " parent" : ""), "data-row": row });
    line.append(s("rect", { class: "band", x: 0, y: row + 1.2, width: size, height: 1 }),
      s("text", { class: "number", x: numbers, y: row + 1.9, "text-anchor": "end" }, String(side.positions[row] ?? row)),
      s("text", { x: left - 0.4, y: row + 1.9, "text-anchor": "end" }, label));
    for (let column = 0; column < n; column++) {
      const cell = (side.rows[row] || "")[column], lost = row === side.row && side.lost.includes(column);
      const kind = cell === undefined ? "blank" : cell === "0" ? "no" : lost ? "lost" : column === row ? "self" : "yes";
      line.append(s("rect", { class: "cell " + kind, x: left + column + 0.06, y: row + 1.26, width: 0.88, height: 0.88, rx: 0.14 }));
      if (kind === "lost") line.append(s("path", { class: "cross", d: `M${left + column + 0.28} ${row + 1.48}l.44 .44m0 -.44l-.44 .44` }));
    }
    line.addEventListener("pointerenter", () => link.point(row));
    grid.append(line);
  });
  for (let column = 0; column < n; column++) grid.append(s("text", { class: "head", x: left + column + 0.5, y: 0.8, "text-anchor": "middle" }, String(column)));
  const key = side.tree ? "■ may see   ▣ itself   □ may not" : side.lost.length ? "■ may see   × must not" : "one row, one column per token";
  const words = h("p", { class: "ds-soft" }, (side.positions.length ? "position id and token · " : "row and token · ") + key);
  return [grid, words, h("span", { class: "ds-plot-tools" }, pictureButtons("this mask", () => picture(grid), () => fileName("attention mask"), "ds-small"))];
}

/** Plain passes above, rounds below. */
function lanes(side) {
  const row = (name, groups, count) => h("div", { class: "ds-lane" }, h("b", {}, name),
    h("span", { class: "ds-boxes" }, groups.map((group) => h("span", { class: "ds-pass" }, group.map((piece, i) => h("span", { class: i === group.length - 1 ? "bonus" : "free" }, piece))))),
    h("span", { class: "ds-soft" }, plural(count, count === 1 ? "pass" : "passes").replace("passess", "passes")));
  return [row("plain", side.plain.map((piece) => [piece]), side.plain.length),
    ...(side.rounds.length ? [row("rounds", side.rounds, side.rounds.length)] : [])];
}

function race(side) {
  return side.rows.map((row) => h("div", { class: "ds-lane" }, h("b", {}, row.name),
    h("span", { class: "ds-boxes" }, row.groups.map((group) => h("span", { class: "ds-pass" }, group.map((piece, i) => h("span", { class: i === group.length - 1 ? "bonus" : "free" }, piece))))),
    h("span", { class: "ds-soft" }, `${row.count} rounds`)));
}

/** log p + g per token, for some seeds. */
function noiseOf(side) {
  const tables = side.lists.map((list) => h("table", {}, h("caption", {}, list.title),
    h("thead", {}, h("tr", {}, ["", "log p", "g", "sum"].map((name) => h("th", {}, name)))),
    h("tbody", {}, list.rows.map((row) => h("tr", { class: row.mark }, h("th", {}, row.label), ...row.terms.map((value) => h("td", {}, signed2(value))),
      h("td", { class: "sum" }, signed2(row.sum) + (row.mark === "chosen" ? " ◆" : "")))))));
  return [h("div", { class: "ds-lists" }, tables), h("p", { class: "ds-soft" }, side.note)];
}

function signed2(value) {
  return (value < 0 ? "−" : "") + Math.abs(value).toFixed(2);
}

/** Rows of the KV cache: the prompt's, what the pass wrote, and what stays. */
function cache(side, link) {
  const cell = (item) => {
    const made = h("span", { class: "ds-cell " + item.mark }, h("small", {}, String(item.row)), h("b", {}, item.label));
    made.addEventListener("pointerenter", () => item.tree >= 0 && link.point(item.tree));
    return made;
  };
  const prompt = () => h("span", { class: "ds-cell prompt" }, h("small", {}, `0–${side.prompt - 1}`), h("b", {}, "the prompt"));
  const moved = side.moves.filter(([from, to]) => from !== to).map(([from, to]) => `row ${side.prompt + from} → row ${side.prompt + to}`);
  return [
    h("div", { class: "ds-cache" }, h("h4", {}, side.after.length ? "after the pass" : "cache"), h("div", { class: "ds-cells" }, prompt(), side.cells.map(cell))),
    ...(moved.length ? [h("p", { class: "ds-product" }, "↓ copy ", h("b", {}, moved.join(", ")))] : []),
    ...(side.after.length ? [h("div", { class: "ds-cache" }, h("h4", {}, "what stays"), h("div", { class: "ds-cells" }, prompt(), side.after.map(cell)))] : []),
  ];
}

/** Scores as stacked bars, left of 0: the parent's part, the drafter's term, the n-gram term. */
function terms(side, link) {
  const sum = (item) => (side.above ? item.above : 0) + item.q + item.ngram;
  const longest = Math.max(...side.items.map((item) => -sum(item)), 0.1);
  const rows = side.items.map((item) => {
    const parts = [["above", side.above ? item.above : 0], ["q", item.q], ["ngram", item.ngram]].filter(([, value]) => value);
    const bar = h("span", { class: "ds-stack", "aria-hidden": "true" }, parts.map(([name, value]) => {
      const part = h("i", { class: "part " + name, title: `${TERM_WORDS[name]} ${signed2(value)}` });
      part.style.width = `${(100 * Math.abs(value)) / longest}%`;
      return part;
    }));
    const row = h("li", {}, h("span", { class: "label" }, item.label), bar, h("span", { class: "odds" }, signed2(sum(item))));
    row.addEventListener("pointerenter", () => link.point(item.row));
    return row;
  });
  const key = ["above", "q", "ngram"].filter((name) => (name !== "above" || side.above) && (name !== "ngram" || side.ngram));
  return [h("h4", {}, "score: shorter is better"), h("ol", { class: "ds-terms" }, rows),
    h("p", { class: "ds-soft ds-part-key" }, key.map((name) => h("span", { class: "entry" }, h("i", { class: "part " + name }), TERM_WORDS[name])))];
}

const TERM_WORDS = { above: "the parent's score", q: "drafter's term", ngram: "n-gram term" };

function weights(side) {
  const head = h("tr", {}, ["", "drafter's term", "n-gram term"].map((name) => h("th", {}, name)));
  const rows = side.rows.map((row) => h("tr", {}, h("th", {}, row.label), h("td", {}, track(row.q, "hot"), row.q.toFixed(2)), h("td", {}, track(row.ngram, "new"), row.ngram.toFixed(2))));
  return [h("table", {}, h("caption", {}, "what a term counts"), h("thead", {}, head), h("tbody", {}, rows))];
}

/** Figures of measurements, which can be read as tables and saved. */
function plots(side) {
  return side.figures.map((each) => {
    const figure = new Figure(each);
    figure.lines(each.series, each.range, each.extras);
    return figure.element;
  });
}

/** A block of a diffusion model: text, masks, and what stands to choose at each. */
function block(side) {
  const cells = side.cells.map((cell) => h("div", { class: "ds-blank" + (cell.filled ? " filled" : "") },
    h("b", {}, cell.filled || "▒▒▒"),
    ...(side.ranks ? [h("small", {}, `i = ${cell.i}`), h("ol", {}, cell.guesses.map((guess) => h("li", {}, h("span", { class: "label" }, `${guess.name} ${guess.token}`), track(guess.odds, "seen"), h("span", { class: "odds" }, percent(guess.odds)))))] : [])));
  return [h("div", { class: "ds-block" }, h("span", { class: "ds-block-text" }, side.text), cells)];
}

// ── the course ───────────────────────────────────────────────────────────────────────────────────

class Learn {
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
    this.list = h("ol", { class: "ds-chapters" }, this.course.chapters.map((chapter, at) => {
      const entry = button("", { class: "ds-chapter" }, () => this.go(at, 0));
      entry.append(h("i", {}, String(at + 1)), h("span", {}, chapter.name));
      return h("li", {}, entry);
    }));
    this.kicker = h("p", { class: "ds-kicker" });
    this.title = h("h2", { class: "ds-lesson-title" });
    this.words = h("div", { class: "ds-lesson-words" });
    this.back = button("‹", { "aria-label": "Step before", title: "Step before (←)" }, () => this.move(-1));
    this.play = button("▶", { "aria-label": "Play", title: "Play (space)" }, () => this.togglePlay());
    this.next = button("›", { "aria-label": "Step after", title: "Step after (→)" }, () => this.move(1));
    this.dots = h("span", { class: "ds-dots", role: "group", "aria-label": "Steps of this chapter" });
    this.count = h("span", { class: "ds-soft ds-count" });
    this.large = button("Aa", { "aria-label": "Projector", "aria-pressed": "false", title: "Projector: large type (p)" }, () => this.project());
    const help = button("?", { "aria-label": "Keys", title: "Keys (?)" }, () => this.dialog.showModal());
    this.controls = h("div", { class: "ds-lesson-controls" }, this.dots, this.back, this.play, this.next, this.count, h("span", { class: "ds-spring" }), this.large, help);
    this.text = h("div", { class: "ds-lesson-text" }, this.kicker, this.title, this.words, h("span", { class: "ds-spring" }), this.controls);
    this.side = h("div", { class: "ds-lesson-side" });
    this.note = h("p", { class: "ds-lesson-note", "aria-live": "polite" });
    this.stage = h("div", { class: "ds-lesson-trees" }, this.trees.map((tree) => tree.frameBox));
    this.said = h("p", { class: "ds-unseen", id: "ds-lesson-said" });
    this.figure = h("div", { class: "ds-lesson-figure", role: "group", "aria-label": "Figure", "aria-describedby": "ds-lesson-said" }, this.stage, this.side, this.note);
    this.announce = h("div", { class: "ds-unseen", "aria-live": "polite" });
    this.root = h("div", { class: "ds-scope ds-learn" },
      h("nav", { class: "ds-card ds-learn-nav", "aria-label": "Chapters" }, this.list),
      h("section", { class: "ds-card ds-lesson", "aria-label": "Lesson" }, this.text, this.figure), this.said, this.announce, this._help());
    clear(element).append(this.root);
  }

  _help() {
    const rows = LEARN_KEYS.map(([key, what]) => h("div", {}, h("dt", {}, ...key.split(" ").map((k) => h("kbd", {}, k))), h("dd", {}, what)));
    this.dialog = h("dialog", { class: "ds-help", "aria-label": "Keys" }, h("h3", {}, "Keys"), h("dl", {}, rows), button("Close", { class: "ds-button" }, () => this.dialog.close()));
    this.dialog.addEventListener("click", (event) => event.target === this.dialog && this.dialog.close());
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
    const shown = this.root.getClientRects().length, hash = shown ? `#learn=${this.chapter + 1}.${this.step + 1}` : "";
    if (window.location.hash === hash || (!shown && !this._linked())) return;
    const { pathname, search } = window.location;
    try {
      window.history.replaceState(null, "", hash || pathname + search);
    } catch (error) {
      // a sandboxed frame has no address of its own
    }
  }

  // ── drawing ────────────────────────────────────────────────────────────────────────────────

  _draw() {
    const chapter = this.course.chapters[this.chapter], shown = this.shown;
    this.kicker.textContent = `Chapter ${this.chapter + 1} of ${this.course.chapters.length} · ${chapter.question}`;
    this.title.textContent = chapter.title;
    this.words.replaceChildren(...(this.asking ? this._quiz(chapter.quiz) : shown.text.map((spans) => h("p", {}, spans.map(spanOf)))));
    this._steps();
    this._figure(shown);
    this.said.textContent = shown.alt;
    this.announce.textContent = `Chapter ${this.chapter + 1}, step ${this.step + 1} of ${this.length(this.chapter)}. ${this.words.textContent} Figure: ${shown.alt}`;
  }

  _steps() {
    const count = this.length(this.chapter);
    this.dots.replaceChildren(...Array.from({ length: count }, (_, at) => button("", {
      class: "ds-dot" + (at === count - 1 ? " question" : "") + (this.seen.has(`${this.chapter}.${at}`) ? " seen" : ""),
      "aria-label": at === count - 1 ? "Question" : `Step ${at + 1}`, "aria-current": at === this.step ? "step" : null,
    }, () => this.go(this.chapter, at))));
    this.count.textContent = `${this.step + 1} / ${count}`;
    [...this.list.children].forEach((item, at) => {
      const total = this.length(at), seen = Array.from({ length: total }, (_, i) => this.seen.has(`${at}.${i}`)).filter(Boolean).length;
      const entry = item.firstChild;
      entry.setAttribute("aria-current", at === this.chapter ? "true" : "false");
      entry.classList.toggle("done", seen === total);
      entry.title = `${this.course.chapters[at].title}: ${seen} of ${total} steps seen`;
      entry.style.setProperty("--seen", `${(100 * seen) / total}%`);
    });
    const current = this.list.children[this.chapter];
    this.list.scrollLeft = Math.max(0, current.offsetLeft - this.list.clientWidth / 2 + current.offsetWidth / 2);
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
    this.side.replaceChildren(...(shown.side ? [companion(shown.side, { point: (row) => this._point(row) })] : []));
    this.trees.forEach((tree, at) => {
      const spec = shown.trees[at];
      tree.frameBox.hidden = !spec;
      if (spec) tree.draw(this.course.trees[spec.name], spec);
    });
  }

  _quiz(quiz) {
    const given = this.answers.get(this.chapter);
    const options = quiz.options.map((option, at) => {
      const state = given === at ? (at === quiz.answer ? " right" : " wrong") : given !== undefined && at === quiz.answer ? " right" : "";
      const made = button("", { class: "ds-option" + state, "aria-pressed": String(given === at) }, () => this.answer(at));
      made.append(h("kbd", {}, "abc"[at]), h("span", {}, option.label), h("span", { class: "sign", "aria-hidden": "true" }, state === " right" ? "✓" : state === " wrong" ? "×" : ""));
      return made;
    });
    const why = given === undefined ? [] : [h("p", { class: "ds-answer", role: "status" }, quiz.options[given].why)];
    return [h("p", { class: "ds-question" }, quiz.question), h("div", { class: "ds-options" }, options), ...why];
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
    if (own >= -1 && tree.has(own)) this.note.textContent = tree.node(own).getAttribute("aria-label");
    this._light(row);
  }

  /** A row of the companion is pointed at: show it in the tree. */
  _point(row) {
    const tree = this.trees[0], own = tree.shownAs(row);
    if (own >= 0) tree.select(own);
    this._light(row);
  }

  /** A node is pointed at: show its row in the mask. */
  _light(row) {
    for (const line of this.side.querySelectorAll(".ds-mask .line")) line.classList.toggle("lit", line.getAttribute("data-row") === String(row));
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
    this.playing = setTimeout(() => {
      if (!this.root.getClientRects().length || this.atEnd) return this.pause();
      this.move(1);
      if (this.asking) this.pause();
      else this._wait();
    }, Math.max(READ.least, READ.word * words));
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
    this.text.addEventListener("touchstart", (event) => (x = event.touches[0].clientX), { passive: true });
    this.text.addEventListener("touchend", (event) => {
      const by = x === null ? 0 : event.changedTouches[0].clientX - x;
      if (Math.abs(by) > 60) this.move(by < 0 ? 1 : -1);
      x = null;
    });
  }

  _typing(event) {
    if (this.dialog.open || event.ctrlKey || event.metaKey || event.altKey) return true;
    const tag = event.target.tagName;
    return tag === "INPUT" || tag === "TEXTAREA" || tag === "SELECT" || (tag === "BUTTON" && (event.key === " " || event.key === "Enter"));
  }

  _key(event) {
    const step = (by) => (this.pause(), this.move(by));
    const page = (by) => (event.shiftKey ? (this.pause(), this.go(this.chapter + by, 0)) : step(by)); // clickers send these
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
      a: () => this.answer(0), b: () => this.answer(1), c: () => this.answer(2),
    };
    const act = acts[event.key] || (/^[0-9]$/.test(event.key) && (() => (this.pause(), this.go((Number(event.key) || 10) - 1, 0))));
    if (!act) return;
    event.preventDefault();
    act();
  }
}

/** A span of text: a string, or a term, a token, a number. */
function spanOf(span) {
  if (typeof span === "string") return span;
  const [kind, words] = Object.entries(span)[0];
  return h({ term: "em", token: "code", num: "b" }[kind], { class: "ds-said " + kind }, words);
}
