// Light or dark: as the system is, until somebody chooses; the choice is remembered.

const THEME = "draftscope-theme";

function kept() {
  try {
    return localStorage.getItem(THEME);
  } catch {
    return null; // storage may be forbidden
  }
}

/** Set the theme that was chosen before, if one was. */
export function restoreTheme() {
  if (kept()) document.body.classList.toggle("dark", kept() === "dark");
}

export function toggleTheme() {
  const dark = document.body.classList.toggle("dark");
  try {
    localStorage.setItem(THEME, dark ? "dark" : "light");
  } catch {
    // then it holds until the page is loaded again
  }
}

/** Follow the system as long as nothing was chosen. */
export function followSystem() {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const follow = () => !kept() && document.body.classList.toggle("dark", dark.matches);
  follow();
  restoreTheme();
  dark.addEventListener("change", follow);
}
