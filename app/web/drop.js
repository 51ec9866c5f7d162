// Files that are dropped anywhere on the page, or chosen with "Open a file…": they are sent, the
// server says what they are, and each opens in its tab. Of a checkpoint's folder only the config is
// sent.

import { button, h, plural } from "./dom.js";
import { answered } from "./feed.js";
import { chosenOf, MOST, POOLED, TRACES, walk } from "./folder.js";
import { shelve } from "./gallery.js";
import { goTo, isOnView, onChoose } from "./goto.js";
import { keptTickets, RAISED } from "./studio/shelf.js";
import { TOGETHER } from "./whatif/texts.js";

const WHERE = [
  ["trace json", "a trace, DDTree's trees", "Run"],
  ["several", "several traces, or a folder of them", "Compare"],
  ["trace", "a trace of denoising", "Denoise"],
  ["json several", "collected texts, a result of cost", "What-if"],
  ["table", "a table of calibrate", "Calibration"],
  ["json table text", "an engine's response, log, metrics or profile", "Results"],
  ["json table several", "a grid's results, step times, a checkpoint's folder", "Results"],
];
const TYPES = {
  "application/gzip": "trace",
  "application/x-gzip": "trace",
  "application/json": "json",
  "text/csv": "table",
  "text/plain": "text",
};
const LARGEST = 64; // MB of a file, as the server takes it
const SIDE_BY_SIDE = 4;
const AT_ONCE = 10; // traces that are sent
const STAYS = 8000; // milliseconds of a sentence without a complaint
const READ = { every: 200, most: 30 }; // looks at runs that are being read

/** Hear of files for the whole page, as long as `page.element` is on it. */
export function takeFiles(page) {
  const taker = new FileTaker(page);
  taker.listen();
  return taker;
}

/** The kinds that some dragged things may be, by the little that a browser says of them. */
export function likely(items) {
  const files = [...items].filter(({ kind }) => kind === "file");
  if (files.length > 1) return "several";
  const type = files[0]?.type ?? "";
  if (/^(image|video|audio|font)\/|pdf|\/zip$|msword|officedocument/.test(type)) return "foreign";
  return TYPES[type] ?? "";
}

class FileTaker {
  constructor(page) {
    this.page = page;
    this.rows = WHERE.map(([kinds, what, tab]) => ({
      kinds,
      element: h("li", h("span", what), h("b", tab)),
    }));
    this.words = h("p");
    const rows = this.rows.map(({ element }) => element);
    this.over = h("div.ds-drop", { hidden: true, "aria-hidden": "true" });
    this.over.append(h("div", this.words, h("ul", rows)));
    this.told = h("p");
    this.offered = h("span");
    this.announce = h("div.ds-unseen", { role: "status" }); // always there, to be heard
    const about = { class: "ds-small", "aria-label": "Close this message" },
      close = button("×", about, () => this._say(""));
    this.said = h("div.ds-drop-said", { hidden: true }, this.told, this.offered, close);
    this.home = h("div.ds-scope.ds-dropping", this.over, this.said, this.announce);
    document.body.append(this.home);
  }

  listen() {
    const own = (act) => (event) => this.page.element.isConnected && act(event),
      hear = (name, act) => window.addEventListener(name, own(act), { capture: true });
    hear("dragenter", (event) => this._drag(event));
    hear("dragover", (event) => this._drag(event));
    hear("dragleave", ({ relatedTarget }) => relatedTarget || this._show(null));
    hear("drop", (event) => this._drop(event));
    onChoose(this.page.element, (folder) => this.choose(folder));
    const lift = own(() => this._lift());
    for (const name of [RAISED, "close"]) document.addEventListener(name, lift, { capture: true });
  }

  _drag(event) {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault(); // else the browser leaves the page for the file
    event.dataTransfer.dropEffect = "copy";
    this._show(event.dataTransfer.items);
  }

