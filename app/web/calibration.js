// Calibration: what the runs on view say about their drafters, per depth; every cause of death with
// its examples, one click from the round and the node. Numbers come from analysis only.

import { button, clear, h, percent, plural } from "./dom.js";
import { answered } from "./feed.js";
import { Gallery, shelve, shelved } from "./gallery.js";
import { goTo, onGoTo, taken } from "./goto.js";
import { column, Figure, press, shortNumber, withInterval } from "./plots.js";
import { savers } from "./save.js";

const PARTS = [
  ["accepted", "accepted"],
  ["outranked", "outranked"],
  ["not drafted: pruned by budget", "pruned"],
  ["not drafted: outside the candidates", "outside"],
  ["not drafted: beyond the last depth", "beyond"],
  ["not drafted: this round drafted nothing", "nodraft"],
  ["unreached", "unreached"],
];

export class Calibration {
  constructor(element, source) {
    this.source = source;
    this.chosen = []; // {ticket, title}
    const figure = (title, says, x, y) => new Figure({ title, says, x, y, source });
    this.figures = {
      tvd: figure(
        "TVD by depth",
        "How far the drafter's q is from the target's p, ½ Σ |q − p|: 0 is the same distribution, 1 has nothing in common. Mean ± 1.96 standard errors.",
        "depth",
        "TVD",
      ),
      cover: figure(
        "Top-K coverage by depth",
        "How much of the target's p the drafter's K best tokens hold: at temperature 1, how often its token is among them. Means over observed positions, fewer at every depth.",
        "depth",
        "coverage",
      ),
      wide: figure(
        "Top-K coverage by K",
        "What one more candidate at a depth is worth: where the curve is flat, a wider tree buys little.",
        "K",
        "coverage",
      ),
      accept: figure(
        "Acceptance by depth",
        "How often the target's token was drafted, given that everything before it was accepted. Wilson's 95 % interval.",
        "depth",
        "accepted",
      ),
      lengths: figure(
        "Acceptance lengths",
        "How many tokens a round was good for: accepted nodes + 1. Their mean is τ.",
        "accepted + 1",
        "share of rounds",
      ),
      path: figure(
        "Reliability of path probability",
        "Nodes by the product of q along their path, against the share that was accepted: below the diagonal the drafter promises too much. Bins of equal mass, Wilson's interval.",
        "path probability",
        "accepted",
      ),
      step: figure(
        "Reliability of q, parent accepted",
        "Nodes whose parent was accepted, by their own q, against the share that was accepted: on the diagonal q means what it says.",
        "q",
        "accepted",
      ),
      surrogate: figure(
        "Σq against accepted nodes",
        "Rounds by the sum of their nodes' path probabilities, which best-first building maximises, against what was accepted.",
        "Σ q",
        "accepted nodes",
      ),
      stops: figure(
        "Why the walk ended",
        "One cause a round, by the depth where its walk stopped. Each part opens its rounds.",
        "depth",
        "share of rounds",
      ),
      causes: figure(
        "What became of drafted nodes",
        "All nodes by their depth; unreached ones are unobserved, never counted as rejected.",
        "depth",
        "share of nodes",
      ),
      sorts: figure(
        "Why the walk ended, by sort of token",
        "The same causes, by the sort of the token that the target wanted.",
        "token",
        "share of rounds",
      ),
      result: figure(
        "Calibrate: TVD by depth",
        "½ Σ |q − p| along the target's own continuations: mean over anchors and its 95 % interval.",
        "depth",
        "TVD",
      ),
      resultCover: figure(
        "Calibrate: coverage by depth",
        "How much of p the K best tokens hold, along the target's own continuations.",
        "depth",
        "coverage",
      ),
    };
    this._build(element);
    onGoTo(this.scope, () => this.refresh());
    new IntersectionObserver(
      (entries) => entries.some((entry) => entry.isIntersecting) && this.refresh(),
    ).observe(this.scope);
  }

