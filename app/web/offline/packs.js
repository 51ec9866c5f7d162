// A run as app/export/packs.py packs it. A block is JSON, or gzipped JSON in base64; trees and the
// details of nodes are unpacked when they are asked for.

async function unpacked(block) {
  if (typeof block !== "string") return block;
  if (typeof DecompressionStream === "undefined")
    throw new Error(
      "this browser cannot unpack the file: use a newer one, or export it with --plain",
    );
  const bytes = Uint8Array.from(atob(block), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

/** The inverse of the Packer of app/export/packs.py: what stands at a place of its table. */
function unfold(packed, place) {
  const entry = packed.table[place];
  if (!Array.isArray(entry)) return entry;
  const [shape, ...places] = entry,
    values = places.map((each) => unfold(packed, each));
  return shape < 0
    ? values
    : Object.fromEntries(packed.shapes[shape].map((name, i) => [name, values[i]]));
}

export class Pack {
  constructor(text) {
    Object.assign(this, JSON.parse(text));
    this.unpacked = new Map();
  }

  /** {header, message, rounds, facts, measured}. */
  about() {
    this.told ??= unpacked(this.run);
    return this.told;
  }

  /** The block of `trees` or `nodes` that holds a round, unpacked once. */
  _block(kind, round) {
    const block = this[kind][Math.floor(round / this.each)];
    if (!this.unpacked.has(block)) this.unpacked.set(block, unpacked(block));
    return this.unpacked.get(block);
  }

  /** The tree of a round, and why it ended where it did. */
  async tree(round) {
    return (await this._block("trees", round))[round % this.each];
  }

  /** The details of a node; row −1: the target's token. */
  async node(round, row) {
    if (!this.nodes.length) return { error: "this file was made without the details of its nodes" };
    const packed = await this._block("nodes", round),
      places = packed.rounds[round % this.each];
    return unfold(packed, row < 0 ? places[places.length - 1] : places[row]);
  }
}
