// The figures of Learn: some rows of a tree, and what stands beside it.

import { h, percent, s, tiny } from "./dom.js";
import { Figure } from "./plots.js";
import { fileName, picture, pictureButtons } from "./save.js";
import { TreeView } from "./tree.js";
import { BOX_H, BOX_W, GHOST, STEP_X, STEP_Y } from "./tree-boxes.js";

const READABLE = 0.62,
  LARGEST = 1.9; // how small and how large a tree is drawn

// ── the tree in a lesson ─────────────────────────────────────────────────────────────────────────

/** Some rows of a round, at the places they have in the whole tree. */
function subtree(full, spec) {
  const rows = spec.rows || full.y.map((_, row) => row),
    at = new Map(rows.map((row, i) => [row, i]));
  const take = (list) => list && rows.map((row) => list[row]);
  const ghost = full.ghost && !spec.rows ? full.ghost : undefined;
  return {
    ...full,
    rows,
    ghost,
    whole: full,
    parents: rows.map((row) => at.get(full.parents[row]) ?? -1),
    depths: take(full.depths),
    y: take(full.y),
    tokens: take(full.tokens),
    q: take(full.q),
    p: take(full.p),
    signs: take(full.signs),
    status: take([...full.status]).join(""),
    path: full.path.filter((row) => at.has(row)).map((row) => at.get(row)),
    sources:
      full.sources &&
      rows.map((row) =>
        full.sources[row].filter((from) => at.has(from)).map((from) => at.get(from)),
      ),
    marks: Object.fromEntries(
      Object.entries(spec.marks).map(([row, mark]) => [
        Number(row) < 0 ? row : at.get(Number(row)),
        mark,
      ]),
    ),
    notes: spec.labels ? rows.map((row) => spec.labels[row] || "") : take(full.words),
    tvd: [],
  };
}

export class LessonTree extends TreeView {
  /** hear: {picked(row), pointed(row or null)}, rows of the whole tree. */
  constructor(name, hear) {
    super(name, (row) => hear.picked(this.own(row)));
    this.hear = hear;
    this.title = h("p", { class: "ds-lesson-name" });
    this.tools = h(
      "span",
      { class: "ds-plot-tools ds-lesson-tools" },
      pictureButtons(
        "this tree",
        () => picture(this.svg),
        () => fileName(name + (this.spec.title ? ` ${this.spec.title}` : "")),
        "ds-small",
      ),
    );
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
    const [w, hgt] = this._size(),
      pad = 22;
    const whole = Math.min((w - 2 * pad) / this.width, (hgt - 2 * pad - 8) / this.height);
    if (whole < READABLE) return super.frame(false);
    const k = Math.min(whole, LARGEST);
    this.view = { k, kx: k, x: (w - this.width * k) / 2, y: 10 + (hgt - this.height * k) / 2 };
    this._apply();
  }

  _measure() {
    const whole = this.round.whole,
      right = whole.ghost ? whole.depths[whole.ghost.parent] + 1 : 0;
    this.width = Math.max(...whole.depths, right) * STEP_X + BOX_W;
    this.height = Math.max(...whole.y, whole.ghost ? whole.ghost.y : 0) * STEP_Y + BOX_H;
  }

  _node(row) {
    const node = super._node(row),
      { untold, notes, marks } = this.round;
    if (untold) {
      if (row) node.classList.replace("unreached", "drafted");
      const text = node.querySelector(".token"),
        label = this.label(row);
      if (row) text.textContent = this.round.short[this.round.tokens[row]] || label;
      node.setAttribute("aria-label", this.words(row));
    }
    if (notes) this._note(node, notes[row]);
    if (marks[row]) node.classList.add(`mark-${marks[row]}`);
    return node;
  }

  _ghostNode() {
    const node = super._ghostNode();
    if (this.round.marks[GHOST]) node.classList.add(`mark-${this.round.marks[GHOST]}`);
    return node;
  }

  /** Of all pathways of a graph those that were taken, if a walk is shown. */
  _ways(row) {
    const { marks, sources } = this.round,
      all = super._ways(row);
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
    const { notes, q } = this.round,
      label = this.label(row);
    if (notes) return `${label}${notes[row] ? `, ${notes[row]}` : ""}`;
    return row ? `${label}, drafted, q ${percent(q[row])}` : `${label}, root`;
  }

