// Summaries of the runs: findings in sentences, and two tables of numbers.

import { button, h, shortNumber, withInterval } from "../dom.js";
import { goTo } from "../goto.js";
import { explained, folding, sheet, sign, unfold } from "../parts.js";
import { savers } from "../save/buttons.js";

// words, and what they mean: said where they are pointed at, and in the list of the page's words.
const NUMBERS = [
  "",
  [
    "τ",
    "block efficiency: tokens per forward pass of the target, with its 95 % bootstrap interval",
  ],
  "rounds",
  [
    "TVD, depth 1",
    "distance of q from p, 0 to 1, at the first token of a draft: the mean with its 95 % interval",
  ],
  ["C₁, depth 1", "coverage: p of the drafter's best token there, the mean over rounds"],
  ["C₈, depth 1", "the same of its eight best tokens, added up"],
  [
    "ECE of path q",
    "expected calibration error: how far path probabilities are from what was accepted, " +
      "Σ n/N · |share − mean q| over ten bins of equal mass; 0 is right",
  ],
];
const ERRORS = [
  "",
  NUMBERS.at(-1),
  ["bias of path q", "mean q − share accepted: above 0 the drafter is overconfident"],
  ["ECE of q", "the same error of a node's own q, given that its parent was accepted"],
  ["bias of q", "the same difference of a node's own q"],
  ["Σq", "mean sum of path probabilities per round"],
  ["accepted", "mean accepted nodes per round"],
  ["correlation", "of Σq and accepted nodes, over rounds"],
];

/** What the heads of both tables mean. */
export function words() {
  const all = new Set([...NUMBERS, ...ERRORS]);
  return explained([...all].filter(Array.isArray));
}

/** The findings of each run as a list, under its letter; each with a round to look at. */
export function findingsOf(runs, found) {
  return runs.map((run, at) => {
    const own = found.findings.filter((each) => each.label === run.letter),
      none = h("li", "Nothing was drafted, so there is nothing to find."),
      brief = h("small.ds-brief.ds-cut.ds-soft", own[0]?.words),
      head = h("header", h("h3", named(run)), brief),
      list = h("ul", own.length ? own.map((each) => finding(run, each)) : none),
      about = { class: "ds-findings", "aria-label": `Findings of ${run.letter}` },
      section = folding(h("section", about, head, list), head);
    if (!at) unfold(section);
    return section;
  });
}

function finding(run, { words, round }) {
  const look = () => goTo({ view: "run", ticket: run.ticket, round: round - 1, row: -1 });
  return h("li", words, " ", button(`round ${round}`, { class: "ds-small" }, look));
}

export function named(run) {
  return h("span", sign(run.letter), run.title);
}

/** A run's first row of a table that passes a test; {} where there is none. */
function rowOf(found, table, run, test = () => true) {
  return found[table].find((row) => row.run === run.letter && test(row)) || {};
}

const ofPath = (row) => row.event === "path",
  ofStep = (row) => row.event === "step",
  first = (row) => row.depth === 1;

export function describe(run) {
  return { run: run.letter, method: run.title, prompt: run.prompt };
}

/** The numbers to begin with: τ with its interval, and the first depth. */
export function numbersOf(runs, found, source) {
  const title = "The runs in numbers";
  const line = (run) => {
    const tau = rowOf(found, "tau", run),
      depth = rowOf(found, "depths", run, first);
    return [
      named(run),
      withInterval({ y: tau.tau, low: tau.low, high: tau.high }),
      tau.rounds ?? "–",
      withInterval({ y: depth.tvd, low: depth.tvd_low, high: depth.tvd_high }),
      shortNumber(depth.coverage_1),
      shortNumber(depth.coverage_8),
      shortNumber(rowOf(found, "errors", run, ofPath).ece_mass),
    ];
  };
  const record = (run) => ({
    ...describe(run),
    ...rowOf(found, "tau", run),
    ...rowOf(found, "depths", run, first),
    ...rowOf(found, "errors", run, ofPath),
  });
  return [sheet(title, NUMBERS, runs.map(line)), savers(title, () => runs.map(record), source)];
}

export function errorsOf(runs, found, source) {
  const title = "Calibration errors";
  const line = (run) => {
    const path = rowOf(found, "errors", run, ofPath),
      step = rowOf(found, "errors", run, ofStep),
      sum = rowOf(found, "surrogate", run);
    const values = [path.ece_mass, path.bias, step.ece_mass, step.bias];
    return [
      named(run),
      ...[...values, sum.expected, sum.accepted, sum.correlation].map(shortNumber),
    ];
  };
  const records = (run) =>
    found.errors
      .filter((row) => row.run === run.letter)
      .map((row) => ({ ...describe(run), ...row, ...rowOf(found, "surrogate", run) }));
  return [sheet(title, ERRORS, runs.map(line)), savers(title, () => runs.flatMap(records), source)];
}
