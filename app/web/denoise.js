// Denoising, seen: the block as a grid of positions over steps, for Spiffy and for plain denoising at
// the same step, the draft graph of the call that decided it, and the ranking behind it. What is
// shown is a function of (calls, place); the place is a denoising step, counted over the whole text.

import { button, clear, h, percent, plural, s, scrub } from "./dom.js";
import { answered, Feed } from "./feed.js";
import { Gallery } from "./gallery.js";
import { onGoTo, taken } from "./goto.js";
import {
  handOut,
  picture,
  pictureButtons,
  saveButton,
  savers,
  takeAnswer,
  wholeTree,
} from "./save.js";
import { pointAt } from "./strip.js";
import { TreeView } from "./tree.js";
import { GHOST } from "./tree-boxes.js";

const DN_PLAY = 750; // milliseconds a step stays when playing
const DN_KEPT = "draftscope-denoise"; // this browser tab's runs
const DN_CELL = 6.4; // width of a monospace character in a chip

const DN_EMPTY = "A block being denoised, call by call";
const DN_WORDS = [
  ["Position", "one place of the block: masked until a step sets its token, then it stays."],
  [
    "Step",
    "the surest masked positions are set, by the ranking of what is masked then. Plain denoising makes a model call for every step.",
  ],
  [
    "Draft",
    "a state that the block may be in a few steps from now. Spiffy guesses some from the ranking before, and runs them in the same model call.",
  ],
  ["Level", "how many steps ahead of the block a draft is."],
  [
    "Pathway",
    "one order of steps that leads to a draft. There may be several; the target walks at most one.",
  ],
  [
    "Saved call",
    "the target's own steps led to a draft: what it says of that state is there already, so the next step needs no call.",
  ],
];

/** What the words on this page mean. */
function wordList() {
  return h(
    "dl",
    { class: "dn-words" },
    DN_WORDS.map(([word, means]) => h("div", {}, h("dt", {}, word), h("dd", {}, means))),
  );
}

// ── from calls to steps ────────────────────────────────────────────────────────────────────────

/** All steps of a run in order, each with the call that decided it; `free`: by an accepted draft. */
function stepsOf(calls) {
  return calls.flatMap((call, at) =>
    call.steps.map((step, k) => ({
      ...step,
      at,
      k,
      free: k > 0,
      block: call.block,
      size: call.size,
    })),
  );
}

/** Numbers of the steps of the block that step `place` belongs to: [first, end). */
function blockOf(steps, place) {
  let first = place,
    end = place + 1;
  while (first > 0 && steps[first - 1].block === steps[place].block) first--;
  while (end < steps.length && steps[end].block === steps[place].block) end++;
  return [first, end];
}

/** The first step at which two runs unmask something else; null while there is none. */
function stepsPart(one, other) {
  const told = (step) =>
    JSON.stringify(step.ranking.slice(0, step.count).map(([position, ids]) => [position, ids[0]]));
  for (let at = 0; at < Math.min(one.length, other.length); at++)
    if (told(one[at]) !== told(other[at])) return at;
  return null;
}

/** The text after step `place`, block by block: per position {text, label, step} or null where masked. */
function textAt(calls, steps, place) {
  const blocks = [];
  let block = null,
    last = null;
  for (let at = 0; at <= place && at < steps.length; at++) {
    const step = steps[at];
    if (step.block !== last) {
      last = step.block;
      block = Array(step.size).fill(null);
      for (const [position, label, text] of calls[step.at].known || [])
        block[position] = { label, text, step: null };
      blocks.push(block);
    }
    for (const [position, label, text] of step.picks) block[position] = { label, text, step: at };
  }
  return blocks;
}

/** The number of a call's first step, for the call before (by = −1) or after (1) step `place`. */
function callEdge(steps, place, by) {
  const starts = steps.map((step, at) => (step.k ? -1 : at)).filter((at) => at >= 0);
  if (by > 0) return starts.find((at) => at > place) ?? steps.length - 1;
  return starts.filter((at) => at < place).pop() ?? 0;
}

// ── the block over time ────────────────────────────────────────────────────────────────────────

