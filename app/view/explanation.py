"""Why a node was drafted, as data that the inspector and the tree draw.

A method declares how its nodes are explained (``core.methods.method.Explanation``): a layout, the
labels and formats of its notes, and marks. The declaration is found by the trace's header; no
method's file is run. Notes that nothing declares are shown as they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from analysis.numbers import plural
from app.view.values import finite, probabilities, probability
from core.errors import UserError
from core.methods.method import Explanation, Note, Option, Value, options_of
from core.methods.registry import DRAFTERS, built_in, find_drafter
from core.rounds.draft import CHILDLESS, Draft
from core.rounds.round import Round
from core.traces.schema import Header
from core.visible import visible

VERSUS, TERMS = "versus", "terms"  # layouts beside the plain one, "path"
PLAIN = Explanation()
UNDECLARED = Explanation(lead="The drafter's {rank} token after {parent}.")
NO_RANK = "A drafted token, whose rank in q is not recorded."


@dataclass(frozen=True)
class Marks:
    """A quiet mark in each node's box; empty where nothing is marked.

    signs  one per row, "" for none
    help   what each sign means
    """

    signs: tuple[str, ...] = ()
    help: Mapping[str, str] = field(default_factory=dict)

    def at(self, row: int) -> tuple[str, str]:
        """A row's sign and what it means; empty texts for none."""
        sign = self.signs[row] if self.signs else ""
        return sign, self.help.get(sign, "")


