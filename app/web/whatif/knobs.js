// The knobs of a method: the draft budget, and each option with its own range and step.

import { h } from "../dom.js";

const BUDGETS = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024];
const USUAL = 16;

export class Knobs {
  /** onTurn(curve): something was turned; `curve`: not only the budget. */
  constructor(onTurn) {
    this.onTurn = onTurn;
    this.element = h("div", { class: "ds-knobs" });
    this.budget = USUAL;
  }

  /** Another method's knobs, at their usual places; the budget stays. */
  show(method) {
    this.method = method;
    this.values = Object.fromEntries(method.knobs.map((knob) => [knob.name, knob.value]));
    this.budget = BUDGETS.find((stop) => stop >= this.budget);
    this.element.replaceChildren(
      this._budget(),
      ...method.knobs.map((knob) => (knob.flag ? this._flag(knob) : this._number(knob))),
    );
  }

  /** The method with its options, and what it is called: with those that are not as usual. */
  get setting() {
    const changed = this.method.knobs
      .filter(({ name, value }) => this.values[name] !== value)
      .map(({ name }) => `${name} ${this.values[name]}`);
    const name = [this.method.title, ...changed].join(", ");
    return { name, method: this.method.name, options: { ...this.values } };
  }

  _set(name, value) {
    this.values[name] = value;
    this.onTurn(true);
  }

  _budget() {
    const label = "draft budget B",
      output = h("output", {}, String(this.budget)),
      range = [0, BUDGETS.length - 1, 1],
      shown = (at) => BUDGETS[at];
    const input = slider(label, range, BUDGETS.indexOf(this.budget), shown, (at) => {
      this.budget = BUDGETS[at];
      output.textContent = String(this.budget);
      this.onTurn(false);
    });
    const ends = h("small", { class: "ds-bounds" }, `${BUDGETS[0]} to ${BUDGETS.at(-1)}`);
    return h("label", { class: "ds-knob" }, h("span", {}, label, output), input, ends);
  }

  /** A slider over the part of a range where people turn, and a number that takes all of it. */
  _number(knob) {
    const shown = knob.log ? (place) => Number(`1e${place}`) : (value) => value,
      placeOf = knob.log ? Math.log10 : (value) => value;
    const number = h("input", {
      type: "number",
      min: knob.min,
      max: knob.max,
      step: knob.log ? "any" : knob.step,
      value: knob.value,
      "aria-label": `${knob.label}, as a number`,
    });
    const turned = (at) => {
      number.value = shown(at);
      this._set(knob.name, shown(at));
    };
    const input =
      knob.slider && slider(knob.label, knob.slider, placeOf(knob.value), shown, turned);
    number.addEventListener("change", () => {
      if (number.value === "") number.value = this.values[knob.name];
      const value = Number(number.value);
      if (input) {
        input.value = placeOf(value);
        input.setAttribute("aria-valuetext", String(value));
      }
      this._set(knob.name, value);
    });
    const about = { class: "ds-knob", title: knob.help };
    return h("div", about, h("span", {}, knob.label, number), input, bounds(knob));
  }

  _flag(knob) {
    const input = h("input", { type: "checkbox" });
    input.checked = knob.value;
    input.addEventListener("change", () => this._set(knob.name, input.checked));
    return h("label", { class: "ds-knob", title: knob.help }, h("span", {}, knob.label), input);
  }
}

/** An option's range and step in words: what the number takes. */
function bounds({ min, max, step, log }) {
  const range = max === null ? `${min} or more` : `${min} to ${max}`,
    by = log ? "by powers of ten" : `by ${step}`;
  return h("small", { class: "ds-bounds" }, `${range}, ${by}`);
}

function slider(label, [min, max, step], value, shown, turned) {
  const about = { type: "range", min, max, step, value, "aria-label": label };
  const input = h("input", { ...about, "aria-valuetext": String(shown(value)) });
  input.addEventListener("input", () => {
    const now = Number(input.value);
    input.setAttribute("aria-valuetext", String(shown(now)));
    turned(now);
  });
  return input;
}
