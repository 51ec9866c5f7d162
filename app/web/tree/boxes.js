// The boxes, edges and chips of a draft tree as SVG. Positions come from Python: app/view, where
// drawing.py draws the same boxes into a file. Words keep clear of each other and of a box's edge
// at every scale that shows numbers, where letters are larger the smaller the scale: camera.js.

import { fill, percent, plural, s, tiny } from "../dom.js";

const BOX_W = 128;
const BOX_H = 40;
export const STEP_X = 168;
const STEP_Y = 46;
export const TOKEN_Y = 14; // the line of a token above its odds, which its "_" is not to touch
export const INSET = 13; // of the words of a box with round ends
const EDIT_W = 150; // a draft graph's box, and a line in it
const EDIT_H = 17;
const EDIT_GAP = 18;
const LARGE = 18 / 13; // the type of a large box by that of others, as in tree.css
const LEAST_GAP = 8; // between squeezed boxes side by side
const LEAST_DROP = 2; // and below one another
const SPARE = 2; // of a squeezed box's height, below its bars; a large one has none
const WIDEST_LETTER = 8.25; // of a token then
const SHORT = 6; // characters of a chance; of a longer one the space is narrower
const FLAT_WORDS = 12; // characters of a chip that has its sums beside them
export const MARK = { a: "✓", r: "×", u: "·", s: "○" };
export const STATUS = { a: "accepted", r: "rejected", u: "unreached", s: "side" };
export const GHOST = -1; // in place of a row: the target's token where the walk stopped
const KINDS = ["s", "u", "r", "a"]; // the accepted ones lie on top

/** {boxW, boxH, stepX, stepY, left: where words begin, pitch: from q to p, full: a bar for
 * probability 1, letters: of a token that it has room for, least: as narrow as its numbers allow}.
 * A draft graph's boxes list edits, a line each, and so are larger; flat boxes say token, q and p
 * on one line, so that a tall tree is read as a whole. Narrow and slim ones are for a long tree,
 * slim ones with a line for each; large ones have little in them but their words, in type of
 * another size. told: p is known. */
export function sizes(lines, shape, told) {
  if (shape === "flat") {
    const pitch = 51,
      odds = pitch * (told ? 2 : 1) + 2, // q and p stand at its end
      boxW = odds + 114,
      sides = { left: 6, pitch, full: 46, letters: FLAT_WORDS, least: odds + 80 };
    return { boxW, boxH: 22, stepX: boxW + 18, stepY: 26, ...sides, odds, tight: true, flat: true };
  }
  if (shape === "narrow") {
    const boxW = told ? 118 : 104,
      sides = { left: 6, pitch: 54, full: 47, letters: boxW / 9, least: told ? 112 : 80 };
    return { boxW, boxH: BOX_H, stepX: boxW + 14, stepY: STEP_Y, ...sides };
  }
  if (shape === "large") {
    const boxW = told ? 146 : 122,
      sides = { left: 6, pitch: 70, full: 60, letters: (boxW - 8) / 11 };
    return { boxW, boxH: 48, stepX: boxW + 14, stepY: 54, ...sides, large: LARGE };
  }
  if (shape === "slim") {
    const boxH = told ? 60 : BOX_H,
      sides = { left: 3, pitch: 0, full: 50, letters: 8, least: 56 };
    return { boxW: 73, boxH, stepX: 79, stepY: boxH + 6, ...sides, slim: true };
  }
  const sides = { left: 8, pitch: 58, full: 50, letters: 14 };
  if (!lines) return { boxW: BOX_W, boxH: BOX_H, stepX: STEP_X, stepY: STEP_Y, ...sides };
  const most = Math.max(1, ...lines.map((edits) => edits.length));
  const boxH = 25 + EDIT_H * most;
  return { boxW: EDIT_W, boxH, stepX: EDIT_W + EDIT_GAP, stepY: boxH + 8, ...sides };
}

