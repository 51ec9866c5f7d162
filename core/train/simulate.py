"""Drafters judged on the target's own texts, without the target (``core.decoding.along``).

The drafter walks along a text once, as it does when decoding; every builder and budget drafts from
its sessions. For the target's own greedy (or position-keyed sampled) text this gives the acceptance
lengths of a real run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any

from core.decoding.along import Reading, Setup, rounds
from core.drafting.session import Builder, Drafter
from core.learning.shards import Document
from core.methods import loading
from core.methods.method import lazy
from core.methods.registry import find_builder, find_drafter
from core.models.language import Language
from core.progress import At, silent
from core.rounds.node import known
from core.stats import bootstrap, difference_interval, rounds_by_length
from core.train.evaluation import NEW_TOKENS, HeldOutText

ALL = "all"  # the source of rows over all sources
Row = dict[str, Any]


def reading_of(language: Language, drafter: Drafter, document: Document) -> Reading:
    """A document with the features that the drafter reads; p is not known.

    Raises UserError where the document lacks them.
    """
    layers = tuple(drafter.layers)
    features = document.features_after(layers).to(language.device, language.model.dtype)
    parts = features.chunk(len(layers), -1) if layers else ()
    tokens = document.tokens.long().to(language.device)
    states = dict(zip(layers, parts, strict=True))
    return Reading(tokens, document.answer, states, features[:0])


def setups(name: str, builder: Builder, budgets: Sequence[int], max_depth: int) -> list[Setup]:
    """The builder at every budget; one that makes chains only at the longest."""
    if builder.reads == 1:
        return [Setup(name, builder, max_depth)]
    return [Setup(f"{name} {budget}", builder, budget) for budget in budgets]


def named_builder(name: str, language: Language) -> Builder:
    """A builder by its name in the registry, with its default options."""
    info = find_builder(name)
    return lazy(info.make)(language, info.options() if info.options else None)


def trained_drafter(name: str, language: Language, folder: Path | None) -> Drafter:
    """A drafter by its name in the registry with a checkpoint's weights, as it decodes by default.

    Raises UserError where the folder holds none for this target.
    """
    info = find_drafter(name)
    options = info.options() if info.options else None
    return loading.load_drafter(info, language, folder, options)


@dataclass(frozen=True)
class Score:
    """Simulated runs over some texts: each setup's acceptance lengths (accepted + 1) by text."""

    runs: Mapping[str, Sequence[Sequence[int]]]

    def tau(self, name: str) -> float:
        """Tokens per round of a setup, Σ lengths ÷ Σ rounds."""
        sums, counts = self._totals(name)
        return sum(sums) / max(1, sum(counts))

    def gain(self, base: Score, name: str) -> tuple[float, float]:
        """The 95 % paired interval of a setup's τ less the base's on the same texts."""
        return difference_interval(*self._totals(name), *base._totals(name))

    def of(self, chosen: Sequence[bool]) -> Score:
        """The score over some of the texts."""
        return Score({name: list(compress(runs, chosen)) for name, runs in self.runs.items()})

    def _totals(self, name: str) -> tuple[list[int], list[int]]:
        runs = self.runs[name]
        return [sum(run) for run in runs], [len(run) for run in runs]


def score(
    language: Language,
    drafter: Drafter,
    texts: Sequence[HeldOutText],
    setups: Sequence[Setup],
    report: At = silent,
) -> Score:
    """Simulated runs of every setup over the target's texts."""
    runs: dict[str, list[tuple[int, ...]]] = {setup.name: [] for setup in setups}
    for done, text in enumerate(texts, 1):
        for name, lengths in simulate(language, drafter, text.document, setups).items():
            runs[name].append(lengths)
        report(done / len(texts))
    return Score(runs)


def simulate(
    language: Language,
    drafter: Drafter,
    document: Document,
    setups: Sequence[Setup],
    new_tokens: int = NEW_TOKENS,
) -> dict[str, tuple[int, ...]]:
    """Acceptance lengths of the rounds that each setup takes over a document's answer.

    A run ends at ``new_tokens``, of which prefill gives the first. Raises UserError where the
    document lacks features that the drafter reads.
    """
    first = document.answer
    last = first + min(new_tokens - 1, len(document) - 1 - first)
    runs: dict[str, list[int]] = {setup.name: [] for setup in setups}
    for each in rounds(drafter, reading_of(language, drafter, document), (first, last), setups):
        runs[each.setup.name].append(each.verdict.accepted + 1)
    return {name: tuple(lengths) for name, lengths in runs.items()}


def score_by_source(
    language: Language,
    drafter: Drafter,
    texts: Sequence[HeldOutText],
    setups: Sequence[Setup],
    report: At = silent,
) -> Iterator[Row]:
    """A row for each setup, sampling and source, and one over all sources."""
    for sampling in dict.fromkeys(t.sampling for t in texts):
        some = [t for t in texts if t.sampling == sampling]
        whole = score(language, drafter, some, setups, report)
        for source in dict.fromkeys([*(t.source for t in some), ALL]):
            mine = [source in (ALL, t.source) for t in some]
            for name in whole.runs:
                yield _row(name, whole.of(mine)) | {"sampling": sampling, "source": source}


def _row(name: str, result: Score) -> Row:
    """τ with its 95 % bootstrap interval over texts, and ``lengths``: rounds of length 1, 2, …"""
    low, high = map(known, bootstrap(result.runs[name]))
    lengths = rounds_by_length(result.runs[name])
    return {"method": name, "tau": result.tau(name), "low": low, "high": high, "lengths": lengths}
