// One draft of a call: what it sets, what became of it, and the pathways into it.

import { button, h, percent, plural } from "../dom.js";

const DN_FATE = {
  same: ["✓", "in the block now"],
  masked: ["▢", "still masked after this call"],
  other: ["×", ""],
};

export class DraftCard {
  constructor(onPick, onClose) {
    this.onPick = onPick;
    this.body = h("div", { class: "dn-draft-body" });
    this.element = h(
      "section",
      { class: "dn-draft", hidden: true, "aria-label": "One draft" },
      button("×", { class: "ds-close", "aria-label": "Close", title: "Close (Esc)" }, onClose),
      this.body,
    );
  }

  close() {
    this.element.hidden = true;
  }

  show(node) {
    this.element.hidden = false;
    const mark = node.row ? { accepted: "✓ ", rejected: "× ", unreached: "· " }[node.status] : "● ";
    const edits = node.edits.map((edit) => {
      const [sign, words] = DN_FATE[edit.fate];
      return h(
        "tr",
        {},
        h("td", {}, edit.name),
        h("td", {}, `position ${edit.position}`),
        h("td", { class: "label" }, edit.label),
        h("td", { class: "odds" }, percent(edit.p)),
        h(
          "td",
          { class: "ds-soft" },
          `${sign} ${edit.fate === "other" ? `the target wrote ${edit.wrote}` : words}`,
        ),
      );
    });
    const ways = node.parents.map(([row, name, status]) =>
      button(
        `${{ accepted: "✓", rejected: "×", unreached: "·" }[status]} ${name}`,
        { class: `dn-way ${status}`, title: `a pathway into this draft: its parent was ${status}` },
        () => this.onPick(row),
      ),
    );
    this.body.replaceChildren(
      h("h3", { class: "ds-big-token" }, mark + node.name),
      h("p", { class: `ds-why ${node.row ? node.status : ""}` }, node.why),
      ...(edits.length
        ? [
            h(
              "div",
              { class: "dn-scroll-x" },
              h(
                "table",
                { class: "dn-edits" },
                h(
                  "thead",
                  {},
                  h(
                    "tr",
                    {},
                    ["edit", "where", "token", "p", "after this call"].map((word) =>
                      h("th", {}, word),
                    ),
                  ),
                ),
                h("tbody", {}, edits),
              ),
            ),
          ]
        : []),
      ...(ways.length
        ? [
            h(
              "p",
              { class: "dn-ways" },
              h(
                "span",
                { class: "ds-soft" },
                `level ${node.level}, ${plural(ways.length, "pathway")} in: `,
              ),
              ...ways,
            ),
          ]
        : []),
    );
  }

  /** The state that the target went on to. */
  stop(ghost) {
    this.element.hidden = false;
    this.body.replaceChildren(
      h("h3", { class: "ds-big-token" }, `◇ ${ghost.label}`),
      h(
        "p",
        { class: "ds-why bonus" },
        `the last step of this call; the state it leads to was ${ghost.why}`,
      ),
    );
  }
}
