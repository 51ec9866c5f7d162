// A page without a browser: elements that hold attributes, children and listeners, as far as the
// views that are tested make and read them.

class Part {}

class Text extends Part {
  constructor(text) {
    super();
    this.textContent = text;
  }
}

class Element extends Part {
  constructor(name) {
    super();
    Object.assign(this, { localName: name, attributes: {}, children: [], heard: {}, style: {} });
    Object.assign(this, { isConnected: true, clientWidth: 1000, clientHeight: 600 });
    this.classList = {
      contains: (look) => this.className.split(" ").includes(look),
      add: (...looks) => looks.forEach((look) => this.classList.toggle(look, true)),
      remove: (...looks) => looks.forEach((look) => this.classList.toggle(look, false)),
      toggle: (look, on = !this.classList.contains(look)) => {
        const others = this.className.split(" ").filter((each) => each && each !== look);
        this.className = [...others, ...(on ? [look] : [])].join(" ");
      },
    };
  }

  setAttribute(name, value) {
    this.attributes[name] = String(value);
    if (name === "value") this.value = String(value);
    if (name === "hidden" || name === "disabled") this[name] = true;
  }
  getAttribute(name) {
    return this.attributes[name] ?? null;
  }
  get className() {
    return this.attributes.class ?? "";
  }
  set className(looks) {
    this.attributes.class = looks;
  }

  appendChild(child) {
    this.children.push(child);
  }
  append(...children) {
    this.children.push(...children);
  }
  prepend(...children) {
    this.children.unshift(...children);
  }
  replaceChildren(...children) {
    this.children = children;
  }
  get textContent() {
    return this.children.map((child) => child.textContent ?? child).join("");
  }
  set textContent(text) {
    this.children = [new Text(String(text))];
  }

  addEventListener(name, hear) {
    this.heard[name] = [...(this.heard[name] ?? []), hear];
  }
  /** Let listeners hear of an event, and give what they give. */
  fire(name, event = {}) {
    return Promise.all((this.heard[name] ?? []).map((hear) => hear({ target: this, ...event })));
  }

  /** All elements below, of a name where one is given. */
  all(name) {
    const own = this.children.filter((child) => child instanceof Element);
    const found = own.flatMap((child) => [child, ...child.all()]);
    return name ? found.filter((each) => each.localName === name) : found;
  }
  /** The elements below of a class. */
  of(look) {
    return this.all().filter((each) => each.classList.contains(look));
  }
  querySelectorAll(wanted) {
    return wanted.startsWith(".") ? this.of(wanted.slice(1)) : this.all(wanted);
  }
  querySelector(wanted) {
    return this.querySelectorAll(wanted)[0] ?? null;
  }
  get rows() {
    return this.all("tr");
  }
  get cells() {
    return this.children;
  }
  closest() {
    return null;
  }
  contains() {
    return false;
  }
  remove() {}
  after() {}
  focus() {}
  scrollIntoView() {}
  getClientRects() {
    return [];
  }
  get options() {
    return this.all("option");
  }
}

const nothing = () => {},
  make = (name) => new Element(name);
class Observer {
  observe() {}
}

export const gone = []; // where tabs were asked to go

Object.assign(globalThis, {
  Node: Part,
  ResizeObserver: Observer,
  IntersectionObserver: Observer,
  getComputedStyle: () => ({ fontSize: "12px" }),
  document: {
    createElement: make,
    createElementNS: (_, name) => make(name),
    createTextNode: (text) => new Text(text),
    body: make("body"),
  },
  window: {
    location: { hash: "", pathname: "/", search: "" },
    history: { state: null, replaceState: nothing },
    addEventListener: nothing,
    dispatchEvent: ({ detail }) => gone.push(detail),
  },
});

/** The words of a table's cells, row by row. */
export const wordsOf = (table) =>
  table
    .all("tbody")
    .flatMap((body) => body.rows)
    .map((row) => row.children.map((cell) => cell.textContent));
