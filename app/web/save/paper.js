// On what pictures are saved, one choice for the whole page: on white or on nothing, as large as on
// the page or as wide as a column of a paper.

import { button, h, SVG_NS } from "../dom.js";
import { choice, dialog } from "../parts.js";
import { keep, kept } from "../storage.js";

const NAME = "draftscope-paper",
  INCH = 96, // pixels
  LEAST = 0.25,
  MOST = 100, // inches, as on the command line
  GROUNDS = [
    ["white", "white"],
    ["", "none, transparent"],
  ];
const TOLD =
  "For every picture that this browser saves here, as SVG, PNG or PDF. Width: such as 3.25 for " +
  "a column; empty: as large as on the page. Charts of 2.5 inches or more are drawn anew for " +
  "their width, with type of 7 points at least, and so are grids. A round for a paper has 6, and " +
  "so have a draft of What-if and the graphs of Denoise. Narrower charts and other trees are " +
  "scaled, and so is their type.";
const RANGE = `a width is of ${LEAST} to ${MOST} inches`;
const REFUSED = `Not followed: ${RANGE}. Pictures are as large as here.`;
const DENSE = 6; // pixels of a PNG for one of a column

/** {ground: a colour or "", inches: wide; 0: as large as on the page}. */
export const paper = { ground: "white", inches: 0, ...read() };

function read() {
  try {
    const { ground, inches } = JSON.parse(kept("localStorage", NAME)) ?? {};
    return { ground: ground === "" ? "" : "white", inches: widthOf(inches) };
  } catch {
    return {};
  }
}

function widthOf(value) {
  const inches = Number(value);
  return inches >= LEAST && inches <= MOST ? inches : 0;
}

function choose(chosen) {
  Object.assign(paper, chosen);
  keep("localStorage", NAME, JSON.stringify(paper));
}

/** How wide a picture is drawn whose layout can change with it: so wide that it is read. */
export function wideFor(width, least) {
  return Math.max(least, paper.inches ? paper.inches * INCH : width);
}

/** A picture {text, width, height} without a ground, as it is to be saved. */
export function onPaper({ text, width, height }) {
  const root = new DOMParser().parseFromString(text, "image/svg+xml").documentElement,
    times = paper.inches ? (paper.inches * INCH) / width : 1,
    size = { width: width * times, height: height * times };
  if (!root.hasAttribute("viewBox")) root.setAttribute("viewBox", `0 0 ${width} ${height}`);
  for (const [name, value] of Object.entries(size)) root.setAttribute(name, +value.toFixed(2));
  if (paper.ground) root.prepend(ground(root.getAttribute("viewBox").split(/[ ,]+/)));
  const dense = paper.inches ? { dense: DENSE } : {};
  return { text: new XMLSerializer().serializeToString(root), ...size, ...dense };
}

function ground([x, y, width, height]) {
  const made = document.createElementNS(SVG_NS, "rect"),
    about = { x, y, width, height, fill: paper.ground };
  for (const [name, value] of Object.entries(about)) made.setAttribute(name, value);
  return made;
}

let panel = null;

/** Opens the choice, which every picture that is saved from then on follows. */
export function paperButton(look = "") {
  const about = {
    class: `ds-paper ${look}`,
    "aria-haspopup": "dialog",
    title: "Background and width of saved pictures",
  };
  const made = button("Paper…", about, () => {
    panel?.remove();
    panel = paperPanel();
    (made.closest(".ds-scope") ?? document.body).append(panel);
    panel.addEventListener("close", () => made.focus());
    panel.showModal();
  });
  return made;
}

function paperPanel() {
  const grounds = choice("Ground", GROUNDS, (ground) => choose({ ground })),
    about = { type: "number", min: LEAST, max: MOST, step: 0.05, placeholder: "as here" },
    wide = h("input", { ...about, "aria-label": "Width in inches" });
  grounds.value = paper.ground;
  wide.value = paper.inches || "";
  const told = h("p.ds-soft", { "aria-live": "polite" }, TOLD);
  wide.addEventListener("input", () => {
    choose({ inches: widthOf(wide.value) });
    const isRefused = !paper.inches && (wide.value !== "" || wide.validity.badInput);
    wide.setAttribute("aria-invalid", String(isRefused));
    told.textContent = isRefused ? REFUSED : TOLD;
  });
  const line = (words, control) => h("div.ds-save-line.ds-row", h("span", words), control);
  const made = dialog(
    "Saved pictures",
    "ds-save",
    h("h3", "Saved pictures"),
    line("Ground", grounds),
    line("Width in inches", wide),
    told,
  );
  made.addEventListener("keydown", (event) => event.stopPropagation());
  return made;
}
