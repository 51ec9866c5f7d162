// The words in a form that has not been started, kept in this browser: a reload, or another
// day, finds it as it was. Else a form is that of the run on view.

const FORM = (prefix) => `draftscope-form-${prefix}`;

/** Keep a form's values, in the order of the names of its inputs. */
export function remember(prefix, names, values) {
  const kept = Object.fromEntries(names.map((name, at) => [name, values[at]]));
  try {
    localStorage.setItem(FORM(prefix), JSON.stringify(kept));
  } catch {
    // storage may be forbidden or full; then a reload starts afresh
  }
}

/** Keep what is typed as a prompt at once: the page may be left before the rest is kept. */
export function rememberPrompt(prefix, prompt) {
  const kept = recall(prefix);
  if (kept) remember(prefix, Object.keys(kept), Object.values({ ...kept, prompt }));
  else remember(prefix, ["prompt"], [prompt]);
}

const TYPED = (prefix) => `draftscope-typed-${prefix}`;

/** Whether somebody has written or chosen something since the last Start. */
export function typedIn(prefix) {
  try {
    return localStorage.getItem(TYPED(prefix)) === "yes";
  } catch {
    return false;
  }
}

export function keepTyped(prefix, on) {
  try {
    localStorage.setItem(TYPED(prefix), on ? "yes" : "no");
  } catch {
    // storage may be forbidden
  }
}

/** The form that was kept, or null. */
export function recall(prefix) {
  try {
    return JSON.parse(localStorage.getItem(FORM(prefix)));
  } catch {
    return null;
  }
}
