// The words of a step, and the question at a chapter's end.

import { button, h } from "../dom.js";

/** Paragraphs of spans: strings, or a term, a token, a number. */
export function paragraphs(texts) {
  return texts.map((spans) => h("p", {}, spans.map(spanOf)));
}

function spanOf(span) {
  if (typeof span === "string") return span;
  const [kind, words] = Object.entries(span)[0];
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
      made = button("", look, () => onAnswer(at));
    made.append(
      h("kbd", {}, keys[at]),
      h("span", {}, option.label),
      h("span", { class: "sign", "aria-hidden": "true" }, sign),
    );
    return made;
  });
  const why = given === undefined ? null : quiz.options[given].why;
  return [
    quiz.question ? h("p", { class: "ds-question" }, quiz.question) : "",
    h("div", { class: `ds-options${quiz.question ? "" : " tokens"}` }, options),
    ...(why ? [h("p", { class: "ds-answer", role: "status" }, [why].flat().map(spanOf))] : []),
  ];
}
