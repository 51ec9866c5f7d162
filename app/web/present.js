// Presenting: a view fills the screen, with nothing on it but its picture and the sentence, in type
// that is read from the last row (present.css, and `least` of tree/window.js). Esc leaves.

import { onKeys } from "./keys.js";

const ON = "ds-presenting";
export const PRESENTED = "draftscope-presented"; // an element's event: it is presented, or no more

let presented = null; // the element that is
let isFull = false; // the browser gave it the whole screen, not only its window
let seen = null; // watches whether it is still in sight: another tab may have been opened

/** Present an element, or leave off. */
export function togglePresent(element) {
  const before = presented;
  if (before) stopPresenting();
  if (before === element) return;
  presented = element;
  mark(element, true);
  document.addEventListener("fullscreenchange", onFullscreen);
  document.addEventListener("keydown", onEscape, { capture: true });
  seen = new ResizeObserver(() => element.getClientRects().length || stopPresenting());
  seen.observe(element);
  // A frame may be forbidden to: then it fills the window.
  element.requestFullscreen?.().catch(() => {});
  const strip = element.querySelector(".ds-strip[tabindex]"); // arrows go along it
  strip?.focus({ preventScroll: true });
}

function stopPresenting() {
  const element = presented;
  presented = null;
  seen.disconnect();
  document.removeEventListener("fullscreenchange", onFullscreen);
  document.removeEventListener("keydown", onEscape, { capture: true });
  if (document.fullscreenElement) document.exitFullscreen().catch(() => {});
  isFull = false;
  mark(element, false);
}

function mark(element, on) {
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

/** The key p presents whatever is on view. */
export function listenForPresent() {
  onKeys(document.body, ({ key }) => key === "p" && presentOnView);
}
