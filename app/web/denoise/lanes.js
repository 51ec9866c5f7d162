// Both runs over the whole text: a bar a step, filled where it took a model call.

import { h, s, scrub } from "../dom.js";

export class CallLanes {
  constructor(onPick) {
    this.svg = s("svg", { class: "dn-lanes", "aria-hidden": "true", preserveAspectRatio: "none" });
    this.names = h("div", { class: "dn-lane-names", "aria-hidden": "true" });
    this.element = h("div", { class: "dn-lanes-box" }, this.names, this.svg);
    scrub(this.svg, (share) => onPick(Math.floor(share * this.reach)));
  }

  draw(runs, reach) {
    this.reach = reach;
    this.svg.setAttribute("viewBox", `0 0 ${reach} ${runs.length * 24}`);
    this.svg.setAttribute("height", runs.length * 24);
    this.here = s("rect", { class: "here", x: 0, y: 0, width: 1, height: runs.length * 24 });
    const lanes = runs.flatMap((run, i) => {
      const top = i * 24 + 4,
        paid = [],
        free = [],
        calls = [],
        blocks = [];
      run.steps.forEach((step, at) => {
        (step.free ? free : paid).push(`M${at} ${top}h1v16h-1z`);
        if (!step.k) calls.push(`M${at} ${top - 1}v18`);
        if (at && run.steps[at - 1].block !== step.block) blocks.push(`M${at} ${i * 24}v24`);
      });
      return [
        s("path", { class: "paid", d: paid.join("") }),
        s("path", { class: "free", d: free.join("") }),
        s("path", { class: "starts", d: calls.join("") }),
        s("path", { class: "blocks", d: blocks.join("") }),
      ];
    });
    this.svg.replaceChildren(...lanes, this.here);
    this.names.replaceChildren(...runs.map((run) => h("span", {}, run.name)));
  }

  mark(place) {
    this.here.setAttribute("x", String(place));
  }
}
