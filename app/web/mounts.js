// What is run when a component of the page is there, by its name. `page` is what Gradio gives it:
// {element, props, server, watch}, and {running, settled, refill}, which tell Python that it works,
// rests, or wants its form filled again.

import { followHistory, onShown, visit } from "./address.js";
import { Calibration } from "./calibration/view.js";
import { DenoiseView } from "./denoise/view.js";
import { h } from "./dom.js";
import { answered } from "./feed.js";
import { formAbove } from "./form.js";
import { onGoTo } from "./goto.js";
import { openTab } from "./gradio.js";
import { Learn } from "./learn/view.js";
import { recall } from "./memory.js";
import { News } from "./news.js";
import { Results } from "./results/view.js";
import { addSkip } from "./skip.js";
import { restore } from "./studio/page.js";
import { Studio } from "./studio.js";
import { restoreTheme } from "./theme.js";
import { WhatIf } from "./whatif/view.js";

const PHONE = "(max-width: 600px)";

export const MOUNTS = {
  /** The tab Run is there from the start, so it also opens the other tabs. */
  run(page) {
    restoreTheme();
    addSkip();
    formAbove("ds");
    mountStudio(page, { view: "run", places: 1, stop: "ds" });
    onGoTo(page.element, ({ view }) => openTab(view));
    followHistory(openTab);
  },

  compare(page) {
    formAbove("ds-c");
    mountStudio(page, { view: "compare", places: 4, stop: "ds-c" });
  },

  /** Its value is a result file that somebody opened. */
  calibration({ element, props, server, watch }) {
    const view = new Calibration(element, { ...server, news: new News("rounds") });
    onShown(element, () => visit({ view: "calibration" }));
    watch("value", () => {
      const value = props.value || {};
      if (value.figures || value.error) view.result(value);
    });
  },

  /** Its value names a file that somebody opened. */
  whatif({ element, props, server, watch }) {
    const view = new WhatIf(element, { ...server, news: new News("rounds") });
    watch("value", () => {
      const value = props.value || {};
      if (value.error) view.complain(value.error);
      else if (value.file) view.open(value.file, "the opened file");
      else if (value.cost) view.measured(value);
    });
  },

  results({ element, server }) {
    return new Results(element, server);
  },

  denoise(page) {
    formAbove("ds-d");
    const source = { ...page.server, news: new News("calls") },
      view = new DenoiseView(page.element, source, (name) => page[name]());
    onShown(page.element, () => visit({ view: "denoise" }));
    view.restore();
    page.watch("value", () => {
      const value = page.props.value || {};
      if (value.error) view.complain(value.error);
      else if (value.tickets) view.open(value.tickets);
    });
  },

  /** The course is fetched once, then it needs no server. */
  async learn({ element, server }) {
    const course = await answered(server.course({}));
    if (!course.error) return new Learn(element, course);
    element.replaceChildren(h("p", { class: "ds-banner", role: "alert" }, course.error));
  },
};

/** The studio of one tab: its name, how many runs it shows, and whose Stop it presses. */
function mountStudio(page, setting) {
  const source = { ...page.server, news: new News("rounds") },
    studio = new Studio(page.element, source, (name, asked) => page[name](asked), setting),
    filling = recall(setting.stop);
  if (filling) page.refill({ filling });
  studio.link.listen().then((opened) => {
    if (!opened) restore(studio);
    if (setting.view === "run" && window.matchMedia(PHONE).matches) showFirst(studio, page.server);
  });
  page.watch("value", () => {
    const value = page.props.value || {};
    if (value.error) studio.complain(value.error);
    else if (value.tickets) studio.open(...value.tickets);
    else if (value.added) value.added.forEach((ticket) => studio.beside(ticket));
  });
}

/** On a phone there is something to look at from the start: the first example. */
async function showFirst(studio, server) {
  const { first } = await answered(server.examples({}));
  const idle = !studio.panes[0].feed.ticket && !studio.status.complaint;
  if (first && idle) studio.link.apply({ trace: first });
}
