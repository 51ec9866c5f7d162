// Which rows of the one table are shown, and in which order.

const BUDGETLESS = "own"; // a chain and the like: in the table at every budget

/** What can be chosen: temperatures, sources, and budgets that several methods have. */
export function choicesOf(rows) {
  const all = (name) => [...new Set(rows.map((row) => row[name]))],
    methods = (budget) =>
      new Set(rows.filter((r) => r.budget === budget).map((r) => r.method)).size,
    common = all("budget").filter((budget) => budget > 1 && methods(budget) > 2);
  return {
    temperature: all("temperature").sort((a, b) => a - b),
    source: all("source"),
    budget: common.sort((a, b) => a - b),
  };
}

/** The rows of a temperature, a source and a budget; methods without that budget with their own. */
export function rowsOf(rows, { temperature, source, budget }) {
  const some = rows.filter((r) => r.temperature === temperature && r.source === source),
    having = new Set(some.filter((r) => r.budget === budget).map((r) => r.method));
  return some
    .filter((r) => r.budget === budget || !having.has(r.method))
    .map((r) => ({ ...r, size: r.budget === budget ? budget : BUDGETLESS }));
}

/** Sorted by a number, rows without it last; descending unless `up`. */
export function sorted(rows, key, up) {
  const value = (row) => key(row) ?? (up ? Infinity : -Infinity);
  return [...rows].sort((a, b) => (up ? value(a) - value(b) : value(b) - value(a)));
}
