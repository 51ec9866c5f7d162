// Taking things with you: pictures of what is on the page, made here, and files the source makes.
// A picture is a copy of an SVG element with every computed style written into it, so it looks the
// same wherever it is opened and needs no stylesheet.

import { button, h, SVG_NS, s } from "./dom.js";
import { answered } from "./feed.js";
import { TreeView } from "./tree.js";

const PAINT = [
  "fill",
  "fill-opacity",
  "stroke",
  "stroke-width",
  "stroke-dasharray",
  "stroke-opacity",
  "opacity",
  "font-family",
  "font-size",
  "font-weight",
  "text-anchor",
  "vector-effect",
  "paint-order",
];
const KEPT =
  /^(d|x|y|x1|x2|y1|y2|cx|cy|r|rx|width|height|viewBox|transform|preserveAspectRatio|text-anchor|pathLength)$/;
const MARGIN = 24,
  FINE = 2; // around a whole tree; pixels of a PNG for one of the page
const SIDE = 16000,
  AREA = 1.2e8; // pixels a canvas is sure to have

/** An SVG element as it looks: {text, width, height}. */
export function picture(svg) {
  const box = svg.getBoundingClientRect(),
    width = Math.ceil(box.width),
    height = Math.ceil(box.height);
  const copy = styledCopy(svg);
  if (!svg.hasAttribute("viewBox")) copy.setAttribute("viewBox", `0 0 ${width} ${height}`);
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  const view = copy.getAttribute("viewBox").split(" ");
  const ground = s("rect", { x: view[0], y: view[1], width: view[2], height: view[3] });
  ground.setAttribute("fill", groundOf(svg));
  copy.prepend(ground);
  return { text: new XMLSerializer().serializeToString(copy), width, height };
}

/** A copy with the look of each element as attributes; what is not displayed is left out. */
function styledCopy(element) {
  const look = getComputedStyle(element),
    copy = document.createElementNS(SVG_NS, element.localName);
  for (const { name, value } of element.attributes)
    if (KEPT.test(name)) copy.setAttribute(name, value);
  for (const name of PAINT) {
    const value = look.getPropertyValue(name);
    if (value) copy.setAttribute(name, value.replaceAll('"', "'"));
  }
  if (element.localName === "text")
    copy.setAttributeNS("http://www.w3.org/XML/1998/namespace", "xml:space", "preserve");
  for (const child of element.childNodes) {
    if (child.nodeType === Node.TEXT_NODE) copy.append(child.data);
    else if (child.nodeType === Node.ELEMENT_NODE && getComputedStyle(child).display !== "none")
      copy.append(styledCopy(child));
  }
  return copy;
}

/** The colour an element stands on. */
function groundOf(element) {
  for (let at = element; at; at = at.parentElement) {
    const colour = getComputedStyle(at).backgroundColor;
    if (colour && colour !== "transparent" && !/, 0\)$/.test(colour)) return colour;
  }
  return "#fff";
}

/** The whole tree at full size, whatever part of it is in sight. */
export function wholeTree(tree) {
  const other = new TreeView(`${tree.name}-whole`, () => {}),
    host = h("div", { "aria-hidden": "true" }, other.element);
  host.style.cssText = "position:absolute;left:-99999px;top:0;width:10px;height:10px";
  tree.element.parentNode.append(host);
  try {
    other.show(tree.round);
    host.style.width = `${other.width + 2 * MARGIN}px`;
    host.style.height = `${other.height + 2 * MARGIN}px`;
    other.expand(MARGIN);
    return picture(other.svg);
  } finally {
    host.remove();
  }
}

