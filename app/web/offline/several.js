// Several runs beside each other without a server, put together from what each run's pack says:
// the answers of app/view/comparison.py and app/view/statistics.py.

import { LETTERS } from "../parts.js";

const START = ["text", "prompt", "tokenizer"]; // facts that make two texts begin alike

function differ(one, other, names) {
  return names.some((name) => one[name] && other[name] && one[name] !== other[name]);
}

/** What can be compared of runs, by their facts. cautions: [[a sentence, the facts of which one
 * must differ], …]; apart: what tells each run from the others of its method. */
export function comparisonOf(facts, cautions, apart) {
  const [first, ...others] = facts;
  const told = cautions.map(([sentence, names]) => {
    const letters = others.flatMap((other, at) =>
      differ(first, other, names) ? [LETTERS[at + 1]] : [],
    );
    return [sentence, letters];
  });
  const found = told.filter(([, letters]) => letters.length);
  return {
    apart,
    cautions: found.map(([sentence, letters]) =>
      others.length > 1 ? `A against ${letters.join(" and ")}: ${sentence}` : sentence,
    ),
    linkable: others.length > 0 && !others.some((other) => differ(first, other, ["tokenizer"])),
    prompts: others.length
      ? facts.map((own) => facts.findIndex((each) => !differ(each, own, START)))
      : [],
  };
}

/** What the runs measure, under their letters. runs: [{method, measured}, …]. */
export function measuredOf(runs, apart) {
  const own = (table) =>
    runs.flatMap(({ measured }, at) =>
      measured[table].map((row) => ({ ...row, run: LETTERS[at] })),
    );
  const several = runs.length > 1 ? "beside" : "figures";
  const [first] = runs;
  const figures = Object.entries(first.measured[several]).map(([name, { layout }]) => [
    name,
    {
      layout,
      data: runs.flatMap(({ method, measured }, at) =>
        measured[several][name].data.map(({ meta }) =>
          meta.name === "A"
            ? { meta: { ...meta, name: `${LETTERS[at]} ${method} ${apart[at]}`.trimEnd() } }
            : { meta },
        ),
      ),
    },
  ]);
  return { tau: own("tau"), depths: own("depths"), figures: Object.fromEntries(figures) };
}
