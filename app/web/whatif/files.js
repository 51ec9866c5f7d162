// Files that What-if opens: a collected text, and a result of the command cost.

/** A file that was dropped on the page: the server has it, and says which route opens it. */
export function showPlaced(view, { route, path, name }) {
  const opening = view.ask(route, { path });
  return route === "open" ? showText(view, opening, name) : showCosts(view, opening);
}

/** Show a text that the server is opening. */
export async function showText(view, opening, title) {
  view.awaiting(true);
  const answer = await opening;
  if (answer) await view.turnTo(answer.file, title);
  else view.awaiting(false);
}

/** The times of a result of cost in place of the estimate's. */
export async function showCosts(view, opening) {
  const answer = await opening;
  if (!answer) return;
  Object.assign(view, answer); // cost: its name on the server; of: whose times these are
  if (view.about) view.turned(true);
  else if (view.listed?.length) await view.open(view.listed[0]);
}
