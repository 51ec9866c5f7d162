// The sliders of a step. Each stands at one of a few values, and what the step then shows is one of
// its recorded states.

import { clear, h, slider } from "../dom.js";

export class Knobs {
  /** hear.moved(places): a slider is moved; hear.settled(): it is let go. */
  constructor(hear) {
    this.hear = hear;
    this.rows = h("div.ds-slider-rows", { role: "group", "aria-label": "Sliders" });
    this.says = h("div.ds-slider-says", { "aria-live": "polite" });
    this.element = h("div.ds-sliders", { hidden: true }, this.rows, this.says);
  }

  /** sliders: [{label, values}]; places: the number of the value that each stands at; says: the
   * paragraphs of that state. A slider under a finger stays. */
  draw(sliders, places, says) {
    this.element.hidden = !sliders.length;
    if (this.sliders !== sliders) this._build(sliders);
    this.inputs.forEach((input, at) => {
      const value = sliders[at].values[places[at]];
      input.value = places[at];
      input.setAttribute("aria-valuetext", value);
      this.outputs[at].textContent = value;
    });
    this.says.replaceChildren(...says);
  }

  _build(sliders) {
    this.sliders = sliders;
    this.inputs = sliders.map(({ label, values }) => this._input(label, values.length - 1));
    this.outputs = sliders.map(() => h("output"));
    const row = ({ label }, at) =>
      h("div.ds-slider", h("span", label), this.inputs[at], this.outputs[at]);
    clear(this.rows).append(...sliders.map(row));
  }

  _input(label, max) {
    const moved = () => this.hear.moved(this.inputs.map((i) => Number(i.value))),
      made = slider(label, [0, max, 1], moved);
    made.addEventListener("change", () => this.hear.settled());
    return made;
  }
}

/** The number of a state: the last slider's moves fastest. */
export function stateAt(sliders, places) {
  return places.reduce((number, place, at) => number * sliders[at].values.length + place, 0);
}

/** Places that are there: those of a link, or where the sliders stand at first. */
export function placesFor(sliders, wanted = []) {
  const fits = (place, { values }) =>
    Number.isInteger(place) && place >= 0 && place < values.length;
  return sliders.map((slider, at) => (fits(wanted[at], slider) ? wanted[at] : slider.start));
}
