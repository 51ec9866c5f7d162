// What-if: which number stands where, what knobs and links change, and which curves are kept.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Curves } from "../../app/web/whatif/curves.js";
import { cameOf, DraftCard, roundAt } from "../../app/web/whatif/draft.js";
import { changedOf, Knobs, settingOf } from "../../app/web/whatif/knobs.js";
import { stateOf } from "../../app/web/whatif/linked.js";
import { MoreTexts, TOGETHER } from "../../app/web/whatif/texts.js";
import { WhatIf } from "../../app/web/whatif/view.js";
import "./page.js";

const WEIGHT = { name: "weight", label: "weight", value: 0.1, min: 0, max: 1, step: 0.1 },
  GAIN = { name: "gain", label: "gain", value: 0.01, min: 0, max: null, log: true },
  DART = { name: "dart", title: "DART", knobs: [WEIGHT, { ...GAIN, slider: [-4, 0, 1] }] };

test("a setting is called by the options that are not as usual, and believes no address", () => {
  assert.equal(settingOf(DART, {}).name, "DART");
  const { name, options } = settingOf(DART, { weight: 0.5, gain: "0.5", constructor: 1 });
  assert.deepEqual([name, options], ["DART, weight 0.5", { weight: 0.5, gain: 0.01 }]);
  assert.deepEqual(changedOf(DART, { weight: 0.1, gain: 0.5 }), { gain: 0.5 });
});

test("a slider of powers and its number move each other, within what is said below them", () => {
  const turned = [],
    knobs = new Knobs((curve) => turned.push([knobs.budget, knobs.values.gain, curve]));
  knobs.budget = 17;
  knobs.show(DART);
  const inputs = knobs.element.all("input"), // of the budget, then a number and a slider each
    [budget, , number, slider] = inputs;
  const bounds = knobs.element.of("ds-bounds").map((each) => each.textContent);
  assert.deepEqual(bounds, ["1 to 1024", "0 to 1, by 0.1", "0 or more, by powers of ten"]);
  assert.equal(knobs.budget, 24); // the next stop
  number.value = "0.001";
  number.fire("change");
  assert.equal(slider.value, -3);
  slider.value = "-1";
  slider.fire("input");
  budget.value = "0";
  budget.fire("input");
  assert.deepEqual(turned, [
    [24, 0.001, true],
    [24, 0.1, true],
    [1, 0.1, false],
  ]);
  assert.equal(number.value, 0.1);
});

/** Curves whose figures keep what they are told. */
function curves() {
  const asked = [],
    made = new Curves({}, () => asked.push(made.kept.map(({ name }) => name)), assert.fail);
  const figure = () => ({ element: {}, draw: () => {}, ring: (points) => (made.ringed = points) });
  for (const name of ["tau", "speed", "lengths"]) made[name] = figure();
  return { made, asked };
}

test("the last six settings are kept, each once, and all methods beside the one on view", () => {
  const { made, asked } = curves(),
    named = (name) => ({ name, method: name, options: {} });
  const methods = ["ddtree", "dart", "dart+chain"].map((name) => ({ name, title: name }));
  made.clear(methods, {});
  made.at(named("dart"), 16, { tau: 2.5, figures: {} });
  assert.deepEqual(made.ringed, [{ x: 16, y: 2.5 }]);
  const [pin, every] = made.tools;
  every.fire("click");
  pin.fire("click");
  made.keep([..."abcdefga"].map(named));
  assert.deepEqual(asked, [["ddtree"], ["ddtree", "dart"], [..."bcdefg"]]);
});

test("the best budget is told with its own speed, its doubt and whose times these are", () => {
  const { made } = curves(),
    points = [
      { budget: 8, speed: 12, exact: true },
      { budget: 16, speed: 25, exact: false },
    ];
  const says = (cost, of) => {
    made.show({ figures: {}, cost }, of);
    return made.best.textContent;
  };
  assert.equal(
    says({ points, best: 16, plain: 10 }),
    "Best budget by this estimate: 16, at 25 tokens/s; plain decoding 10. τ is not exact there.",
  );
  const mine = says({ points, best: 8, plain: 10 }, "DDTree on here");
  assert.equal(mine, "Best budget by these times: 8, at 12 tokens/s; plain decoding 10.");
  assert.match(says(null, "DDTree on here"), /was not timed .*DDTree on here/);
  assert.ok(!made.speed.element.hidden);
  assert.equal(says(null), "");
  assert.ok(made.speed.element.hidden);
  made.clear([], {});
  says({ points, best: 8, plain: 10 });
  made.blank();
  assert.equal(made.best.textContent, "");
});

