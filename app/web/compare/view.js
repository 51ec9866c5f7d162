// Compare: up to four runs side by side.

import { mountStudio } from "../studio/mount.js";

export function mount(page) {
  mountStudio(page, { view: "compare", places: 4, stop: "ds-c" });
}
