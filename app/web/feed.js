// One run on the server, followed until it has ended. A live run and an opened trace are the same.

export const NO_ROUNDS = "This run has no rounds.";
const FEEDS = new Set(); // all of the page that are not closed

let refusal = async () => null; // a page from disk has no server

/** `ask` gives the sentence by which the server refuses this page whatever it asks, or null. */
export function hearRefusals(ask) {
  refusal = ask;
}

/** Why no news come. */
export async function whySilent() {
  return (await refusal()) ?? "the server does not answer";
}

/** Wait for the server's answer; {error} when it does not answer, or refuses this page. */
export async function answered(asked) {
  const answer = await asked.catch(() => null);
  return answer || { error: (await refusal()) ?? "the server did not answer" };
}

/** Send a file and return the route's answer: Gradio sends it, the route is told where it lies. */
export async function sent({ upload, server }, route, file) {
  const place = upload(file).then(({ path }) => server[route]({ path }));
  return (await place.catch(() => null)) || { error: "the file could not be sent" };
}

/** Nobody waits for a run any more: it is stopped, unless this page or another one shows it. */
export function letGo(source, ticket) {
  const isKept = [...FEEDS].some((feed) => feed.ticket === ticket);
  if (!isKept) answered(source.stop({ ticket, left: true }));
}

/** Whether a run of some feeds goes on, as a trace that is read does not; null: that is not known
 * of each yet. */
export function goesOn(feeds) {
  const there = feeds.filter(({ run }) => run);
  return there.every(({ run }) => run.source) ? there.some(({ decoding }) => decoding) : null;
}

export class Feed {
  /** source: {updates, stop}, and news (see News) where runs go on.
   *  hear: {model(model), rounds(feed, first), state(feed, ended), lost(feed), silent(why)}. */
  constructor(source, hear) {
    this.source = source;
    this.hear = hear;
    this.forget();
    FEEDS.add(this);
  }

  get ticket() {
    return this.run ? this.run.ticket : null;
  }

  get active() {
    return (
      !!this.run && (this.run.state === "waiting" || this.run.state === "running" || this.run.more)
    );
  }

  /** A live run goes on, and so does a file that is being written. */
  get decoding() {
    return this.active && (this.run.source !== "file" || !!this.run.reading);
  }

  /** That the run has ended without rounds, in a sentence; "": it is another. A run that failed
   *  has its own. */
  get emptiness() {
    const { run, rounds, active } = this;
    if (!run?.source || rounds.length || active || run.state === "failed") return "";
    const words = run.message;
    return words ? `${words[0].toUpperCase()}${words.slice(1)}.` : NO_ROUNDS;
  }

  /** Ask for the run of a ticket from its first round on. */
  open(ticket) {
    this.leave();
    this.run = { ticket, state: "waiting", more: false };
    this.made = this.source.named?.(ticket); // else the server tells it
    this.wake();
  }

  forget() {
    this.run = null;
    this.rounds = [];
    this.header = null;
    this.made = undefined; // what an address says of it: see named.js
  }

  close() {
    this.leave();
    FEEDS.delete(this);
    this.closed = true;
    clearTimeout(this.timer);
  }

  /** Let go of the run; once nobody on this page or on another shows it any more, it is stopped. */
  leave() {
    this.source.news?.drop(this);
    const { ticket, active, source } = this;
    this.forget();
    // Not at once: what opens several runs may give this one to another of its feeds.
    if (active) queueMicrotask(() => letGo(source, ticket));
  }

  /** Somebody pressed Stop. */
  halt() {
    if (this.active)
      this.source.stop({ ticket: this.ticket }).then(
        () => this.wake(),
        () => {},
      );
  }

  wake() {
    clearTimeout(this.timer);
    if (this.polling) this.again = true;
    else this._poll();
  }

  async _poll() {
    this.polling = true;
    this.again = false;
    let pause = null;
    try {
      const { run, ticket } = this;
      const news = await this.source.updates({ ticket, since: this.rounds.length });
      if (!this.closed) pause = this._take(news, run);
    } catch {
      this.hear.silent(await whySilent());
      pause = 2000;
    }
    this.polling = false;
    if (this.again) pause = 0;
    if (pause !== null && !this.closed) this.timer = setTimeout(() => this._poll(), pause);
  }

  /** News that came by themselves. */
  take(news) {
    if (this.closed) return;
    const pause = this._take(news, this.run);
    if (pause === 0) this.wake();
  }

  /** Take one answer to what was asked for `run`; returns when to ask again, or null: the news come
   *  by themselves, or there are none. */
  _take(news, run) {
    this.hear.model(news.model);
    const loading = news.model.state === "loading" ? 500 : null;
    if (this.run?.ticket !== run?.ticket) return 0; // another was opened meanwhile
    if (!this.run) return loading;
    if (!news.run) {
      this.source.news?.drop(this);
      this.run = null;
      this.hear.lost(this);
      return loading;
    }
    const was = this.active,
      at = this.rounds.length;
    const { rounds, header, made, first, ...state } = news.run;
    if (first > at) return 0; // some in between are missing
    this.run = state;
    if (header) this.header = header;
    if (!first && made !== undefined) this.made = made;
    this.rounds.push(...rounds.slice(at - first));
    if (this.rounds.length > at || header) this.hear.rounds(this, at);
    this.hear.state(this, was && !this.active);
    return this._next(state) ?? loading;
  }

  /** How the news go on: 0 to ask at once, null to wait for them. */
  _next(state) {
    const { news } = this.source;
    if (this.active && !state.more) news.add(this);
    else news?.drop(this);
    return this.active && state.more ? 0 : null;
  }
}
