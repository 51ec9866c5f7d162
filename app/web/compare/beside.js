// The one inspector of a comparison: the target's p beside every run's q after the same text, then
// all that is known of the node in its own tree. Each pane sees it as its own inspector.

import { h, percent } from "../dom.js";
import { answered } from "../feed.js";
import { Inspector } from "../inspector.js";
import { bar, sheet, sign, slot } from "../parts.js";
import { GHOST, MARK } from "../tree/boxes.js";
import { standings } from "./links.js";

const SAME = 0.005; // between two runs' p of one token, more than rounding of half precision

export class Beside {
  constructor(together, source) {
    Object.assign(this, { together, source });
    this.pane = null; // whose node is shown
    this.inspector = new Inspector(() => this.pane?.closeInspector());
    this.element = this.inspector.element;
    for (const pane of together.panes) pane.inspector = this._of(pane);
  }

  /** The inspector as a pane sees it. */
  _of(pane) {
    const { inspector, element } = this;
    const here = () => this.pane === pane && inspector.open;
    return {
      element,
      get open() {
        return here();
      },
      close: () => here() && this._close(),
      wait: (label) => {
        this._take(pane);
        inspector.wait(label);
      },
      complain: (sentence) => inspector.complain(sentence),
      show: (node) => this._show(pane, node),
    };
  }

  get open() {
    return this.inspector.open;
  }

  _close() {
    this.inspector.close();
    this.pane = null;
  }

  _take(pane) {
    if (this.pane && this.pane !== pane) this.pane.deselect();
    this.pane = pane;
  }

  async _show(pane, node) {
    this.inspector.show(node);
    const letter = sign(pane.letter);
    this.inspector.body.firstChild.prepend(letter, " ");
    if (node.row === 0 || !this.source.beside) return;
    const place = h("section.ds-beside", { "aria-label": "p beside every q" });
    this.inspector.body.insertBefore(place, this.inspector.body.children[2]);
    const there = await standings(this.together, pane, node.row);
    const answer = await answered(this.source.beside(this._question(there, node)));
    if (!place.isConnected) return;
    if (answer.error) return place.append(h("p.ds-complaint", answer.error));
    place.append(...this._drawn(answer, there));
  }

  _question(there, node) {
    const { panes } = this.together;
    const places = there.map((each, at) =>
      each.why ? null : { ticket: panes[at].feed.ticket, round: each.at, row: each.row },
    );
    return { places, token: node.token };
  }

  // ── what it says ───────────────────────────────────────────────────────────────────────────

  _drawn({ tokens, listed }, there) {
    const { panes } = this.together;
    const qs = panes.map((pane) => [["q ", sign(pane.letter)], `q of ${pane.title}`]);
    const rows = tokens.map((line) => this._row(line, there));
    const look = (at) => (tokens[at].own ? "own" : "");
    const heads = ["", ["p", "of the target"], ...qs];
    const table = sheet("Tokens after the same text", heads, rows, look);
    const notes = there.map((each, at) => this._note(panes[at], each, listed[at]));
    return [
      h("h3", "after the same text"),
      h("div.ds-table", table),
      h("ul.ds-beside-notes", notes),
      ...this._unlike(tokens),
    ];
  }

  _row(line, there) {
    const odds = (value, name) => [h("span", percent(value)), bar(value, name)];
    const p = line.p.find((value) => typeof value === "number") ?? null;
    const cells = line.q.map((value, at) => {
      if (there[at].why) return h("td.none", { title: there[at].why }, "≠");
      const mark = MARK[line.drafted[at]] || "";
      const rank = line.rank[at] ? `#${line.rank[at]}` : "";
      const title = this._told(line, at);
      return h("td", { title }, odds(value, slot(at)), h("small", rank, mark));
    });
    return [[line.chosen ? "◆ " : "", line.label], odds(p, "p"), ...cells];
  }

  _told(line, at) {
    const node = line.drafted[at] ? "a node of its tree" : "not in its tree";
    return `${this.together.panes[at].letter}: ${node}`;
  }

  /** Which round and depth a run's q is of, or why it has none. */
  _note(pane, { at, row, why }, listed) {
    const said = (words) => h("li", sign(pane.letter), `${pane.title}, ${words}`);
    if (why) return said(`≠ ${why}: not to be compared`);
    const place = `round ${at + 1}, depth ${pane.rounds[at].depths[row] + 1}`;
    if (listed === null) return said(`${place}: this file holds nothing after it`);
    return said(listed ? place : `${place}: its drafter listed nothing here`);
  }

  /** Runs whose target says something else after the same text. */
  _unlike(tokens) {
    const apart = tokens.some((line) => {
      const known = line.p.filter((value) => typeof value === "number");
      return known.length > 1 && Math.max(...known) - Math.min(...known) > SAME;
    });
    const words = "⚠ the targets' own p differ between these runs: the first one's is listed";
    return apart ? [h("p.ds-complaint", words)] : [];
  }
}

/** The row of a run's token at a place: a node, or the target's own token. */
export function rowAt(side, place) {
  const token = side[place];
  return token ? token.row : GHOST;
}
