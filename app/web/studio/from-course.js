// A form that the course has filled, and the way back to it.

import { onShown } from "../address.js";
import { button, h } from "../dom.js";
import { toPrompt, writePrompt } from "../form.js";
import { goTo } from "../goto.js";
import { keepTyped } from "../memory.js";
import { togglePresent } from "../present.js";

/** Fill the form with a chapter's settings. asked: {filling, chapter: its number, own: a prompt of
 * one's own is to be written, presented: the course was, and is so again on the way back}. */
export function fillFromCourse(studio, { filling, chapter, own, presented }) {
  const { prompt, ...others } = filling,
    prefix = studio.where.stop;
  keepTyped(prefix, true); // the run on view is not to write over it
  writePrompt(prefix, own ? "" : prompt);
  studio.trigger("refill", { filling: others });
  const what = own ? "Write your prompt and press Start." : "Press Start to follow along.",
    words = `The form has the method and the settings of chapter ${chapter}. ${what}`,
    line = h("p.ds-banner.note.ds-row.ds-from-course", { role: "status" }, h("span", words));
  const back = () => {
    line.remove();
    goTo({ view: "learn" });
    // Once the tab is there, the lesson has the focus that this button had.
    const title = document.querySelector(".ds-lesson-title");
    const arrived = () => {
      if (presented) togglePresent(title.closest(".ds-learn"));
      title.focus({ preventScroll: true });
    };
    if (title) onShown(title, arrived, true);
  };
  line.dataset.chapter = chapter;
  line.append(button("Back to the course", {}, back));
  document.querySelector(".ds-from-course")?.remove();
  document.getElementById(`${prefix}-panel`).before(line);
  let opened = false;
  onShown(line, () => {
    if (!opened) toPrompt(prefix); // once the tab is there
    opened = true;
  });
}

/** The form holds something else, or was started: of the line above it the way back stays. */
export function notFromCourse(prefix) {
  const line = document.getElementById(`${prefix}-panel`)?.previousElementSibling;
  if (!line?.matches(".ds-from-course")) return;
  line.querySelector("span").textContent = `From chapter ${line.dataset.chapter}.`;
}
