"""One finding: a sentence about rounds that were seen, with its n and a round to look at.

Of fewer than ``FEW_SEEN`` a finding says only that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from analysis.frames import Frame
from analysis.measures.remedies import Claims
from analysis.numbers import plural
from core.stats import FEW_SEEN


@dataclass(frozen=True)
class Finding:
    """One sentence about a label's rounds.

    about  rule, text, ends, width, depth, trust, sibling, cliff, slope, token_class, script or tag
    n      what the sentence counts: rounds, positions or nodes
    run    a run in which to look; ``round``: one of its rounds, from 1
    claims  what the sentence says of remedies, for programs
    """

    label: str
    about: str
    n: int
    words: str
    run: str
    round: int
    claims: Claims = field(default_factory=dict)

    @staticmethod
    def of(
        label: object,
        about: str,
        n: int,
        unit: str,
        words: str,
        example: Frame,
        claims: Claims | None = None,
    ) -> Finding:
        """``unit``: what n counts; ``example``: rows with a run and a round, the first of which is
        one to look at."""
        first = example.iloc[0]
        look = str(first["run"]), int(first["round"])
        if n < FEW_SEEN:
            return _TooFew(str(label), about, int(n), "", *look, unit=unit)
        return Finding(str(label), about, int(n), words, *look, claims or {})


_ABOUT = {
    "ends": "why walks end",
    "width": "width",
    "depth": "depth",
    "trust": "path probabilities",
    "sibling": "siblings",
}


@dataclass(frozen=True)
class _TooFew(Finding):
    """So few observations that nothing is concluded. ``unit``: of what."""

    unit: str = ""


def few_once(found: Sequence[Finding]) -> Iterator[Finding]:
    """One sentence for each label says which measures too few observations leave open."""
    few: dict[str, list[_TooFew]] = {}
    for each in found:
        if isinstance(each, _TooFew):
            few.setdefault(each.label, []).append(each)
    for each in found:
        if not isinstance(each, _TooFew):
            yield each
        elif each is few[each.label][0]:
            counts = _listed([plural(n.n, n.unit) for n in few[each.label]], "and")
            about = _listed([_ABOUT[n.about] for n in few[each.label]], "or")
            words = f"Only {counts}: too few to conclude anything about {about}."
            yield Finding(each.label, each.about, each.n, words, each.run, each.round)


def _listed(words: Iterable[str], last: str) -> str:
    """Words in a row, each once."""
    *before, end = dict.fromkeys(words)
    return f"{', '.join(before)} {last} {end}" if before else end
