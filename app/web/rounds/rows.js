// The rounds of the runs on view as rows of a table, and what some of them say together: pure
// functions. A value that the trace does not have is null, never 0.

import { summarise, took } from "../charts.js";
import { shortNumber } from "../dom.js";
import { sorted } from "../sorting.js";

const NONE = "–"; // what stands for a value that is not recorded
const inOneLine = (text) => text.replaceAll("\n", "⏎");
const spaced = (label) => label.replaceAll("␣", " ").replaceAll("⏎", "\n"); // as text has it

/** name: in a filter, and also: another one there; head: over the column; kind: how the values are
 * compared; of(round, place): the value, null or undefined where it is not known. place: {letter,
 * at} of the round. Without a head it is the name, without a kind they are numbers. */
export const COLUMNS = [
  { name: "run", kind: "text", about: "the run's letter", of: (_, { letter }) => letter },
  { name: "round", about: "the round's number, from 1", of: (_, { at }) => at + 1 },
  {
    name: "text",
    kind: "text",
    about: "what the round added to the text",
    of: ({ text }) => text.map(([piece, came]) => (came === "p" ? "" : piece)).join(""),
  },
  { name: "accepted", about: "accepted drafted nodes", of: (round) => round.accepted },
  { name: "nodes", about: "drafted nodes, the root left out", of: (round) => round.offered },
  { name: "depth", about: "of the deepest drafted node", of: (round) => round.depth },
  {
    name: "cause",
    head: "cause of loss",
    kind: "cause",
    about: "why the walk ended there",
    of: (round) => round.cause,
  },
  {
    name: "token",
    also: "bonus",
    head: "bonus token",
    kind: "text",
    about: "the target's own token where the walk ended",
    of: ({ ghost }) => ghost && spaced(ghost.label),
  },
  {
    name: "tvd",
    head: "TVD 1",
    about: "½ Σ |q − p| over the vocabulary at depth 1",
    of: (round) => round.tvd[0],
  },
  {
    name: "tvd_path",
    head: "TVD path",
    about: "mean TVD of the depths that the round observed",
    of: (round) => mean(round.tvd),
  },
  ...[1, 4, 16].map((width) => ({
    name: `c${width}`,
    head: `C${[...String(width)].map((digit) => "₀₁₂₃₄₅₆₇₈₉"[digit]).join("")}`,
    about: `coverage at depth 1: p of q's ${width === 1 ? "best token" : `${width} best tokens`}`,
    of: (round) => round.coverage?.[width],
  })),
  {
    name: "ms",
    also: "time",
    about: "of all stages: draft, build, verify, commit",
    of: (round) => milliseconds(took(round)),
  },
].map((column) => ({ head: column.name, kind: "number", ...column }));

const KEPT = new WeakMap(); // round → its row: a round never changes

/** The rows of runs, each {letter, rounds, causes}: one after another, in the order of rounds. */
export function rowsOf(runs) {
  return runs.flatMap(({ letter, rounds, causes }) =>
    rounds.map((round, at) => {
      const kept = KEPT.get(round);
      if (kept?.run === letter && kept.at === at) return kept;
      const row = rowOf(round, { letter, at }, causes);
      KEPT.set(round, row);
      return row;
    }),
  );
}

function rowOf(round, place, causes) {
  const values = COLUMNS.map(({ name, of }) => [name, of(round, place) ?? null]),
    row = Object.fromEntries(values),
    said = causes?.[row.cause] ?? row.cause ?? "",
    searched = [row.text, row.token ?? "", said].join("\n").toLowerCase();
  return { ...row, at: place.at, source: round, said, searched, faults: round.faults ?? [] };
}

function milliseconds(seconds) {
  return seconds === null ? null : 1000 * seconds;
}

/** The mean; null of nothing, and where one of the values is not known. */
function mean(values) {
  if (!values.length || values.some((each) => typeof each !== "number")) return null;
  return values.reduce((sum, each) => sum + each, 0) / values.length;
}

/** The rows of one run's rounds in which a text begins, wherever it ends. */
export function beginningIn(rows, text) {
  const wanted = text.toLowerCase(),
    texts = rows.map((row) => row.text.toLowerCase()),
    whole = texts.join("");
  let [from, found] = [0, -1];
  return rows.filter((_, at) => {
    if (found < from) found = whole.indexOf(wanted, from);
    from += texts[at].length;
    return found >= 0 && found < from;
  });
}

/** The columns for so many runs: the letter of a run says something only beside others. */
export function columnsFor(runs) {
  return runs > 1 ? COLUMNS : COLUMNS.filter(({ name }) => name !== "run");
}

/** A cell as the table says it. */
export function cellText(row, { name, kind }) {
  const value = row[name];
  if (value === null) return NONE;
  if (kind === "cause") return row.said;
  if (kind === "number") return shortNumber(value);
  return inOneLine(name === "token" ? value.replaceAll(" ", "␣") : value);
}

/** The same for files: numbers unrounded, the code of a cause; null: not known. */
export function recordOf(row, columns) {
  return Object.fromEntries(columns.map(({ name }) => [name, row[name]]));
}

/** Rows by a column, causes by their words; `by` as in sorting.js. */
export function inOrder(rows, by) {
  if (!by) return rows;
  const { kind } = COLUMNS.find((each) => each.name === by.name),
    name = kind === "cause" ? "said" : by.name;
  return sorted(rows, (row) => row[name], by.down);
}

/** Sum up some rounds, each number with its n. Rounds with faults count in
 * none of them, as everywhere. */
export function together(rows) {
  const sound = rows.filter((row) => !row.faults.length),
    sum = summarise(sound.map((row) => row.source)),
    known = (name) => sound.map((row) => row[name]).filter((value) => value !== null),
    counts = new Map();
  for (const { said } of sound) if (said) counts.set(said, (counts.get(said) ?? 0) + 1);
  const [tvd, ms] = [known("tvd"), known("ms")];
  return {
    rows: rows.length,
    marked: rows.length - sound.length,
    tau: { value: sum.tau, n: sum.rounds },
    tvd: { value: mean(tvd), n: tvd.length },
    ms: { value: mean(ms), n: ms.length, total: ms.length ? ms.reduce((a, b) => a + b, 0) : null },
    causes: [...counts].sort((a, b) => b[1] - a[1]),
  };
}

/** Where a round {letter, at} is not among the rows: the number of the first one after it (by = 1),
 * or before it (−1); of sorted rows, of the first or the last. */
export function nearest(rows, { letter, at: round }, by, isSorted) {
  if (isSorted) return by > 0 ? 0 : rows.length - 1;
  const place = ({ run, at }) => run.charCodeAt(0) * 1e7 + at,
    now = place({ run: letter, at: round }),
    found = rows.findIndex((row) => place(row) > now);
  if (by > 0) return Math.max(0, found);
  return (found < 0 ? rows.length : found || rows.length) - 1;
}
