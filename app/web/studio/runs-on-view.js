// Which runs a view shows: opened, put beside each other and taken out again, a pane for each.

import { goesOn } from "../feed.js";
import { LETTERS } from "../parts.js";
import { keepTickets } from "./shelf.js";

export class RunsOnView {
  /** where: {view: its tab, places: how many it has room for}. hear: {made(letter, name) gives a
   * pane, began() and parted() when others are on view, cut() when
   * they take the place of one that went on, complain(sentence)}. */
  constructor({ view, places }, hear) {
    Object.assign(this, { view, places, hear });
    this.made = 0; // panes so far: the ids on a page stay apart
    this.panes = [];
    this.active = this._add();
  }

  /** The pane in hand, which is marked. */
  get active() {
    return this.held;
  }

  set active(held) {
    this.held = held;
    for (const pane of this.panes) pane.element.classList.toggle("active", pane === held);
  }

  _add() {
    const name = `ds-${this.view}-tree-${this.made++}`;
    const pane = this.hear.made(LETTERS[this.panes.length], name);
    this.panes.push(pane);
    return pane;
  }

  get tickets() {
    return this.panes.map((pane) => pane.feed.ticket).filter((ticket) => ticket !== null);
  }

  get busy() {
    return goesOn(this.panes.map(({ feed }) => feed));
  }

  /** For a reload of this tab. */
  keep() {
    keepTickets(this.view, this.tickets);
  }

  /** Show the run of a ticket, and beside it other ones. */
  open(tickets) {
    const wanted = tickets.filter(Boolean).slice(0, this.places);
    this.hear.complain("");
    if (wanted.join() === this.tickets.join()) return; // on view already
    if (this.panes.some((pane) => pane.feed.decoding)) this.hear.cut();
    for (const pane of this.panes.splice(1)) pane.feed.close();
    this.active = this.panes[0];
    this.active.open(wanted[0]);
    for (const other of wanted.slice(1)) this._add().open(other);
    this.hear.began();
  }

  /** Put a run beside what is shown; without any it is shown alone. */
  beside(ticket) {
    const { panes, places } = this;
    if (panes.length === 1 && !panes[0].feed.run) return this.open([ticket]);
    if (panes.some((pane) => pane.feed.ticket === ticket)) return;
    if (panes.length >= places) {
      const full = `${panes.length} runs are on view: take one out (⋯) to add another`;
      return this.hear.complain(full);
    }
    this.hear.complain("");
    this._add().open(ticket);
    this.hear.began();
  }

  /** Take a run out of the comparison. */
  part(pane) {
    pane.feed.close();
    this.panes = this.panes.filter((each) => each !== pane);
    if (!this.panes.includes(this.active)) this.active = this.panes[0];
    this.hear.parted();
  }
}
