// The ranking of masked positions behind a step, or before its call.

import { button, h, plural } from "../dom.js";
import { bar, folding } from "../parts.js";
import { savers } from "../save/buttons.js";

export class RankingTable {
  /** turned(): the other ranking is drawn. */
  constructor(source, turned) {
    this.turned = turned;
    this.heading = h("h2");
    this.brief = h("small.ds-brief.ds-soft");
    this.now = button("This step", { class: "dn-tab", "aria-pressed": "true" }, () =>
      this.turn(false),
    );
    this.before = button(
      "Before",
      {
        title: "What was known before this call: its drafts were read from that",
        class: "dn-tab",
        "aria-pressed": "false",
      },
      () => this.turn(true),
    );
    this.words = h("p.ds-soft");
    this.table = h("table.dn-ranking");
    const spring = h("span.ds-spring"),
      head = h("header", this.heading, this.brief, spring, this.now, this.before),
      about = { class: "ds-card dn-side", "aria-label": "Ranking of masked positions" },
      scrolled = { class: "dn-scroll", tabindex: 0, role: "region", "aria-label": "Ranking" },
      parts = [head, this.words, h("div", scrolled, this.table)],
      files = savers("Ranking", () => this._records(), source);
    this.element = folding(h("section", about, parts, files), head);
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

  turn(read) {
    this.read = read;
    this._draw();
    this.turned();
  }

  _draw() {
    const read = this.read && this.known,
      count = read ? 0 : this.step.count;
    const rows = read ? this.known.rows : this.step.ranking,
      labels = read ? this.known.labels : this.call.ranked;
    this.now.setAttribute("aria-pressed", String(!read));
    this.before.setAttribute("aria-pressed", String(!!read));
    this.heading.textContent = read
      ? "Ranking before the call"
      : `Ranking at step ${this.place + 1}`;
    this.brief.textContent = plural(rows.length, "masked position");
    const first = count === 1 ? "one is" : `${count} are`;
    this.words.textContent = read
      ? "A draft's cᵢⱼ sets the position of rank i to its token of rank j, in this list."
      : `Masked positions in the order of unmasking; the first ${first} unmasked. ` +
        "What is left counts as i = 1, 2, … for the next call's drafts.";
    const width = Math.max(...rows.map(([, ids]) => ids.length), 1);
    const head = h(
      "tr",
      h("th", "i"),
      h("th", "pos."),
      ...Array.from({ length: width }, (_, j) => h("th", `j = ${j + 1}`)),
    );
    this.table.replaceChildren(
      h("thead", head),
      h(
        "tbody",
        rows.map((row, at) => this._row(row, at, count, labels, read)),
      ),
    );
  }

  /** The list shown, a line for each position and token. */
  _records() {
    const read = this.read && this.known,
      rows = read ? this.known.rows : this.step.ranking,
      labels = read ? this.known.labels : this.call.ranked;
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
      h("th", at < count ? (this.step.free ? "✓" : "●") : String(i)),
      h("td.position", String(position)),
      ...ids.map((id, j) => {
        const marked = read && this.marked?.has(`${i} ${j + 1}`);
        return h(
          "td",
          { class: marked ? "marked" : "" },
          h("span.label", labels[id] ?? `⟨${id}⟩`),
          h("span.odds", brief(odds[j])),
          bar(odds[j]),
        );
      }),
    );
  }
}

/** A probability in as few signs as a narrow column has. */
function brief(odds) {
  return odds === null ? "–" : odds > 0 && odds < 0.01 ? "<1%" : `${Math.round(odds * 100)}%`;
}