class BlockGrid {
  /** onPick(step) when a row is clicked. */
  constructor(onPick) {
    this.svg = s("svg", { class: "dn-grid", role: "img" });
    this.element = h("div", { class: "dn-grid-box" }, this.svg);
    this.svg.addEventListener("click", (event) => {
      const row = event.target.closest("[data-step]");
      if (row) onPick(Number(row.getAttribute("data-step")));
    });
    new ResizeObserver(
      () => this.run && this.element.clientWidth !== this.drawnWidth && this._draw(),
    ).observe(this.element);
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
    const width = Math.max(260, (this.drawnWidth || 500) - 20),
      rows = this.end - this.first,
      size = this.run.steps[this.first].size;
    const wide = width > 430;
    this.left = wide ? 92 : 74;
    this.right = width - 40;
    this.column = (this.right - this.left) / size;
    this.height = Math.max(15, Math.min(24, Math.round(344 / rows)));
    const top = 20,
      bottom = top + rows * this.height;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${bottom + 6}`);
    this.svg.setAttribute("height", bottom + 6);
    this.svg.replaceChildren(
      ...this._columns(size),
      s("text", { class: "head", x: width - 4, y: 12, "text-anchor": "end" }, "p"),
      s("text", { class: "head", x: 4, y: 12 }, "call"),
      s("text", { class: "head", x: this.left - 8, y: 12, "text-anchor": "end" }, "step"),
      ...this._calls(top, width, wide),
      ...this._rows(top, width, size),
    );
    this._reveal();
  }

  _x(position) {
    return this.left + (position + 0.5) * this.column;
  }

  _columns(size) {
    const every = Math.max(1, Math.ceil(18 / this.column));
    return Array.from({ length: size }, (_, at) => at)
      .filter((at) => at % every === 0)
      .map((at) =>
        s(
          "text",
          { class: "head", x: this._x(at).toFixed(1), y: 12, "text-anchor": "middle" },
          String(at),
        ),
      );
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
      const words = count > 1 && wide ? s("tspan", { class: "saves" }, ` ✓${count - 1}`) : null;
      made.push(
        s(
          "g",
          { class: `call${step.at % 2 ? " odd" : ""}`, "data-from": at },
          s("rect", { class: "band", x: 0, y, width, height: tall }),
          s("path", { class: "edge", d: `M0 ${y}H${width}` }),
          s("path", {
            class: "bracket",
            d: count > 1 ? `M${this.left - 34} ${y + 3}h-5v${tall - 6}h5` : "",
          }),
          s(
            "text",
            { class: "number", x: 4, y: y + Math.min(tall / 2 + 4, tall - 3) },
            String(step.at + 1),
            words,
          ),
          s(
            "title",
            {},
            `call ${step.at + 1}: ${count > 1 ? `${count} steps, ${plural(count - 1, "call")} saved` : "one step"}`,
          ),
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
      return s(
        "g",
        { class: `row${step.free ? " free" : ""}`, "data-step": at },
        s("rect", { class: "hit", x: 0, y, width, height: this.height }),
        s(
          "text",
          { class: "number", x: this.left - 8, y: y + this.height / 2 + 4, "text-anchor": "end" },
          String(at + 1),
        ),
        s(
          "g",
          { class: "body" },
          s("path", { class: "dots", d: dots }),
          threads,
          this._chips(step, y),
          s(
            "text",
            { class: "sure", x: width - 4, y: y + this.height / 2 + 4, "text-anchor": "end" },
            percent(sure),
          ),
        ),
      );
    });
  }

  /** What is known already: a line down each column. */
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
        "g",
        { class: "chip", transform: `translate(${left.toFixed(1)} ${y + 1.5})` },
        s("rect", { class: "box", width: width.toFixed(1), height: tall, rx: 3.5 }),
        s("rect", {
          class: "bar",
          x: 2,
          y: tall - 3.4,
          width: Math.max(0.5, (width - 4) * (p || 0)).toFixed(1),
          height: 2,
        }),
        s("text", { x: (width / 2).toFixed(1), y: tall / 2 + 2, "text-anchor": "middle" }, text),
        s(
          "title",
          {},
          `position ${position}: ${label}, p ${percent(p)}, ${step.free ? "by an accepted draft" : "the call's own step"}`,
        ),
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

/** A step in words. */
function saidOf(step) {
  const picks = step.picks
    .map(([position, label, , p]) => `position ${position} ${label} ${percent(p)}`)
    .join(", ");
  return `${picks}; call ${step.at + 1}, ${step.free ? "by an accepted draft" : "its own step"}`;
}

/** What happens at a step, for somebody who sees this for the first time. */
function toldOf(run, step) {
  const call = run.calls[step.at],
    drafts = run.header?.drafts;
  const what = step.picks
    .map(([position, label, , p]) => `position ${position} to “${label}” (${percent(p)} sure)`)
    .join(", ");
  if (step.free)
    return `No call: the state before this step was one of call ${step.at + 1}'s drafts, so the model's answer to it is already there. It sets ${what}. One call saved.`;
  const sure =
    call.steps[0].picks.length === 1
      ? "the masked position the model is surest of"
      : "the masked positions the model is surest of";
  const words = `Model call ${step.at + 1} sets ${sure}: ${what}. `;
  if (!drafts) return `${words}Plain denoising pays one call for every step.`;
  if (!call.graph)
    return (
      words +
      (call.step && step.at && run.calls[step.at - 1].block === call.block
        ? "It carried no drafts."
        : "The first call of a block carries no drafts: no ranking of it is known yet.")
    );
  if (call.accepted)
    return (
      words +
      `Of the ${plural(call.drafted, "draft")} in the same call, ${call.accepted === 1 ? "one was the state" : `${call.accepted} were the states`} it led to: the next ${call.accepted === 1 ? "step needs" : `${call.accepted} steps need`} no call.`
    );
  return (
    words +
    `None of the ${plural(call.drafted, "draft")} in the same call was the state it led to: the next step needs a new call.`
  );
}

// ── the examples that ship ─────────────────────────────────────────────────────────────────────

class DenoiseShelf extends Gallery {
  constructor(source, onPick, complain) {
    super(source, onPick, false);
    this.complain = complain;
  }

  async _ask(name, asked) {
    const answer = await super._ask(name, asked);
    if (name === "example" && !answer.ticket)
      this.complain(answer.error || "the example could not be opened");
    return answer;
  }

  /** Both runs of a prompt side by side first, then each alone. */
  _prompt({ topic, prompt, runs }) {
    const plain = runs.find((run) => run.method === "denoise");
    const card = (title, words, some) =>
      this._card(title, words, `${title}: ${prompt}`, () =>
        this._examples(some.map((run) => run.name)),
      );
    const pairs = plain
      ? runs
          .filter((run) => run !== plain)
          .map((run) =>
            card(
              "Plain and Spiffy, side by side",
              `${plain.rounds} model calls against ${run.rounds}`,
              [run, plain],
            ),
          )
      : [];
    return this._section(topic[0].toUpperCase() + topic.slice(1), prompt, [
      ...pairs,
      ...runs.map((run) => card(run.title, plural(run.rounds, "model call"), [run])),
    ]);
  }
}

// ── both runs over the whole text ──────────────────────────────────────────────────────────────

class CallLanes {
  constructor(onPick) {
    this.svg = s("svg", { class: "dn-lanes", "aria-hidden": "true", preserveAspectRatio: "none" });
    this.names = h("div", { class: "dn-lane-names", "aria-hidden": "true" });
    this.element = h("div", { class: "dn-lanes-box" }, this.names, this.svg);
    scrub(this.svg, (share) => onPick(Math.floor(share * this.reach)));
  }

  draw(runs, reach) {
    this.reach = reach;
    this.svg.setAttribute("viewBox", `0 0 ${reach} ${runs.length * 24}`);
    this.svg.setAttribute("height", runs.length * 24);
    this.here = s("rect", { class: "here", x: 0, y: 0, width: 1, height: runs.length * 24 });
    const lanes = runs.flatMap((run, i) => {
      const top = i * 24 + 4,
        paid = [],
        free = [],
        calls = [],
        blocks = [];
      run.steps.forEach((step, at) => {
        (step.free ? free : paid).push(`M${at} ${top}h1v16h-1z`);
        if (!step.k) calls.push(`M${at} ${top - 1}v18`);
        if (at && run.steps[at - 1].block !== step.block) blocks.push(`M${at} ${i * 24}v24`);
      });
      return [
        s("path", { class: "paid", d: paid.join("") }),
        s("path", { class: "free", d: free.join("") }),
        s("path", { class: "starts", d: calls.join("") }),
        s("path", { class: "blocks", d: blocks.join("") }),
      ];
    });
    this.svg.replaceChildren(...lanes, this.here);
    this.names.replaceChildren(...runs.map((run) => h("span", {}, run.name)));
  }

  mark(place) {
    this.here.setAttribute("x", String(place));
  }
}

// ── the ranking behind a step ──────────────────────────────────────────────────────────────────

class RankingTable {
  constructor(source) {
    this.heading = h("h2", {});
    this.now = button("This step", { class: "dn-tab", "aria-pressed": "true" }, () =>
      this._turn(false),
    );
    this.before = button(
      "Before",
      {
        title: "What was known before this call: its drafts were read from that",
        class: "dn-tab",
        "aria-pressed": "false",
      },
      () => this._turn(true),
    );
    this.words = h("p", { class: "ds-soft" });
    this.table = h("table", { class: "dn-ranking" });
    this.element = h(
      "section",
      { class: "ds-card dn-side", "aria-label": "Ranking of masked positions" },
      h("header", {}, this.heading, h("span", { class: "ds-spring" }), this.now, this.before),
      this.words,
      h(
        "div",
        { class: "dn-scroll", tabindex: 0, role: "region", "aria-label": "Ranking" },
        this.table,
      ),
      savers("Ranking", () => this._records(), source),
    );
    this.read = false;
  }

  /** The step's ranking, and `known` {rows, labels}: what was left of the one before the call. */
  show(call, step, known, place) {
    Object.assign(this, { call, step, known, place });
    this.before.hidden = this.now.hidden = !known;
    this._draw();
  }

  /** Mark the c_ij of a draft, in the ranking it was read from. */
  mark(edits) {
    this.marked = edits ? new Set(edits.map(({ rank }) => rank.join(" "))) : null;
    if (edits) this.read = true;
    if (this.step) this._draw();
  }

  _turn(read) {
    this.read = read;
    this._draw();
  }

  _draw() {
    const read = this.read && this.known,
      count = read ? 0 : this.step.count;
    const rows = read ? this.known.rows : this.step.ranking,
      labels = read ? this.known.labels : this.call.labels;
    this.now.setAttribute("aria-pressed", String(!read));
    this.before.setAttribute("aria-pressed", String(!!read));
    this.heading.textContent = read
      ? "Ranking before the call"
      : `Ranking at step ${this.place + 1}`;
    this.words.textContent = read
      ? "A draft's cᵢⱼ sets the position of rank i to its token of rank j, in this list."
      : `Masked positions, surest first; the first ${count === 1 ? "one is" : `${count} are`} unmasked. What is left counts as i = 1, 2, … for the next call's drafts.`;
    const width = Math.max(...rows.map(([, ids]) => ids.length), 1);
    const head = h(
      "tr",
      {},
      h("th", {}, "i"),
      h("th", {}, "pos."),
      ...Array.from({ length: width }, (_, j) => h("th", {}, `j = ${j + 1}`)),
    );
    this.table.replaceChildren(
      h("thead", {}, head),
      h(
        "tbody",
        {},
        rows.map((row, at) => this._row(row, at, count, labels, read)),
      ),
    );
  }

