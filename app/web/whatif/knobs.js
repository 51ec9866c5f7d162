// The knobs of a method: the draft budget, and each option with its own range and step.

import { h, slider } from "../dom.js";

const BUDGETS = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024];
const USUAL = 16;

export class Knobs {
  /** onTurn(curve): something was turned; `curve`: not only the budget. */
  constructor(onTurn) {
    this.onTurn = onTurn;
    this.element = h("div.ds-knobs");
    this.budget = USUAL;
  }

  /** Another method's knobs, at their usual places unless `options` says others; the budget
   * stays. */
  show(method, options) {
    this.method = method;
    this.values = valuesOf(method, options);
    this.budget = BUDGETS.find((stop) => stop >= this.budget);
    this.element.replaceChildren(
      this._budget(),
      ...method.knobs.map((knob) => (knob.flag ? this._flag(knob) : this._number(knob))),
    );
  }

  /** The method with its options, and what it is called: with those that are not as usual. */
  get setting() {
    return settingOf(this.method, this.values);
  }

  _set(name, value) {
    this.values[name] = value;
    this.onTurn(true);
  }

  _budget() {
    const label = "draft budget B",
      output = h("output", String(this.budget)),
      range = [0, BUDGETS.length - 1, 1],
      shown = (at) => BUDGETS[at];
    const input = knobSlider(label, range, BUDGETS.indexOf(this.budget), shown, (at) => {
      this.budget = BUDGETS[at];
      output.textContent = String(this.budget);
      this.onTurn(false);
    });
    const ends = h("small.ds-bounds", `${BUDGETS[0]} to ${BUDGETS.at(-1)}`);
    return h("label.ds-knob", h("span", label, output), input, ends);
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
      value: this.values[knob.name],
      "aria-label": `${knob.label}, as a number`,
    });
    const turned = (at) => {
      number.value = shown(at);
      this._set(knob.name, shown(at));
    };
    const input =
      knob.slider &&
      knobSlider(knob.label, knob.slider, placeOf(this.values[knob.name]), shown, turned);
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
    return h("div", about, h("span", knob.label, number), input, bounds(knob));
  }

  _flag(knob) {
    const input = h("input", { type: "checkbox" });
    input.checked = this.values[knob.name];
    input.addEventListener("change", () => this._set(knob.name, input.checked));
    return h("label.ds-knob", { title: knob.help }, h("span", knob.label), input);
  }
}

/** Where a method's knobs stand: at their usual places, but for `options`, which an address may
 *  hold and whoever wrote it is not believed. */
function valuesOf({ knobs }, options) {
  const own = ({ name, value }) => {
    const given = options && Object.hasOwn(options, name) ? options[name] : value;
    return [name, typeof given === typeof value ? given : value];
  };
  return Object.fromEntries(knobs.map(own));
}

/** The options that are not as usual. */
export function changedOf({ knobs }, options) {
  const changed = knobs.filter(({ name, value }) => options[name] !== value);
  return Object.fromEntries(changed.map(({ name }) => [name, options[name]]));
}

/** A method with options, and what it is called: with those that are not as usual. */
export function settingOf(method, given) {
  const options = valuesOf(method, given),
    changed = Object.entries(changedOf(method, options)).map((each) => each.join(" "));
  return { name: [method.title, ...changed].join(", "), method: method.name, options };
}

/** An option's range and step in words: what the number takes. */
function bounds({ min, max, step, log }) {
  const range = max === null ? `${min} or more` : `${min} to ${max}`,
    by = log ? "by powers of ten" : `by ${step}`;
  return h("small.ds-bounds", `${range}, ${by}`);
}

/** A slider whose places stand for other values. */
function knobSlider(label, range, value, shown, turned) {
  const move = (now) => {
    input.setAttribute("aria-valuetext", String(shown(now)));
    turned(now);
  };
  const input = slider(label, range, move, { value, "aria-valuetext": String(shown(value)) });
  return input;
}
