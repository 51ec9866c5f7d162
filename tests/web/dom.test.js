import assert from "node:assert/strict";
import { test } from "node:test";
import { milliseconds, percent, plural, tiny } from "../../app/web/dom.js";

test("a probability is short, and halves go to the even number as in Python", () => {
  const said = [null, 0, 0.0004, 0.042, 0.0025, 0.125, 0.135, 0.874, 1].map(percent);
  assert.deepEqual(said, ["–", "0%", "<0.1%", "4.2%", "0.2%", "12%", "14%", "87%", "100%"]);
});

test("a product of probabilities keeps its power of ten", () => {
  assert.equal(tiny(3.14e-7), "3.1e-7");
  assert.equal(tiny(0.25), percent(0.25));
});

test("a count agrees with its noun", () => {
  assert.deepEqual([plural(1, "node"), plural(2, "node")], ["1 node", "2 nodes"]);
});

test("a time is short, whatever its size", () => {
  const shown = [0.00512, 0.0123, 1.5, 41.155].map(milliseconds);
  assert.deepEqual(shown, ["5.1 ms", "12 ms", "1500 ms", "41 s"]);
});
