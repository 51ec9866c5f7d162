// The form above a view: one line with the prompt, the settings' button and Start, and all settings
// in a popover that moves nothing. Gradio draws the inputs; here the popover opens and closes, and
// what somebody typed is never written over.

import { fill } from "./dom.js";
import { keepLeft, keepTyped, recall, rememberPrompt, typedIn } from "./memory.js";
import { nameRadios } from "./radios.js";

const OPEN = "open",
  DIALOG = { role: "dialog", "aria-label": "Settings", tabindex: -1 };
const PARTS_COME = 600, // looks for a part of the form
  LOOK_EVERY = 20; // milliseconds between two
const LEFT = { __type__: "update" }; // of an input that stays as it is
let writing = false; // it is not somebody's hand that writes
const touched = new Map(); // how often a hand was in a form, by its prefix
const startsPressed = new Map(); // the same when Start was pressed
const asks = new Map(); // how often the server was asked for a filling

const panelOf = (prefix) => document.getElementById(`${prefix}-panel`);

/** Note whatever a hand does in a form, from before the page is made. */
export function watchHands() {
  const inForm = ({ target }) => target.closest?.(".ds-form")?.id.replace(/-panel$/, "");
  const touch = (event) => {
    const prefix = !writing && inForm(event);
    if (!prefix) return;
    touched.set(prefix, touchesOf(prefix) + 1);
    keepTyped(prefix, true);
    if (event.target.matches(`#${prefix}-prompt textarea`))
      rememberPrompt(prefix, event.target.value);
  };
  const chose = "[role=option], .ds-examples button"; // those fire no event of an input
  document.addEventListener("input", touch, { capture: true });
  for (const name of ["pointerdown", "click"])
    document.addEventListener(name, (event) => event.target.closest?.(chose) && touch(event), {
      capture: true,
    });
  document.addEventListener(
    "keydown",
    (event) => event.key === "Enter" && event.target.matches("[role=listbox]") && touch(event),
    { capture: true },
  );
}

/** How often a hand was in a form. */
function touchesOf(prefix) {
  return touched.get(prefix) ?? 0;
}

/** Grows with each touch and with each question for a filling. */
function turnOf(prefix) {
  return touchesOf(prefix) + (asks.get(prefix) ?? 0);
}

/** What the server would fill a form with; nothing where a hand was in it since it was asked, or
 *  where it was asked again: answers may overtake each other. */
export function filling(prefix, filled) {
  const { turn, updates } = JSON.parse(filled);
  return turn === turnOf(prefix) ? updates : updates.map(() => LEFT);
}

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

function promptBox(prefix) {
  return panelOf(prefix)?.querySelector(`#${prefix}-prompt textarea`);
}

/** To the prompt, by a key: what is typed then stands in place of it. */
export function toPrompt(prefix) {
  const box = promptBox(prefix);
  box?.focus();
  box?.select();
}

/** Whether somebody has written another prompt into the form than that of a run on view. */
export function isWritten(prefix, prompt) {
  const box = promptBox(prefix);
  return !!box && !!prompt && typedIn(prefix) && box.value.trim() !== prompt.trim();
}

/** Write a prompt into the form, as if it were typed. */
export function writePrompt(prefix, text) {
  const box = promptBox(prefix);
  if (!box || typeof text !== "string" || box.value === text) return;
  box.value = text;
  writing = true;
  box.dispatchEvent(new Event("input", { bubbles: true }));
  writing = false;
}

/** Ask the server by a page's event; a question for a filling has its turn. */
export function triggerOf(page, prefix) {
  return (name, asked) => {
    if (!asked) return page[name]();
    asks.set(prefix, (asks.get(prefix) ?? 0) + 1);
    page[name]({ ...asked, turn: turnOf(prefix) });
  };
}

/** Fill a form with what was typed into it before the page was left; from then on its prompt is
 *  seen (form.css): Gradio draws its first value before anything is known. */
