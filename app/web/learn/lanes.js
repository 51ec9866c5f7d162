// Texts as boxes: one per pass or per round, and the rows of the KV cache.

import { onShown } from "../address.js";
import { button, h } from "../dom.js";

const PASS = 240,
  FIRST = 500; // milliseconds that a pass is shown, and before the first

/** A text as boxes: one per pass or per round, the target's own token last in each. */
function lane(name, groups, words) {
  const box = (group) => {
    const last = h("span.bonus", group.at(-1)),
      free = group.slice(0, -1).map((piece) => h("span.free", piece));
    return h("span.ds-pass", free, last);
  };
  const boxes = h("span.ds-boxes", groups.map(box)),
    count = h("span.ds-soft", `${groups.length} ${words}`);
  return h("div.ds-lane", h("b", name), boxes, count);
}

/** Plain decoding as it goes: pass after pass one box, and all weights loaded once more. Somebody
 * who wants less motion sees the end of it. */
function passByPass(made, weights) {
  const boxes = [...made.querySelectorAll(".ds-pass")],
    count = made.lastChild;
  const show = (passes) => {
    boxes.forEach((box, at) => box.classList.toggle("later", at >= passes));
    const times = `${passes} ${passes === 1 ? "pass" : "passes"}`;
    count.textContent = `${times}, ${gigabytes(passes * weights)} loaded`;
    made.classList.toggle("done", passes === boxes.length);
  };
  if (window.matchMedia("(prefers-reduced-motion: reduce)").matches) return show(boxes.length);
  const on = (passes) => {
    show(passes);
    if (passes < boxes.length && (made.isConnected || !passes))
      setTimeout(() => on(passes + 1), passes ? PASS : FIRST);
  };
  on(0);
}

export function gigabytes(bytes) {
  return bytes < 1e9 ? `${Math.round(bytes / 1e6)} MB` : `${(bytes / 1e9).toFixed(1)} GB`;
}

/** Plain passes above, rounds below. */
export function lanes(side) {
  const passes = side.plain.map((piece) => [piece]),
    plain = lane("plain", passes, "passes");
  if (side.weights) {
    plain.classList.add("plays");
    passByPass(plain, side.weights);
  }
  return side.rounds.length
    ? [plain, lane("rounds", side.rounds, side.rounds.length === 1 ? "pass" : "passes")]
    : [plain];
}

export function race(side) {
  return side.rows.map((row) => lane(row.name, row.groups, "rounds"));
}

/** Runs in their recorded time, each box when its round ended. Somebody who wants less motion sees
 * the end. */
export function clock(side) {
  const rows = side.rows.map((row) => lane(row.name, row.groups, "rounds"));
  const again = button("Play again", {}, () => play());
  const last = Math.max(...side.rows.map((row) => row.ends.at(-1)));
  const show = (now) => {
    for (const [at, row] of side.rows.entries()) {
      const done = row.ends.filter((end) => end <= now).length,
        boxes = rows[at].querySelectorAll(".ds-pass");
      for (const [number, box] of boxes.entries()) box.classList.toggle("later", number >= done);
      const tokens = row.groups.slice(0, done).flat().length;
      rows[at].lastChild.textContent =
        `${tokens} tokens, ${Math.min(now, row.ends.at(-1)).toFixed(2)} s`;
    }
  };
  const play = () => {
    let start = null;
    const tick = (time) => {
      start ??= time;
      const now = (time - start) / 1000;
      show(now);
      if (now < last && again.isConnected) requestAnimationFrame(tick);
    };
    show(0);
    requestAnimationFrame(tick);
  };
  if (window.matchMedia("(prefers-reduced-motion: reduce)").matches) show(last);
  else {
    show(0);
    onShown(rows[0], play, true); // on a phone it stands below the words
  }
  return [...rows, h("p", again)];
}

/** Rows of the KV cache: the prompt's, what the pass wrote, and what stays. */
export function cache(side, link) {
  const cell = (item) => {
    const look = { class: `ds-cell ${item.mark}` },
      made = h("span", look, h("small", item.row), h("b", item.label));
    made.addEventListener("pointerenter", () => item.tree >= 0 && link.point(item.tree));
    return made;
  };
  const cells = Array.from({ length: side.prompt }, (_, row) => row);
  const opened = (row) => h("span.ds-cell.row", h("small", String(row)));
  const prompt = () =>
    side.open
      ? cells.map(opened)
      : h("span.ds-cell.prompt", h("small", `0–${side.prompt - 1}`), h("b", "the prompt"));
  const moved = side.moves
    .filter(([from, to]) => from !== to)
    .map(([from, to]) => `row ${side.prompt + from} → row ${side.prompt + to}`);
  const rows = (words, items) => {
    const cells = h("div.ds-cells", prompt(), items.map(cell));
    return h("div.ds-cache", h("h3", words), cells);
  };
  return [
    rows(side.after.length ? "after the pass" : "cache", side.cells),
    moved.length ? h("p.ds-product", "↓ copy ", h("b", moved.join(", "))) : null,
    side.after.length ? rows("what stays", side.after) : null,
  ];
}
