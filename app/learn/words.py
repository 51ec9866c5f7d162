"""Chapters as text files, and how values come into them.

A file of ``chapters`` is Markdown:

    # Short name: title

    The question that the chapter answers.

    ## step
    A paragraph with a *word of the field* and a {value}. {odds:%} writes a probability, {x:.2f} a
    number of two decimals, {part:.0%} a share.

    {first?} A paragraph for steps whose value ``first`` is true; {!first?} for the others.

    Figure: what the figure shows, in words.

    ## Question
    The question?

    - [x] The right option.
      What is said when it is chosen.

A text becomes spans: strings, or {"term"|"token"|"num"|"sup": …}. The page sets each as a text
node. Only the files are read as Markdown: a value, a model's text too, stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from analysis.numbers import number, percent, share
from core.rounds.draft import DraftRows
from core.rounds.round import Round
from core.visible import PIECE, visible

Span = str | dict[str, str]
Json = dict[str, Any]

FOLDER = Path(__file__).with_name("chapters")
_PIECES = re.compile(r"\*([^*]+)\*|\{(\w+)(?::([^}]+))?\}")
_FIXED = re.compile(r"\.(\d)(?:f|(%))")
_ONLY = re.compile(r"\{(!?)(\w+)\?\}\s*")
_OPTION = re.compile(r"- \[([ x])\] ([^\n]+)\n(.+)", re.DOTALL)


# ── spans ────────────────────────────────────────────────────────────────────────────────────────


def fill(text: str, values: Mapping[str, object]) -> list[Span]:
    """The spans of a paragraph. Raises KeyError when a value is missing."""
    spans: list[Span] = []
    at = 0
    for piece in _PIECES.finditer(text):
        spans += [text[at : piece.start()]] if piece.start() > at else []
        spans += [{"term": piece[1]}] if piece[1] else _spans(values[piece[2]], piece[3])
        at = piece.end()
    return [*spans, *([text[at:]] if at < len(text) else [])]


def _spans(value: Any, form: str | None) -> list[Span]:
    """A span, a list of spans, or a number (rows: a tuple) that the figure shows too."""
    if isinstance(value, list):
        return value
    if isinstance(value, dict):
        return [value]
    if isinstance(value, tuple):
        return [{"num": ", ".join(map(str, value))}]
    if form == "%":
        return [{"num": percent(value)}]
    if fixed := _FIXED.fullmatch(form or ""):
        return [{"num": (share if fixed[2] else number)(value, int(fixed[1]))}]
    return [{"num": format(value, form or "")}]


def fill_each(text: str, rows: Iterable[Mapping[str, object]], gap: str = ", ") -> list[Span]:
    """A text filled with each of some values, one after the other."""
    return [span for values in rows for span in (gap, *fill(text, values))][1:]


def plain(spans: Iterable[Span]) -> str:
    """Spans as plain words."""
    return "".join(s if isinstance(s, str) else next(iter(s.values())) for s in spans)


@dataclass(frozen=True, eq=False)
class Wording:
    """A round's tokens in words. ``draft``: the rows that are meant, the round's own by default."""

    record: Round
    draft: DraftRows

    @staticmethod
    def of(record: Round) -> Wording:
        return Wording(record, record.draft)

    def label(self, token: int) -> str:
        return visible(self.record.text(int(token)))

    def token(self, token: int) -> Span:
        return {"token": self.label(token)}

    def node(self, row: int) -> Span:
        return self.token(self.draft.tokens[row])

    def name(self, row: int) -> str:
        return self.label(self.draft.tokens[row])

    def path(self, row: int) -> Span:
        """All tokens from the root to a row, as one text."""
        return self.text(self.draft.path(row))

    def text(self, rows: Iterable[int]) -> Span:
        """The tokens of some rows, as one text; blanks at its ends are seen, as a token's are."""
        whole = "".join(self.record.text(int(self.draft.tokens[row])) for row in rows)
        return {"token": visible(whole, PIECE)}

    def nodes(self, rows: Iterable[int], end: str = ", ") -> list[Span]:
        """The tokens of some rows, one by one; ``end`` comes before the last."""
        return series([self.node(row) for row in rows], end)


