// Events that a view hears from the page around it: keys, Stop, requests of other tabs, Back and
// Forward, and what a reload had on view.

import { onBack, onShown } from "../address.js";
import { awaits, onGoTo, taken } from "../goto.js";
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
  onShown(scope, () => studio.link.moved()); // another tab had the address
  onBack(scope, where.view, (tickets) => reopen(studio, tickets));
}

function act(studio, event) {
  const wanted = actsOf(studio, event.shiftKey)[event.key];
  if (!wanted) return;
  event.preventDefault();
  wanted();
}

/** Runs that were on view before, at the place that the address names. */
function reopen(studio, tickets) {
  const { place } = studio.link;
  studio.open(...tickets);
  if (place) studio.link.seek(place);
}

/** Somebody on the page asked for a run, a round or a node of this view. */
function go(studio) {
  const { where, panes, link, scope } = studio;
  const asked = taken(where.view);
  if (!asked) return;
  const { ticket, tickets, shelf, round, row } = asked;
  if (shelf) studio.shelf.open();
  if (tickets) studio.open(...tickets);
  else if (ticket && where.places > 1) studio.beside(ticket);
  else if (ticket && ticket !== panes[0].feed.ticket) studio.open(ticket);
  scope.scrollIntoView({ block: "start" });
  if (typeof round !== "number") return;
  link.seek({ round: round + 1, node: row === undefined ? undefined : row < 0 ? "ghost" : row });
}

/** Show what a reload had on view, unless somebody asked for something else. */
export function restore(studio) {
  if (awaits(studio.where.view)) return go(studio);
  const said = studio.status.complaint;
  const tickets = keptTickets(studio.where.view);
  if (!tickets.length) return;
  reopen(studio, tickets);
  if (said) studio.complain(said); // of the link that was followed in vain
}
