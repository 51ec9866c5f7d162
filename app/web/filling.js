// The form above a view is that of the runs on view, unless somebody is writing another one. It
// already is where it started them: an answer would come over the next prompt.

import { hasStarted } from "./form.js";
import { typedIn } from "./memory.js";

export class Filling {
  /** trigger(name, asked): ask the server to fill the form whose parts' ids begin with `prefix`;
   *  isKnown(feed): whether the server can tell that run's settings. */
  constructor(trigger, prefix, isKnown = ({ header }) => header) {
    Object.assign(this, { trigger, prefix, isKnown });
    this.started = new Set(); // tickets that this page was given by its form or for a file
    this.filled = ""; // the tickets whose settings it has
  }

  /** The form itself started these, or a file was opened beside it. */
  starts(tickets) {
    hasStarted(this.prefix);
    for (const ticket of tickets) this.started.add(ticket);
  }

  /** Once all of these runs are known. */
  of(runs) {
    const feeds = runs.map(({ feed }) => feed).filter(({ ticket }) => ticket),
      tickets = feeds.map(({ ticket }) => ticket),
      isOwn = ({ ticket, run }) => this.started.has(ticket) && run.source !== "file";
    if (!feeds.every(this.isKnown) || feeds.every(isOwn)) return;
    if (this.filled === tickets.join() || typedIn(this.prefix)) return;
    this.filled = tickets.join();
    this.trigger("refill", { tickets, quietly: true });
  }
}
