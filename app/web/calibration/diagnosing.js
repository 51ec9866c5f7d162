// Diagnose a drafter: the verdict, the signature of every mistake, and its checkpoint.

import { Background } from "../background.js";
import { button, h, number, ratio, say, shortNumber } from "../dom.js";
import { answered } from "../feed.js";
import { banner, card, choice, optionsOf, sheet } from "../parts.js";

const ABOUT =
  "Runs the drafter on the target's own text as configured, and with every known mistake of " +
  "wiring. It is the command `diagnose`; docs/wiring.md explains it.";
const SHOWN = 4; // depths
const NEAREST = 8; // mistakes on view before all are asked for

export class DiagnosisCard {
  constructor(source) {
    this.source = source;
    this.work = new Background(source, "Diagnosing the drafter", {
      result: (ticket) => source.diagnosed({ ticket }),
      done: (found) => this.found.replaceChildren(...diagnosisOf(found)),
      complain: (sentence) => say(this.said, sentence),
      again: () => this._begin(),
    });
    this.method = choice("Drafter to diagnose", [], () => {});
    this.said = banner();
    this.found = h("div.ds-below", { "aria-live": "polite" });
    const start = button("Diagnose", {}, () => this._begin()),
      head = [h("h2", "Diagnose a drafter"), this.method, start],
      about = h("p.ds-soft.ds-tell", ABOUT);
    this.element = card("Diagnosis", head, about, this.work.element, this.said, this.found);
    this._list();
  }

  async _list() {
    const { methods = [] } = await answered(this.source.drafters({}));
    this.method.replaceChildren(...optionsOf(methods));
    this.element.hidden = !methods.length;
  }

  _begin() {
    this.found.replaceChildren();
    this.work.begin(this.source.diagnose({ method: this.method.value }));
  }
}

function diagnosisOf({ method, wiring, checkpoint }) {
  const { faults, notes, verdict: word } = wiring,
    said = checkpoint.map(({ wrong, text }) => (wrong ? fault(text) : text)),
    marked = wiring.said.map((text) => (faults.includes(text) ? fault(text) : text)),
    verdict = section(`Verdict on ${method}: ${word}`, marked),
    noted = notes.length ? section("What else the numbers show", notes) : null;
  return [
    h("div.ds-findings-box", h("div", verdict, noted), section("Its checkpoint", said)),
    signatures(wiring),
  ];
}

/** A sentence on what costs acceptance, marked by a word and not by colour alone. */
function fault(sentence) {
  return [h("b.ds-fault", "wrong"), ` ${sentence}`];
}

function section(title, sentences) {
  const lines = sentences.map((each) => h("li", each)),
    heading = h("h3", { title: "docs/wiring.md explains it" }, title);
  return h("section.ds-findings", heading, h("ul", lines));
}

/** The configuration first, then the mistakes from the best to the worst: the nearest, or all. */
function signatures({ configured, mistakes }) {
  const ordered = [...mistakes].sort((one, other) => other.gain - one.gain),
    place = h("div.ds-table"),
    draw = (some) => place.replaceChildren(sheetOf(configured, some)),
    all = button(`All ${ordered.length} mistakes`, {}, () => {
      draw(ordered);
      all.remove();
    }),
    few = ordered.filter((each, at) => at < NEAREST || each.better || each.unchanged);
  draw(few);
  return h("div.ds-signatures", place, few.length < ordered.length ? all : null);
}

function sheetOf(configured, mistakes) {
  const depths = configured.tvd.slice(0, SHOWN).map((_, at) => `TVD ${at + 1}`);
  const line = (each) => [
    each.name,
    number(each.tau),
    ratio(each === configured ? null : each.ratio),
    number(each === configured ? null : each.gain, 3),
    ...depths.map((_, at) => shortNumber(each.tvd[at])),
    each.places,
    each.better ? "fits better" : each.unchanged ? "changes nothing" : "",
  ];
  const there = "at the same places",
    accepted = ["accepted", `accepted tokens, as a multiple of the configuration's ${there}`],
    nearer = ["nearer", `mean TVD less than the configuration's ${there}`],
    places = ["places", "a mistake stays at those that rule it out: its τ and TVD are of these"],
    tau = ["τ", "of the chain of best tokens"],
    heads = ["Wired", tau, accepted, nearer, ...depths, places, "verdict"];
  return sheet("Signatures of mistakes", heads, [configured, ...mistakes].map(line));
}
