// Files that What-if opens: a collected text, and a result of the command cost.

import { answered } from "../feed.js";
import { optionsOf } from "../parts.js";

/** A file that was dropped on the page: the server has it, and says which route opens it. `others`:
 *  {path, name} of texts that were dropped beside it, over which the curve is drawn, too. */
export async function showPlaced(view, { route, path, name, others = [] }) {
  const opening = answered(view.source[route]({ path }));
  if (route !== "open") return showCosts(view, opening);
  await showText(view, opening, name);
  const shown = view.file;
  for (const each of others) {
    const { file } = await answered(view.source.open({ path: each.path }));
    if (!file) continue;
    if (view.file === shown) view.more.chosen.push(file);
    offerText(view, file, each.name, {});
  }
  if (others.length && view.file === shown) view.more.hear();
}

/** Show a text that the server is opening. */
export async function showText(view, opening, title) {
  view.leave();
  const isWanted = view.expect(),
    answer = await view.hear(opening, isWanted);
  if (answer) await view.turnTo(answer.file, title);
  else if (isWanted()) await view.settle();
}

/** A text can be chosen from now on. Of one that was collected for a run: `apart`, where it leaves
 *  the run's text, and `made`, what an address says of the run. */
export function offerText(view, name, title, { apart, made }) {
  const { files } = view,
    listed = [...files.options].some((each) => each.value === name);
  if (title && !listed) files.append(...optionsOf([[name, title]]));
  files.hidden = false;
  if (apart !== undefined) view.apart.set(name, apart);
  if (made !== undefined) view.made.set(name, made);
  const texts = [...files.options].map((each) => [each.value, each.text]);
  view.more.show(texts, view.file);
  view.present();
}

/** The times of a result of cost in place of the estimate's. */
export async function showCosts(view, opening) {
  const answer = await view.hear(opening, view.costs.take());
  if (!answer) return;
  Object.assign(view, answer); // cost: its name on the server; of: whose times these are
  if (view.about) view.turned(true);
  else await view.settle();
}
