// What What-if has in the address: the text, where it ships or belongs to a run that an address
// names; and the setting.

import { awaits } from "../goto.js";
import { namesOf, ticketsOf, whenEnded } from "../named.js";
import { changedOf } from "./knobs.js";

/** What is on view; null: it is on its way. */
export function stateOf(view) {
  const { file, knobs, curves, draft, more, place, about } = view,
    { method } = knobs;
  if (!file || !method || view.awaited) return null;
  const find = (name) => about.methods.find((each) => each.name === name),
    changed = changedOf(method, knobs.values);
  const kept = curves.kept.map((each) => ({
    method: each.method,
    options: changedOf(find(each.method), each.options),
  }));
  return {
    ...(view.ships ? { text: file } : namesOf([view.made.get(file) ?? null])),
    method: method.name,
    budget: knobs.budget,
    options: Object.keys(changed).length ? changed : undefined,
    place: place ? place + 1 : undefined,
    node: draft.row === null ? undefined : draft.row < 0 ? "ghost" : draft.row,
    nodes: draft.tabular ? "table" : undefined,
    more: more.chosen.join(",") || undefined,
    kept: kept.length ? kept : undefined,
  };
}

/** Show the text and the setting that an address names, or a text to begin with. `files`: by the
 *  server's own name, one that does not ship. */
export async function showLinked(view, state, files) {
  await view.list();
  if (awaits("whatif")) return view.goTo();
  const file = files?.[0];
  if (file || view.listed?.includes(state.text))
    return view.open(file ?? state.text, file && "the opened file", state);
  const { tickets, said } = await ticketsOf(view.source, state, null);
  view.complain(said);
  await whenEnded(view.source, tickets);
  if (tickets.length) await view.collecting.begin(tickets[0], state);
  else if (!view.file && view.listed?.length) await view.open(view.listed[0]);
  if (said) view.complain(said);
}
