// Calibration: which number stands where, of which run, and where its buttons lead.

import assert from "node:assert/strict";
import { test } from "node:test";
import { CausesCard } from "../../app/web/calibration/causes.js";
import { RunChooser } from "../../app/web/calibration/chooser.js";
import { DiagnosisCard } from "../../app/web/calibration/diagnosing.js";
import { errorsOf, findingsOf, numbersOf, words } from "../../app/web/calibration/summaries.js";
import { keepTickets } from "../../app/web/studio/shelf.js";
import { gone, wordsOf } from "./page.js";

const RUNS = ["A", "B"].map((letter) => ({ letter, title: `run ${letter}`, ticket: `t${letter}` }));

/** Rows of both runs; B's numbers are twice those of A. */
const both = (row) =>
  RUNS.map(({ letter }, at) => {
    const scaled = ([name, value]) => [name, typeof value === "number" ? value * (at + 1) : value];
    return { ...Object.fromEntries(Object.entries(row).map(scaled)), run: letter };
  });

const DEPTH = { tvd: 0.2, tvd_low: 0.1, tvd_high: 0.3, coverage_1: 0.32, coverage_8: 0.38 };
const FOUND = {
  findings: [
    { label: "A", words: "of A", round: 3 },
    { label: "B", words: "of B", round: 7 },
  ],
  tau: both({ tau: 1.5, low: 1.25, high: 1.75, rounds: 20 }),
  depths: [2, 1].flatMap((depth) =>
    both({ ...DEPTH, tvd: DEPTH.tvd * depth }).map((row) => ({ ...row, depth })),
  ),
  errors: [
    ...both({ event: "step", ece_mass: 0.31, bias: 0.33 }),
    ...both({ event: "path", ece_mass: 0.21, ece_width: 0.29, bias: 0.23 }),
  ],
  surrogate: both({ expected: 1.1, accepted: 1.2, correlation: 0.4 }),
};

test("a run's numbers are its own, of the first depth and of its paths", () => {
  assert.deepEqual(wordsOf(numbersOf(RUNS, FOUND, {})[0]), [
    ["Arun A", "1.50 [1.25, 1.75]", "20", "0.20 [0.10, 0.30]", "0.32", "0.38", "0.21"],
    ["Brun B", "3.00 [2.50, 3.50]", "40", "0.40 [0.20, 0.60]", "0.64", "0.76", "0.42"],
  ]);
});

test("errors are of paths, then of steps, then what q expected beside what was accepted", () => {
  const [first] = wordsOf(errorsOf(RUNS, FOUND, {})[0]);
  assert.deepEqual(first, ["Arun A", "0.21", "0.23", "0.31", "0.33", "1.10", "1.20", "0.40"]);
});

test("every head of both tables is explained in words that can be read without pointing", () => {
  const tables = [numbersOf, errorsOf].map((sheetOf) => sheetOf(RUNS, FOUND, {})[0]),
    heads = tables.flatMap((table) =>
      table
        .all("thead")[0]
        .all("th")
        .map((th) => th.textContent),
    ),
    told = words()
      .all("dt")
      .map((each) => each.textContent);
  const plain = ["rounds"]; // the same words as everywhere
  assert.deepEqual([...new Set(heads)].filter((each) => !plain.includes(each)).sort(), told.sort());
});

test("what is saved has each run's numbers once", async () => {
  const saved = [],
    source = { parquet: async ({ records }) => saved.push(records) && { error: "not here" } };
  for (const sheetOf of [numbersOf, errorsOf]) {
    const [, savers] = sheetOf(RUNS, FOUND, source);
    await savers.all("button")[1].fire("click");
  }
  const [numbers, errors] = saved;
  assert.deepEqual([numbers.length, errors.length], [2, 4]);
  const { method, tau, tvd, ece_mass } = numbers[1];
  assert.deepEqual([method, tau, tvd, ece_mass], ["run B", 3, 0.4, 0.42]);
  const told = errors.map(({ method, event, expected }) => [method, event, expected].join(" "));
  assert.deepEqual(told, ["run A step 1.1", "run A path 1.1", "run B step 2.2", "run B path 2.2"]);
});

test("a finding stands under its run's letter and leads to its round", () => {
  const sections = findingsOf(RUNS, FOUND);
  const lines = sections.map((each) => each.all("li").map((line) => line.textContent));
  assert.deepEqual(lines, [["of A round 3"], ["of B round 7"]]);
  sections[1].all("li")[0].all("button")[0].fire("click");
  assert.deepEqual(gone.at(-1), { view: "run", ticket: "tB", round: 6, row: -1 });
});

