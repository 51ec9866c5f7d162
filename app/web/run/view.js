// Run: one run. Its tab is there from the start, so it also opens the other tabs,
// and takes the files of the whole page.

import { followHistory } from "../address.js";
import { takeFiles } from "../drop.js";
import { isOnView, onGoTo, wantTab } from "../goto.js";
import { listenForPresent } from "../present.js";
import { tabs } from "../roving.js";
import { addSkip } from "../skip.js";
import { mountStudio } from "../studio/mount.js";
import { restoreTheme } from "../theme.js";

export function mount(page) {
  const openTab = (name) => {
    if (isOnView(name)) return true;
    wantTab(name);
    page.tab();
    return false;
  };
  restoreTheme();
  addSkip();
  tabs(document.querySelector("#ds-views [role=tablist]"));
  listenForPresent();
  mountStudio(page, { view: "run", places: 1, stop: "ds" });
  onGoTo(page.element, ({ view }) => openTab(view));
  takeFiles(page);
  followHistory(openTab);
}
