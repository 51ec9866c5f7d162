"""What a drafter would reach on finished texts, without the target.

The target's text is known, so a round that starts at some token accepts exactly the prefix of the
drafted tree that agrees with the text. The drafter walks along the text once, as it does when
decoding; every builder and budget drafts from its sessions. For the target's own greedy (or
position-keyed sampled) text this gives the acceptance lengths of a real run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from core.decoding.decode import Decoder
from core.drafting.session import Builder, Children, Drafter, DraftSession, WrappedSession
from core.drafting.states import StateTable
from core.learning.shards import Document
from core.methods import loading
from core.methods.method import lazy
from core.methods.registry import find_builder, find_drafter
from core.models.language import Language
from core.rounds.draft import Array, Draft
from core.rounds.round import Verdict
from core.stats import difference
from core.train.bars import progress_bar
from core.train.evaluation import NEW_TOKENS, Text
from core.verification.rules import TargetTokens
from core.verification.simulate import verdict

_BUCKET = 64  # rows after a text that a drafter's padded shapes may use


@dataclass(frozen=True)
class Setup:
    """A builder with its budget, by the name that a report gives it."""

    name: str
    builder: Builder
    budget: int


def setups(name: str, builder: Builder, budgets: Sequence[int], max_depth: int) -> list[Setup]:
    """The builder at every budget; one that makes chains only at the longest."""
    if builder.reads == 1:
        return [Setup(name, builder, max_depth)]
    return [Setup(f"{name} {budget}", builder, budget) for budget in budgets]


def named_builder(name: str, language: Language) -> Builder:
    """A builder by its name in the registry, with its default options."""
    info = find_builder(name)
    return lazy(info.make)(language, info.options() if info.options else None)


def load_drafter(name: str, language: Language, folder: Path | None) -> Drafter:
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
        return difference(*self._totals(name), *base._totals(name))

    def of(self, chosen: Sequence[bool]) -> Score:
        """Over some of the texts."""
        return Score({name: list(compress(runs, chosen)) for name, runs in self.runs.items()})

    def _totals(self, name: str) -> tuple[list[int], list[int]]:
        runs = self.runs[name]
        return [sum(run) for run in runs], [len(run) for run in runs]


def score(
    language: Language,
    drafter: Drafter,
    texts: Sequence[Text],
    setups: Sequence[Setup],
) -> Score:
    """Simulated runs of every setup over the target's texts."""
    bar = progress_bar(len(texts), "simulating", "text")
    runs: dict[str, list[tuple[int, ...]]] = {setup.name: [] for setup in setups}
    for text in texts:
        for name, lengths in simulate(language, drafter, text.document, setups).items():
            runs[name].append(lengths)
        bar.update()
    bar.close()
    return Score(runs)


@dataclass(frozen=True, eq=False)
class Simulated:
    """A round on a finished text.

    root  index of its root in the text; ``session``: what the draft was made of
    """

    setup: Setup
    root: int
    session: DraftSession
    draft: Draft
    verdict: Verdict


@torch.inference_mode()
def rounds(
    drafter: Drafter,
    tokens: Sequence[int],
    features: Tensor,
    span: tuple[int, int],
    setups: Sequence[Setup],
) -> Iterator[Simulated]:
    """The rounds that each setup takes on a text of ``tokens`` [T] with ``features`` [T, F·h].

    A run's first round has its root at the ``span``'s first token; it ends when the next root would
    be the last one or a later one. The drafter walks once for all setups.
    """
    first, last = span
    width = max(setup.builder.width(setup.budget) for setup in setups)
    roots = {setup.name: first for setup in setups}  # where each run's next round begins
    drafter.reset(len(tokens) + _BUCKET)
    known, depth = 0, drafter.max_depth
    while (root := min(roots.values())) < last:
        drafter.extend(tokens[known:root], features[known:root])
        known = root
        session = SharedSession(drafter.begin(tokens[root], width))
        for setup in (s for s in setups if roots[s.name] == root):
            draft = setup.builder(session, tokens[: root + 1], setup.budget)
            found = verdict(draft, tokens[root + 1 : root + 1 + depth])
            roots[setup.name] += found.accepted + 1
            yield Simulated(setup, root, session, draft, found)


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
    tokens, first = document.tokens.tolist(), document.answer
    features = document.features_after(drafter.layers).to(language.device, language.model.dtype)
    last = first + min(new_tokens - 1, len(tokens) - 1 - first)
    runs: dict[str, list[int]] = {setup.name: [] for setup in setups}
    for each in rounds(drafter, tokens, features, (first, last), setups):
        runs[each.setup.name].append(each.verdict.accepted + 1)
    return {name: tuple(lengths) for name, lengths in runs.items()}


def why_run(method: Decoder) -> str:
    """Why the rounds of a method do not follow from the target's text; "" where they do."""
    if method.drafter is not None and method.drafter.learns:
        return "learns from its own run"
    if method.builder is not None and method.builder.learns:
        return "measures its own rounds"
    return "" if method.rule is TargetTokens else "accepts by a rule of its own"


class SharedSession(WrappedSession):
    """A session that several builders use in turn: no state is expanded twice."""

    def __init__(self, session: DraftSession):
        super().__init__(session)
        self._table = StateTable(session)

    def expand(self, states: Array) -> Children:
        """Every state known by then, these among them."""
        table = self._table
        table.expand(states)
        known = np.flatnonzero(table.row_of >= 0).astype(np.int32)
        rows = table.row_of[known]
        notes = {name: values[rows] for name, values in table.notes.items()}
        return Children(known, table.ids[rows], table.log_q[rows], table.next[rows], notes)
