// Diagnose a drafter: the verdict, the signature of every mistake, and its checkpoint.

import { Background } from "../background.js";
import { button, h, plural, shortNumber } from "../dom.js";
import { answered } from "../feed.js";
import { card, choice, optionsOf, sheet } from "../parts.js";

const ABOUT =
  "Runs the drafter on the target's own text as configured, and under every named mistake of " +
  "wiring. Explained in docs/wiring.md, as the command diagnose.";
const SHOWN = 4; // depths

export class DiagnosisCard {
  constructor(source) {
    this.source = source;
    this.work = new Background(source, "Diagnosing the drafter", {
      done: (ticket) => this._found(ticket),
      complain: (sentence) => this._complain(sentence),
    });
    this.method = choice("Drafter to diagnose", [], () => {});
    this.said = h("p", { class: "ds-banner", role: "alert", hidden: true });
    this.found = h("div", { class: "ds-findings-box", "aria-live": "polite" });
    const start = button("Diagnose", { class: "ds-button" }, () => this._begin()),
      head = [h("h2", {}, "Diagnose a drafter"), this.method, start],
      about = h("p", { class: "ds-soft ds-tell" }, ABOUT);
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

  _complain(sentence) {
    this.said.hidden = !sentence;
    this.said.textContent = sentence || "";
  }

  async _found(ticket) {
    const answer = await answered(this.source.diagnosed({ ticket }));
    this.work.end(answer.error);
    if (!answer.error) this.found.replaceChildren(...diagnosisOf(answer));
  }
}

function diagnosisOf({ method, wiring, checkpoint }) {
  const { faults, places } = wiring,
    none = `No named mistake fits better than the configuration (${plural(places, "place")}).`;
  return [
    section(`Verdict on ${method}`, faults.length ? faults : [none]),
    h("div", { class: "ds-table" }, signatures(wiring)),
    section(
      "Its checkpoint",
      checkpoint.map(({ wrong, text }) => (wrong ? `wrong: ${text}` : text)),
    ),
  ];
}

function section(title, sentences) {
  return h(
    "section",
    { class: "ds-findings" },
    h("h3", { title: "docs/wiring.md explains it" }, title),
    h("ul", {}, sentences.length ? sentences.map((each) => h("li", {}, each)) : null),
  );
}

/** The configuration first, then the mistakes from the best to the worst. */
function signatures({ configured, mistakes }) {
  const depths = configured.tvd.slice(0, SHOWN).map((_, at) => `TVD ${at + 1}`),
    ordered = [...mistakes].sort((one, other) => other.gain - one.gain);
  const line = (each) => [
    each.name,
    shortNumber(each.tau),
    each === configured || each.ratio === null ? "–" : `${shortNumber(each.ratio)}×`,
    ...depths.map((_, at) => shortNumber(each.tvd[at])),
    each.better ? "fits better" : each.unchanged ? "changes nothing" : "",
  ];
  const accepted = ["accepted", "accepted tokens, as a multiple of the configuration's"];
  const heads = ["Wired", ["τ", "of the chain of best tokens"], accepted, ...depths, ""];
  return sheet("Signatures of mistakes", heads, [configured, ...ordered].map(line));
}
