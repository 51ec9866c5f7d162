// Meanings of the words, marks and keys of Run and Compare: the legend below the trees, the help.

import { h } from "../dom.js";
import { dialog, entry, keyList, meanings, TAU } from "../parts.js";
import { namesOf } from "../rounds/filter.js";
import { COLUMNS } from "../rounds/rows.js";

const WORDS = [
  ["p", "a token's probability after its path, by the target: the model that writes the text"],
  ["q", "the same by the drafter, which guesses ahead and is fast"],
  [
    "round",
    "the drafter guesses a tree of at most B nodes, the draft budget; one forward pass of the " +
      "target checks them all, and a walk from the root goes on while a child is accepted",
  ],
  ["bonus token", "the target's own token where the walk ended: the root of the next round"],
  ["unreached", "behind a node that was not accepted: neither accepted nor rejected"],
  ["τ", TAU],
  ["path", "the nodes from the root to one; its q is theirs, multiplied"],
  ["cut-off", "the least q of a path that is still drafted with this budget"],
  ["Σq, Σp", "of the nodes that a chip folds, added up"],
  ["TVD", "distance of q from p, ½ Σ |q − p| over the vocabulary: 0 is equal, 1 shares nothing"],
  ["coverage", "C₁₆: p of the drafter's 16 best tokens, added up"],
];

const HELP = [
  ["← →", "round before, round after; in a comparison, where a round begins"],
  ["Home End", "first round, last round"],
  ["↑ ↓", "node above, node below, at the same depth"],
  ["Shift ← →", "parent, child (the accepted one first)"],
  ["Enter", "open the inspector for the node; in the table of rounds, the row's tree"],
  ["Space", "play, pause"],
  ["f", "fit the tree of this round"],
  ["w", "the whole run: its text, TVD above it, what was drafted in vain below it"],
  ["u", "open what is folded below the node, or everything; again folds"],
  ["a", "back to the accepted path"],
  ["+ −", "zoom in, zoom out; also Ctrl and the wheel, or a pinch; drag to move"],
  ["Wheel", "zooms where the page cannot be scrolled; sideways, or with Shift, moves the tree"],
  ["i", "to the prompt; Enter starts, Esc leaves it"],
  ["/", "search a token, or words of the text; Enter goes to the next one, in other rounds too"],
  ["d", "in a comparison, the next place where acceptance differs; D: before"],
  ["n N", "next row, row before in the table of rounds: with a filter, the next match"],
  [
    "Shift ↑ ↓",
    "in the table of rounds, select rows; also Shift and a press there, on the text or its bars: " +
      "from the round on view to that one. A finger rests on it instead",
  ],
  ["o", "in a comparison, the next tree"],
  ["t", "nodes as a table, or as a tree"],
  ["e", "examples that ship, and runs opened in this tab"],
  ["s", "save: pictures, tables, the run"],
  ["p", "present: the whole screen, with nothing but picture and sentence; Esc leaves"],
  ["Tab", "from one row of tools to the next; there ← → Home End go along it"],
  ["?", "this help"],
  ["Esc", "close the inspector or the search, let go of selected rounds"],
];

const FILTER =
  "Words are searched for in text, token and cause: all must occur. An expression compares " +
  'columns: accepted == 0 and (tvd > 0.5 or cause == budget), text ~ "water", not ms < 20. ' +
  "“–” is not recorded: no comparison holds of it but == unknown. The columns:";

export function helpDialog(legend) {
  const columns = COLUMNS.map((column) => [namesOf(column), column.about]),
    filter = [h("h3", "Filter of the rounds"), h("p.ds-key", FILTER), meanings(columns)],
    words = [h("h3", "Words"), meanings(WORDS)],
    text = [h("h3", "Text"), h("p.ds-key", textKey()), legend.marks],
    keys = [h("h3", "Keys"), keyList(HELP)],
    sections = [h("section", words, text, filter), h("section", keys)];
  return dialog("Words and keys", "ds-glossary", ...sections);
}

/** The meanings of the lines below a token of the text. */
function textKey() {
  const entries = [
    ["accepted", "drafted, accepted"],
    ["bonus", "bonus"],
    ["prefill", "from prefill"],
  ];
  return entries.map(([name, words]) => entry(`ds-token ${name}`, words, "abc"));
}

/** The legend below the trees. */
export class Legend {
  constructor() {
    this.cues = h("span.ds-cue-key", { hidden: true });
    this.lines = h("span.ds-cue-key", { hidden: true });
    this.bars = h("span.ds-run-key");
    this.marks = h("p.ds-key.ds-cue-key", { hidden: true }); // again, for the help
    const entries = h(
      "footer.ds-legend",
      entry("box accepted", "accepted", "✓"),
      entry("box rejected", "rejected", "×"),
      entry("box unreached", "unreached: not judged", "·"),
      entry("box ghost", "bonus: the target's own token", "◇"),
      entry("mini q", "q drafter's probability"),
      entry("mini p", "p target's probability"),
      h("span.entry.ds-tvd-key", h("b", "TVD"), "distance of q from p, 0 to 1"),
      this.bars,
      this.lines,
      this.cues,
    );
    this.element = h("div.ds-legend-place", entries);
  }

  /** Set the entries on the text's lines beside it; none for one run. */
  key(entries) {
    this.lines.replaceChildren(...entries);
    this.lines.hidden = !entries.length;
  }

  /** Explain the marks in the boxes of these rounds, if their drafters have any, and the bars of
   *  the run's shape. causes: code → words. */
  explain(rounds, causes = {}) {
    const ends = [...new Set(rounds.map(({ cause }) => cause))].filter((each) => causes[each]),
      words = {};
    for (const { sign_help } of rounds) Object.assign(words, sign_help);
    const marks = Object.keys(words).sort(),
      told = JSON.stringify([ends, words]);
    if (told === this.told) return; // as at most steps
    this.told = told;
    this.bars.replaceChildren(
      entry("mini accepted", "accepted"),
      entry("mini bonus", "the target's token"),
      entry("mini tvd", "above: TVD"),
      entry("mini rejected", "below: drafted in vain, or why the walk ended:"),
      ...ends.map((each) => entry(`mini end ${each}`, causes[each])),
    );
    for (const place of [this.cues, this.marks]) {
      const meaning = (mark) => h("span.entry", h("b", mark), words[mark]);
      place.replaceChildren(...marks.map(meaning));
      place.hidden = !marks.length;
    }
  }
}
