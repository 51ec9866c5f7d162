// Two runs on one text, as pure functions of their rounds: nothing here touches the page. A place
// is a token's number in the new text; place 0 is the token that prefill itself gave.

/** A run by place: its tokens as {text, came, row, round}. Several rounds may hold none. */
function laid(rounds) {
  const tokens = [];
  rounds.forEach((round, at) => {
    for (const [text, came, row] of round.text) tokens.push({ text, came, row, round: at });
  });
  return tokens;
}

/** The round whose tokens cover a place; −1 where the run has not come, or never came. */
function roundAt(tokens, place) {
  return place >= 0 && place < tokens.length ? tokens[place].round : -1;
}

/** The first place where both have a token and not the same one; null while the text is shared. */
function partsAt(one, other) {
  const end = Math.min(one.length, other.length);
  for (let place = 0; place < end; place++) if (one[place].text !== other[place].text) return place;
  return null;
}

/** How many places can be shown: to where the texts part, else to the end of the longer one. */
function extent(one, other) {
  return partsAt(one, other) ?? Math.max(one.length, other.length);
}

/** Places where a run's round begins. */
function begins(tokens) {
  return tokens.flatMap((token, place) => (place === 0 || tokens[place - 1].round !== token.round ? [place] : []));
}

/** Places, in order, where either run begins a round, before `end`. */
function beginnings(one, other, end) {
  const places = [...new Set([...begins(one), ...begins(other)])];
  return places.filter((place) => place < end).sort((a, b) => a - b);
}

/** Places where one run's token was accepted from its draft and the other's was not. */
function contrasts(one, other, end) {
  const places = [];
  for (let place = 0; place < Math.min(end, one.length, other.length); place++) {
    if ((one[place].came === "a") !== (other[place].came === "a")) places.push(place);
  }
  return places;
}

/** The next of some ordered places after `from` (by = 1) or before it (by = −1); null: there is none. */
function nextOf(places, from, by) {
  if (by > 0) return places.find((place) => place > from) ?? null;
  return places.filter((place) => place < from).pop() ?? null;
}
