"""Tie or bug: where many texts of two engines part, and whether a near tie explains it.

Greedy texts may part where the target's best tokens are nearly alike: another order of rounding
swaps them. Of every pair only the first parting is judged, for after it the two write different
texts. A tie is a place where both tokens lie within a stated number of nats of the target's best,
by p of either engine's trace or of a target that is asked. Never torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from analysis.engines.texts import Difference, Side, Written, first_difference, read_texts
from analysis.numbers import interval, plural, share
from core.errors import UserError
from core.rounds.draft import Array
from core.stats import wilson
from core.traces.schema import ENDINGS

LogP = Callable[[Sequence[int]], Array]  # a text's ids → log p [V] of the token after it
SAME, SHORTER, PROMPT = "same", "one ends first", "prompts differ"
TIE, NO_TIE, UNKNOWN = "tie", "no tie", "not known"
KINDS = (SAME, SHORTER, PROMPT, TIE, NO_TIE, UNKNOWN)


@dataclass(frozen=True, eq=False)
class Pair:
    """Two texts on one prompt. ``difference``: the first one; ``asked``: what a target that was
    asked says of the two tokens there."""

    one: Written
    other: Written
    difference: Difference | None
    asked: Side | None = None

    def kind(self, bound: float) -> str:
        """One of ``KINDS``, with ties up to ``bound`` nats."""
        found = self.difference
        if found is None:
            return SAME
        if found.what == "prompt":
            return PROMPT
        if any(side.ended for side in found.sides):
            return SHORTER
        tied = found.tied(bound, self.asked)
        return UNKNOWN if tied is None else TIE if tied else NO_TIE

    def gap(self) -> float | None:
        """Nats from the target's best token to the further of the two, the least that is known."""
        return None if self.difference is None else self.difference.least_gap(self.asked)


def texts_at(path: Path, response: int | None) -> list[Written]:
    """The texts of a file, or of all traces in a folder, by name. Raises UserError."""
    if not path.is_dir():
        return read_texts(path, response)
    files = sorted(file for ending in ENDINGS for file in path.glob(f"*{ending}"))
    if not files:
        raise UserError(f"the folder {path} holds no trace (.jsonl or .jsonl.gz)")
    return [text for file in files for text in read_texts(file)]


def paired(ones: Sequence[Written], others: Sequence[Written]) -> list[tuple[Written, Written]]:
    """Texts on the same prompt: by its token ids where all tell them, else in their order.

    Several on one prompt are taken in their order. Raises UserError where that cannot be told.
    """
    if len(ones) == len(others) == 1:
        return [(ones[0], others[0])]
    if any(text.prompt is None for text in (*ones, *others)):
        if len(ones) != len(others):
            raise UserError(
                f"{plural(len(ones), 'text')} and {len(others)} cannot be paired: not all tell "
                "their prompt's token ids (choose one with --response)"
            )
        return list(zip(ones, others, strict=True))
    waiting: dict[Any, list[Written]] = {}
    for text in others:
        waiting.setdefault(text.prompt, []).append(text)
    found = [(text, waiting[text.prompt].pop(0)) for text in ones if waiting.get(text.prompt)]
    if not found:
        raise UserError(
            "no prompt of the one side is one of the other, token by token: another chat template "
            "or tokenizer, or other prompts (--response compares one pair)"
        )
    return found


def compared(pairs: Sequence[tuple[Written, Written]], *, greedy: bool) -> list[Pair]:
    """Each pair with its first difference. ``greedy``: raises UserError for sampled texts, of which
    a tie says nothing."""
    for text in (text for pair in pairs for text in pair):
        if greedy and text.sampled:
            raise UserError(f"{text.name} was sampled: only greedy texts part at ties alone")
    return [Pair(one, other, first_difference(one, other)) for one, other in pairs]


def asked(pair: Pair, log_p: LogP) -> Pair:
    """With what a target says where the two part; unchanged where the ids are not told."""
    found, prompt = pair.difference, pair.one.prompt or pair.other.prompt
    if found is None or found.what != "token" or prompt is None:
        return pair
    tokens = [side.token for side in found.sides]
    if None in tokens:
        return pair
    values = log_p([*prompt, *(pair.one.tokens or ())[: found.index]])
    if max(t for t in tokens if t is not None) >= len(values):
        raise UserError(f"{pair.one.name} is a text of another target: it has fewer tokens")
    one, other, best = np.exp([values[tokens[0]], values[tokens[1]], values.max()]).tolist()
    return replace(pair, asked=Side(tokens[0], found.sides[0].text, one, other, best=best))


@dataclass(frozen=True)
class Partings:
    """How many pairs are of each kind, and which engine's token its own p does not support.

    unmatched  texts without a partner; ``off``: by side, texts whose token where they part is
               more than the bound below the best of its own p
    """

    bound: float
    pairs: int
    same: int
    shorter: int
    prompts: int
    ties: int
    others: int
    unknown: int
    unmatched: int
    off: tuple[int, int]

    @property
    def parted(self) -> int:
        return self.ties + self.others + self.unknown

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"parted": self.parted, "verdict": verdict(self)}


def counted(pairs: Sequence[Pair], bound: float, unmatched: int = 0) -> Partings:
    """The counts."""
    kinds = [pair.kind(bound) for pair in pairs]
    judged = [p.difference for p, k in zip(pairs, kinds, strict=True) if k in (TIE, NO_TIE)]
    off = [sum(d is not None and d.sides[n].is_off(bound) for d in judged) for n in (0, 1)]
    return Partings(
        bound, len(pairs), kinds.count(SAME), kinds.count(SHORTER), kinds.count(PROMPT),
        kinds.count(TIE), kinds.count(NO_TIE), kinds.count(UNKNOWN), unmatched, (off[0], off[1]),
    )  # fmt: skip


def verdict(found: Partings) -> str:
    """One sentence that follows from the counts."""
    within, parted = f"{found.bound:g} nats", found.parted
    open_ = f"of {found.unknown} more p is not known"
    if not parted:
        whole = found.same + found.shorter
        return f"No text parts: {whole} of {plural(found.pairs, 'pair')} agree as far as both go."
    if found.others:
        known = found.ties + found.others
        low, high = (float(end) for end in wilson(found.others, known))
        said = (
            f"No tie within {within} explains {found.others} of {plural(known, 'parting')} "
            f"({share(found.others / known, 0)}, 95 % {interval(low, high)}): look for other "
            "weights, precision, sampling or masks, or a lossy rule"
        )
        return said + (f"; {open_}." if found.unknown else ".")
    if not found.unknown:
        return f"Ties within {within} explain all {plural(parted, 'parting')}: rounding suffices."
    if found.ties:
        return (
            f"Ties within {within} explain {found.ties} of {plural(parted, 'parting')}; {open_}, "
            "so a bug is not excluded."
        )
    return f"Tie or bug is not known: p is recorded at none of {plural(parted, 'parting')}."


def remarks(found: Partings, names: tuple[str, str]) -> list[str]:
    """What else the counts say."""
    said = []
    for name, count in zip(names, found.off, strict=True):
        if count:
            said.append(
                f"In {count} of them the token of {name} is more than {found.bound:g} nats below "
                "the best of its own p: its rule, or its record of p, is at fault."
            )
    if found.shorter:
        said.append(f"In {plural(found.shorter, 'pair')} one text is the beginning of the other.")
    if found.prompts:
        said.append(f"The prompts of {plural(found.prompts, 'pair')} differ: nothing is judged.")
    if found.unmatched:
        said.append(f"{plural(found.unmatched, 'text')} had no partner on the same prompt.")
    return said