  _build(element) {
    const f = this.figures,
      tell = (words) => h("p", { class: "ds-soft ds-tell" }, words);
    const widths = (figure, draw) => {
      const made = h(
        "select",
        { "aria-label": `K: ${figure.about.title}` },
        Array.from({ length: 16 }, (_, i) => h("option", { value: i + 1 }, `K = ${i + 1}`)),
      );
      made.value = "8";
      made.addEventListener("change", draw);
      figure.tools.prepend(made);
      return made;
    };
    this.widths = widths(f.cover, () => this.found && this._perDepth());
    this.resultWidths = widths(f.resultCover, () => this._result());
    this.deep = h("select", { "aria-label": `Depth: ${f.wide.about.title}` });
    this.deep.addEventListener("change", () => this._wide());
    f.wide.tools.prepend(this.deep);
    this.who = h("select", { "aria-label": "Run whose causes are shown" });
    this.who.addEventListener("change", () => this._causes());
    this.list = h("span", { class: "ds-chosen" });
    this.shelf = new Gallery(this.source, (tickets) => this.add(tickets), true);
    this.fold = h(
      "details",
      { class: "ds-fold-runs", open: window.innerWidth > 700 },
      h(
        "summary",
        {},
        "Examples that ship, and runs of this browser tab: one click adds them, up to four",
      ),
      this.shelf.element,
    );
    this.fold.addEventListener("toggle", () => this.fold.open && this.shelf.draw());
    this.taus = h("div", { class: "ds-table" });
    this.opener = button(
      "Open a calibrate result…",
      {
        class: "ds-button ds-opens",
        title: "calibration.parquet or .csv, as the command calibrate writes it",
      },
      () => press("ds-k-open"),
    );
    this.said = h("p", { class: "ds-banner", role: "alert", hidden: true });
    this.finds = h("div", { class: "ds-found-box", "aria-live": "polite" });
    this.errors = h("div", { class: "ds-table" });
    this.siblings = h("div", { class: "ds-table" });
    this.offline = h(
      "section",
      { class: "ds-card ds-lab", "aria-label": "A calibrate result", hidden: true },
      h(
        "header",
        {},
        h("h2", {}, "A result of calibrate"),
        (this.about = h("span", { class: "ds-soft" })),
      ),
      h("div", { class: "ds-figures" }, f.result.element, f.resultCover.element),
    );
    this.body = h(
      "div",
      { class: "ds-below" },
      h(
        "section",
        { class: "ds-card ds-lab", "aria-label": "Per depth" },
        h("header", {}, h("h2", {}, "Along the accepted text")),
        tell(
          "Observed positions only: a depth is observed when everything before it was accepted.",
        ),
        h(
          "div",
          { class: "ds-figures" },
          f.tvd.element,
          f.cover.element,
          f.wide.element,
          f.accept.element,
          f.lengths.element,
        ),
      ),
      h(
        "section",
        { class: "ds-card ds-lab", "aria-label": "Reliability" },
        h("header", {}, h("h2", {}, "Does q mean what it says?")),
        this.errors,
        h("div", { class: "ds-figures" }, f.path.element, f.step.element, f.surrogate.element),
      ),
      h(
        "section",
        { class: "ds-card ds-lab", "aria-label": "Causes of death" },
        h(
          "header",
          {},
          h("h2", {}, "Causes of death"),
          this.who,
          h("span", { class: "ds-soft" }, "click a bar for its examples"),
        ),
        h("div", { class: "ds-figures" }, f.stops.element, f.causes.element, f.sorts.element),
        this.finds,
        this.siblings,
      ),
    );
    this.reading = h("span", { class: "ds-soft", role: "status", hidden: true }, "measuring…");
    this.empty = h("p", { class: "ds-tell", role: "status" });
    this.scope = h(
      "div",
      { class: "ds-scope" },
      h(
        "section",
        { class: "ds-card ds-lab", "aria-label": "Runs" },
        h(
          "header",
          {},
          h("h2", {}, "Runs"),
          this.list,
          this.reading,
          h("span", { class: "ds-spring" }),
          this.opener,
        ),
        this.empty,
        this.said,
        this.taus,
        this.fold,
      ),
      this.offline,
      this.body,
    );
    this.body.hidden = true;
    clear(element).append(this.scope);
  }

