// The form above a view: one line with the prompt, the settings' button and Start, and all settings
// in a popover that moves nothing. Gradio draws the inputs; here the popover opens and closes, and
// what somebody typed is never written over.

import { keepTyped } from "./memory.js";

const OPEN = "open";
let writing = false; // it is not somebody's hand that writes

const panelOf = (prefix) => document.getElementById(`${prefix}-panel`);

/** Open or close the settings. */
export function setForm(prefix, on) {
  const panel = panelOf(prefix),
    button = panel?.querySelector(`#${prefix}-open-settings`);
  if (!button) return;
  const inside = document.activeElement?.closest(`#${prefix}-settings`);
  panel.classList.toggle(OPEN, on);
  button.setAttribute("aria-expanded", String(on));
  if (!on && inside) button.focus(); // what had the focus is gone
}

/** Open the settings, to be changed and started. */
export function openForm(prefix) {
  // Later: the click that asks for it is one outside of the form, which closes it.
  setTimeout(() => {
    setForm(prefix, true);
    panelOf(prefix)?.querySelector("textarea")?.focus();
  });
}

/** Write a prompt into the form, as if it were typed. */
export function writePrompt(prefix, text) {
  const box = panelOf(prefix)?.querySelector(`#${prefix}-prompt textarea`);
  if (!box || typeof text !== "string" || box.value === text) return;
  box.value = text;
  writing = true;
  box.dispatchEvent(new Event("input", { bubbles: true }));
  writing = false;
}

const STARTED = "draftscope-started";

/** The server took what was in the form. Until then its words are kept: it may not be there. */
export function hasStarted(prefix) {
  panelOf(prefix)?.dispatchEvent(new Event(STARTED));
}

/** The form whose parts' ids begin with `prefix`; null: there is none, as in the offline file. */
export function formAbove(prefix) {
  const panel = panelOf(prefix);
  if (!panel) return null;
  const within = (name, target) => target.closest?.(`#${prefix}-${name}`);
  const settings = panel.querySelector(`#${prefix}-open-settings`);
  const set = (on) => setForm(prefix, on);
  settings.setAttribute("aria-haspopup", "dialog");
  set(false);
  let pressed = false; // Start, and nothing typed since
  const typed = () => {
    pressed = false;
    keepTyped(prefix, true);
  };
  panel.addEventListener("input", () => writing || typed());
  panel.addEventListener(STARTED, () => {
    if (pressed) keepTyped(prefix, false);
    pressed = false;
  });
  panel.addEventListener("click", ({ target }) => {
    if (within("open-settings", target)) return set(!panel.classList.contains(OPEN));
    if (target.closest(".ds-examples button")) typed();
    // Stop goes when it was pressed; what had the focus must not be nothing.
    if (within("stop", target)) return settings.focus();
    if (!within("start", target)) return;
    pressed = true;
    set(false);
  });
  panel.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && panel.classList.contains(OPEN)) set(false);
    if (event.key !== "Enter" || event.shiftKey || !within("prompt", event.target)) return;
    pressed = true;
    set(false);
  });
  // Not on pointerdown: what is pressed would move away from under the pointer.
  document.addEventListener("click", ({ target }) => {
    if (!panel.contains(target) && target.closest?.(".ds-main")) set(false);
  });
  return panel;
}