  /** Say where what is dragged may go; null: nothing is dragged any more. */
  _show(items) {
    this.over.hidden = !items;
    if (!items) return;
    const kind = likely(items),
      foreign = kind === "foreign";
    this.words.textContent = foreign
      ? "This does not seem to be a file that opens here"
      : "Drop it: it opens where it belongs";
    this.over.classList.toggle("foreign", foreign);
    for (const { kinds, element } of this.rows)
      element.classList.toggle("likely", kinds.split(" ").includes(kind));
  }

  _drop(event) {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    event.stopPropagation();
    this._show(null);
    const { items, files } = event.dataTransfer,
      entries = [...items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
    if (entries.some((entry) => entry.isDirectory)) this._folders(entries);
    else this.open([...files]);
  }

  async _folders(entries) {
    const found = [];
    for (const entry of entries) await walk(entry, found);
    this._chosen(found, entries[0].name);
  }

  /** Files out of a folder: {file, path}. */
  _chosen(found, name) {
    const { chosen, left } = chosenOf(found);
    if (!chosen.length) return this._say(`the folder ${name} holds nothing that opens here`, true);
    const more = left ? `; ${left} more are left out: python -m app studio FOLDER lists all` : "";
    const files = chosen.map(({ file }) => file);
    this.open(files, more);
  }

  /** Let somebody choose files, or a folder. */
  choose(folder) {
    const input = h("input", { type: "file" });
    input.multiple = true;
    input.webkitdirectory = folder;
    input.addEventListener("change", () => {
      const files = [...input.files];
      if (!files.length) return;
      if (!folder) return this.open(files);
      const found = files.map((file) => ({ file, path: file.webkitRelativePath }));
      this._chosen(found, found[0].path.split("/")[0]);
    });
    input.click();
  }

  /** Send the files, and open each where it belongs; `more` is said besides. */
  async open(files, more = "") {
    const traces = files.filter(({ name }) => TRACES.test(name));
    if (traces.length > MOST) return this._pool(traces, files.length - traces.length, more);
    const what = files.length === 1 ? files[0].name : plural(files.length, "file");
    this._say(`sending ${what}…`, false, true);
    const answers = [];
    for (const file of files.slice(0, MOST)) answers.push(await this._place(file));
    const errors = answers.filter(({ error }) => error),
      opened = await this._go(answers.filter(({ error }) => !error)),
      others = errors.length > 1 ? ` (and ${errors.length - 1} more could not be opened)` : "",
      left = files.length > MOST ? `; ${files.length - MOST} more are left out` : more;
    const wrong = errors.length ? errors[0].error + others : "";
    const offer = this._together(answers);
    this._say([opened, wrong].filter(Boolean).join(". ") + left, !!wrong, !!wrong || !!offer);
    if (offer) this.offered.append(offer);
  }

  /** A button that measures traces together which do not stand side by side; null: they do. */
  _together(answers) {
    const runs = answers.filter(({ ticket, view }) => ticket && view === "run"),
      name = plural(runs.length, "trace");
    if (runs.length <= SIDE_BY_SIDE) return null;
    return button("Measure them together", { class: "ds-small" }, () => {
      this._say("");
      this.said.closest("dialog")?.close(); // the list of runs
      goTo({ view: "results", paths: runs.map(({ path }) => path), name });
    });
  }

  /** Measure more traces together than are listed; `left`: how many files are beside them. */
  async _pool(traces, left, more) {
    const some = traces.slice(0, POOLED),
      answers = [];
    while (answers.length < some.length) {
      this._say(`sending ${answers.length} of ${traces.length} traces…`, false, true);
      const next = some.slice(answers.length, answers.length + AT_ONCE);
      answers.push(...(await Promise.all(next.map((f) => this._place(f, some.indexOf(f) < MOST)))));
    }
    const sent = answers.map(({ path }) => path).filter(Boolean),
      opened = answers.filter(({ view }) => view === "run").map(({ ticket }) => ticket);
    shelve(opened);
    const what = plural(sent.length, "trace"),
      lost = traces.length - sent.length + left;
    goTo({ view: "results", paths: sent, name: what });
    const listed = `${what}: together in Results; ${opened.length} are listed under Examples`;
    this._say(listed + (lost ? `; ${plural(lost, "file")} left out` : "") + more);
  }

  /** Send a file, and ask the server where it opens if it `isOpened`. */
  async _place(file, isOpened = true) {
    const path = await this.page.upload(file).then(
      (found) => found?.path,
      () => null,
    );
    const isLarge = file.size > LARGEST * 2 ** 20,
      why = isLarge ? `a file may have ${LARGEST} MB` : "the server did not take it";
    if (!path) return { error: `${file.name} could not be sent: ${why}` };
    const placed = isOpened ? await answered(this.page.server.place({ path })) : {};
    return { name: file.name, path, ...placed };
  }

  /** Open what was recognised, as far as one tab takes it; gives in words what went where, and how
   * many files did not. */
  async _go(answers) {
    const of = (view) => answers.filter((each) => each.ticket && each.view === view),
      [runs, denoised] = [of("run"), of("denoise").slice(0, 2)],
      [other] = answers.filter(({ route }) => route);
    if (runs.length) return (await this._runs(runs)) + unopened(answers, runs);
    if (denoised.length) {
      goTo({ view: "denoise", tickets: denoised.map(({ ticket }) => ticket) });
      return told(denoised, "opened in", "denoise") + unopened(answers, denoised);
    }
    if (!other) return "";
    const texts = answers.filter(isCollected).slice(0, TOGETHER),
      went = isCollected(other) ? texts : [other];
    goTo({ ...other, others: went.slice(1) });
    return told(went, "sent to", other.view, "collected text") + unopened(answers, went);
  }

  async _runs(runs) {
    const tickets = runs.map(({ ticket }) => ticket),
      several = runs.length > 1 || isOnView("compare");
    shelve(tickets);
    if (!several) goTo({ view: "run", ticket: tickets[0] });
    else if (runs.length === 1) goTo({ view: "compare", ticket: tickets[0] });
    else if (runs.length <= SIDE_BY_SIDE) goTo({ view: "compare", tickets });
    else await this._shelf(tickets);
    const isFull = several && runs.length === 1 && !isBeside(tickets[0]);
    if (runs.length > SIDE_BY_SIDE || isFull)
      return `${told(runs, "listed in", "compare")}, under Examples`;
    return told(runs, "opened in", several ? "compare" : "run");
  }

  /** More than stand side by side: the list of runs, once their rounds are read. */
  async _shelf(tickets) {
    for (let look = 0; look < READ.most; look++) {
      const { runs = [] } = await answered(this.page.server.runs({ tickets }));
      if (runs.every((run) => run.rounds)) break;
      await new Promise((resolve) => setTimeout(resolve, READ.every));
    }
    goTo({ view: "compare", shelf: true });
  }

  /** What is said lies over a dialog, too, and can be closed there. */
  _lift() {
    const place = [...document.querySelectorAll("dialog[open]")].at(-1) ?? this.home;
    if (this.said.parentNode !== place) place.append(this.said);
  }

  /** Say something for a while, or until the next sentence. */
  _say(words, wrong = false, stays = wrong) {
    clearTimeout(this.timer);
    this.told.textContent = this.announce.textContent = words;
    this.offered.replaceChildren();
    this.said.hidden = !words;
    this._lift();
    this.said.classList.toggle("wrong", wrong);
    if (words && !stays) this.timer = setTimeout(() => this._say(""), STAYS);
  }
}

function isCollected({ view, route }) {
  return view === "whatif" && route === "open";
}

/** Whether Compare took a run, as far as it can be known: it may have as many as it holds. */
function isBeside(ticket) {
  const kept = keptTickets("compare"); // none where storage is forbidden
  return !kept.length || kept.includes(ticket);
}

function told(answers, went, view, thing = "trace") {
  const tab = document.querySelector(`[role=tab][data-tab-id=${view}]`)?.textContent.trim() ?? view,
    what = answers.length === 1 ? answers[0].name : plural(answers.length, thing);
  return `${what}: ${went} ${tab}`;
}

/** Words about files that were recognised and that the tab on view did not take; "": all were. */
export function unopened(answers, took) {
  const left = answers.length - took.length;
  if (left === 1) return "; 1 more is not opened: drop it by itself";
  return left ? `; ${left} more are not opened: drop them by themselves` : "";
}
