// The words of a step, and the question at a chapter's end.

import { button, h } from "../dom.js";

/** Paragraphs of spans: strings, or a term, a token, a number, a power. */
export function paragraphs(texts) {
  return texts.map((spans) => h("p", spans.map(spanOf)));
}

/** Two ways from a chapter to Run: open(own) with its prompt, or for one's own; without them the
 * command that makes its run. */
export function onward({ command }, open) {
  if (!open) return h("p.ds-onward", "To follow along: ", h("code", command));
  const link = (words, own) => button(words, {}, () => open(own));
  const both = [link("Follow along in Run", false), link("Your own prompt", true)];
  return h("div.ds-onward", both);
}

/** The words of an element, block by block: a paragraph, or an answer as "a: …". */
export function spoken(element) {
  const blocks = [...element.querySelectorAll("p, button")].map((each) => {
    const key = each.querySelector("kbd");
    return key ? `${key.textContent}: ${key.nextSibling.textContent}.` : each.textContent;
  });
  return blocks.join(" ");
}

function spanOf(span) {
  if (typeof span === "string") return span;
  const [kind, words] = Object.entries(span)[0];
  if (kind === "sup") return h("sup", h("span.ds-unseen", "^"), words);
  return h({ term: "em", token: "code", num: "b" }[kind], { class: `ds-said ${kind}` }, words);
}

/** A question; `given`: which option was chosen, if one was. onAnswer(option). keys: what each is
 * pressed by. */
export function question(quiz, given, onAnswer, keys = "abc") {
  const state = (at) => {
    if (given === undefined) return "";
    if (at === quiz.answer) return "right";
    return at === given ? "wrong" : "";
  };
  const options = quiz.options.map((option, at) => {
    const look = { class: `ds-option ${state(at)}`, "aria-pressed": String(given === at) },
      sign = { right: "✓", wrong: "×" }[state(at)] || "",
      words = [h("kbd", keys[at]), h("span", option.label)],
      mark = h("span.sign", { "aria-hidden": "true" }, sign);
    return button([...words, mark], look, () => onAnswer(at));
  });
  const why = given === undefined ? null : quiz.options[given].why;
  return [
    quiz.question ? h("p.ds-question", quiz.question) : "",
    h("div", { class: `ds-options${quiz.question ? "" : " tokens"}` }, options),
    ...(why ? [h("p.ds-answer", { role: "status" }, [why].flat().map(spanOf))] : []),
  ];
}
