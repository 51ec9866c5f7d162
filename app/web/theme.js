// Light or dark: as the system is, until somebody chooses; the choice is remembered.

import { keep, kept } from "./storage.js";

const THEME = ["localStorage", "draftscope-theme"];

/** Set the theme that was chosen before, if one was. */
export function restoreTheme() {
  const chosen = kept(...THEME);
  if (chosen) document.body.classList.toggle("dark", chosen === "dark");
}

export function toggleTheme() {
  const dark = document.body.classList.toggle("dark");
  keep(...THEME, dark ? "dark" : "light");
}

/** In a page without a server: follow the system as long as nothing was chosen, with the button. */
export function followSystem() {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const follow = () => !kept(...THEME) && document.body.classList.toggle("dark", dark.matches);
  follow();
  restoreTheme();
  dark.addEventListener("change", follow);
  document.getElementById("ds-theme").addEventListener("click", toggleTheme);
}
