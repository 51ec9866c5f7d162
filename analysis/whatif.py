"""What any builder, budget or option would have done on a collected text, without the model.

A round's acceptance length follows from what is drafted at its root (``core.verification.simulate``), so it is
worked out once per position and kept. Where a smaller draft is the beginning of a larger one
(``nested``), one search serves every budget: a draft of b nodes accepts the rows of the accepted
path that stand among its first b. Light: numpy and numba, never torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from analysis.collection import Collection, Limits, drafter_key
from core.drafting.builders import MAX_BUDGET, reads, width_for
from core.errors import UserError
from core.methods.registry import BUILDERS, Options, Value, load_builder, recipe, settle
from core.rounds.draft import Array, Candidates, Draft, Transitions
from core.rounds.round import TEXT_LIMIT, Round
from core.verification.simulate import lengths, verdict

if TYPE_CHECKING:
    from core.decoding.decode import Builder

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
class _Walked:
    """A position's answer for all budgets up to ``budget``, or for that one alone.

    rows   the draft's rows on the accepted path, without the root
    bites  the first row behind which the file's cut list may have hidden a better token
    """

    budget: int
    rows: tuple[int, ...]
    bites: int

    def accepted(self, budget: int) -> int:
        return sum(row <= budget for row in self.rows)


class Simulation:
    """A method with its options on a collected text. Keep it: every position is worked out once.

    Raises UserError for an unknown option, or a drafter or temperature that the file does not have.
    """

    def __init__(self, collected: Collection, method: str, options: Options | None = None):
        self.collected, self.method = collected, method
        self.options = settle(method, options or {})
        self.limits = collected.limits(method)
        self._drafter, chosen = drafter_key(method), recipe(method)
        _check_drafter(self.options, self.limits, method)
        self.builder: Builder = load_builder(chosen, collected.header, self.options)
        self.nested = isinstance(chosen.builder, str) and BUILDERS[chosen.builder].nested
        self.default_budget = chosen.budget
        self._walked: dict[int, _Walked] = {}
        self._single: dict[tuple[int, int], _Walked] = {}

    def run(self, budget: int | None = None, new_tokens: int | None = None) -> SimulatedRun:
        """The whole run of one budget, or its beginning of at most ``new_tokens`` tokens."""
        budget = self.default_budget if budget is None else budget
        check_budget(budget)
        whole = self.collected.end - self.collected.answer
        wanted = whole if new_tokens is None else new_tokens
        if not 1 <= wanted <= whole:
            raise UserError(f"the collected text has 1 to {whole} new tokens, not {wanted}")
        answer = self.collected.answer
        taken = lengths(lambda at: self._at(answer + at, budget).accepted(budget) + 1, wanted - 1)
        starts = tuple(np.cumsum([answer, *taken[:-1]]).tolist()) if taken else ()
        bitten = sum(self._at(at, budget).bites <= budget for at in starts)
        exact, note = self._honest(bitten)
        return SimulatedRun(
            self.method, budget, self.options, taken, starts, wanted, exact, note
        )  # fmt: skip

    def curve(self, budgets: Iterable[int], new_tokens: int | None = None) -> list[SimulatedRun]:
        """A run for each budget; the largest goes first, so that its searches serve the others."""
        wanted = list(budgets)
        found = {b: self.run(b, new_tokens) for b in sorted(set(wanted), reverse=True)}
        return [found[b] for b in wanted]

    def draft(self, position: int, budget: int | None = None) -> Draft:
        """What a round with its root at ``position`` drafts."""
        return self._drafted(position, budget)[1]

    def round(self, position: int, budget: int | None = None) -> Round:
        """That round as a record: its draft, and the walk along the text. What the target says off
        the accepted path is not known (choices −1), nor any probability of its."""
        candidates, draft = self._drafted(position, budget)
        decided = verdict(draft, self.behind(position))
        accepted = draft.tokens[list(decided.path[1:])].tolist()
        committed = tuple(t for t in (*accepted, decided.bonus) if t >= 0)  # −1: a full context
        mentioned = {
            *draft.tokens.tolist(),
            *candidates.ids[:, :TEXT_LIMIT].ravel().tolist(),
            *committed,
        }
        if draft.offers is not None:
            mentioned |= set(draft.offers.ids.ravel().tolist())
        return Round(
            index=position - self.collected.answer,
            position=position,
            draft=draft,
            verdict=decided,
            committed=committed,
            candidates=replace(candidates, transitions=None, read=reads(self.builder)),
            texts={t: self.collected.piece(t) for t in sorted(mentioned) if t >= 0},
        )

    def _drafted(self, position: int, budget: int | None) -> tuple[Candidates, Draft]:
        budget = self.default_budget if budget is None else budget
        check_budget(budget)
        offered = self._offered(position, budget)
        text = self.collected.tokens[: position + 1].tolist()
        return offered, self.builder(offered, text, budget)

    def _offered(self, position: int, budget: int) -> Candidates:
        """What the drafter hands the builder at this budget, as far as the file holds it."""
        whole = self.collected.candidates(self._drafter, position)
        width = max(self.limits.least, width_for(self.builder, budget))
        cut = Candidates(whole.ids[:, :width], whole.log_q[:, :width])
        if whole.transitions is None:
            return cut
        kept = (int(self.options["candidates"]), int(self.options["siblings"]))
        return replace(cut, transitions=_narrowed(whole.transitions, *kept))

    def behind(self, position: int) -> list[int]:
        """The target's tokens behind a root, as far as any draft reaches, and the bonus behind."""
        return self.collected.tokens[position + 1 :][: self.limits.depths + 1].tolist()

    def _at(self, position: int, budget: int) -> _Walked:
        if not self.nested:
            key = (position, budget)
            if key not in self._single:
                self._single[key] = self._walk(position, budget)
            return self._single[key]
        known = self._walked.get(position)
        if known is None or known.budget < budget:
            known = self._walked[position] = self._walk(position, budget)
        return known

    def _walk(self, position: int, budget: int) -> _Walked:
        offered, draft = self._drafted(position, budget)
        path = verdict(draft, self.behind(position)).path[1:]
        return _Walked(budget, path, self._bites(offered, draft, budget))

    def _bites(self, offered: Candidates, draft: Draft, budget: int) -> int:
        """The first row that a longer list than the file's might have changed; NEVER: none.

        A token behind the last of a list is no better than that one, so the best-first order is
        right until the last one is drafted. Other builders must be given all that they read.
        """
        limits, own = self.limits, reads(self.builder)
        conditioned = draft.offers is not None or own is None  # not so if it reads plain q alone
        if offered.transitions is not None and conditioned:
            if int(self.options["candidates"]) > limits.candidates:
                return 0
            kept, wanted = limits.siblings, int(self.options["siblings"])
        else:
            wanted = budget if own is None else own
            kept = wanted if limits.complete else limits.kept
        if wanted <= kept:
            return NEVER
        if not self._best_first:
            return 0
        cut: Array = np.flatnonzero(draft.ranks >= kept)
        return int(cut[0]) if len(cut) else NEVER

    @property
    def _best_first(self) -> bool:
        builder = recipe(self.method).builder
        return builder in ("chain", "best-first") or self.options.get("gain") == 0

    def _honest(self, bitten: int) -> tuple[bool, str]:
        """Whether the rounds are a real run's, and one sentence about it."""
        limits, sampling = self.limits, self.collected.header.sampling
        if bitten:
            kept = f"{limits.kept} tokens per depth"
            if limits.candidates:
                kept += f", {limits.candidates} candidates and {limits.siblings} siblings"
            rounds = "1 round" if bitten == 1 else f"{bitten} rounds"
            return False, f"not exact: in {rounds} the file's {kept} may not be enough"
        if sampling.get("temperature", 0):
            return True, (
                f"exact for this text, sampled at T = {sampling['temperature']:g} with seed "
                f"{sampling.get('seed', 0)}; another seed writes another text"
            )
        return True, "exact for this text: the rounds of a real greedy run on this prompt"


