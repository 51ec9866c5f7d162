// Words kept in this browser. Storage may be forbidden or full: then nothing is kept, and a reload
// starts afresh. `place`: "sessionStorage", of this tab, or "localStorage".

export function kept(place, name) {
  try {
    return globalThis[place].getItem(name);
  } catch {
    return null;
  }
}

export function keep(place, name, text) {
  try {
    globalThis[place].setItem(name, text);
  } catch {
    // then it holds until the page is loaded again
  }
}

/** Tickets that this tab keeps under a name. */
export function keptList(name) {
  return (kept("sessionStorage", name) || "").split(" ").filter(Boolean);
}

export function keepList(name, tickets) {
  keep("sessionStorage", name, tickets.join(" "));
}
