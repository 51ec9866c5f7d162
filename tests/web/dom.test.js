import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import {
  duration,
  estimate,
  number,
  percent,
  plural,
  ratio,
  shortNumber,
  tiny,
  withInterval,
} from "../../app/web/dom.js";

const FORMATS = JSON.parse(readFileSync(new URL("../golden/formats.json", import.meta.url)));
const WRITE = { duration, estimate, number, percent, ratio, short: shortNumber, tiny };

for (const [name, cases] of Object.entries(FORMATS)) {
  test(`${name}: numbers are written as analysis/numbers.py writes them`, () => {
    for (const [value, text] of cases) {
      const given = [value].flat().map((each) => (each === "inf" ? Infinity : each));
      assert.equal(WRITE[name](...given), text);
    }
  });
}

test("a count agrees with its noun", () => {
  assert.deepEqual([plural(1, "node"), plural(2, "node")], ["1 node", "2 nodes"]);
});

test("a point of a figure says its doubt", () => {
  assert.equal(withInterval({ y: 2.5, doubt: "not exact" }), "≈ 2.50");
});
