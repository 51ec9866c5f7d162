import assert from "node:assert/strict";
import { test } from "node:test";
import { painted, recordsOf, seriesOf } from "../../app/web/described.js";

test("names of colours become the theme's colours, and sizes grow with the type", () => {
  const asked = [];
  const colourOf = (name) => {
    asked.push(name);
    return "#123456";
  };
  const given = {
    line: { color: "var(--ds-ink)", width: 2 },
    x: [1, null, "var(--ds-ink) and more"],
    meta: { name: "var(--ds-ink)" },
  };
  assert.deepEqual(painted(given, colourOf), { ...given, line: { color: "#123456", width: 2 } });
  assert.deepEqual(asked, ["--ds-ink"]);
  const large = painted({ ...given, marker: { size: [7, 0] } }, colourOf, 2);
  assert.deepEqual(large, {
    ...given,
    line: { color: "#123456", width: 4 },
    marker: { size: [14, 0] },
  });
});

const POINTS = [
  { x: 0, y: 0.5, low: 0.4, high: 0.6, n: 3 },
  { x: 1, y: 0.25 },
];
const DATA = [
  {}, // a thin line for the eye
  { meta: { name: "a", choice: "K = 1", points: POINTS } },
  { meta: { name: "a", choice: "K = 8", points: [POINTS[1]] } },
  { meta: { name: "a", choice: "K = 1" } }, // its faint part
  { meta: { name: "this round", live: true } },
];

test("a table and a file have the numbers of what is chosen", () => {
  const chosen = seriesOf({ data: DATA }, "K = 1");
  assert.deepEqual(
    chosen.map((each) => each.points.length),
    [2],
  );
  assert.deepEqual(recordsOf(chosen, { x: "depth", y: "TVD", places: [] }), [
    { series: "a", depth: 0, TVD: 0.5, low: 0.4, high: 0.6, n: 3 },
    { series: "a", depth: 1, TVD: 0.25 },
  ]);
  const [first] = recordsOf(chosen, { x: "prompts", y: "τ", places: ["math", "code"] });
  assert.equal(first.prompts, "math");
});
