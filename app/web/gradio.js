// What the page does with Gradio's own elements, since Gradio has no call for it: opening a tab,
// and choosing files for an upload button that is not displayed. Everything else is ours, or goes
// through events and server functions. When Gradio changes its elements, this file follows.

/** Open a tab by its name, and say whether it is on view now. Those that a narrow window has no
 * room for are entries of a menu, which are known by their words only. */
export function openTab(view) {
  const onView = () => !!document.getElementById(`ds-view-${view}`)?.getClientRects().length;
  if (onView()) return true;
  const all = (where) => [...document.querySelectorAll(`#ds-views ${where}`)],
    plain = (words) => words.toLowerCase().replace(/[^a-z]/g, "");
  const tab =
    all("[role=tab][data-tab-id]").find((each) => each.getAttribute("data-tab-id") === view) ||
    all(".overflow-menu button").find((each) => plain(each.textContent) === view);
  tab?.click();
  return onView();
}

/** Choose files for Gradio's upload button of this id: it knows how to send them. */
export function chooseFiles(id) {
  const found = document.getElementById(id);
  (found?.matches("button") ? found : found?.querySelector("button"))?.click();
}
