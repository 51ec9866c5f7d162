// One Tab stop for a row of tools or tabs, as the ARIA authoring practices have it: left and
// right move within it, Home and End go to its ends. The page has uses of its own for these keys,
// so here they move only a focus that came by a key, not by a press.

// A "⋯" is a tool too; up and down go along its entries (parts.js).
const TOOL = ":is(button, summary):not(.ds-menu-list *)";
const STEPS = { ArrowLeft: -1, ArrowRight: 1 };

/** Where a key leads among `count` tools from number `at`; null: a toolbar does not use the key. */
export function toolAfter(key, at, count) {
  if (key === "Home") return 0;
  if (key === "End") return count - 1;
  return Object.hasOwn(STEPS, key) ? (at + STEPS[key] + count) % count : null;
}

/** Make an element a toolbar of the buttons it holds, now or later; gives the element. What is
 * typed into keeps a stop of its own. */
export function toolbar(label, element) {
  element.setAttribute("role", "toolbar");
  element.setAttribute("aria-label", label);
  new RovingStop(element);
  return element;
}

/** The same for a list of tabs, which Gradio draws; without one the page works as before. Enter
 * opens the tab in hand. */
export function tabs(list) {
  if (list) new RovingStop(list);
}

const isCurrent = (tool) =>
  (tool.getAttribute("aria-current") ?? tool.ariaSelected ?? "false") !== "false";

/** Whether a change is one of tools, and not of words beside them. */
function isOfTools({ type, addedNodes, removedNodes }) {
  const holds = (node) => node.matches?.(TOOL) || node.querySelector?.(TOOL);
  return type === "attributes" || [...addedNodes, ...removedNodes].some(holds);
}

class RovingStop {
  constructor(element) {
    this.element = element;
    this.stop = null; // where the Tab key stops
    this.last = null; // the tool that somebody used last
    this.byKey = false; // whether the focus came by a key
    element.addEventListener("focusin", ({ target }) => this._enter(target));
    element.addEventListener("pointerdown", () => (this.byKey = false));
    element.addEventListener("keydown", (event) => this._key(event));
    const later = () => this._later();
    const attributeFilter = ["disabled", "hidden", "aria-current", "aria-selected"];
    const change = { subtree: true, childList: true, attributes: true, attributeFilter };
    new MutationObserver((seen) => seen.some(isOfTools) && later()).observe(element, change);
    new ResizeObserver(later).observe(element); // a window of another width may show other tools
  }

  /** The tools that can be used now, as they stand on the page. */
  get _tools() {
    const buttons = [...this.element.querySelectorAll(TOOL)];
    return buttons.filter((each) => !each.disabled && each.checkVisibility());
  }

  _enter(target) {
    this.byKey = target.matches(":focus-visible");
    this.last = target.closest(TOOL) ?? this.last;
    this._settle();
  }

  /** Once a frame: which tools are seen is a question to the page's layout. */
  _later() {
    this.waiting ||= requestAnimationFrame(() => {
      this.waiting = null;
      this._settle();
    });
  }

  /** The stop is the tool that was used last, or the one after it when that cannot be; while the
   * focus is elsewhere it is the one that is current, in the middle of a row that is scrolled. */
  _settle() {
    const tools = this._tools;
    const focused = document.activeElement;
    const current = this.element.contains(focused) ? null : tools.find(isCurrent);
    if (current) this.element.scrollLeft += middle(current) - middle(this.element);
    const wanted = current ?? this.last;
    const stop = tools.includes(wanted) ? wanted : nearest(tools, wanted);
    for (const each of this.element.querySelectorAll(TOOL)) each.tabIndex = each === stop ? 0 : -1;
    const lost = focused === this.stop && this.byKey && !tools.includes(focused);
    this.stop = stop;
    if (lost) stop?.focus();
  }

  _key(event) {
    const { target, key, shiftKey, ctrlKey, metaKey, altKey } = event;
    if (shiftKey || ctrlKey || metaKey || altKey || event.defaultPrevented || !this.byKey) return;
    const tools = this._tools;
    const at = tools.indexOf(target);
    const to = toolAfter(key, at, tools.length);
    if (at < 0 || to === null) return;
    event.preventDefault();
    tools[to].focus();
  }
}

function middle(element) {
  const { left, right } = element.getBoundingClientRect();
  return (left + right) / 2;
}

/** The first tool after one that is gone, else the last before it; without one, the first. */
function nearest(tools, gone) {
  if (!gone) return tools[0] ?? null;
  const isAfter = (each) => gone.compareDocumentPosition(each) & Node.DOCUMENT_POSITION_FOLLOWING;
  return tools.find(isAfter) ?? tools.at(-1) ?? null;
}
