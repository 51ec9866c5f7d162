// Text on the clipboard.

import { h } from "./dom.js";

/** Put a text on the clipboard; where that cannot be, it throws. */
export async function toClipboard(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const box = h("textarea", { class: "ds-unseen" });
  box.value = text;
  document.body.append(box);
  box.select();
  const done = document.execCommand("copy");
  box.remove();
  if (!done) throw new Error("no clipboard");
}
