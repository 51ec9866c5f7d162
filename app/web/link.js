// Permalinks: what is on view as the part of the address after "#", which never leaves the browser.
// A link names a shipped trace, or a run by a ticket that only lets one look. Whoever wrote a hash
// is not believed: a value that is not of its kind is as good as absent.

import { button, h } from "./dom.js";
import { answered } from "./feed.js";

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
};
const SETTLE = 250; // milliseconds before a move is written: browsers limit how often

/** "#trace=ddtree&round=3&node=17" → {trace, round, node}: known names with sound values only. */
export function readLink(hash) {
  const state = {};
  if (typeof hash !== "string" || hash.length > 500) return state;
  for (const part of hash.replace(/^#/, "").split("&")) {
    const [name, value, ...rest] = part.split("=");
    if (rest.length || !Object.hasOwn(LINKED, name) || !LINKED[name].test(value || "")) continue;
    const whole = name === "round" || (name === "node" && value !== "ghost");
    state[name] = whole ? Number(value) : value;
  }
  return state;
}

/** The hash of a state; what would not be read back is left out. */
function writeLink(state) {
  const parts = Object.keys(LINKED).filter((name) => LINKED[name].test(String(state[name] ?? "")));
  return parts.length ? `#${parts.map((name) => `${name}=${state[name]}`).join("&")}` : "";
}

export class Permalink {
  constructor(studio) {
    this.studio = studio;
    this.view = studio.where.view; // its tab
    this.names = new Map(); // ticket → the name of a shipped trace
    this.wanted = null;
    this.button = button(
      "Link",
      {
        class: "ds-button",
        "aria-label": "Copy a link to this view",
        title: "Copy a link to this round and node",
      },
      () => this.copy(),
    );
    this.button.hidden = window.parent !== window; // in a notebook there is no address to share
  }

  /** Follow the page's own address from now on. */
  listen() {
    this.onHash = () => {
      if (!this.button.isConnected) return window.removeEventListener("hashchange", this.onHash);
      this.apply(readLink(window.location.hash));
    };
    window.addEventListener("hashchange", this.onHash);
    return this.apply(readLink(window.location.hash));
  }

  /** Open what a link names, then its round and node as soon as they are there. */
  async apply(state) {
    const { source } = this.studio;
    if ((state.view || "run") !== this.view) return false;
    const wanted = this._place(state);
    let opened = true;
    if (state.trace && source.example) opened = await this._examples(state.trace.split(","));
    else if (state.run && source.share)
      this.studio.open(state.run, state.other, state.third, state.fourth);
    else opened = false;
    const named = /[#&](run|trace)=/.test(window.location.hash);
    if (named && !state.trace && !state.run)
      this.studio.complain("the address names a run that cannot be: it may have been cut");
    this.wanted = opened || this.studio.panes[0].feed.run ? wanted : null;
    this.moved();
    return opened;
  }

  /** The round and node that the page's address names for this view, if it does. */
  get place() {
    const state = readLink(window.location.hash);
    return (state.view || "run") === this.view ? this._place(state) : null;
  }

  _place(state) {
    return state.round || state.node !== undefined ? state : null;
  }

  async _examples(names) {
    const answers = await Promise.all(
      names.map((name) => answered(this.studio.source.example({ name }))),
    );
    const tickets = answers.map((answer) => answer.ticket),
      failed = answers.find((answer) => answer.error);
    if (failed) this.studio.complain(failed.error);
    if (failed) return false;
    tickets.forEach((ticket, at) => this.names.set(ticket, names[at]));
    this.studio.open(...tickets);
    return true;
  }

  /** Go to a round and a node as soon as they are there. */
  seek(state) {
    this.wanted = state;
    this.moved();
  }

  /** Something on the page has moved, or rounds have come. */
  moved() {
    if (this.wanted) return this._seek();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this._write(), SETTLE);
  }

  _seek() {
    const pane = this.studio.panes[0],
      { round, node } = this.wanted,
      at = (round || 1) - 1;
    if (at >= pane.rounds.length) {
      if (pane.rounds.length && !pane.feed.active) this.wanted = null; // there is no such round
      return;
    }
    this.wanted = null;
    const row = node === "ghost" ? -1 : node;
    this.studio.reach(at);
    if (row !== undefined && pane.at === at && pane.tree.has(row)) pane.inspect(row);
  }

  get state() {
    const { panes } = this.studio,
      pane = panes[0],
      shown = pane.at >= 0;
    const names = panes.map((each) => this.names.get(each.feed.ticket));
    return {
      trace: names.every(Boolean) ? names.join(",") : undefined,
      view: this.view === "run" ? undefined : this.view,
      round: shown ? pane.at + 1 : undefined,
      node: !shown || pane.row === null ? undefined : pane.row < 0 ? "ghost" : pane.row,
    };
  }

  _write() {
    const { guide, panes } = this.studio,
      { pathname, search, hash } = window.location;
    const following = guide.follow && panes[0].feed.active; // where a run is now is no place to link to
    if (following && !this.place) return;
    const next = writeLink(
      following ? { ...this.state, round: undefined, node: undefined } : this.state,
    );
    if (next === hash || !this.studio.scope.getClientRects().length || panes[0].at < 0) return;
    try {
      window.history.replaceState(null, "", next || pathname + search);
    } catch {
      // a sandboxed frame has no address of its own
    }
  }

  /** Put a link on the clipboard; a live run gets a ticket that only lets one look. */
  async copy() {
    const { panes, source } = this.studio,
      state = this.state,
      any = panes.some((pane) => pane.feed.run || pane.rounds.length);
    try {
      if (!state.trace && source.share && any) {
        const links = await Promise.all(
          panes.map((pane) => answered(source.share({ ticket: pane.feed.ticket }))),
        );
        const failed = links.find((answer) => answer.error);
        if (failed) throw new Error(failed.error);
        ["run", "other", "third", "fourth"].forEach((name, at) => {
          if (links[at]) state[name] = links[at].link;
        });
      }
      await toClipboard(window.location.href.split("#")[0] + writeLink(state));
      this._say("copied");
    } catch (error) {
      this.studio.complain(`the link is not copied: ${error.message}`);
      this._say("not copied");
    }
  }

  _say(words) {
    this.button.textContent = words;
    this.studio.announce.textContent = `link ${words}`;
    setTimeout(() => (this.button.textContent = "Link"), 1500);
  }
}

async function toClipboard(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const box = h("textarea", { class: "ds-unseen" });
  box.value = text;
  document.body.append(box);
  box.select();
  const done = document.execCommand("copy");
  box.remove();
  if (!done) throw new Error("no clipboard");
}
