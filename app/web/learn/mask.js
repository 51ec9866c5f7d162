// The attention mask as a grid; a row pointed at is shown in the tree.

import { h, s } from "../dom.js";
import { pictureButtons } from "../save/buttons.js";
import { fileName } from "../save/files.js";
import { picture } from "../save/picture.js";

/** The mask as a grid; a row pointed at is shown in the tree. */
export function matrix(side, link) {
  const n = side.labels.length,
    left = 5.6,
    numbers = 1.3,
    size = n + left;
  const grid = s("svg", {
    class: "ds-mask",
    viewBox: `0 0 ${size + 0.2} ${n + 1.4}`,
    role: "img",
    "aria-hidden": "true",
  });
  side.labels.forEach((label, row) => {
    const line = s("g", {
      class: `line${row === side.row ? " here" : row === side.parent ? " parent" : ""}`,
      "data-row": row,
    });
    line.append(
      s("rect", { class: "band", x: 0, y: row + 1.2, width: size, height: 1 }),
      s(
        "text",
        { class: "number", x: numbers, y: row + 1.9, "text-anchor": "end" },
        String(side.positions[row] ?? row),
      ),
      s("text", { x: left - 0.4, y: row + 1.9, "text-anchor": "end" }, label),
    );
    for (let column = 0; column < n; column++) {
      const cell = (side.rows[row] || "")[column],
        lost = row === side.row && side.lost.includes(column);
      const kind =
        cell === undefined
          ? "blank"
          : cell === "0"
            ? "no"
            : lost
              ? "lost"
              : column === row
                ? "self"
                : "yes";
      line.append(
        s("rect", {
          class: `cell ${kind}`,
          x: left + column + 0.06,
          y: row + 1.26,
          width: 0.88,
          height: 0.88,
          rx: 0.14,
        }),
      );
      if (kind === "lost")
        line.append(
          s("path", {
            class: "cross",
            d: `M${left + column + 0.28} ${row + 1.48}l.44 .44m0 -.44l-.44 .44`,
          }),
        );
    }
    line.addEventListener("pointerenter", () => link.point(row));
    grid.append(line);
  });
  for (let column = 0; column < n; column++)
    grid.append(
      s(
        "text",
        { class: "head", x: left + column + 0.5, y: 0.8, "text-anchor": "middle" },
        String(column),
      ),
    );
  const key = side.tree
    ? "■ may see   ▣ itself   □ may not"
    : side.lost.length
      ? "■ may see   × must not"
      : "one row, one column per token";
  const words = h(
    "p",
    { class: "ds-soft" },
    (side.positions.length ? "position id and token · " : "row and token · ") + key,
  );
  return [
    grid,
    words,
    h(
      "span",
      { class: "ds-plot-tools" },
      pictureButtons(
        "this mask",
        () => picture(grid),
        () => fileName("attention mask"),
        "ds-small",
      ),
    ),
  ];
}
