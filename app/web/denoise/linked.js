// What Denoise has in the address: its runs, the step, the draft that is picked and which graph and
// ranking are drawn.

import { awaits } from "../goto.js";
import { namesOf, ticketsOf } from "../named.js";
import { keptTickets } from "../studio/shelf.js";

/** What is on view; null: it is on its way. */
export function stateOf(view) {
  const { runs, player, graph, ranking, row, tickets } = view;
  if (view.wanted || (tickets.length && !view.reach)) return null;
  const opened = runs.filter(({ feed }) => feed.run),
    moving = player.follow && view.busy;
  return {
    ...namesOf(opened.map(({ feed }) => feed.made)),
    round: view.reach && !moving ? player.place + 1 : undefined,
    node: row === null ? undefined : row < 0 ? "ghost" : row,
    show: graph.whole ? "graph" : ranking.read ? "before" : undefined,
  };
}

/** Show what an address names; else, at the start, what was on view before a reload. */
export async function showLinked(view, state, runs, atStart) {
  if (awaits("denoise")) return view.goTo();
  if (!state) return view.open(keptTickets("denoise"));
  const { tickets, said } = await ticketsOf(view.source, state, runs);
  if (tickets.length) {
    if (tickets.join() !== view.tickets.join()) view.open(tickets);
    view.wanted = state;
    view.seek();
  } else if (runs && !atStart) view.open([]);
  else if (atStart && !said) view.open(keptTickets("denoise"));
  if (said) view.complain(said);
}

/** The step that an address names, as soon as it is there. */
export async function goToWanted(view, { round, node, show }) {
  const { graph, ranking, player } = view;
  if (round) player.go(round - 1);
  if (!!graph.whole !== (show === "graph")) await graph.turn(show === "graph");
  if (node !== undefined) view.pick(node === "ghost" ? -1 : node);
  if (show === "before") ranking.turn(true);
}
