// Permalinks: a link names a shipped trace, or a run by a ticket that only lets one look.

import { isOwnEntry, readAddress, viewOf, visit, writeLink } from "./address.js";
import { toClipboard } from "./clipboard.js";
import { button } from "./dom.js";
import { answered } from "./feed.js";

const SETTLE = 250; // milliseconds before a move is written: browsers limit how often

export class Permalink {
  constructor(studio) {
    this.studio = studio;
    this.view = studio.where.view; // its tab
    this.names = new Map(); // ticket → the name of a shipped trace
    this.wanted = null; // the round and node that the address names
    this.look = null; // what else it names of the view
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
      if (!isOwnEntry()) this.apply(readAddress()); // the others: see studio/page.js, onBack
    };
    window.addEventListener("hashchange", this.onHash);
    this.listening = true;
    return this.apply(readAddress());
  }

  /** Open what a link names, then its round and node as soon as they are there. */
  async apply(state) {
    const { source } = this.studio;
    if (viewOf(state) !== this.view) return false;
    const named = /[#&](run|trace)=/.test(window.location.hash);
    let opened = true;
    this.wanted = this._place(state);
    if (state.show || state.filter || state.sort) this.look = state;
    if (state.trace && source.example) opened = await this._examples(state.trace.split(","));
    else if (state.run && source.share)
      this.studio.open(state.run, state.other, state.third, state.fourth);
    else opened = false;
    if (named && !state.trace && !state.run)
      this.studio.complain("the address names a run that cannot be: it may have been cut");
    if (!opened && !this.studio.panes[0].feed.run) this.wanted = null;
    this.moved();
    return opened;
  }

  /** The round and node that the page's address names for this view, if it does. */
  get place() {
    const state = readAddress();
    return viewOf(state) === this.view ? this._place(state) : null;
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
    this._restore();
    if (this.wanted) return this._seek();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this._write(), SETTLE);
  }

  /** The rest of the view as the address has it, once there are rounds to show. */
  _restore() {
    const { look } = this;
    if (!look || !this.studio.panes[0].rounds.length) return;
    this.look = null;
    this.studio.look.restore(look);
  }

  /** Other runs are on view. */
  opened() {
    clearTimeout(this.timer);
    if (this.listening && !this.wanted) this._write();
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
      ...(this.look ?? this.studio.look.state),
      round: shown ? pane.at + 1 : undefined,
      node: !shown || pane.row === null ? undefined : pane.row < 0 ? "ghost" : pane.row,
    };
  }

  _write() {
    const { guide, panes, scope } = this.studio,
      tickets = panes.map((pane) => pane.feed.ticket).filter((ticket) => ticket !== null),
      elsewhere = viewOf(readAddress()) !== this.view;
    if (!scope.getClientRects().length) return;
    if (!tickets.length && panes[0].at < 0 && !elsewhere) return; // what a link named may come yet
    // Where a run is now is no place to link to.
    const following = guide.follow && panes[0].feed.active;
    const moving = following ? { round: undefined, node: undefined } : {};
    visit({ ...this.state, ...moving }, tickets);
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
    this.studio.say(`link ${words}`);
    setTimeout(() => (this.button.textContent = "Link"), 1500);
  }
}
