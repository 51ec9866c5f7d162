import assert from "node:assert/strict";
import { test } from "node:test";
import { OpenedFile } from "../../app/web/results/opened.js";
import { aboutOf, choicesOf, rowsOf } from "../../app/web/results/rows.js";
import { named } from "../../app/web/results/scatter.js";
import { Results } from "../../app/web/results/view.js";
import { sorted } from "../../app/web/sorting.js";
import { Turns } from "../../app/web/turns.js";
import { wordsOf } from "./page.js";

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
  const sizes = { pld: [1, 8, 16], ddtree: [1, 8, 16], dart: [1, 16, 64] };
  const three = Object.entries(sizes).flatMap(([name, all]) => all.map((size) => row(name, size)));
  assert.deepEqual(choicesOf(three).budget, [16]); // two have 8, and one token is no tree
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
  assert.deepEqual(rowsOf(ROWS, { temperature: 1, source: "all", budget: 16 }), []);
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

const MEASURED = {
  ...{ budget: 16, temperature: 0, source: "all", own: false, ran: true, knows: "text" },
  ...{ tau: 2, low: 1.5, high: 2.5, speed: 1.25, tvd: [0.25, 0.5], coverage: [0.75] },
  ...{ draft_ms: 3, round_ms: 30, forward_ms: 20, generate: 1.5, texts: 24, timed: 10, same: 9 },
};
const PLAIN = {
  ...MEASURED,
  budget: 1,
  own: true,
  knows: "",
  tau: 1,
  low: null,
  high: null,
  speed: 1,
};
const NO_DEPTH = "  \u2007\u2008\u2007\u2007";
const TABLE = {
  rows: [
    { ...MEASURED, method: "dart", title: "DART" },
    { ...MEASURED, method: "dart", title: "DART", budget: 64, tau: 4, low: 3, high: 5, speed: 2 },
    { ...MEASURED, method: "eagle3", title: "EAGLE-3", budget: 59, own: true, tau: 3, high: 3.5 },
    { ...PLAIN, method: "ar", title: "Plain" },
    { ...MEASURED, method: "mtp", title: "MTP", budget: 64, ran: false, tau: 2, speed: null },
  ],
  ...{ model: "small", max_new_tokens: 64, hardware: "two cores", threads: 2 },
};
/** A table on the page, chosen and ordered as an address may say. */
function shownOf(rows, state = {}) {
  const view = Object.assign(Object.create(Results.prototype), { chosen: {}, _place: () => {} });
  view._make({ ...TABLE, rows }, "mine.json");
  view._show(state);
  return { view, rows: wordsOf(view.table) };
}

test("each number stands under its heading, and a row says which budget is its own", () => {
  const { view, rows } = shownOf(TABLE.rows);
  assert.deepEqual(rows[0].slice(0, 5), [
    "DARTq depends on the text, in 24 real runs",
    "4.00",
    "2.00×",
    `0.25  0.50${NO_DEPTH.repeat(3)}`,
    `0.75${NO_DEPTH.repeat(4)}`,
  ]);
  assert.deepEqual(rows[0].slice(5), ["3.0", "1.50×", "1.50×", "9 of 10"]);
  const ran = shownOf(TABLE.rows.filter((each) => each.ran)).rows;
  assert.ok(!ran.some(([title]) => title.includes("real runs"))); // where all did
  assert.match(rows[1][0], /^EAGLE-3B = 59, q depends/);
  assert.equal(rows[2][0], "Plainno drafter, in 24 real runs");
  assert.match(view.untimed.textContent, /^not timed: MTP$/);
  assert.equal(view.setting.textContent, "greedy (T = 0) · all prompts · budget 64");
  const marks = view.table.of("ds-tau").map((each) =>
    each
      .all()
      .slice(2)
      .map(({ style }) => style),
  );
  assert.deepEqual(marks[0], [{ width: "80%" }, { left: "60%", width: "40%" }]);
  assert.deepEqual(marks[2], [{ width: "20%" }, { left: "20%", width: "0%" }]);
});

test("columns sort by what they hold: the best first, and what is not known last", () => {
  const numbers = [
    { title: "a", tau: 1, speed: 2, tvd: [0.3, 0.1], round_ms: 10, same: 2, timed: 4 },
    { title: "b", tau: 3, speed: 1, tvd: [0.1, 0.3], round_ms: 30, same: 1, timed: 1 },
    { title: "c", tau: 2, speed: 3, tvd: [], round_ms: 20, forward_ms: 0, same: 0, timed: 0 },
  ];
  const rows = numbers.map((each) => ({ ...MEASURED, ...each, method: each.title, knows: "" })),
    order = (sort) =>
      shownOf(rows, { sort })
        .rows.map(([title]) => title[0])
        .join("");
  const found = ["tau", "speed", "tvd", "round", "same", "no such column"].map(order);
  assert.deepEqual(found, ["bca", "cab", "bac", "abc", "bac", "cab"]);
  assert.equal(shownOf(rows, { sort: "tau" }).view._state().sort, "tau");
});

test("a picture's dots stand higher the faster and further right the more tokens", () => {
  const { view } = shownOf(TABLE.rows),
    [svg] = view.picture.children,
    dots = svg.of("dot").map((dot) => {
      const { cx, cy } = dot.all("circle")[0].attributes,
        [, from] = dot.of("whisker")[0].attributes.d.match(/^M([\d.]+)/);
      return { look: dot.className, x: Number(cx), y: Number(cy), from: Number(from) };
    }),
    [dart, eagle, plain] = dots;
  assert.deepEqual(
    dots.map(({ look }) => look),
    ["dot faster", "dot faster", "dot "],
  );
  assert.ok(dart.x > eagle.x && eagle.x > plain.x && dart.y < eagle.y && eagle.y < plain.y);
  assert.ok(dart.from < dart.x && plain.from === plain.x && plain.x < 60); // τ = 1 at the axis
  assert.equal(Number(svg.of("plain")[0].attributes.d.split(/[ H]/)[1]), plain.y);
  assert.match(svg.attributes["aria-label"], /of 3 methods; the fastest is DART, at 2.00×/);
});

test("it is said of how many prompts the numbers are, and whether they were run", () => {
  assert.match(aboutOf(TABLE), /of 24 prompts, from the target's own texts; times of 10, on one/);
  const rows = [{ ...MEASURED, texts: 7, timed: 3 }, MEASURED];
  assert.match(aboutOf({ ...TABLE, rows }), /of 24 prompts, in real runs; times of 10, on one/);
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

test("columns of words and the code within a sentence look like that", () => {
  const opened = new OpenedFile({}),
    table = { title: "Sums", heads: ["name", "sort", "n"], words: [1], rows: [["a", "b", "3"]] };
  opened.show("a.log", { about: "`report` says more", sheets: [table], lines: ["see `docs`"] });
  const words = (name) => opened.element.all(name).map((each) => each.textContent);
  assert.deepEqual([words("code"), words("tbody")], [["report", "docs"], ["ab3"]]);
  assert.deepEqual(
    opened.element.of("ds-words").map((each) => each.textContent),
    ["sort", "b"],
  );
});
