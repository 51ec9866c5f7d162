// The table of rounds: its rows, its filter, its order, and the forms in which it is copied.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { summarise, took } from "../../app/web/charts.js";
import { tauWords } from "../../app/web/measures.js";
import { filterOf } from "../../app/web/rounds/filter.js";
import { FORMS } from "../../app/web/rounds/formats.js";
import {
  COLUMNS,
  cellText,
  columnsFor,
  inOrder,
  rowsOf,
  together,
} from "../../app/web/rounds/rows.js";
import { pressed } from "../../app/web/sorting.js";
import { countOf } from "../../app/web/studio/search.js";

const PASTED = JSON.parse(readFileSync(new URL("../golden/pasted.json", import.meta.url)));
const CAUSES = {
  pruned: "pruned by budget",
  outside: "outside the candidates",
  vocabulary: "outside the draft vocabulary",
  unknown: "reason not recorded",
};
const TIMES = { draft: 0.01, build: 0.002, verify: 0.08, commit: 0.008 };

/** A chain of `nodes` drafted nodes of which the first ones were accepted. */
function round({ words, nodes = 2, first = false, ...more }) {
  const accepted = words.length - 1;
  return {
    accepted,
    drafted: nodes,
    offered: nodes,
    depth: nodes,
    text: [
      ...(first ? [["Once", "p", 0]] : []),
      ...words.map((text, at) => [text, at < accepted ? "a" : "b", at < accepted ? at + 1 : -1]),
    ],
    ghost: { label: words.at(-1).replaceAll(" ", "␣") },
    cause: "pruned",
    tvd: [0.4, 0.6],
    coverage: { 1: 0.3, 4: 0.5, 16: 0.9 },
    times: TIMES,
    ...more,
  };
}

const BARE = { tvd: [], coverage: {}, times: { draft: 0, build: 0, verify: 0, commit: 0 } };
const ROUNDS = [
  round({ words: [" upon", " a"], first: true }),
  round({ words: [" water"], nodes: 1, cause: "outside", tvd: [0.8] }),
  round({ words: [" fire"], cause: "unknown", ...BARE }),
];
const RUN = { letter: "A", rounds: ROUNDS, causes: CAUSES };
const ROWS = rowsOf([RUN]);

/** Numbers of the rounds that a filter keeps; its sentence where it is bad. */
function kept(text, rows = ROWS, runs = 1) {
  const { keep, error } = filterOf(text, columnsFor(runs), CAUSES);
  return error ?? rows.filter(keep).map((row) => row.round);
}

test("a row says what the round holds, and null where the trace has nothing", () => {
  const pick = (row) => COLUMNS.map(({ name }) => row[name]);
  assert.deepEqual(pick(ROWS[0]), [
    "A",
    1,
    " upon a",
    1,
    2,
    2,
    "pruned",
    " a",
    0.4,
    0.5,
    0.3,
    0.5,
    0.9,
    100,
  ]);
  assert.deepEqual(pick(ROWS[2]).slice(-6), [null, null, null, null, null, null]);
  const shown = (row) =>
    Object.fromEntries(COLUMNS.map((each) => [each.name, cellText(row, each)]));
  assert.deepEqual(
    [shown(ROWS[2]).ms, shown(ROWS[2]).tvd, shown(ROWS[2]).c1, shown(ROWS[2]).cause],
    ["–", "–", "–", "reason not recorded"],
  );
  assert.deepEqual([shown(ROWS[0]).ms, shown(ROWS[0]).token], ["100", "␣a"]);
});

test("the column in extending.md takes its value from a round", async () => {
  const text = readFileSync(new URL("../../docs/extending.md", import.meta.url), "utf8"),
    [, entry] = text.match(/```js\n(\{ name: .*?\},)\n```/s),
    source = `data:text/javascript,export default [${encodeURIComponent(entry)}]`,
    [column] = (await import(source)).default;
  assert.equal(column.of(ROUNDS[0]), 2);
  assert.deepEqual(Object.keys({ ...COLUMNS[0], ...column }), Object.keys(COLUMNS[0]));
});

test("τ has two decimals with and without an interval, times of zero are unknown", () => {
  assert.equal(tauWords({ tau: 2, low: 2, high: 2 }), "2.00 [2.00, 2.00]");
  assert.equal(tauWords({ tau: 2, low: null, high: null }), "2.00");
  assert.deepEqual(ROUNDS.map(took), [0.1, 0.1, null]);
  assert.equal(summarise(ROUNDS.slice(2)).speed, null);
  const { speed, timed } = summarise(ROUNDS); // its third round was not timed
  assert.deepEqual([speed, timed], [summarise(ROUNDS.slice(0, 2)).speed, 2]);
});

test("without a round that counts there is no τ", () => {
  assert.equal(summarise([]).tau, null);
  assert.equal(summarise([{ ...ROUNDS[0], faults: ["its order is not right"] }]).tau, null);
  assert.ok(summarise(ROUNDS).tau >= 1);
});

