// Tokens with bars: lists by depth, the queue, a diffusion model's blanks.

import { h, percent, tiny } from "../dom.js";
import { bar } from "../parts.js";

const SIGNS = { chosen: "◆", hot: "▪", new: "+" };

/** Tokens with bars: the lists of depths, p after a node, child orders. */
export function listColumns(side) {
  const lists = side.lists.map((list) =>
    h(
      "section",
      { class: "ds-list" },
      h("h3", {}, list.title),
      h(
        "ol",
        {},
        list.items.map((item) =>
          h(
            "li",
            { class: item.mark },
            h("span", { class: "label" }, item.label),
            bar(item.odds, "", item.mark),
            h("span", { class: "odds" }, percent(item.odds)),
            h("span", { class: "sign" }, SIGNS[item.mark] || ""),
          ),
        ),
      ),
      list.note ? h("p", { class: "ds-soft" }, list.note) : null,
    ),
  );
  const parts = side.product.slice(0, -1).map((part) => `${part} `),
    whole = h("b", {}, side.product.at(-1)),
    product = side.product.length ? h("p", { class: "ds-product" }, parts, whole) : null;
  return [product, h("div", { class: "ds-lists" }, lists)];
}

export function queue(side, link) {
  const entry = (item, extra) => {
    const row = h(
      "li",
      { class: `${item.mark} ${extra}` },
      h("span", { class: "sign" }, extra ? "→" : SIGNS[item.mark] || ""),
      h("span", { class: "label" }, item.label),
      h("span", { class: "odds" }, tiny(item.odds)),
      bar(item.odds, "", item.mark),
    );
    row.addEventListener("pointerenter", () => link.point(item.row));
    return row;
  };
  return [
    h("h3", {}, "taken now"),
    h(
      "ol",
      { class: "ds-queue taken" },
      side.popped ? entry(side.popped, "popped") : h("li", { class: "ds-soft" }, "nothing"),
    ),
    h("h3", {}, `waiting, best first (${side.items.length})`),
    h(
      "ol",
      { class: "ds-queue" },
      side.items.map((item) => entry(item, "")),
    ),
  ];
}

/** A block of a diffusion model: text, masks, and what stands to choose at each. */
export function block(side) {
  const guessed = ({ name, token, odds }) =>
    h(
      "li",
      {},
      h("span", { class: "label" }, `${name} ${token}`),
      bar(odds),
      h("span", { class: "odds" }, percent(odds)),
    );
  const ranked = ({ i, guesses }) => [
    h("small", {}, `i = ${i}`),
    h("ol", {}, guesses.map(guessed)),
  ];
  const cells = side.cells.map((cell) =>
    h(
      "div",
      { class: `ds-blank${cell.filled ? " filled" : ""}` },
      h("b", {}, cell.filled || "▒▒▒"),
      side.ranks ? ranked(cell) : null,
    ),
  );
  return [h("div", { class: "ds-block" }, h("span", { class: "ds-block-text" }, side.text), cells)];
}
