// p beside every q in an offline file: what app/view/beside.py answers in the studio, put together
// from the details of nodes that the file holds. Lists are the ten best there: what is further down
// is not known here.

import { GHOST } from "../tree/boxes.js";

const OF_TARGET = 5; // the best tokens that are listed, as in app/view/beside.py
const OF_DRAFTER = 3;
const MOST_TOKENS = 12;

/** treeOf(place): a promise of the tree there. inspect(question) answers with a node's details; the
 * rest is the studio's question and answer, but for `listed`, which is null after a node that the
 * file holds no child of. */
export async function besideOf(treeOf, inspect, { places, token }) {
  const found = await Promise.all(
    places.map(async (place) => {
      const ask = (row) => inspect({ ...place, row });
      return place && Promise.all(childrenOf(await treeOf(place), place.row).map(ask));
    }),
  );
  const nodes = found.flatMap((each) => each ?? []);
  const failed = nodes.find((node) => node.error);
  if (failed) return failed;
  const here = found.map((each) => each && placeOf(each));
  const own = nodes.find((node) => node.token === token)?.label;
  return { tokens: linesOf(here, own), listed: here.map((each) => each?.listed ?? null) };
}

/** The rows after a row, the target's own token too. */
function childrenOf({ parents, ghost }, row) {
  const rows = parents.flatMap((parent, at) => (parent === row ? [at] : []));
  return ghost?.parent === row ? [...rows, GHOST] : rows;
}

/** Gather what is known after a place, from the details of the nodes there. */
function placeOf(nodes) {
  const [first] = nodes;
  const odds = (list = []) => new Map(list.map((entry) => [entry.label, entry.odds]));
  return {
    target: odds(first?.target),
    drafter: odds(first?.drafter),
    chosen: (first?.target ?? []).filter((entry) => entry.chosen).map((entry) => entry.label),
    nodes: new Map(nodes.map((node) => [node.label, node])),
    listed: first ? first.drafter.length > 0 : null,
  };
}

function linesOf(here, own) {
  const known = here.filter(Boolean);
  const best = (list, count) => [...list.keys()].slice(0, count);
  const chosen = new Set(known.flatMap((each) => each.chosen));
  const labels = known.flatMap((each) => [
    ...each.chosen,
    ...best(each.target, OF_TARGET),
    ...best(each.drafter, OF_DRAFTER),
  ]);
  const lines = [...new Set(own === undefined ? labels : [own, ...labels])].map((label) => ({
    label,
    own: label === own,
    chosen: chosen.has(label),
    p: here.map((each) => each && (each.nodes.get(label)?.p ?? each.target.get(label) ?? null)),
    q: here.map((each) => each && (each.drafter.get(label) ?? each.nodes.get(label)?.q ?? null)),
    rank: here.map((each) => each && rankOf(each, label)),
    drafted: here.map((each) => draftedOf(each?.nodes.get(label))),
  }));
  const most = (values) => Math.max(...values.map((value) => value ?? 0));
  lines.sort((one, other) => most(other.p) - most(one.p) || most(other.q) - most(one.q));
  return lines.filter((line, at) => at < MOST_TOKENS || line.own || line.chosen);
}

function rankOf({ drafter, nodes }, label) {
  const at = [...drafter.keys()].indexOf(label);
  return at < 0 ? (nodes.get(label)?.rank_q ?? null) : at + 1;
}

/** The letter of a node's status, "" where the tree has no such node. */
function draftedOf(node) {
  return !node || node.row === GHOST ? "" : node.status[0];
}
