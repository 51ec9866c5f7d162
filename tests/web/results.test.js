import assert from "node:assert/strict";
import { test } from "node:test";
import { choicesOf, rowsOf } from "../../app/web/results/rows.js";
import { named } from "../../app/web/results/scatter.js";
import { Results } from "../../app/web/results/view.js";
import { sorted } from "../../app/web/sorting.js";
import { Turns } from "../../app/web/turns.js";

const row = (method, budget, temperature = 0, source = "all") => ({
  method,
  budget,
  temperature,
  source,
});
const ROWS = [
  ...["ddtree", "dart", "hydra"].flatMap((name) => [row(name, 16), row(name, 64)]),
  row("ar", 1),
  row("pld", 10),
  row("ddtree", 16, 1, "code"),
];

test("budgets that several methods have can be chosen", () => {
  const found = choicesOf(ROWS);
  assert.deepEqual(found, { temperature: [0, 1], source: ["all", "code"], budget: [16, 64] });
});

test("in a table of few methods every budget that was measured can be chosen", () => {
  const tree = [row("ddtree", 16), { ...row("ddtree", 64), own: true }],
    few = [row("ar", 1), ...tree, row("pld", 10)];
  assert.deepEqual(choicesOf(few).budget, [16, 64]);
  const other = [row("eagle3", 16), row("eagle3", 64), { ...row("eagle3", 59), own: true }];
  assert.deepEqual(choicesOf([...few, ...other]).budget, [16, 64, "own"]);
  assert.deepEqual(choicesOf([row("ar", 1), row("ddtree", 64)]).budget, [64]);
});

test("methods with a budget of their own are in the table at every budget", () => {
  for (const budget of [16, 64]) {
    const rows = rowsOf(ROWS, { temperature: 0, source: "all", budget });
    assert.deepEqual(
      rows.map((each) => [each.method, each.size]),
      [...["ddtree", "dart", "hydra"].map((name) => [name, budget]), ["ar", "own"], ["pld", "own"]],
    );
  }
  assert.equal(rowsOf(ROWS, { temperature: 1, source: "code", budget: 64 })[0].size, "own");
});

test("the methods' own budgets are a choice where they are others", () => {
  const own = { ...row("eagle3", 59), own: true },
    chain = { ...row("pld", 10), own: true },
    rows = [...ROWS, row("eagle3", 16), own, chain];
  assert.deepEqual(choicesOf(rows).budget, [16, 64, "own"]);
  const found = rowsOf(rows, { temperature: 0, source: "all", budget: "own" });
  assert.deepEqual(
    found.map((each) => [each.method, each.budget, each.size]),
    [
      ["eagle3", 59, "own"],
      ["pld", 10, "own"],
    ],
  );
});

test("rows without a number come last, whichever way", () => {
  const rows = [{ n: 2 }, { n: null }, { n: 3 }],
    names = (down) => sorted(rows, (each) => each.n, down).map((each) => each.n);
  assert.deepEqual(names(true), [3, 2, null]);
  assert.deepEqual(names(false), [2, 3, null]);
});

/** Results without a page; `shown`: what it makes and opens. */
function resultsOf(source, shown) {
  const opened = { wait: () => {}, show: (name) => shown.push(name), element: {} },
    states = [],
    made = {
      _make(table) {
        this.rows = [];
        shown.push(table);
      },
      _state: () => ({}),
      _show: (state) => states.push(state),
    },
    shipped = Promise.resolve("the shipped table"),
    fields = { files: new Turns(), file: null, source, opened, shipped, states };
  return Object.assign(Object.create(Results.prototype), fields, made);
}

test("of two opened files the later one is shown, whichever is answered first", async () => {
  const answers = [],
    shown = [],
    view = resultsOf({ open: () => new Promise((resolve) => answers.push(resolve)) }, shown);
  const took = ["first", "second"].map((name) => view._take({ path: name, name }));
  answers[1]({ lines: [] });
  answers[0]({ lines: [] });
  await Promise.all(took);
  assert.deepEqual(shown, ["second", "the shipped table"]);
});

test("an opened file is on view again where the address had it, and goes with it", async () => {
  const shown = [],
    view = resultsOf({ open: async ({ path }) => tableOrCard[path] }, shown),
    tableOrCard = { card: { lines: [] }, table: { table: "its own table" }, bad: { error: "no" } };
  for (const path of ["card", "table", "bad", null]) {
    await view._turnTo(path && { path, name: path }, { sort: "tau" });
    shown.push(view.file?.path ?? null);
  }
  const shipped = "the shipped table";
  assert.deepEqual(
    shown,
    [["card", shipped, "card"], ["its own table", "table"], ["bad", shipped, null], [null]].flat(),
  );
  assert.deepEqual(view.states, Array(4).fill({ sort: "tau" }));
});

test("names stand beside their dots and on nothing else where there is room", () => {
  const at = (title, x, y) => ({ row: { title }, from: x - 20, at: x, to: x + 20, y }),
    placed = named([
      at("DDTree", 500, 100),
      at("EAGLE-3", 540, 104),
      at("best-first", 520, 112),
      at("Hydra", 90, 200),
      { ...at("Plain", 54, 300), from: 54, to: 54 }, // at the edge, without an interval
      at("PLD", 115, 302),
    ]);
  const meet = (a, b) =>
    a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
  placed.forEach(({ name, from, at, to, y }, i) => {
    const [left, right] = [Math.min(from, at - 5), Math.max(to, at + 5)];
    assert.ok(!meet(name, { left, right, top: y - 5, bottom: y + 5 }));
    for (const other of placed.slice(i + 1)) assert.ok(!meet(name, other.name));
  });
  assert.equal(Math.round(placed[3].name.left), 117); // at the right, where nothing is in the way
});

test("a name keeps away from other words of the picture", () => {
  const row = { title: "PLD" },
    point = { row, from: 120, at: 130, to: 140, y: 200 },
    words = { left: 150, right: 350, top: 185, bottom: 215 };
  assert.ok(named([point], { wide: 360 })[0].name.left >= 140);
  const { name } = named([point], { wide: 360 }, [words])[0];
  assert.ok(name.right <= words.left || name.bottom <= words.top || name.top >= words.bottom);
});
