// The columns that trees share, and where another run stands after the same text.

import assert from "node:assert/strict";
import { test } from "node:test";

import { laid, standing } from "../../app/web/align.js";
import { columnsOf } from "../../app/web/compare/columns.js";
import { sayShared, twinWords } from "../../app/web/compare/links.js";
import { columned, fittedColumns, following, kept } from "../../app/web/tree/camera.js";

const made = (parents, tokens, ghost, text) => ({
  parents,
  tokens,
  depths: parents.map((_, row) => {
    let depth = 0;
    for (let at = row; at > 0; at = parents[at]) depth += 1;
    return depth;
  }),
  path: [0, ...text.filter(([, came]) => came === "a").map(([, , row]) => row)],
  text,
  ids: text.map(([, , row]) => (row < 0 ? ghost[1] : tokens[row])),
  ghost: { parent: ghost[0], token: ghost[1] },
});

// The text is 0 1 2 3 4: one run takes it in one round, the other in two.
const long = made(
  [-1, 0, 1, 2],
  [0, 1, 2, 3],
  [3, 4],
  [
    ["P", "p", 0],
    ["a", "a", 1],
    ["b", "a", 2],
    ["c", "a", 3],
    ["d", "b", -1],
  ],
);
const early = made(
  [-1, 0, 0],
  [0, 1, 9],
  [1, 2],
  [
    ["P", "p", 0],
    ["a", "a", 1],
    ["b", "b", -1],
  ],
);
const late = made(
  [-1, 0, 0],
  [2, 3, 8],
  [1, 4],
  [
    ["c", "a", 1],
    ["d", "b", -1],
  ],
);
const side = (rounds, at) => ({ rounds, at, tokens: laid(rounds) });

const standingIn = (mine, row, theirs) =>
  standing(mine, row, theirs, { load: async (at) => !!theirs.rounds[at].parents });

test("another run stands after the same text in its latest round that holds it", async () => {
  const A = side([long], 0);
  const B = side([early, late], 0);
  assert.equal(await standingIn(A, 0, B), null); // nothing comes before a root
  assert.deepEqual(await standingIn(A, 1, B), { at: 0, row: 0 });
  // Its stop: the next round begins later.
  assert.deepEqual(await standingIn(A, 2, B), { at: 0, row: 1 });
  assert.deepEqual(await standingIn(A, 3, B), { at: 1, row: 0 });
  assert.deepEqual(await standingIn(A, -1, B), { at: 1, row: 1 });
  assert.deepEqual(await standingIn({ ...B, at: 1 }, 2, A), { at: 0, row: 2 });
  assert.deepEqual(await standingIn(A, 2, A), { at: 0, row: 1 });
});

test("a text that only one tree tried stands nowhere else", async () => {
  const tried = made(
    [-1, 0, 1],
    [0, 7, 5],
    [0, 1],
    [
      ["P", "p", 0],
      ["a", "b", -1],
    ],
  );
  assert.equal(await standingIn(side([tried], 0), 2, side([early, late], 0)), null);
});

test("a token that a target wanted and nobody drafted is none of the nodes of its tree", () => {
  const pane = (letter, rounds, drafted) => {
    return { letter, rounds, drafted, at: 0, shown: true, shared: {} };
  };
  const panes = [pane("A", [long], 3), pane("B", [early, late], 2)],
    together = {
      panes,
      linkable: true,
      parts: null,
      sides: panes.map((each) => laid(each.rounds)),
    },
    inB = (row) => twinWords(together, panes[0], row);
  assert.deepEqual([1, 2, 3].map(inB), ["also in B", "wanted in B", "not in B"]);
  sayShared(together);
  assert.deepEqual(
    panes.map(({ shared }) => shared.textContent),
    ["1 node also in B", "1 node also in A"],
  );
});

