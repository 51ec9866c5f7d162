// All runs' rounds over the whole text: one lane each, in the run's colour, a box per token.

import { h, s, scrub } from "../dom.js";
import { sign, slot } from "../parts.js";

const ROW = 20; // pixels of a lane, and of the line of the table beside it

export class Lanes {
  constructor(count, onPick) {
    this.svg = s("svg", { class: "ds-lanes", "aria-hidden": "true", preserveAspectRatio: "none" });
    this.svg.style.height = `${ROW * count}px`;
    this.names = h("div", { class: "ds-lane-names", "aria-hidden": "true" });
    this.element = h("div", { class: "ds-lanes-row" }, this.names, this.svg);
    scrub(this.svg, (share) => onPick(Math.floor(share * this.reach)));
  }

  draw(sides, reach, panes) {
    const height = ROW * sides.length;
    this.reach = reach;
    this.names.replaceChildren(...panes.map((pane) => sign(pane.letter)));
    this.svg.setAttribute("viewBox", `0 0 ${reach} ${height}`);
    this.here = s("rect", { class: "here", y: 0, width: 1, height, x: 0 });
    const lanes = sides.flatMap((tokens, side) => {
      const top = ROW * side + 4,
        shapes = { a: "", b: "", p: "" },
        starts = [];
      tokens.slice(0, reach).forEach((token, place) => {
        shapes[token.came] += `M${place} ${top}h1v12h-1z`;
        if (place && tokens[place - 1].round !== token.round)
          starts.push(`M${place} ${top - 1}v14`);
      });
      return [
        s("path", { class: `accepted ${slot(side)}`, d: shapes.a }),
        s("path", { class: `bonus ${slot(side)}`, d: shapes.b + shapes.p }),
        s("path", { class: "starts", d: starts.join("") }),
      ];
    });
    this.svg.replaceChildren(...lanes, this.here);
  }

  mark(place) {
    this.here.setAttribute("x", String(place));
  }
}
