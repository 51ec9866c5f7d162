// What is on view as the part of the address after "#", which never leaves the browser, and as
// entries of its history: another tab, run or chapter is a new one, another round or node is not.
// Whoever wrote a hash is not believed: a value that is not of its kind is as good as absent.

import { h } from "./dom.js";
import { onGoTo, taken } from "./goto.js";
import { GHOST } from "./tree/boxes.js";
import { Turns } from "./turns.js";

const TRACES = /^[a-z0-9][a-z0-9-]{0,59}(,[a-z0-9][a-z0-9-]{0,59}){0,3}$/,
  TICKET = /^[A-Za-z0-9_-]{20,60}$/;
const NAME = "[a-z0-9][a-z0-9-]{0,59}",
  FREE_WORDS = /^[\w.~!'()*%-]{1,1200}$/;
const LINKED = {
  trace: TRACES,
  run: TICKET,
  other: TICKET,
  third: TICKET,
  fourth: TICKET,
  round: /^[1-9][0-9]{0,5}$/,
  place: /^[1-9][0-9]{0,5}$/,
  who: /^[A-D]$/,
  node: /^(0|[1-9][0-9]{0,4}|ghost)$/,
  view: /^[a-z]{1,20}$/,
  text: new RegExp(`^${NAME}$`),
  more: new RegExp(`^${NAME}(,${NAME}){0,7}$`),
  method: /^[a-z0-9][a-z0-9+-]{0,39}$/,
  budget: /^([1-9][0-9]{0,3}|own)$/,
  temperature: /^[0-9]{1,4}(\.[0-9]{1,4})?$/,
  source: new RegExp(`^${NAME}$`),
  show: /^(stages|rounds|stats|graph|before|file)$/,
  nodes: /^(table|whole|both)$/,
  zoom: /^(run|[0-2](\.[0-9]{1,3})?)$/,
  rows: /^[1-9][0-9]{0,6}-[1-9][0-9]{0,6}$/,
  filter: FREE_WORDS,
  sort: /^-?[a-z0-9_]{1,12}$/,
  learn: /^[1-9][0-9]?\.[1-9][0-9]?(\.[1-9][0-9]?){0,2}$/, // chapter, step, sliders
  options: FREE_WORDS,
  kept: /^[\w.~!'()*%-]{1,3000}$/,
  find: FREE_WORDS,
  figures: FREE_WORDS,
  made: /^[\w.~!'()*%-]{1,6000}$/,
};
const WHOLE = ["round", "place", "node", "budget"],
  TEXTS = ["filter"], // percent-encoded
  DATA = ["options", "kept", "find", "figures", "made"]; // lists and objects, as JSON
const CALLED = {
  round: "round",
  place: "token",
  node: "node",
  learn: "step",
  text: "text",
  method: "method",
  budget: "budget",
  temperature: "temperature",
  source: "prompts",
  sort: "order",
  rows: "rows",
};
const KEPT = ["node", "rows"]; // which the view leaves out only where they are not there
const TOLD = ["trace", "made", "run", "other", "third", "fourth"], // by the tabs themselves
  MOST_TOLD = 40; // characters of a part that cannot be read
const LONGEST = 8000; // characters of a hash
const SETTLE = 250; // milliseconds before a move is written: browsers limit how often
const ARRIVAL = { every: 50, most: 10000 }; // milliseconds

let awaited = null; // the tab that the address names and that is not on view yet

/** "#trace=ddtree&round=3&node=17" → {trace, round, node}: known names with sound values only. */
export function readLink(hash) {
  const state = {};
  if (typeof hash !== "string" || hash.length > LONGEST) return state;
  for (const part of hash.replace(/^#/, "").split("&")) {
    const [name, value = "", ...rest] = part.split("=");
    const said = rest.length || !Object.hasOwn(LINKED, name) ? null : readValue(name, value);
    if (said !== null) state[name] = said;
  }
  return state;
}

/** A sentence on what a hash names and the view does not show; "": it shows all. `written` is the
 *  state of the view. A name that the view leaves out counts as shown, but for those in KEPT. */
export function unmet(hash, written) {
  const asked = readLink(hash),
    isMet = (name) => {
      const [wanted, shown] = [asked, written].map((state) => `${state[name] ?? ""}.`);
      return shown.startsWith(wanted) || (shown === "." && !KEPT.includes(name));
    };
  const lost = Object.keys(CALLED).filter((name) => name in asked && !isMet(name)),
    parts = hash.replace(/^#/, "").split("&"),
    isUnread = (name) => !Object.hasOwn(asked, name) && !TOLD.includes(name),
    unread = parts.filter((part) => part.includes("=") && isUnread(part.split("=")[0]));
  const named = (state) => (name) => `${CALLED[name]} ${state[name]}`,
    missing = [...lost.map(named(asked)), ...unread.map((part) => part.slice(0, MOST_TOLD))],
    instead = lost.filter((name) => name in written && written[name] !== undefined);
  if (!missing.length) return "";
  const shown = instead.length ? `; shown instead: ${instead.map(named(written)).join(", ")}` : "";
  return `Not found: ${missing.join(", ")}${shown}.`;
}

/** Say above a view what an address names in vain, quietly and until somebody does anything. */
function note(view, sentence) {
  const line = h("p.ds-unmet", { role: "status" }),
    away = new AbortController();
  view.after(line);
  setTimeout(() => (line.textContent = sentence)); // words of a line that is there are spoken
  for (const act of ["keydown", "pointerdown", "popstate"])
    window.addEventListener(act, () => [line.remove(), away.abort()], { signal: away.signal });
}

/** What a part says; null: nothing sound. Mail and chat encode commas, too. */
function readValue(name, value) {
  try {
    const words = decodeURIComponent(value),
      isData = DATA.includes(name);
    if (!LINKED[name].test(isData || TEXTS.includes(name) ? value : words)) return null;
    if (WHOLE.includes(name) && /^[0-9]+$/.test(words)) return Number(words);
    const found = isData ? JSON.parse(words) : words;
    return !isData || typeof found === "object" ? found : null;
  } catch {
    return null; // it was cut
  }
}

/** The hash of a state; what would not be read back is left out. */
export function writeLink(state) {
  const written = (name) => {
    const data = DATA.includes(name) && state[name] ? JSON.stringify(state[name]) : state[name];
    const value = String(data ?? "").replace(/[\ud800-\udfff]/gu, "\ufffd"); // half characters
    return TEXTS.includes(name) || DATA.includes(name) ? encodeURIComponent(value) : value;
  };
  const parts = Object.keys(LINKED).filter((name) => LINKED[name].test(written(name)));
  return parts.length ? `#${parts.map((name) => `${name}=${written(name)}`).join("&")}` : "";
}

/** The tab that a state is of. */
export function viewOf({ view, learn }) {
  return learn ? "learn" : view || "run";
}

/** An address in the studio: several runs that are of no tab stand side by side. */
export function completed(hash) {
  const { trace, view, learn } = readLink(hash);
  return trace?.includes(",") && !view && !learn ? `${hash}&view=compare` : hash;
}

/** A node as addresses name it; undefined: none. row: its row or GHOST; null or undefined: none. */
export function namedNode(row) {
  return row < 0 ? "ghost" : (row ?? undefined);
}

/** The row of a node that an address names. */
export function namedRow(node) {
  return node === "ghost" ? GHOST : node;
}

/** Read what the address says now. */
export function readAddress() {
  return readLink(window.location.hash);
}

/** Say what is on view, and what the server calls its runs, which stays out of the address.
 *  Another tab, and something else that was opened, are a new entry; `isShown`: it is what the
 *  entry on view asked for. Nothing else is written over the name of a tab that is still on its
 *  way. */
export function visit(state, runs = [], isShown = false) {
  if (awaited && awaited !== viewOf(state)) return;
  const { pathname, search, hash } = window.location,
    next = writeLink(state),
    entry = { view: viewOf(state), runs, opened: openedOf(state, runs) },
    before = ownEntry() ?? { view: viewOf(readLink(hash)), runs: null, opened: null };
  const others = before.view === entry.view && before.opened !== entry.opened,
    isNew = before.view !== entry.view || (others && before.opened !== null && entry.opened);
  if (next === hash && before.runs && !others && before.view === entry.view) return;
  try {
    const act = isNew && !isShown ? "pushState" : "replaceState";
    window.history[act]({ draftscope: entry }, "", next || pathname + search);
  } catch {
    // a sandboxed frame has no address of its own
  }
}

/** What is on view that is another entry when it is another: runs, a text, a chapter. */
function openedOf({ text, learn }, runs) {
  return runs.join() || text || learn?.split(".")[0] || "";
}

function ownEntry() {
  return window.history.state?.draftscope ?? null;
}

/** Open a tab: `open` says whether it is on view, and is asked again until the page is made. */
export function arrive(view, open, left = ARRIVAL.most) {
  awaited = open(view) || left <= 0 ? null : view;
  if (left === 0) note(document.querySelector(".ds-scope"), `Not found: view ${view}.`);
  const again = () => awaited === view && arrive(view, open, left - ARRIVAL.every);
  if (awaited) setTimeout(again, ARRIVAL.every);
}

/** Follow the page's address, and the browser's Back and Forward: `open` shows a tab. */
export function followHistory(open) {
  arrive(viewOf(readAddress()), open);
  window.addEventListener("popstate", () => arrive(viewOf(readAddress()), open));
}

/** What one tab shows, kept in the address: what is on view is written there, and what is there
 *  is shown, also when somebody goes back, or opens a link in another browser. */
export class ViewInAddress {
  /** view: the tab's name; element: seen while the tab is. hear: {
   *    state(): what is on view by the names of LINKED; null while that is on its way,
   *    runs(): names that only this server knows, of its runs or its file,
   *    show(state, runs, atStart, isWanted): show a state; null: the address is another tab's.
   *      `runs`: as they were written, null where somebody else wrote the address. isWanted():
   *      nothing newer was asked for meanwhile,
   *    go(asked): somebody on the page asks for something of this tab (goto.js), which comes before
   *      what the address names }; only state must be. */
  constructor(view, element, hear) {
    Object.assign(this, { view, element, turns: new Turns(), isShown: false });
    this.asked = ""; // the hash that is being followed, until what came of it is on view
    this.hear = { runs: () => [], show: () => {}, ...hear };
    const back = () => {
      if (!element.isConnected) window.removeEventListener("popstate", back);
      else if (viewOf(readAddress()) === view) this._show(readAddress(), false);
    };
    window.addEventListener("popstate", back);
    onGoTo(element, () => this._asked());
    onShown(element, () => this.write()); // another tab had the address
    const state = readAddress();
    this.ready = this._show(viewOf(state) === view ? state : null, true);
  }

  async _show(state, atStart) {
    clearTimeout(this.timer);
    this.asked = state ? window.location.hash : "";
    const isWanted = this.turns.take(),
      runs = state && (ownEntry()?.runs ?? null);
    try {
      await (this._asked() ?? this.hear.show(state, runs, atStart, isWanted));
    } catch (error) {
      console.error(error); // an address may hold anything: the tab goes on writing its own
    }
    if (!isWanted()) return;
    this.turns.end();
    this.isShown = state !== null;
    this.write();
  }

  /** What came of a request on the page; undefined: there is none. */
  _asked() {
    const asked = this.hear.go && taken(this.view);
    return asked ? Promise.resolve(this.hear.go(asked)) : undefined;
  }

  /** Somebody opens something else: what the address asked for is not wanted any more. */
  leave() {
    this.turns.end();
    this.asked = "";
  }

  /** Something on view is another. */
  moved() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.write(), SETTLE);
  }

  /** Write what is on view, as far as it is known and in sight. */
  write() {
    clearTimeout(this.timer);
    if (this.turns.isTaken || !this.element.getClientRects().length) return;
    const state = this.hear.state();
    if (!state) return;
    const view = this.view === "run" || state.learn ? undefined : this.view,
      vain = this.asked && unmet(this.asked, { view, ...state });
    visit({ view, ...state }, this.hear.runs(), this.isShown);
    this.isShown = false;
    this.asked = "";
    if (vain) note(this.element, vain);
  }
}

/** Call `hear` whenever the element comes into view, or the first time only. */
export function onShown(element, hear, once = false) {
  const seen = (entries, observer) => {
    if (!entries.some((each) => each.isIntersecting)) return;
    if (once) observer.disconnect();
    hear();
  };
  new IntersectionObserver(seen).observe(element);
}
