// Going from one tab to another: what was asked for waits here until that tab takes it. A tab that
// is opened for the first time is made only then, so nobody may be listening yet.

let wanted = null;
let tab = null; // the name of the tab that Gradio is asked to open
const GONE_TO = "draftscope-goto",
  CHOOSE = "draftscope-choose";

/** Go to a view, and there to a run, a round (from 0) and a node. */
export function goTo(detail) {
  wanted = detail;
  window.dispatchEvent(new CustomEvent(GONE_TO, { detail }));
}

/** Take what this view was asked for, once; null: nothing. */
export function taken(view) {
  if (wanted?.view !== view) return null;
  const asked = wanted;
  wanted = null;
  return asked;
}

/** Call `hear` with every request, for whatever view, while `element` is on the page. */
export function onGoTo(element, hear) {
  hearWhile(element, GONE_TO, hear);
}

/** Whether a tab is on view. */
export function isOnView(name) {
  return !!document.getElementById(`ds-view-${name}`)?.getClientRects().length;
}

/** Name the tab that Gradio's event `tab` opens (see app/studio/components.py). */
export function wantTab(name) {
  tab = name;
}

export function wantedTab() {
  return tab;
}

/** Let somebody choose files, or a folder, to be opened where they belong. */
export function askForFiles(folder = false) {
  window.dispatchEvent(new CustomEvent(CHOOSE, { detail: folder }));
}

/** Call `hear` when files, or a folder, are to be chosen, while `element` is on the page. */
export function onChoose(element, hear) {
  hearWhile(element, CHOOSE, hear);
}

/** Call `hear` with every event of a name, while `element` is on the page. */
function hearWhile(element, name, hear) {
  const listen = ({ detail }) => {
    if (element.isConnected) hear(detail);
    else window.removeEventListener(name, listen);
  };
  window.addEventListener(name, listen);
}