  /** The list shown, a line for each position and token. */
  _records() {
    const read = this.read && this.known,
      rows = read ? this.known.rows : this.step.ranking,
      labels = read ? this.known.labels : this.call.labels;
    return rows.flatMap(([position, ids, odds], at) =>
      ids.map((id, j) => ({
        step: this.place + 1,
        before_call: !!read,
        position,
        position_rank: at - (read ? 0 : this.step.count) + 1,
        token_rank: j + 1,
        token: id,
        text: labels[id] ?? "",
        p: odds[j],
        unmasked: !read && at < this.step.count,
      })),
    );
  }

  _row([position, ids, odds], at, count, labels, read) {
    const i = at - count + 1;
    return h(
      "tr",
      { class: at < count ? "taken" : "" },
      h("th", {}, at < count ? (this.step.free ? "✓" : "●") : String(i)),
      h("td", { class: "position" }, String(position)),
      ...ids.map((id, j) => {
        const bar = h("i", { class: "fill" });
        bar.style.width = `${Math.max(1, 100 * (odds[j] || 0))}%`;
        const marked = read && this.marked?.has(`${i} ${j + 1}`);
        return h(
          "td",
          { class: marked ? "marked" : "" },
          h("span", { class: "label" }, labels[id] ?? `⟨${id}⟩`),
          h("span", { class: "odds" }, brief(odds[j])),
          bar,
        );
      }),
    );
  }
}

/** A probability in as few signs as a narrow column has. */
function brief(odds) {
  return odds === null ? "–" : odds > 0 && odds < 0.01 ? "<1%" : `${Math.round(odds * 100)}%`;
}

// ── one draft ──────────────────────────────────────────────────────────────────────────────────

const DN_FATE = {
  same: ["✓", "in the block now"],
  masked: ["▢", "still masked after this call"],
  other: ["×", ""],
};

