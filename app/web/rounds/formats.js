// Rows of rounds as text to paste: CSV, Markdown and LaTeX. Text of a model is hostile: in each
// form it is escaped, so that it stays the text of one cell.

import { csvOf } from "../save/csv.js";
import { cellText, recordOf } from "./rows.js";

/** CSV for programs: numbers unrounded, codes of causes; a cell of what is not known is empty. */
function csvTable(rows, columns) {
  return csvOf(rows.map((row) => recordOf(row, columns)));
}

/** Every sign with a meaning in Markdown gets a "\" before it, so that no text is a tag or another
 * cell, and what would become a link by itself (www., https:, a name after @) stays text. */
function markdownText(text) {
  return text
    .replace(/[\\`*_[\]<>|~#&$!@]|www(?=\.)|:(?=\/\/)/gi, (sign) =>
      sign.length > 1 ? `${sign}\\` : `\\${sign}`,
    )
    .replace(/[\r\n]+/g, " ");
}

function markdownTable(rows, columns) {
  const line = (cells) => `| ${cells.join(" | ")} |\n`;
  const rule = columns.map(({ kind }) => (kind === "number" ? "---:" : "---"));
  return [
    line(columns.map(({ head }) => markdownText(head))),
    line(rule),
    ...rows.map((row) => line(columns.map((each) => markdownText(cellText(row, each))))),
  ].join("");
}

const TEX = {
  "\\": "\\textbackslash{}",
  "~": "\\textasciitilde{}",
  "^": "\\textasciicircum{}",
  "<": "\\textless{}",
  ">": "\\textgreater{}",
  "|": "\\textbar{}",
  "–": "--",
  "−": "$-$",
  "…": "\\ldots{}",
  "␣": "\\textvisiblespace{}",
  // signs that pdfLaTeX does not know
  "⏎": "$\\hookleftarrow$",
  "⇥": "$\\to$",
  "∅": "$\\emptyset$",
  τ: "$\\tau$",
  "≤": "$\\leq$",
  "≥": "$\\geq$",
  "×": "$\\times$",
  "±": "$\\pm$",
  Σ: "$\\Sigma$",
  "÷": "$\\div$",
  "→": "$\\rightarrow$",
  "≈": "$\\approx$",
  α: "$\\alpha$",
};
const SIGNS = new RegExp(`[\\\\${Object.keys(TEX).slice(1).join("")}{}$&#_%]|[₀-₉]+`, "g");
const below = (digits) => `$_{${[...digits].map((each) => each.charCodeAt(0) - 0x2080).join("")}}$`;

function latexText(text) {
  return text
    .replace(SIGNS, (sign) => TEX[sign] ?? (/[₀-₉]/.test(sign) ? below(sign) : `\\${sign}`))
    .replace(/[\r\n]+/g, " ");
}

function latexTable(rows, columns) {
  // Behind the \\ of the line before, [ and * would be its arguments.
  const line = (cells) => `${cells.join(" & ").replace(/^(?=[[*])/, "{}")} \\\\\n`;
  const sides = columns.map(({ kind }) => (kind === "number" ? "r" : "l")).join("");
  return [
    `\\begin{tabular}{${sides}}\n\\hline\n`,
    line(columns.map(({ head }) => latexText(head))),
    "\\hline\n",
    ...rows.map((row) => line(columns.map((each) => latexText(cellText(row, each))))),
    "\\hline\n\\end{tabular}\n",
  ].join("");
}

/** name of a form → the text of some rows in it. */
export const FORMS = { Markdown: markdownTable, CSV: csvTable, LaTeX: latexTable };