def simulate(
    collected: Collection,
    method: str,
    budget: int | None = None,
    options: Options | None = None,
    new_tokens: int | None = None,
) -> SimulatedRun:
    """One run; who asks again keeps a ``Simulation``. ``budget`` None is the method's default."""
    return Simulation(collected, method, options).run(budget, new_tokens)


def check_budget(budget: int) -> None:
    """Raises UserError for a budget no run can have."""
    if not 1 <= budget <= MAX_BUDGET:
        raise UserError(f"the budget must be 1 to {MAX_BUDGET}, not {budget}")


def _check_drafter(options: Options, limits: Limits, method: str) -> None:
    """Raises UserError for options that change what the drafter says otherwise than by cutting."""
    for name in recipe(method).drafter_options:
        wanted = options[name]
        if name in ("candidates", "siblings"):
            if not 1 <= int(wanted) <= MAX_BUDGET:
                raise UserError(f"the option {name} must be 1 to {MAX_BUDGET}, not {wanted}")
        elif name in limits.options and limits.options[name] != wanted:
            raise UserError(
                f"the file holds {method}'s drafter with {name}={limits.options[name]}: "
                f"collect it again with --set {name}={wanted}"
            )


def _narrowed(t: Transitions, candidates: int, siblings: int) -> Transitions:
    """The tables of a drafter that keeps fewer candidates and siblings."""
    part = np.s_[:, :candidates, :siblings]
    follow = t.follow[part]
    return Transitions(
        np.ascontiguousarray(t.ids[part]),
        np.ascontiguousarray(t.log_q[part]),
        np.ascontiguousarray(t.marginal[part]),
        np.where(follow < candidates, follow, -1).astype(np.int32),
    )
