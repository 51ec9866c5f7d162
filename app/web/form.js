// The form above a view: one bar with the prompt and Start, and all settings below it while
// somebody writes or chooses. Gradio draws the inputs; here the form only opens and closes.

const OPEN = "open";

/** Open the form, to be changed and started. */
export function openForm(prefix) {
  const box = document.querySelector(`#${prefix}-panel textarea`);
  // Later: the click that asks for it is one outside of the form, which closes it.
  setTimeout(() => box?.focus());
}

/** The form whose parts' ids begin with `prefix`. */
export function formAbove(prefix) {
  const panel = document.getElementById(`${prefix}-panel`);
  if (!panel) return; // the offline file has no form
  const within = (name, target) => target.closest?.(`#${prefix}-${name}`);
  const set = (on) => {
    panel.classList.toggle(OPEN, on);
    const box = panel.querySelector("textarea");
    if (!on && panel.contains(document.activeElement)) document.activeElement.blur();
    if (box) box.scrollTop = 0;
  };
  panel.addEventListener("focusin", ({ target }) => within("prompt", target) && set(true));
  panel.addEventListener("click", ({ target }) => {
    if (within("open-settings", target)) set(!panel.classList.contains(OPEN));
    else if (within("start", target)) set(false);
  });
  panel.addEventListener("keydown", (event) => {
    if (event.key === "Escape") set(false);
  });
  // Not on pointerdown: what is pressed would move away from under the pointer.
  document.addEventListener("click", ({ target }) => {
    if (!panel.contains(target) && target.closest?.(".ds-main")) set(false);
  });
}
