// Text on the clipboard.

import { h } from "./dom.js";

/** Put a text on the clipboard; where that cannot be, it throws a sentence of ours. */
export async function toClipboard(text) {
  try {
    await (navigator.clipboard ? navigator.clipboard.writeText(text) : byHand(text));
  } catch {
    throw new Error("this browser does not give the clipboard to this page");
  }
}

/** As a browser without the clipboard's interface copies what is selected. */
function byHand(text) {
  const box = h("textarea.ds-unseen");
  box.value = text;
  document.body.append(box);
  box.select();
  const done = document.execCommand("copy");
  box.remove();
  if (!done) throw new Error();
}