  /** Before anything was chosen: the newest runs of this tab, up to four, or an example that ships. */
  async refresh() {
    const asked = taken("calibration");
    if (asked?.ticket) return this.add([asked.ticket]);
    if (this.begun || !this.scope.getClientRects().length) return;
    this.begun = true;
    try {
      const { runs } = await this.source.runs({ tickets: shelved().slice(0, 4) }),
        done = runs.filter((run) => run.rounds);
      if (this.choosing) return; // somebody was quicker
      if (done.length) this._take(done);
      else await this._example();
      await this.shelf.draw();
    } catch {
      this.begun = false;
      this.complain("the server did not answer");
    }
  }

  async _example() {
    const { first } = await this.source.examples({}),
      { ticket } = await this.source.example({ name: first });
    const { runs } = await this.source.runs({ tickets: ticket ? [ticket] : [] });
    if (!this.choosing) this._take(runs, ticket);
  }

  add(tickets) {
    this.begun = true;
    shelve(tickets);
    const held = this.chosen.map((run) => run.ticket).filter((ticket) => ticket !== this.example);
    return this._choose([...new Set([...held, ...tickets])].slice(-4));
  }

  /** Measure the runs of these tickets, as far as the server still has them. */
  async _choose(tickets) {
    this.choosing = tickets;
    const answer = await answered(this.source.runs({ tickets }));
    if (this.choosing !== tickets) return; // others were chosen meanwhile
    if (answer.error) return this.complain(answer.error);
    this._take(
      answer.runs.filter((run) => run.rounds),
      undefined,
      answer.runs.length < tickets.length ? "a run that was chosen is no longer on the server" : "",
    );
  }

  /** Measure these runs; `example` is the ticket of one that nobody chose, `missing` says what is not there. */
  _take(runs, example, missing) {
    Object.assign(this, { example, missing });
    this.chosen = runs.map((run, at) => ({
      ticket: run.ticket,
      title: run.method + (run.budget ? ` B ${run.budget}` : ""),
      letter: "ABCD"[at],
      prompt: run.prompt,
    }));
    this.list.replaceChildren(
      ...this.chosen.map((run) =>
        h(
          "span",
          { title: run.prompt },
          h("i", { class: "ds-letter" }, run.letter),
          run.title,
          button(
            "×",
            {
              class: "ds-small",
              "aria-label": `Leave ${run.letter} out`,
              title: "Leave this run out",
            },
            () =>
              this._choose(
                this.chosen.map((each) => each.ticket).filter((ticket) => ticket !== run.ticket),
              ),
          ),
        ),
      ),
    );
    this.empty.textContent = example
      ? `An example that ships: ${runs[0].method} on “${runs[0].prompt}”. Choose others below.`
      : runs.length
        ? ""
        : "Choose runs below.";
    this.empty.hidden = !this.empty.textContent;
    this.shelf.element.hidden = false;
    this.who.replaceChildren(
      ...this.chosen.map((run) => h("option", { value: run.letter }, `${run.letter} ${run.title}`)),
    );
    this._look();
  }

  async _look() {
    const { chosen, missing } = this;
    this.found = null;
    this._working(chosen.length > 0);
    const answer = chosen.length
      ? await answered(this.source.calibrate({ tickets: chosen.map((run) => run.ticket) }))
      : null;
    if (this.chosen !== chosen) return; // others were chosen meanwhile
    this._working(false);
    this.complain(answer?.error || missing);
    this.found = answer && !answer.error ? answer : null;
    this.body.hidden = this.taus.hidden = !this.found;
    if (this.found) this._draw();
  }

  _working(busy) {
    this.reading.hidden = !busy;
    this.scope.setAttribute("aria-busy", String(busy));
  }

  complain(sentence) {
    this.said.hidden = !sentence;
    this.said.textContent = sentence || "";
  }

