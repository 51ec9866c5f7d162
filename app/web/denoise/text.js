// The text as it stands after a step: masks where nothing is set yet.

import { h } from "../dom.js";
import { pointAt, tokenList, tokenOption } from "../strip.js";
import { textAt } from "./steps.js";

export class TextSoFar {
  /** onPick(step) when a token is clicked. */
  constructor(onPick) {
    const about = {
      class: "ds-strip dn-strip",
      "aria-multiselectable": "true",
      "aria-label": "The text so far",
    };
    this.strip = tokenList(about, "step", (step) => onPick(step));
    this.asked = h("span.dn-asked.ds-soft");
    this.element = h(
      "section.ds-card.ds-text",
      { "aria-label": "Text so far" },
      h("header", h("h2", "Text so far"), this.asked),
      this.strip,
    );
    // Presented, the same text takes other lines.
    new ResizeObserver(() => this._toEnd()).observe(this.strip);
  }

  _toEnd() {
    this.strip.scrollTop = this.strip.scrollHeight;
  }

  draw(run, place) {
    const blocks = textAt(run.calls, run.steps, place),
      cell = (found, position) => (found ? token(run, place, found) : masked(position)),
      look = (at) => `dn-block${at === blocks.length - 1 ? " current" : ""}`;
    this.asked.textContent = run.header ? `Prompt: ${run.header.prompt}` : "";
    this.strip.replaceChildren(
      ...blocks.map((block, at) => h("span", { class: look(at) }, block.map(cell))),
    );
    pointAt(this.strip, this.strip.querySelector(".here"));
    this._toEnd();
  }
}

function masked(position) {
  return h("span.dn-masked", { title: `position ${position}: masked` }, "▢");
}

function token(run, place, { step: at, text }) {
  const step = run.steps[at],
    here = at === place,
    how = step ? (step.free ? "accepted" : "bonus") : "",
    title = step ? `step ${at + 1}, call ${step.at + 1}` : "given",
    about = { "aria-selected": String(here), "data-step": at, title };
  return tokenOption(here ? `${how} here` : how, text, about);
}
