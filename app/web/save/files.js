// Files for the person: made here, or an answer of the server.

import { answered } from "../feed.js";

/** Hand a file to the person. */
export function handOut(name, blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/** The same for the bytes of an answer, in base64. */
function download(name, data, type) {
  handOut(name, new Blob([Uint8Array.from(atob(data), (c) => c.charCodeAt(0))], { type }));
}

/** Hand out the file that the server was asked for; what went wrong is thrown. */
export async function takeAnswer(asked, type) {
  const answer = await answered(asked);
  if (answer.error) throw new Error(answer.error);
  download(answer.name, answer.data, type || answer.type);
}

export function whyNot(error) {
  return `not saved: ${error.message || "the browser did not say why"}`;
}

export function fileName(title) {
  return `draftscope-${title.toLowerCase().replace(/[^a-z0-9]+/g, "-")}`;
}
