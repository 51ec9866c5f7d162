// The first view of a page: a good round of an example, its path drawn once, step by step; and the
// form filled with the settings of the run on view.

import { answered } from "../feed.js";
import { typedIn } from "../memory.js";

/** The number of a round that accepted most, and of those the one that drafted most. */
export function bestOf(rounds) {
  const gain = ({ accepted, y }) => accepted + y.length / 1e4;
  return rounds.reduce((best, round, at) => (gain(round) > gain(rounds[best]) ? at : best), 0);
}

/** Draw what is on view once more, depth by depth. */
function unroll(svg) {
  const rolled = () => svg.classList.remove("unroll");
  rolled();
  svg.getBoundingClientRect(); // else the animation is not begun anew
  svg.classList.add("unroll");
  svg.addEventListener("animationend", rolled, { once: true });
}

export class Opening {
  constructor(studio) {
    this.studio = studio;
    this.ticket = null; // of the example that is on its way
    this.started = new Set(); // tickets that this page was given by its form or for a file
  }

  /** Open an example, unless somebody has opened something meanwhile. */
  async on(name) {
    const { studio } = this;
    const { ticket } = await answered(studio.source.example({ name }));
    if (!ticket || studio.panes[0].feed.ticket || studio.status.complaint) return;
    this.ticket = ticket;
    studio.open(ticket);
  }

  /** The rounds of a run have come, all of them. */
  settled({ feed, rounds, tree }) {
    if (feed.ticket !== this.ticket || !rounds.length) return;
    this.ticket = null;
    this.studio.reach(bestOf(rounds));
    unroll(tree.svg);
  }

  /** The form is that of the runs on view, unless somebody is writing another one. It already is
   *  where it started them: an answer would come over the next prompt. */
  fill() {
    const { panes, runs, where, trigger } = this.studio;
    const headed = panes.every(({ feed }) => feed.header);
    const own = panes.every(
      ({ feed }) => this.started.has(feed.ticket) && feed.run.source !== "file",
    );
    if (headed && !own && !typedIn(where.stop))
      trigger("refill", { tickets: runs.tickets, quietly: true });
  }
}
