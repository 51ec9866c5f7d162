// The menu of a pane: its tree as a picture, tables, and the run.

import { button, h } from "../dom.js";
import { dialog } from "../parts.js";
import { wholeTree } from "../tree/whole.js";
import { takeAnswer, whyNot } from "./files.js";
import { paperButton } from "./paper.js";
import { FORMS, picture, savePicture } from "./picture.js";

/** words → form of a file → its button */
const FILES = {
  "This round's draft": { dot: "DOT", graphml: "GraphML" },
  "Table of rounds": { "rounds.csv": "CSV", "rounds.parquet": "Parquet" },
  "Table of nodes": { "nodes.csv": "CSV", "nodes.parquet": "Parquet" },
  "The run": { trace: "Trace", html: "One HTML file", perfetto: "Perfetto timeline" },
};

export class SaveMenu {
  constructor(pane) {
    this.pane = pane;
    const title = "Save a picture, a table or the run (s)",
      about = { "aria-haspopup": "dialog", "aria-label": "Save or export", title };
    this.button = button("Save…", { disabled: true, ...about }, () => this.open());
    this.said = h("p.ds-soft", { role: "status" });
    const whole = this._pictures(() => wholeTree(pane.tree), "tree"),
      shown = this._pictures(() => picture(pane.tree.svg), "view"),
      served = () => this._pictures(() => pane.drawing(true)),
      files = (forms) => Object.entries(forms).map((form) => this._file(...form)),
      made = pane.source.export ? Object.entries(FILES) : []; // by the server
    this.panel = dialog(
      "Save or export",
      "ds-save",
      h("h3", "Take it with you"),
      this._line("Whole tree", whole),
      this._line("Tree as shown", shown),
      pane.source.export ? this._line("This round for a paper", served()) : null,
      this._line("Pictures", paperButton()),
      made.map(([words, forms]) => this._line(words, files(forms))),
      this.said,
    );
    this.panel.addEventListener("keydown", (event) => event.stopPropagation());
  }

  open() {
    this.said.textContent = "";
    this.panel.showModal();
  }

  _line(words, buttons) {
    const about = { role: "group", "aria-label": words };
    return h("div.ds-save-line.ds-row", about, h("span", words), buttons);
  }

  _pictures(draw, what) {
    const name = () => (what ? `draftscope-round-${this.pane.at + 1}-${what}` : undefined);
    return Object.keys(FORMS).map((form) =>
      this._act(form, async () => savePicture(form, await draw(), name())),
    );
  }

  _file(form, words) {
    return this._act(words, () => takeAnswer(this._ask(form)));
  }

  _ask(form) {
    const { feed, at, source } = this.pane;
    return source.export({ ticket: feed.ticket, round: at, form });
  }

  _act(words, act) {
    return button(words, {}, async () => {
      this.said.textContent = "…";
      try {
        await act();
        this.said.textContent = `${words} saved`;
      } catch (error) {
        this.said.textContent = whyNot(error);
      }
    });
  }
}
