// Which rows of the one table are shown, and what they are of.

export const OWN = "own"; // a method's own budget; a chain has no other, at any choice

/** The choices: temperatures, sources, and budgets that several methods have, or all that were
 * measured at more than one. The methods' own budgets are a choice where they are others. */
export function choicesOf(rows) {
  const all = (name) => [...new Set(rows.map((row) => row[name]))],
    methods = (keep) => new Set(rows.filter(keep).map(({ method }) => method)),
    choosing = [...methods((row) => several(rows, row))],
    isCommon = (budget) => {
      const having = methods((row) => row.budget === budget);
      return having.size > 2 || (choosing.length && choosing.every((each) => having.has(each)));
    },
    common = all("budget").filter((budget) => budget > 1 && isCommon(budget)),
    only = Math.max(...all("budget")), // where no method has several
    others = rows.some((row) => row.own && !common.includes(row.budget) && several(rows, row));
  return {
    temperature: all("temperature").sort((a, b) => a - b),
    source: all("source"),
    budget: [...(common.length ? common.sort((a, b) => a - b) : [only]), ...(others ? [OWN] : [])],
  };
}

/** Whether the row's method is there with another budget too. */
function several(rows, { method, budget }) {
  return rows.some((row) => row.method === method && row.budget !== budget);
}

/** The rows of a temperature, a source and a budget; methods without that budget with their own. */
export function rowsOf(rows, { temperature, source, budget }) {
  const some = rows.filter((r) => r.temperature === temperature && r.source === source);
  if (budget === OWN) return some.filter((r) => r.own).map((r) => ({ ...r, size: OWN }));
  const having = new Set(some.filter((r) => r.budget === budget).map((r) => r.method));
  return some
    .filter((r) => r.budget === budget || !having.has(r.method))
    .map((r) => ({ ...r, size: r.budget === budget ? budget : OWN }));
}

/** How one makes a table of one's own. */
export const COMMAND = "python -m app grid table --out FOLDER --prompts FILE";

/** Which prompts and machine the numbers are of. */
export function aboutOf({ model, max_new_tokens: tokens, rows, hardware, threads }) {
  const most = (name) => Math.max(...rows.map((row) => row[name])),
    how = rows.every((row) => row.ran) ? "in real runs" : "from the target's own texts",
    where = hardware ? `on one machine (${hardware}, threads: ${threads})` : "on one machine";
  return (
    `${model}, up to ${tokens} new tokens a prompt. τ, TVD and top 16 are of ` +
    `${most("texts")} prompts, ${how}; times of ${most("timed")}, ${where}: ` +
    "speed is their median, and not τ ÷ round."
  );
}
