// Making elements. Text only ever becomes a text node, attributes come from a list that cannot
// execute: there is no innerHTML, no style or event attribute and no link in the whole view.

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
  for (const child of children.flat()) {
    if (child === null || child === undefined) continue;
    node.appendChild(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

/** An HTML element: h("p", {class: "note"}, "text", child). */
export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** An SVG element. */
export function s(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG_NS, tag), attributes, children);
}

export function button(label, attributes, act) {
  const made = h("button", { type: "button", ...attributes }, label);
  made.addEventListener("click", act);
  return made;
}

/** Press or drag along a picture: onShare(how far along it is the pointer, 0 to 1). */
export function scrub(picture, onShare) {
  const pick = (event) => {
    const box = picture.getBoundingClientRect();
    onShare((event.clientX - box.left) / box.width);
  };
  picture.addEventListener("pointerdown", (event) => {
    picture.setPointerCapture(event.pointerId);
    pick(event);
  });
  picture.addEventListener("pointermove", (event) => event.buttons && pick(event));
}

/** A slider over steps that are not there yet: onMove(step). */
export function scrubber(label, onMove) {
  const made = h("input", {
    type: "range",
    min: 0,
    max: 0,
    step: 1,
    value: 0,
    class: "ds-scrub",
    disabled: true,
    "aria-label": label,
  });
  made.addEventListener("input", () => onMove(Number(made.value)));
  return made;
}

export function clear(node) {
  node.replaceChildren();
  return node;
}

/** A probability, short: 87%, 4.2%, <0.1%, 0%. The same rule as analysis.numbers.percent. */
export function percent(odds) {
  if (odds === null || odds === undefined) return "–";
  if (odds > 0 && odds < 0.001) return "<0.1%";
  const value = odds * 100,
    whole = Math.floor(value),
    rest = value - whole;
  if (odds > 0 && odds < 0.0995) return `${(rest === 0.25 ? whole + 0.2 : value).toFixed(1)}%`;
  return `${rest === 0.5 ? whole + (whole % 2) : Math.round(value)}%`; // ties to even, as Python
}

/** A product of probabilities may be tiny: 3.1e-7 instead of <0.1%. */
export function tiny(odds) {
  if (odds === null || odds === undefined) return "–";
  return odds >= 0.001 || odds === 0 ? percent(odds) : odds.toExponential(1);
}

export function plural(count, word) {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}

export function milliseconds(seconds) {
  const ms = seconds * 1000;
  if (ms >= 9999.5) return `${Math.round(seconds)} s`;
  return `${ms < 9.95 ? ms.toFixed(1) : Math.round(ms)} ms`;
}

/** A number for a table. */
export function shortNumber(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (Number.isInteger(value)) return String(value);
  const size = Math.abs(value);
  if (size >= 10) return value.toFixed(size >= 100 ? 0 : 1);
  if (size >= 0.1) return value.toFixed(2);
  return size >= 0.0005 ? String(Number(value.toFixed(3))) : value.toExponential(0);
}

/** A figure's point; "≈" where it has a doubt. */
export function withInterval({ y, low, high, doubt }) {
  const known = typeof low === "number" && typeof high === "number";
  return (
    (doubt ? "≈ " : "") +
    shortNumber(y) +
    (known ? ` [${shortNumber(low)}, ${shortNumber(high)}]` : "")
  );
}