def series(spans: Sequence[Span], end: str = " and ") -> list[Span]:
    """a, b and c."""
    before = ["", *[", "] * (len(spans) - 2), end]
    return [s for gap, span in zip(before, spans, strict=False) for s in (gap, span)][1:]


# ── chapters ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Slider:
    """A slider of a step: its name, the words of its values, and where it stands at first."""

    label: str
    values: tuple[str, ...]
    start: int


@dataclass(frozen=True)
class ChapterStep:
    """A step of a chapter: the section of the file that it tells, its figure, values of its own.

    ask     a guess before the answer (see ``predict``)
    states  what the step shows at every place of its sliders, the last slider's moving fastest;
            the step itself shows that at which they start
    """

    section: str
    trees: tuple[Json, ...]
    side: Json | None = None
    values: Mapping[str, object] = field(default_factory=dict)
    ask: Json | None = None
    sliders: tuple[Slider, ...] = ()
    states: tuple[ChapterStep, ...] = ()


def scene(section: str, *trees: Json, side: Json | None = None, **values: object) -> ChapterStep:
    return ChapterStep(section, trees, side, values)


def moved(
    section: str, sliders: Sequence[Slider], states: Sequence[ChapterStep], **values: object
) -> ChapterStep:
    """A step with sliders."""
    start = 0
    for slider in sliders:
        start = start * len(slider.values) + slider.start
    first = states[start]
    values = {**first.values, **values}
    return ChapterStep(
        section, first.trees, first.side, values, sliders=tuple(sliders), states=tuple(states)
    )


def sections(name: str) -> dict[str, list[str]]:
    """The paragraphs of a chapter's file by section; "" holds title and question."""
    parts = re.split(r"^## ", (FOLDER / f"{name}.md").read_text("utf-8"), flags=re.MULTILINE)
    named = [("", parts[0]), *(part.split("\n", 1) for part in parts[1:])]
    return {key: [p.strip() for p in text.split("\n\n") if p.strip()] for key, text in named}


def chapter(name: str, scenes: Sequence[ChapterStep], about: str = "", **values: object) -> Json:
    """One chapter as the page reads it. ``about``: the scene whose figure stands beside the
    question, else the last. Raises KeyError for a section or value that is missing."""
    text = sections(name)
    title, question = text[""]
    short, full = title.removeprefix("# ").split(": ", 1)
    shown = [each.section for each in scenes]
    beside = shown.index(about) if about else len(scenes) - 1
    return {
        "name": short,
        "title": full,
        "question": plain(fill(question, values)),
        "steps": [_step(text, each, values) for each in scenes],
        "quiz": {**_quiz(text["Question"], values), "step": beside},
    }


def _step(text: Mapping[str, list[str]], shown: ChapterStep, common: Mapping[str, object]) -> Json:
    values = {**common, **shown.values}
    texts: dict[bool, list[list[Span]]] = {True: [], False: []}
    for paragraph in text[shown.section]:
        only = _ONLY.match(paragraph)
        if only and bool(values[only[2]]) == bool(only[1]):
            continue
        line = " ".join(paragraph[only.end() if only else 0 :].split())
        texts[line.startswith("Figure: ")].append(fill(line.removeprefix("Figure: "), values))
    alt = " ".join(map(plain, texts[True]))
    made = {"text": texts[False], "trees": list(shown.trees), "side": shown.side, "alt": alt}
    if shown.ask:
        made["ask"] = shown.ask
    if shown.sliders:
        made["sliders"] = [{**asdict(each), "values": list(each.values)} for each in shown.sliders]
        made["states"] = [_step(text, each, common) for each in shown.states]
    return made


def _quiz(paragraphs: list[str], values: Mapping[str, object]) -> Json:
    """The question, its options, and which of them is right, from 0."""

    def filled(text: str) -> str:
        return plain(fill(" ".join(text.split()), values))

    found = [_OPTION.findall(option)[0] for option in paragraphs[1:]]
    return {
        "question": filled(paragraphs[0]),
        "options": [{"label": filled(label), "why": filled(why)} for _, label, why in found],
        "answer": [sign for sign, *_ in found].index("x"),
    }