/** Boxes of these sizes, if need be so narrow that so many columns take no more than `wide`, and so
 * near that the lowest of so many rows ends no lower than `high`. */
export function squeezed(size, { columns, rows }, { wide, high = Number.POSITIVE_INFINITY }) {
  return { ...size, ...narrowed(size, columns, wide), ...lowered(size, rows, high) };
}

function narrowed({ boxW, stepX, letters, left, odds = 0, least = boxW }, columns, wide) {
  const gap = Math.min(stepX - boxW, LEAST_GAP),
    narrow = (wide - (columns - 1) * gap) / columns;
  if ((columns - 1) * stepX + boxW <= wide || narrow < least) return {};
  const fewer = Math.min(letters, (narrow - left - odds) / WIDEST_LETTER);
  return { boxW: narrow, stepX: narrow + gap, letters: fewer, tight: true };
}

function lowered({ boxH, stepY, large }, rows, high) {
  const low = large ? boxH : boxH - SPARE,
    step = (high - low) / (rows - 1);
  if ((rows - 1) * stepY + boxH <= high || step < low + LEAST_DROP) return {};
  return { boxH: low, stepY: Math.min(step, stepY) };
}

export function curve({ boxW, boxH }, [x0, y0], [x1, y1]) {
  const a = x0 + boxW;
  const b = (y0 + boxH / 2).toFixed(1);
  const c = (y1 + boxH / 2).toFixed(1);
  const bend = (x1 - a) / 2;
  return `M${a} ${b}C${a + bend} ${b} ${x1 - bend} ${c} ${x1} ${c}`;
}

/** One empty path per status; {paths by letter, elements in order}. */
export function edgePaths() {
  const paths = Object.fromEntries(
    KINDS.map((kind) => [kind, s("path", { class: `ds-edge ${STATUS[kind]}` })]),
  );
  return paths;
}

/** All boxes of a plan as one path per status. */
export function blocks(plan) {
  const { boxW, boxH, place, round } = plan,
    box = ([x, y]) => `M${x} ${y.toFixed(1)}h${boxW}v${boxH}h${-boxW}z`,
    strokes = { s: "", u: "", r: "", a: "", ghost: "" };
  for (const [row, at] of place) strokes[row === GHOST ? "ghost" : round.status[row]] += box(at);
  const made = KINDS.map((kind) => s("path", { class: STATUS[kind], d: strokes[kind] }));
  return strokes.ghost ? [...made, s("path.ghost", { d: strokes.ghost })] : made;
}

// ── one box ────────────────────────────────────────────────────────────────────────────────────

/** The meaning of the mark in a node's box; "" where there is none. */
function signOf(round, row) {
  return (row >= 0 && round.signs && round.sign_help[round.signs[row]]) || "";
}

/** The words of a screen reader for a row: first as it is drawn, with the spaces that stand between
 * the parts of a box, since who speaks to the page says what can be read on it. */
function spoken(round, row, label) {
  if (!row) return `● ${label}, root`;
  const { lines, signs, status } = round,
    q = round.q[row],
    help = signOf(round, row),
    p = round.p ? ` p ${percent(round.p[row])}` : "",
    odds = lines ? lines[row].flatMap(editWords).join(" ") : `q ${percent(q)}${p}`,
    meaning = help && `, ${help}`,
    ways = lines ? `, p ${percent(q)}` : "";
  const drawn = [MARK[status[row]], label, help && signs[row], odds].filter(Boolean).join(" ");
  return `${drawn}, ${STATUS[status[row]]}${ways}${meaning}`;
}

/** A change of a draft's formula: its place, its token and its chance. */
function editWords([position, token, p]) {
  return [String(position), token, p === null ? "" : percent(p)];
}

function lookOf({ large, tight, flat }, status) {
  return ["ds-node", status, large && "large", tight && "tight", flat && "flat"]
    .filter(Boolean)
    .join(" ");
}

