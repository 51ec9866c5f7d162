// News of runs as server-sent events: one connection for all runs of a view, open while one of them
// goes on. A browser allows few connections to one server, so a view never has a second one.

import { hearRefusals, whySilent } from "./feed.js";

const AGAIN_AFTER = 2000; // ms without a server

hearRefusals(async () => {
  const answer = await fetch(new URL("web/page.css", document.baseURI)).catch(() => null);
  return answer?.status === 403 || answer?.status === 429 ? (await answer.text()).trim() : null;
});

export class News {
  constructor() {
    this.feeds = new Set();
  }

  add(feed) {
    if (!this.feeds.has(feed)) this._changed(() => this.feeds.add(feed));
  }

  drop(feed) {
    if (this.feeds.has(feed)) this._changed(() => this.feeds.delete(feed));
  }

  /** Several feeds that come or go in one moment open one connection. */
  _changed(change) {
    change();
    if (this.due) return;
    this.due = true;
    queueMicrotask(() => {
      this.due = false;
      this._open();
    });
  }

  _open() {
    clearTimeout(this.timer);
    this.stream?.close();
    this.stream = null;
    if (!this.feeds.size) return;
    const asked = new URLSearchParams();
    for (const feed of this.feeds) asked.append("run", `${feed.ticket}.${feed.rounds.length}`);
    const stream = new EventSource(new URL(`events?${asked}`, document.baseURI));
    stream.onmessage = ({ data }) => this._take(JSON.parse(data));
    stream.onerror = () => this._lost(stream);
    this.stream = stream;
  }

  _take({ ticket, news }) {
    for (const feed of [...this.feeds]) if (feed.ticket === ticket) feed.take(news);
  }

  /** The connection broke: a new one asks from where this one was. */
  async _lost(stream) {
    stream.close();
    if (this.stream !== stream) return;
    this.stream = null;
    const why = await whySilent();
    if (this.stream || this.due) return; // another was opened meanwhile
    for (const feed of this.feeds) feed.hear.silent(why);
    this.timer = setTimeout(() => this._open(), AGAIN_AFTER);
  }
}
