// A source that answers as the studio's server does, from packs.

import { besideOf } from "../compare/offline.js";
import { comparisonOf, measuredOf } from "./several.js";

const NOTHING_ELSE = Promise.resolve({});

export class PackSource {
  /** packOf(ticket): a promise of its pack, or null; apartOf(ticket): what tells it from others of
   * its method; cautions as in `comparisonOf`. */
  constructor(packOf, apartOf, cautions) {
    Object.assign(this, { packOf, apartOf, cautions });
    this.tablesOnly = true; // Plotly is not there
  }

  async _about(ticket) {
    return (await this.packOf(ticket)).about();
  }

  async updates({ ticket, since }) {
    const model = { state: "absent", message: "", fraction: null };
    if (ticket === undefined || ticket === null) return { model, run: null };
    const pack = await this.packOf(ticket);
    if (!pack) return { model, run: null };
    const { header, rounds, message } = await pack.about();
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

  async trees({ ticket, round, until }) {
    const pack = await this.packOf(ticket);
    const rounds = Array.from({ length: until - round + 1 }, (_, i) => round + i);
    return { trees: await Promise.all(rounds.map((each) => pack.tree(each))) };
  }

  async inspect({ ticket, round, row }) {
    return (await this.packOf(ticket)).node(round, row);
  }

  async why({ ticket, round }) {
    return { why: (await (await this.packOf(ticket)).tree(round)).why };
  }

  async beside(question) {
    const treeOf = async ({ ticket, round }) => (await this.packOf(ticket)).tree(round);
    return besideOf(treeOf, (asked) => this.inspect(asked), question);
  }

  async compare({ tickets }) {
    const runs = await Promise.all(tickets.map((ticket) => this._about(ticket)));
    const facts = runs.map((run) => run.facts);
    return comparisonOf(facts, this.cautions, tickets.map(this.apartOf));
  }

  async measure({ tickets }) {
    const runs = await Promise.all(tickets.map((ticket) => this._about(ticket)));
    const measured = runs.map((run) => ({ method: run.header.method, measured: run.measured }));
    return measuredOf(measured, tickets.length > 1 ? tickets.map(this.apartOf) : [""]);
  }

  stop() {
    return NOTHING_ELSE;
  }
}