class DraftCard {
  constructor(onPick, onClose) {
    this.onPick = onPick;
    this.body = h("div", { class: "dn-draft-body" });
    this.element = h(
      "section",
      { class: "dn-draft", hidden: true, "aria-label": "One draft" },
      button("×", { class: "ds-close", "aria-label": "Close", title: "Close (Esc)" }, onClose),
      this.body,
    );
  }

  close() {
    this.element.hidden = true;
  }

  show(node) {
    this.element.hidden = false;
    const mark = node.row ? { accepted: "✓ ", rejected: "× ", unreached: "· " }[node.status] : "● ";
    const edits = node.edits.map((edit) => {
      const [sign, words] = DN_FATE[edit.fate];
      return h(
        "tr",
        {},
        h("td", {}, edit.name),
        h("td", {}, `position ${edit.position}`),
        h("td", { class: "label" }, edit.label),
        h("td", { class: "odds" }, percent(edit.p)),
        h(
          "td",
          { class: "ds-soft" },
          `${sign} ${edit.fate === "other" ? `the target wrote ${edit.wrote}` : words}`,
        ),
      );
    });
    const ways = node.parents.map(([row, name, status]) =>
      button(
        `${{ accepted: "✓", rejected: "×", unreached: "·" }[status]} ${name}`,
        { class: `dn-way ${status}`, title: `a pathway into this draft: its parent was ${status}` },
        () => this.onPick(row),
      ),
    );
    this.body.replaceChildren(
      h("h3", { class: "ds-big-token" }, mark + node.name),
      h("p", { class: `ds-why ${node.row ? node.status : ""}` }, node.why),
      ...(edits.length
        ? [
            h(
              "div",
              { class: "dn-scroll-x" },
              h(
                "table",
                { class: "dn-edits" },
                h(
                  "thead",
                  {},
                  h(
                    "tr",
                    {},
                    ["edit", "where", "token", "p", "after this call"].map((word) =>
                      h("th", {}, word),
                    ),
                  ),
                ),
                h("tbody", {}, edits),
              ),
            ),
          ]
        : []),
      ...(ways.length
        ? [
            h(
              "p",
              { class: "dn-ways" },
              h(
                "span",
                { class: "ds-soft" },
                `level ${node.level}, ${plural(ways.length, "pathway")} in: `,
              ),
              ...ways,
            ),
          ]
        : []),
    );
  }

  /** The state that the target went on to. */
  stop(ghost) {
    this.element.hidden = false;
    this.body.replaceChildren(
      h("h3", { class: "ds-big-token" }, `◇ ${ghost.label}`),
      h(
        "p",
        { class: "ds-why bonus" },
        `the last step of this call; the state it leads to was ${ghost.why}`,
      ),
    );
  }
}

// ── a run ──────────────────────────────────────────────────────────────────────────────────────

class DenoiseRun {
  constructor(letter, source, hear) {
    this.letter = letter;
    this.feed = new Feed(source, hear(this));
    this.steps = [];
    this.chip = h("span", { class: "ds-chip run", role: "status", hidden: true });
  }

  get calls() {
    return this.feed.rounds;
  }

  get header() {
    return this.feed.header;
  }

  get name() {
    return this.header ? (this.header.drafts ? "Spiffy" : "Plain") : this.letter;
  }

  get title() {
    return this.header ? this.header.title : "–";
  }

  take() {
    this.steps = stepsOf(this.calls);
  }

  forget() {
    this.feed.leave();
    this.steps = [];
    this.chip.hidden = true;
  }
}

// ── the view ───────────────────────────────────────────────────────────────────────────────────

export class DenoiseView {
  constructor(element, source, trigger) {
    Object.assign(this, { source, trigger, place: 0, follow: false, row: null });
    this.runs = ["A", "B"].map(
      (letter) => new DenoiseRun(letter, source, (run) => this._hear(run)),
    );
    this._build(element);
    this._listen();
    this.runs[0].feed.wake();
  }

  // ── the parts ──────────────────────────────────────────────────────────────────────────────

  _build(element) {
    this.lanes = new CallLanes((at) => this.go(at));
    this.tree = new TreeView("dn-graph", (row) => this.pick(row));
    this.ranking = new RankingTable(this.source);
    this.draft = new DraftCard(
      (row) => this.pick(row),
      () => this.pick(null),
    );
    this.grids = [new BlockGrid((at) => this.go(at)), new BlockGrid((at) => this.go(at))];
    this.announce = h("div", { class: "ds-unseen", "aria-live": "polite" });
    this.ranking.element.insertBefore(this.draft.element, this.ranking.element.firstChild);
    this.scope = h(
      "div",
      { class: "ds-scope dn-scope nothing" },
      this._status(),
      this._guide(),
      this._text(),
      h("div", { class: "dn-grids" }, ...this.grids.map((grid, i) => this._gridCard(grid, i))),
      this._graph(),
      h(
        "details",
        { class: "dn-explained" },
        h("summary", {}, "The words on this page"),
        wordList(),
      ),
      h(
        "p",
        { class: "dn-keys ds-soft" },
        "Space plays · ← → one step · Shift ← → one call · Home End · ↑ ↓ drafts · f fits the graph · Esc closes",
      ),
      this._shelves(),
      this.announce,
    );
    clear(element).append(this.scope);
  }

