// The view of runs in the page: what the tabs Run and Compare have in common.

import { onShown, readAddress, viewOf } from "../address.js";
import { answered } from "../feed.js";
import { formAbove, recallForm, triggerOf, writePrompt } from "../form.js";
import { leftHere, typedIn } from "../memory.js";
import { News } from "../news.js";
import { Studio } from "../studio.js";
import { notFromCourse } from "./from-course.js";
import { restore } from "./page.js";
import { lookAt } from "./shelf.js";

/** The studio of one tab: its name, how many runs it shows, and whose Stop it hears. */
export async function mountStudio(page, setting) {
  const bar = (await formAbove(setting.stop)).querySelector(".ds-bar");
  const source = { ...page.server, news: new News() },
    trigger = triggerOf(page, setting.stop),
    studio = new Studio(page.element, source, trigger, { ...setting, bar });
  const state = readAddress(),
    known = promptNamed(state, page.props.value) ?? leftHere(setting.stop);
  if (viewOf(state) === setting.view && !typedIn(setting.stop))
    writePrompt(setting.stop, known ?? (state.run && "")); // another would flash up
  recallForm(setting.stop, trigger);
  onShown(studio.scope, () => lookAt(setting.view));
  studio.link.listen(async (atStart) => {
    const isRestored = atStart && restore(studio),
      unseen = setting.view === "run" && viewOf(readAddress()) !== "run"; // made from the start
    if (isRestored || unseen) return;
    await showFirst(studio, page.server);
    studio.vacate();
  });
  page.watch("value", () => {
    const value = page.props.value || {};
    if (value.error) studio.complain(value.error);
    else if (value.tickets) {
      studio.opening.filling.starts(value.tickets);
      notFromCourse(setting.stop);
      studio.picking.end(); // an example that was clicked before
      studio.open(...value.tickets);
    }
  });
}

/** The prompt of the first run that an address names, where it is known before the run has come. */
export function promptNamed({ trace = "", made }, { prompts } = {}) {
  return Array.isArray(made) ? made[0]?.prompt : prompts?.[trace.split("-")[0]];
}

/** There is something to look at from the start: a good round of the first example, or of two. */
async function showFirst(studio, server) {
  const { first } = await answered(server.examples({})),
    names = first?.[studio.where.view];
  if (names && studio.opening.may) await studio.opening.on(names);
}