test("a search says how many of its matches are not drawn", () => {
  assert.deepEqual(
    [countOf(1, 0), countOf(8, 6), countOf(0, 0)],
    ["1 match", "8 matches, 6 folded", "0 matches"],
  );
});

test("a mean of unknowns is unknown", () => {
  const [row] = rowsOf([{ ...RUN, rounds: [round({ words: [" x"], tvd: [0.2, null] })] }]);
  assert.deepEqual([row.tvd, row.tvd_path], [0.2, null]);
});

test("a filter compares numbers, text and causes", () => {
  assert.deepEqual(kept(""), [1, 2, 3]);
  assert.deepEqual(kept("accepted == 0 and depth == 1"), [2]);
  assert.deepEqual(kept("accepted=0"), [2, 3]);
  assert.deepEqual(kept("time < 1e9"), kept("ms < 1e9"));
  assert.deepEqual(kept("cause == budget"), [1]);
  assert.deepEqual(kept("cause == pruned or cause = candidates"), [1, 2]);
  assert.deepEqual(kept("cause ~ outside"), [2]);
  assert.deepEqual(kept("cause == Pruned by budget or cause == 'outside the candidates'"), [1, 2]);
  assert.deepEqual(kept("cause != reason not recorded and not water"), [1]);
  assert.deepEqual(kept("bonus == ' water'"), [2]);
  assert.deepEqual(kept("bonus ~ 's"), []); // a piece of a word, and no quote
  assert.deepEqual(kept('token ~ "WATER"'), [2]);
  assert.deepEqual(kept("token == water"), [2]);
  assert.deepEqual(kept("token == wat"), []);
  assert.deepEqual(kept("not (accepted == 0) or round >= 3"), [1, 3]);
  assert.deepEqual(kept("round > 1 and not token ~ fire"), [2]);
  assert.deepEqual(kept("accepted == 0 and water"), [2]);
  assert.deepEqual(kept("ROUND<=2 AND Text !~ upon"), [2]);
});

test("what is not known is neither equal nor different, and can be asked for", () => {
  assert.deepEqual(kept("tvd > 0.5"), [2]);
  assert.deepEqual(kept("not tvd > 0.5"), [1]);
  assert.deepEqual(kept("tvd != 0.8"), [1]);
  assert.deepEqual(kept("ms == unknown"), [3]);
  assert.deepEqual(kept("ms != unknown"), [1, 2]);
  assert.deepEqual(kept("tvd > 0.5 or round == 3"), [2, 3]);
  assert.deepEqual(kept("cause == unknown"), [3]); // a cause of its own
});

test("words by themselves are searched for, joints and brackets among them", () => {
  assert.deepEqual(kept("  WATER "), [2]);
  assert.deepEqual(kept("a upon"), [1]);
  assert.deepEqual(kept("upon and a"), []);
  assert.deepEqual(kept('"upon a"'), [1]);
  assert.deepEqual(kept("candidates"), [2]);
  const [code] = rowsOf([{ ...RUN, rounds: [round({ words: [' f(x) == "1"'] })] }]);
  assert.deepEqual(kept("f(x)", [code]), [1]);
  assert.deepEqual(kept('"f(x) =="', [code]), [1]);
  assert.deepEqual(kept('text ~ "\\"1\\""', [code]), [1]);
});

test("a bad filter is one sentence with the names that it knows", () => {
  const names =
    "; a filter knows round, text, accepted, nodes, depth, cause, token or bonus, tvd, tvd_path, ";
  const words =
    "pruned by budget, outside the candidates, outside the draft vocabulary, reason not recorded";
  const said = {
    "foo == 1": "“foo” is not a column",
    "run == A": "“run” is not a column", // one run has no letter
    "constructor == 1": "“constructor” is not a column",
    "accepted == ": "a value is missing after “accepted ==”",
    "accepted == and": "a value is missing after “accepted ==”",
    "== 3": "a name is missing before “==”",
    "accepted == x": "accepted is a number, and “x” is none",
    "accepted ~ 1": "accepted is a number, compared with ==, !=, <, <=, > or >=",
    "text < b": "text is text, compared with ==, != or ~",
    "cause > b": "cause is compared with ==, != or ~",
    "cause == bogus": `the cause “bogus” is none of: ${words}`,
    "cause == o": `the cause “o” is none of: ${words}`,
    "cause == the": "the cause “the” may be outside the candidates, outside the draft vocabulary",
    "(round == 1": "a “)” is missing",
    "round == 1 round == 2": "“and” or “or” is missing before “round”",
    "round == 1 and": "the filter ends too soon",
    "and round == 1": "something is missing before “and”",
    'token ~ "x': 'the quote at “"x” is not closed',
  };
  for (const [text, sentence] of Object.entries(said)) {
    const found = kept(text);
    assert.ok(String(found).startsWith(sentence + names), `${text}: ${found}`);
    assert.ok(!String(found).includes("\n"));
  }
  assert.deepEqual(kept("run == B", ROWS, 2), []);
});

