// The boxes, edges and chips of a draft tree as SVG. Positions come from Python: app/view, where
// tree.py draws the same boxes into a file.

import { fill, percent, plural, s, tiny } from "../dom.js";
import { FAR, FAR_NARROW } from "./camera.js";

export const BOX_W = 128;
export const BOX_H = 40;
export const STEP_X = 168;
export const STEP_Y = 46;
const BAR = 50; // a bar for probability 1
const EDIT_W = 126; // a draft graph's box, and a line in it
const EDIT_H = 16;
const EDIT_GAP = 34;
export const MARK = { a: "✓", r: "×", u: "·" };
export const STATUS = { a: "accepted", r: "rejected", u: "unreached", s: "side" };
export const GHOST = -1; // in place of a row: the target's token where the walk stopped
const KINDS = ["s", "u", "r", "a"]; // the accepted ones lie on top

/** {boxW, boxH, stepX, stepY, far: the scale below which numbers are left out}. A draft graph's
 * boxes list edits, a line each, and so are larger. Flat boxes say token, q and p on one line, so
 * that a tall tree is read as a whole; narrow ones on three, so that wide trees are, beside others. */
export function sizes(lines, form) {
  if (form === "flat") return { boxW: 212, boxH: 22, stepX: 248, stepY: 26, far: FAR };
  if (form === "narrow") return { boxW: 84, boxH: 66, stepX: 102, stepY: 72, far: FAR_NARROW };
  if (!lines) return { boxW: BOX_W, boxH: BOX_H, stepX: STEP_X, stepY: STEP_Y, far: FAR };
  const most = Math.max(1, ...lines.map((edits) => edits.length));
  const boxH = 25 + EDIT_H * most;
  return { boxW: EDIT_W, boxH, stepX: EDIT_W + EDIT_GAP, stepY: boxH + 12, far: FAR };
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

/** All boxes as one path per status: [[status letter, x, y], …] and the ghost's place. */
export function blocks({ boxW, boxH }, places, ghostPlace) {
  const box = ([x, y]) => `M${x} ${y.toFixed(1)}h${boxW}v${boxH}h${-boxW}z`;
  const made = KINDS.map((kind) => {
    const own = places.filter(([status]) => status === kind);
    return s("path", { class: STATUS[kind], d: own.map(([, x, y]) => box([x, y])).join("") });
  });
  return ghostPlace ? [...made, s("path", { class: "ghost", d: box(ghostPlace) })] : made;
}

// ── one box ────────────────────────────────────────────────────────────────────────────────────

/** The meaning of the mark in a node's box; "" where there is none. */
export function signOf(round, row) {
  return (row >= 0 && round.signs && round.sign_help[round.signs[row]]) || "";
}

/** The words of a screen reader for a row. */
function spoken(round, row, label) {
  if (!row) return `${label}, root`;
  const q = round.q[row];
  const p = round.lines ? q : round.p?.[row];
  const help = signOf(round, row);
  // As it is drawn, in this order: who speaks to the page says what can be read on it.
  const odds = `${round.lines ? "" : `q ${percent(q)} `}p ${percent(p)}`;
  return `${label} ${odds}, ${STATUS[round.status[row]]}${help && `, ${help}`}`;
}

export function nodeBox(size, round, row, id, [x, y]) {
  const token = round.tokens[row];
  const label = round.labels[token];
  const node = s("g", {
    class: `ds-node ${row ? STATUS[round.status[row]] : "root"}`,
    id,
    role: "treeitem",
    transform: `translate(${x} ${y.toFixed(1)})`,
    "data-row": row,
    "aria-level": round.depths[row] + 1,
    "aria-selected": "false",
    "aria-label": spoken(round, row, label),
  });
  const mark = row ? MARK[round.status[row]] : "●";
  node.append(s("rect", { class: "box", width: size.boxW, height: size.boxH, rx: 7 }));
  if (round.lines) return fill(node, {}, edits(size, round.lines[row], mark, label));
  const words = `${mark} ${round.short[token] || label}`;
  const top = row ? tokenLine(size) : size.boxH / 2 + 5;
  node.append(s("text", { class: "token", x: 8, y: top, "data-words": words }, words));
  if (row) node.append(...odds(size, round, row));
  return node;
}

function tokenLine({ form }) {
  return form ? 15 : 16;
}

function odds(size, round, row) {
  const p = round.p ? round.p[row] : null;
  const help = signOf(round, row);
  const y = size.form === "flat" ? 15 : 29;
  const cue = { class: "odds cue", x: size.boxW - 4, y, "text-anchor": "end" };
  return [
    ...bar(size, "q", round.q[row], 0),
    ...(p === null ? [] : bar(size, "p", p, 1)),
    ...(help ? [s("text", cue, round.signs[row])] : []),
  ];
}

/** Where the first or second chance of a box stands: {x, y, down: to its bar, wide: of a bar for 1,
 * tall}. */
function oddsPlace({ form, boxW }, place) {
  if (form === "flat") return { x: boxW - 100 + 48 * place, y: 14, down: 3.5, wide: 42, tall: 2.5 };
  if (form === "narrow") return { x: 8, y: 34 + 20 * place, down: 4, wide: boxW - 16, tall: 2.5 };
  return { x: 8 + (6 + BAR) * place, y: 29, down: 4, wide: BAR, tall: 3.5 };
}

/** A chance in words, and as a bar: the first or second of a box. */
function bar(size, name, chance, place) {
  const { x, y, down, wide, tall } = oddsPlace(size, place);
  const width = Math.max(1, wide * (chance || 0)).toFixed(1);
  return [
    s("text", { class: "odds", x, y }, `${name} ${percent(chance)}`),
    s("rect", { class: `bar ${name}`, x, y: y + down, width, height: tall }),
  ];
}

/** A draft of a block state: its formula, then its edits. */
function edits(size, lines, mark, label) {
  const made = [s("text", { class: "token", x: 8, y: 16 }, `${mark} ${label}`)];
  lines.forEach(([position, token, p], i) => {
    const y = 33 + EDIT_H * i;
    const end = { class: "odds edit", y, "text-anchor": "end" };
    made.push(
      s("text", { ...end, x: 26 }, String(position)),
      s("text", { class: "edit", x: 33, y }, token),
      s("text", { ...end, x: size.boxW - 7 }, p === null ? "" : percent(p)),
    );
  });
  return made;
}

export function ghostBox(size, round, id, [x, y]) {
  const { ghost } = round;
  const what = round.lines ? "step" : "token";
  const words = `◇ ${ghost.short}`;
  const top = ghost.p === null && size.form !== "flat" ? size.boxH / 2 + 5 : tokenLine(size);
  return s(
    "g",
    {
      class: "ds-node ghost",
      id,
      role: "treeitem",
      "data-row": GHOST,
      transform: `translate(${x} ${y.toFixed(1)})`,
      "aria-selected": "false",
      "aria-level": round.depths[ghost.parent] + 2,
      "aria-label": `${ghost.label}, the target's ${what} where the walk stopped, ${ghost.why}`,
    },
    s("rect", {
      class: "box",
      width: size.boxW,
      height: size.boxH,
      rx: Math.min(20, size.boxH / 2),
    }),
    s("text", { class: "token", x: 13, y: top, "data-words": words }, words),
    ...(ghost.p === null ? [] : bar(size, "p", ghost.p, size.form ? 1 : 0)),
  );
}

/** The children of a node that are not drawn. */
export function chipBox(size, chip, [x, y]) {
  const odds = [`Σq ${percent(chip.q)}`, ...(chip.p === null ? [] : [`Σp ${percent(chip.p)}`])];
  const sums = odds.join("  ");
  const flat = size.form === "flat";
  const narrow = size.form === "narrow";
  const told = `${chip.words}: ${plural(chip.nodes, "node")} not drawn, ${sums}; press to open`;
  const [count] = chip.words.split(" ");
  return s(
    "g",
    {
      class: "ds-chip-node",
      transform: `translate(${x} ${y.toFixed(1)})`,
      "data-chip": chip.parent,
      "aria-label": told,
      role: "treeitem",
    },
    s("rect", { class: "pill", width: size.boxW, height: size.boxH - 6, y: 3, rx: 17 }),
    s(
      "text",
      {
        class: "token",
        x: 10,
        y: tokenLine(size) + (narrow ? 1 : 0),
        "data-words": chip.words,
        "data-brief": count,
      },
      chip.words,
    ),
    ...(narrow ? odds : [sums]).map((words, line) =>
      s("text", { class: "odds", x: flat ? 108 : 10, y: flat ? 14 : 30 + 17 * line }, words),
    ),
  );
}

/** The lines of a row's tip: [label, line, …]. */
export function tipLines(round, row, label) {
  if (row === GHOST) {
    const what = round.lines ? "the target's step" : "target's token";
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
