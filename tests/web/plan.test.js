// Where the parts of a tree stand, and where arrows, presses and a search lead.

import assert from "node:assert/strict";
import { test } from "node:test";

import { GHOST } from "../../app/web/tree/boxes.js";
import { planFor, TreePlan } from "../../app/web/tree/plan.js";

//  0 ┬ 1 ─ 3
//    └ 2 ┬ 4 ─ ghost      accepted: 2 and 4
//        └ 5
const round = {
  parents: [-1, 0, 0, 1, 2, 2],
  depths: [0, 1, 1, 2, 2, 2],
  y: [1, 0, 1.5, 0, 1, 2],
  status: "arauar",
  tokens: [0, 1, 2, 3, 2, 4],
  labels: ["The", " cat", " dog", " sat", " Dogs"],
  path: [0, 2, 4],
  ghost: { parent: 4, y: 1, label: " doge" },
};
const drawn = [0, 1, 2, 3, 4, 5, GHOST];
const whole = new TreePlan(round, null);
// Row 3 and row 5 are folded away; the chip of row 1 stands where row 3 stood.
const chip = { parent: 1, y: 0, status: "r" };
const fold = { rows: [0, 1, 2, 4], y: [0.5, 0, 1, 1], ghost: 1, chips: [chip] };
const folded = new TreePlan(round, fold);

test("a row stands at its depth and line, and the ghost one step beyond its parent", () => {
  for (const row of drawn.slice(0, -1))
    assert.deepEqual(whole.at(row), [168 * round.depths[row], 46 * round.y[row]]);
  assert.deepEqual(whole.at(GHOST), [3 * 168, 46]);
  assert.deepEqual([whole.width, whole.height], [3 * 168 + 128, 2 * 46 + 40]);
});

test("folded rows have no place, but are still rows of the round", () => {
  assert.deepEqual(
    drawn.filter((row) => !folded.at(row)),
    [3, 5],
  );
  assert.ok(folded.has(3) && !folded.has(6) && !folded.has(-2));
  assert.deepEqual(folded.chipPlace.get(1), [2 * 168, 0]);
  assert.deepEqual(
    [3, 4].map((row) => folded.chipOf(row)),
    [1, null],
  ); // 4 is drawn
  assert.equal(folded.curves().length, 4); // edges of rows 1, 2, 4 and the chip
});

test("a press in a box finds its row, in a chip its parent, and beside them nothing", () => {
  const middle = ([x, y]) => [x + 64, y + 20];
  for (const row of drawn) assert.deepEqual(whole.under(middle(whole.at(row))), [row, null]);
  assert.deepEqual(folded.under(middle(folded.chipPlace.get(1))), [null, 1]);
  assert.deepEqual(whole.under([168 - 20, 66]), [null, null]);
});

test("arrows lead along a depth, to the parent, and to the accepted child", () => {
  const column = [3, 4, 5];
  assert.deepEqual(
    column.map((row) => whole.neighbour(row, "down")),
    [4, 5, 5],
  );
  assert.deepEqual(
    column.map((row) => whole.neighbour(row, "up")),
    [3, 3, 4],
  );
  assert.deepEqual(
    drawn.map((row) => whole.neighbour(row, "parent")),
    [0, 0, 0, 1, 2, 2, 4],
  );
  assert.deepEqual(
    drawn.map((row) => whole.neighbour(row, "child")),
    [2, 3, 4, 3, GHOST, 5, GHOST],
  );
  assert.equal(folded.neighbour(1, "child"), 1); // what is folded away is not a neighbour
  assert.equal(whole.neighbour(null, "up"), 4); // none is selected: where the walk ended
});

test("a way leads from a row to the root, in a graph along every pathway", () => {
  const ways = [
    [4, GHOST],
    [2, 4],
    [0, 2],
  ];
  assert.deepEqual(whole.ways(GHOST), ways);
  const sources = [[], [0], [0], [1, 2], [2], [2]];
  const graph = new TreePlan({ ...round, sources }, null);
  assert.deepEqual(graph.ways(3), [
    [1, 3],
    [2, 3],
    [0, 1],
    [0, 2],
  ]);
});

test("a search finds tokens by column and line, then those that are folded away", () => {
  assert.deepEqual(whole.holding("dog"), [2, 4, 5, GHOST]);
  assert.deepEqual(folded.holding("dog"), [2, 4, GHOST, 5]);
  assert.deepEqual(whole.holding(""), []);
});

test("boxes take the shape in which q and p are read, and the same in all trees of a view", () => {
  const step = (size, slim = null) => planFor(round, null, { slim }, size).stepX;
  assert.equal(step([1200, 600]), 168);
  assert.equal(step([560, 600]), 118); // narrow ones are larger there
  assert.equal(step([1200, 150]), 185); // a line each, without p
  assert.equal(step([320, 500]), 79); // a phone: all depths are in sight
  assert.deepEqual(
    [false, true].map((slim) => step([320, 500], slim)),
    [168, 79],
  );
});
