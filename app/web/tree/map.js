// The small map of a tree in its corner: all boxes, and a frame around what is in sight.

import { s, scrub } from "../dom.js";
import { blocks } from "./boxes.js";

const AROUND = 40;
const ROOM = 520; // pixels: in a narrower window it would hide too much

export class TreeMap {
  /** onJump(x, y): a place of the tree was pressed. */
  constructor(onJump) {
    this.svg = s("svg.ds-map.gone", { "aria-hidden": "true", preserveAspectRatio: "none" });
    const at = (share, side) => share * (side + 2 * AROUND) - AROUND;
    scrub(this.svg, (across, down) => {
      const { width, height } = this.plan;
      onJump(at(across, width), at(down, height));
    });
  }

  clear() {
    this.plan = null;
    this.svg.classList.add("gone");
  }

  _draw(plan) {
    const sides = [plan.width + 2 * AROUND, plan.height + 2 * AROUND];
    this.plan = plan;
    this.svg.setAttribute("viewBox", `${-AROUND} ${-AROUND} ${sides.join(" ")}`);
    this.frame = s("rect.window");
    this.svg.replaceChildren(...blocks(plan), this.frame);
  }

  /** Show what is in sight of a plan; nothing when that is all. */
  mark(plan, { k, kx, x, y }, [w, hgt]) {
    const ends = [x + plan.width * kx <= w + 4, y + plan.height * k <= hgt + 4],
      isAll = x >= -4 && y >= -4 && ends.every(Boolean);
    this.svg.classList.toggle("gone", isAll || w < ROOM);
    if (isAll || w < ROOM) return;
    if (plan !== this.plan) this._draw(plan);
    const rect = { x: -x / kx, y: -y / k, width: w / kx, height: hgt / k };
    for (const [name, value] of Object.entries(rect))
      this.frame.setAttribute(name, value.toFixed(0));
  }
}
