// Pictures of what is on the page: a copy of an SVG element with every computed style written into
// it, so it looks the same wherever it is opened and needs no stylesheet. They are for a paper: in
// the light theme's colours, whatever theme is on view, on the ground that paper.js adds.

import { h, SVG_ATTRIBUTES, SVG_NS } from "../dom.js";
import { answered } from "../feed.js";
import { handOut } from "./files.js";
import { onPaper } from "./paper.js";

const PAINT = [
  "fill",
  "fill-opacity",
  "stroke",
  "stroke-width",
  "stroke-dasharray",
  "stroke-opacity",
  "font-family",
  "font-size",
  "font-style",
  "font-weight",
  "text-anchor",
  "letter-spacing",
  "word-spacing",
  "vector-effect",
  "paint-order",
];
const LETTERS = new Set(["text", "tspan"]);
const FINE = 2; // pixels of a PNG for one of the page
const SIDE = 16000; // pixels a canvas is sure to have, and below those of its area
const AREA = 1.2e8;

/** What `look` finds while the page has the light theme; nothing of that is painted. */
export function inLight(look) {
  const { classList } = document.body,
    isDark = classList.contains("dark");
  classList.remove("dark");
  try {
    return look();
  } finally {
    classList.toggle("dark", isDark);
  }
}

/** An SVG element as it looks, for a paper: {text, width, height}. */
export function picture(svg) {
  const box = svg.getBoundingClientRect(),
    width = Math.ceil(box.width),
    height = Math.ceil(box.height);
  const copy = inLight(() => styledCopy(svg));
  if (!svg.hasAttribute("viewBox")) copy.setAttribute("viewBox", `0 0 ${width} ${height}`);
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  return { text: new XMLSerializer().serializeToString(copy), width, height };
}

/** What `draw` finds of an element that stands out of sight for it, in a box beside others. */
export function outOfSight(place, element, draw) {
  const host = h("div", { "aria-hidden": "true" }, element);
  host.style.cssText = "position:absolute;left:-99999px;top:0;width:10px;height:10px";
  place.append(host);
  try {
    return draw(host);
  } finally {
    host.remove();
  }
}

const isSeen = ({ display, visibility }) => display !== "none" && visibility !== "hidden";

/** A copy with the look of each element as attributes; what is not seen is left out. `share`: the
 * opacity of what it stands in, which each shape gets itself, and letters as that of their paint: a
 * PDF has no letters, but paths, where a group or a text is drawn with an opacity. */
function styledCopy(element, share = 1) {
  const look = getComputedStyle(element),
    copy = document.createElementNS(SVG_NS, element.localName),
    opacity = share * Number(look.opacity);
  for (const { name, value } of element.attributes)
    if (SVG_ATTRIBUTES.has(name)) copy.setAttribute(name, value);
  for (const name of PAINT) {
    const value = look.getPropertyValue(name);
    if (value) copy.setAttribute(name, value.replaceAll('"', "'"));
  }
  if (LETTERS.has(element.localName))
    for (const name of ["fill-opacity", "stroke-opacity"])
      copy.setAttribute(name, opacity * Number.parseFloat(look.getPropertyValue(name)));
  else if (!element.childElementCount) copy.setAttribute("opacity", opacity);
  if (element.localName === "text")
    copy.setAttributeNS("http://www.w3.org/XML/1998/namespace", "xml:space", "preserve");
  for (const child of element.childNodes) {
    if (child.nodeType === Node.TEXT_NODE) copy.append(child.data);
    else if (child.nodeType === Node.ELEMENT_NODE && isSeen(getComputedStyle(child)))
      copy.append(styledCopy(child, opacity));
  }
  return copy;
}

/** A picture as the bytes of a PNG. */
async function rastered({ text, width, height, dense = FINE }) {
  const scale = Math.min(dense, SIDE / Math.max(width, height), Math.sqrt(AREA / (width * height)));
  const image = new Image(),
    canvas = document.createElement("canvas");
  image.src = `data:image/svg+xml;base64,${base64(new TextEncoder().encode(text))}`;
  await image.decode();
  canvas.width = Math.max(1, Math.round(width * scale));
  canvas.height = Math.max(1, Math.round(height * scale));
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done, fail) =>
    canvas.toBlob((blob) => (blob ? done(blob) : fail(new Error("no picture"))), "image/png"),
  );
}

function base64(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += 32768)
    text += String.fromCharCode(...bytes.subarray(at, at + 32768));
  return btoa(text);
}

/** form → what makes a file of a picture {text, width, height}; the studio adds PDF (pdf.js). */
export const FORMS = {
  SVG: ({ text }) => new Blob([text], { type: "image/svg+xml" }),
  PNG: rastered,
};

/** Save a picture {text, width, height} as a file of one of those forms, as paper.js has it. */
export async function savePicture(form, drawn, name = drawn.name) {
  handOut(`${name}.${form.toLowerCase()}`, await FORMS[form](onPaper(drawn)));
}

/** The picture that the server answers with, with the name that it has there. */
export async function servedPicture(asked) {
  const { error, name, data } = await answered(asked);
  if (error) throw new Error(error);
  const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0)),
    text = new TextDecoder().decode(bytes),
    [, width, height] = /<svg [^>]*viewBox="0 0 ([\d.]+) ([\d.]+)"/.exec(text).map(Number);
  return { text, width, height, name: name.replace(/\.svg$/, "") };
}