  // ── drawing ────────────────────────────────────────────────────────────────────────────────

  _each(table, make) {
    return this.chosen.map((run) => ({
      name: `${run.letter} ${run.title}`,
      points: make(this.found[table].filter((row) => row.run === run.letter)),
    }));
  }

  _draw() {
    this._tau();
    this._perDepth();
    const bins = (rows) =>
      rows.map((row) => ({
        x: row.mean_q,
        y: row.share,
        low: row.share_low,
        high: row.share_high,
        words: plural(row.nodes, "node"),
      }));
    const most = (table) =>
      Math.min(
        1,
        1.05 * Math.max(0.1, ...this.found[table].flatMap((row) => [row.mean_q, row.share])),
      );
    for (const name of ["path", "step"]) {
      const top = most(name);
      this.figures[name].lines(this._each(name, bins), { x: [0, top], y: [0, top] }, ["diagonal"]);
    }
    const sums = this.found.surrogate_curve,
      top = 1.05 * Math.max(1, ...sums.flatMap((row) => [row.expected, row.accepted]));
    this.figures.surrogate.lines(
      this._each("surrogate_curve", (rows) => column(rows, "expected", "accepted", "low", "high")),
      { x: [0, top], y: [0, top] },
      ["diagonal"],
    );
    this._errors();
    this._causes();
  }

  _perDepth() {
    const deepest = Math.max(2, ...this.found.depths.map((row) => row.depth));
    const range = {
      x: [1, deepest],
      y: [0, 1],
      ticks: Array.from({ length: deepest }, (_, i) => i + 1),
    };
    this.figures.tvd.lines(
      this._each("depths", (rows) => column(rows, "depth", "tvd", "tvd_low", "tvd_high")),
      range,
    );
    this.figures.cover.lines(
      this._each("depths", (rows) => column(rows, "depth", `coverage_${this.widths.value}`)),
      range,
    );
    const was = this.deep.value || "1";
    this.deep.replaceChildren(
      ...range.ticks.map((depth) => h("option", { value: depth }, `depth ${depth}`)),
    );
    this.deep.value = Number(was) <= deepest ? was : "1";
    this._wide();
    const longest = Math.max(2, ...this.found.lengths.map((row) => row.length)),
      most = Math.max(0.1, ...this.found.lengths.map((row) => row.share));
    this.figures.lengths.lines(
      this._each("lengths", (rows) =>
        rows.map((row) => ({ x: row.length, y: row.share, words: plural(row.rounds, "round") })),
      ),
      {
        x: [1, longest],
        y: [0, most * 1.08],
        ticks: Array.from({ length: longest }, (_, i) => i + 1),
      },
    );
    this.figures.accept.lines(
      this._each("depths", (rows) =>
        column(rows, "depth", "acceptance", "acceptance_low", "acceptance_high"),
      ),
      range,
    );
  }

  _wide() {
    if (!this.found) return;
    const ks = Array.from({ length: 16 }, (_, i) => i + 1),
      depth = Number(this.deep.value);
    const points = (rows) =>
      rows
        .filter((row) => row.depth === depth)
        .flatMap((row) => ks.map((k) => ({ x: k, y: row[`coverage_${k}`] })))
        .filter((p) => typeof p.y === "number");
    this.figures.wide.lines(this._each("depths", points), {
      x: [1, 16],
      y: [0, 1],
      ticks: [1, 2, 4, 6, 8, 10, 12, 14, 16],
    });
  }

