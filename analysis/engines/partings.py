"""Tie or bug: where many texts of two engines part, and whether a near tie explains it.

Greedy texts may part where the target's best tokens are nearly alike: another order of rounding
swaps them. Of every pair only the first parting is judged, for after it the two write different
texts. A tie is a place where both tokens lie within a stated number of nats of the target's best,
by p of the engines' traces or of a target that is asked. Where one p says so and another does not,
the targets disagree. Never torch.
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
from core.progress import Steps, silent
from core.readers import Say
from core.rounds.draft import Array
from core.stats import wilson
from core.traces.reader import traces_in

LogP = Callable[[Sequence[int]], Array]  # a text's ids → log p [V] of the token after it
SAME, SHORTER, PROMPT = "same", "one ends first", "prompts differ"
TIE, NO_TIE, DISPUTED, UNKNOWN = "tie", "no tie", "targets disagree", "not known"
KINDS = (SAME, SHORTER, PROMPT, TIE, NO_TIE, DISPUTED, UNKNOWN)


@dataclass(frozen=True, eq=False)
class TextPair:
    """Two texts on one prompt. ``difference``: the first one; ``asked``: what a target that was
    asked says of the two tokens there."""

    one: Written
    other: Written
    difference: Difference | None
    asked: Side | None = None

    @property
    def compared(self) -> bool:
        """Whether neither is of a trace that broke off before its first token."""
        return all(each.complete or each.tokens for each in (self.one, self.other))

    def kind(self, bound: float) -> str:
        """Find its kind in ``KINDS``, with ties up to ``bound`` nats."""
        found = self.difference
        if found is None:
            return SAME
        if found.what == "prompt":
            return PROMPT
        if any(side.ended for side in found.sides):
            return SHORTER
        if found.disputed(bound, self.asked):
            return DISPUTED
        tied = found.tied(bound, self.asked)
        return UNKNOWN if tied is None else TIE if tied else NO_TIE

    def gap(self) -> float | None:
        """Nats from the target's best token to the further of the two, the least that is known."""
        return None if self.difference is None else self.difference.least_gap(self.asked)


def texts_at(
    path: Path, response: int | None, report: Steps = silent, cut: Say | None = None
) -> list[Written]:
    """The texts of a file, or of all traces in a folder, by name. Raises UserError."""
    if not path.is_dir():
        return read_texts(path, response, lambda share: report(share, path.name), cut)
    files = traces_in(path)
    texts = list[Written]()
    for done, file in enumerate(files):
        report(done / len(files), file.name)
        texts += read_texts(file)
    return texts


def pair_texts(ones: Sequence[Written], others: Sequence[Written]) -> list[tuple[Written, Written]]:
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
            "the two sides have no prompt in common, token by token: their chat templates, "
            "tokenizers or prompts differ (--response compares one pair)"
        )
    return found


def compared(pairs: Sequence[tuple[Written, Written]]) -> list[TextPair]:
    """Each pair with its first difference; of several, those of greedy texts alone, for of others
    a tie says nothing. Raises UserError where no pair is left, and for a single one that parts."""
    greedy = [pair for pair in pairs if not any(text.sampled for text in pair)]
    chosen = pairs if len(pairs) == 1 else greedy
    found = [TextPair(one, other, first_difference(one, other)) for one, other in chosen]
    parted = any(p.difference is not None and p.difference.what != "prompt" for p in found)
    if not greedy and (parted or not found):
        name = next(text.name for text in pairs[0] if text.sampled)
        raise UserError(
            f"{name} was sampled: sampled texts may part at any token, so only greedy ones tell "
            "a tie from a bug"
        )
    return found


def ask_target(pair: TextPair, log_p: LogP) -> TextPair:
    """Add what a target says where the two part; nothing where the ids are not told."""
    found, prompt = pair.difference, pair.one.prompt or pair.other.prompt
    if found is None or found.what != "token" or prompt is None:
        return pair
    tokens = [side.token for side in found.sides]
    if None in tokens:
        return pair
    values = log_p([*prompt, *(pair.one.tokens or ())[: found.index]])
    if max(t for t in tokens if t is not None) >= len(values):
        raise UserError(f"{pair.one.name} is a text of another target: this one has fewer tokens")
    one, other, best = np.exp([values[tokens[0]], values[tokens[1]], values.max()]).tolist()
    return replace(pair, asked=Side(tokens[0], found.sides[0].text, one, other, best=best))