test("a part of a figure leads to its examples: ends to rounds, nodes to themselves", async () => {
  const asked = [],
    examples = [{ round: 5, index: 4, row: 2 }];
  const find = async (question) => {
    asked.push(question);
    return { examples: asked.length > 1 ? Array(40).fill(examples[0]) : examples };
  };
  const card = new CausesCard({ find }, assert.fail, () => {});
  Object.assign(card, { runs: RUNS, found: FOUND });
  card.who.value = "B";
  const press = async (at) => {
    const { figure } = card.figures[at];
    figure.json = { layout: { meta: { places: [1, 2] } } };
    await figure.pick({ key: "pruned", name: "pruned" }, 1);
    card.examples.all("button")[0].fire("click");
    return card.examples.textContent;
  };
  assert.match(await press(0), /^pruned, depth 2: 1 example; /);
  assert.match(await press(1), /40 examples \(the first ones\)/);
  const where = { ticket: "tB", cause: "pruned", depth: 2 };
  assert.deepEqual(asked, [
    { ...where, unit: "stops" },
    { ...where, unit: "nodes" },
  ]);
  const round = { view: "run", ticket: "tB", round: 4 };
  assert.deepEqual(gone.slice(-2), [
    { ...round, row: -1 },
    { ...round, row: 2 },
  ]);
});

test("behind a sibling stand only the chosen run's contexts that were observed", () => {
  const card = new CausesCard({}, assert.fail, () => {});
  const row = { context: "sibling", observed: 10, acceptance: 0.5, low: 0.25, high: 0.75 };
  const siblings = both({ ...row, top1: 0.3, tvd: 0.2 });
  card.found = { siblings: [...siblings, { run: "A", context: "none", observed: 0 }] };
  card._siblings(RUNS[0]);
  const lines = wordsOf(card.siblings);
  assert.deepEqual(lines, [["sibling", "10", "0.50 [0.25, 0.75]", "30%", "0.20"]]);
});

test("four runs at most are measured, the example only for want of one", async () => {
  const kept = new Map();
  globalThis.sessionStorage = {
    getItem: (name) => kept.get(name),
    setItem: (name, text) => kept.set(name, text),
  };
  keepTickets("compare", ["b"]); // where it is A
  const about = { rounds: 1, method: "ddtree", prompt: "why" },
    there = Object.fromEntries(
      [..."abcdef", "example"].map((each) => [each, { ticket: each, ...about }]),
    ),
    source = {
      runs: async ({ tickets }) => ({ runs: tickets.flatMap((each) => there[each] ?? []) }),
    };
  there.f.rounds = 0;
  const chosen = (runs, missing) =>
      told.push([...runs.map((run) => run.letter + run.ticket), missing]),
    told = [],
    chooser = new RunChooser(source, { leave: () => {}, chosen, complain: assert.fail });
  await chooser._take([there.example], "example", "");
  assert.match(chooser.empty.textContent, /^An example that ships: ddtree on “why”/);
  await chooser.add(["a", "b"]);
  await chooser.add(["c", "d", "e"]);
  await chooser._choose(["a", "gone"]);
  await chooser._choose(["a", "f"]);
  delete globalThis.sessionStorage;
  const without = "without rounds so far, and left out: ddtree on “why”";
  assert.deepEqual(told.slice(1), [
    ["Ab", "Ba", ""],
    ["Ab", "Bc", "Cd", "De", ""],
    ["Aa", "a run that was chosen is no longer on the server"],
    ["Aa", without],
  ]);
});

test("mistakes come from the best to the worst, the near ones first and those that fit", () => {
  const card = new DiagnosisCard({ drafters: async () => ({}) }),
    mistake = (name, gain, more) => ({
      name,
      gain,
      ratio: 0.5,
      tau: 1.5,
      tvd: [0.4],
      places: 9,
      ...more,
    });
  const far = Array.from({ length: 9 }, (_, at) => mistake(`far ${at}`, -0.1 * (at + 1)));
  const mistakes = [
      ...far,
      mistake("near", 0.125, { better: true }),
      mistake("same", -2, { unchanged: true }),
    ],
    configured = { name: "as configured", tau: 2, tvd: [0.25], ratio: 1, gain: 0, places: 10 };
  const wiring = {
    faults: ["a fault"],
    notes: [],
    verdict: "wrong",
    said: ["a fault", "well"],
    configured,
    mistakes,
  };
  card.work.hear.done({
    method: "dart",
    wiring,
    checkpoint: [{ wrong: true, text: "lacks" }, { text: "has" }],
  });
  const lines = wordsOf(card.found);
  assert.deepEqual(lines[0], ["as configured", "2.00", "–", "–", "0.25", "10", ""]);
  assert.deepEqual(lines[1], ["near", "1.50", "0.50×", "0.125", "0.40", "9", "fits better"]);
  assert.deepEqual(lines.map(([name]) => name).slice(2), [
    ...far.slice(0, 7).map((each) => each.name),
    "same",
  ]);
  assert.equal(lines.at(-1).at(-1), "changes nothing");
  const marked = card.found.all("li").map((line) => line.textContent);
  assert.deepEqual(marked, ["wrong a fault", "well", "wrong lacks", "has"]);
});
