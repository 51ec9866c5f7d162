"""A guess before the answer: which of the tokens after the root the target takes, if any."""

from __future__ import annotations

from app.learn.figures import CHOSEN, tree
from app.learn.words import ChapterStep, Json, Span, Wording, fill
from app.view.rounds import GHOST, target_probability
from core.rounds.round import Round

MOST = 9  # that have a key each
WORDS = {
    "right": "Yes. After {here} the target's own token is {wanted}, with p = {p:%}.",
    "wrong": "No: after {here} the target wants {wanted}, with p = {p:%}. {own} has {odds:%}.",
    "none": "No: after {here} the target wants {wanted}, with p = {p:%}, and it was drafted.",
    "right none": "Yes. After {here} the target wants {wanted}, with p = {p:%}, and it was not "
    "drafted: it is the bonus token.",
    "wrong none": "No: after {here} the target wants {wanted}, with p = {p:%}, and it was not "
    "drafted. {own} has {odds:%}.",
}


def asked(section: str, record: Round, name: str, title: str = "", **values: object) -> ChapterStep:
    """Ask for the child of the root that is accepted. ``name`` is the tree of the round; the figure
    is the one before the verdict until somebody has answered."""
    draft = record.draft
    rows = sorted(draft.children[0], key=lambda row: int(draft.ranks[row]))
    assert len(rows) < MOST, "every answer has a key"
    taken = record.verdict.path[1] if record.accepted else None
    words = Wording.of(record)
    options: list[Json] = [
        {"label": words.name(row), "row": row, "why": _why(record, row)} for row in rows
    ]
    options.append({"label": "none", "row": GHOST, "why": _why(record, None)})
    numbers = {str(row): at for at, row in enumerate(rows, 1)}
    told = tree(name, marks={taken or GHOST: CHOSEN}, select=taken or GHOST, title=title)
    ask: Json = {
        "options": options,
        "answer": rows.index(taken) if taken else len(rows),
        "trees": [told],
    }
    before = {**tree(name + "?", title=title), "numbers": numbers}
    said = {"here": words.node(0), "choices": len(rows), **values}
    return ChapterStep(section, (before,), None, said, ask)


def _why(record: Round, row: int | None) -> list[Span]:
    """The answer to somebody who expects this row; None: none of those drafted."""
    words, drafted = Wording.of(record), record.accepted > 0
    wanted = int(record.verdict.target_tokens[0])
    right = row == record.verdict.path[1] if drafted else row is None
    kind = "right" if right else "none" if row is None else "wrong"
    p = target_probability(record, 0, wanted)
    values = {"here": words.node(0), "wanted": words.token(wanted), "p": p}
    if row is not None:
        values |= {"own": words.node(row), "odds": record.node(row).p}
    return fill(WORDS[kind if drafted else f"{kind} none"], values)