/** The line of a box's token. */
function tokenY({ flat, large, roomier = 0 }) {
  return flat ? 15 : large ? 17 + roomier / 3 : TOKEN_Y;
}

/** A token as its box has room for it: what is left out is in the node's name and tip. */
export function cutWords({ letters }, words) {
  return words.length > letters ? `${words.slice(0, letters - 1)}…` : words;
}

/** {letters}: of a row's words; its sign stands beside them, but where they have few. */
export function roomFor({ letters, slim }, round, row) {
  return { letters: letters - (!slim && signOf(round, row) ? 2 : 0) };
}

export function nodeBox(size, round, row, id, [x, y]) {
  const token = round.tokens[row];
  const label = round.labels[token];
  const node = s("g", {
    class: lookOf(size, row ? STATUS[round.status[row]] : "root"),
    id,
    role: "treeitem",
    transform: `translate(${x} ${y.toFixed(1)})`,
    "data-row": row,
    "aria-level": round.depths[row] + 1,
    "aria-selected": "false",
    "aria-label": spoken(round, row, label),
  });
  const mark = row ? MARK[round.status[row]] : "●";
  node.append(s("rect.box", { width: size.boxW, height: size.boxH, rx: 7 }));
  if (round.lines) return fill(node, {}, edits(size, round.lines[row], mark, label));
  const words = cutWords(roomFor(size, round, row), `${mark} ${round.short[token] || label}`);
  const top = size.flat || row ? tokenY(size) : size.boxH / 2 + 5;
  const bare = words.slice(mark.length + 1); // where there is room for a few letters only
  node.append(tokenText({ x: size.left, y: top, "data-bare": bare }, words));
  if (row) node.append(...odds(size, round, row));
  return node;
}

/** A box's token, or as much of it as there is room for. */
function tokenText(more, words) {
  return s("text", { class: "token", "data-words": words, ...more }, words);
}

function odds(size, round, row) {
  const p = round.p ? round.p[row] : null;
  const help = signOf(round, row);
  const end = size.boxW - (size.flat ? size.odds + 4 : size.slim ? 2 : 4);
  const cue = { class: "odds cue", x: end, y: size.slim ? 29 : tokenY(size), "text-anchor": "end" };
  return [
    ...(help ? [" ", s("text", cue, round.signs[row])] : []), // in the line of the token
    ...bar(size, "q", round.q[row], 0),
    ...(p === null ? [] : bar(size, "p", p, 1)),
  ];
}

/** A chance in words, and as a bar: the first or second of a box. Flat: at its end. */
function bar(size, name, chance, place, start = size.left) {
  const { flat, slim, large, pitch, full, roomier = 0 } = size;
  const x = (flat ? size.boxW - size.odds : start) + pitch * place;
  const y = flat ? 14 : large ? 36 + (2 * roomier) / 3 : slim ? 29 + 20 * place : 29;
  const under = y + (flat ? 3.5 : large ? 5.5 : 4); // below the tail of a q
  const said = `${name} ${percent(chance)}`,
    words = s("text", { class: said.length > SHORT ? "odds long" : "odds", x, y }, said);
  if (typeof chance !== "number") return [" ", words];
  const width = Math.max(1, full * chance).toFixed(1),
    look = { class: `bar ${name}`, x, y: under, width, height: flat ? 2.5 : 3.5 };
  return [" ", words, s("rect", look)];
}

/** A draft of a block state: its formula, then its edits. */
function edits(size, lines, mark, label) {
  const made = [s("text.token", { x: 8, y: 16 }, `${mark} ${label}`)];
  lines.forEach((edit, i) => {
    const [position, token, p] = editWords(edit);
    const y = 33 + EDIT_H * i;
    const end = { class: "odds edit", y, "text-anchor": "end" };
    made.push(
      " ",
      s("text", { ...end, x: 26 }, position),
      " ",
      s("text.edit", { x: 33, y }, token),
      " ",
      s("text", { ...end, x: size.boxW - 7 }, p),
    );
  });
  return made;
}