  hover(event) {
    super.hover(event);
    const row = this._rowAt(event);
    if (row !== null && row >= 0 && this.round.untold)
      this.tip.replaceChildren(h("b", {}, this.label(row)), h("span", {}, this.words(row)));
    this.hear.pointed(row === null ? null : this.own(row));
  }
}

// ── what stands beside the tree ──────────────────────────────────────────────────────────────────

const SIGNS = { chosen: "◆", hot: "▪", new: "+" };
export const BESIDE = ["queue", "mask", "terms", "weights"]; // others stand below the tree

/** The companion of a step; `link` = {point(row)} shows a row in the tree. */
export function companion(side, link) {
  const made = {
    lanes,
    race,
    columns: columnsOf,
    queue,
    mask: matrix,
    noise: noiseOf,
    cache,
    terms,
    weights,
    block,
    plots,
  }[side.kind](side, link);
  return h("div", { class: `ds-side-figure ${side.kind}` }, made);
}

function track(odds, mark) {
  const fill = h("i", { class: "fill" });
  fill.style.width = `${Math.max(1, 100 * Math.min(1, odds || 0))}%`;
  return h("span", { class: `track ${mark}`, "aria-hidden": "true" }, fill);
}

/** Tokens with bars: the lists of depths, p after a node, child orders. */
function columnsOf(side) {
  const lists = side.lists.map((list) =>
    h(
      "section",
      { class: "ds-list" },
      h("h4", {}, list.title),
      h(
        "ol",
        {},
        list.items.map((item) =>
          h(
            "li",
            { class: item.mark },
            h("span", { class: "label" }, item.label),
            track(item.odds, item.mark),
            h("span", { class: "odds" }, percent(item.odds)),
            h("span", { class: "sign" }, SIGNS[item.mark] || ""),
          ),
        ),
      ),
      list.note ? h("p", { class: "ds-soft" }, list.note) : null,
    ),
  );
  const product = side.product.length
    ? [
        h(
          "p",
          { class: "ds-product" },
          ...side.product.slice(0, -1).map((part) => `${part} `),
          h("b", {}, side.product.at(-1)),
        ),
      ]
    : [];
  return [h("div", { class: "ds-lists" }, lists), ...product];
}

function queue(side, link) {
  const entry = (item, extra) => {
    const row = h(
      "li",
      { class: `${item.mark} ${extra}` },
      h("span", { class: "sign" }, extra ? "→" : SIGNS[item.mark] || ""),
      h("span", { class: "label" }, item.label),
      h("span", { class: "odds" }, tiny(item.odds)),
      track(item.odds, item.mark),
    );
    row.addEventListener("pointerenter", () => link.point(item.row));
    return row;
  };
  return [
    h("h4", {}, "taken now"),
    h(
      "ol",
      { class: "ds-queue taken" },
      side.popped ? entry(side.popped, "popped") : h("li", { class: "ds-soft" }, "nothing"),
    ),
    h("h4", {}, `waiting, best first (${side.items.length})`),
    h(
      "ol",
      { class: "ds-queue" },
      side.items.map((item) => entry(item, "")),
    ),
  ];
}

