// The columns of numbers in the table of methods.

import { estimate, h, number, ratio } from "../dom.js";

const SHOWN_DEPTHS = 5;
const BLANK = "  \u2007\u2008\u2007\u2007"; // as wide as the two spaces and digits of a depth

/** name: in an address; words: the heading; says: what it means, in few words below it; title: in
 * full, where it is pointed at; key(row): what the rows are sorted by, null where it is not known;
 * up: the least is the best; cell(row, most): what stands in the table, with the largest τ of its
 * rows; optional: left out where no row has it. */
export const COLUMNS = [
  {
    name: "tau",
    words: "τ",
    says: "tokens a round",
    title: "tokens per round: accepted + 1, with a 95 % interval over prompts",
    key: (row) => row.tau,
    cell: tauBar,
  },
  {
    name: "speed",
    words: "speed",
    says: "÷ plain decoding",
    title: "tokens per second ÷ plain decoding's, the median over prompts",
    key: (row) => row.speed,
    cell: (row) => ratio(row.speed || null),
  },
  {
    name: "tvd",
    words: "TVD by depth",
    says: "how far q is from p: 0 to 1",
    title: "mean ½ Σ |q − p| at depths 1, 2, …",
    key: (row) => row.tvd[0],
    up: true,
    cell: (row) => depths(row.tvd),
  },
  {
    name: "coverage",
    words: "top 16 by depth",
    says: "p of the drafter's 16 best",
    title: "mean p of the drafter's 16 best tokens",
    key: (row) => row.coverage[0],
    cell: (row) => depths(row.coverage),
  },
  {
    name: "draft",
    words: "draft ms",
    says: "a round",
    title: "drafting and building, a round",
    key: (row) => row.draft_ms,
    up: true,
    cell: (row) => number(row.draft_ms, 1),
  },
  {
    name: "round",
    words: "round",
    says: "÷ a plain token",
    title: "time of a round ÷ time of one token of plain decoding",
    key: costOf,
    up: true,
    cell: (row) => ratio(costOf(row)),
  },
  {
    name: "generate",
    words: "÷ generate",
    says: "transformers' own",
    title: "tokens per second ÷ those of transformers' generate, the median over prompts",
    key: (row) => row.generate,
    cell: (row) => ratio(row.generate || null),
    optional: true,
  },
  {
    name: "same",
    words: "as plain",
    says: "same text",
    title: "timed runs with plain decoding's own tokens",
    key: (row) => row.timed && row.same / row.timed,
    cell: (row) => (row.timed ? `${row.same} of ${row.timed}` : "–"),
  },
];

/** The columns for these rows. */
export function columnsFor(rows) {
  return COLUMNS.filter(({ optional, key }) => !optional || rows.some(key));
}

function costOf(row) {
  return row.forward_ms && row.round_ms ? row.round_ms / row.forward_ms : null;
}

/** τ as a number, and a bar with its interval, where it has one. */
function tauBar({ tau, low, high }, most) {
  const at = (value) => `${(100 * value) / most}%`,
    bar = h("i.ds-tau-bar"),
    whisker = h("b.ds-tau-whisker");
  bar.style.width = at(tau);
  whisker.style.left = at(low ?? tau);
  whisker.style.width = at(high - low);
  const title = estimate(tau, low, high);
  return h("span.ds-tau", { title }, h("span", number(tau)), h("span.ds-tau-lane", bar, whisker));
}

/** A place for each depth: fewer of them stand below the same depths of other rows. */
function depths(values) {
  const told = values.slice(0, SHOWN_DEPTHS).map((value) => number(value));
  return told.length ? told.join("  ") + BLANK.repeat(SHOWN_DEPTHS - told.length) : "–";
}
