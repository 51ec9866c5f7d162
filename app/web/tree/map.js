// The small map of a tree in its corner: all boxes, and a frame around what is in sight.

import { s, scrub } from "../dom.js";

const AROUND = 40;
const ROOM = 520; // pixels: in a narrower window it would hide too much

export class TreeMap {
  /** onJump(x, y): a place of the tree was pressed. */
  constructor(onJump) {
    this.svg = s("svg.ds-map.gone", { "aria-hidden": "true", preserveAspectRatio: "none" });
    const at = (share, side) => share * (side + 2 * AROUND) - AROUND;
    scrub(this.svg, (across, down) => onJump(at(across, this.width), at(down, this.height)));
  }

  clear() {
    this.svg.replaceChildren();
    this.svg.classList.add("gone");
  }

  draw(width, height, blocks) {
    Object.assign(this, { width, height });
    const sides = [width + 2 * AROUND, height + 2 * AROUND];
    this.svg.setAttribute("viewBox", `${-AROUND} ${-AROUND} ${sides.join(" ")}`);
    this.frame = s("rect.window");
    this.svg.replaceChildren(...blocks, this.frame);
  }

  /** Show what is in sight; nothing when that is all. */
  mark({ k, kx, x, y }, [w, hgt]) {
    const ends = [x + this.width * kx <= w + 4, y + this.height * k <= hgt + 4];
    this.svg.classList.toggle("gone", (x >= -4 && y >= -4 && ends.every(Boolean)) || w < ROOM);
    const rect = { x: -x / kx, y: -y / k, width: w / kx, height: hgt / k };
    for (const [name, value] of Object.entries(rect))
      this.frame.setAttribute(name, value.toFixed(0));
  }
}
