// Presenting: a view fills the screen, with nothing on it but its picture and the sentence, in type
// that is read from the last row (present.css, and `least` of tree/window.js). Esc leaves.

import { button } from "./dom.js";
import { onKeys } from "./keys.js";

const ON = "ds-presenting";
export const PRESENTED = "draftscope-presented"; // an element's event: it is presented, or no more

let presented = null; // the element that is
let isFull = false; // the browser gave it the whole screen, not only its window
let cameFrom = null; // what had the focus before
let seen = null; // watches whether it is still in sight: another tab may have been opened
let behind = []; // out of reach meanwhile

/** Present an element, or leave off. */
export function togglePresent(element) {
  const before = presented;
  if (before) stopPresenting();
  if (before === element) return;
  presented = element;
  cameFrom = document.activeElement;
  mark(element, true);
  const leaves = { class: "ds-leave", "aria-label": "Leave the presentation" };
  element.append(button("×", leaves, stopPresenting)); // for a finger, which has no Esc
  document.addEventListener("fullscreenchange", onFullscreen);
  document.addEventListener("keydown", onEscape, { capture: true });
  seen = new ResizeObserver(() => element.getClientRects().length || stopPresenting());
  seen.observe(element);
  // A frame may be forbidden to: then it fills the window.
  element.requestFullscreen?.().catch(() => {});
  const strip = element.querySelector(".ds-strip[tabindex]"); // arrows go along it
  if (!element.contains(document.activeElement)) element.focus();
  strip?.focus({ preventScroll: true });
}

/** Leave off, if something is presented; when it is done, the rest of the page takes the focus: a
 *  browser gives it none while an element has the whole screen. */
export async function stopPresenting() {
  const element = presented;
  if (!element) return;
  presented = null;
  seen.disconnect();
  document.removeEventListener("fullscreenchange", onFullscreen);
  document.removeEventListener("keydown", onEscape, { capture: true });
  const full = document.fullscreenElement ? document.exitFullscreen() : Promise.resolve();
  isFull = false;
  element.querySelector(":scope > .ds-leave").remove();
  mark(element, false);
  await full.catch(() => {});
  giveBack();
}

/** The focus goes back to where it was, unless it went somewhere else meanwhile. */
function giveBack() {
  const { activeElement: now } = document;
  if (now === document.body || !now?.getClientRects().length) cameFrom?.focus();
}

/** What is behind it is out of reach meanwhile, and arrows scroll it where they step nothing. Left
 *  off, it may be on the page no more. */
function mark(element, on) {
  if (on)
    for (let part = element; part !== document.body; part = part.parentElement)
      behind.push(...[...part.parentElement.children].filter((other) => other !== part));
  for (const other of behind) other.inert = on;
  if (!on) behind = [];
  if (on) element.setAttribute("tabindex", "0");
  else element.removeAttribute("tabindex");
  element.classList.toggle(ON, on);
  document.documentElement.classList.toggle("ds-projecting", on);
  element.dispatchEvent(new CustomEvent(PRESENTED, { detail: on }));
}

function onFullscreen() {
  if (isFull && !document.fullscreenElement) stopPresenting();
  else isFull = !!document.fullscreenElement;
}

function onEscape(event) {
  if (event.key !== "Escape" || presented.querySelector("dialog[open]")) return;
  event.preventDefault();
  event.stopPropagation();
  stopPresenting();
}

/** Present the tab on view. */
export function presentOnView() {
  const isSeen = (scope) => scope.getClientRects().length && !scope.closest(".ds-form");
  const seen = [...document.querySelectorAll(".ds-scope")].find(isSeen);
  if (seen) togglePresent(presented ?? seen);
}

/** The key p presents whatever is on view, and so does a button of a page without a server. */
export function listenForPresent(press) {
  press?.addEventListener("click", presentOnView);
  onKeys(document.body, ({ key }) => key === "p" && presentOnView);
}
