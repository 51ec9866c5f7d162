// The words in a form that has not been started, kept in this browser: a reload, or another
// day, finds it as it was. Else a form is that of the run on view. Two tabs do not mix: each finds
// its own words first, and those of the browser where it has none.

import { keep, kept } from "./storage.js";

const PLACES = ["sessionStorage", "localStorage"];

function keepWords(name, text) {
  for (const place of PLACES) keep(place, name, text);
}

function keptWords(name) {
  return kept(PLACES[0], name) ?? kept(PLACES[1], name);
}

const FORM = (prefix) => `draftscope-form-${prefix}`;

/** Keep a form's values, in the order of the names of its inputs. */
export function remember(prefix, names, values) {
  const found = Object.fromEntries(names.map((name, at) => [name, values[at]]));
  keepWords(FORM(prefix), JSON.stringify(found));
}

/** Keep a typed prompt at once: the page may be left before the other inputs are kept. */
export function rememberPrompt(prefix, prompt) {
  const form = recall(prefix);
  if (form) remember(prefix, Object.keys(form), Object.values({ ...form, prompt }));
  else remember(prefix, ["prompt"], [prompt]);
}

const TYPED = (prefix) => `draftscope-typed-${prefix}`;

/** Whether somebody has written or chosen something since the last Start. */
export function typedIn(prefix) {
  return keptWords(TYPED(prefix)) === "yes";
}

export function keepTyped(prefix, on) {
  keepWords(TYPED(prefix), on ? "yes" : "no");
}

const LEFT = (prefix) => `draftscope-left-${prefix}`;

/** Keep the prompt of a form that is left, which may be that of the run on view. */
export function keepLeft(prefix, prompt) {
  keep(PLACES[0], LEFT(prefix), JSON.stringify([window.location.hash, prompt]));
}

/** The prompt that this tab's form had when this address was left; undefined: it was not here. */
export function leftHere(prefix) {
  const [hash, prompt] = JSON.parse(kept(PLACES[0], LEFT(prefix)) ?? "[]");
  return hash === window.location.hash ? prompt : undefined;
}

/** The form that was kept, or null. */
export function recall(prefix) {
  try {
    return JSON.parse(keptWords(FORM(prefix)));
  } catch {
    return null;
  }
}