@dataclass(frozen=True)
class Explainer:
    """How the nodes of one run's drafts are explained.

    notes    declared notes by name, of the drafter and of the builder
    options  the method's options by name, as the run had them
    budget   the run's draft budget; 0: not known, or plain decoding
    ends     why the builder may draft fewer nodes, as ``BuilderInfo.ends``; "": not declared
    """

    explanation: Explanation = UNDECLARED
    notes: Mapping[str, Note] = field(default_factory=dict)
    options: Mapping[str, Value] = field(default_factory=dict)
    budget: int = 0
    ends: str = ""

    @staticmethod
    def of(header: Header) -> Explainer:
        """The explanation of the header's method, or of its drafter where the method is a file or
        unknown."""
        method = built_in(str(header.method))
        budget, ends = header.stated("budget", int) or 0, ""
        if method is not None:
            parts = [info.explain for info in (method.drafter_info, method.builder_info) if info]
            explanation, options = method.explain, method.all_options
            ends = method.builder_info.ends if method.builder_info else ""
            budget = budget if method.drafter else 0
        elif str(kind := header.drafter.get("kind")) in DRAFTERS:
            info = find_drafter(str(kind))
            parts, explanation, options = [info.explain], info.explain, options_of(info.options)
        else:
            return Explainer(budget=budget)
        notes = {note.name: note for part in parts if part for note in part.notes}
        values = _read(options, header.settings.get("options"))
        return Explainer(explanation, notes, values, budget, ends)

    def fewer(self, record: Round) -> str:
        """Why the draft has fewer nodes than its budget, in a sentence; "" where it has as many."""
        nodes = record.draft.nodes
        if not isinstance(record.draft, Draft) or nodes >= self.budget:
            return ""
        told = f"{nodes} of {plural(self.budget, 'node')}"
        ends = self.ends.format_map(_Fields(self._texts)) if self.ends else ""
        return f"{told}: {ends}." if ends else f"{told}: why there are no more is not recorded."

    @cached_property
    def _texts(self) -> dict[str, str]:
        """The options as texts."""
        return {name: visible(str(value)) for name, value in self.options.items()}

    def marks(self, record: Round) -> Marks:
        """Each row's first mark that holds."""
        signs = self._signs(record, slice(1, None))
        help = {m.sign: m.help for m in self.explanation.marks if m.sign in signs}
        return Marks(("", *signs), dict(sorted(help.items()))) if help else Marks()

    def view(self, record: Round, row: int) -> dict[str, Any] | None:
        """The inspector's section for a drafted row; None for the root and in a block draft."""
        draft = record.draft
        if row == 0 or not isinstance(draft, Draft):
            return None
        shown, logs = self._drawable(draft), draft.log_q[list(draft.path(row)[1:])]
        score = float(draft.scores[row])
        view: dict[str, Any] = {
            "layout": shown.layout,
            "lead": self._lead(shown.lead, record, row),
            "factors": probabilities(logs),
            "place": int(np.count_nonzero(draft.scores[1:] > score)) + 1,
            "nodes": draft.nodes,
            "by_path": math.isclose(score, logs.sum(), rel_tol=1e-3, abs_tol=1e-3),
            "score": finite(score),
            "mark": self._mark(record, row),
            "notes": list(self._declared(record, row, {shown.versus, *shown.terms})),
            "leaf": self._leaf(record, row),
            "closing": shown.closing,
        }
        if shown.layout == VERSUS:
            view["versus"] = self._versus(draft, row, shown.versus)
        elif shown.layout == TERMS:
            parent = int(draft.parents[row])
            view["above"] = finite(float(draft.scores[parent])) if parent else None
            view["terms"] = [
                [self._note(name).label, finite(float(draft.notes[name][row]))]
                for name in shown.terms
            ]
        return view

    def other_notes(self, record: Round, row: int) -> list[list[Any]]:
        """[label, value, form, help] of the notes that nothing declares."""
        draft, found = record.draft, []
        for name, values in draft.notes.items() if isinstance(draft, Draft) else ():
            form = "probability" if name.startswith("log ") else "number"
            value = float(values[row])
            if name not in self.notes and not math.isnan(value):
                label = visible(name.removeprefix("log "))
                found.append([label, _value(value, form), form, ""])
        return found

    def _mark(self, record: Round, row: int) -> list[str]:
        """A row's sign and what it means; [] for none."""
        (sign,) = self._signs(record, slice(row, row + 1))
        return (
            [sign, next(m.help for m in self.explanation.marks if m.sign == sign)] if sign else []
        )

    def _signs(self, record: Round, rows: slice) -> list[str]:
        draft = record.draft
        signs = np.full(len(draft.tokens[rows]), "", object)
        for mark in reversed(self.explanation.marks):
            if not isinstance(draft, Draft) or mark.note not in draft.notes:
                continue
            with np.errstate(invalid="ignore"):  # what is not known is NaN and holds nowhere
                values = draft.notes[mark.note][rows]
                values = draft.log_q[rows] - values if mark.against_q else values
                signs[(mark.low <= values) & (values < mark.high)] = mark.sign
        return signs.tolist()

    def _drawable(self, draft: Draft) -> Explanation:
        """The declaration, or the plain one where this draft lacks the notes it needs."""
        wanted = self.explanation
        needed = {wanted.versus} - {""} | {*wanted.terms}
        return wanted if needed <= draft.notes.keys() else PLAIN

    def _versus(self, draft: Draft, row: int, name: str) -> dict[str, Any]:
        """The note's probability beside q, and how many times as large q is."""
        log_q, other = float(draft.log_q[row]), float(draft.notes[name][row])
        ratio = math.exp(min(log_q - other, 700.0)) if math.isfinite(log_q - other) else math.nan
        return {
            "label": self._note(name).label,
            "help": self._note(name).help,
            "odds": [probability(log_q), probability(other)],
            "ratio": finite(ratio),
        }

    def _note(self, name: str) -> Note:
        return self.notes.get(name) or Note(name, name)

    def _declared(self, record: Round, row: int, elsewhere: set[str]) -> Iterator[list[Any]]:
        """[label, value, form, help] of the declared notes that no other line shows."""
        draft = record.draft
        assert isinstance(draft, Draft)
        for name, note in self.notes.items():
            value = float(draft.notes[name][row]) if name in draft.notes else math.nan
            if name not in elsewhere and not math.isnan(value):
                help = self._filled(note.help, record, row)
                yield [note.label, _value(value, note.form), note.form, help]

    def _leaf(self, record: Round, row: int) -> str:
        """Why a row can have no children; "" where it can, or where that is not known."""
        proposal = record.proposal
        if proposal is None or proposal.after[row] != CHILDLESS:
            return ""
        if 0 < proposal.max_depth <= record.draft.depths[row]:
            return f"No children: depth {record.draft.depths[row]} is the drafter's last."
        return self._filled(self.explanation.childless, record, row)

    def _lead(self, text: str, record: Round, row: int) -> str:
        unknown = record.draft.ranks[row] < 0 and "{rank}" in text
        return NO_RANK if unknown else self._filled(text, record, row)

    def _filled(self, text: str, record: Round, row: int) -> str:
        draft, rank = record.draft, int(record.draft.ranks[row])
        parent = int(draft.tokens[draft.parents[row]])
        fields = {
            **self._texts,
            "rank": "best" if rank == 1 else f"#{rank}",
            "depth": str(draft.depths[row]),
            "parent": visible(record.text(parent)),
        }
        return text.format_map(_Fields(fields))


class _Fields(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return "?"


def _read(options: tuple[Option, ...], values: Any) -> dict[str, Value]:
    """Every option's value in a header; its default where the header holds none that can be."""
    found = {}
    for option in options:
        try:
            found[option.name] = option.read(values[option.name])
        except (UserError, KeyError, TypeError, ValueError):
            found[option.name] = option.default
    return found


def _value(value: float, form: str) -> float | None:
    return probability(value) if form == "probability" else finite(value)