/** The mask as a grid; a row pointed at is shown in the tree. */
function matrix(side, link) {
  const n = side.labels.length,
    left = 5.6,
    numbers = 1.3,
    size = n + left;
  const grid = s("svg", {
    class: "ds-mask",
    viewBox: `0 0 ${size + 0.2} ${n + 1.4}`,
    role: "img",
    "aria-hidden": "true",
  });
  side.labels.forEach((label, row) => {
    const line = s("g", {
      class: `line${row === side.row ? " here" : row === side.parent ? " parent" : ""}`,
      "data-row": row,
    });
    line.append(
      s("rect", { class: "band", x: 0, y: row + 1.2, width: size, height: 1 }),
      s(
        "text",
        { class: "number", x: numbers, y: row + 1.9, "text-anchor": "end" },
        String(side.positions[row] ?? row),
      ),
      s("text", { x: left - 0.4, y: row + 1.9, "text-anchor": "end" }, label),
    );
    for (let column = 0; column < n; column++) {
      const cell = (side.rows[row] || "")[column],
        lost = row === side.row && side.lost.includes(column);
      const kind =
        cell === undefined
          ? "blank"
          : cell === "0"
            ? "no"
            : lost
              ? "lost"
              : column === row
                ? "self"
                : "yes";
      line.append(
        s("rect", {
          class: `cell ${kind}`,
          x: left + column + 0.06,
          y: row + 1.26,
          width: 0.88,
          height: 0.88,
          rx: 0.14,
        }),
      );
      if (kind === "lost")
        line.append(
          s("path", {
            class: "cross",
            d: `M${left + column + 0.28} ${row + 1.48}l.44 .44m0 -.44l-.44 .44`,
          }),
        );
    }
    line.addEventListener("pointerenter", () => link.point(row));
    grid.append(line);
  });
  for (let column = 0; column < n; column++)
    grid.append(
      s(
        "text",
        { class: "head", x: left + column + 0.5, y: 0.8, "text-anchor": "middle" },
        String(column),
      ),
    );
  const key = side.tree
    ? "■ may see   ▣ itself   □ may not"
    : side.lost.length
      ? "■ may see   × must not"
      : "one row, one column per token";
  const words = h(
    "p",
    { class: "ds-soft" },
    (side.positions.length ? "position id and token · " : "row and token · ") + key,
  );
  return [
    grid,
    words,
    h(
      "span",
      { class: "ds-plot-tools" },
      pictureButtons(
        "this mask",
        () => picture(grid),
        () => fileName("attention mask"),
        "ds-small",
      ),
    ),
  ];
}

/** A text as boxes: one per pass or per round, the target's own token last in each. */
function lane(name, groups, words) {
  const box = (group) =>
    h(
      "span",
      { class: "ds-pass" },
      group.map((piece, i) =>
        h("span", { class: i === group.length - 1 ? "bonus" : "free" }, piece),
      ),
    );
  return h(
    "div",
    { class: "ds-lane" },
    h("b", {}, name),
    h("span", { class: "ds-boxes" }, groups.map(box)),
    h("span", { class: "ds-soft" }, `${groups.length} ${words}`),
  );
}

/** Plain passes above, rounds below. */
function lanes(side) {
  const plain = lane(
    "plain",
    side.plain.map((piece) => [piece]),
    "passes",
  );
  return side.rounds.length
    ? [plain, lane("rounds", side.rounds, side.rounds.length === 1 ? "pass" : "passes")]
    : [plain];
}

function race(side) {
  return side.rows.map((row) => lane(row.name, row.groups, "rounds"));
}

/** log p + g per token, for some seeds. */
function noiseOf(side) {
  const tables = side.lists.map((list) =>
    h(
      "table",
      {},
      h("caption", {}, list.title),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          ["", "log p", "g", "sum"].map((name) => h("th", {}, name)),
        ),
      ),
      h(
        "tbody",
        {},
        list.rows.map((row) =>
          h(
            "tr",
            { class: row.mark },
            h("th", {}, row.label),
            ...row.terms.map((value) => h("td", {}, signed2(value))),
            h("td", { class: "sum" }, signed2(row.sum) + (row.mark === "chosen" ? " ◆" : "")),
          ),
        ),
      ),
    ),
  );
  return [h("div", { class: "ds-lists" }, tables), h("p", { class: "ds-soft" }, side.note)];
}

function signed2(value) {
  return (value < 0 ? "−" : "") + Math.abs(value).toFixed(2);
}

