// What a view hears from the page around it: keys, Stop, what other tabs ask for; and what a reload
// had on view.

import { namedNode } from "../address.js";
import { onKeys } from "../keys.js";
import { fillFromCourse } from "./from-course.js";
import { actsOf } from "./keys.js";
import { keptTickets } from "./shelf.js";

/** `studio` hears it as long as `element` is on the page. */
export function listenToPage(studio, element) {
  const { where } = studio;
  onKeys(element, ({ key, shiftKey }) => actsOf(studio, shiftKey)[key]);
  window.addEventListener("draftscope-stop", ({ detail }) => {
    if (detail === where.stop) for (const pane of studio.panes) pane.feed.halt();
  });
}

/** Somebody on the page asked for a run, a round or a node of this view. */
export function go(studio, asked) {
  const { where, panes, link, scope } = studio;
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

/** Show what a reload had on view; gives whether there was anything. */
export function restore(studio) {
  const said = studio.status.complaint,
    tickets = keptTickets(studio.where.view);
  if (!tickets.length) return false;
  studio.runs.open(tickets);
  if (said) studio.complain(said); // of the link that was followed in vain
  return true;
}
