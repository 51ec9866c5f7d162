// The bar of a text's steps: where we are, what happens there, and what it cost so far.

import { button, h, ratio, scrubber } from "../dom.js";
import { toolbar } from "../roving.js";
import { CallLanes } from "./lanes.js";
import { toldOf } from "./words.js";

/** [what a tally holds, its words, what it means] in the order of a step's tally. */
const TALLY = [
  ["plain calls", "model calls that plain denoising makes up to this step"],
  ["Spiffy calls", "model calls made up to this step"],
  ["saved", "plain calls − Spiffy calls"],
  ["NFE speedup", "plain calls ÷ Spiffy calls, up to this step"],
];

export class Guide {
  constructor(player) {
    this.player = player;
    this.lanes = new CallLanes((at) => player.go(at));
    const act = (sign, label, keys, to) =>
      button(sign, { "aria-label": label, title: `${label} (${keys})` }, to);
    this.playButton = act("▶", "Play", "space", () => player.toggle());
    this.liveButton = button(
      "Live",
      { class: "ds-live", "aria-pressed": "false", title: "Follow the run" },
      () => player.live(),
    );
    this.heading = h("h2", { class: "dn-place" });
    this.tiles = h("div", { class: "ds-tiles dn-tiles" });
    this.scrub = scrubber("Denoising step", (to) => player.go(to));
    this.same = h("p", { class: "dn-same", role: "status" });
    this.told = h("p", { class: "dn-told" });
    const back = act("‹", "Step before", "←", () => player.walk(-1));
    const on = act("›", "Step after", "→", () => player.walk(1));
    const moves = h("div", { class: "ds-transport" }, back, this.playButton, on, this.liveButton);
    const key = (name, words) =>
      h("span", { class: "entry" }, h("i", { class: `dn-key ${name}` }), words);
    this.element = h(
      "section",
      { class: "ds-card dn-guide", "aria-label": "Denoising steps" },
      h(
        "div",
        { class: "dn-bar" },
        toolbar("Step through", moves),
        this.heading,
        h("span", { class: "ds-spring" }),
        this.tiles,
      ),
      this.told,
      h("div", { class: "dn-track" }, this.lanes.element, this.scrub),
      h(
        "div",
        { class: "ds-key" },
        key("paid", "a model call's own step"),
        key("free", "✓ by an accepted draft: no call"),
        key("starts", "a new block"),
        h("span", { class: "ds-spring" }),
        this.same,
      ),
    );
  }

  /** The runs over the whole text, and whether they agree so far; `parts`: where they part. */
  draw(runs, reach, parts, unlike) {
    this.lanes.draw(runs, reach);
    const same =
      parts === null
        ? "✓ both runs unmask the same tokens at the same steps"
        : `≠ the runs part at step ${parts + 1}`;
    const words = parts === undefined ? unlike : [same, ...unlike];
    this.same.textContent = words.join("; ");
    this.same.classList.toggle("bad", typeof parts === "number");
  }

  /** Where we are; `run` is the one that drafts. */
  mark(run, reach, busy) {
    const { playing, follow, place } = this.player,
      step = run.stepAt(place);
    this.playButton.textContent = playing ? "❚❚" : "▶";
    this.playButton.setAttribute("aria-label", playing ? "Pause" : "Play");
    this.liveButton.hidden = !busy;
    this.liveButton.setAttribute("aria-pressed", String(follow));
    this.scrub.max = String(Math.max(0, reach - 1));
    this.scrub.value = String(place);
    this.scrub.disabled = reach < 2;
    if (!step) return;
    this.lanes.mark(place);
    this.scrub.setAttribute("aria-valuetext", `step ${place + 1} of ${reach}`);
    const where = `block ${step.block + 1} · call ${step.at + 1}`;
    this.heading.replaceChildren(
      `Step ${place + 1} of ${reach} `,
      h("small", {}, where + (step.free ? " · ✓ by an accepted draft" : "")),
    );
    this.told.textContent = toldOf(run, step);
    this._count(run, step);
  }

  _count(run, { tally: [calls, plain, saved, speedup] }) {
    const values = [plain, calls, saved, ratio(speedup)];
    const shown = run.drafts
      ? TALLY.map((about, at) => [values[at], ...about])
      : [[calls, "model calls", "one denoising step each"]];
    this.tiles.replaceChildren(
      ...shown.map(([value, words, title]) =>
        h("span", { class: "ds-tile", title }, h("b", {}, String(value)), h("span", {}, words)),
      ),
    );
  }
}
