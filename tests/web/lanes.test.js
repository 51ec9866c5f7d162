// The lanes of runs over a text: app/web/lanes.js.

import assert from "node:assert/strict";
import { test } from "node:test";

import "./page.js";

const { Lanes } = await import("../../app/web/lanes.js");

test("a place is marked before the lanes are drawn, as by a key while a run is on its way", () => {
  const lanes = new Lanes(() => {});
  lanes.mark(3);
  lanes.draw(5, [], [[]]);
  assert.equal(lanes.svg.children.at(-1).getAttribute("x"), "3");
});
