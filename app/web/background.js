// Work of the server's worker that has no rounds: how far it is, and Stop.

import { button, h, plural } from "./dom.js";
import { answered, Feed } from "./feed.js";

export class Background {
  /** title: what is done, in words. hear: {done(ticket), complain(sentence)}: a sentence when it
   *  came to nothing, "" when it begins. */
  constructor(source, title, hear) {
    Object.assign(this, { source, title, hear });
    this.words = h("span", {});
    this.bar = h("i", {});
    this.element = h(
      "p",
      { class: "ds-tell ds-background", role: "status", hidden: true },
      this.words,
      h("span", { class: "ds-progress" }, this.bar),
      button("Stop", { class: "ds-button" }, () => this.feed.halt()),
    );
    this.feed = new Feed(source, {
      model: () => {},
      rounds: () => {},
      state: (feed, ended) => this._state(feed.run, ended),
      lost: () => this.end("the work is no longer on the server"),
      silent: () => this._say("the server does not answer"),
    });
  }

  /** Begin what a route begins; its answer, or null where it complained. */
  async begin(asked) {
    this.hear.complain("");
    const answer = await answered(asked);
    if (answer.error) {
      this.hear.complain(answer.error);
      return null;
    }
    this._say("waiting");
    this.feed.open(answer.ticket);
    return answer;
  }

  end(sentence) {
    this.element.hidden = true;
    if (sentence) this.hear.complain(sentence);
  }

  _say(words, percent = 0) {
    this.element.hidden = false;
    this.words.textContent = `${this.title}: ${words}`;
    this.bar.style.width = `${percent}%`;
  }

  _state(run, ended) {
    const [, percent] = /: (\d+)%/.exec(run.reading) ?? [];
    if (run.state === "waiting") this._say(`${plural(run.ahead, "run")} ahead`);
    else if (!ended) this._say(run.reading || "beginning", Number(percent ?? 0));
    if (run.state === "failed") this.end(run.message);
    else if (run.state === "stopped") this.end(run.message || "stopped: ask again to go on");
    else if (ended) this.hear.done(run.ticket);
  }
}
