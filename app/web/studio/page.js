// Events that a view hears from the page around it: keys, Stop, requests of other tabs; and what a
// reload had on view.

import { namedNode } from "../address.js";
import { awaits, onGoTo, taken } from "../goto.js";
import { fillFromCourse } from "./from-course.js";
import { actsOf, takesKey } from "./keys.js";
import { keptTickets } from "./shelf.js";

/** `studio` hears it as long as `element` is on the page. */
export function listenToPage(studio, element) {
  const { scope, where } = studio;
  const onKey = (event) => {
    if (!element.isConnected) return document.removeEventListener("keydown", onKey);
    if (!element.getClientRects().length || event.defaultPrevented) return;
    if (!studio.help.open && !studio.shelf?.isOpen && !takesKey(event)) act(studio, event);
  };
  document.addEventListener("keydown", onKey);
  window.addEventListener("draftscope-stop", ({ detail }) => {
    if (detail === where.stop) for (const pane of studio.panes) pane.feed.halt();
  });
  onGoTo(scope, () => go(studio));
}

function act(studio, event) {
  const wanted = actsOf(studio, event.shiftKey)[event.key];
  if (!wanted) return;
  event.preventDefault();
  wanted();
}

/** Somebody on the page asked for a run, a round or a node of this view. */
function go(studio) {
  const { where, panes, link, scope } = studio;
  const asked = taken(where.view);
  if (!asked) return;
  const { ticket, tickets, shelf, round, row } = asked;
  if (shelf) studio.shelf.open();
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
