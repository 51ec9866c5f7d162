// The view as the part of the address after "#", which never leaves the browser, and as
// entries of its history: another tab or another run is a new one, another round or node is not.
// Whoever wrote a hash is not believed: a value that is not of its kind is as good as absent.

const TRACES = /^[a-z0-9][a-z0-9-]{0,59}(,[a-z0-9][a-z0-9-]{0,59}){0,3}$/,
  TICKET = /^[A-Za-z0-9_-]{20,60}$/;
const LINKED = {
  trace: TRACES,
  run: TICKET,
  other: TICKET,
  third: TICKET,
  fourth: TICKET,
  round: /^[1-9][0-9]{0,5}$/,
  node: /^(0|[1-9][0-9]{0,4}|ghost)$/,
  view: /^[a-z]{1,20}$/,
  text: /^[a-z0-9][a-z0-9-]{0,59}$/,
  method: /^[a-z0-9][a-z0-9+-]{0,39}$/,
  budget: /^[1-9][0-9]{0,3}$/,
  show: /^(stages|rounds|stats)$/,
  filter: /^[\w.~!'()*%-]{1,1200}$/,
  sort: /^-?[a-z0-9_]{1,12}$/,
  learn: /^[1-9][0-9]?\.[1-9][0-9]?(\.[1-9][0-9]?){0,2}$/, // chapter, step, sliders
};
const WHOLE = ["round", "node", "budget"];
const FREE_TEXT = ["filter"]; // percent-encoded
const LONGEST = 2000; // characters of a hash
const BACK = "draftscope-back";
const ARRIVAL = { every: 50, most: 10000 }; // milliseconds

let awaited = null; // the tab that the address names and that is not on view yet

/** "#trace=ddtree&round=3&node=17" → {trace, round, node}: known names with sound values only. */
export function readLink(hash) {
  const state = {};
  if (typeof hash !== "string" || hash.length > LONGEST) return state;
  for (const part of hash.replace(/^#/, "").split("&")) {
    const [name, value, ...rest] = part.split("=");
    if (rest.length || !Object.hasOwn(LINKED, name) || !LINKED[name].test(value || "")) continue;
    const said = readValue(name, value);
    if (said !== null) state[name] = said;
  }
  return state;
}

function readValue(name, value) {
  if (!FREE_TEXT.includes(name))
    return WHOLE.includes(name) && value !== "ghost" ? Number(value) : value;
  try {
    return decodeURIComponent(value);
  } catch {
    return null; // it was cut
  }
}

/** The hash of a state; what would not be read back is left out. */
export function writeLink(state) {
  const written = (name) => {
    const value = String(state[name] ?? "").replace(/[\ud800-\udfff]/gu, "�"); // half characters
    return FREE_TEXT.includes(name) ? encodeURIComponent(value) : value;
  };
  const parts = Object.keys(LINKED).filter((name) => LINKED[name].test(written(name)));
  return parts.length ? `#${parts.map((name) => `${name}=${written(name)}`).join("&")}` : "";
}

/** The tab that a state is of. */
export function viewOf({ view, learn }) {
  return learn ? "learn" : view || "run";
}

/** Read what the address says now. */
export function readAddress() {
  return readLink(window.location.hash);
}

/** Say what is on view, and the tickets of its runs, which stay out of the address. Nothing else is
 *  written over the name of a tab that is still on its way. */
export function visit(state, runs = []) {
  if (awaited && awaited !== viewOf(state)) return;
  const { pathname, search, hash } = window.location,
    next = writeLink(state),
    entry = { view: viewOf(state), runs },
    before = window.history.state?.draftscope ?? { view: viewOf(readLink(hash)), runs: [] },
    others = before.runs.join() !== runs.join();
  if (next === hash && before.view === entry.view && !others) return;
  const isNew = before.view !== entry.view || (others && before.runs.length);
  try {
    const act = isNew ? "pushState" : "replaceState";
    window.history[act]({ draftscope: entry }, "", next || pathname + search);
  } catch {
    // a sandboxed frame has no address of its own
  }
}

/** Open a tab: `open` says whether it is on view, and is asked again until the page is made. */
export function arrive(view, open, left = ARRIVAL.most) {
  awaited = open(view) || left <= 0 ? null : view;
  const again = () => awaited === view && arrive(view, open, left - ARRIVAL.every);
  if (awaited) setTimeout(again, ARRIVAL.every);
}

/** Follow the page's address, and the browser's Back and Forward: `open` shows a tab. */
export function followHistory(open) {
  arrive(viewOf(readAddress()), open);
  window.addEventListener("popstate", ({ state }) => {
    const entry = state?.draftscope ?? { view: viewOf(readAddress()), runs: [] };
    arrive(entry.view, open);
    window.dispatchEvent(new CustomEvent(BACK, { detail: entry }));
  });
}

/** Call `hear` with the tickets when history comes back to runs of this view. */
export function onBack(element, view, hear) {
  const listen = ({ detail }) => {
    if (!element.isConnected) window.removeEventListener(BACK, listen);
    else if (detail.view === view && detail.runs.length) hear(detail.runs);
  };
  window.addEventListener(BACK, listen);
}

/** Whether this entry of the history is one of ours: nobody typed its hash. */
export function isOwnEntry() {
  return !!window.history.state?.draftscope;
}

/** Call `hear` whenever the element comes into view. */
export function onShown(element, hear) {
  const seen = (entries) => entries.some((each) => each.isIntersecting) && hear();
  new IntersectionObserver(seen).observe(element);
}
