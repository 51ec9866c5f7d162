// The form above Denoise is that of the runs on view, unless somebody is writing another one. It
// already is where it started them: an answer would come over the next prompt.

import { hasStarted, recallForm } from "../form.js";
import { typedIn } from "../memory.js";

export class Filling {
  /** trigger(name, asked): ask the server to fill the form whose parts' ids begin with `prefix`. */
  constructor(trigger, prefix) {
    Object.assign(this, { trigger, prefix, started: new Set() });
    recallForm(prefix, trigger);
  }

  /** The form itself started these. */
  starts(tickets) {
    hasStarted(this.prefix);
    for (const ticket of tickets) this.started.add(ticket);
  }

  /** Once all of these runs are known. */
  of(runs) {
    const opened = runs.filter(({ feed }) => feed.ticket),
      tickets = opened.map(({ feed }) => feed.ticket),
      own = tickets.every((ticket) => this.started.has(ticket));
    if (opened.every(({ header }) => header) && !own && !typedIn(this.prefix))
      this.trigger("refill", { tickets, quietly: true });
  }
}
