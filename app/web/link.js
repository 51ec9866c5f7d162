// What Run and Compare have in the address, and the button that copies a link: see address.js.

import { namedNode, namedRow, readAddress, ViewInAddress, viewOf, writeLink } from "./address.js";
import { toClipboard } from "./clipboard.js";
import { button } from "./dom.js";
import { namesOf, sharedNames, ticketsOf } from "./named.js";
import { go } from "./studio/page.js";

const LINK_SAID = 1500; // milliseconds

export class Permalink {
  constructor(studio) {
    this.studio = studio;
    this.view = studio.where.view; // its tab
    this._forget();
    this.button = button(
      "Link",
      {
        "aria-label": "Copy a link to this view",
        title: "Copy a link to this round and node",
        "data-stays": "", // it says in its own place what came of it
      },
      () => this.copy(),
    );
    this.button.hidden = window.parent !== window; // in a notebook there is no address to share
  }

  /** Follow the page's own address from now on. begin(atStart): nothing is named there. */
  listen(begin = () => {}) {
    this.begin = begin;
    this.address = new ViewInAddress(this.view, this.studio.scope, {
      state: () => this._written(),
      runs: () => this.studio.runs.tickets,
      show: (...asked) => this._show(...asked),
      go: (asked) => go(this.studio, asked),
    });
  }

  /** Open what an address names, then its round and node as soon as they are there. */
  async _show(state, runs, atStart, isWanted) {
    const { studio } = this;
    if (!state) return this.begin(atStart);
    const { tickets, said, lacks } = await ticketsOf(studio.source, state, runs, isWanted);
    if (!isWanted()) return;
    this.wanted = placeNamed(state);
    this.lacks = !!lacks && !tickets.length;
    if (runs || !atStart || hasLook(state)) this.look = state; // nothing named: the tree
    if (tickets.length || (runs && !atStart)) studio.runs.open(tickets);
    if (said) studio.complain(said);
    if (!tickets.length && !lacks) await this.begin(atStart);
    if (!isWanted()) return;
    if (!studio.panes[0].feed.run && !this.lacks) this.wanted = null;
    this.moved();
  }

  _forget() {
    this.wanted = null; // the round, place and node that the address names
    this.look = null; // what else it names of the view
    this.lacks = false; // whether both are of a file that is not here yet
  }

  /** Somebody opens other runs: what the address names is not of them, except of a file. */
  leave() {
    this.address?.leave();
    if (!this.lacks) this._forget();
  }

  /** The round and node that the page's address names for this view, if it does. */
  get place() {
    const state = readAddress();
    return viewOf(state) === this.view ? placeNamed(state) : null;
  }

  /** Somebody goes to a round and a node: as soon as they are there. */
  seek(state) {
    this.address?.leave();
    Object.assign(this, { wanted: state, lacks: false });
    this.moved();
  }

  /** Something on the page has moved, or rounds have come. */
  moved() {
    const { rounds, feed } = this.studio.panes[0];
    const isRun = feed.made !== undefined && feed.made !== null;
    if (this.lacks && isRun) this._forget(); // another run than that file
    if (this.look && rounds.length) {
      const { look } = this;
      this.look = null;
      this.studio.look.restore(look);
    }
    if (this.wanted) this._seek();
    else this.address?.moved();
  }

  /** Other runs are on view. */
  opened() {
    this.address?.write();
  }

  async _seek() {
    const { guide, panes, comparing } = this.studio,
      { wanted } = this,
      { round, node, place, who } = wanted,
      pane = (comparing && panes.find(({ letter }) => letter === who)) || panes[0],
      busy = panes.some(({ feed }) => feed.active),
      at = (round || 1) - 1;
    if (wanted.isComing) return;
    const isThere = comparing && place ? guide.holds(place, pane) : at < panes[0].rounds.length;
    if (!isThere) {
      if (!panes[0].rounds.length) return;
      const byHand = wanted.guide === guide && wanted.chosen !== guide.chosen;
      if (byHand) this.address?.leave(); // somebody stays elsewhere
      if (byHand || !busy)
        this.wanted = null; // or it does not come
      else Object.assign(wanted, { guide, chosen: guide.chosen });
      return;
    }
    wanted.isComing = true; // until then the address stays as it is
    const { studio } = this, // there it stays, where the run goes on, too
      isShown = await (comparing && place ? guide.go(place - 1) : studio.choose(panes[0], at));
    if (this.wanted !== wanted) return; // another place was named
    this.wanted = null;
    const row = namedRow(node);
    if (isShown && row !== undefined && pane.shown && pane.tree.has(row)) pane.inspect(row);
    else this.address?.moved();
  }

  get state() {
    const { panes, comparing, guide, active } = this.studio,
      pane = comparing ? active : panes[0],
      shown = pane.at >= 0 && pane.shown;
    return {
      ...namesOf(panes.filter(({ feed }) => feed.run).map(({ feed }) => feed.made)),
      view: this.view === "run" ? undefined : this.view,
      ...(this.look ?? this.studio.look.state),
      round: !comparing && shown ? pane.at + 1 : undefined,
      place: comparing ? guide.place + 1 : undefined,
      who: comparing && shown && pane.row !== null ? pane.letter : undefined,
      node: shown ? namedNode(pane.row) : undefined,
    };
  }

  /** The state to write; null: what a link named is on its way, or did not come. */
  _written() {
    const { guide, panes, runs, rounds } = this.studio,
      isAbout = viewOf(readAddress()) === this.view && window.location.hash.length > 1;
    if (this.wanted || this.look?.rows || rounds.wanted) return null;
    if (!runs.tickets.length && panes[0].at < 0 && isAbout) return null;
    // The place where a run is now changes, so a link does not name it.
    const following = guide.follow && panes.some(({ feed }) => feed.active);
    const moving = { round: undefined, place: undefined, node: undefined };
    return { ...this.state, ...(following && moving) };
  }

  /** Put a link on the clipboard; a live run gets a ticket that only lets one look. */
  async copy() {
    const { source, runs } = this.studio,
      { made, ...state } = this.state;
    let link = "";
    try {
      if (!state.trace && source.share && runs.tickets.length)
        Object.assign(state, await sharedNames(source, runs.tickets));
      link = window.location.href.split("#")[0] + writeLink(state);
      await toClipboard(link);
      this._say("copied");
    } catch (error) {
      this._say("not copied");
      this.studio.status.complain(`the link is not copied: ${error.message}`, link);
    }
  }

  _say(words) {
    this.button.textContent = words;
    this.studio.say(`link ${words}`);
    setTimeout(() => {
      this.button.textContent = "Link";
      this.button.dispatchEvent(new CustomEvent("draftscope-said", { bubbles: true }));
    }, LINK_SAID);
  }
}

function placeNamed({ round, place, node, who }) {
  return round || place || node !== undefined ? { round, place, node, who } : null;
}

function hasLook({ show, filter, sort, nodes, rows, zoom }) {
  return !!(show || filter || sort || nodes || rows || zoom);
}
