// What the offline file runs instead of mount.js: the same view, fed from data blocks of the page.
// A block is JSON, or gzipped JSON in base64. Details of nodes are unpacked when asked for.

import { besideOf } from "./compare/offline.js";
import { h } from "./dom.js";
import { Studio } from "./studio.js";
import { followSystem, toggleTheme } from "./theme.js";

const NOTHING_ELSE = Promise.resolve({});

/** The value of a data block. */
async function dataBlock(id) {
  const element = document.getElementById(id),
    text = element.textContent.trim();
  if (element.getAttribute("data-packed") !== "gzip") return JSON.parse(text);
  if (typeof DecompressionStream === "undefined")
    throw new Error(
      "this browser cannot unpack the file: use a newer one, or export it with --plain",
    );
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

/** The inverse of app/export/offline.py's Packer: what stands at a place of its table. */
function unfold(packed, place) {
  const entry = packed.table[place];
  if (!Array.isArray(entry)) return entry;
  const [shape, ...places] = entry,
    values = places.map((each) => unfold(packed, each));
  return shape < 0
    ? values
    : Object.fromEntries(packed.shapes[shape].map((name, i) => [name, values[i]]));
}

/** Answers as the studio's server does; a run's ticket is its number in the file. */
class FileSource {
  constructor(file) {
    this.file = file;
    this.tablesOnly = true; // Plotly is not in the file
    this.blocks = new Map();
  }

  async updates({ ticket, since }) {
    const model = { state: "absent", message: "", fraction: null },
      run = this.file.runs[ticket];
    if (!run) return { model, run: null };
    const { header, rounds, message } = run;
    return {
      model,
      run: {
        ticket,
        state: message ? "stopped" : "done",
        message,
        ahead: 0,
        started: true,
        source: "file",
        more: false,
        first: since,
        header: since ? null : header,
        rounds: rounds.slice(since),
      },
    };
  }

  async inspect({ ticket, round, row }) {
    const id = `ds-nodes-${ticket}-${Math.floor(round / this.file.each)}`;
    if (!document.getElementById(id))
      return { error: "this file was made without the details of its nodes" };
    if (!this.blocks.has(id)) this.blocks.set(id, dataBlock(id));
    const packed = await this.blocks.get(id),
      places = packed.rounds[round % this.file.each];
    return unfold(packed, row < 0 ? places[places.length - 1] : places[row]);
  }

  async why({ ticket, round }) {
    return { why: this.file.runs[ticket].rounds[round].why };
  }

  beside(question) {
    return besideOf(this.file, (asked) => this.inspect(asked), question);
  }

  async compare() {
    return this.file.compared;
  }

  async measure() {
    return this.file.measured;
  }

  stop() {
    return NOTHING_ELSE;
  }
}

async function openFile() {
  const root = document.getElementById("ds-offline");
  followSystem();
  document.getElementById("ds-theme").addEventListener("click", toggleTheme);
  try {
    const file = await dataBlock("ds-runs"),
      studio = new Studio(root, new FileSource(file), () => {});
    studio.open("0", file.runs.length > 1 ? "1" : undefined);
    studio.link.listen();
    if (file.opens && !studio.link.place) studio.link.seek({ round: file.opens + 1 });
  } catch (error) {
    root.replaceChildren(h("p", { class: "ds-banner", role: "alert" }, error.message));
  }
}

openFile();
