// Work of the server's worker that has no rounds: how far it is, and Stop.

import { button, h } from "./dom.js";
import { answered, Feed, letGo } from "./feed.js";
import { waitingFor } from "./status.js";
import { Turns } from "./turns.js";

export class Background {
  /** title: what is done, in words. hear: {result(ticket) asks what finished work made,
   *  done(result), complain(sentence): a sentence when it came to nothing, "" when it begins,
   *  stopped() by somebody here, again() begin what was stopped}. */
  constructor(source, title, hear) {
    Object.assign(this, { source, title, hear, turns: new Turns() });
    this.words = h("span");
    this.bar = h("i");
    this.act = button("Stop", {}, () => this._pressed());
    const parts = [this.words, h("span.ds-progress", this.bar), this.act];
    this.element = h("p.ds-tell.ds-row.ds-background", { role: "status", hidden: true }, parts);
    this.feed = new Feed(source, {
      model: () => {},
      rounds: () => {},
      state: (feed, ended) => this._state(feed.run, ended),
      lost: () => this._end("the work is no longer on the server"),
      silent: (why) => this._say(why),
    });
  }

  /** Begin what a route begins, in the place of what was begun before; its answer, or null where
   *  it complained, or other work was begun meanwhile. */
  async begin(asked) {
    const isWanted = this.turns.take();
    this.feed.leave();
    this._end("");
    const answer = await answered(asked),
      { ticket, error } = answer;
    if (!isWanted()) {
      if (ticket) letGo(this.source, ticket);
      return null;
    }
    if (error) {
      this.hear.complain(error);
      return null;
    }
    this.act.textContent = "Stop";
    this._say("waiting");
    this.feed.open(ticket);
    return answer;
  }

  _pressed() {
    if (!this.feed.active) return this.hear.again();
    this.feed.halt();
    this.isStopping = true; // to be seen at once: the worker may be in the middle of something
    this._say("stopping");
  }

  /** Somebody turned to something else: what was stopped is not offered any more. */
  forget() {
    if (!this.feed.active) this.element.hidden = true;
  }

  _stopped() {
    this.act.textContent = "Begin again";
    this._say("stopped");
    this.hear.stopped?.();
  }

  async _done(ticket) {
    const isWanted = this.turns.take(),
      answer = await answered(this.hear.result(ticket));
    if (!isWanted()) return;
    this._end(answer.error ?? "");
    if (!answer.error) this.hear.done(answer);
  }

  _end(sentence) {
    this.element.hidden = true;
    this.hear.complain(sentence);
  }

  _say(words, percent = 0) {
    this.element.hidden = false;
    this.words.textContent = `${this.title}: ${words}`;
    this.bar.style.width = `${percent}%`;
  }

  _state(run, ended) {
    const [, percent] = /: (\d+)%/.exec(run.reading) ?? [];
    if (this.feed.active && this.isStopping) return;
    this.isStopping = false;
    if (run.state === "waiting") this._say(waitingFor(run));
    else if (!ended) this._say(run.reading || "beginning", Number(percent ?? 0));
    if (run.state === "failed") this._end(run.message);
    else if (run.state === "stopped") run.message ? this._end(run.message) : this._stopped();
    else if (ended) this._done(run.ticket);
  }
}
