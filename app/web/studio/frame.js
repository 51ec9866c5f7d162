// Where the parts of Run and Compare stand on the page, for one run and for several.

import { button, h } from "../dom.js";
import { menu } from "../parts.js";

export class Frame {
  /** parts: {where, status, actions, toolbar, legend, rounds, help dialog, link, shelf or null}. */
  constructor({ where, status, actions, toolbar, legend, rounds, help, link, shelf }) {
    Object.assign(this, { status, actions, toolbar, legend, link: link.button });
    this.announce = h("div.ds-unseen", { "aria-live": "polite" });
    this.stage = h("div.ds-panes");
    this.around = h("div.ds-around");
    this.below = h("div.ds-below");
    const card = { class: "ds-card ds-stage", "aria-label": "Draft tree" };
    const staged = [this.stage, rounds.element, this.below, legend.element, toolbar.element];
    const parts = [status.element, this.around, h("section", card, staged)];
    const beside = [help, shelf?.element, this.announce];
    this.fill = h("div.ds-fill", parts);
    this.scope = h("div.ds-scope", this.fill, beside);
    this.show("tree");
    this.blank(where.places > 1);
  }

  /** Whether what is on its way is not seen yet. */
  blank(on) {
    this.fill.classList.toggle("ds-coming", on);
    this.status.blank(on);
  }

  /** Which part the stage shows. */
  show(name) {
    this.scope.setAttribute("data-show", name);
    this.toolbar.showing(name);
  }

  say(words) {
    this.announce.textContent = words;
  }

  /** Put the parts where these runs want them; part(pane) takes one out of a comparison. */
  arrange(panes, guide, part) {
    const pair = panes.length > 1,
      held = document.activeElement; // what is moved loses the focus
    const { toolbar, stage } = this;
    const { element, below, titles, aside } = guide;
    this.scope.classList.toggle("comparing", pair);
    this.scope.setAttribute("data-runs", panes.length);
    this.scope.style.setProperty("--ds-runs", panes.length);
    this.around.replaceChildren(element);
    this.below.replaceChildren(below);
    toolbar.parts.get("stages").hidden = pair;
    toolbar.titles.replaceChildren(...titles);
    this.legend.key(guide.key);
    const { svgButton, menu: saves } = panes[0];
    this.actions.files.replaceChildren(...(pair ? [] : [svgButton, saves.button]), this.link);
    for (const pane of panes) pane.head.replaceChildren(...(pair ? headOf(pane, part) : []));
    stage.replaceChildren(...panes.map((pane) => pane.element), ...(aside ? [aside] : []));
    this.status.chips.replaceChildren(...panes.map((pane) => pane.chip));
    if (stage.contains(held)) held.focus({ preventScroll: true });
  }
}

/** The heading above a tree of a comparison. */
function headOf(pane, part) {
  const { letter } = pane,
    entry = (words, label, title, act) => button(words, { "aria-label": label, title }, act);
  const kept = "Download this run as .jsonl.gz";
  const save = entry("Trace", `Save trace ${letter}`, kept, () => pane.saveTrace());
  const files = [pane.svgButton, pane.menu.button, ...(pane.source.save ? [save] : [])];
  const out = `Take run ${letter} out of the comparison`;
  const leave = entry("Take out", out, out, () => part(pane)),
    more = menu(`Run ${letter}: files, take it out`, [...files, leave]);
  return [pane.sign, pane.name, pane.heading, pane.shared, h("span.ds-spring"), more];
}