  _status() {
    this.modelChip = h(
      "span",
      { class: "ds-chip", role: "status", "data-state": "loading" },
      "model: waking up",
    );
    this.about = h("span", { class: "ds-about" });
    this.banner = h("p", { class: "ds-banner", role: "alert", hidden: true });
    this.saves = this.runs.map((run) =>
      saveButton("Save trace", { class: "ds-button", hidden: true }, () =>
        takeAnswer(this.source.save({ ticket: run.feed.ticket }), "application/gzip"),
      ),
    );
    this.empty = h(
      "div",
      { class: "ds-card dn-empty" },
      (this.emptyTitle = h("p", { class: "ds-empty-title" }, DN_EMPTY)),
      h(
        "p",
        {},
        "A diffusion model starts from masked positions and unmasks the surest ones, step by step. Spiffy drafts the states a block may reach, runs them in the same model call, and every draft the model's own steps lead through saves a call: the text stays the same.",
      ),
      h(
        "p",
        { class: "ds-soft" },
        "Write a prompt and press Start, or open a run that was recorded.",
      ),
      (this.gallery = this._newShelf()).element,
      wordList(),
    );
    this.gallery.draw();
    this.examplesButton = button(
      "Examples",
      { class: "ds-button", title: "Examples that ship" },
      () => this._showExamples(),
    );
    return h(
      "div",
      { class: "ds-top-line" },
      h(
        "div",
        { class: "ds-status" },
        this.modelChip,
        ...this.runs.map((run) => run.chip),
        h("span", { class: "ds-spring" }),
        h("span", { class: "dn-takes" }, this.examplesButton, ...this.saves),
        this.about,
      ),
      this.banner,
      this.empty,
    );
  }

  _newShelf() {
    return new DenoiseShelf(
      this.source,
      (tickets) => this._chosen(tickets),
      (sentence) => this.complain(sentence),
    );
  }

  /** The shelf again, over a run that is on view. */
  _shelves() {
    this.shelf = this._newShelf();
    this.shelves = h(
      "dialog",
      { class: "ds-help ds-shelves", "aria-label": "Examples" },
      this.shelf.element,
      button("Close", { class: "ds-button" }, () => this.shelves.close()),
    );
    this.shelves.addEventListener(
      "click",
      (event) => event.target === this.shelves && this.shelves.close(),
    );
    return this.shelves;
  }

  _showExamples() {
    this.shelf.draw().then(() => this.shelves.open || this.shelves.showModal());
  }

  _chosen(tickets) {
    this.shelves.close();
    this.open(tickets);
  }

  _guide() {
    const act = (sign, label, keys, to) =>
      button(sign, { "aria-label": label, title: `${label} (${keys})` }, to);
    this.playButton = act("▶", "Play", "space", () => this.togglePlay());
    this.liveButton = button(
      "Live",
      { class: "ds-live", "aria-pressed": "false", title: "Follow the run" },
      () => this.live(),
    );
    this.heading = h("h2", { class: "dn-place" });
    this.tiles = h("div", { class: "ds-tiles dn-tiles" });
    this.scrub = h("input", {
      type: "range",
      min: 0,
      max: 0,
      step: 1,
      value: 0,
      class: "ds-scrub",
      "aria-label": "Denoising step",
    });
    this.scrub.addEventListener("input", () => this.go(Number(this.scrub.value)));
    this.same = h("p", { class: "dn-same", role: "status" });
    this.told = h("p", { class: "dn-told" });
    const key = (name, words) =>
      h("span", { class: "entry" }, h("i", { class: `dn-key ${name}` }), words);
    return h(
      "section",
      { class: "ds-card dn-guide", "aria-label": "Denoising steps" },
      h(
        "div",
        { class: "dn-bar" },
        h(
          "div",
          { class: "ds-transport", role: "group", "aria-label": "Step through" },
          act("‹", "Step before", "←", () => this.step(-1)),
          this.playButton,
          act("›", "Step after", "→", () => this.step(1)),
          this.liveButton,
        ),
        this.heading,
        h("span", { class: "ds-spring" }),
        this.tiles,
      ),
      this.told,
      h("div", { class: "dn-track" }, this.lanes.element, this.scrub),
      h(
        "div",
        { class: "ds-key" },
        key("paid", "a model call's own step"),
        key("free", "✓ by an accepted draft: no call"),
        key("starts", "a new block"),
        h("span", { class: "ds-spring" }),
        this.same,
      ),
    );
  }

  _text() {
    this.strip = h("div", {
      class: "ds-strip dn-strip",
      role: "listbox",
      tabindex: 0,
      "aria-multiselectable": "true",
      "aria-label": "The text so far",
    });
    this.strip.addEventListener("click", (event) => {
      const token = event.target.closest("[data-step]");
      if (token) this.go(Number(token.getAttribute("data-step")));
    });
    return h(
      "section",
      { class: "ds-card ds-text", "aria-label": "Text so far" },
      h(
        "header",
        {},
        h("h2", {}, "Text so far"),
        (this.asked = h("span", { class: "dn-asked ds-soft" })),
      ),
      this.strip,
    );
  }

  _gridCard(grid, i) {
    const heading = h("h2", {}),
      save = pictureButtons(
        "this grid",
        () => picture(grid.svg),
        () => `draftscope-block-${(this.shown[i] || this.main).name.toLowerCase()}`,
      );
    grid.card = h(
      "section",
      { class: "ds-card dn-card", "aria-label": "The block over time" },
      h("header", {}, heading, h("span", { class: "ds-spring" }), save),
      h("p", { class: "dn-note" }),
      grid.element,
    );
    grid.heading = heading;
    return grid.card;
  }

  _graph() {
    const tool = (sign, label, act) => button(sign, { "aria-label": label, title: label }, act);
    this.graphTitle = h("h2", {});
    this.graphNote = h("p", { class: "dn-note" });
    this.tabs = [
      ["Drafts", false],
      ["Calibrated", true],
    ].map(([words, whole]) =>
      button(
        words,
        {
          class: "dn-tab",
          title: whole
            ? "The run's draft graph as formulas, before any token is known"
            : "The drafts of this call",
          "aria-pressed": String(!whole),
        },
        () => this._turn(whole),
      ),
    );
    this.away = h("p", { class: "ds-away" });
    this.tools = h(
      "span",
      { class: "ds-tools" },
      tool("−", "Zoom out", () => this.tree.zoomBy(1 / 1.3)),
      tool("+", "Zoom in", () => this.tree.zoomBy(1.3)),
      tool("⤢", "Fit the whole graph (f)", () => this.tree.fit()),
      pictureButtons(
        "the draft graph",
        () => wholeTree(this.tree),
        () => this._name("graph"),
      ),
      saveButton(
        "DOT",
        {
          class: "ds-button",
          "aria-label": "Save the draft graph as DOT",
          title: "Save the draft graph for graphviz",
        },
        () => this._dot(),
      ),
    );
    this.graphCard = h(
      "section",
      { class: "ds-card ds-stage dn-graph", "aria-label": "Draft graph" },
      h(
        "header",
        {},
        h("span", { class: "dn-tabs", role: "group", "aria-label": "Which graph" }, this.tabs),
        this.graphTitle,
        h("span", { class: "ds-spring" }),
        this.tools,
      ),
      this.graphNote,
      h("div", { class: "ds-picture" }, this.tree.element, this.away),
      this._legend(),
    );
    return h("div", { class: "dn-below" }, this.graphCard, this.ranking.element);
  }

