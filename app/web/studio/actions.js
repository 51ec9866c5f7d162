// What can be done with the run on view, and what is said about it beside the prompt.

import { rootPlace } from "../align.js";
import { h, plural, runName } from "../dom.js";
import { openForm } from "../form.js";
import { goTo } from "../goto.js";
import { action } from "../parts.js";
import { notFromCourse } from "./from-course.js";

export class RunActions {
  /** alone: the studio holds one run only. */
  constructor(studio, alone) {
    const { source } = studio,
      live = !!source.examples,
      first = () => studio.panes[0],
      place = () => 1 + rootPlace(first().rounds, Math.max(0, first().at)), // of the round on view
      to = (view) => () => goTo({ view, ticket: first().feed.ticket, place: place() }),
      whatIf = "What every method and budget would have drafted on this prompt";
    this.canSave = !!source.save;
    this.again = action("Run again…", "Fill the form with this run's settings", () =>
      runAgain(studio),
    );
    this.compare = action("Compare…", "Put this run into a comparison", to("compare"));
    this.whatIf = action("What if…", whatIf, to("whatif"));
    this.save = action("Save trace", "Download this run as .jsonl.gz", () => first().saveTrace());
    this.files = h("span.ds-drawings"); // of the run on view: see Frame
    this.again.hidden = !live;
    this.compare.hidden = this.whatIf.hidden = !live || !alone;
    this.buttons = [this.again, this.compare, this.whatIf, this.save];
    this.allow(false);
  }

  /** All of them, for the menu. */
  get all() {
    return [...this.buttons, this.files];
  }

  /** Whether there is a run to do things with, and whether one alone can be saved here. */
  allow(some, several) {
    for (const each of this.buttons) each.disabled = !some;
    this.save.hidden = several || !this.canSave;
  }
}

/** Fill the form with the settings of what is shown, to be changed and started. */
function runAgain({ trigger, runs, where }) {
  trigger("refill", { tickets: runs.tickets });
  notFromCourse(where.stop);
  openForm(where.stop);
}

/** Say which runs are on view, in words: in the status line, and at each pane. */
export function describe(status, panes) {
  const { header } = panes[0].feed,
    words = panes.length > 1 ? unlike(panes.map(({ feed }) => feed.header)) : aboutRun(header);
  status.tell(header, words, lengthOf(header));
  for (const pane of panes) {
    pane.name.textContent = pane.title;
    pane.name.title = aboutRun(pane.feed.header);
  }
}

/** A run by its name, model and temperature on one line; the seed where it matters. */
function aboutRun(header) {
  if (!header) return "";
  const pick = new Map(header.settings),
    parts = [runName(header), header.model];
  if (pick.has("temperature")) parts.push(`T ${Number(pick.get("temperature"))}`);
  if (pick.has("seed") && Number(pick.get("temperature"))) parts.push(`seed ${pick.get("seed")}`);
  return parts.filter(Boolean).join(" · ");
}

/** The temperatures of several runs where they differ: the form, whose are one, has the first's. */
function unlike(headers) {
  const all = headers.map((header) => new Map(header?.settings).get("temperature")),
    known = [...new Set(all.filter((each) => each !== undefined).map(Number))];
  return known.length > 1 ? `these runs: T ${known.join(" and ")}` : "";
}

function lengthOf(header) {
  return header ? plural(header.prompt_tokens, "prompt token") : "";
}
