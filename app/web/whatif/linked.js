// What What-if has in the address: the text, where it ships or belongs to a run that an address
// names; and the setting.

import { namedNode } from "../address.js";
import { h } from "../dom.js";
import { NEEDS_FILE, namesOf, ticketsOf, whenEnded } from "../named.js";
import { changedOf } from "./knobs.js";

/** What is on view, or is being collected; null: it is on its way. */
export function stateOf(view) {
  const { file, knobs, curves, draft, more, place, about } = view,
    { method } = knobs;
  if (isCollecting(view)) {
    const { made, ...setting } = view.collecting.setting;
    return { ...setting, ...namesOf([made ?? null]) };
  }
  const isComing = view.awaited || view.row !== undefined; // or a node that an address names
  if (!file || !method || isComing) return null;
  const find = (name) => about.methods.find((each) => each.name === name),
    changed = changedOf(method, knobs.values);
  const kept = curves.kept.map((each) => ({
    method: each.method,
    options: changedOf(find(each.method), each.options),
  }));
  const isOfFile = !view.ships || view.unnamed === NEEDS_FILE; // until another text is chosen
  return {
    ...(isOfFile ? namesOf([view.made.get(file) ?? null]) : { text: file }),
    method: method.name,
    budget: knobs.budget,
    options: Object.keys(changed).length ? changed : undefined,
    place: place ? place + 1 : undefined,
    node: namedNode(draft.row),
    nodes: draft.tabular ? "table" : undefined,
    more: more.chosen.join(",") || undefined,
    kept: kept.length ? kept : undefined,
  };
}

/** Whether a text is awaited that is being collected. */
function isCollecting({ awaited, collecting }) {
  return awaited && !!collecting.setting && collecting.isWanted();
}

/** The server's own name of the text on view, or of the one that is being collected: a list of it,
 *  empty where the text ships. */
export function fileOf(view) {
  const own = isCollecting(view) ? view.collecting.file : !view.ships && view.file;
  return own ? [own] : [];
}

/** Show the text and the setting that an address names, or a text to begin with. `state`: null
 *  where it names none; `files`: by the server's own name, one that does not ship, as long as the
 *  server has it. isWanted(): no newer state was asked for. */
export async function showLinked(view, state, files, isWanted) {
  view.texts.end(); // a file that was being opened is not awaited any more
  view.unnamed = "";
  await view.list();
  if (!isWanted()) return;
  const [file] = files ?? [],
    named = view.listed?.includes(state?.text) ? state.text : null;
  const own = state && { ...state, made: state.made?.[0] ?? state.trace };
  if (file && (await view.open(file, "the opened file", own ?? {}))) return;
  if (!isWanted()) return;
  if (named) return view.open(named, null, state);
  const { tickets, said, lacks } = await ticketsOf(view.source, state, null, isWanted);
  if (!isWanted()) return;
  if (tickets.length) view.expect();
  view.unnamed = said;
  view.complain("");
  await waitFor(view, tickets, isWanted);
  if (!isWanted()) return;
  if (tickets.length) await view.collecting.begin(tickets[0], state);
  else await view.settle(lacks ? { ...state, node: undefined, made: undefined } : {});
}

/** Wait for the run of a link, which may have to be decoded again, and say so where the cards will
 *  stand. */
async function waitFor(view, tickets, isWanted) {
  if (!tickets.length) return;
  const words = "The run that the link names is decoded first; then its text is collected.",
    told = h("p.ds-soft.ds-tell", { role: "status" }, words);
  view.coming.firstChild.append(told);
  await whenEnded(view.source, tickets, isWanted);
  told.remove();
}