test("the text on view counts among those of a curve, and is not offered beside itself", () => {
  const more = new MoreTexts(() => {}),
    names = [..."abcdefghi"];
  const offered = () => more.list.all("input").filter((box) => !box.disabled).length;
  more.show(
    names.map((name) => [name, name]),
    "a",
  );
  assert.deepEqual([more.list.textContent, offered()], ["bcdefghi", 8]);
  assert.match(more.words.textContent, /more texts…/);
  more.chosen = names.slice(1, TOGETHER);
  more.show(
    names.map((name) => [name, name]),
    "a",
  );
  assert.match(more.words.textContent, /over 8 texts/);
  assert.equal(offered(), TOGETHER - 1); // only to be taken away
});

test("the lengths of rounds say how each token came", () => {
  assert.deepEqual(cameOf([3, 1]), ["prefill", "accepted", "accepted", "bonus", "bonus"]);
  assert.deepEqual(roundAt([0, 3, 4], 3), [3, 4]);
  assert.deepEqual(roundAt([0, 3, 4], 9), [4, Infinity]);
  assert.deepEqual(roundAt([], 2), [0, Infinity]);
});

test("a round's own tokens follow its root, and arrows go from round to round", () => {
  const went = [],
    card = new DraftCard({}, { go: (place) => went.push(place), moved: () => {} });
  card.tree.show = () => {};
  card.read([..."abcdef"]);
  const round = { fewer: "Fewer were drafted." };
  card.show({ starts: [0, 3, 4], lengths: [3, 1, 1], rounds: 3, round }, 3);
  const marked = card.tokens.map((each) => each.className.split(" ").slice(1).join(" "));
  assert.deepEqual(marked, [
    "prefill",
    "accepted",
    "accepted",
    "bonus root",
    "bonus current",
    "bonus",
  ]);
  assert.equal(card.heading.textContent, "Round 2 of 3");
  assert.match(card.node.textContent, /^Fewer were drafted\. Click/);
  const event = { preventDefault: () => {}, stopPropagation: () => {} };
  for (const key of ["ArrowLeft", "ArrowRight", "Home", "End", "x"]) card._key({ key, ...event });
  assert.deepEqual(went, [0, 4, 0, 4]);
});

test("an address counts places from one; what is said of a run is its own", async () => {
  const figures = { tau: {}, speed: {}, lengths: {} },
    about = { model: "small", prompt: "why", text: [..."abcdef"], methods: [DART], figures },
    found = { tau: 2.5, rounds: 2, tokens: 6, starts: [0, 3], lengths: [3, 2], figures },
    round = { y: [0, 0, 1] },
    asked = [];
  const source = {
    files: async () => ({ files: [] }),
    about: async () => about,
    simulate: async (question) =>
      asked.push(question) && { ...found, round, exact: true, note: "" },
  };
  const view = new WhatIf(document.body, source, assert.fail);
  for (const each of [view.curves.tau, view.curves.speed, view.curves.lengths])
    each.draw = () => {};
  view.draft.tree.show = () => {};
  await view.address.ready;
  view.listed = ["fibonacci"];
  await view.open("fibonacci", "Fibonacci", { place: 5, method: "dart", budget: 64 });
  await new Promise((done) => setImmediate(done));
  clearTimeout(view.timer);
  assert.deepEqual([asked[0].place, asked[0].budget, stateOf(view).place], [4, 64, 5]);
  assert.match(view.exact.textContent, /^τ 2.50, 2 rounds. ✓ exact$/);
  const tiles = view.tiles.children.map((each) => each.textContent);
  assert.deepEqual(tiles, ["2.50τ", "2rounds", "6tokens", "2nodes here"]);
  view.turned = () => {};
  const went = [9, -1].map((place) => view.go(place) ?? view.place);
  assert.deepEqual(went, [5, 0]);
});
