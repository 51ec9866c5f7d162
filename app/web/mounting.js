// A tab's view is made when the tab is first opened; one that cannot be says so in its place.

import { h } from "./dom.js";
import { banner } from "./parts.js";

/** Make a view: mount(page) of a tab's script. */
export async function mounted(page, mount) {
  try {
    await mount(page);
  } catch (error) {
    console.error(error);
    const said = `This view could not be drawn: ${error?.message ?? error}`;
    page.element.replaceChildren(h("div.ds-scope", banner(said)));
  }
}
