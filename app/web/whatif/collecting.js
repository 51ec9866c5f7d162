// The text of a run on view, collected for What-if by the server's worker.

import { Background } from "../background.js";
import { answered } from "../feed.js";

export class Collecting {
  /** hear: {collected(file, title, setting), complain(sentence)}. */
  constructor(source, hear) {
    this.source = source;
    this.hear = hear;
    this.work = new Background(source, "Collecting this run's text", {
      done: (ticket) => this._collected(ticket),
      complain: hear.complain,
    });
    this.element = this.work.element;
  }

  /** Collect the text of a run. */
  async begin(ticket) {
    const begun = await this.work.begin(this.source.collect({ ticket }));
    if (begun) this.setting = begun.setting;
  }

  async _collected(ticket) {
    const answer = await answered(this.source.collected({ ticket }));
    this.work.end(answer.error);
    if (!answer.error) this.hear.collected(answer.file, answer.title, this.setting);
  }
}
