"""Rounds of any builder, budget or option simulated on a collected text, without the model.

What a round accepts follows from what is drafted at its root (``core.verification.walk``), so
each position is searched once and remembered. Where a smaller draft is the beginning of a larger
one (``BuilderInfo.nested``), one search serves every budget: the draft of budget b accepts the rows
of the accepted path that stand among the first b. Light: numpy and numba, never torch.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from analysis.collected.collection import Collection, DrafterLimits, drafter_key
from analysis.numbers import plural
from core.decoding.request import check_budget
from core.drafting.session import (
    Builder,
    DraftSession,
    FactorisedSession,
    RecordedSession,
)
from core.errors import UserError
from core.methods.method import BuilderInfo, Method, Options, Value, lazy, made_options
from core.methods.registry import find_method
from core.rounds.draft import Candidates, Draft
from core.rounds.round import Round
from core.verification.walk import lengths, verdict

NEVER = 1 << 30


@dataclass(frozen=True)
class SimulatedRun:
    """One simulated run.

    lengths  acceptance lengths (accepted + 1), round by round; ``starts``: their roots' positions
    exact    whether a real run of these settings takes exactly these rounds; ``note`` says why not,
             or which run that is
    """

    method: str
    budget: int
    options: Mapping[str, Value]
    lengths: tuple[int, ...]
    starts: tuple[int, ...]
    new_tokens: int
    exact: bool
    note: str

    @property
    def rounds(self) -> int:
        return len(self.lengths)

    @property
    def tau(self) -> float:
        """Mean acceptance length, as a trace's summary has it."""
        return sum(self.lengths) / len(self.lengths) if self.lengths else 1.0


@dataclass(frozen=True)
class _Walk:
    """The answer at a position for all budgets up to ``budget``, or for that one alone.

    rows   the draft's rows on the accepted path, without the root; ``nodes``: of the draft
    limit  the last row that no longer list than the file's can change; ``NEVER``: all
    """

    budget: int
    rows: tuple[int, ...]
    nodes: int
    limit: int

    def accepted(self, budget: int) -> int:
        return sum(row <= budget for row in self.rows)

    def drafted(self, budget: int) -> int:
        return min(self.nodes, budget)


@dataclass(frozen=True, eq=False)
class _Simulated(Round):
    """A simulated round. ``lists``: all that the file holds of the drafter's tokens by depth, which
    tell the rank of a token that the round's own, shorter lists lack."""

    lists: Candidates | None = None

    @cached_property
    def wanted_rank(self) -> int | None:
        proposal, lists, at = self.proposal, self.lists, self.accepted
        rank = super().wanted_rank
        by_depth = proposal is not None and proposal.factorised_lists
        if rank is not None or lists is None or not by_depth or at >= len(lists.ids):
            return rank
        listed = (lists.ids[at] == self.verdict.bonus) & np.isfinite(lists.log_q[at])
        found = np.flatnonzero(listed)
        return int(found[0]) + 1 if len(found) else None


