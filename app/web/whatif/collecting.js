// The text of a run on view, collected for What-if by the server's worker.

import { Background } from "../background.js";
import { h, runName, say } from "../dom.js";
import { banner } from "../parts.js";

export class Collecting {
  /** hear: {begun() gives isWanted() of the text, asked() it is known what is collected,
   *  collected(file, title, setting, isWanted), stopped(isWanted), failed(isWanted)}. Its own
   *  sentence stands apart from those about the text on view. */
  constructor(source, hear) {
    this.source = source;
    this.hear = hear;
    this.work = new Background(source, "Collecting this run's text", {
      result: (ticket) => source.collected({ ticket }),
      done: ({ file, title, apart }) => {
        this.told.remove();
        hear.collected(file, title, { ...this.setting, apart }, this.isWanted);
      },
      complain: (sentence) => this._complain(sentence),
      stopped: () => hear.stopped(this.isWanted),
      again: () => this.begin(...this.asked),
    });
    this.said = banner();
    this.told = h("div.ds-soft.ds-tell"); // of the run, meanwhile
    this.element = this.work.element;
  }

  /** Collect the text of a run, to be shown with the run's own setting or the one that is named. */
  async begin(ticket, named) {
    this.asked = [ticket, named];
    this.isWanted = this.hear.begun();
    this.setting = null;
    const begun = await this.work.begin(this.source.collect({ ticket }));
    if (!begun) return;
    this.file = begun.file; // as What-if will know it
    this.setting = { ...begun.setting, ...named, made: begun.made };
    this._tell(begun);
    this.hear.asked();
  }

  _tell({ setting: { budget }, method, prompt, text }) {
    const run = runName({ method, budget });
    this.told.replaceChildren(h("p", `The run, ${run}: ${prompt}`), h("p", text));
    this.element.after(this.told);
  }

  /** Somebody turned to another text. */
  forget() {
    this.work.forget();
    this.said.remove();
    this.told.remove();
  }

  _complain(sentence) {
    say(this.said, sentence);
    this.forget();
    if (!sentence) return;
    this.element.after(this.said);
    this.hear.failed(this.isWanted);
  }
}
