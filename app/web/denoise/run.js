// A run on view: its calls as they come, and their steps.

import { h } from "../dom.js";
import { Feed } from "../feed.js";
import { action } from "../parts.js";
import { takeAnswer, whyNot } from "../save/files.js";
import { stepsOf } from "./steps.js";

export class DenoiseRun {
  /** complain(sentence): says what went wrong. */
  constructor(letter, source, hear, complain) {
    Object.assign(this, { letter, complain });
    this.feed = new Feed(source, hear(this));
    this.steps = [];
    this.chip = h("span.ds-chip.run", { role: "status", hidden: true });
    this.save = action("Save trace", "Download this run as .jsonl.gz", () => this._save(source));
  }

  get calls() {
    return this.feed.rounds;
  }

  get header() {
    return this.feed.header;
  }

  get drafts() {
    return Boolean(this.header?.drafts);
  }

  /** It was opened, and its first news or a file's calls are on their way. */
  get opens() {
    const { run, active } = this.feed;
    return active && !this.steps.length && (!run.source || run.source === "file");
  }

  /** Before its first call a run is called by what was asked for. */
  get name() {
    const drafts = this.header ? this.drafts : this.feed.made?.graph;
    return drafts === undefined ? `run ${this.letter}` : drafts ? "Spiffy" : "Plain";
  }

  get title() {
    return this.header ? this.header.title : "–";
  }

  /** The step at a place of the text, or the last one; undefined before the first. */
  stepAt(place) {
    return this.steps[Math.max(0, Math.min(place, this.steps.length - 1))];
  }

  /** The rest of the ranking before a step's call: its drafts are read from that. */
  known(step) {
    const call = this.calls[step.at],
      before = this.calls[step.at - 1];
    if (!call.drafted || before?.block !== call.block) return null;
    const last = before.steps[before.steps.length - 1];
    return { rows: last.ranking.slice(last.count), labels: before.ranked };
  }

  async _save(source) {
    const asked = source.save({ ticket: this.feed.ticket });
    await takeAnswer(asked, "application/gzip").catch((error) => this.complain(whyNot(error)));
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
