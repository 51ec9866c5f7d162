// What the rows of a table say together, as a line of words.

import { duration, h, number, plural, shortNumber } from "../dom.js";
import { sign } from "../parts.js";
import { together } from "./rows.js";

/** A line for each run that has some of these rows. */
export function sumLines(runs, rows, isChosen) {
  return runs.flatMap(({ letter }) => {
    const own = rows.filter((row) => row.run === letter),
      named = runs.length > 1 ? letter : "";
    return own.length ? [sumLine(named, together(own), isChosen)] : [];
  });
}

/** One line: τ, TVD, time and causes of one run's rows, each with its n. `letter`: of the run, ""
 * for the only one. `chosen`: the rows are those that are selected. */
function sumLine(letter, sum, chosen) {
  const of = ({ n }) => (n === sum.rows ? "" : ` (n ${n})`),
    part = (words, title) => h("span", { title }, words),
    { tau, tvd, ms } = sum;
  const marked = sum.marked
    ? [part(`⚠ ${plural(sum.marked, "round")} left out`, "marked rounds count in no figure")]
    : [];
  const causes = sum.causes.map(([words, count]) => `${words} ${count}`).join(", ");
  return h(
    "p.ds-row",
    letter && sign(letter),
    h("b", `${plural(sum.rows, "round")} ${chosen ? "selected" : "shown"}`),
    part(`τ ${number(tau.value)}${of(tau)}`, "accepted + 1, mean over these rounds"),
    part(`TVD 1 ${shortNumber(tvd.value)}${of(tvd)}`, "mean TVD at depth 1 of these rounds"),
    part(inTime(ms) + of(ms), "all stages: draft, build, verify, commit"),
    part(causes || "no cause", "causes of loss, and in how many of these rounds"),
    marked,
  );
}

function inTime({ value, total }) {
  const all = duration(total === null ? null : total / 1000);
  return `${shortNumber(value)} ms a round, ${all} in all`;
}
