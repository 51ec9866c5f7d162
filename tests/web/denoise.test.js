import assert from "node:assert/strict";
import { test } from "node:test";

import { DenoiseView } from "../../app/web/denoise/view.js";
import { toldOf } from "../../app/web/denoise/words.js";

/** A plain run of one call that sets `position`, while 2 and 5 are masked. */
function run(position, ahead) {
  const pick = [position, "so", 7, 0.9];
  const step = { at: 0, picks: [pick], free: false };
  const ranking = [2, 5].map((masked) => [masked, [7], [0.9]]);
  const calls = [{ steps: [{ picks: [pick], ranking }] }];
  return [{ header: { ahead }, calls, drafts: false }, step];
}

test("a step says why it sets what it sets", () => {
  const said = (position, ahead) => toldOf(...run(position, ahead));
  assert.match(
    said(5, 0),
    /^Model call 1 sets the masked position the model is surest of: position 5/,
  );
  assert.match(said(5, undefined), /the model is surest of/);
  assert.match(said(2, 0.7), /^Model call 1 sets the first masked position: position 2/);
  assert.match(
    said(5, 0.7),
    /sets a later position first, since the model is at least 70% sure of it/,
  );
});

test("a step that a run ends before is not waited for", () => {
  const went = [],
    nothing = () => {},
    status = { run: nothing, tell: nothing, waitingFor: nothing, blank: nothing },
    empty = { classList: { toggle: nothing }, lastChild: {} };
  const ended = (steps, wanted) => {
    const player = { go: (at) => went.push(at), follow: true },
      view = Object.create(DenoiseView.prototype),
      runs = [{ feed: { active: true, run: {} }, steps: Array(steps), save: {} }],
      parts = { graph: {}, ranking: {}, address: { moved: nothing }, _mark: nothing },
      drawn = { _drawAll: nothing };
    Object.assign(view, {
      runs,
      wanted,
      player,
      status,
      empty,
      trigger: nothing,
      ...parts,
      ...drawn,
    });
    view._state(runs[0], false);
    assert.equal(view.wanted, wanted, "it may come");
    runs[0].feed.active = false;
    view._state(runs[0], true);
    return view.wanted;
  };
  assert.equal(ended(64, { round: 90 }), null);
  assert.deepEqual(went, [89]); // the player stays within the steps there are
  assert.equal(ended(0, { round: 90 }), null);
  assert.deepEqual(went, [89]);
});
