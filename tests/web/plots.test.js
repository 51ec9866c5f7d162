import assert from "node:assert/strict";
import { test } from "node:test";
import {
  Axes,
  fitted,
  PLOT,
  powersOfTen,
  roundSteps,
  shortNumber,
} from "../../app/web/plot-axes.js";
import { column, withInterval } from "../../app/web/plots.js";

test("numbers are as short as their size allows", () => {
  const said = [null, undefined, Number.NaN, 3, 1234.5, 12.34, 0.123, 0.0046, 1e-7].map(
    shortNumber,
  );
  assert.deepEqual(said, ["–", "–", "–", "3", "1235", "12.3", "0.12", "0.005", "1e-7"]);
  assert.equal(withInterval({ y: 0.5, low: 0.4, high: 0.625 }), "0.50 [0.40, 0.63]");
  assert.equal(withInterval({ y: 2 }), "2");
});

test("ticks are round, inside their bounds, and about as many as asked for", () => {
  assert.deepEqual(roundSteps(0, 1, 5), [0, 0.2, 0.4, 0.6, 0.8, 1]);
  for (const [from, to] of [
    [0, 0.37],
    [-2, 5],
    [1, 1024],
    [0.9, 4.1],
  ]) {
    const steps = roundSteps(from, to, 5);
    assert.ok(steps.length >= 2 && steps.length <= 7, `${from} ${to}: ${steps}`);
    assert.ok(steps.every((each) => each >= from && each <= to + 1e-9));
  }
  assert.deepEqual(powersOfTen(0.003, 0.4), [0.01, 0.1]);
  assert.ok(powersOfTen(1e-12, 1).length <= 7);
});

test("nothing leaves the picture, whatever the range", () => {
  const axes = new Axes({}, { x: [0, 1], y: [0, 0.5] }, []);
  assert.deepEqual([axes.x(0), axes.x(1)], [PLOT.left, PLOT.right]);
  assert.deepEqual([axes.y(0), axes.y(0.5)], [PLOT.bottom, PLOT.top]);
  assert.deepEqual([axes.y(0.9), axes.y(-1), axes.x(2)], [PLOT.top, PLOT.bottom, PLOT.right]);
});

test("an axis of logarithms puts doublings at equal distances", () => {
  const axes = new Axes({}, { x: [1, 16], log: true }, []),
    places = [1, 2, 4, 8, 16].map((value) => axes.x(value));
  const gaps = places.slice(1).map((place, at) => place - places[at]);
  assert.ok(gaps.every((gap) => Math.abs(gap - gaps[0]) < 1e-9));
});

test("a range that is not given holds all points with their intervals", () => {
  const axes = new Axes({}, {}, [
    { x: 3, y: 0.5, low: 0.2, high: 0.8 },
    { x: 9, y: 0.4 },
  ]);
  assert.deepEqual(axes.xs, [1, 9]);
  assert.ok(axes.ys[0] <= 0.2 && axes.ys[1] >= 0.8);
});

test("words that are too long are cut with a sign", () => {
  assert.equal(fitted("word", 100), "word");
  const cut = fitted("a token of very many letters", 62);
  assert.ok(cut.endsWith("…") && cut.length === 10);
});

test("a column keeps its interval and n, and leaves out what is unknown", () => {
  const rows = [
    { d: 1, y: 0.5, a: 0.4, b: 0.6, n: 3 },
    { d: 2, y: null, a: null, b: null, n: 0 },
  ];
  assert.deepEqual(column(rows, "d", "y", "a", "b", "n"), [
    { x: 1, y: 0.5, low: 0.4, high: 0.6, n: 3 },
  ]);
});
