// The keys of a toolbar; tests/browser/test_accessibility.py presses them.

import assert from "node:assert/strict";
import { test } from "node:test";

import { toolAfter } from "../../app/web/roving.js";

test("arrows go round a toolbar, Home and End to its ends", () => {
  const along = (key, count) => Array.from({ length: count }, (_, at) => toolAfter(key, at, count));
  assert.deepEqual(along("ArrowRight", 4), [1, 2, 3, 0]);
  assert.deepEqual(along("ArrowLeft", 4), [3, 0, 1, 2]);
  assert.deepEqual(along("Home", 3), [0, 0, 0]);
  assert.deepEqual(along("End", 3), [2, 2, 2]);
  assert.deepEqual(along("ArrowRight", 1), [0]);
});

test("all other keys are the page's", () => {
  const others = ["ArrowUp", "ArrowDown", "PageDown", "Enter", " ", "f", "constructor"];
  assert.deepEqual([...new Set(others.map((key) => toolAfter(key, 1, 3)))], [null]);
});
