import assert from "node:assert/strict";
import { test } from "node:test";
import { StepsPlayer } from "../../app/web/denoise/player.js";
import { blockOf, callEdge, stepsOf, stepsPart, textAt } from "../../app/web/denoise/steps.js";
import { takesKey } from "../../app/web/keys.js";
import { actOf } from "../../app/web/learn/keys.js";
import { placesFor, stateAt } from "../../app/web/learn/knobs.js";
import { gigabytes } from "../../app/web/learn/lanes.js";

const step = (position, token) => ({
  count: 1,
  ranking: [
    [position, [token, 9], [0.8, 0.1]],
    [7, [5], [0.2]],
  ],
  picks: [[position, `t${token}`, `t${token} `, 0.8]],
});
// Two blocks of four positions: the first call of the first block saves one call.
const CALLS = [
  { block: 0, size: 4, known: [[3, "k", "k"]], steps: [step(0, 1), step(1, 2)] },
  { block: 0, size: 4, steps: [step(2, 3)] },
  { block: 1, size: 4, steps: [step(0, 4)] },
];

test("steps are counted over all calls, and those after a call's first are free", () => {
  const steps = stepsOf(CALLS);
  assert.deepEqual(
    steps.map(({ at, k, free, block }) => [at, k, free, block]),
    [
      [0, 0, false, 0],
      [0, 1, true, 0],
      [1, 0, false, 0],
      [2, 0, false, 1],
    ],
  );
  assert.deepEqual(
    [0, 1, 2, 3].map((place) => blockOf(steps, place)),
    [
      [0, 3],
      [0, 3],
      [0, 3],
      [3, 4],
    ],
  );
  assert.deepEqual(
    [0, 1, 2, 3].map((place) => [callEdge(steps, place, -1), callEdge(steps, place, 1)]),
    [
      [0, 2],
      [0, 2],
      [0, 3],
      [2, 3],
    ],
  );
});

test("two runs part where they unmask something else", () => {
  const one = stepsOf(CALLS),
    same = stepsOf(CALLS.map((call) => ({ ...call, steps: call.steps.map((s) => ({ ...s })) })));
  const other = stepsOf([...CALLS.slice(0, 2), { ...CALLS[2], steps: [step(0, 5)] }]);
  assert.equal(stepsPart(one, same), null);
  assert.equal(stepsPart(one, other), 3);
  assert.equal(stepsPart(one, one.slice(0, 2)), null);
});

test("the text after a step has what was given, what was set, and masks", () => {
  const steps = stepsOf(CALLS),
    words = (place) =>
      textAt(CALLS, steps, place).map((block) => block.map((c) => c?.label ?? null));
  assert.deepEqual(words(0), [["t1", null, null, "k"]]);
  assert.deepEqual(words(3), [
    ["t1", "t2", "t3", "k"],
    ["t4", null, null, null],
  ]);
});

test("a player stays within what there is, and goes on only while more may come", () => {
  let reach = 0,
    changes = 0;
  const about = { reach: () => reach, busy: () => false },
    player = new StepsPlayer(about, () => {
      changes += 1;
    });
  player.go(4);
  assert.equal(changes, 0); // nothing is there yet
  reach = 3;
  player.go(9);
  assert.equal(player.place, 2);
  player.toggle(); // from the end it begins anew
  assert.deepEqual([player.place, player.playing], [0, true]);
  player.toggle();
  assert.equal(player.playing, false);
  player.step(-5);
  assert.equal(player.place, 0);
  player.live();
  assert.deepEqual([player.place, player.follow], [2, true]);
});

test("clickers, digits and letters move through the course", () => {
  const told = [],
    say = (name) => (by, step) => told.push([name, by, step].filter((each) => each !== undefined));
  const lesson = { chapter: 2, length: () => 7 };
  for (const name of ["pause", "move", "go", "node", "answer"]) lesson[name] = say(name);
  const press = (key, shiftKey = false) => {
    told.length = 0;
    actOf({ key, shiftKey }, lesson)?.();
    return told.filter(([name]) => name !== "pause").flat();
  };
  assert.deepEqual(press("PageDown"), ["move", 1]);
  assert.deepEqual(press("PageUp", true), ["go", 1, 0]);
  assert.deepEqual(press("ArrowRight", true), ["node", "child"]);
  assert.deepEqual(press("0"), ["go", 9, 0]);
  assert.deepEqual(press("4"), ["go", 3, 0]);
  assert.deepEqual(press("End"), ["go", 2, 6]);
  lesson.asked = { options: [] }; // answered or not
  assert.deepEqual(press("4"), ["answer", 3]);
  assert.deepEqual(press("0"), ["answer", -1]); // of none
  assert.deepEqual(press("b"), ["answer", 1]);
  assert.equal(actOf({ key: "x" }, lesson), undefined);
});

test("what is typed into keeps its keys", () => {
  const at = (tagName, key, more) => takesKey({ target: { tagName }, key, ...more });
  assert.equal(at("INPUT", "a"), true);
  assert.equal(at("BUTTON", " "), true);
  assert.equal(at("BUTTON", "ArrowRight"), false);
  assert.equal(at("DIV", "a"), false);
  assert.equal(at("DIV", "a", { ctrlKey: true }), true);
  const slider = { tagName: "INPUT", type: "range" };
  assert.equal(takesKey({ target: slider, key: "ArrowRight" }), true);
  assert.equal(takesKey({ target: slider, key: "PageDown" }), false); // a clicker leads on
});

test("sliders lead to a state, the last one fastest, and a wrong link to their start", () => {
  const sliders = [
    { values: ["0", "1"], start: 1 },
    { values: ["a", "b", "c"], start: 0 },
  ];
  assert.equal(stateAt(sliders, [0, 2]), 2);
  assert.equal(stateAt(sliders, [1, 0]), 3);
  assert.deepEqual(placesFor(sliders), [1, 0]);
  assert.deepEqual(placesFor(sliders, [0, 2]), [0, 2]);
  assert.deepEqual(placesFor(sliders, [2, Number.NaN]), [1, 0]);
});

test("bytes that were loaded are megabytes, then gigabytes", () => {
  assert.deepEqual([0, 538060032, 999.4e6, 23 * 538060032].map(gigabytes), [
    "0 MB",
    "538 MB",
    "999 MB",
    "12.4 GB",
  ]);
});