  _legend() {
    const entry = (name, sign, words) =>
      h("span", { class: "entry" }, h("i", { class: `box ${name}` }, sign), words);
    return h(
      "footer",
      { class: "ds-legend" },
      entry("accepted", "✓", "accepted: a call saved"),
      entry("rejected", "×", "rejected"),
      entry("unreached", "·", "unreached"),
      entry("ghost", "◇", "where the target went on"),
    );
  }

  /** To the formulas of the run's calibrated graph, or back to this call's drafts. */
  async _turn(whole) {
    let answer = null;
    if (whole) {
      answer = await answered(this.source.outline({ ticket: this.main.feed.ticket }));
      if (answer.error) return this.complain(answer.error);
    }
    this.whole = answer;
    this.key = null;
    this._draw();
  }

  _name(what) {
    if (this.whole) return "draftscope-calibrated-graph";
    return `draftscope-${what}-call-${this.main.steps[this.place].at + 1}`;
  }

  // ── what comes from the server ─────────────────────────────────────────────────────────────

  _hear(run) {
    return {
      model: (model) => this._model(model),
      rounds: () => this._rounds(run),
      state: (feed, ended) => this._state(run, ended),
      lost: () => this._lost(run),
      silent: () => this._chip(this.modelChip, "failed", "the server does not answer"),
    };
  }

  open(tickets) {
    this.pause();
    this.complain("");
    this.runs.forEach((run) => run.forget());
    this.grids.forEach((grid) => grid.clear());
    Object.assign(this, { place: 0, follow: true, whole: null });
    this.scope.classList.add("nothing");
    tickets.slice(0, 2).forEach((ticket, i) => this.runs[i].feed.open(ticket));
    this._remember(tickets);
    this.about.textContent = "";
    this.unlike = null;
  }

  /** Once, when both headers are there: what the runs do not share. */
  async _ask() {
    if (this.unlike || !this.runs.every((run) => run.header)) return;
    this.unlike = [];
    try {
      this.unlike =
        (await this.source.differences({ tickets: this.runs.map((run) => run.feed.ticket) }))
          .unlike || [];
    } catch {
      this.unlike = ["the server did not say whether these runs can be compared"];
    }
    if (this.unlike.length) this._drawAll();
  }

  _remember(tickets) {
    try {
      sessionStorage.setItem(DN_KEPT, tickets.join(" "));
    } catch {
      // storage may be forbidden: then a reload begins anew
    }
  }

  restore() {
    if (this._goTo()) return;
    try {
      const kept = (sessionStorage.getItem(DN_KEPT) || "").split(" ").filter(Boolean);
      if (kept.length) this.open(kept);
    } catch {
      // as above
    }
  }

  complain(sentence) {
    this.banner.textContent = sentence;
    this.banner.hidden = !sentence;
  }

  _chip(chip, state, words) {
    chip.hidden = false;
    chip.setAttribute("data-state", state);
    chip.textContent = words;
  }

  _model({ state, message }) {
    this._chip(this.modelChip, state, state === "ready" ? "model ready" : `model: ${message}`);
  }

  _rounds(run) {
    run.take();
    const file = run.feed.run && run.feed.run.source === "file";
    if (this.follow && !file) this.place = Math.max(0, this.reach - 1);
    if (!run.steps.length && !run.header) return;
    this.about.textContent = this.main.header
      ? [...this.main.header.facts, this.main.header.graph && `graph ${this.main.header.graph}`]
          .filter(Boolean)
          .join(" · ")
      : "";
    this._ask();
    this._drawAll();
  }

  _state(run, ended) {
    const { state, message, ahead } = run.feed.run;
    const words = {
      waiting: ahead ? `waiting, ${ahead} before it` : "waiting",
      running: "denoising",
      done: "done",
      stopped: "stopped",
      failed: "failed",
    }[state];
    this._chip(run.chip, state, `${run.header ? run.title : `run ${run.letter}`}: ${words}`);
    if (state === "failed" || message) this.complain(message);
    this.runs.forEach((each, i) => (this.saves[i].hidden = !each.steps.length));
    this._working();
    if (ended && !this.busy) this.follow = false;
    this._drawBar();
  }

  _working() {
    const busy = this.runs.some((each) => each.feed.active);
    if (busy !== this.busy) this.trigger((this.busy = busy) ? "running" : "settled");
    this.emptyTitle.textContent = busy ? "Waiting for the first model call…" : DN_EMPTY;
  }

  _lost(run) {
    run.forget();
    this.complain("this run is no longer on the server");
    this._working();
    this.grids.forEach((grid) => grid.clear());
    if (!this.runs.some((each) => each.feed.run)) {
      this._remember([]);
      this.scope.classList.add("nothing");
    }
    this._drawAll();
  }

  /** The graph in sight for graphviz: the calibrated one is here, a call's comes from the server. */
  _dot() {
    if (this.whole)
      return handOut(
        "draftscope-calibrated-graph.dot",
        new Blob([this.whole.dot], { type: "text/vnd.graphviz" }),
      );
    return takeAnswer(
      this.source.export({
        ticket: this.main.feed.ticket,
        round: this.main.steps[this.place].at,
        form: "dot",
      }),
    );
  }

