// Runs on one text, as pure functions of their rounds: nothing here touches the page. A place is a
// token's number in the new text; place 0 is the token that prefill itself gave.

/** A run by place: its tokens as {text, came, row, round, id}. Several rounds may hold none. */
export function laid(rounds) {
  const tokens = [];
  rounds.forEach((round, at) => {
    round.text.forEach(([text, came, row], i) =>
      tokens.push({ text, came, row, round: at, id: round.ids[i] }),
    );
  });
  return tokens;
}

/** The round whose tokens cover a place; −1 where the run has not come, or never came. */
export function roundAt(tokens, place) {
  return place >= 0 && place < tokens.length ? tokens[place].round : -1;
}

/** The places of the round that covers a place; none where the run has not come. */
export function placesOf(tokens, place) {
  const round = roundAt(tokens, place);
  if (round < 0) return [];
  let [first, end] = [place, place + 1];
  while (first > 0 && tokens[first - 1].round === round) first -= 1;
  while (end < tokens.length && tokens[end].round === round) end += 1;
  return Array.from({ length: end - first }, (_, i) => first + i);
}

/** The first place where two of the runs have different tokens; null: the text is shared. */
export function partsAt(...sides) {
  const end = Math.max(0, ...sides.map((tokens) => tokens.length));
  for (let place = 0; place < end; place++) {
    const there = sides.filter((tokens) => place < tokens.length);
    if (there.some((tokens) => tokens[place].text !== there[0][place].text)) return place;
  }
  return null;
}

/** How many places can be shown: to where the texts part, else to the end of the longest one. */
export function extent(...sides) {
  return partsAt(...sides) ?? Math.max(...sides.map((tokens) => tokens.length));
}

/** Places where a run's round begins. */
function begins(tokens) {
  return tokens.flatMap((token, place) =>
    place === 0 || tokens[place - 1].round !== token.round ? [place] : [],
  );
}

/** Places, in order, where any run begins a round, before `end`. */
export function beginnings(sides, end) {
  const places = [...new Set(sides.flatMap(begins))];
  return places.filter((place) => place < end).sort((a, b) => a - b);
}

/** Places where one run's token was accepted from its draft and another's was not. */
export function contrasts(sides, end) {
  const places = [];
  for (let place = 0; place < end; place++) {
    const there = sides
      .filter((tokens) => place < tokens.length)
      .map((tokens) => tokens[place].came === "a");
    if (there.includes(true) && there.includes(false)) places.push(place);
  }
  return places;
}

/** The next of some ordered places after `from` (by = 1) or before it (by = −1); null: none. */
export function nextOf(places, from, by) {
  if (by > 0) return places.find((place) => place > from) ?? null;
  return places.filter((place) => place < from).pop() ?? null;
}

// ── the same node in another tree ──────────────────────────────────────────────────────────────

/** The place of a round's root: the last token of the rounds before it. */
export function rootPlace(rounds, at) {
  let tokens = 0;
  for (let i = 0; i < at; i++) tokens += rounds[i].text.length;
  return Math.max(0, tokens - 1);
}

/** Token ids from the root (left out) to a row, or to the target's token at the stop. */
function pathIds(round, row) {
  const ids = [];
  let at = row;
  if (row < 0) {
    ids.push(round.ghost.token);
    at = round.ghost.parent;
  }
  for (; at > 0; at = round.parents[at]) ids.push(round.tokens[at]);
  return ids.reverse();
}

const BELOW = new WeakMap();

/** The child of a row that carries a token; −1 for the target's own, undefined: there is none. */
function childOf(round, row, id) {
  if (!BELOW.has(round)) {
    const below = new Map();
    round.parents.forEach(
      (parent, child) => parent >= 0 && below.set(`${parent} ${round.tokens[child]}`, child),
    );
    if (round.ghost && !below.has(`${round.ghost.parent} ${round.ghost.token}`))
      below.set(`${round.ghost.parent} ${round.ghost.token}`, -1);
    BELOW.set(round, below);
  }
  return BELOW.get(round).get(`${row} ${id}`);
}

/**
 * The node of another run's tree that stands for the same text as this one's: the same tokens from
 * the same position. Sides are {rounds, tokens, at}, over one shared text; null: it has none.
 */
export function twin(mine, row, theirs) {
  const round = mine.rounds[mine.at],
    other = theirs.rounds[theirs.at];
  const path = pathIds(round, row),
    start = rootPlace(mine.rounds, mine.at),
    end = start + path.length;
  const root = rootPlace(theirs.rounds, theirs.at);
  if (root > end) return null;
  const wanted = (place) => (place > start ? path[place - start - 1] : mine.tokens[place].id);
  for (let place = start + 1; place <= root; place++)
    if (theirs.tokens[place].id !== wanted(place)) return null;
  let at = 0;
  for (let place = root + 1; place <= end; place++) {
    if (at < 0) return null;
    at = childOf(other, at, wanted(place));
    if (at === undefined) return null;
  }
  return at;
}

const LOOKED_THROUGH = 64; // rounds that are looked through

/**
 * A promise of where another run drafted after the same text as a row's parent: {at, row}, its
 * round and row, the latest there is; null: none of its trees has that text. Sides as for `twin`;
 * trees: of the other run.
 */
export async function standing(mine, row, theirs, trees) {
  const round = mine.rounds[mine.at];
  const parent = row < 0 ? round.ghost.parent : round.parents[row];
  if (parent < 0) return null;
  const place = rootPlace(mine.rounds, mine.at) + pathIds(round, parent).length;
  let at = theirs.rounds.length - 1;
  while (at > 0 && rootPlace(theirs.rounds, at) > place) at -= 1;
  for (const last = Math.max(0, at - LOOKED_THROUGH); at >= last; at--) {
    const isThere = theirs.rounds[at] && (await trees.load(at)),
      there = isThere ? twin(mine, parent, { ...theirs, at }) : null;
    if (there !== null && there >= 0) return { at, row: there };
  }
  return null;
}
