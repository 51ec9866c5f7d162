// Where the rounds of a run stand beside each other: every token of the text has a column, and each
// column belongs to the round that drafted there. Nothing here touches the page.

// A column of the text: {at: its round, row: of the round's path or GHOST, rounds: their list}.
export class RunPlan {
  constructor() {
    this.rounds = null;
    this.starts = [0]; // column of each round's root, and after the last one of its bonus token
    this.twigs = new WeakMap();
  }

  /** Take the rounds there are: a list that only grows, or another one. */
  take(rounds) {
    if (rounds !== this.rounds || rounds.length < this.starts.length - 1) this.starts = [0];
    this.rounds = rounds;
    for (let at = this.starts.length - 1; at < rounds.length; at++) {
      const { path, ghost } = rounds[at];
      this.starts.push(this.starts[at] + path.length - (ghost ? 0 : 1));
    }
  }

  /** How many columns there are: each token from the first round's root on. */
  get columns() {
    return this.starts.at(-1) + 1;
  }

  /** The round whose draft reached for this column: its root's children begin one after it. */
  roundAt(column) {
    const { starts } = this;
    let low = 0;
    let high = starts.length - 2;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (starts[middle] < column) low = middle;
      else high = middle - 1;
    }
    return Math.max(0, low);
  }

  /** The token in a column of the text: {at, row, round, label, short, q, p, came}. Without its
   * round's tree it is what the text says, without q and p. */
  token(column) {
    const at = this.roundAt(column);
    const round = this.rounds[at];
    const step = column - this.starts[at];
    const row = round.path[step] ?? -1;
    const came = row < 0 ? "bonus" : step ? "accepted" : "root";
    const about = { at, row, round, came, q: null, p: null };
    if (row < 0) {
      const { label, short, p } = round.ghost;
      return { ...about, label, short: short ?? label, p: p ?? null };
    }
    if (!round.tokens) {
      const [text] = round.text.find(([, , each]) => each === row) ?? [""];
      return { ...about, label: text, short: text };
    }
    const token = round.tokens[row];
    const label = round.labels[token];
    const [q, p] = step ? [round.q[row], round.p?.[row] ?? null] : [null, null];
    return { ...about, label, short: round.short?.[token] ?? label, q, p };
  }

  /** How many nodes hang beside the text in a column. */
  beside(column) {
    const at = this.roundAt(column);
    return this.rounds[at].beside[column - this.starts[at] - 1] ?? 0;
  }

  /** The branches that hang off the text in a column and were not taken: {above, below}, each list
   * from the text outwards of {row, label, nodes below it}; none without the round's tree. */
  branches(column) {
    const at = this.roundAt(column);
    const round = this.rounds[at];
    const step = column - this.starts[at];
    if (round.parents && !this.twigs.has(round)) this.twigs.set(round, hanging(round));
    return this.twigs.get(round)?.[step] ?? { above: [], below: [] };
  }
}

/** For each step of a round's path, what hangs there beside it. */
function hanging(round) {
  const { path, parents, y, labels, tokens } = round;
  const sizes = y.map(() => 1);
  for (let row = parents.length - 1; row > 0; row--) sizes[parents[row]] += sizes[row];
  const step = new Map(path.map((row, i) => [row, i + 1]));
  const found = Array.from({ length: path.length + 1 }, () => ({ above: [], below: [] }));
  parents.forEach((parent, row) => {
    const i = step.get(parent);
    if (i === undefined || path[i] === row) return;
    const side = y[row] < y[path[0]] ? "above" : "below";
    found[i][side].push({ row, label: labels[tokens[row]], nodes: sizes[row] - 1 });
  });
  for (const { above, below } of found) {
    above.sort((a, b) => y[b.row] - y[a.row]);
    below.sort((a, b) => y[a.row] - y[b.row]);
  }
  return found;
}
