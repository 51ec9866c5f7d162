// One draft of a call: what it sets, what became of it, and the pathways into it.

import { button, h, percent, plural } from "../dom.js";
import { sheet } from "../parts.js";

const DN_FATE = {
  same: ["✓", "in the block now"],
  masked: ["▢", "still masked after this call"],
  other: ["×", ""],
};
const DN_MARK = { accepted: "✓", rejected: "×", unreached: "·" };
const HEADS = ["edit", "where", "token", "p", "after this call"];

export class DraftCard {
  constructor(onPick, onClose) {
    this.onPick = onPick;
    this.body = h("div.dn-draft-body");
    this.element = h(
      "section.dn-draft",
      { hidden: true, "aria-label": "One draft" },
      button("×", { class: "ds-close", "aria-label": "Close", title: "Close (Esc)" }, onClose),
      this.body,
    );
  }

  close() {
    this.element.hidden = true;
  }

  show(node) {
    this.element.hidden = false;
    const edits = node.edits.map(({ name, position, label, p, fate, wrote }) => {
      const [sign, words] = DN_FATE[fate];
      return [
        name,
        `position ${position}`,
        h("td.label", label),
        percent(p),
        `${sign} ${fate === "other" ? `the model wrote ${wrote}` : words}`,
      ];
    });
    const table = h("div.ds-table.dn-edits", sheet("Edits", HEADS, edits)),
      ways = node.parents.map((way) => this._way(way)),
      level = `level ${node.level}, ${plural(ways.length, "pathway")} in: `;
    this.body.replaceChildren(
      h("h3.ds-big-token", `${node.row ? DN_MARK[node.status] : "●"} ${node.name}`),
      h("p", { class: `ds-why ${node.row ? node.status : ""}` }, node.why),
      edits.length ? table : "",
      ways.length ? h("p.dn-ways.ds-row", h("span.ds-soft", level), ways) : "",
    );
  }

  /** A parent of the draft, which a press leads to. */
  _way([row, name, status]) {
    const title = `a pathway into this draft: its parent was ${status}`,
      about = { class: `dn-way ${status}`, title };
    return button(`${DN_MARK[status]} ${name}`, about, () => this.onPick(row));
  }

  /** The state that the model went on to. */
  stop(ghost) {
    this.element.hidden = false;
    this.body.replaceChildren(
      h("h3.ds-big-token", `◇ ${ghost.label}`),
      h("p.ds-why.bonus", `the last step of this call; the state it leads to was ${ghost.why}`),
    );
  }
}
