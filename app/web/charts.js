// Small charts: acceptance length per round, the stage times of one round, and the run's numbers.

import { clear, duration, h, number, s, scrub } from "./dom.js";
import { entry, TAU, tile } from "./parts.js";

export const STAGES = ["draft", "build", "verify", "commit"];
const [WIDE, HIGH] = [1000, 56]; // of a chart of all rounds, in its own units
const UNTIMED = "times were not recorded";

/** Seconds of a round's stages; null where none was recorded, which is read as zeros. */
export function took({ times }) {
  return STAGES.reduce((sum, name) => sum + times[name], 0) || null;
}

export class LengthChart {
  /** Accepted nodes (filled) and the bonus token (outlined) per round; onPick(roundNumber). */
  constructor(onPick) {
    const viewBox = `0 0 ${WIDE} ${HIGH}`,
      about = { class: "ds-lengths", "aria-hidden": "true", preserveAspectRatio: "none", viewBox };
    this.svg = s("svg", about);
    this.label = h("div", { class: "ds-lengths-label" });
    this.element = h("div", { class: "ds-lengths-box" }, this.svg, this.label);
    scrub(this.svg, (share) => {
      const at = Math.floor(share * this.slots);
      if (at >= 0 && at < this.count) onPick(at);
    });
    this.here = s("rect", { class: "here", y: 0, height: HIGH });
    this.count = -1;
    this.slots = 1;
  }

  draw(rounds, current, tau) {
    if (this.count !== rounds.length || this.first !== rounds[0]) this._bars(rounds, tau);
    this.here.setAttribute("x", String(current * (WIDE / this.slots)));
    this.here.toggleAttribute("hidden", current < 0);
  }

  _bars(rounds, tau) {
    this.count = rounds.length;
    this.first = rounds[0];
    this.slots = Math.max(24, rounds.length);
    const tallest = Math.max(4, ...rounds.map((r) => r.accepted + 1));
    const step = WIDE / this.slots,
      bar = step * (this.slots > 160 ? 1 : 0.78),
      unit = (HIGH - 4) / tallest;
    const accepted = [],
      bonus = [];
    rounds.forEach((round, i) => {
      const x = (i * step + (step - bar) / 2).toFixed(2),
        w = bar.toFixed(2);
      const tall = round.accepted * unit;
      if (tall) accepted.push(`M${x} ${HIGH}v${-tall.toFixed(2)}h${w}V${HIGH}z`);
      bonus.push(`M${x} ${(HIGH - tall).toFixed(2)}v${-unit.toFixed(2)}h${w}v${unit.toFixed(2)}z`);
    });
    const line = HIGH - (tau ?? 0) * unit;
    this.here.setAttribute("width", String(step));
    this.svg.replaceChildren(
      this.here,
      s("path", { class: "accepted", d: accepted.join("") }),
      s("path", { class: "bonus", d: bonus.join("") }),
      s("path", { class: "tau", d: tau ? `M0 ${line.toFixed(2)}H${WIDE}` : "" }),
    );
    this.label.textContent = tau ? `τ ${number(tau)}` : "";
    this.label.style.top = `${Math.max(0, (line / HIGH) * 100)}%`;
  }
}

export class StageBar {
  constructor() {
    this.bar = h("div", { class: "ds-stages", role: "img", "aria-label": "no round" });
    this.key = h("div", { class: "ds-stage-key", "aria-hidden": "true" });
    this.element = h(
      "div",
      { class: "ds-stage-box", title: "stage times of the round shown" },
      this.bar,
      this.key,
    );
  }

  draw(round) {
    const { times } = round,
      total = took(round);
    clear(this.bar);
    clear(this.key);
    this.bar.hidden = total === null;
    if (total === null) return this.key.append(UNTIMED);
    this.bar.setAttribute("aria-label", STAGES.map((n) => `${n} ${duration(times[n])}`).join(", "));
    for (const name of STAGES) {
      const part = h("span", {
        class: `stage ${name}`,
        title: `${name} ${duration(times[name])}`,
      });
      part.style.flexGrow = String(times[name] / total);
      this.bar.append(part);
      this.key.append(entry(`stage ${name}`, [`${name} `, h("b", {}, duration(times[name]))]));
    }
  }
}

/** τ, tokens/s and acceptance of the sound rounds that added text, as a trace's summary has
 * them. Only rounds that were timed count in tokens/s; the prompt's own pass is timed nowhere. */
export function summarise(all) {
  const rounds = all.filter((round) => !round.faults);
  const sum = (values) => values.reduce((so, value) => so + value, 0),
    committed = (round) => round.text.filter(([, came]) => came !== "p").length;
  const ran = rounds.filter(committed),
    timed = ran.filter(took);
  const accepted = sum(ran.map((round) => round.accepted));
  return {
    tokens: sum(rounds.map((round) => round.text.length)),
    rounds: ran.length,
    tau: ran.length ? 1 + accepted / ran.length : null,
    timed: timed.length,
    speed: timed.length ? sum(timed.map(committed)) / sum(timed.map(took)) : null,
    accepted,
    drafted: sum(ran.map((round) => round.drafted)),
  };
}

/** Not the tokens/s of the command line, which are of all seconds. */
export const PACE = {
  name: "tokens/s in rounds",
  title:
    "tokens of the rounds by the seconds of their stages; the prompt's own pass with its token, " +
    "observing and drawing stand outside. `run` and `report` count those in their tokens/s",
};

/** How many rounds tokens/s are of, where it is not all of them. */
export function timedOf({ speed, timed, rounds }) {
  return speed === null || timed === rounds ? "" : ` (${timed} of ${rounds} rounds timed)`;
}

export class Tiles {
  constructor() {
    this.element = h("div", { class: "ds-tiles" });
  }

  draw(sum) {
    this.element.replaceChildren(
      tile(number(sum.tau), "τ", TAU),
      tile(sum.tokens, "tokens", "new tokens so far"),
      tile(sum.rounds, "rounds", "rounds so far: one forward pass of the target each"),
      tile(number(sum.speed, 1), PACE.name + timedOf(sum), PACE.title),
    );
  }
}
