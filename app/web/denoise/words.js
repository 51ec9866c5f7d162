// What denoising is, and what a step does, in words.

import { h, percent, plural } from "../dom.js";

const DN_WORDS = [
  ["Position", "one place of the block: masked until a step sets its token, then it stays."],
  [
    "Step",
    "the surest masked positions are set, by the ranking of what is masked then. Plain denoising " +
      "makes a model call for every step.",
  ],
  [
    "Draft",
    "a state that the block may be in a few steps from now. Spiffy guesses some from the ranking " +
      "before, and runs them in the same model call.",
  ],
  ["Level", "how many steps ahead of the block a draft is."],
  [
    "Pathway",
    "one order of steps that leads to a draft. There may be several; the target walks at most one.",
  ],
  [
    "Saved call",
    "the target's own steps led to a draft: what it says of that state is there already, so the " +
      "next step needs no call.",
  ],
];

/** What the words on this page mean. */
export function wordList() {
  return h(
    "dl",
    { class: "dn-words" },
    DN_WORDS.map(([word, means]) => h("div", {}, h("dt", {}, word), h("dd", {}, means))),
  );
}

/** A step in words. */
export function saidOf(step) {
  const picks = step.picks
    .map(([position, label, , p]) => `position ${position} ${label} ${percent(p)}`)
    .join(", ");
  return `${picks}; call ${step.at + 1}, ${step.free ? "by an accepted draft" : "its own step"}`;
}

/** What happens at a step, for somebody who sees this for the first time. */
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
  const sure =
    call.steps[0].picks.length === 1
      ? "the masked position the model is surest of"
      : "the masked positions the model is surest of";
  const words = `Model call ${step.at + 1} sets ${sure}: ${what}. `;
  if (!drafts) return `${words}Plain denoising pays one call for every step.`;
  if (!call.graph)
    return (
      words +
      (call.step && step.at && run.calls[step.at - 1].block === call.block
        ? "It carried no drafts."
        : "The first call of a block carries no drafts: no ranking of it is known yet.")
    );
  return words + draftsOf(call);
}

/** What became of a call's drafts. */
function draftsOf({ drafted, accepted }) {
  const drafts = `the ${plural(drafted, "draft")} in the same call`;
  if (!accepted)
    return `None of ${drafts} was the state it led to: the next step needs a new call.`;
  const were = accepted === 1 ? "one was the state" : `${accepted} were the states`;
  const need = accepted === 1 ? "step needs" : `${accepted} steps need`;
  return `Of ${drafts}, ${were} it led to: the next ${need} no call.`;
}
