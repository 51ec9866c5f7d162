// The examples that ship: both runs of a prompt side by side, or each alone. And the view before
// there is a run.

import { h, plural } from "../dom.js";
import { Gallery } from "../gallery.js";
import { emptyView } from "../studio/shelf.js";
import { wordList } from "./words.js";

const EMPTY = [
  "A block being denoised, call by call",
  "A diffusion model starts from masked positions and unmasks the surest ones, step by step. " +
    "Spiffy drafts the states a block may reach, runs them in the same model call, and every " +
    "draft the model's own steps lead through saves a call: the text stays the same.",
  "Write a prompt and press Start, or open a run that was recorded.",
];

export class DenoiseShelf extends Gallery {
  constructor(source, onPick, picking, complain) {
    super(source, onPick, false, picking);
    this.complain = complain;
  }

  async _ask(name, asked) {
    if (name === "runs") return {}; // those of Run and Compare are not to be opened here
    const answer = await super._ask(name, asked);
    if (name === "example" && !answer.ticket)
      this.complain(answer.error || "the example could not be opened");
    return answer;
  }

  /** Both runs of a prompt side by side first, then each alone. */
  _prompt({ topic, prompt, runs }) {
    const plain = runs.find((run) => run.method === "denoise");
    const card = (title, words, some) =>
      this._card(title, words, `${title}: ${prompt}`, () =>
        this._examples(some.map((run) => run.name)),
      );
    const pairs = plain
      ? runs
          .filter((run) => run !== plain)
          .map((run) =>
            card(
              "Plain and Spiffy, side by side",
              `${plain.rounds} model calls against ${run.rounds}`,
              [run, plain],
            ),
          )
      : [];
    return this._section(topic[0].toUpperCase() + topic.slice(1), prompt, [
      ...pairs,
      ...runs.map((run) => card(run.title, plural(run.rounds, "model call"), [run])),
    ]);
  }
}

/** The view before there is a run. */
export function emptyDenoise(gallery) {
  const waits = h("p", { class: "ds-away waiting" });
  return h("div", { class: "ds-card dn-empty" }, emptyView(EMPTY, gallery), wordList(), waits);
}
