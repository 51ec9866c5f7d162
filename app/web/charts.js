// Small charts: acceptance length per round, the stage times of one round, and the run's numbers.

import { clear, duration, h, number, s, scrub } from "./dom.js";
import { entry, TAU, tile } from "./parts.js";

export const STAGES = ["draft", "build", "verify", "commit"];
export const HIGH = 56; // of a chart of lengths, in its own units
const UNTIMED = "times were not recorded";

/** Seconds of a round's stages; null where none was recorded, which is read as zeros. */
export function took({ times }) {
  return STAGES.reduce((sum, name) => sum + times[name], 0) || null;
}

/** Stacked bars of a run's rounds, and which of them is in hand. */
export class RoundBars {
  /** look: the drawing's; parts: the looks of the parts of a bar, from below; height: of the
   *  drawing, in units of its own; onPick(round, event); about: its further attributes. */
  constructor(look, parts, height, onPick, about) {
    Object.assign(this, { parts, height, count: -1, slots: 1, least: 24 });
    this.svg = s("svg", { class: `ds-bars ${look}`, preserveAspectRatio: "none", ...about });
    scrub(this.svg, (share, _, event) => {
      const at = Math.floor(share * this.slots);
      if (at >= 0 && at < this.count) onPick(at, event);
    });
    this.here = s("rect.here", { y: 0, width: 1, height });
    this.chosen = s("path.chosen");
  }

  /** Whether these are other rounds than those that are drawn. */
  lacks(rounds) {
    return this.count !== rounds.length || this.first !== rounds[0];
  }

  /** sizes(round): of the parts of its bar; more: what is drawn over all bars. */
  draw(rounds, sizes, ...more) {
    Object.assign(this, { count: rounds.length, first: rounds[0] });
    this.slots = Math.max(this.least, rounds.length);
    const wide = this.slots > 160 ? 1 : 0.8,
      strokes = this.parts.map(() => []);
    rounds.forEach((round, at) => {
      const left = (at + (1 - wide) / 2).toFixed(2);
      let y = this.height;
      sizes(round).forEach((tall, part) => {
        const sides = `v${(-tall).toFixed(2)}h${wide}v${tall.toFixed(2)}z`;
        if (tall > 0.05) strokes[part].push(`M${left} ${y.toFixed(2)}${sides}`);
        y -= tall;
      });
    });
    const bars = strokes.map((d, part) => s("path", { class: this.parts[part], d: d.join("") }));
    this.svg.setAttribute("viewBox", `0 0 ${this.slots} ${this.height}`);
    this.svg.replaceChildren(this.chosen, this.here, ...bars, ...more);
  }

  mark(current) {
    this.here.setAttribute("x", String(current));
    this.here.toggleAttribute("hidden", current < 0);
  }

  /** Mark rounds that are selected. */
  choose(numbers) {
    this.chosen.setAttribute("d", numbers.map((at) => `M${at} 0h1v${this.height}h-1z`).join(""));
  }
}

export class LengthChart {
  /** Accepted nodes (filled) and the bonus token (outlined) per round; onPick(round, event). */
  constructor(onPick) {
    const about = { "aria-hidden": "true" };
    this.bars = new RoundBars("ds-lengths", ["accepted", "bonus"], HIGH, onPick, about);
    this.label = h("div.ds-lengths-label");
    this.element = h("div.ds-lengths-box", this.bars.svg, this.label);
  }

  draw(rounds, tau) {
    const tallest = Math.max(4, ...rounds.map((r) => r.accepted + 1)),
      unit = (HIGH - 4) / tallest,
      line = HIGH - (tau ?? 0) * unit,
      d = tau ? `M0 ${line.toFixed(2)}H${Math.max(this.bars.least, rounds.length)}` : "";
    this.bars.draw(rounds, (r) => [r.accepted * unit, unit], s("path.tau", { d }));
    this.label.textContent = tau ? "τ" : ""; // its value is a tile beside it
    this.label.style.top = `${Math.max(0, (line / HIGH) * 100)}%`;
  }
}

export class StageBar {
  constructor() {
    this.bar = h("div.ds-stages", { role: "img", "aria-label": "no round" });
    this.key = h("div.ds-stage-key", { "aria-hidden": "true" });
    const about = { title: "stage times of the round shown" };
    this.element = h("div.ds-stage-box", about, this.bar, this.key);
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
      const title = `${name} ${duration(times[name])}`,
        part = h("span", { class: `stage ${name}`, title });
      part.style.flexGrow = String(times[name] / total);
      this.bar.append(part);
      this.key.append(entry(`stage ${name}`, [`${name} `, h("b", duration(times[name]))]));
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
    "tokens of the rounds by the seconds of their stages. The prompt's own pass and its token " +
    "are not counted; in the tokens/s of `run` and `report` they are",
};

/** How many rounds tokens/s are of, where it is not all of them. */
export function timedOf({ speed, timed, rounds }) {
  return speed === null || timed === rounds ? "" : ` (${timed} of ${rounds} rounds timed)`;
}

export class Tiles {
  constructor() {
    this.element = h("div.ds-tiles");
  }

  draw(sum) {
    this.element.replaceChildren(
      tile(number(sum.tau), "τ", TAU),
      tile(sum.tokens, "tokens", "new tokens"),
      tile(sum.rounds, "rounds", "one forward pass of the target each"),
      tile(number(sum.speed, 1), PACE.name + timedOf(sum), PACE.title),
    );
  }
}
