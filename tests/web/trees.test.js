// Trees of rounds: which are asked for, in which order, and what those who wait are told.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Trees } from "../../app/web/trees.js";

/** A run of so many rounds without trees, and a server that holds its answers. */
function run(count) {
  const feed = { ticket: "t", rounds: Array.from({ length: count }, () => ({})) };
  const asked = [],
    came = [];
  const source = {
    trees: ({ round, until }) =>
      new Promise((done) => {
        asked.push([round, until]);
        source.answer = async (trees = Array(until - round + 1).fill({ parents: [-1] })) => {
          done(trees.error ? trees : { trees });
          await new Promise(setImmediate);
        };
      }),
  };
  return { feed, source, asked, came, trees: new Trees(source, feed, (error) => came.push(error)) };
}

test("the round on view comes first, then those in sight, then those beside it", async () => {
  const { source, asked, trees } = run(200);
  const isHere = trees.want(100);
  trees.see(90, 104);
  await source.answer();
  assert.equal(await isHere, true);
  for (let i = 0; i < 5; i++) await source.answer();
  assert.deepEqual(asked, [
    [100, 115],
    [90, 99],
    [116, 131],
    [74, 89],
  ]);
  assert.equal(trees.want(101), true);
  assert.equal(asked.length, 4); // enough lie ahead
  trees.want(116);
  assert.deepEqual(asked.at(-1), [132, 147]);
});

test("while somebody steps on, only the last round is waited for", async () => {
  const { source, asked, trees } = run(200);
  const [first, second, third] = [trees.want(10), trees.want(50), trees.want(120)];
  assert.deepEqual([await first, await second], [null, null]);
  await source.answer();
  await source.answer();
  assert.equal(await third, true);
  assert.deepEqual(asked.slice(0, 2), [
    [10, 25],
    [120, 135],
  ]);
});

test("a tree for another reason is waited for besides", async () => {
  const { source, trees } = run(40);
  const other = trees.load(30),
    own = trees.want(0);
  await source.answer([{ parents: [-1] }]); // as many as one answer holds
  await source.answer();
  assert.deepEqual([await own, await other], [true, true]);
  assert.equal(await trees.load(30), true);
});

test("what cannot be had is said once, and asked for again when it is wanted", async () => {
  const { source, asked, came, trees } = run(40);
  const isHere = trees.want(3);
  await source.answer({ error: "gone" });
  assert.equal(await isHere, null);
  assert.deepEqual([came, asked.length], [["gone"], 1]);
  trees.want(4);
  assert.equal(asked.length, 2);
});

test("an answer that comes when another run is on view completes none of its rounds", async () => {
  const { feed, source, came, trees } = run(40);
  const isHere = trees.want(3);
  feed.rounds = Array.from({ length: 9 }, () => ({}));
  trees.forget();
  assert.equal(await isHere, null);
  await source.answer();
  assert.deepEqual([feed.rounds[3], came], [{}, []]);
});
