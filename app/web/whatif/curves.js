// The results of a setting at every budget: τ, the speed that may be expected, and how long its
// rounds are. The server describes the figures; here are only the settings that are kept.

import { h, plural, shortNumber } from "../dom.js";
import { Figure } from "../figure.js";
import { action, card, opener } from "../parts.js";

const KEPT = 6; // settings kept at most

export class Curves {
  /** ask(): the curves of the setting and of those kept; open(file): of a result of cost. */
  constructor(source, ask, open) {
    this.ask = ask;
    this.tau = new Figure(source);
    this.speed = new Figure(source);
    this.lengths = new Figure(source);
    this.best = h("p.ds-tell.ds-best", { role: "status" });
    this.speed.element.append(this.best);
    const title = "What `cost --json` wrote: this machine's own times",
      about = { class: "ds-small ds-opens-cost", "aria-label": "Open a result of cost", title };
    this.speed.tools.prepend(opener("Open…", about, open));
    this.tools = this._tools();
    const shown = [this.tau, this.speed, this.lengths].map((each) => each.element);
    this.element = card("Curves", null, h("div.ds-figures", shown));
  }

  _tools() {
    const keep = (settings) => {
      this.keep(settings);
      this.said.textContent = `${plural(this.kept.length, "curve")} kept`;
    };
    this.said = h("span.ds-unseen", { role: "status" });
    const pin = action("Keep this curve", "Keep it to compare with the next setting", () =>
      keep([...this.kept, ...(this.setting ? [this.setting] : [])]),
    );
    this.forget = action("Forget kept curves", "Leave only this setting's", () => {
      keep([]);
      pin.focus(); // this button is gone
    });
    this.forget.hidden = true;
    const all = "Draw every method's curve, as it comes, beside this setting",
      others = () => this.methods.filter(({ method }) => method !== this.setting?.method),
      every = action("All methods", all, () => keep(others()));
    return [pin, every, this.forget, this.said];
  }

  /** Another text: nothing is kept. methods: those it answers for; empty: the figures without any
   *  points. */
  clear(methods, empty) {
    Object.assign(this, { kept: [], methods: usualOf(methods), empty, setting: null });
    this.forget.hidden = true;
    this.speed.element.hidden = false;
    this.blank(true);
  }

  /** Settings to compare with; of those that are equal the last, and the oldest of too many go. */
  keep(settings) {
    const by = new Map(settings.map((each) => [JSON.stringify(each), each]));
    this.kept = [...by.values()].slice(-KEPT);
    this.forget.hidden = !this.kept.length;
    this.ask();
  }

  /** The run of one setting: its place among the curves, and its lengths. */
  at(setting, budget, { tau, figures }) {
    this.setting = setting;
    this.tau.ring([{ x: budget, y: tau }]);
    this.lengths.draw(figures.lengths);
  }

  /** No answer to a setting, or (waiting) none yet: nothing of the one before may look as if it
   * were its. */
  blank(waiting) {
    this.setting = null;
    for (const name of ["tau", "speed", "lengths"]) this[name].draw(this.empty[name], waiting);
    this.best.textContent = "";
  }

  /** There are no curves of this setting. */
  none() {
    for (const name of ["tau", "speed"]) this[name].draw(this.empty[name]);
    this.best.textContent = "";
  }

  /** The curves, and what the setting costs; `of`: whose times were opened, if any were. */
  show({ figures, cost }, of) {
    this.tau.draw(figures.tau);
    this.speed.draw(figures.speed);
    this.speed.element.hidden = !cost && !of;
    const missing = of ? `This drafter was not timed in the result that is open (${of}).` : "";
    const words = cost ? said(cost, of) : missing;
    if (this.best.textContent !== words) this.best.textContent = words; // else it is spoken again
  }
}

/** The listed methods with their usual options, as settings {name, method, options}. */
function usualOf(methods) {
  return methods
    .filter(({ name }) => !name.includes("+"))
    .map(({ name, title }) => ({ name: title, method: name, options: {} }));
}

/** The budget that is best by some times. */
function said(cost, of) {
  const { speed, exact } = cost.points.find((p) => p.budget === cost.best),
    speeds = `${shortNumber(speed)} tokens/s; plain decoding ${shortNumber(cost.plain)}`,
    doubt = exact ? "" : " τ is not exact there.";
  const by = of ? "these times" : "this estimate";
  return `Best budget by ${by}: ${cost.best}, at ${speeds}.${doubt}`;
}
