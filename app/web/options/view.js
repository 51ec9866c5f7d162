// What the method on view drafts, and inputs of its builder and options, made when it is chosen.
// The component's value is what `options_value` of app/studio/forms.py says.

import { h } from "../dom.js";
import { answered } from "../feed.js";
import { optionsOf } from "../parts.js";

const OWN = "own", // the method's own builder
  OWN_WORDS = "as the method's own";
let described = null; // what the server offers, for all forms of the page
let made = 0; // ids that were given

async function offers(server) {
  described ??= answered(server.described({}));
  const found = await described;
  if (found.error) described = null; // asked again with the next method
  return found;
}

export function mount(page) {
  const shown = new MethodOptions(page);
  page.watch("value", () => shown.draw());
  return shown.draw();
}

class MethodOptions {
  constructor({ element, props, server }) {
    Object.assign(this, { props, server });
    this.builder = h("div.ds-fields");
    this.fields = h("div.ds-fields");
    const words = h("summary", "Builder and options");
    this.fold = h("details", { hidden: true }, words, this.builder, this.fields);
    this.about = h("p.ds-soft");
    element.replaceChildren(this.about, this.fold);
  }

  /** Draw the inputs of the method that the value names. */
  async draw() {
    const { methods = {}, about = {}, options, error } = await offers(this.server),
      { method } = this.props.value, // now: it may be another one
      own = methods[method] ?? {},
      isFree = Object.keys(own).length > 1;
    this.fieldsOf = (builder) => (own[builder] ?? []).map((at) => options[at]);
    this.about.textContent = about[method] ?? "";
    this.builder.replaceChildren(isFree ? this._builder(Object.keys(own)) : "");
    this._draw();
    if (error && method) this.fields.append(h("p", error));
    this.fold.hidden = !isFree && !this.fields.children.length;
  }

  _draw() {
    const { builder } = this.props.value;
    this.fields.replaceChildren(...this.fieldsOf(builder).map((each) => this._field(each)));
  }

  /** Another builder has other options. */
  _builder(names) {
    const words = names.map((name) => [name, name === OWN ? OWN_WORDS : name]),
      input = h("select", optionsOf(words));
    input.value = this.props.value.builder;
    input.addEventListener("change", () => {
      this.props.value = { method: this.props.value.method, builder: input.value, options: {} };
      this._draw();
    });
    return labelled("Builder", input);
  }

  _field({ name, label, about, value: usual, step }) {
    const isFlag = typeof usual === "boolean",
      input = h("input", isFlag ? { type: "checkbox" } : { type: "number", step }),
      value = this.props.value.options[name] ?? usual;
    if (isFlag) input.checked = value;
    else input.value = value;
    input.addEventListener(isFlag ? "change" : "input", () => {
      const { value: before } = this.props,
        typed = Number.isNaN(input.valueAsNumber) ? null : input.valueAsNumber,
        options = { ...before.options, [name]: isFlag ? input.checked : typed };
      this.props.value = { ...before, options };
    });
    return labelled(label, input, about);
  }
}

/** An input below its label and what is said of it; a tick stands before its label. */
function labelled(label, input, about) {
  const id = `ds-field-${++made}`,
    words = about ? h("small", { id: `${id}-about` }, about) : "";
  input.id = id;
  if (about) input.setAttribute("aria-describedby", `${id}-about`);
  const name = h("label", { for: id }, label),
    isFlag = input.type === "checkbox",
    parts = isFlag ? [h("span", input, name), words] : [name, words, input];
  return h("div.ds-field", parts);
}