export function ghostBox(size, round, id, [x, y]) {
  const { ghost } = round;
  const what = round.lines ? "step" : "token",
    odds = ghost.p === null ? "" : ` p ${percent(ghost.p)}`,
    stop = `the target's ${what} where the walk stopped, ${ghost.why}`;
  const words = cutWords(size, `◇ ${ghost.short}`);
  const top = !size.flat && ghost.p === null ? size.boxH / 2 + 5 : tokenY(size),
    start = size.slim ? size.left : INSET;
  return s(
    "g",
    {
      class: lookOf(size, "ghost"),
      id,
      role: "treeitem",
      "data-row": GHOST,
      transform: `translate(${x} ${y.toFixed(1)})`,
      "aria-selected": "false",
      "aria-level": round.depths[ghost.parent] + 2,
      "aria-label": `◇ ${ghost.label}${odds}, ${stop}`,
    },
    s("rect.box", {
      width: size.boxW,
      height: size.boxH,
      rx: Math.min(size.slim ? 12 : 20, size.boxH / 2),
    }),
    tokenText({ x: start, y: top }, words),
    ...(ghost.p === null ? [] : bar(size, "p", ghost.p, size.flat ? 1 : 0, start)),
  );
}

/** The children of a node that are not drawn. */
export function chipBox(size, chip, [x, y]) {
  const [q, p] = [chip.q, chip.p].map(percent);
  const both = [`Σq ${q}`, `Σp ${p}`],
    alike = q === p && !size.slim, // in a slim box each has a line
    odds = chip.p === null ? both.slice(0, 1) : alike ? [`Σq, Σp ${q}`] : both;
  const [count] = chip.words.split(" "),
    start = size.slim ? size.left : 8,
    long = size.slim || (size.flat && chip.words.length > FLAT_WORDS),
    words = long ? count : chip.words;
  const told = `${words} ${odds.join(" ")}: ${long ? `${chip.words}, ` : ""}`,
    about = `${plural(chip.nodes, "node")} not drawn, press to open`;
  return s(
    "g.ds-chip-node",
    {
      transform: `translate(${x} ${y.toFixed(1)})`,
      "data-chip": chip.parent,
      "aria-label": told + about,
      role: "treeitem",
    },
    s("rect.pill", { width: size.boxW, height: size.boxH - 6, y: 3, rx: 17 }),
    tokenText({ x: start, y: size.flat ? 15 : 17, "data-brief": count }, words),
    ...(size.slim ? odds : [odds.join("  ")]).flatMap((told, line) => {
      const at = {
        x: size.flat ? size.boxW - size.odds : start,
        y: size.flat ? 14 : 30 + 15 * line,
      };
      return [" ", s("text", { class: "odds", ...at }, told)];
    }),
  );
}

/** The lines of a row's tip: [label, line, …]. */
export function tipLines(round, row, label) {
  if (row === GHOST) {
    const what = round.lines ? "the model's step" : "target's token";
    return [label, `${what}, ${round.ghost.why}`];
  }
  if (round.lines) return [label, round.nodes[row].why];
  if (row === 0) return [label, "root: the bonus token of the round before"];
  const help = signOf(round, row);
  const odds = `q ${percent(round.q[row])} · p ${percent(round.p?.[row])}`;
  const sign = help ? [`${round.signs[row]} ${help}`] : [];
  return [label, `${STATUS[round.status[row]]} · ${odds}`, ...sign];
}

/** The lines of a chip's tip. */
export function chipLines(chip) {
  return [
    chip.words,
    `${plural(chip.nodes, "node")} not drawn · Σq ${tiny(chip.q)} · Σp ${tiny(chip.p)}`,
    "press to open",
  ];
}
