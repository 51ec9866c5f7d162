// Calibration: what the runs on view say about their drafters, per depth; every cause of death with
// its examples, one click from the round and the node. Numbers come from analysis only.

const PARTS = [["accepted", "accepted"], ["outranked", "outranked"], ["not drafted: pruned by budget", "pruned"], ["not drafted: outside the candidates", "outside"],
  ["not drafted: beyond the last depth", "beyond"], ["not drafted: this round drafted nothing", "nodraft"], ["unreached", "unreached"]];

class Calibration {
  constructor(element, source) {
    this.source = source;
    this.chosen = []; // {ticket, title}
    const figure = (title, help, x, y) => new Figure({ title, help, x, y });
    this.figures = {
      tvd: figure("TVD by depth", "½ Σ |q − p| at observed depths: mean ± 1.96 standard errors", "depth", "TVD"),
      cover: figure("Coverage by depth", "C_K: p of the drafter's K best tokens, mean over observed positions", "depth", "coverage"),
      accept: figure("Acceptance by depth", "accepted ÷ observed, given that the parent was accepted; Wilson's 95 % interval", "depth", "accepted"),
      path: figure("Reliability of path probability", "nodes in bins of equal mass by the product of q along the path, against the share that was accepted. Below the diagonal the drafter is overconfident", "path probability", "accepted"),
      step: figure("Reliability of q, parent accepted", "nodes whose parent was accepted, by their own q, against the share that was accepted", "q", "accepted"),
      surrogate: figure("Σq against accepted nodes", "rounds by the sum of their nodes' path probabilities, the surrogate best-first maximises, against the nodes that were accepted", "Σ q", "accepted nodes"),
      stops: figure("Why the walk ended", "one cause per round, by the depth where it ended", "depth", "share of rounds"),
      causes: figure("What became of drafted nodes", "all nodes by their depth; unreached ones are unobserved, never counted as rejected", "depth", "share of nodes"),
      sorts: figure("Why the walk ended, by sort of token", "the sort of the token that the target wanted", "token", "share of rounds"),
      result: figure("Calibrate: TVD by depth", "from a result file of `calibrate`", "depth", "TVD"),
      resultCover: figure("Calibrate: coverage by depth", "from a result file of `calibrate`", "depth", "coverage"),
    };
    this._build(element);
    this.onGoto = () => this.refresh();
    window.addEventListener("draftscope-goto", this.onGoto);
    new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && this.refresh()).observe(this.scope);
  }

  _build(element) {
    const f = this.figures, tell = (words) => h("p", { class: "ds-soft ds-tell" }, words);
    this.widths = h("select", { "aria-label": "K of coverage" }, [1, 2, 4, 8, 16].map((k) => h("option", { value: k }, `K = ${k}`)));
    this.widths.value = "8";
    this.widths.addEventListener("change", () => this.found && this._perDepth());
    f.cover.tools.prepend(this.widths);
    this.who = h("select", { "aria-label": "Run whose causes are shown" });
    this.who.addEventListener("change", () => this._causes());
    this.list = h("span", { class: "ds-chosen" });
    this.shelf = new Gallery(this.source, (tickets) => this.add(tickets), true);
    this.dialog = h("dialog", { class: "ds-help ds-shelves", "aria-label": "Choose runs" }, this.shelf.element, button("Close", { class: "ds-button" }, () => this.dialog.close()));
    this.said = h("p", { class: "ds-banner", role: "alert", hidden: true });
    this.finds = h("div", { class: "ds-found-box", "aria-live": "polite" });
    this.errors = h("div", { class: "ds-table" });
    this.siblings = h("div", { class: "ds-table" });
    this.offline = h("section", { class: "ds-card ds-lab", "aria-label": "A calibrate result", hidden: true },
      h("header", {}, h("h2", {}, "A result of calibrate"), this.about = h("span", { class: "ds-soft" })), h("div", { class: "ds-figures" }, f.result.element, f.resultCover.element));
    this.body = h("div", { class: "ds-below" },
      h("section", { class: "ds-card ds-lab", "aria-label": "Per depth" }, h("header", {}, h("h2", {}, "Along the accepted text")),
        tell("Observed positions only: a depth is observed when everything before it was accepted."),
        h("div", { class: "ds-figures" }, f.tvd.element, f.cover.element, f.accept.element)),
      h("section", { class: "ds-card ds-lab", "aria-label": "Reliability" }, h("header", {}, h("h2", {}, "Does q mean what it says?")),
        this.errors, h("div", { class: "ds-figures" }, f.path.element, f.step.element, f.surrogate.element)),
      h("section", { class: "ds-card ds-lab", "aria-label": "Causes of death" }, h("header", {}, h("h2", {}, "Causes of death"), this.who, h("span", { class: "ds-soft" }, "click a bar for its examples")),
        h("div", { class: "ds-figures" }, f.stops.element, f.causes.element, f.sorts.element), this.finds, this.siblings));
    this.reading = h("span", { class: "ds-soft", role: "status", hidden: true }, "measuring…");
    this.empty = h("p", { class: "ds-soft" }, "Choose runs: examples that ship, or runs of this tab.");
    this.scope = h("div", { class: "ds-scope" },
      h("section", { class: "ds-card ds-lab", "aria-label": "Runs" }, h("header", {}, h("h2", {}, "Runs"), this.list,
        button("Choose runs…", { class: "ds-button" }, () => this.choose()), this.reading), this.empty, this.said), this.offline, this.body, this.dialog);
    this.body.hidden = true;
    clear(element).append(this.scope);
  }

  choose() {
    this.shelf.draw().then(() => this.dialog.showModal());
  }

  /** Before anything was chosen: the newest runs of this tab, up to four. */
  async refresh() {
    const asked = window.draftscopeGoto;
    if (asked && asked.view === "calibration") {
      window.draftscopeGoto = null;
      if (asked.ticket) return this.add([asked.ticket]);
    }
    if (this.chosen.length || this.busy) return;
    const { runs } = await this.source.runs({ tickets: shelved().slice(0, 4) });
    const done = runs.filter((run) => run.rounds);
    if (done.length) this._take(done);
  }

  async add(tickets) {
    this.dialog.close();
    const held = this.chosen.map((run) => run.ticket), all = [...new Set([...held, ...tickets])].slice(-4);
    const { runs } = await this.source.runs({ tickets: all });
    shelve(tickets);
    this._take(runs.filter((run) => run.rounds));
  }

  _take(runs) {
    this.chosen = runs.map((run, at) => ({ ticket: run.ticket, title: run.method + (run.budget && run.method !== "ar" ? ` B ${run.budget}` : ""), letter: "ABCD"[at], prompt: run.prompt }));
    this.list.replaceChildren(...this.chosen.map((run) => h("span", { title: run.prompt }, h("i", { class: "ds-letter" }, run.letter), run.title,
      button("×", { class: "ds-small", "aria-label": `Leave ${run.letter} out`, title: "Leave this run out" }, () => this._take(runs.filter((each) => each.ticket !== run.ticket))))));
    this.empty.hidden = !!runs.length;
    this.who.replaceChildren(...this.chosen.map((run) => h("option", { value: run.letter }, `${run.letter} ${run.title}`)));
    this._look();
  }

  async _look() {
    this.body.hidden = !this.chosen.length;
    if (!this.chosen.length) return;
    this.busy = true;
    this.reading.hidden = false;
    this.scope.setAttribute("aria-busy", "true");
    try {
      const answer = await this.source.calibrate({ tickets: this.chosen.map((run) => run.ticket) });
      this.complain(answer.error);
      if (!answer.error) this.found = answer;
      if (!answer.error) this._draw();
    } catch (error) {
      this.complain("the server did not answer");
    }
    this.busy = false;
    this.reading.hidden = true;
    this.scope.setAttribute("aria-busy", "false");
  }

  complain(sentence) {
    this.said.hidden = !sentence;
    this.said.textContent = sentence || "";
  }

  // ── drawing ────────────────────────────────────────────────────────────────────────────────

  _each(table, make) {
    return this.chosen.map((run) => ({ name: `${run.letter} ${run.title}`, points: make(this.found[table].filter((row) => row.run === run.letter)) }));
  }

  _draw() {
    this._perDepth();
    const bins = (rows) => rows.map((row) => ({ x: row.mean_q, y: row.share, low: row.share_low, high: row.share_high, words: plural(row.nodes, "node") }));
    const most = (table) => Math.min(1, 1.05 * Math.max(0.1, ...this.found[table].flatMap((row) => [row.mean_q, row.share])));
    for (const name of ["path", "step"]) {
      const top = most(name);
      this.figures[name].lines(this._each(name, bins), { x: [0, top], y: [0, top] }, ["diagonal"]);
    }
    const sums = this.found.surrogate_curve, top = 1.05 * Math.max(1, ...sums.flatMap((row) => [row.expected, row.accepted]));
    this.figures.surrogate.lines(this._each("surrogate_curve", (rows) => column(rows, "expected", "accepted", "low", "high")), { x: [0, top], y: [0, top] }, ["diagonal"]);
    this._errors();
    this._causes();
  }

  _perDepth() {
    const deepest = Math.max(2, ...this.found.depths.map((row) => row.depth));
    const range = { x: [1, deepest], y: [0, 1], ticks: Array.from({ length: deepest }, (_, i) => i + 1) };
    this.figures.tvd.lines(this._each("depths", (rows) => column(rows, "depth", "tvd", "tvd_low", "tvd_high")), range);
    this.figures.cover.lines(this._each("depths", (rows) => column(rows, "depth", "coverage_" + this.widths.value)), range);
    this.figures.accept.lines(this._each("depths", (rows) => column(rows, "depth", "acceptance", "acceptance_low", "acceptance_high")), range);
  }

  _errors() {
    const cell = (value) => h("td", {}, shortNumber(value)), heads = [["", ""], ["ECE of path q", "Σ n/N · |share − mean q|, ten bins of equal mass"], ["bias", "mean q − share: above 0 the drafter is overconfident"], ["ECE of q", "given that the parent was accepted"], ["bias", "mean q − share"], ["Σq", "mean sum of path probabilities per round"], ["accepted", "mean accepted nodes per round"], ["correlation", "of Σq and accepted nodes, over rounds"]];
    const lines = this.chosen.map((run) => {
      const own = (table, event) => this.found[table].find((row) => row.run === run.letter && (!event || row.event === event)) || {};
      const path = own("errors", "path"), step = own("errors", "step"), sum = own("surrogate");
      return h("tr", {}, h("th", {}, h("i", { class: "ds-letter" }, run.letter), run.title), cell(path.ece_mass), cell(path.bias), cell(step.ece_mass), cell(step.bias), cell(sum.expected), cell(sum.accepted), cell(sum.correlation));
    });
    this.errors.replaceChildren(h("table", { "aria-label": "Calibration errors" }, h("thead", {}, h("tr", {}, heads.map(([name, title]) => h("th", { title }, name)))), h("tbody", {}, lines)));
  }

  _causes() {
    const run = this.chosen.find((each) => each.letter === this.who.value) || this.chosen[0];
    if (!run || !this.found) return;
    this.finds.replaceChildren();
    for (const [name, over, unit] of [["stops", "depth", "stops"], ["causes", "depth", "nodes"], ["sorts", "token_class", "stops"]]) {
      const rows = this.found[name].filter((row) => row.run === run.letter), xs = [...new Set(rows.map((row) => row[over]))];
      if (over === "depth") xs.sort((a, b) => a - b);
      const parts = PARTS.map(([cause, style]) => ({ name: cause, style, values: new Map(rows.filter((row) => row.cause === cause).map((row) => [row[over], row])) })).filter((part) => part.values.size);
      this.figures[name].stacks(parts, xs, (cause, x) => this._find(run, cause, unit, over, x));
    }
    this._siblings(run);
  }

  /** How often the target took a later sibling, and how the draft goes on behind one. */
  _siblings(run) {
    const missed = this.found.mismatches.filter((row) => row.run === run.letter), total = missed.reduce((sum, row) => sum + row.count, 0);
    const second = missed.filter((row) => row.rank === 2).reduce((sum, row) => sum + row.count, 0), held = missed.reduce((sum, row) => sum + row.drafted, 0);
    const rows = this.found.siblings.filter((row) => row.run === run.letter && row.observed);
    const words = total ? `At the first miss of the drafter's best token the target took its second in ${percent(second / total)} of ${total} rounds; a sibling with that token was drafted in ${percent(held / total)}.` : "The drafter's best token was never missed.";
    const table = h("table", { "aria-label": "After a sibling" }, h("thead", {}, h("tr", {}, ["depth 2 and deeper", "observed", "accepted", "drafter's best right", "TVD"].map((name) => h("th", {}, name)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, h("th", {}, row.context), h("td", {}, String(row.observed)), h("td", {}, withInterval({ y: row.acceptance, low: row.low, high: row.high })), h("td", {}, shortNumber(row.top1)), h("td", {}, shortNumber(row.tvd))))));
    this.siblings.replaceChildren(h("p", { class: "ds-tell" }, words), table);
  }

  async _find(run, cause, unit, over, x) {
    const answer = await this.source.find({ ticket: run.ticket, cause, unit, [over]: x }).catch(() => ({ error: "the server did not answer" }));
    if (answer.error) return this.complain(answer.error);
    const go = (each) => goTo({ view: "run", ticket: run.ticket, round: each.round, row: unit === "stops" ? -1 : each.row });
    this.finds.replaceChildren(h("h4", { class: "ds-sub" }, `${cause}, ${over === "depth" ? "depth " + x : x}: `, h("small", { class: "ds-soft" }, `${plural(answer.examples.length, "example")}${answer.examples.length === 40 ? " (the first ones)" : ""}; each opens in Run`)),
      h("div", { class: "ds-finds" }, answer.examples.map((each) => button(`round ${each.round + 1}`, { class: "ds-small", "aria-label": `Open round ${each.round + 1}, node ${each.row}` }, () => go(each)))));
    this.finds.scrollIntoView({ block: "nearest" });
  }

  /** A result file of the calibrate command, opened. */
  result(value) {
    this.complain(value.error);
    if (value.error) return;
    this.offline.hidden = false;
    this.about.textContent = value.about || "";
    const names = [...new Set(value.curves.map((row) => row.series))], deepest = Math.max(2, ...value.curves.map((row) => row.depth));
    const of = (y, low, high) => names.map((name) => ({ name, points: column(value.curves.filter((row) => row.series === name), "depth", y, low, high) }));
    const range = { x: [1, deepest], y: [0, 1] };
    this.figures.result.lines(of("tvd", "tvd_low", "tvd_high"), range);
    this.figures.resultCover.lines(of("coverage_8"), range);
  }
}