  /** The numbers to begin with: τ with its interval, and the first depth. */
  _tau() {
    const heads = [
      ["", ""],
      [
        "τ",
        "block efficiency: tokens per forward pass of the target, with its 95 % bootstrap interval",
      ],
      ["rounds", ""],
      ["TVD, depth 1", "mean with its 95 % interval"],
      ["C₁, depth 1", "p of the drafter's best token"],
      ["C₈, depth 1", "p of its eight best tokens"],
      ["ECE of path q", "how far path probabilities are from what was accepted"],
    ];
    const lines = this.chosen.map((run) => {
      const tau = this._of("tau", run),
        first = this._of("depths", run, (row) => row.depth === 1),
        error = this._of("errors", run, (row) => row.event === "path");
      const cells = [
        withInterval({ y: tau.tau, low: tau.low, high: tau.high }),
        tau.rounds ?? "–",
        withInterval({ y: first.tvd, low: first.tvd_low, high: first.tvd_high }),
        shortNumber(first.coverage_1),
        shortNumber(first.coverage_8),
        shortNumber(error.ece_mass),
      ];
      return h(
        "tr",
        {},
        h("th", {}, h("i", { class: "ds-letter" }, run.letter), run.title),
        cells.map((cell) => h("td", {}, String(cell))),
      );
    });
    this.taus.replaceChildren(
      h(
        "table",
        { "aria-label": "The runs in numbers" },
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            heads.map(([name, title]) => h("th", { title }, name)),
          ),
        ),
        h("tbody", {}, lines),
      ),
      this._savers("The runs in numbers", () =>
        this.chosen.map((run) => ({
          ...this._named(run),
          ...this._of("tau", run),
          ...this._of("depths", run, (row) => row.depth === 1),
          ...this._of("errors", run, (row) => row.event === "path"),
        })),
      ),
    );
  }

  _of(table, run, test = () => true) {
    return this.found[table].find((row) => row.run === run.letter && test(row)) || {};
  }

  _named(run) {
    return { run: run.letter, method: run.title, prompt: run.prompt };
  }

  _savers(title, records) {
    return savers(title, records, this.source);
  }

  _errors() {
    const cell = (value) => h("td", {}, shortNumber(value)),
      heads = [
        ["", ""],
        ["ECE of path q", "Σ n/N · |share − mean q|, ten bins of equal mass"],
        ["bias", "mean q − share: above 0 the drafter is overconfident"],
        ["ECE of q", "given that the parent was accepted"],
        ["bias", "mean q − share"],
        ["Σq", "mean sum of path probabilities per round"],
        ["accepted", "mean accepted nodes per round"],
        ["correlation", "of Σq and accepted nodes, over rounds"],
      ];
    const lines = this.chosen.map((run) => {
      const path = this._of("errors", run, (row) => row.event === "path"),
        step = this._of("errors", run, (row) => row.event === "step"),
        sum = this._of("surrogate", run);
      return h(
        "tr",
        {},
        h("th", {}, h("i", { class: "ds-letter" }, run.letter), run.title),
        cell(path.ece_mass),
        cell(path.bias),
        cell(step.ece_mass),
        cell(step.bias),
        cell(sum.expected),
        cell(sum.accepted),
        cell(sum.correlation),
      );
    });
    const each = (run) =>
      this.found.errors
        .filter((row) => row.run === run.letter)
        .map((row) => ({ ...this._named(run), ...row, ...this._of("surrogate", run) }));
    this.errors.replaceChildren(
      h(
        "table",
        { "aria-label": "Calibration errors" },
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            heads.map(([name, title]) => h("th", { title }, name)),
          ),
        ),
        h("tbody", {}, lines),
      ),
      this._savers("Calibration errors", () => this.chosen.flatMap(each)),
    );
  }

  _causes() {
    const run = this.chosen.find((each) => each.letter === this.who.value) || this.chosen[0];
    if (!run || !this.found) return;
    this.finding = null;
    this.finds.replaceChildren();
    for (const [name, over, unit] of [
      ["stops", "depth", "stops"],
      ["causes", "depth", "nodes"],
      ["sorts", "token_class", "stops"],
    ]) {
      const rows = this.found[name].filter((row) => row.run === run.letter),
        xs = [...new Set(rows.map((row) => row[over]))];
      if (over === "depth") xs.sort((a, b) => a - b);
      const parts = PARTS.map(([cause, style]) => ({
        name: cause,
        style,
        values: new Map(rows.filter((row) => row.cause === cause).map((row) => [row[over], row])),
      })).filter((part) => part.values.size);
      this.figures[name].stacks(parts, xs, (cause, x) => this._find(run, cause, unit, over, x));
    }
    this._siblings(run);
  }

  /** How often the target took a later sibling, and how the draft goes on behind one. */
  _siblings(run) {
    const missed = this.found.mismatches.filter((row) => row.run === run.letter),
      total = missed.reduce((sum, row) => sum + row.count, 0);
    const second = missed.filter((row) => row.rank === 2).reduce((sum, row) => sum + row.count, 0),
      held = missed.reduce((sum, row) => sum + row.drafted, 0);
    const rows = this.found.siblings.filter((row) => row.run === run.letter && row.observed);
    const words = total
      ? `At the first miss of the drafter's best token the target took its second in ${percent(second / total)} of ${total} rounds; a sibling with that token was drafted in ${percent(held / total)}.`
      : "The drafter's best token was never missed.";
    const table = h(
      "table",
      { "aria-label": "After a sibling" },
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          ["depth 2 and deeper", "observed", "accepted", "drafter's best right", "TVD"].map(
            (name) => h("th", {}, name),
          ),
        ),
      ),
      h(
        "tbody",
        {},
        rows.map((row) =>
          h(
            "tr",
            {},
            h("th", {}, row.context),
            h("td", {}, String(row.observed)),
            h("td", {}, withInterval({ y: row.acceptance, low: row.low, high: row.high })),
            h("td", {}, shortNumber(row.top1)),
            h("td", {}, shortNumber(row.tvd)),
          ),
        ),
      ),
    );
    this.siblings.replaceChildren(
      h("p", { class: "ds-tell" }, words),
      table,
      this._savers("After a sibling", () => rows.map((row) => ({ ...this._named(run), ...row }))),
    );
  }

  async _find(run, cause, unit, over, x) {
    const asked = (this.finding = { ticket: run.ticket, cause, unit, [over]: x }),
      answer = await answered(this.source.find(asked));
    if (this.finding !== asked) return; // another part was picked meanwhile, or another run
    if (answer.error) return this.complain(answer.error);
    const go = (each) =>
      goTo({
        view: "run",
        ticket: run.ticket,
        round: each.index,
        row: unit === "stops" ? -1 : each.row,
      });
    this.finds.replaceChildren(
      h(
        "h4",
        { class: "ds-sub" },
        `${cause}, ${over === "depth" ? `depth ${x}` : x}: `,
        h(
          "small",
          { class: "ds-soft" },
          `${plural(answer.examples.length, "example")}${answer.examples.length === 40 ? " (the first ones)" : ""}; each opens in Run`,
        ),
      ),
      h(
        "div",
        { class: "ds-finds" },
        answer.examples.map((each) =>
          button(
            `round ${each.round}`,
            { class: "ds-small", "aria-label": `Open round ${each.round}, node ${each.row}` },
            () => go(each),
          ),
        ),
      ),
    );
    this.finds.scrollIntoView({ block: "nearest" });
  }

  /** A result file of the calibrate command, opened. */
  result(value) {
    this.complain(value.error);
    if (value.error) return;
    this.opened = value;
    this.offline.hidden = false;
    this.about.textContent = value.about || "";
    this._result();
    this.offline.scrollIntoView({ block: "nearest" });
  }

  _result() {
    const value = this.opened;
    if (!value) return;
    const names = [...new Set(value.curves.map((row) => row.series))],
      deepest = Math.max(2, ...value.curves.map((row) => row.depth));
    const of = (y, low, high) =>
      names.map((name) => ({
        name,
        band: true,
        points: column(
          value.curves.filter((row) => row.series === name),
          "depth",
          y,
          low,
          high,
        ),
      }));
    const range = {
      x: [1, deepest],
      y: [0, 1],
      ticks: Array.from({ length: deepest }, (_, i) => i + 1),
    };
    this.figures.result.lines(of("tvd", "tvd_low", "tvd_high"), range);
    this.figures.resultCover.lines(of(`coverage_${this.resultWidths.value}`), range);
  }
}
