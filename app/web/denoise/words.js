// Denoising, and what a step does, in words.

import { percent, plural } from "../dom.js";

export const DN_WORDS = [
  ["Position", "one place of the block: masked until a step sets its token, then it stays."],
  [
    "Step",
    "the first masked positions of the ranking are set: the surest ones. A run may keep to the " +
      "left: then a position behind the first masked one is set before it only when the model is " +
      "sure enough of it. Plain denoising makes a model call for every step.",
  ],
  [
    "Draft",
    "a state that the block may be in a few steps from now. Spiffy guesses some from the ranking " +
      "before, and runs them in the same model call.",
  ],
  ["Level", "how many steps ahead of the block a draft is."],
  [
    "Pathway",
    "one order of steps that leads to a draft. There may be several; the model walks at most one.",
  ],
  [
    "Saved call",
    "the model's own steps led to a draft: what it says of that state is there already, so the " +
      "next step needs no call.",
  ],
];

/** A step in words. */
export function saidOf(step) {
  const picks = step.picks
    .map(([position, label, , p]) => `position ${position} ${label} ${percent(p)}`)
    .join(", ");
  return `${picks}; call ${step.at + 1}, ${step.free ? "by an accepted draft" : "its own step"}`;
}

/** Tell what happens at a step, for somebody who sees this for the first time. */
export function toldOf(run, step) {
  const call = run.calls[step.at],
    drafts = run.drafts;
  const what = step.picks
    .map(([position, label, , p]) => `position ${position} to “${label}” (${percent(p)} sure)`)
    .join(", ");
  if (step.free)
    return (
      `No call: the state before this step was one of call ${step.at + 1}'s drafts, so the ` +
      `model's answer to it is already there. It sets ${what}. One call saved.`
    );
  const words = `Model call ${step.at + 1} sets ${whyOf(run, call.steps[0])}: ${what}. `;
  if (!drafts) return `${words}Plain denoising pays one call for every step.`;
  if (!call.drafted)
    return (
      words +
      (call.step && step.at && run.calls[step.at - 1].block === call.block
        ? "It carried no drafts."
        : "The first call of a block carries no drafts: no ranking of it is known yet.")
    );
  return words + draftsOf(call);
}

/** Why a step sets what it sets: the surest, or the first masked one where a run keeps left. */
function whyOf(run, { picks, ranking }) {
  const ahead = run.header.ahead ?? 0;
  if (picks.length > 1)
    return ahead
      ? "the masked positions that come first in the ranking"
      : "the masked positions the model is surest of";
  if (!ahead) return "the masked position the model is surest of";
  const first = Math.min(...ranking.map(([position]) => position));
  return picks[0][0] === first
    ? "the first masked position"
    : `a later position first, since the model is at least ${percent(ahead)} sure of it`;
}

/** Tell how a call's drafts ended. */
function draftsOf({ drafted, accepted }) {
  const drafts = `the ${plural(drafted, "draft")} in the same call`;
  if (!accepted)
    return `None of ${drafts} was the state it led to: the next step needs a new call.`;
  const were = accepted === 1 ? "one was the state" : `${accepted} were the states`;
  const need = accepted === 1 ? "step needs" : `${accepted} steps need`;
  return `Of ${drafts}, ${were} it led to: the next ${need} no call.`;
}
