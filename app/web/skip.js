// The first stop of the Tab key: to what the open tab shows, past its form and tools.

import { button } from "./dom.js";

const PLACES = "svg.ds-tree, .ds-learn, [tabindex='0'][role=listbox], .ds-card";

export function addSkip() {
  const skip = button("Skip to the tree", { class: "ds-skip" }, () => {
    const places = [...document.querySelectorAll(PLACES)];
    const first = (kind) =>
      places.find((each) => each.matches(kind) && each.getClientRects().length);
    const place = first("svg.ds-tree") ?? first("*");
    if (!place) return;
    if (!place.hasAttribute("tabindex")) place.setAttribute("tabindex", "-1");
    place.focus();
  });
  document.body.prepend(skip);
}
