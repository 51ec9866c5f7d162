// From the calls of a run to its steps, and where in them a place is. Pure functions.

/** All steps of a run, each with the call that decided it; `free`: by an accepted draft. */
export function stepsOf(calls) {
  return calls.flatMap((call, at) =>
    (call.steps ?? []).map((step, k) => ({
      ...step,
      at,
      k,
      free: k > 0,
      block: call.block,
      size: call.size,
    })),
  );
}

/** The number of the last step of the call that decided most steps. */
export function bestStep(steps) {
  return steps.reduce((best, step, at) => (step.k > steps[best].k ? at : best), 0);
}

/** Numbers of the steps of the block that step `place` belongs to: [first, end). */
export function blockOf(steps, place) {
  let first = place,
    end = place + 1;
  while (first > 0 && steps[first - 1].block === steps[place].block) first--;
  while (end < steps.length && steps[end].block === steps[place].block) end++;
  return [first, end];
}

/** The first step at which two runs unmask something else; null while there is none. */
export function stepsPart(one, other) {
  const told = (step) =>
    JSON.stringify(step.ranking.slice(0, step.count).map(([position, ids]) => [position, ids[0]]));
  for (let at = 0; at < Math.min(one.length, other.length); at++)
    if (told(one[at]) !== told(other[at])) return at;
  return null;
}

/** The text after step `place`, block by block: {text, label, step} of each position, or null where
 * it is masked. */
export function textAt(calls, steps, place) {
  const blocks = [];
  let block = null,
    last = null;
  for (let at = 0; at <= place && at < steps.length; at++) {
    const step = steps[at];
    if (step.block !== last) {
      last = step.block;
      block = Array(step.size).fill(null);
      for (const [position, label, text] of calls[step.at].known || [])
        block[position] = { label, text, step: null };
      blocks.push(block);
    }
    for (const [position, label, text] of step.picks) block[position] = { label, text, step: at };
  }
  return blocks;
}

/** The number of a call's first step, for the call before (by = −1) or after (1) step `place`. */
export function callEdge(steps, place, by) {
  const starts = steps.map((step, at) => (step.k ? -1 : at)).filter((at) => at >= 0);
  if (by > 0) return starts.find((at) => at > place) ?? steps.length - 1;
  return starts.filter((at) => at < place).pop() ?? 0;
}
