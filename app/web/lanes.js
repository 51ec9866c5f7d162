// Runs over a whole text: a lane each, with a box per place.

import { h, s, scrub } from "./dom.js";

const ROW = 20; // pixels of a lane, and of the line of a table beside it

export class Lanes {
  /** onPick(place) when somebody presses there. */
  constructor(onPick) {
    this.svg = s("svg.ds-lanes", { "aria-hidden": "true", preserveAspectRatio: "none" });
    this.here = s("rect.here", { x: 0, y: 0, width: 1 });
    this.names = h("div.ds-lane-names", { "aria-hidden": "true" });
    this.element = h("div.ds-lanes-row", this.names, this.svg);
    scrub(this.svg, (share) => onPick(Math.floor(share * this.reach)));
  }

  /** So many places; a name and a lane for each run. A lane is the class and the strokes of each of
   * its paths, between 0 and ROW pixels. */
  draw(reach, names, lanes) {
    const height = ROW * lanes.length;
    this.reach = reach;
    this.names.replaceChildren(...names);
    this.svg.setAttribute("viewBox", `0 0 ${reach} ${height}`);
    this.svg.style.height = `${height}px`;
    this.here.setAttribute("height", height);
    const drawn = lanes.map((paths, at) =>
      s(
        "g",
        { transform: `translate(0 ${ROW * at})` },
        paths.map(([look, strokes]) => s("path", { class: look, d: strokes.join("") })),
      ),
    );
    this.svg.replaceChildren(...drawn, this.here);
  }

  mark(place) {
    this.here.setAttribute("x", String(place));
  }
}

/** The box of a place, and the line where something begins there. */
export const boxAt = (place) => `M${place} 4h1v12h-1z`;
export const startAt = (place) => `M${place} 3v14`;
