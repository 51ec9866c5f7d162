// "Why it was drafted": one section of the inspector, for each of the three kinds of drafts that
// app/view/explanation.py tells apart.

const CHAIN = 6; // factors of a path that are written out

/** The section of a drafted node. */
function draftedSection(node) {
  const told = node.drafted;
  const parts = { prefix: asPrefix, conditioned: asConditioned, weighed: asWeighed }[told.kind](node, told);
  return h("section", { class: "ds-drafted " + told.kind, "aria-label": "Why it was drafted" },
    h("h4", {}, "why it was drafted"), ...parts);
}

function ordinal(count) {
  const teen = count % 100 > 10 && count % 100 < 14;
  return count + (teen ? "th" : { 1: "st", 2: "nd", 3: "rd" }[count % 10] || "th");
}

/** "best token" or "#3 token". */
function ranked(rank) {
  return rank === 1 ? "best token" : `#${rank ?? "?"} token`;
}

function signed(value) {
  return value === null || value === undefined ? "–" : (value > 0 ? "+" : value < 0 ? "−" : "") + Math.abs(value).toFixed(2);
}

// ── by the path ────────────────────────────────────────────────────────────────────────────────

/** DDTree and its like: rank and q at this depth, and the probability of the whole path. */
function asPrefix(node, told) {
  return [
    h("p", {}, `The drafter's ${ranked(node.rank_q)} at depth ${node.depth}, whatever stands before it: q ${percent(node.q)}.`),
    ...pathLines(node, told),
  ];
}

/** Π q written out, and the place it earns among the draft's nodes. */
function pathLines(node, told) {
  const shown = told.factors.slice(-CHAIN).map(percent), cut = told.factors.length > CHAIN ? "… × " : "";
  const whole = h("p", { class: "ds-factors", title: "q along the path, multiplied" }, cut + shown.join(" × "), h("b", {}, ` = ${tiny(node.path_q)}`));
  return [...(told.factors.length > 1 ? [whole] : []), placeLine(told)];
}

function placeLine(told) {
  const among = `of this draft's ${plural(told.nodes, "node")}`;
  const words = told.by_path ? `${ordinal(told.place)} most probable path ${among}.`
    : `${ordinal(told.place)} best score ${among}: ${signed(told.score)}.`;
  const bar = h("i", { class: "fill" }), track = h("span", { class: "ds-place-track", "aria-hidden": "true" }, bar);
  bar.style.left = `${(100 * (told.place - 1)) / Math.max(1, told.nodes - 1)}%`;
  return h("p", { class: "ds-place-line" }, words, track);
}

// ── given the token before ─────────────────────────────────────────────────────────────────────

/** TreeFlash: q′ given the parent's token beside plain q. */
function asConditioned(node, told) {
  const given = h("span", { class: "ds-quoted" }, told.given);
  return [
    h("p", {}, `The drafter's ${ranked(node.rank_q)} behind `, given, ", its parent:"),
    h("div", { class: "ds-versus" }, chanceRow("q′", "given the parent", told.q, "given"), chanceRow("q", "marginal, at this depth", told.marginal, "plain")),
    h("p", { class: "ds-gain" }, gainWords(told)),
    ...pathLines(node, told),
    h("p", { class: "ds-soft" }, candidateWords(node, told)),
    ...(told.leaf ? [h("p", { class: "ds-leaf" }, "⊣ " + leafWords(node, told))] : []),
  ];
}

function chanceRow(name, words, chance, kind) {
  const bar = h("i", { class: "fill " + kind });
  bar.style.width = `${Math.max(0.5, 100 * (chance || 0))}%`;
  return h("div", { class: "ds-chance" }, h("b", {}, name), h("span", { class: "ds-soft" }, words),
    h("span", { class: "odds" }, percent(chance)), h("span", { class: "track", "aria-hidden": "true" }, bar));
}

function gainWords(told) {
  if (!told.q || !told.marginal) return "q′ and q cannot be compared here.";
  const times = told.q / told.marginal, mark = told.cue ? told.cue + " " : "= ";
  if (told.cue === "▲") return `${mark}${times.toFixed(1)} × q: this parent makes it likelier.`;
  if (told.cue === "▼") return `${mark}${times.toFixed(2)} × q: this parent makes it less likely.`;
  return `${mark}${times.toFixed(2)} × q: the parent changes little.`;
}

function candidateWords(node, told) {
  if (told.behind === null) return "Its parent is the root, a known token: q′ needs no candidate here.";
  const of = told.width ? ` of M = ${told.width}` : "";
  return `Its parent is candidate ${told.behind}${of} at depth ${node.depth - 1}; q′ is known behind those only.`;
}

function leafWords(node, told) {
  const known = told.width ? `the M = ${told.width} candidates` : "the M candidates";
  if (told.leaf === "last") return `No children: depth ${node.depth} is the drafter's last.`;
  return `It can have no children: its token is not among ${known} of depth ${node.depth}.`;
}

// ── by a score of two terms ────────────────────────────────────────────────────────────────────

/** DART: the parent's score and the two terms, as steps from 0 to the node's own score. */
function asWeighed(node, told) {
  const steps = [["parent", told.above, "above"], ["q term", told.term_q, "q"], ["n-gram term", told.term_ngram, "ngram"]];
  return [
    h("p", {}, ngramWords(told)),
    waterfall(steps.filter(([name, value]) => name !== "parent" || value !== null), told.score),
    placeLine({ ...told, by_path: false }),
    h("p", { class: "ds-soft" }, "The score orders the draft. It is no probability: its terms are weighted log-probabilities."),
  ];
}

function ngramWords(told) {
  if (told.context === null) return "No n-gram term counts at this depth.";
  if (!told.count) return "The n-gram model never saw this token here (n–): the term is at its floor.";
  const behind = told.context ? `behind the ${plural(told.context, "token")} before it` : "without any context";
  return `The n-gram model saw this token ${plural(told.count, "time")} ${behind} (n${told.context}).`;
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
  const low = Math.min(0, ...spans.map((span) => span.to)), high = Math.max(0, ...spans.map((span) => span.to));
  const at = (value) => (100 * (value - low)) / (high - low || 1);
  return h("div", { class: "ds-waterfall" }, spans.map(({ name, value, kind, from, to }) => {
    const bar = h("i", { class: "fill " + kind });
    bar.style.left = `${at(Math.min(from, to))}%`;
    bar.style.width = `${Math.max(0.8, Math.abs(at(to) - at(from)))}%`;
    return h("div", { class: "ds-term " + kind }, h("span", {}, name), h("span", { class: "track", "aria-hidden": "true" }, bar), h("b", {}, signed(value)));
  }));
}
