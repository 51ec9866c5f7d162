// The bar of a text's steps: where we are, what happens there, and what it cost so far.

import { h, ratio, scrubber, scrubTo } from "../dom.js";
import { boxAt, Lanes, startAt } from "../lanes.js";
import { entry, tile } from "../parts.js";
import { toolbar } from "../roving.js";
import { Transport } from "../transport.js";
import { toldOf } from "./words.js";

/** [what a tally holds, its words, what it means] in the order of a step's tally. */
const TALLY = [
  ["plain calls", "model calls that plain denoising makes up to this step"],
  ["Spiffy calls", "model calls made up to this step"],
  ["saved", "plain calls − Spiffy calls"],
  ["NFE speedup", "plain calls ÷ Spiffy calls, up to this step; NFE: a call of the model"],
];

export class Guide {
  constructor(player) {
    this.player = player;
    this.lanes = new Lanes((at) => player.go(at));
    this.moves = new Transport("Step", {
      step: (by) => player.walk(by),
      play: () => player.toggle(),
      live: () => player.live(),
    });
    this.heading = h("h2.dn-place.ds-cut");
    this.tiles = h("div.ds-tiles.dn-tiles");
    this.scrub = scrubber("Denoising step", (to) => player.go(to));
    this.same = h("p.dn-same", { role: "status" });
    this.told = h("p.dn-told");
    const { back, play, next, live } = this.moves,
      moves = h("div.ds-transport", back, play, next, live);
    this.element = h(
      "section.ds-card.dn-guide",
      { "aria-label": "Denoising steps" },
      h(
        "div.dn-bar.ds-row",
        toolbar("Step through", moves),
        this.heading,
        h("span.ds-spring"),
        this.tiles,
      ),
      this.told,
      h("div.dn-track", this.lanes.element, this.scrub),
      h(
        "div.ds-key",
        entry("dn-key paid", "a model call's own step"),
        entry("dn-key free", "✓ by an accepted draft: no call"),
        entry("dn-key starts", "a new block"),
        h("span.ds-spring"),
        this.same,
      ),
    );
  }

  /** The runs over the whole text, and whether they agree so far; `parts`: where they part;
   *  `ended`: all of them. */
  draw(runs, reach, parts, unlike, ended) {
    this.lanes.draw(
      reach,
      runs.map(({ name }) => h("span", name)),
      runs.map(({ steps }) => laneOf(steps)),
    );
    const both = Math.min(...runs.map(({ steps }) => steps.length)),
      isWhole = ended && both === reach,
      alike = isWhole ? "unmask the same tokens at the same steps" : "are the same so far",
      far = isWhole ? "" : `: ${both} of ${reach} steps`,
      same = parts === null ? `✓ both runs ${alike}${far}` : `≠ the runs part at step ${parts + 1}`;
    const words = parts === undefined ? unlike : [same, ...unlike];
    this.same.textContent = words.join("; ");
    this.same.classList.toggle("bad", typeof parts === "number");
  }

  /** Where we are; `run` is the one that drafts; `plain`: the one beside it, if there is one. */
  mark(run, reach, busy, plain) {
    const { playing, follow, place } = this.player,
      step = run.stepAt(place);
    this.moves.playing(playing);
    this.moves.following(busy, follow);
    scrubTo(this.scrub, place, reach, `step ${place + 1} of ${reach}`);
    if (!step) return;
    this.lanes.mark(place);
    const where = `block ${step.block + 1} · call ${step.at + 1}`;
    this.heading.replaceChildren(
      `Step ${place + 1} of ${reach} `,
      h("small", where + (step.free ? " · ✓ by an accepted draft" : "")),
    );
    this.told.textContent = toldOf(run, step);
    this._count(run, step, !plain || plain.steps.length > place);
  }

  /** isMade: the plain run beside it, if there is one, has come so far. */
  _count(run, { tally: [calls, plain, saved, speedup] }, isMade) {
    const values = isMade ? [plain, calls, saved, ratio(speedup)] : ["–", calls, "–", "–"];
    const shown = run.drafts
      ? TALLY.map((about, at) => [values[at], ...about])
      : [[calls, "model calls", "one denoising step each"]];
    this.tiles.replaceChildren(...shown.map((each) => tile(...each)));
  }
}

/** The lane of a run: its steps, filled where an accepted draft saved the call, and where calls and
 * blocks begin. */
function laneOf(steps) {
  const [paid, free, calls, blocks] = [[], [], [], []];
  steps.forEach((step, at) => {
    (step.free ? free : paid).push(boxAt(at));
    if (!step.k) calls.push(startAt(at));
    if (at && steps[at - 1].block !== step.block) blocks.push(`M${at} 0v20`);
  });
  return [
    ["paid", paid],
    ["free", free],
    ["starts", calls],
    ["blocks", blocks],
  ];
}
