// The text of a run on view, collected for What-if by the server's worker: progress, and Stop.

import { button, h, plural } from "../dom.js";
import { answered, Feed } from "../feed.js";

export class Collecting {
  /** hear: {collected(file, title, setting), complain(sentence)}. */
  constructor(source, hear) {
    this.source = source;
    this.hear = hear;
    this.words = h("span", {});
    this.bar = h("i", {});
    this.element = h(
      "p",
      { class: "ds-tell ds-collecting", role: "status", hidden: true },
      this.words,
      h("span", { class: "ds-progress" }, this.bar),
      button("Stop", { class: "ds-button" }, () => this.feed.halt()),
    );
    this.feed = new Feed(source, {
      model: () => {},
      rounds: () => {},
      state: (feed, ended) => this._state(feed.run, ended),
      lost: () => this._end("the work is no longer on the server"),
      silent: () => this._say("the server does not answer"),
    });
  }

  /** Collect the text of a run. */
  async begin(ticket) {
    this.hear.complain("");
    const answer = await answered(this.source.collect({ ticket }));
    if (answer.error) return this.hear.complain(answer.error);
    this.setting = answer.setting;
    this._say("waiting");
    this.feed.open(answer.ticket);
  }

  _say(words, percent = 0) {
    this.element.hidden = false;
    this.words.textContent = `Collecting this run's text: ${words}`;
    this.bar.style.width = `${percent}%`;
  }

  _end(sentence) {
    this.element.hidden = true;
    if (sentence) this.hear.complain(sentence);
  }

  _state(run, ended) {
    const [, percent] = /(\d+)%$/.exec(run.reading) ?? [];
    if (run.state === "waiting") this._say(`${plural(run.ahead, "run")} ahead`);
    else if (!ended) this._say(run.reading || "beginning", Number(percent ?? 0));
    if (run.state === "failed") this._end(run.message);
    else if (run.state === "stopped") this._end(run.message || "stopped: ask again to go on");
    else if (ended) this._collected(run.ticket);
  }

  async _collected(ticket) {
    const answer = await answered(this.source.collected({ ticket }));
    this._end(answer.error);
    if (!answer.error) this.hear.collected(answer.file, answer.title, this.setting);
  }
}