test("rows are sorted by a column, the unknown last either way", () => {
  const order = (by) => inOrder(ROWS, by).map((row) => row.round);
  assert.deepEqual(order({ name: "tvd", down: false }), [1, 2, 3]);
  assert.deepEqual(order({ name: "tvd", down: true }), [2, 1, 3]);
  assert.deepEqual(order({ name: "token", down: false }), [1, 3, 2]);
  assert.deepEqual(order({ name: "cause", down: true }), [3, 1, 2]); // by its words
  assert.deepEqual(order({ name: "accepted", down: false }), [2, 3, 1]); // equal ones stay
  assert.equal(inOrder(ROWS, null), ROWS);
  const presses = [null];
  for (let i = 0; i < 3; i++) presses.push(pressed(presses.at(-1), "tvd"));
  assert.deepEqual(presses.slice(1), [
    { name: "tvd", down: false },
    { name: "tvd", down: true },
    null,
  ]);
});

test("rounds together: every number has its n, and marked rounds count in none", () => {
  const broken = round({ words: [" no", " no", " no"], nodes: 9, faults: ["it cannot be"] });
  const sum = together(rowsOf([{ ...RUN, rounds: [...ROUNDS, broken] }]));
  assert.deepEqual([sum.rows, sum.marked], [4, 1]);
  assert.deepEqual(sum.tau, { value: 4 / 3, n: 3 });
  assert.equal(sum.tvd.n, 2);
  assert.ok(Math.abs(sum.tvd.value - 0.6) < 1e-12);
  assert.deepEqual([sum.ms.n, sum.ms.value, sum.ms.total], [2, 100, 200]);
  assert.deepEqual(sum.causes, [
    ["pruned by budget", 1],
    ["outside the candidates", 1],
    ["reason not recorded", 1],
  ]);
  const none = together([]);
  assert.deepEqual(
    [none.tau.value, none.tvd.value, none.ms.value, none.ms.total],
    Array(4).fill(null),
  );
});

test("what is copied keeps every text in its cell", () => {
  const evil = '=1+1|\\ <b> & 50% _x_ #1 $y ~^{}\n"';
  const rows = rowsOf([{ ...RUN, rounds: [round({ words: [evil] })] }]);
  const columns = COLUMNS.filter(({ name }) => ["round", "text", "cause", "ms"].includes(name));
  assert.equal(
    FORMS.CSV(rows, columns),
    `round,text,cause,ms\r\n1,"'${evil.replace('"', '""')}",pruned,100\r\n`,
  );
  assert.equal(
    FORMS.Markdown(rows, columns),
    "| round | text | cause of loss | ms |\n| ---: | --- | --- | ---: |\n" +
      '| 1 | =1+1\\|\\\\ \\<b\\> \\& 50% \\_x\\_ \\#1 \\$y \\~^{}⏎" | pruned by budget | 100 |\n',
  );
  assert.equal(
    FORMS.LaTeX(rows, columns),
    "\\begin{tabular}{rllr}\n\\hline\nround & text & cause of loss & ms \\\\\n\\hline\n" +
      "1 & =1+1\\textbar{}\\textbackslash{} \\textless{}b\\textgreater{} \\& 50\\% \\_x\\_ " +
      '\\#1 \\$y \\textasciitilde{}\\textasciicircum{}\\{\\}$\\hookleftarrow$" & ' +
      "pruned by budget & 100 \\\\\n" +
      "\\hline\n\\end{tabular}\n",
  );
  const cell = (form, text) => {
    const [row] = rowsOf([{ ...RUN, rounds: [round({ words: [text] })] }]);
    return FORMS[form](
      [row],
      columns.filter(({ name }) => name === "text"),
    );
  };
  for (const [form, cases] of Object.entries(PASTED))
    for (const [text, written] of cases)
      assert.ok(
        cell(form, text).includes(form === "LaTeX" ? `\n${written} \\\\\n` : `\n| ${written} |\n`),
        text,
      );
  const bare = FORMS.CSV(rowsOf([{ ...RUN, rounds: [ROUNDS[2]] }]), COLUMNS);
  assert.ok(bare.endsWith(",unknown, fire,,,,,,\r\n"), bare);
});

test("5,000 rounds are filtered and sorted within a tenth of a second", () => {
  const many = Array.from({ length: 5000 }, (_, at) =>
    round({ words: [` word${at % 97}`, " or", " two"], tvd: [(at % 89) / 89], nodes: 4 }),
  );
  const rows = rowsOf([{ ...RUN, rounds: many }]);
  const took = Array.from({ length: 5 }, () => {
    const from = performance.now();
    const { keep } = filterOf(
      'tvd > 0.5 and (token ~ two or "word1") and not text ~ word13',
      COLUMNS,
    );
    const found = inOrder(rows.filter(keep), { name: "text", down: true });
    assert.ok(found.length > 1000 && found.length < 5000);
    return performance.now() - from;
  });
  assert.ok(Math.min(...took) < 100, `${took}`);
  if (process.env.SHOW_TIMES)
    console.log(
      "filter and sort, ms:",
      took.map((ms) => ms.toFixed(1)),
    );
});
