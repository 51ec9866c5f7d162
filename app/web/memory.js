// What is in a form, kept in this browser: a reload, or another day, finds it as it was.

const KEY = (prefix) => `draftscope-form-${prefix}`;

/** Keep a form's values, in the order of the names of its inputs. */
export function remember(prefix, names, values) {
  const kept = Object.fromEntries(names.map((name, at) => [name, values[at]]));
  try {
    localStorage.setItem(KEY(prefix), JSON.stringify(kept));
  } catch {
    // storage may be forbidden or full; then a reload starts afresh
  }
}

/** What was kept, or null. */
export function recall(prefix) {
  try {
    return JSON.parse(localStorage.getItem(KEY(prefix)));
  } catch {
    return null;
  }
}
