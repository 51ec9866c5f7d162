// The text of a run on view, collected for What-if by the server's worker.

import { Background } from "../background.js";
import { h } from "../dom.js";
import { answered } from "../feed.js";

export class Collecting {
  /** hear: {begun(), collected(file, title, setting), failed()}. Its own sentence stands apart from
   *  those about the text on view. */
  constructor(source, hear) {
    this.source = source;
    this.hear = hear;
    this.work = new Background(source, "Collecting this run's text", {
      done: (ticket) => this._collected(ticket),
      complain: (sentence) => this._complain(sentence),
    });
    this.said = h("p", { class: "ds-banner", role: "alert" });
    this.element = this.work.element;
  }

  /** Collect the text of a run, to be shown with the run's own setting or the one that is named. */
  async begin(ticket, named) {
    this.hear.begun();
    const begun = await this.work.begin(this.source.collect({ ticket }));
    if (begun) this.setting = { ...begun.setting, ...named, made: begun.made };
  }

  /** Somebody turned to another text. */
  forget() {
    this.said.remove();
  }

  _complain(sentence) {
    this.said.textContent = sentence;
    if (!sentence) return this.forget();
    this.element.after(this.said);
    this.hear.failed();
  }

  async _collected(ticket) {
    const answer = await answered(this.source.collected({ ticket }));
    this.work.end(answer.error);
    if (answer.error) return;
    const { file, title, apart } = answer;
    this.hear.collected(file, title, { ...this.setting, apart });
  }
}