class Simulation:
    """A method with its options on a collected text. Reuse it: every position is searched once.

    Raises UserError for an unknown option, a drafter or temperature that the file does not have, or
    a drafter whose states cannot be listed.
    """

    def __init__(self, collection: Collection, method: str, options: Options | None = None):
        chosen = find_method(method)
        self.collection, self.method = collection, method
        self.options = chosen.resolve(options or {})
        self.limits = collection.limits(method)
        _check_drafter(chosen, method, self.options, self.limits)
        info = chosen.drafter_info
        self._drafter = drafter_key(method)
        self._recorded = lazy(info.recorded) if info and self.limits.candidates else None
        builder: Builder = chosen.make_builder(collection.header, self.options)
        self.builder = builder.for_run(collection.header.sampling)
        self._learns = self.builder.learns
        self.nested = chosen.builder_info is not None and chosen.builder_info.nested
        self._optimal = _optimal(chosen.builder_info, self.options)
        self.default_budget = chosen.budget
        self._walks: dict[Hashable, _Walk] = {}  # by position; by (position, budget) if not nested

    def run(self, budget: int | None = None, new_tokens: int | None = None) -> SimulatedRun:
        """The whole run of one budget, or its beginning of at most ``new_tokens`` tokens."""
        budget = self.default_budget if budget is None else budget
        check_budget(budget)
        answer, whole = self.collection.answer, self.collection.end - self.collection.answer
        wanted = whole if new_tokens is None else new_tokens
        if not 1 <= wanted <= whole:
            raise UserError(f"the collected text has 1 to {whole} new tokens, not {wanted}")
        found = lengths(lambda at: self._walk(answer + at, budget).accepted(budget) + 1, wanted - 1)
        starts = tuple(np.cumsum([answer, *found[:-1]]).tolist()) if found else ()
        doubtful = sum(self._walk(at, budget).limit < budget for at in starts)
        given = self.collection.header.given
        off = sum(n < wanted for n in given.off) if given is not None else 0
        why_not = self._why_not(doubtful, off)
        exact, note = not why_not, f"not exact: {why_not}" if why_not else self._which()
        return SimulatedRun(self.method, budget, self.options, found, starts, wanted, exact, note)

    def curve(self, budgets: Iterable[int], new_tokens: int | None = None) -> list[SimulatedRun]:
        """A run for each budget; the largest goes first, so that its searches serve the others."""
        wanted = list(budgets)
        found = {b: self.run(b, new_tokens) for b in sorted(set(wanted), reverse=True)}
        return [found[b] for b in wanted]

    def drafted(self, run: SimulatedRun) -> list[int]:
        """Nodes of the draft of each round of one of its runs."""
        return [self._walk(at, run.budget).drafted(run.budget) for at in run.starts]

    def draft(self, position: int, budget: int | None = None) -> Draft:
        """Draft a round with its root at ``position``."""
        budget = self.default_budget if budget is None else budget
        check_budget(budget)
        return self._draft(self._session(position, budget), position, budget)

    def round(self, position: int, budget: int | None = None) -> Round:
        """That round as a record: its draft, and the walk along the text. The target's tokens off
        the accepted path are not known (−1), nor is any of its probabilities."""
        draft = self.draft(position, budget)
        decided = verdict(draft, self._text_at(position))
        accepted = draft.tokens[list(decided.path[1:])].tolist()
        record = _Simulated(
            index=position - self.collection.answer,
            position=position,
            draft=draft,
            verdict=decided,
            # the bonus token is −1 where the collected text ends
            committed=tuple(t for t in (*accepted, decided.bonus) if t >= 0),
            budget=self.default_budget if budget is None else budget,
            lists=self.collection.lists(self._drafter, position),
        )
        return record.with_texts({t: self.collection.piece(t) for t in record.mentioned})

    def _draft(self, session: DraftSession, position: int, budget: int) -> Draft:
        text = self.collection.tokens[: position + 1].tolist()
        return self.builder(session, text, budget)

    def _session(self, position: int, budget: int) -> FactorisedSession | RecordedSession:
        """Return a session with the drafter's lists for this budget, as the file holds them."""
        lists = self.collection.lists(self._drafter, position)
        width = max(self.limits.min_width, self.builder.width(budget))
        by_depth = Candidates(lists.ids[:, :width], lists.log_q[:, :width])
        if self._recorded is None:
            return FactorisedSession(by_depth)
        tables = self.collection.tables(self._drafter, position)
        return self._recorded(by_depth, tables, self.options)

    def _text_at(self, position: int) -> list[int]:
        """The target's tokens after a root, as far as any draft reaches, and the bonus token."""
        return self.collection.tokens[position + 1 :][: self.limits.max_depth + 1].tolist()

    def _walk(self, position: int, budget: int) -> _Walk:
        key = position if self.nested else (position, budget)
        known = self._walks.get(key)
        if known is None or known.budget < budget:
            session = self._session(position, budget)
            draft = self._draft(session, position, budget)
            path = verdict(draft, self._text_at(position)).path[1:]
            known = self._walks[key] = _Walk(
                budget, path, draft.nodes, self._limit(session, draft, budget)
            )
        return known

    def _limit(
        self, session: FactorisedSession | RecordedSession, draft: Draft, budget: int
    ) -> int:
        """The last row that no longer list than the file's can change; NEVER: all.

        A token after the last of a list is at most as good as that one, so a best-first order is
        right up to the last one, which is drafted. Any other builder needs all that it reads.
        """
        read, proposal = self.builder.reads, draft.proposal
        by_depth_only = proposal is None or proposal.factorised_lists
        if isinstance(session, FactorisedSession) or (by_depth_only and read is not None):
            wanted = budget if read is None else read
            width = wanted if self.limits.complete else self.limits.width
        elif not session.complete:
            return 0
        else:
            wanted, width = session.listed, self.limits.siblings
        if wanted <= width:
            return NEVER
        cut = np.flatnonzero(draft.ranks >= width) if self._optimal else np.zeros(1, int)
        return int(cut[0]) if len(cut) else NEVER

    def _why_not(self, doubtful: int, off: int) -> str:
        """Why a real run may take other rounds; "": it takes these. ``off``: tokens of a given text
        that are not the target's own."""
        limits = self.limits
        if self._learns:
            return "the builder fits its costs to the times of a real run, which are not known here"
        if doubtful:
            held = f"{limits.width} tokens per depth"
            if limits.candidates:
                held += f", {limits.candidates} candidates and {limits.siblings} siblings"
            return f"in {plural(doubtful, 'round')} the file's {held} may not be enough"
        if off:
            not_its = f"{plural(off, 'token')} of it {'is' if off == 1 else 'are'} not the target's"
            return (
                "the rounds follow the given text, which a greedy run would leave: "
                f"{not_its} choice"
            )
        return ""

    def _which(self) -> str:
        """Of which run the exact rounds are."""
        sampling = self.collection.header.sampling
        if self.collection.header.given is not None:
            return "exact: the given text is what a real greedy run on this prompt writes"
        if not sampling.greedy:
            return (
                f"exact for this text, sampled at T = {sampling.temperature:g} with seed "
                f"{sampling.seed}; another seed writes another text"
            )
        return "exact for this text: the rounds of a real greedy run on this prompt"


def _optimal(info: BuilderInfo | None, options: Options) -> bool:
    """Whether the builder's drafts hold the most probable prefixes of all that is listed."""
    if info is None or info.optimal is None:
        return False
    return info.optimal(made_options(info.options, options))


def _check_drafter(chosen: Method, method: str, options: Options, limits: DrafterLimits) -> None:
    """Raises UserError for options with which the drafter would propose something else."""
    for option in chosen.drafter_options:
        wanted, held = options[option.name], limits.setting(option.name)
        if option.collect is None and held is not None and held != wanted:
            raise UserError(
                f"the file holds {method}'s drafter with {option.name}={held}: "
                f"collect it again with --set {option.name}={wanted}"
            )
