// Buttons that save a picture, or numbers.

import { button, h } from "../dom.js";
import { csvOf } from "./csv.js";
import { fileName, handOut, takeAnswer, whyNot } from "./files.js";
import { paperButton } from "./paper.js";
import { FORMS, savePicture } from "./picture.js";

/** A button that saves something; when it cannot, it says why until the next try, beside the menu
 * that it stands in. */
export function saveButton(words, attributes, save) {
  const said = h("span.ds-soft", { role: "alert" });
  const made = button(words, attributes, async () => {
    said.remove();
    try {
      await save();
    } catch (error) {
      said.textContent = whyNot(error);
      (made.closest(".ds-menu") ?? made).after(said);
    }
  });
  return made;
}

/** A button for each form of a picture: draw() makes it, at once or later, name() calls it, `what`
 * says it: "this grid". */
export function pictureButtons(what, draw, name) {
  const made = (form) => {
    const title = `Save ${what} as ${form}`,
      about = { class: "ds-small", title, "aria-label": title };
    return saveButton(form, about, async () => savePicture(form, await draw(), name()));
  };
  return [...Object.keys(FORMS).map(made), paperButton("ds-small")];
}

/** Buttons that save numbers as files, in a row. records() gives the numbers; `source` is the
 * server's functions and may not be able to make Parquet. */
export function savers(title, records, source) {
  const name = fileName(title);
  const made = (words, label, save) => {
    const said = `${label}: ${title}, ${words}`;
    return saveButton(words, { class: "ds-small", "aria-label": said, title: label }, save);
  };
  const csv = () => handOut(`${name}.csv`, new Blob([csvOf(records())], { type: "text/csv" })),
    parquet = () => takeAnswer(source.parquet({ name, records: records() }));
  return h(
    "span.ds-plot-tools",
    made("CSV", "Save the numbers", csv),
    source?.parquet && made("Parquet", "Save the numbers as Parquet", parquet),
  );
}