test("columns are places of the text, the same in every tree", () => {
  const runs = [[long], [early, late]];
  const [a, b] = columnsOf(
    [
      { rounds: runs[0], at: 0 },
      { rounds: runs[1], at: 1 },
    ],
    runs.map(laid),
    3,
    null,
  );
  assert.deepEqual([a.lead, b.lead], [0, 2]); // the second round's root is the third token
  assert.deepEqual([a.here, b.here], [3, 3]);
  assert.deepEqual(a.labels, b.labels);
  assert.deepEqual(a.labels, ["1 P", "2 a", "3 b", "4 c", "5 d"]);
  assert.equal(a.wide, 5);
  assert.deepEqual(columnsOf([null, { rounds: runs[1], at: 1 }], runs.map(laid), 3, null)[0], null);
});

test("behind the place where texts part, a column says its own tree's token", () => {
  const text = (...tokens) => [
    { text: tokens.map((token) => [token, "a", 0]), ids: [], depths: [0] },
  ];
  const runs = [text("a", "b", "c"), text("a", "x")].map(([round]) => [{ ...round, path: [0, 0] }]);
  const shown = runs.map((rounds) => ({ rounds, at: 0 }));
  const [a, b] = columnsOf(shown, runs.map(laid), 2, 1);
  assert.deepEqual(a.labels, ["1 a", "2 b", "3 c"]);
  assert.deepEqual(b.labels, ["1 a", "2 x", "3"]);
});

test("trees in the same columns stand at the same place of the window", () => {
  const share = { wide: 8, all: 9, here: 6, tall: 500 };
  const at = (column, lead, view) => view.x + (column - lead) * 168 * view.kx;
  const room = [600, 400],
    sizes = { 0: [640, 400], 2: [600, 520] }; // the trees' own windows
  const plan = { stepX: 168, height: 300 };
  const views = [0, 2].map((lead) =>
    columned(sizes[lead], room, { lead, ...share }, plan, 0.95, 100, 20),
  );
  const edges = views.map((view, i) => at(6, 2 * i, view));
  assert.equal(edges[0].toFixed(6), edges[1].toFixed(6));
  assert.ok(edges[0] >= 0 && edges[0] + 168 * views[0].kx <= 600);
  const whole = [0, 2].map((lead) => fittedColumns(sizes[lead], room, { lead, ...share }, plan));
  assert.equal(at(6, 0, whole[0]).toFixed(6), at(6, 2, whole[1]).toFixed(6));
  assert.equal(whole[0].k, whole[1].k);
});

test("a path that just fits a narrow window has its root in sight, and its last column", () => {
  const columns = { lead: 0, wide: 6, all: 6, here: 5, tall: 300 };
  const view = columned([420, 400], [420, 400], columns, { stepX: 80, height: 300 }, 0.95, 100, 20);
  assert.ok(view.x >= 0 && view.x + 6 * 80 * view.k <= 420, JSON.stringify(view));
});

test("a tree that follows another keeps its middle line", () => {
  const view = following(
    { k: 1, kx: 1, x: 0, y: 50 },
    { k: 2, kx: 2, x: -30, y: 9 },
    [600, 400],
    168,
  );
  assert.deepEqual([view.k, view.kx, view.x], [2, 2, -30 + 336]);
  assert.equal((200 - view.y) / view.k, 150); // the same line as before: (200 − 50) ÷ 1
});

test("what a hand moves stays in sight, by the point that is nearest", () => {
  const points = [
    [0, 0],
    [1000, 0],
  ];
  const view = (x, y) => ({ k: 1, kx: 1, x, y });
  assert.deepEqual(kept(view(200, 200), [800, 600], points), view(200, 200));
  assert.deepEqual(kept(view(5000, 9000), [800, 600], points), view(690, 490));
  assert.deepEqual(kept(view(-5000, 200), [800, 600], points), view(-890, 200));
  assert.deepEqual(kept(view(-400, 200), [800, 600], points), view(-400, 200));
});
