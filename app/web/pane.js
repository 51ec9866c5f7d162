// One run's tree, or the table of its nodes, with its inspector: the whole view when it is alone, a
// part of it in a comparison.

import { button, h, plural, runName, say } from "./dom.js";
import { answered, Feed } from "./feed.js";
import { Inspector } from "./inspector.js";
import { sign, slot } from "./parts.js";
import { toolbar } from "./roving.js";
import { takeAnswer, whyNot } from "./save/files.js";
import { SaveMenu } from "./save/menu.js";
import { paper } from "./save/paper.js";
import { savePicture, servedPicture } from "./save/picture.js";
import { NodeTable } from "./table.js";
import { GHOST } from "./tree/boxes.js";
import { TreeView } from "./tree.js";
import { Trees } from "./trees.js";

const BRIEFLY = 600; // milliseconds

export class Pane {
  /** name: of its tree, the only one on the page.
   *  hear: {picked(pane), say(words), complain(sentence), …what a Feed says}. */
  constructor(letter, name, source, hear) {
    this.letter = letter;
    this.source = source;
    this.hear = hear;
    this.feed = new Feed(source, hear);
    this.trees = new Trees(source, this.feed, (error) => this._came(error));
    this.at = -1;
    this.row = null;
    this.details = new Map();
    this.shown = false;
    this.tree = new TreeView(
      name,
      (row) => this.inspect(row),
      (row) => hear.pointed(this, row ?? this.row),
      (open) => this._fold(open),
      (at) => hear.round?.(at),
    );
    this.table = new NodeTable((row) => this.inspect(row));
    this.own = new Inspector(() => this.closeInspector());
    this.inspector = this.own; // in a comparison: its part of the shared one
    this.heading = h("h2.ds-round-title", "No round yet");
    this.name = h("b.ds-run-name");
    this.sign = sign(letter);
    this.shared = h("span.ds-soft.ds-shared");
    const svg = { "aria-label": "Save the tree as SVG", title: "Download this tree as SVG" };
    this.svgButton = button("SVG", { disabled: true, ...svg }, () => this.saveDrawing());
    this.menu = new SaveMenu(this);
    this.svgButton.hidden = !source.draw;
    this.chip = h("span.ds-chip.run", { role: "status", hidden: true });
    this.away = h("p.ds-away", { hidden: true });
    this.head = toolbar(`Run ${letter}`, h("div.ds-pane-head.ds-row"));
    this.picture = h("div.ds-picture", this.tree.element, this.table.element, this.away);
    const why = { class: "ds-why-line", title: "Show the target's token in the inspector" };
    this.why = button("", { ...why, hidden: true }, () => this.inspect(GHOST));
    const sight = h("div.ds-sight", h("div.ds-why-place", this.why), this.picture),
      parts = [this.head, h("div.ds-split", sight, this.own.element), this.menu.panel];
    this.element = h("section.ds-pane", { "aria-label": `Draft tree ${letter}` }, parts);
    this.element.addEventListener("focusin", () => hear.picked(this));
    this.element.addEventListener("pointerdown", () => hear.picked(this));
  }

  get rounds() {
    return this.feed.rounds;
  }

  /** The run, and what sets it apart from another of the method beside it; one that waits has a
   *  method and no header. */
  get title() {
    const { header, run } = this.feed;
    if (!header) return run?.method ?? "";
    return runName(header) + (this.apart ? ` ${this.apart}` : "");
  }

  /** Whether there is something to see, or why there is nothing; not that a file is being read. */
  get isHere() {
    const { active, decoding, run } = this.feed,
      isComing = active && !(run.source && decoding);
    return this.shown || !(isComing || this.away.hidden);
  }

  /** How many nodes the round shown drafted. */
  get drafted() {
    return this.shown ? this.rounds[this.at].drafted : 0;
  }

  rename(letter) {
    this.letter = this.sign.textContent = letter;
    this.sign.className = `ds-letter ${slot(letter)}`;
    this.head.setAttribute("aria-label", `Run ${letter}`);
    this.element.setAttribute("aria-label", `Draft tree ${letter}`);
    this.tree.call(`run ${letter}`);
  }

  /** Without other panes beside it: its own inspector, and columns of its own. */
  alone() {
    this.spined = true;
    if (this.inspector !== this.own) this.closeInspector();
    this.inspector = this.own;
    this.tree.onMove = () => this.hear.moved?.();
    this.tree.onSize = null;
    this.tree.call();
    this.tree.reshape(null);
    if (this.tree.window.columns) this.tree.stand(null);
  }

  /** Draw the nodes as a table, or as the tree again. */
  tabulate(on) {
    const { table, tree, shown } = this,
      held = (on ? tree : table).element.contains(document.activeElement);
    table.element.hidden = !on;
    tree.element.hidden = on;
    if (on && shown) table.show(this.rounds[this.at], this.row);
    if (!on && shown) tree.frame(!tree.window.columns);
    if (held) (on ? table.stop : tree.svg)?.focus(); // what had the focus is hidden
  }

  /** Show the run of a ticket, or without one none; the one that is on view goes on. */
  open(ticket) {
    if (ticket === this.feed.ticket) return;
    this.clear();
    if (ticket) return this.feed.open(ticket);
    this.feed.leave();
    this.chip.hidden = true;
  }

  /** The tree on view with the children of these rows; null where it can only be shown whole. */
  async _fold(open) {
    if (!this.source.fold) return null;
    const { ticket } = this.feed,
      answer = await answered(this.source.fold({ ticket, round: this.at, open }));
    if (answer.error && this.feed.ticket === ticket) this.hear.complain(answer.error);
    return answer.error ? null : answer;
  }

