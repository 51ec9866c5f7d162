// The rounds of the runs on view as rows of a table, and what some of them say together: pure
// functions. A value that the trace does not have is null, never 0.

import { summarise, took } from "../charts.js";
import { shortNumber } from "../dom.js";
import { sorted } from "../sorting.js";

const NONE = "–"; // what stands for a value that is not recorded
const inOneLine = (text) => text.replaceAll("\n", "⏎");
const spaced = (label) => label.replaceAll("␣", " ").replaceAll("⏎", "\n"); // as text has it

/** name: in a filter, and also: another one there; head: over the column; tex: that in LaTeX,
 * where it differs; kind: how the values are compared. */
export const COLUMNS = [
  { name: "run", head: "run", kind: "text", about: "the run's letter" },
  { name: "round", head: "round", kind: "number", about: "the round's number, from 1" },
  { name: "text", head: "text", kind: "text", about: "what the round added to the text" },
  { name: "accepted", head: "accepted", kind: "number", about: "accepted drafted nodes" },
  { name: "nodes", head: "nodes", kind: "number", about: "drafted nodes, the root left out" },
  { name: "depth", head: "depth", kind: "number", about: "of the deepest drafted node" },
  { name: "cause", head: "cause of loss", kind: "cause", about: "why the walk ended there" },
  {
    name: "token",
    also: "bonus",
    head: "bonus token",
    kind: "text",
    about: "the target's own token where the walk ended",
  },
  {
    name: "tvd",
    head: "TVD 1",
    kind: "number",
    about: "½ Σ |q − p| over the vocabulary at depth 1",
  },
  {
    name: "tvd_path",
    head: "TVD path",
    kind: "number",
    about: "mean TVD of the depths that the round observed",
  },
  ...[1, 4, 16].map((width) => ({
    name: `c${width}`,
    head: `C${[...String(width)].map((digit) => "₀₁₂₃₄₅₆₇₈₉"[digit]).join("")}`,
    tex: `$C_{${width}}$`,
    kind: "number",
    about: `coverage at depth 1: p of q's ${width === 1 ? "best token" : `${width} best tokens`}`,
  })),
  {
    name: "ms",
    also: "time",
    head: "ms",
    kind: "number",
    about: "of all stages: draft, build, verify, commit",
  },
];

const KEPT = new WeakMap(); // round → its row: a round never changes

/** The rows of runs, each {letter, rounds, causes}: one after another, in the order of rounds. */
export function rowsOf(runs) {
  return runs.flatMap(({ letter, rounds, causes }) =>
    rounds.map((round, at) => {
      const kept = KEPT.get(round);
      if (kept?.run === letter && kept.at === at) return kept;
      const row = rowOf(round, at, letter, causes);
      KEPT.set(round, row);
      return row;
    }),
  );
}

function rowOf(round, at, letter, causes) {
  const added = round.text.filter(([, came]) => came !== "p"),
    seconds = took(round),
    row = {
      round: at + 1,
      run: letter,
      text: added.map(([text]) => text).join(""),
      accepted: round.accepted,
      nodes: round.offered,
      depth: round.depth,
      cause: round.cause ?? null,
      token: round.ghost ? spaced(round.ghost.label) : null,
      tvd: round.tvd[0] ?? null,
      tvd_path: mean(round.tvd),
      c1: round.coverage?.[1] ?? null,
      c4: round.coverage?.[4] ?? null,
      c16: round.coverage?.[16] ?? null,
      ms: seconds === null ? null : 1000 * seconds,
    };
  const said = causes?.[row.cause] ?? row.cause ?? "";
  const searched = [row.text, row.token ?? "", said].join("\n").toLowerCase();
  return { ...row, at, source: round, said, searched, faults: round.faults ?? [] };
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
