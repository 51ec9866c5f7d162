// Events that a view hears from the page around it: keys, Stop, requests of other tabs; and what a
// reload had on view.

import { namedNode } from "../address.js";
import { awaits, onGoTo, taken } from "../goto.js";
import { onKeys } from "../keys.js";
import { fillFromCourse } from "./from-course.js";
import { actsOf } from "./keys.js";
import { keptTickets } from "./shelf.js";

/** `studio` hears it as long as `element` is on the page. */
export function listenToPage(studio, element) {
  const { scope, where } = studio;
  onKeys(element, ({ key, shiftKey }) => actsOf(studio, shiftKey)[key]);
  window.addEventListener("draftscope-stop", ({ detail }) => {
    if (detail === where.stop) for (const pane of studio.panes) pane.feed.halt();
  });
  onGoTo(scope, () => go(studio));
}

/** Somebody on the page asked for a run, a round or a node of this view. */
function go(studio) {
  const { where, panes, link, scope } = studio;
  const asked = taken(where.view);
  if (!asked) return;
  const { ticket, tickets, shelf, round, row } = asked;
  if (shelf) studio.shelf.open();
  else studio.shelf?.close(); // what is opened is to be seen
  if (asked.filling) fillFromCourse(studio, asked);
  if (tickets) studio.open(...tickets);
  else if (ticket && where.places > 1) studio.beside(ticket);
  else if (ticket && ticket !== panes[0].feed.ticket) studio.open(ticket);
  scope.scrollIntoView({ block: "start" });
  if (typeof round !== "number") return;
  link.seek({ round: round + 1, node: namedNode(row) });
}

/** Show what a reload had on view, or what somebody on the page asked for; gives whether there was
 * either. */
export function restore(studio) {
  const asked = awaits(studio.where.view);
  if (asked) go(studio);
  const said = studio.status.complaint;
  const tickets = keptTickets(studio.where.view);
  if (asked || !tickets.length) return asked;
  studio.runs.open(tickets);
  if (said) studio.complain(said); // of the link that was followed in vain
  return true;
}
