// What Denoise has in the address: its runs, the step, the draft that is picked and which graph and
// ranking are drawn.

import { namedNode, namedRow } from "../address.js";
import { answered } from "../feed.js";
import { namesOf, openNamed, ticketsOf } from "../named.js";
import { keptTickets } from "../studio/shelf.js";
import { bestStep } from "./steps.js";

/** What is on view; null: it is on its way. */
export function stateOf(view) {
  const { runs, player, graph, ranking, row, tickets } = view;
  if (view.wanted || view.seeking || (tickets.length && !view.reach)) return null;
  const opened = runs.filter(({ feed }) => feed.run),
    moving = player.follow && view.busy;
  return {
    ...namesOf(opened.map(({ feed }) => feed.made)),
    round: view.reach && !moving ? player.place + 1 : undefined,
    node: namedNode(row),
    show: graph.whole ? "graph" : ranking.read ? "before" : undefined,
  };
}

/** Show what was on view before a reload; else there is something to look at from the start: an
 * example at the call that saved most. */
async function begin(view) {
  const kept = keptTickets("denoise"),
    { first } = kept.length ? {} : await answered(view.source.examples({})),
    { tickets } = await openNamed(view.source, first?.denoise ?? []);
  if (view.tickets.length) return; // somebody opened something meanwhile
  view.open([...kept, ...tickets]);
  if (tickets.length) view.wanted = { round: Number.POSITIVE_INFINITY, best: true };
}

/** Show what an address names; else, at the start, what was on view before a reload. */
export async function showLinked(view, state, runs, atStart, isWanted) {
  if (!state) return begin(view);
  const { tickets, said } = await ticketsOf(view.source, state, runs, isWanted);
  if (!isWanted()) return;
  if (tickets.length) {
    if (tickets.join() !== view.tickets.join()) view.open(tickets);
    view.wanted = state;
    seek(view);
  } else if (runs && !atStart) view.open([]);
  else if (atStart && !said) await begin(view);
  if (said && isWanted()) view.complain(said);
}

/** Go to what the address names, once it is there; where nothing comes, or somebody has stepped by
 *  hand meanwhile, forget it. */
export function seek(view) {
  const { wanted, reach, runs, player } = view,
    comes = runs.some(({ feed, steps }) => feed.active && steps.length < (wanted?.round ?? 1));
  if (!wanted || (comes && (player.follow || !reach))) return;
  view.wanted = null;
  if (!reach || comes) return;
  view.seeking = goTo(view, wanted).finally(() => {
    view.seeking = null;
    view.address.moved();
  });
}

async function goTo(view, { round, node, show, best }) {
  const { graph, ranking, player } = view;
  if (best) player.go(bestStep(view.main.steps));
  else if (round) player.go(round - 1);
  const isWhole = show === "graph";
  if (!!graph.whole !== isWhole && !(await graph.turn(isWhole))) return;
  if (node !== undefined) view.pick(namedRow(node));
  if (show === "before") ranking.turn(true);
}