  /** Say in the canvas what the run waits for; "": for nothing. */
  wait(words) {
    if (!this.feed.header) this.name.textContent = this.title;
    if (!words && !this.away.classList.contains("waiting")) return;
    this.away.classList.toggle("waiting", !!words);
    say(this.away, words);
  }

  clear() {
    this.details.clear();
    this.closeInspector();
    this.blank("");
    this.heading.textContent = "No round yet";
  }

  /** Nothing to draw here, and why; gives the words. */
  blank(why) {
    this.trees.forget();
    this.at = -1;
    this.row = null;
    this.shown = false;
    this.tree.clear();
    this.table.clear();
    this.closeInspector();
    this.shared.textContent = "";
    say(this.away, why);
    this.why.hidden = true;
    this.heading.textContent = this.rounds.length ? "No round here" : "No round yet";
    this.svgButton.disabled = this.menu.button.disabled = true;
    return why;
  }

  /** Trees of the run have come: more can be drawn around the one on view. */
  _came(error) {
    if (error) this.hear.complain(error);
    this.tree.grown();
  }

  /** Draw round number `at`, whose tree is here. */
  show(at) {
    const round = this.rounds[at];
    this.at = at;
    this.away.hidden = true;
    this.svgButton.disabled = this.menu.button.disabled = false;
    if (this.inspector.open) this.closeInspector();
    this.row = null;
    this.shown = true;
    const around = { rounds: this.rounds, at, sees: (...some) => this.trees.see(...some) };
    this.tree.show(round, false, this.spined && !round.lines ? around : null);
    if (!this.table.element.hidden) this.table.show(round, null);
    this._explain();
    this.heading.textContent = `Round ${at + 1} `;
    const about = [this.kind, round.fewer].filter(Boolean).join(". ");
    this.heading.append(h("small", { title: about }, this.kind));
  }

  /** Why the walk ended where it did, in a sentence from the server. */
  async _explain() {
    const at = this.at;
    const ticket = this.feed.ticket;
    this.why.classList.add("stale"); // it keeps its place: the tree below must not jump
    this.why.hidden = !this.source.why;
    // A run that is followed soon shows another round: its decoding is not held up for a sentence
    // that nobody can read.
    if (this.feed.decoding) {
      this.why.textContent = "…"; // that of another round would contradict the tree for seconds
      await new Promise((done) => setTimeout(done, BRIEFLY));
    }
    if (this.at !== at || this.feed.ticket !== ticket) return;
    const answer = this.source.why
      ? await answered(this.source.why({ ticket, round: at }))
      : { why: "" };
    if (this.at !== at || this.feed.ticket !== ticket) return;
    this.why.classList.remove("stale");
    this.why.textContent = answer.why || "";
  }

  /** The size of the shown round's draft and how much was accepted, in words. */
  get kind() {
    const round = this.rounds[this.at],
      nodes = round ? round.drafted : 0;
    return nodes ? `${round.accepted} of ${plural(nodes, "node")} accepted` : "nothing drafted";
  }

  // ── one node ───────────────────────────────────────────────────────────────────────────────

  select(row) {
    if (!this.tree.has(row)) return;
    this.row = row;
    this.tree.select(row);
    this.tree.scene.inSight();
    this.table.select(row);
    const held = document.activeElement === this.tree.svg, // whose node in hand is spoken then
      words = [held ? "" : this.tree.node(row).getAttribute("aria-label")];
    this.hear.say([...words, this.hear.pointed(this, row)].filter(Boolean).join(", "));
    if (this.inspector.open) this._detail(row);
  }

  inspect(row) {
    this.hear.picked(this, row);
    if (!this.inspector.open) this.inspector.wait("…");
    this.select(row);
  }

  async _detail(row) {
    const { at } = this,
      { ticket } = this.feed,
      key = `${ticket} ${at} ${row}`; // of a run: its answer may come when another is on view
    const wanted = () =>
      this.feed.ticket === ticket && this.at === at && this.row === row && this.inspector.open;
    if (!this.details.has(key)) {
      this.inspector.wait(this.tree.label(row));
      const answer = await answered(this.source.inspect({ ticket, round: at, row }));
      if (answer.error) return wanted() && this.inspector.complain(answer.error);
      this.details.set(key, answer);
    }
    if (!wanted()) return;
    this.inspector.show(this.details.get(key));
    this.tree.scene.inSight();
  }

  closeInspector() {
    const had = this.inspector.open && this.inspector.element.contains(document.activeElement);
    this.inspector.close();
    this.deselect();
    if (had) this.tree.svg.focus();
  }

  deselect() {
    if (this.tree.round) this.tree.select(null);
    this.table.select(null);
    this.row = null;
  }

  // ── files ──────────────────────────────────────────────────────────────────────────────────

  saveTrace() {
    return this._told(
      takeAnswer(this.source.save({ ticket: this.feed.ticket }), "application/gzip"),
    );
  }

  /** The tree with the nodes that are unfolded, drawn by the server for a paper. */
  drawing(legend) {
    const { ticket } = this.feed,
      { folded, opened } = this.tree,
      inches = paper.inches || null;
    const asked = { ticket, round: this.at, whole: !folded, open: [...opened], legend, inches };
    return servedPicture(this.source.draw(asked));
  }

  saveDrawing() {
    return this._told(this.drawing(false).then((picture) => savePicture("SVG", picture)));
  }

  _told(saved) {
    return saved.catch((error) => this.hear.complain(whyNot(error)));
  }
}