/** Rows of the KV cache: the prompt's, what the pass wrote, and what stays. */
function cache(side, link) {
  const cell = (item) => {
    const made = h(
      "span",
      { class: `ds-cell ${item.mark}` },
      h("small", {}, String(item.row)),
      h("b", {}, item.label),
    );
    made.addEventListener("pointerenter", () => item.tree >= 0 && link.point(item.tree));
    return made;
  };
  const prompt = () =>
    h(
      "span",
      { class: "ds-cell prompt" },
      h("small", {}, `0–${side.prompt - 1}`),
      h("b", {}, "the prompt"),
    );
  const moved = side.moves
    .filter(([from, to]) => from !== to)
    .map(([from, to]) => `row ${side.prompt + from} → row ${side.prompt + to}`);
  return [
    h(
      "div",
      { class: "ds-cache" },
      h("h4", {}, side.after.length ? "after the pass" : "cache"),
      h("div", { class: "ds-cells" }, prompt(), side.cells.map(cell)),
    ),
    ...(moved.length
      ? [h("p", { class: "ds-product" }, "↓ copy ", h("b", {}, moved.join(", ")))]
      : []),
    ...(side.after.length
      ? [
          h(
            "div",
            { class: "ds-cache" },
            h("h4", {}, "what stays"),
            h("div", { class: "ds-cells" }, prompt(), side.after.map(cell)),
          ),
        ]
      : []),
  ];
}

/** Scores as stacked bars, left of 0: the parent's part, the drafter's term, the n-gram term. */
function terms(side, link) {
  const sum = (item) => (side.above ? item.above : 0) + item.q + item.ngram;
  const longest = Math.max(...side.items.map((item) => -sum(item)), 0.1);
  const rows = side.items.map((item) => {
    const parts = [
      ["above", side.above ? item.above : 0],
      ["q", item.q],
      ["ngram", item.ngram],
    ].filter(([, value]) => value);
    const bar = h(
      "span",
      { class: "ds-stack", "aria-hidden": "true" },
      parts.map(([name, value]) => {
        const part = h("i", {
          class: `part ${name}`,
          title: `${TERM_WORDS[name]} ${signed2(value)}`,
        });
        part.style.width = `${(100 * Math.abs(value)) / longest}%`;
        return part;
      }),
    );
    const row = h(
      "li",
      {},
      h("span", { class: "label" }, item.label),
      bar,
      h("span", { class: "odds" }, signed2(sum(item))),
    );
    row.addEventListener("pointerenter", () => link.point(item.row));
    return row;
  });
  const key = ["above", "q", "ngram"].filter(
    (name) => (name !== "above" || side.above) && (name !== "ngram" || side.ngram),
  );
  return [
    h("h4", {}, "score: shorter is better"),
    h("ol", { class: "ds-terms" }, rows),
    h(
      "p",
      { class: "ds-soft ds-part-key" },
      key.map((name) =>
        h("span", { class: "entry" }, h("i", { class: `part ${name}` }), TERM_WORDS[name]),
      ),
    ),
  ];
}

const TERM_WORDS = { above: "the parent's score", q: "drafter's term", ngram: "n-gram term" };

function weights(side) {
  const head = h(
    "tr",
    {},
    ["", "drafter's term", "n-gram term"].map((name) => h("th", {}, name)),
  );
  const rows = side.rows.map((row) =>
    h(
      "tr",
      {},
      h("th", {}, row.label),
      h("td", {}, track(row.q, "hot"), row.q.toFixed(2)),
      h("td", {}, track(row.ngram, "new"), row.ngram.toFixed(2)),
    ),
  );
  return [
    h(
      "table",
      {},
      h("caption", {}, "what a term counts"),
      h("thead", {}, head),
      h("tbody", {}, rows),
    ),
  ];
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
  const cells = side.cells.map((cell) =>
    h(
      "div",
      { class: `ds-blank${cell.filled ? " filled" : ""}` },
      h("b", {}, cell.filled || "▒▒▒"),
      ...(side.ranks
        ? [
            h("small", {}, `i = ${cell.i}`),
            h(
              "ol",
              {},
              cell.guesses.map((guess) =>
                h(
                  "li",
                  {},
                  h("span", { class: "label" }, `${guess.name} ${guess.token}`),
                  track(guess.odds, "seen"),
                  h("span", { class: "odds" }, percent(guess.odds)),
                ),
              ),
            ),
          ]
        : []),
    ),
  );
  return [h("div", { class: "ds-block" }, h("span", { class: "ds-block-text" }, side.text), cells)];
}
