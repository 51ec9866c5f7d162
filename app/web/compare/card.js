// The card of a comparison: what the runs share and do not, their text, lanes and numbers.

import { PACE, summarise, timedOf } from "../charts.js";
import { h, number, percent, plural, tool } from "../dom.js";
import { entry, menu, sheet, sign, TAU } from "../parts.js";
import { savers } from "../save/buttons.js";
import { CAME } from "../strip.js";

const SIGN = { a: "✓ ", b: "◇ ", p: "● " };
const WHOLE = "τ, tokens/s, accepted and rounds are of the whole runs";
const HEADS = [
  "",
  ["τ", TAU],
  [PACE.name, PACE.title],
  ["accepted", "accepted nodes by drafted nodes"],
  ["rounds", "one forward pass of the target each"],
  ["this token", "how the token at this place came"],
];

export class Card {
  /** together: {panes, sides, place, strip, lanes, scrub, source}.
   * onDiffer(): to the next contrast. */
  constructor(together, onDiffer) {
    this.together = together;
    this.differ = tool("≠ next", "Next place where the acceptance differs", onDiffer, "d");
    const differs = "Places of the text where the acceptance differs";
    this.count = h("span.ds-soft", { title: differs });
    this.notes = h("ul.ds-cautions", { role: "status", hidden: true });
    this.sums = h("div", {
      class: "ds-table", // which is scrolled on a phone
      tabindex: 0,
      role: "region",
      "aria-label": "Numbers of the runs",
    });
    const { strip, lanes, scrub } = together;
    const lanesBox = h("div.ds-lanes-box", scrub, lanes.element);
    this.element = h(
      "section.ds-card.ds-compare",
      { "aria-label": "Runs on one text" },
      h("div.ds-pair", this.notes, strip.element, lanesBox, this._table()),
    );
    this.key = this._key();
  }

  /** The meanings of the lines below the tokens. */
  _key() {
    const lines = [
      ["tick", "a round begins"],
      ["solid", "accepted"],
      ["dashed", "bonus"],
    ];
    return [
      h("span", "in the text:"),
      ...lines.map(([look, words]) => entry(`ds-line ${look}`, words)),
    ];
  }

  _table() {
    const name = "Runs on one text",
      files = savers(name, () => this.records(), this.together.source);
    return h("div.ds-sums", menu(`Files: ${name}`, [files]), this.sums);
  }

  /** The numbers of the table, a line a run. */
  records() {
    const { panes, sides, place } = this.together;
    return panes.map((pane, side) => {
      const sum = summarise(pane.rounds),
        token = sides[side][place];
      return {
        run: pane.letter,
        method: pane.title,
        tau: sum.tau,
        tokens_per_second: sum.speed,
        timed: sum.timed,
        accepted: sum.accepted,
        drafted: sum.drafted,
        rounds: sum.rounds,
        place: place + 1,
        token: token ? CAME[token.came] : null,
      };
    });
  }

  draw() {
    const { panes, sides, place, unlike, parts } = this.together;
    this.differ.disabled = !unlike.some((each) => each > place);
    const isBegun = sides.some((tokens) => tokens.length);
    this.count.textContent = isBegun ? `≠ at ${plural(unlike.length, "token")}` : "";
    const rows = panes.map((pane, at) => this._row(pane, sides[at][place]));
    this.sums.replaceChildren(sheet("Runs on one text", HEADS, rows));
    this.note(parts);
  }

  _row(pane, token) {
    const sum = summarise(pane.rounds);
    return [
      [sign(pane.letter), pane.title],
      number(sum.tau),
      number(sum.speed, 1) + timedOf(sum),
      sum.drafted ? `${percent(sum.accepted / sum.drafted)} of ${sum.drafted}` : "–",
      String(sum.rounds),
      token ? `${SIGN[token.came]}${CAME[token.came]}` : "–",
    ];
  }

  /** Say plainly what cannot be compared. */
  note(parts) {
    const found = [...(this.together.cautions || [])];
    if (parts === 0)
      found.unshift(
        "the texts differ from the first token on: no two places belong together, " +
          `so only the first rounds are shown; ${WHOLE}`,
      );
    else if (parts !== null)
      found.unshift(
        `the texts differ from token ${parts + 1} on: ` +
          `only the ${plural(parts, "token")} before it ${parts === 1 ? "is" : "are"} compared; ` +
          WHOLE,
      );
    this.notes.hidden = !found.length;
    this.notes.replaceChildren(...found.map((sentence) => h("li", `⚠ ${sentence}`)));
  }
}
