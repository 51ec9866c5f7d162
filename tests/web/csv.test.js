import assert from "node:assert/strict";
import { test } from "node:test";

import { csvOf } from "../../app/web/save/csv.js";

test("a line for each record, with every name that any of them has", () => {
  const text = csvOf([
    { run: "A", tau: 1.5 },
    { run: "B", place: 3, tau: null },
  ]);
  assert.equal(text, "run,tau,place\r\nA,1.5,\r\nB,,3\r\n");
});

test("commas, quotes and lines stay in their cell, and no text is a formula", () => {
  const cell = (token) => csvOf([{ token }]).slice("token\r\n".length, -2);
  assert.equal(cell('a, "b"\n'), '"a, ""b""\n"');
  assert.deepEqual(["=1+1", "+x", "@sum"].map(cell), ["'=1+1", "'+x", "'@sum"]);
  assert.deepEqual(["-0.5", -2, "a=b"].map(cell), ["-0.5", "-2", "a=b"]);
});
