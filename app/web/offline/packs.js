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

/** What holds for a node's place and its own part, as app/view/node.py joins them. */
function joined(place, own) {
  const marked = (name) => place[name].map((each, at) => own[name][at] ?? each);
  return { ...place, ...own, target: marked("target"), drafter: marked("drafter") };
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
    const { places, nodes } = (await this._block("nodes", round))[round % this.each],
      { place, ...own } = nodes.at(row);
    return joined(places[place], own);
  }
}