  // ── where we are ───────────────────────────────────────────────────────────────────────────

  /** The run whose graph and ranking are shown: the one that drafts. */
  get main() {
    return this.shown.find((run) => run.header?.drafts) || this.shown[0] || this.runs[0];
  }

  /** The runs there is something of, plain denoising first. */
  get shown() {
    const some = this.runs.filter((run) => run.steps.length);
    return some.sort((a, b) => Boolean(a.header?.drafts) - Boolean(b.header?.drafts));
  }

  get reach() {
    return Math.max(0, ...this.runs.map((run) => run.steps.length));
  }

  get playing() {
    return !!this.timer;
  }

  go(place) {
    if (!this.reach) return;
    this.follow = false;
    this._to(place);
  }

  _to(place) {
    this.place = Math.max(0, Math.min(this.reach - 1, place));
    this._draw();
  }

  step(by) {
    this.pause();
    this.go(this.place + by);
  }

  call(by) {
    this.pause();
    const steps = this.main.steps;
    if (steps.length) this.go(callEdge(steps, Math.min(this.place, steps.length - 1), by));
  }

  live() {
    this.pause();
    this.follow = true;
    this._to(this.reach - 1);
  }

  togglePlay() {
    if (this.playing) return this.pause();
    if (!this.reach) return;
    if (this.place >= this.reach - 1) this.place = -1;
    this.follow = false;
    const on = () => {
      if (this.place >= this.reach - 1 && !this.busy) return this.pause();
      this._to(this.place + 1);
      this.timer = setTimeout(on, DN_PLAY);
    };
    this.timer = 1;
    on();
    this._drawBar();
  }

  pause() {
    clearTimeout(this.timer);
    this.timer = null;
    this._drawBar();
  }

  pick(row) {
    const round = this.tree.round;
    if (!round || (row !== null && !this.tree.has(row))) row = null;
    this.row = row;
    if (round) this.tree.select(row);
    if (row === null) this.draft.close();
    else if (row === GHOST) this.draft.stop(round.ghost);
    else this.draft.show(round.nodes[row]);
    this.ranking.mark(row > 0 && !this.whole ? round.nodes[row].edits : null);
    if (row === null) this.ranking.read = false;
  }

  // ── drawing ────────────────────────────────────────────────────────────────────────────────

  _drawAll() {
    const shown = this.shown;
    if (!shown.length) return;
    const first = this.scope.classList.contains("nothing");
    this.scope.classList.remove("nothing");
    this.scope.classList.toggle("pair", shown.length > 1);
    this.lanes.draw(shown, this.reach);
    const parts = shown.length > 1 ? stepsPart(shown[0].steps, shown[1].steps) : undefined;
    this.same.textContent = [
      parts === undefined
        ? ""
        : parts === null
          ? "✓ both runs unmask the same tokens at the same steps"
          : `≠ the runs part at step ${parts + 1}`,
      ...(shown.length > 1 ? this.unlike || [] : []),
    ]
      .filter(Boolean)
      .join("; ");
    this.same.classList.toggle("bad", typeof parts === "number");
    this.saves.forEach((save, i) => {
      save.hidden = !this.runs[i].steps.length;
      save.textContent =
        shown.length > 1
          ? `Save ${this.runs[i].name.replace("Plain", "plain")} trace`
          : "Save trace";
    });
    if (first) this.key = null;
    this._draw();
  }

  _draw() {
    if (!this.reach) return;
    const shown = this.shown,
      main = this.main;
    this.lanes.mark(this.place);
    this._drawBar();
    this._drawText(main);
    this.grids.forEach((grid, i) => {
      const run = shown[i];
      grid.card.hidden = !run;
      if (!run) return grid.clear();
      const at = Math.min(this.place, run.steps.length - 1),
        step = run.steps[at];
      grid.heading.replaceChildren(
        run.title,
        h(
          "small",
          {},
          `block ${step.block + 1} · ${plural(step.at + 1, "call")} for ${plural(at + 1, "step")}${at < this.place ? " (no further)" : ""}`,
        ),
      );
      grid.card.querySelector(".dn-note").textContent =
        "Across: positions. Down: steps. " +
        (run.header?.drafts
          ? "Bracket: one model call; ✓: a call saved."
          : "Every step is one model call.");
      grid.show(run, at);
    });
    const at = Math.min(this.place, main.steps.length - 1),
      step = main.steps[at];
    this._drawGraph(main, step);
    this.ranking.show(main.calls[step.at], step, this._known(main, step), at);
    this.announce.textContent = this.playing ? "" : `Step ${at + 1}: ${saidOf(step)}`;
  }

  /** What was left of the ranking before a call: its drafts are read from that. */
  _known(run, step) {
    const call = run.calls[step.at],
      before = run.calls[step.at - 1];
    if (!call.graph || !before || before.block !== call.block) return null;
    const last = before.steps[before.steps.length - 1];
    return { rows: last.ranking.slice(last.count), labels: before.labels };
  }

  _drawBar() {
    this.playButton.textContent = this.playing ? "❚❚" : "▶";
    this.playButton.setAttribute("aria-label", this.playing ? "Pause" : "Play");
    this.liveButton.hidden = !this.busy;
    this.liveButton.setAttribute("aria-pressed", String(this.follow));
    this.scrub.max = String(Math.max(0, this.reach - 1));
    this.scrub.value = String(this.place);
    this.scrub.disabled = this.reach < 2;
    const main = this.main,
      step = main.steps[Math.min(this.place, main.steps.length - 1)];
    if (!step) return;
    this.scrub.setAttribute("aria-valuetext", `step ${this.place + 1} of ${this.reach}`);
    this.heading.replaceChildren(
      `Step ${this.place + 1} of ${this.reach} `,
      h(
        "small",
        {},
        `block ${step.block + 1} · call ${step.at + 1}${step.free ? " · ✓ by an accepted draft" : ""}`,
      ),
    );
    this.told.textContent = toldOf(main, step);
    const [calls, plain, saved, speedup] = step.tally;
    const tile = (value, words, title) =>
      h("span", { class: "ds-tile", title }, h("b", {}, value), h("span", {}, words));
    this.tiles.replaceChildren(
      ...(main.header?.drafts
        ? [
            tile(
              String(plain),
              "plain calls",
              "model calls that plain denoising makes up to this step",
            ),
            tile(String(calls), "Spiffy calls", "model calls made up to this step"),
            tile(String(saved), "saved", "plain calls − Spiffy calls"),
            tile(
              `${speedup.toFixed(2)}×`,
              "NFE speedup",
              "plain calls ÷ Spiffy calls, up to this step",
            ),
          ]
        : [tile(String(calls), "model calls", "one denoising step each")]),
    );
  }

