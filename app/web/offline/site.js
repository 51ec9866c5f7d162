// The script of a site's index page: the list of its runs, the view of those that the address
// names, and the course. Every run's data is a file of its own, loaded when it is opened.

import { followHistory, readAddress } from "../address.js";
import { button, h, say } from "../dom.js";
import { Learn } from "../learn/view.js";
import { banner } from "../parts.js";
import { listenForPresent } from "../present.js";
import { Studio } from "../studio.js";
import { followSystem } from "../theme.js";
import { RunList } from "./list.js";
import { Pack } from "./packs.js";
import { dataFrom } from "./scripts.js";
import { PackSource } from "./source.js";

const FOLDER = "runs/";
const COURSE = "learn.js";

/** Packs by the names of their runs, each loaded once. A run that cannot be loaded is asked for
 * again the next time. */
class SiteSource extends PackSource {
  constructor({ runs, cautions }) {
    const known = new Map(runs.map((run) => [run.name, run]));
    const packs = new Map();
    const packOf = (name) => {
      if (!known.has(name)) return Promise.resolve(null);
      if (!packs.has(name)) packs.set(name, loaded(name));
      return packs.get(name);
    };
    const loaded = async (name) => {
      try {
        const pack = new Pack(await dataFrom(`${FOLDER}${name}.js`));
        await pack.about();
        return pack;
      } catch (error) {
        packs.delete(name);
        throw error;
      }
    };
    super(packOf, (name) => known.get(name).apart, Object.entries(cautions));
  }

  /** A run's ticket is its name. */
  named(ticket) {
    return ticket;
  }

  /** A run by its name, as links have it. */
  async example({ name }) {
    try {
      if (await this.packOf(name)) return { ticket: name };
      return { error: "there is no such run here" };
    } catch (error) {
      return { error: error.message };
    }
  }
}

class Site {
  constructor(root, nav, told) {
    this.known = new Set(told.runs.map((run) => run.name));
    this.note = banner();
    const open = (names, round) =>
        goToHash(`trace=${names.join(",")}${round ? `&round=${round}` : ""}`),
      runs = new RunList(told.runs, open);
    const places = {
      list: h("div", h("div.ds-scope.ds-site", this.note, runs.element)),
      run: h("div", { hidden: true }),
      learn: h("div", { hidden: true }),
    };
    this.places = places;
    const buttons = {
      list: button("Runs", {}, () => goToHash("view=list")),
      ...(told.course && { learn: button("Learn", {}, () => goToHash("learn=1.1")) }),
    };
    this.buttons = buttons;
    nav.replaceChildren(...Object.values(buttons));
    root.replaceChildren(...Object.values(places));
    this.studio = new Studio(places.run, new SiteSource(told), () => {});
    followHistory((view) => this._show(view));
    this.studio.link.listen();
  }

  /** Show the part that a view and the address name; the list where it is not here. */
  _show(view) {
    const names = readAddress().trace?.split(",") ?? [];
    const here = names.length > 0 && names.every((name) => this.known.has(name));
    const own = view === "run" ? here : Object.hasOwn(this.buttons, view);
    const shown = own ? view : "list";
    say(this.note, names.length && !here && "The address names a run that is not here.");
    for (const [name, place] of Object.entries(this.places)) place.hidden = name !== shown;
    for (const [name, made] of Object.entries(this.buttons))
      made.setAttribute("aria-current", name === shown ? "page" : "false");
    if (shown === "learn") this._learn();
    return true;
  }

  /** The course is loaded when somebody first looks at it. */
  async _learn() {
    if (this.lessons) return;
    const place = this.places.learn;
    try {
      const course = JSON.parse(await dataFrom(COURSE));
      this.lessons ??= new Learn(place, course);
    } catch (error) {
      place.replaceChildren(banner(error.message));
    }
  }
}

/** A place of its own in the browser's history. */
function goToHash(words) {
  window.location.hash = words;
}

function openSite() {
  followSystem();
  listenForPresent(document.getElementById("ds-present"));
  const told = JSON.parse(document.getElementById("ds-site").textContent);
  new Site(document.querySelector("main"), document.querySelector("nav"), told);
}

openSite();
