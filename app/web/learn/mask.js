// The attention mask as a grid; a row pointed at is shown in the tree.

import { h, s, words } from "../dom.js";
import { pictureButtons } from "../save/buttons.js";
import { fileName } from "../save/files.js";
import { picture } from "../save/picture.js";

/** The mask as a grid; a row pointed at is shown in the tree. */
export function matrix(side, link) {
  const n = side.labels.length,
    left = 5.6,
    numbers = 1.3,
    size = n + left;
  const grid = s("svg.ds-mask", {
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
      s("rect.band", { x: 0, y: row + 1.2, width: size, height: 1 }),
      words("number", numbers, row + 1.9, side.positions[row] ?? row, "end"),
      words(null, left - 0.4, row + 1.9, label, "end"),
    );
    for (let column = 0; column < n; column++) {
      const cell = (side.rows[row] || "")[column],
        lost = row === side.row && side.lost.includes(column);
      const seen = lost ? "lost" : column === row ? "self" : "yes",
        kind = cell === "1" ? seen : "no";
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
          s("path.cross", { d: `M${left + column + 0.28} ${row + 1.48}l.44 .44m0 -.44l-.44 .44` }),
        );
    }
    line.addEventListener("pointerenter", () => link.point(row));
    grid.append(line);
  });
  for (let column = 0; column < n; column++)
    grid.append(words("head", left + column + 0.5, 0.8, column, "middle"));
  const key = side.tree
    ? "■ may see   ▣ itself   □ may not"
    : side.lost.length
      ? "■ may see   × must not"
      : "one row, one column per token";
  const lead = side.positions.length ? "position id and token" : "row and token";
  const [draw, name] = [() => picture(grid), () => fileName("attention mask")],
    tools = h("span.ds-plot-tools", pictureButtons("this mask", draw, name));
  return [grid, h("p.ds-soft", `${lead} · ${key}`), tools];
}