  _drawText(run) {
    const blocks = textAt(run.calls, run.steps, this.place);
    this.asked.textContent = run.header ? `Prompt: ${run.header.prompt}` : "";
    this.strip.replaceChildren(
      ...blocks.map((block, i) =>
        h(
          "span",
          { class: `dn-block${i === blocks.length - 1 ? " current" : ""}` },
          block.map((cell, position) => {
            if (!cell)
              return h("span", { class: "dn-masked", title: `position ${position}: masked` }, "▢");
            const step = run.steps[cell.step],
              how = !step ? "" : step.free ? "accepted" : "bonus";
            const token = h("span", {
              class: `ds-token ${how}${cell.step === this.place ? " here" : ""}`,
              role: "option",
              "aria-selected": String(cell.step === this.place),
              "data-step": cell.step,
              title: step ? `step ${cell.step + 1}, call ${step.at + 1}` : "given",
            });
            cell.text.split("\n").forEach((line, at) => {
              if (at)
                token.append(
                  h("span", { class: "ds-newline", "aria-hidden": "true" }, "⏎"),
                  h("br"),
                );
              if (line) token.append(line);
            });
            return token;
          }),
        ),
      ),
    );
    pointAt(this.strip, this.strip.querySelector(".here"));
    this.strip.scrollTop = this.strip.scrollHeight;
  }

  _drawGraph(run, step) {
    const call = run.calls[step.at],
      whole = this.whole,
      graph = whole ? whole.graph : call.graph;
    const key = `${run.feed.ticket} ${whole ? "whole" : step.at}`;
    this.graphCard.hidden = !run.header?.drafts;
    if (key !== this.key) {
      this.key = key;
      this.pick(null);
      if (graph) {
        this.tree.show(graph, false);
        if (this.tree.svg.clientWidth > 480) this.tree.fit(); // on a phone its boxes could not be read
      } else this.tree.clear();
    }
    this.away.textContent = graph
      ? ""
      : "The first call of a block drafts nothing: no ranking of it is known yet.";
    this.away.hidden = !!graph;
    this.tools.classList.toggle("off", !graph);
    this.graphCard.classList.toggle("whole", !!whole);
    this.tabs.forEach((tab, i) => tab.setAttribute("aria-pressed", String(Boolean(i) === !!whole)));
    if (whole)
      this.graphTitle.replaceChildren(
        `${run.header.graph} `,
        h("small", {}, plural(graph.y.length - 1, "formula")),
      );
    else
      this.graphTitle.replaceChildren(
        `Call ${step.at + 1} `,
        h(
          "small",
          {},
          graph ? `${plural(call.drafted, "draft")}, ${call.accepted} accepted` : "no drafts",
        ),
      );
    this.graphNote.textContent = whole
      ? "A box is a formula: set the i-th surest masked position to its j-th best token. Counted on other prompts; ✓ 3 of 29: accepted in 3 of the 29 calls of this run that drafted it."
      : "A box is the block with these positions set (position, token, p). Level n: n steps ahead. Every line between boxes is a pathway, the one step that leads from state to state.";
    if (graph && !whole) this.tree.mark(call.path[step.k] ?? null);
  }

  // ── keys ───────────────────────────────────────────────────────────────────────────────────

  _listen() {
    this.onKey = (event) => {
      if (!this.scope.isConnected) return document.removeEventListener("keydown", this.onKey);
      if (!this.scope.getClientRects().length || event.ctrlKey || event.metaKey || event.altKey)
        return;
      const target = event.target;
      if (target.closest("input:not(.ds-scrub), textarea, select, [contenteditable], dialog[open]"))
        return;
      if (event.key === " " && target.closest("button, summary")) return;
      if (this._key(event)) event.preventDefault();
    };
    document.addEventListener("keydown", this.onKey);
    window.addEventListener(
      "draftscope-stop",
      ({ detail }) => detail === "ds-d" && this.runs.forEach((run) => run.feed.halt()),
    );
    onGoTo(this.scope, () => this._goTo());
  }

  /** Open the run that somebody on the page asked for; whether there was one. */
  _goTo() {
    const asked = taken("denoise");
    if (asked?.ticket) this.open([asked.ticket]);
    return !!asked;
  }

  _key({ key, shiftKey }) {
    const graph = this.tree.round;
    if (key === " ") this.togglePlay();
    else if (key === "ArrowLeft" || key === "ArrowRight")
      this[shiftKey ? "call" : "step"](key === "ArrowRight" ? 1 : -1);
    else if (key === "Home") this.step(-this.reach);
    else if (key === "End") this.step(this.reach);
    else if ((key === "ArrowUp" || key === "ArrowDown") && graph)
      this.pick(this._next(key === "ArrowDown" ? 1 : -1));
    else if (key === "f" && graph) this.tree.fit();
    else if (key === "Escape" && this.row !== null) this.pick(null);
    else return false;
    return true;
  }

  /** The draft after or before the picked one, level by level. */
  _next(by) {
    const rows = this.tree.round.y.length,
      from = this.row === null || this.row < 0 ? (by > 0 ? 0 : rows) : this.row;
    return Math.max(0, Math.min(rows - 1, from + by));
  }
}
