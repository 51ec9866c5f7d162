// "Why it was drafted": one section of the inspector. What it says is data of
// app/view/explanation.py, which reads the method's own declaration; here are its layouts: path,
// versus, terms.

import { h, number, percent, plural, tiny } from "./dom.js";
import { bar } from "./parts.js";

const CHAIN = 6; // factors of a path that are written out

/** The section of a drafted node. */
export function explanationSection(node) {
  const told = node.explanation;
  const body = { path: pathLines, versus: versusLines, terms: termLines }[told.layout](node, told);
  const lead = h("p", told.lead, ` q ${node.q === null ? "not recorded" : percent(node.q)}.`),
    leaf = told.leaf ? h("p.ds-leaf", `⊣ ${told.leaf}`) : null,
    about = { class: `ds-drafted ${told.layout}`, "aria-label": "Why it was drafted" },
    parts = [lead, body, noteLines(told), leaf, softLine(told.closing)];
  return h("section", about, h("h3", "why it was drafted"), parts);
}

function ordinal(count) {
  const teen = count % 100 > 10 && count % 100 < 14;
  return count + (teen ? "th" : { 1: "st", 2: "nd", 3: "rd" }[count % 10] || "th");
}

function signed(value) {
  return value === null || value === undefined ? "–" : (value > 0 ? "+" : "") + number(value);
}

/** A note's value in the form it declares. */
export function noteText(value, form) {
  if (value === null || value === undefined) return "–";
  return { probability: percent, signed, count: String }[form]?.(value) ?? number(value);
}

// ── parts of every layout ──────────────────────────────────────────────────────────────────────

/** Declared notes, and what the node's mark means. */
function noteLines(told) {
  const [sign, help] = told.mark;
  const notes = told.notes.map(
    ([label, value, form, words]) =>
      `${label} ${noteText(value, form)}${words ? `: ${words}` : ""}.`,
  );
  const mark = sign && told.layout !== "versus" ? `${sign} ${help}.` : "";
  return [mark, ...notes].map(softLine);
}

function softLine(words) {
  return words ? h("p.ds-soft", words) : null;
}

/** Where the score stands among the draft's nodes; null: it is not recorded. */
function placeLine(told, byPath) {
  if (told.score === null) return null;
  const among = `of this draft's ${plural(told.nodes, "node")}`;
  const words = byPath
    ? `${ordinal(told.place)} most probable path ${among}.`
    : `${ordinal(told.place)} best score ${among}: ${signed(told.score)}.`;
  const mark = h("i.mark"),
    track = h("span.ds-place-track", { "aria-hidden": "true" }, mark);
  mark.style.left = `${(100 * (told.place - 1)) / Math.max(1, told.nodes - 1)}%`;
  return h("p", words, track);
}

// ── path: Π q ──────────────────────────────────────────────────────────────────────────────────

/** Π q written out, and the place it earns among the draft's nodes. */
function pathLines(node, told) {
  const shown = told.factors.slice(-CHAIN).map(percent),
    cut = told.factors.length > CHAIN ? "… × " : "";
  const about = { title: "q along the path, multiplied" },
    product = h("b", ` = ${tiny(node.path_q)}`),
    whole = h("p.ds-factors", about, cut + shown.join(" × "), product);
  const isKnown = told.factors.length > 1 && !told.factors.includes(null);
  return [isKnown ? whole : null, placeLine(told, told.by_path)];
}

// ── versus: q beside another probability ───────────────────────────────────────────────────────

function versusLines(node, told) {
  const { label, help, odds, ratio } = told.versus,
    [sign, words] = told.mark;
  const times =
    ratio === null
      ? "the two cannot be compared here"
      : `${sign || "="} ${number(ratio)} × ${label}`;
  const own = chanceRow("q", "here, behind its parent", odds[0], "given"),
    other = chanceRow(label, help, odds[1], "plain"),
    gain = h("p.ds-gain", times + (words ? `: ${words}.` : "."));
  return [h("div.ds-versus", own, other), gain, ...pathLines(node, told)];
}

function chanceRow(name, words, chance, kind) {
  const odds = h("span.odds", percent(chance));
  return h("div.ds-chance", h("b", name), h("span.ds-soft", words), odds, bar(chance, kind));
}

// ── terms: a score that is a sum ───────────────────────────────────────────────────────────────

/** The parent's score and the terms, as steps from 0 to the node's own score. */
function termLines(_node, told) {
  const terms = told.terms.map(([name, value], at) => [name, value, `term term-${(at % 2) + 1}`]);
  const above = told.above === null ? [] : [["parent", told.above, "above"]];
  return [waterfall([...above, ...terms], told.score), placeLine(told, false)];
}

/** Bars that begin where the one before ended; below them the whole. Left of 0 is negative. */
function waterfall(steps, total) {
  let sum = 0;
  const spans = steps.map(([name, value, kind]) => {
    const from = sum;
    sum += value || 0;
    return { name, value, kind, from, to: sum };
  });
  spans.push({ name: "score", value: total, kind: "total", from: 0, to: total || 0 });
  const low = Math.min(0, ...spans.map((span) => span.to)),
    high = Math.max(0, ...spans.map((span) => span.to));
  const at = (value) => (100 * (value - low)) / (high - low || 1);
  const line = ({ name, value, kind, from, to }) => {
    const track = bar(Math.abs(at(to) - at(from)) / 100, kind);
    track.firstChild.style.left = `${at(Math.min(from, to))}%`;
    return h("div", { class: `ds-term ${kind}` }, h("span", name), track, h("b", signed(value)));
  };
  return h("div.ds-waterfall", spans.map(line));
}
