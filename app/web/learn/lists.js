// Tokens with bars: lists by depth, the queue, a diffusion model's blanks.

import { h, percent, tiny } from "../dom.js";
import { bar } from "../parts.js";

const SIGNS = { chosen: "◆", hot: "▪", new: "+" };

/** Tokens with bars: the lists of depths, p after a node, child orders. */
export function listColumns(side) {
  const entry = ({ mark, label, odds }) => {
    const [name, share] = [h("span.label", label), h("span.odds", percent(odds))],
      sign = h("span.sign", SIGNS[mark] || "");
    return h("li", { class: mark }, name, bar(odds, "", mark), share, sign);
  };
  const lists = side.lists.map(({ title, items, note }) => {
    const said = note ? h("p.ds-soft", note) : null;
    return h("section.ds-list", h("h3", title), h("ol", items.map(entry)), said);
  });
  const parts = side.product.slice(0, -1).map((part) => `${part} `),
    whole = h("b", side.product.at(-1)),
    product = side.product.length ? h("p.ds-product", parts, whole) : null;
  return [product, h("div.ds-lists", lists)];
}

export function queue(side, link) {
  const entry = (item, extra) => {
    const sign = h("span.sign", extra ? "→" : SIGNS[item.mark] || ""),
      [label, odds] = [h("span.label", item.label), h("span.odds", tiny(item.odds))],
      look = { class: `${item.mark} ${extra}` },
      row = h("li", look, sign, label, odds, bar(item.odds, "", item.mark));
    row.addEventListener("pointerenter", () => link.point(item.row));
    return row;
  };
  const waiting = side.items.map((item) => entry(item, ""));
  return [
    h("h3", "taken now"),
    h("ol.ds-queue.taken", side.popped ? entry(side.popped, "popped") : h("li.ds-soft", "nothing")),
    h("h3", `waiting, best first (${waiting.length})`),
    h("ol.ds-queue", waiting),
  ];
}

/** A block of a diffusion model: text, masks, and what stands to choose at each. */
export function block(side) {
  const guessed = ({ name, token, odds }) =>
    h("li", h("span.label", `${name} ${token}`), bar(odds), h("span.odds", percent(odds)));
  const ranked = ({ i, guesses }) => [h("small", `i = ${i}`), h("ol", guesses.map(guessed))];
  const cells = side.cells.map((cell) =>
    h(
      "div",
      { class: `ds-blank${cell.filled ? " filled" : ""}` },
      h("b", cell.filled || "▒▒▒"),
      side.ranks ? ranked(cell) : null,
    ),
  );
  return [h("div.ds-block", h("span.ds-block-text", side.text), cells)];
}
