// The tab Run is there from the start, so it also opens the other tabs when somebody asks for one.

const shown = mountStudio("run", 1, "ds");

window.addEventListener("draftscope-goto", ({ detail }) => openTab(detail.view));

/** A tab by its name. */
function openTab(view) {
  const tabs = [...document.querySelectorAll("#ds-views [role=tab][data-tab-id]")];
  const tab = tabs.find((each) => each.getAttribute("data-tab-id") === view);
  if (tab) tab.click();
}

const linked = /[#&]learn=/.test(window.location.hash) ? "learn" : readLink(window.location.hash).view;
if (linked && linked !== "run") setTimeout(() => openTab(linked), 60);
