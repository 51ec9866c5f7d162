// The inspector: everything known about one node. Its numbers come from the server when it opens.

import { button, fill, h, number, percent, tiny } from "./dom.js";
import { explanationSection, noteText } from "./explanation.js";
import { bar } from "./parts.js";

const CHOSEN = ["◆", "the target's own token"],
  OWN = ["◂", "this node"];
const RANK_P =
  "1 = the target's most probable token; equals behind its best that are listed share one";
const NOTE = "what this method's builder says of the node";

export class Inspector {
  constructor(onClose) {
    this.body = h("div.ds-inspector-body", {
      tabindex: 0,
      role: "region",
      "aria-label": "Numbers of the node",
    });
    const about = { hidden: true, "aria-label": "Node inspector", tabindex: -1 },
      closes = { "aria-label": "Close the inspector (Escape)", title: "Close (Escape)" },
      close = button("×", { class: "ds-close", ...closes }, onClose);
    this.element = h("aside.ds-inspector", about, close, this.body);
  }

  get open() {
    return !this.element.hidden;
  }

  close() {
    this.element.hidden = true;
  }

  wait(label) {
    this.element.hidden = false;
    this.body.replaceChildren(h("h2.ds-big-token", label), h("p.ds-soft", "reading…"));
  }

  complain(sentence) {
    this.element.hidden = false;
    this.body.replaceChildren(h("p.ds-complaint", sentence));
  }

  show(node) {
    this.element.hidden = false;
    this.body.scrollTop = 0;
    this.body.replaceChildren(
      h("h2.ds-big-token", node.label),
      h("p", { class: `ds-why ${node.status}` }, this._mark(node), node.why),
      this._path(node),
      ...(node.explanation ? [explanationSection(node)] : []),
      ...(node.fewer ? [h("p.ds-soft", node.fewer)] : []),
      node.row === 0 ? this._root(node) : this._numbers(node),
      ...this._lists(node),
    );
  }

  _lists(node) {
    if (node.row === 0) return [];
    const of = node.conditioned ? "drafter after the parent" : "drafter at this depth",
      none = "The trace keeps no beliefs of the target.";
    return [
      this._list("target after the parent", "p", node.target, none),
      this._list(of, "q", node.drafter, node.unlisted),
    ];
  }

  /** The root was decided a round ago: it has a place, but neither p nor q. */
  _root(node) {
    return numberList([
      ["position", node.position],
      ["token id", node.token],
      ...(node.next === null ? [] : [["target next", node.next]]),
    ]);
  }

  _mark(node) {
    const marks = { accepted: "✓ ", rejected: "× ", unreached: "· ", side: "○ ", bonus: "◇ " };
    return node.row === 0 ? "● " : marks[node.status] || "";
  }

  _path(node) {
    const parts = [...node.path, node.label];
    const list = h("p.ds-path", { "aria-label": "Path from the root" });
    parts.forEach((label, i) => {
      if (i) list.append(h("i", { "aria-hidden": "true" }, "›"));
      list.append(h("span", { class: i === parts.length - 1 ? "last" : "" }, label));
    });
    return list;
  }

  _numbers(node) {
    const rank = (value) => (value === null ? "–" : `#${value}`);
    const observed = (value) => (value === null && !node.observed ? "unobserved" : number(value));
    const lines = [
      ["p target", percent(node.p), "the target's probability after its parent, at temperature 1"],
      ["q drafter", percent(node.q), "the drafter's probability of this token at its place"],
      ["rank under p", rank(node.rank_p), RANK_P],
      ["rank under q", rank(node.rank_q), "1 = the drafter's best token"],
      ["path p", tiny(node.path_p), "product of p along the path"],
      ["path q", tiny(node.path_q), "product of q along the path"],
      ["entropy p", number(node.entropy_p), "of the target after the parent, in nats"],
      ["entropy q", observed(node.entropy_q), "of the drafter at this depth, in nats"],
      ["TVD", observed(node.tvd), "½ Σ |q − p| at this depth, on the accepted path only"],
      ["depth", node.depth, "steps from the root"],
      ["position", node.position, "in the whole text, prompt included"],
      ["token id", node.token],
    ];
    if (node.score !== null)
      lines.push(["score", number(node.score), "what the builder ranked by"]);
    for (const [label, value, form, help] of node.notes)
      lines.push([label, noteText(value, form), help || NOTE]);
    if (node.next !== null)
      lines.push(["target next", node.next, "the target's own token after this node"]);
    return numberList(lines);
  }

  _list(title, name, entries, otherwise) {
    const box = h("section.ds-top", h("h3", h("b", name), ` · ${title}`));
    if (!entries.length) return fill(box, {}, [h("p.ds-soft", otherwise)]);
    const rows = entries.map((entry, i) => {
      const [sign, title] = entry.chosen ? CHOSEN : entry.own ? OWN : [],
        look = (entry.own ? "own " : "") + (entry.chosen ? "chosen" : ""),
        [rank, label] = [h("span.rank", i + 1), h("span.label", entry.label)],
        odds = h("span.odds", percent(entry.odds));
      const told = h("span.sign", { title }, sign);
      return h("li", { class: look }, rank, label, bar(entry.odds, name), odds, told);
    });
    box.append(h("ol", rows));
    return box;
  }
}

/** Lines of [name, value, what it is]. */
function numberList(lines) {
  const line = ([name, value, title]) => h("div", { title }, h("dt", name), h("dd", value));
  return h("dl.ds-numbers", lines.map(line));
}
