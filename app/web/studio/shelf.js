// The traces that can be opened: at once on the empty view, and later as a dialog over the page.
// The tickets on view survive a reload of this tab, and nothing else does.

import { h } from "../dom.js";
import { askForFiles } from "../goto.js";
import { action, dialog, LETTERS } from "../parts.js";
import { keep, keepList, kept, keptList } from "../storage.js";

export const RAISED = "draftscope-raised"; // an event of a dialog that lies over the page now

/** [title, words] of an empty view. */
export const EMPTY = {
  one: [
    "Every drafted tree, as the target sees it",
    "Write a prompt and press Start, or open a run that was recorded. Each round appears here: " +
      "what the drafter proposed, what the target took, and why the rest ended.",
  ],
  several: [
    "Two to four runs on one text",
    "Choose methods and press Start, or put examples and traces side by side. The trees step " +
      "together by the place in the text.",
  ],
  blocks: [
    "A block being denoised, call by call",
    "A diffusion model starts from masked positions and unmasks the surest ones, step by step. " +
      "Spiffy drafts the states a block may reach, runs them in the same model call, and every " +
      "draft the model's own steps lead through saves a call: the text stays the same.",
    "Write a prompt and press Start, or open a run that was recorded.",
  ],
};

/** An empty view: its words and its gallery, or null. */
export function emptyView([title, ...words], gallery) {
  gallery?.draw();
  const parts = [h("h2.ds-empty-title", title), ...words.map((each) => h("p", each))];
  return h("div.ds-empty", parts, gallery ? gallery.element : "");
}

/** Buttons that let somebody choose files of their own. */
export function openers() {
  const anything =
      "Open a trace, or any file where it belongs; files may also be dropped on the page",
    folder = "Open a folder's traces, or a checkpoint";
  return [
    action("Open a file…", anything, () => askForFiles()),
    action("Open a folder…", folder, () => askForFiles(true)),
  ];
}

/** The shelf of examples and earlier runs, over the page. */
export class Shelf {
  constructor(gallery) {
    this.gallery = gallery;
    const own = h("div.ds-cards", openers());
    own.addEventListener("click", () => this.close()); // what is opened is to be seen
    this.element = dialog("Examples and runs", "ds-shelves", own, gallery.element);
  }

  get isOpen() {
    return this.element.open;
  }

  async open() {
    await this.gallery.draw();
    if (this.isOpen) return;
    this.element.showModal();
    this.element.dispatchEvent(new CustomEvent(RAISED, { bubbles: true }));
  }

  close() {
    this.element.close();
  }
}

/** In place of a view's name: of the examples that the page opened by itself. */
export const UNASKED = "unasked";

const LOOKED = "draftscope-looked";
const KEY = (view) => `draftscope-tickets-${view}`;

export function keepTickets(view, tickets) {
  keepList(KEY(view), tickets);
}

/** A letter for each run: the one that it has in Compare, else the first free. */
export function lettersFor(tickets) {
  const there = keptTickets("compare");
  const own = tickets.map((ticket) => LETTERS[there.indexOf(ticket)]);
  const free = [...LETTERS].filter((letter) => !own.includes(letter));
  return own.map((letter) => letter ?? free.shift());
}

export function keptTickets(view) {
  return keptList(KEY(view));
}

/** Run or Compare is on view, or an engine's counts in Results. */
export function lookAt(view) {
  keep("sessionStorage", LOOKED, view);
}

/** What was looked at last: the tickets of Run or of Compare, or `file` of counts in Results. */
export function lookedAt(file) {
  const view = kept("sessionStorage", LOOKED) ?? "run";
  if (view === "results" && file) return { file };
  return { tickets: keptTickets(view === "compare" ? view : "run") };
}
