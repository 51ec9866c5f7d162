// The first view of a page: a good round of an example, its path drawn once, step by
// step, or of two side by side; and the form filled with the settings of the runs on view.

import { Filling } from "../filling.js";
import { isRequest, openNamed } from "../named.js";
import { keepTickets, keptTickets, UNASKED } from "./shelf.js";

/** The number of a round that accepted most, and of those the one that drafted most. */
function bestOf(rounds) {
  const gain = ({ accepted, drafted }) => accepted + drafted / 1e4;
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
    this.coming = new Set(); // tickets of the examples whose rounds are on their way
    this.shown = ""; // the tickets that the page itself opened
    const isKnown = ({ header, made }) => header || isRequest(made);
    this.filling = new Filling(studio.trigger, studio.where.stop, isKnown);
  }

  /** Whether nothing is on view, and nothing was said. */
  get may() {
    return !this.studio.panes[0].feed.ticket && !this.studio.status.complaint;
  }

  /** Whether nobody has opened anything but the page itself. */
  get alone() {
    return this.studio.runs.tickets.join() === this.shown;
  }

  /** Open examples, unless somebody has opened something meanwhile. */
  async on(names) {
    const { studio } = this;
    const { tickets } = await openNamed(studio.source, names);
    if (!tickets.length || !this.may) return;
    this.coming = new Set(tickets);
    this.shown = tickets.join();
    keepTickets(UNASKED, [...new Set([...keptTickets(UNASKED), ...tickets])]);
    studio.runs.open(tickets);
  }

  /** The number of the round at which a recorded run is shown first: of the one that is asked for,
   * else of the best of an example that the page itself opens. */
  at({ feed, rounds }) {
    const named = (this.studio.link.wanted?.round ?? 0) - 1;
    if (named >= 0) return named < rounds.length ? named : 0;
    return this.coming.has(feed.ticket) ? bestOf(rounds) : 0;
  }

  /** Somebody chose these from the shelf, whoever opened them before. */
  chosen(tickets) {
    const others = keptTickets(UNASKED).filter((ticket) => !tickets.includes(ticket));
    keepTickets(UNASKED, others);
  }

  /** The rounds of a run have come, all of them. */
  async settled({ feed, rounds }) {
    if (!rounds.length || !this.coming.delete(feed.ticket) || this.coming.size) return;
    const { panes } = this.studio;
    const best = panes.map((pane) => ({ pane, at: bestOf(pane.rounds) }));
    best.sort((a, b) => b.pane.rounds[b.at].accepted - a.pane.rounds[a.at].accepted);
    const isShown = await this.studio.reach(best[0].at, best[0].pane);
    if (!isShown || panes.length > 1) return; // of several it would take long
    panes[0].tree.frame(false); // no glide: of a long run the best of its beginning was shown
    unroll(panes[0].tree.svg);
  }

  /** Compare's form begins with the settings of what it opens. */
  fill() {
    const { panes } = this.studio;
    if (!this.alone || panes.length === 1) this.filling.of(panes);
  }
}
