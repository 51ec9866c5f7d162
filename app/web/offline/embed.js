// <draftscope-run src="runs/NAME.js">: a recorded run in a page of somebody else, in a frame of its
// own. The frame is sandboxed: its scripts reach neither the page around it nor the network, and
// its style and keys stay inside.

import { dataFrom } from "./scripts.js";

/** Text that can end no script element. */
function inert(text) {
  return text.replaceAll("<", "\\u003c");
}

/** Define the element. before, between, after: the frame's page around its data, which are `told`
 * and the run's pack. */
export function defineRun({ before, between, after, told }) {
  if (customElements.get("draftscope-run")) return; // the script stands in the page twice
  customElements.define(
    "draftscope-run",
    class extends HTMLElement {
      static observedAttributes = ["src", "round"];

      connectedCallback() {
        this._show();
      }

      attributeChangedCallback() {
        if (this.isConnected) this._show();
      }

      /** The run that `src` names, at the round `round`, from 1. */
      async _show() {
        const src = this.getAttribute("src");
        const asked = Symbol(src);
        this.asked = asked;
        const shadow = this.shadowRoot ?? this.attachShadow({ mode: "open" });
        let shown;
        try {
          if (!src) throw new Error("draftscope-run needs src, the address of a run's file");
          shown = this._frame(await dataFrom(new URL(src, document.baseURI).href));
        } catch (error) {
          shown = document.createElement("p");
          shown.textContent = error.message;
        }
        if (asked === this.asked) shadow.replaceChildren(shown);
      }

      _frame(text) {
        const frame = document.createElement("iframe");
        const opens = Math.max(0, Math.floor(Number(this.getAttribute("round")) || 1) - 1);
        frame.setAttribute("sandbox", "allow-scripts allow-downloads");
        frame.setAttribute("title", "Draftscope: a recorded run");
        frame.style.cssText = "display:block;width:100%;height:100%;border:0";
        this.style.display ||= "block";
        this.style.height ||= "800px";
        frame.srcdoc = [
          before,
          JSON.stringify({ ...told, opens }),
          between,
          inert(text),
          after,
        ].join("");
        return frame;
      }
    },
  );
}
