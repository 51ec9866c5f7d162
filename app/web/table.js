// The tree as a table: one line per node, in the tree's own order, for screen readers, for copying,
// and for whoever prefers to read numbers. It selects the same rows the tree does.

import { h, percent } from "./dom.js";
import { MARK, STATUS } from "./tree/boxes.js";

export class NodeTable {
  constructor(onSelect) {
    this.body = h("tbody");
    const heads = [
      ["depth", ""],
      ["token", ""],
      ["status", "accepted, rejected, or unreached: its parent was not accepted"],
      ["p", "the target's probability"],
      ["q", "the drafter's probability"],
      ["path", "the tokens before it, from the root"],
    ];
    this.table = h(
      "table",
      { role: "grid", "aria-label": "Nodes of this round" },
      h(
        "thead",
        h(
          "tr",
          heads.map(([name, title]) => h("th", { title, "data-of": name }, name)),
        ),
      ),
      this.body,
    );
    this.element = h("div.ds-nodes", { hidden: true }, this.table);
    this.body.addEventListener("click", (event) => {
      const line = event.target.closest("tr");
      if (line) onSelect(Number(line.getAttribute("data-row")));
    });
    this.body.addEventListener("keydown", (event) => {
      const line = event.target.closest("tr"),
        { firstChild, lastChild } = this.body;
      const to = {
        ArrowUp: line.previousSibling || line,
        ArrowDown: line.nextSibling || line,
        Home: firstChild,
        End: lastChild,
      }[event.key];
      if (!to && event.key !== "Enter") return;
      event.preventDefault();
      event.stopPropagation();
      if (!to) return onSelect(Number(line.getAttribute("data-row")));
      this._stop(to);
      to.focus();
    });
    this.lines = new Map();
  }

  /** The one line that Tab stops at. */
  _stop(line) {
    if (this.stop) this.stop.setAttribute("tabindex", -1);
    this.stop = line;
    line.setAttribute("tabindex", 0);
  }

  clear() {
    this.lines.clear();
    this.body.replaceChildren();
  }

  show(round, row) {
    const held = this.body.contains(document.activeElement);
    this.lines.clear();
    const made = depthFirst(round).map((at) => this._line(round, at));
    this.body.replaceChildren(...made);
    this._stop(made[0]);
    this.select(row);
    if (held) this.stop.focus({ preventScroll: true }); // the line that had the focus is gone
  }

  _line(round, row) {
    const ghost = row < 0,
      label = ghost ? round.ghost.label : round.labels[round.tokens[row]];
    const status = ghost ? "ghost" : row ? STATUS[round.status[row]] : "root";
    const said = ghost
      ? `◇ the target's token, ${round.ghost.why}`
      : row
        ? `${MARK[round.status[row]]} ${status}`
        : "● root";
    const depth = ghost ? round.depths[round.ghost.parent] + 1 : round.depths[row];
    const q = ghost ? round.ghost.q : row ? round.q[row] : null,
      p = ghost ? round.ghost.p : row && round.p ? round.p[row] : null;
    const token = h("th", label);
    token.style.paddingLeft = `${8 + 10 * depth}px`;
    const line = h(
      "tr",
      { class: status, "data-row": row, tabindex: -1, "aria-selected": "false" },
      h("td", String(depth)),
      token,
      h("td", said),
      h("td", percent(p)),
      h("td", percent(q)),
      h("td.path", pathOf(round, row)),
    );
    this.lines.set(row, line);
    return line;
  }

  select(row) {
    for (const [at, line] of this.lines) {
      line.classList.toggle("selected", at === row);
      line.setAttribute("aria-selected", String(at === row));
    }
    const line = row === null ? null : this.lines.get(row);
    if (line) this._stop(line);
    if (line && !this.element.hidden) line.scrollIntoView({ block: "nearest" });
  }
}

/** Rows as one reads a tree: a node, then what is below it, the accepted first, then by row. */
function depthFirst(round) {
  const below = round.parents.map(() => []),
    rows = [];
  round.parents.forEach((parent, row) => parent >= 0 && below[parent].push(row));
  if (round.ghost) below[round.ghost.parent].push(-1);
  const rank = (row) => (row < 0 ? -0.5 : round.status[row] === "a" ? -1 : row);
  for (const kids of below) kids.sort((a, b) => rank(a) - rank(b));
  const todo = [0];
  while (todo.length) {
    const row = todo.pop();
    rows.push(row);
    if (row >= 0) todo.push(...below[row].slice().reverse());
  }
  return rows;
}

/** The labels before a row, from the root. */
function pathOf(round, row) {
  const labels = [];
  for (let at = row < 0 ? round.ghost.parent : round.parents[row]; at >= 0; at = round.parents[at])
    labels.push(round.labels[round.tokens[at]]);
  return labels.reverse().join(" › ");
}