/** A picture as the bytes of a PNG. */
async function rastered({ text, width, height }) {
  const scale = Math.min(FINE, SIDE / Math.max(width, height), Math.sqrt(AREA / (width * height)));
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

/** Save a picture {text, width, height} as a file of either form. */
function saveSvg({ text }, name) {
  handOut(`${name}.svg`, new Blob([text], { type: "image/svg+xml" }));
}

async function savePng(drawn, name) {
  handOut(`${name}.png`, await rastered(drawn));
}

/** A button that saves something; when it cannot, the reason stands beside it until the next try. */
export function saveButton(words, attributes, save) {
  const said = h("span", { class: "ds-soft", role: "alert" });
  const made = button(words, attributes, async () => {
    said.remove();
    try {
      await save();
    } catch (error) {
      said.textContent = whyNot(error);
      made.after(said);
    }
  });
  return made;
}

export function whyNot(error) {
  return `not saved: ${error.message || "the browser did not say why"}`;
}

/** Hand out the file that the server was asked for; what went wrong is thrown. */
export async function takeAnswer(asked, type) {
  const answer = await answered(asked);
  if (answer.error) throw new Error(answer.error);
  download(answer.name, answer.data, type || answer.type);
}

/** Both buttons for a picture: draw() makes it, at once or later, name() calls it, `what` says it:
 *  "this grid". */
export function pictureButtons(what, draw, name, look = "ds-button") {
  const made = (form, save) =>
    saveButton(
      form,
      { class: look, title: `Save ${what} as ${form}`, "aria-label": `Save ${what} as ${form}` },
      async () => save(await draw(), name()),
    );
  return [made("SVG", saveSvg), made("PNG", savePng)];
}

/** Records as CSV, a line each. */
function saveRecords(records, name) {
  // A text that a spreadsheet would take for a formula is made plain text.
  const plain = (text) =>
    /^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;
  const cell = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const names = [...new Set(records.flatMap((record) => Object.keys(record)))];
  const lines = [
    names,
    ...records.map((record) => names.map((each) => String(record[each] ?? ""))),
  ];
  const text = lines
    .map((line) => `${line.map((each) => cell(plain(each))).join(",")}\r\n`)
    .join("");
  handOut(`${name}.csv`, new Blob([text], { type: "text/csv" }));
}

export function fileName(title) {
  return `draftscope-${title.toLowerCase().replace(/[^a-z0-9]+/g, "-")}`;
}

/** Buttons that save numbers as files, in a row: records() gives the numbers, `source` is the server's
 *  functions and may not be able to make Parquet. */
export function savers(title, records, source) {
  const name = fileName(title);
  const made = (words, label, save) =>
    saveButton(
      words,
      { class: "ds-small", "aria-label": `${label}: ${title}, ${words}`, title: label },
      save,
    );
  const csv = made("CSV", "Save the numbers", () => saveRecords(records(), name));
  const able = source?.parquet;
  return h(
    "span",
    { class: "ds-plot-tools" },
    csv,
    able
      ? made("Parquet", "Save the numbers as Parquet", () =>
          takeAnswer(source.parquet({ name, records: records() })),
        )
      : "",
  );
}

// ── the menu of a pane ─────────────────────────────────────────────────────────────────────────

const FILES = [
  [
    "This round's draft",
    [
      ["dot", "DOT"],
      ["graphml", "GraphML"],
    ],
  ],
  [
    "Table of rounds",
    [
      ["rounds.csv", "CSV"],
      ["rounds.parquet", "Parquet"],
    ],
  ],
  [
    "Table of nodes",
    [
      ["nodes.csv", "CSV"],
      ["nodes.parquet", "Parquet"],
    ],
  ],
  [
    "The run",
    [
      ["trace", "Trace"],
      ["html", "One HTML file"],
      ["perfetto", "Perfetto timeline"],
    ],
  ],
];

export class SaveMenu {
  constructor(pane) {
    this.pane = pane;
    this.button = button(
      "Save…",
      {
        class: "ds-button",
        disabled: true,
        "aria-haspopup": "dialog",
        "aria-label": "Save or export",
        title: "Save a picture, a table or the run (s)",
      },
      () => this.open(),
    );
    this.said = h("p", { class: "ds-soft", role: "status" });
    this.panel = h(
      "dialog",
      { class: "ds-help ds-save", "aria-label": "Save or export" },
      h("h3", {}, "Take it with you"),
      this._line(
        "Whole tree",
        this._pictures(() => wholeTree(pane.tree), "tree"),
      ),
      this._line(
        "Tree as shown",
        this._pictures(() => picture(pane.tree.svg), "view"),
      ),
      ...(pane.source.export
        ? FILES.map(([words, forms]) =>
            this._line(
              words,
              forms.map((form) => this._file(...form)),
            ),
          )
        : []),
      this.said,
      button("Close", { class: "ds-button" }, () => this.panel.close()),
    );
    this.panel.addEventListener("keydown", (event) => event.stopPropagation());
    this.panel.addEventListener(
      "click",
      (event) => event.target === this.panel && this.panel.close(),
    );
  }

  open() {
    this.said.textContent = "";
    this.panel.showModal();
  }

  _line(words, buttons) {
    return h(
      "div",
      { class: "ds-save-line", role: "group", "aria-label": words },
      h("span", {}, words),
      buttons,
    );
  }

  _pictures(draw, what) {
    const name = () => `draftscope-round-${this.pane.at + 1}-${what}`;
    return [
      this._act("SVG", () => saveSvg(draw(), name())),
      this._act("PNG", () => savePng(draw(), name())),
    ];
  }

  _file(form, words) {
    return this._act(words, () => {
      const { feed, at } = this.pane,
        dark = document.body.classList.contains("dark");
      return takeAnswer(this.pane.source.export({ ticket: feed.ticket, round: at, form, dark }));
    });
  }

  _act(words, act) {
    return button(words, { class: "ds-button" }, async () => {
      this.said.textContent = "…";
      try {
        await act();
        this.said.textContent = `${words} saved`;
      } catch (error) {
        this.said.textContent = whyNot(error);
      }
    });
  }
}