export function recallForm(prefix, trigger) {
  panelOf(prefix).dataset.known = "";
  const kept = typedIn(prefix) && !touchesOf(prefix) && recall(prefix);
  if (!kept) return;
  const { prompt, ...others } = kept;
  writePrompt(prefix, prompt); // at once: the server's answer may come when one has typed
  if (Object.keys(others).length) trigger("refill", { filling: others });
}

/** The server took what was in the form when Start was pressed. Until then the words are kept: the
 *  server may not be there. */
export function hasStarted(prefix) {
  if (startsPressed.get(prefix) === touchesOf(prefix)) keepTyped(prefix, false);
}

/** A part of a form, which Gradio may make a moment later than the view below it. */
async function partOf(prefix, name) {
  for (let left = PARTS_COME; left > 0; left--) {
    const part = panelOf(prefix)?.querySelector(`#${prefix}-${name}`);
    if (part) return part;
    await new Promise((done) => setTimeout(done, LOOK_EVERY));
  }
  throw new Error("the form did not come");
}

/** The form whose parts' ids begin with `prefix`. */
export async function formAbove(prefix) {
  const settings = await partOf(prefix, "open-settings"),
    panel = panelOf(prefix);
  await partOf(prefix, "prompt textarea");
  const within = (name, target) => target.closest?.(`#${prefix}-${name}`);
  const set = (on) => setForm(prefix, on);
  const more = fill(await partOf(prefix, "settings"), DIALOG, []);
  settings.setAttribute("aria-haspopup", "dialog");
  nameRadios(more);
  set(false);
  const press = () => {
    startsPressed.set(prefix, touchesOf(prefix));
    set(false);
  };
  // A press would take the focus from the prompt, whose box then is a line again: what stands below
  // it would move away from under the finger.
  const pressed = (target) =>
    within("prompt", document.activeElement) && target.closest?.("button, summary");
  panel.addEventListener("mousedown", (event) => pressed(event.target) && event.preventDefault());
  panel.addEventListener("click", ({ target }) => {
    if (pressed(target)) pressed(target).focus();
    if (within("open-settings", target)) {
      set(!panel.classList.contains(OPEN));
      if (panel.classList.contains(OPEN)) more.focus({ preventScroll: true });
      return;
    }
    // Stop goes when it was pressed; what had the focus must not be nothing.
    if (within("stop", target)) return settings.focus();
    if (within("start", target)) press();
  });
  window.addEventListener("pagehide", () => keepLeft(prefix, promptBox(prefix)?.value));
  panel.tabIndex = -1;
  const leave = () => panel.focus({ preventScroll: true }); // keys then act on what is on view
  panel.addEventListener("keydown", ({ key, shiftKey, target }) => {
    const typing = within("prompt", target);
    if (key === "Escape" && panel.classList.contains(OPEN)) set(false);
    else if (key === "Escape" && typing) leave();
    if (key !== "Enter" || shiftKey || !typing) return;
    press();
    if (target.value.trim()) setTimeout(leave); // Gradio has heard the key by then
  });
  const opened = ({ target }) => target.open && target.matches(".ds-menu") && set(false);
  panel.addEventListener("toggle", opened, { capture: true }); // a menu: one of both is open
  // Not on pointerdown: what is pressed would move away from under the pointer. A list that goes
  // when an entry is pressed leaves the click to what is below it.
  let isInside = false; // where the press began
  const pressing = ({ target }) => (isInside = panel.contains(target));
  document.addEventListener("pointerdown", pressing, { capture: true });
  document.addEventListener("click", ({ target }) => {
    if (!isInside && !panel.contains(target)) set(false);
    isInside = false;
  });
  // By a key: a press that moves the focus ends in a click.
  const left = ({ target }) => target.matches(":focus-visible") && !panel.contains(target);
  document.addEventListener("focusin", (event) => left(event) && set(false));
  return panel;
}
