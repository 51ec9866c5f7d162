// Buttons that step, play and follow a run.

import { button, tool } from "./dom.js";

export class Transport {
  /** word: a step's; act: {step(by), play(), live()}, the last only where a run may go on. */
  constructor(word, act) {
    this.back = tool("‹", `${word} before`, () => act.step(-1), "←");
    this.play = tool("▶", "Play", () => act.play(), "space");
    this.next = tool("›", `${word} after`, () => act.step(1), "→");
    const live = { class: "ds-live", "aria-pressed": "true", title: "Follow the run" };
    this.live = button("Live", live, () => act.live());
  }

  playing(on) {
    this.play.textContent = on ? "❚❚" : "▶";
    this.play.setAttribute("aria-label", on ? "Pause" : "Play");
  }

  /** Whether a run goes on, and is followed. */
  following(busy, isFollowed) {
    this.live.hidden = !busy;
    this.live.setAttribute("aria-pressed", String(isFollowed));
  }
}