@dataclass(frozen=True)
class Partings:
    """How many pairs are of each kind, and which engine's token its own p does not support.

    disputed   partings that are a tie by one p and none by another
    unmatched  texts without a partner; ``sampled``: pairs that were left out, for a text of theirs
               was sampled; ``off``: by side, texts whose token where they part is
               more than the bound below the best of its own p
    in_order   whether several were paired in their order, as not all tell their prompt
    foreign    pairs of which the tokenizers differ
    """

    bound: float
    pairs: int
    same: int
    shorter: int
    prompts: int
    ties: int
    others: int
    disputed: int
    unknown: int
    unmatched: int
    off: tuple[int, int]
    in_order: bool = False
    foreign: int = 0
    sampled: int = 0

    @property
    def parted(self) -> int:
        return self.ties + self.others + self.disputed + self.unknown

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"parted": self.parted, "verdict": tie_or_bug(self)}


def count_partings(
    pairs: Sequence[TextPair], bound: float, unmatched: int = 0, sampled: int = 0
) -> Partings:
    kinds = [pair.kind(bound) for pair in pairs]
    known = (TIE, NO_TIE, DISPUTED)
    judged = [p.difference for p, k in zip(pairs, kinds, strict=True) if k in known]
    off = [sum(d is not None and d.sides[n].is_off(bound) for d in judged) for n in (0, 1)]
    untold = any(text.prompt is None for pair in pairs for text in (pair.one, pair.other))
    return Partings(
        bound, len(pairs), kinds.count(SAME), kinds.count(SHORTER), kinds.count(PROMPT),
        kinds.count(TIE), kinds.count(NO_TIE), kinds.count(DISPUTED), kinds.count(UNKNOWN),
        unmatched, (off[0], off[1]), in_order=untold and len(pairs) > 1, sampled=sampled,
        foreign=sum(pair.one.reads_otherwise(pair.other) for pair in pairs),
    )  # fmt: skip


def tie_or_bug(found: Partings) -> str:
    within, parted = f"{found.bound:g} nats", plural(found.parted, "parting")
    whole = found.same + found.shorter
    open_ = f"; for {found.unknown} more p is not known" if found.unknown else ""
    if not found.parted and not whole:
        return f"Nothing is judged: the prompts of {plural(found.pairs, 'pair')} differ."
    if not found.parted:
        return f"No text parts: {whole} of {plural(found.pairs, 'pair')} agree as far as both go."
    if found.unknown == found.parted:
        return f"Whether they are ties is not known: p is recorded at none of {parted}."
    known = found.parted - found.unknown
    if found.others:
        low, high = (float(end) for end in wilson(found.others, known))
        of_more = f"; on {found.disputed} more the targets disagree" if found.disputed else ""
        return (
            f"No tie within {within} explains {found.others} of {plural(known, 'parting')} "
            f"({share(found.others / known, 0)}, 95 % {interval(low, high)}): look for other "
            f"weights, precision, sampling or masks, or a lossy rule{of_more}{open_}."
        )
    if found.disputed:
        return (
            f"The targets disagree on {found.disputed} of {plural(known, 'parting')}: each is a "
            f"tie within {within} by one and no tie by another. Rounding is not shown to suffice: "
            f"look for other weights or precision{open_}."
        )
    if found.unknown:
        return (
            f"Ties within {within} explain {found.ties} of {parted}{open_}, so a bug is not "
            "excluded."
        )
    return f"Ties within {within} explain all {parted}: rounding suffices."


def remarks(found: Partings, names: tuple[str, str]) -> list[str]:
    """List what else the counts say."""
    said = []
    if found.in_order:
        said.append("The texts are paired in their order, because not all tell their prompt.")
    if found.foreign:
        said.append(
            f"The tokenizers of {plural(found.foreign, 'pair')} differ: ids were compared, and "
            "an id of one may be another token of the other."
        )
    if found.disputed:
        said.append(
            f"Of {plural(found.ties + found.disputed, 'tie')} by at least one p, another p "
            f"excludes {found.disputed}: it puts one of the tokens more than {found.bound:g} nats "
            "below its best."
        )
    for name, count in zip(names, found.off, strict=True):
        if count:
            said.append(
                f"In {plural(count, 'parting')} the token of {name} is more than {found.bound:g} "
                "nats below the best of its own p: its rule, or its record of p, is at fault."
            )
    if found.shorter:
        said.append(f"In {plural(found.shorter, 'pair')} one text is the beginning of the other.")
    if found.prompts:
        said.append(f"The prompts of {plural(found.prompts, 'pair')} differ: nothing is judged.")
    if found.sampled:
        said.append(
            f"Left out: {plural(found.sampled, 'pair')} with a sampled text. Sampled texts "
            "may part at any token."
        )
    if found.unmatched:
        said.append(f"{plural(found.unmatched, 'text')} had no partner on the same prompt.")
    return said
