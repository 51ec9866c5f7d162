// Making elements. Text only ever becomes a text node, attributes come from a list that cannot
// execute: there is no innerHTML, no style or event attribute and no link in the whole view.

const REST = 450; // milliseconds, sooner than a browser selects words
const STILL = 8; // pixels that a resting finger may move
export const SVG_NS = "http://www.w3.org/2000/svg";
/** Those of a drawing. */
export const SVG_ATTRIBUTES = new Set(
  (
    "d x y x1 x2 y1 y2 cx cy r rx width height viewBox transform preserveAspectRatio " +
    "text-anchor pathLength"
  ).split(" "),
);
const HTML_ATTRIBUTES = new Set(
  (
    "class id role type min max step value title tabindex hidden disabled for name placeholder " +
    "autocomplete spellcheck maxlength open dir"
  ).split(" "),
);
const FREE = /^(aria-[a-z]+|data-[a-z-]+)$/;

function isSafe(name) {
  return HTML_ATTRIBUTES.has(name) || SVG_ATTRIBUTES.has(name) || FREE.test(name);
}

export function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (!isSafe(name)) throw new Error(`attribute not allowed: ${name}`);
    if (value !== null && value !== undefined && value !== false) {
      node.setAttribute(name, value === true ? "" : String(value));
    }
  }
  for (const child of children.flat(Number.POSITIVE_INFINITY)) {
    if (child === null || child === undefined) continue;
    node.appendChild(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

/** An HTML element with the classes behind its name: h("p.note", {id: "said"}, "text", child). */
export function h(tag, ...parts) {
  return made(tag, parts, (name) => document.createElement(name));
}

/** An SVG element. */
export function s(tag, ...parts) {
  return made(tag, parts, (name) => document.createElementNS(SVG_NS, name));
}

/** parts: attributes, if there are any, and children. */
function made(tag, parts, make) {
  const [name, ...looks] = tag.split("."),
    node = make(name),
    hasAttributes = parts[0]?.constructor === Object;
  if (looks.length) node.setAttribute("class", looks.join(" "));
  return fill(node, hasAttributes ? parts[0] : {}, hasAttributes ? parts.slice(1) : parts);
}

/** Words in a drawing; they begin at x, unless an anchor says "middle" or "end". */
export function words(look, x, y, text, anchor = null) {
  return s("text", { class: look, x, y, "text-anchor": anchor }, text);
}

/** label: words, an element, or a list of them. */
export function button(label, attributes, act) {
  const made = h("button", { type: "button", ...attributes }, label);
  made.addEventListener("click", act);
  return made;
}

/** A button with a sign on it, which its label says in words; keys: those that do the same. */
export function tool(sign, label, act, keys = "") {
  const title = keys ? `${label} (${keys})` : label;
  return button(sign, { "aria-label": label, title }, act);
}

/** Say a sentence where it has its place; without one the element goes. */
export function say(element, sentence) {
  element.hidden = !sentence;
  element.textContent = sentence || "";
}

/** The same in a live region, which is not to speak where the focus stands within `place`: what has
 *  the focus is spoken by itself. */
export function sayBeside(place, element, sentence) {
  element.setAttribute("aria-live", place.contains(document.activeElement) ? "off" : "polite");
  element.textContent = sentence;
}

function isFar(from, to) {
  return Math.hypot(to.clientX - from.clientX, to.clientY - from.clientY) > STILL;
}

/** Press or drag over a picture: onShare(how far across and down it the pointer is, 0 to 1, the
 * event). A finger that came down may rest: it presses when it leaves, and drags once it moves. */
export function scrub(picture, onShare) {
  let finger = null;
  const pick = (event) => {
    const box = picture.getBoundingClientRect();
    const [across, down] = [event.clientX - box.left, event.clientY - box.top];
    onShare(across / box.width, down / box.height, event);
  };
  picture.addEventListener("pointerdown", (event) => {
    picture.setPointerCapture(event.pointerId);
    finger = event.pointerType === "touch" ? event : null;
    if (!finger) pick(event);
  });
  picture.addEventListener("pointermove", (event) => {
    if (!event.buttons || (finger && !isFar(finger, event))) return;
    finger = null;
    pick(event);
  });
  picture.addEventListener("pointerup", (event) => finger && pick(event));
  onRest(picture, pick);
}

/** Shift over a row of things: a press extends from the one in hand, a drag from where it began.
 * here(): the one in hand; onRange(from, to). Gives a function of a thing and its event: whether
 * that was a range. */
export function ranging(here, onRange) {
  let began = null,
    last = null;
  return (at, { type, shiftKey }) => {
    const isDrag = type === "pointermove";
    if (!isDrag) began = shiftKey ? at : null;
    if (began === null) return false;
    if (!isDrag || at !== last) onRange(isDrag ? began : here(), at);
    last = at;
    return true;
  };
}

/** A finger that rests presses as Shift does: hear(such a press). The press that a browser makes of
 * it at its end is none. */
export function onRest(element, hear) {
  let resting = null,
    rested = false,
    down = {};
  const leave = () => clearTimeout(resting);
  element.addEventListener("pointerdown", (event) => {
    const { target, clientX, clientY, pointerType } = event;
    leave();
    rested = false;
    down = event;
    if (pointerType !== "touch") return;
    resting = setTimeout(() => {
      rested = true;
      hear({ target, clientX, clientY, type: "pointerdown", shiftKey: true });
    }, REST);
  });
  element.addEventListener("pointermove", (event) => isFar(down, event) && leave());
  for (const end of ["pointerup", "pointercancel"]) element.addEventListener(end, leave, true);
  const swallow = (event) => rested && [event.preventDefault(), event.stopImmediatePropagation()];
  for (const press of ["pointerup", "mousedown", "click", "contextmenu"])
    element.addEventListener(press, swallow, true);
}

/** A slider: onMove(value). */
export function slider(label, [min, max, step], onMove, more) {
  const made = h("input", { type: "range", min, max, step, "aria-label": label, ...more });
  made.addEventListener("input", () => onMove(Number(made.value)));
  return made;
}

/** Words in which an option of a command, as --json, is not broken at its hyphens. */
export function unbroken(words) {
  const whole = (part, at) => (at % 2 ? h("span.ds-unbroken", part) : part);
  return words.split(/(--[a-z][a-z-]*)/).map(whole);
}

/** A slider over steps that are not there yet: onMove(step). */
export function scrubber(label, onMove) {
  return slider(label, [0, 0, 1], onMove, { value: 0, class: "ds-scrub", disabled: true });
}

/** A scrubber at one of `count` steps; `says`: where that is, in words. */
export function scrubTo(made, at, count, says) {
  made.disabled = count < 2;
  made.max = Math.max(0, count - 1);
  made.value = Math.max(0, at);
  made.setAttribute("aria-valuetext", says);
}

export function clear(node) {
  node.replaceChildren();
  return node;
}

// Numbers are written as analysis/numbers.py writes them; tests/golden/formats.json tests both.

function unknown(value) {
  return value === null || value === undefined || Number.isNaN(value);
}

/** Seen as `value` times 10^power: the point of its decimals moves, then halves go up. */
function fixed(value, digits, power = 0) {
  if (Math.abs(value) >= 1e15) return (value * 10 ** power).toFixed(digits).replace("-", "−");
  const rounded = moved(Math.round(moved(Math.abs(value), power + digits)), -digits);
  return (value < 0 ? "−" : "") + rounded.toFixed(digits);
}

/** The number whose decimals are those of `value`, the point `by` places to the right. */
function moved(value, by) {
  const [digits, power = 0] = String(value).split("e");
  return Number(`${digits}e${Number(power) + by}`);
}

/** 1.23 */
export function number(value, digits = 2) {
  return unknown(value) ? "–" : fixed(value, digits);
}

/** 1.23×; of a division by nothing it is not known */
export function ratio(value) {
  return unknown(value) || !Number.isFinite(value) ? "–" : `${fixed(value, 2)}×`;
}

/** A probability, short: 87%, 4.2%, <0.1%, 0%. */
export function percent(odds) {
  if (unknown(odds)) return "–";
  if (odds > 0 && odds < 0.001) return "<0.1%";
  return `${fixed(odds, odds > 0 && odds < 0.0995 ? 1 : 0, 2)}%`;
}

/** A product of probabilities, however small: 0.4%, 0.012%, 3.1e-7. */
export function tiny(odds) {
  if (!(odds > 0 && odds < 0.001)) return percent(odds);
  return odds >= 1e-5 ? `${Number((odds * 100).toPrecision(2))}%` : odds.toExponential(1);
}

export function plural(count, word) {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}

/** A run by its method, with its budget where that says something. */
export function runName({ method, budget }) {
  return budget ? `${method} B ${budget}` : method;
}

/** Seconds as a time of any length: 5.1 ms, 120 ms, 12 s. */
export function duration(seconds) {
  if (unknown(seconds)) return "–";
  if (seconds >= 9.9995) return `${fixed(seconds, 0)} s`;
  return `${fixed(seconds, seconds < 0.00995 ? 1 : 0, 3)} ms`;
}

/** A number of any size in a table: 3, 2.50, 12.3, 0.012, 4e-4. */
export function shortNumber(value) {
  if (unknown(value)) return "–";
  const digits = digitsOf([value]);
  if (digits === null) return power(value);
  return digits === 3 ? fixed(value, 3).replace(/\.?0+$/, "") : fixed(value, digits);
}

/** A value with its interval where that is known, all with as many decimals: 2.60 [2.12, 3.00]. */
export function estimate(value, low, high) {
  if ([value, low, high].some(unknown)) return shortNumber(value);
  const digits = digitsOf([value, low, high]);
  const [a, b, c] = [value, low, high].map((each) =>
    digits === null ? power(each) : fixed(each, digits),
  );
  return `${a} [${b}, ${c}]`;
}

function power(value) {
  return value.toExponential(0).replace(/^-/, "−");
}

/** Decimals by the largest of some values; null: so small that a power of ten says it. */
function digitsOf(values) {
  if (values.every(Number.isInteger)) return 0;
  const size = Math.max(...values.map(Math.abs)),
    least = [100, 10, 0.1, 0.0005].findIndex((each) => size >= each);
  return least < 0 ? null : least;
}

/** A figure's point; "≈" where it has a doubt. */
export function withInterval({ y, low, high, doubt }) {
  return (doubt ? "≈ " : "") + estimate(y, low, high);
}
