"""A round: what the decoder yields, what a trace stores and what every view draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from .blocks import Block, BlockDraft
from .causes import Cause
from .draft import CHILDLESS, MAX_BUDGET, NOT_ASKED, ROOT, Array, Candidates, Draft, Proposal
from .node import Node, Nodes, beyond_root, chances, known, ranks_of, whole

ACCEPTED, REJECTED, UNREACHED, SIDE = "accepted", "rejected", "unreached", "side"  # of a row

_WIDE = 16  # tokens that a drafter with all of a vocabulary lists at least
TEXT_LIMIT = 64  # tokens of each list whose text a round keeps: longer lists are never shown whole


@dataclass(frozen=True, eq=False)
class Verdict:
    """The target's decision on a draft: the accepted path, and its own token after every row.

    path           accepted rows, the root first: [0, …]
    target_tokens  int64 [N], the target's own token after every row (argmax, or its sample);
                   −1 where it was not computed
    bonus_token    the next round's root where it is not the target's own token after the path's
                   last row: speculative sampling draws it from the residual distribution
    """

    path: tuple[int, ...]
    target_tokens: Array
    bonus_token: int | None = None

    @property
    def accepted(self) -> int:
        """Accepted drafted nodes."""
        return len(self.path) - 1

    @property
    def bonus(self) -> int:
        """The bonus token: the next round's root."""
        if self.bonus_token is not None:
            return self.bonus_token
        return int(self.target_tokens[self.path[-1]])


@dataclass(frozen=True, eq=False)
class TargetProbs:
    """The target's probabilities at every row of a draft, at temperature 1.

    log_p      float32 [N]     log p of the row's token given its path (NaN for the root)
    rank       int32   [N]     the token's rank under p, 1 = the most probable (0: root)
    top_ids    int64   [N, J]  the J most probable next tokens after the row
    top_log_p  float32 [N, J]
    entropy    float32 [N]     entropy of p after the row, nats
    """

    log_p: Array
    rank: Array
    top_ids: Array
    top_log_p: Array
    entropy: Array

    def some(self, rows: Sequence[int]) -> TargetProbs:
        """Those of some rows."""
        return TargetProbs(**{name: values[rows] for name, values in vars(self).items()})


@dataclass(frozen=True, eq=False)
class Probe:
    """Drafter against target at the depths this round observed (d = 1 … accepted + 1, at most L).

    A depth is observed when its parent was accepted. All others are unobserved, not rejected.

    tvd        float32 [d]      ½ Σ_v |q_d(v) − p(v | true prefix)|, full vocabulary
    coverage   float32 [d, 16]  C_K(d) = Σ_{l≤K} p(x̂_d^(l) | true prefix), x̂ the drafter's K best
    entropy_q  float32 [d]      entropy of q_d, nats
    rank_q     int32   [d]      rank of the target's own token under q_d, 1 = best; 0: none, for
                                q_d gives it nothing; −1: its token is not known
    vocabulary  how many tokens the drafter's head scores, where these are fewer than the target
                has; None: all, or not recorded
    """

    tvd: Array
    coverage: Array
    entropy_q: Array
    rank_q: Array
    vocabulary: int | None = None


@dataclass(frozen=True)
class Times:
    """Seconds spent in each stage of a round. What is outside the forwards is build + commit."""

    draft: float = 0.0
    build: float = 0.0
    verify: float = 0.0
    commit: float = 0.0

    @property
    def total(self) -> float:
        return self.draft + self.build + self.verify + self.commit

    @property
    def recorded(self) -> float | None:
        """``total``; None where no stage was timed, which zeros stand for."""
        return self.total or None


@dataclass(frozen=True)
class Sampling:
    """The target's rule for its own token. Temperature 0 is greedy."""

    temperature: float = 0.0
    top_k: int = 0  # 0 = off
    top_p: float = 1.0
    seed: int = 0

    @property
    def greedy(self) -> bool:
        return self.temperature == 0


GREEDY = Sampling()


@dataclass(frozen=True, eq=False)
class Round:
    """One round, as plain data.

    index      0, 1, 2 … within the run
    position   absolute position of the root token (prompt tokens come first)
    budget     the most nodes that it might draft; None: not recorded
    committed  tokens this round added to the text, cut at stop tokens and limits
    texts      token id → text, for every id a view shows (of long lists the first ones)
    block      a denoising call's block; then the draft is a ``BlockDraft``, ``position`` that of
               the block's first token, and ``committed`` in the order of unmasking
    faults     what a file's reader found in it that cannot be; such a round counts in no figure
    """

    index: int
    position: int
    draft: Draft | BlockDraft
    verdict: Verdict
    committed: tuple[int, ...]
    target_probs: TargetProbs | None = None
    probe: Probe | None = None
    times: Times = Times()
    texts: Mapping[int, str] = field(default_factory=dict)
    block: Block | None = None
    faults: tuple[str, ...] = field(default=(), compare=False)
    budget: int | None = field(default=None, compare=False)  # the run's: its header tells it

    @property
    def accepted(self) -> int:
        return self.verdict.accepted

    @property
    def number(self) -> int:
        """Which round it is, from 1, as people are shown it. Files hold ``index``."""
        return self.index + 1

    @property
    def proposal(self) -> Proposal | None:
        """The drafter's lists of tokens; None for plain decoding, denoising, or if not recorded."""
        return self.draft.proposal if isinstance(self.draft, Draft) else None

    @property
    def by_depth(self) -> Candidates | None:
        """The drafter's best tokens at each depth for any prefix, if it lists them."""
        return None if self.proposal is None else self.proposal.by_depth

    @property
    def max_depth(self) -> int:
        """L, the drafter's last depth; 0: not recorded, or nothing was proposed."""
        if not isinstance(self.draft, Draft):
            return 0
        proposal = self.draft.proposal
        return self.draft.last if proposal is None else proposal.max_depth

    def text(self, token: int) -> str:
        found = self.texts.get(token)
        return f"⟨{token}⟩" if found is None else found

    @cached_property
    def status(self) -> tuple[str, ...]:
        """accepted, rejected (its parent was accepted), unreached or side, for every row."""
        accepted = set(self.verdict.path)
        side = self.draft.side if isinstance(self.draft, Draft) else frozenset()

        def of(row: int, parents: tuple[int, ...]) -> str:
            if row in side:
                return SIDE
            if row in accepted:
                return ACCEPTED
            return UNREACHED if accepted.isdisjoint(parents) else REJECTED

        return tuple(of(row, parents) for row, parents in enumerate(self.draft.sources))

    @cached_property
    def _nodes(self) -> Nodes:
        return self.nodes()

    def nodes(self) -> Nodes:
        """The numbers of all rows, in columns."""
        draft, probs = self.draft, self.target_probs
        unknown = np.full(len(draft), np.nan)
        return Nodes(
            rank=ranks_of(draft.ranks),
            q=chances(draft.log_q),
            score=beyond_root(draft.scores),
            p=unknown if probs is None else chances(probs.log_p),
            rank_p=unknown if probs is None else beyond_root(probs.rank),
        )

    @cached_property
    def _along_paths(self) -> tuple[list[float], list[float]]:
        """The products of q and of p from below the root to each row."""
        q, p, parents = self._nodes.q.tolist(), self._nodes.p.tolist(), self.draft.parents.tolist()
        q[0] = p[0] = 1.0
        for row, parent in enumerate(parents[1:], 1):
            q[row] *= q[parent]
            p[row] *= p[parent]
        return q, p

    def node(self, row: int) -> Node:
        """All that is recorded of a row, unrounded."""
        numbers, token = self._nodes, int(self.draft.tokens[row])
        choice, (path_q, path_p) = int(self.verdict.target_tokens[row]), self._along_paths
        return Node(
            row=row,
            depth=int(self.draft.depths[row]),
            token=token,
            text=self.text(token),
            status=self.status[row],
            cause=self.why(row),
            rank=whole(numbers.rank[row]),
            q=known(numbers.q[row]),
            path_q=known(path_q[row]),
            score=known(numbers.score[row]),
            p=known(numbers.p[row]),
            path_p=known(path_p[row]),
            rank_p=whole(numbers.rank_p[row]),
            choice=choice if choice >= 0 else None,
        )

    def candidates_after(self, row: int) -> Candidates | None:
        """The drafter's best tokens after a row, if the round recorded them."""
        return None if self.proposal is None else self.proposal.candidates(row)

    def log_p_after(self, row: int, token: int) -> float | None:
        """log p of a token after a row, where the record has it."""
        if self.target_probs is None:
            return None
        ids = self.target_probs.top_ids[row].tolist()
        return float(self.target_probs.top_log_p[row][ids.index(token)]) if token in ids else None

    def log_q_after(self, row: int, token: int) -> float | None:
        """log q of a token after a row, where the drafter listed it."""
        listed = self.candidates_after(row)
        ids = [] if listed is None else listed.ids.tolist()
        return float(listed.log_q[ids.index(token)]) if listed and token in ids else None

    @cached_property
    def wanted_rank(self) -> int | None:
        """The rank in q of the token that the target wanted where the walk ended, 1 = best.

        0: q gives it nothing, so it has no rank. None: not recorded.
        """
        verdict, probe = self.verdict, self.probe
        listed = self.candidates_after(verdict.path[-1])
        found = [] if listed is None else np.flatnonzero(listed.ids == verdict.bonus)
        if len(found):
            return int(found[0]) + 1
        own = int(verdict.target_tokens[verdict.path[-1]])  # which the probe ranked
        if probe is None or self.accepted >= len(probe.rank_q) or own != verdict.bonus:
            return None
        rank = int(probe.rank_q[self.accepted])
        if listed is not None and rank == len(listed.ids) + 1 <= _WIDE and _holds_all(listed):
            return 0  # old probes ranked a token that q gives nothing behind all others
        return rank if rank >= 0 else None

    @property
    def ends_inside(self) -> bool:
        """Whether the text ends inside the accepted path, at a stop token or a limit: then the
        walk's end stands behind the text."""
        return self.block is None and 0 < len(self.committed) <= self.accepted

    @cached_property
    def stop_reason(self) -> Cause:
        """Why the walk ended where it did: why the token there was not drafted or not accepted.

        It follows from what was recorded of this round, and is UNKNOWN where that does not tell.
        """
        row, proposal = self.verdict.path[-1], self.proposal
        if self.block is not None and self.block.finished:
            return Cause.BLOCK_DONE
        if self.draft.nodes == 0:
            return Cause.NO_DRAFT
        if not isinstance(self.draft, Draft):
            return Cause.NOT_IN_GRAPH
        if self.ends_inside:
            return Cause.TEXT_ENDED
        if self.draft.child(row, self.verdict.bonus) is not None:
            return Cause.NOT_TAKEN  # judged as a whole, or the engine's reason was not recorded
        drawn = self.verdict.bonus_token is not None
        if drawn and any(self.status[child] == REJECTED for child in self.draft.children[row]):
            return Cause.REFUSED
        if 0 < self.max_depth <= self.draft.depths[row]:
            return Cause.BEYOND
        rank = self.wanted_rank
        if rank == 0 and self.probe is not None and self.probe.vocabulary is not None:
            return Cause.VOCABULARY
        return Cause.UNKNOWN if proposal is None else self._left_out(proposal, row, rank)

    def _left_out(self, proposal: Proposal, row: int, rank: int | None) -> Cause:
        """Why the token of this rank was not drafted after a row above the drafter's last depth."""
        listed, read = proposal.candidates(row), proposal.read
        asked = proposal.after[row] != NOT_ASKED
        if rank == 0 or (asked and (listed is None or self.verdict.bonus not in listed.ids)):
            longer = listed is not None and self._as_long_as_the_budget(proposal, listed)
            if not (rank and rank <= MAX_BUDGET and longer):
                return Cause.OUTSIDE
            stopped = self._had_nodes_left or self._too_little(proposal, row, listed)
            return Cause.STOPPED if stopped else Cause.SHORT_LIST
        depths = self.draft.depths
        if not self.max_depth and depths[row] > depths[proposal.after >= 0].max(initial=-1):
            return Cause.UNKNOWN  # it may be the drafter's last depth
        if read is not None and rank is not None and rank > read:
            return Cause.NOT_READ
        stopped = self._had_nodes_left or self._behind_the_beam(proposal, row)
        stopped = stopped or self._too_little(proposal, row, listed)
        if stopped:
            return Cause.STOPPED
        return Cause.UNKNOWN if self.budget is None else Cause.PRUNED

    def _behind_the_beam(self, proposal: Proposal, row: int) -> bool:
        """Whether so many nodes of this row's depth are better that it gets no children. Of scores
        that tie, lists by path tell: the drafter was asked after the nodes of the beam alone."""
        draft, asked = self.draft, proposal.after[row] != NOT_ASKED
        if proposal.beam is None or row == ROOT or draft.children[row]:
            return False
        if not asked or proposal.by_depth is None:
            return not asked
        rows = np.flatnonzero((draft.depths == draft.depths[row]) & (proposal.after != CHILDLESS))
        best_first = rows[np.argsort(-draft.scores[rows], kind="stable")]
        return row not in best_first[: proposal.beam]

    def _too_little(self, proposal: Proposal, row: int, listed: Candidates | None) -> bool:
        """Whether the token's score is below the least that the builder drafts. A token that is not
        listed has no more than the last of the list."""
        if proposal.least is None or listed is None:
            return False
        log_q = self.log_q_after(row, self.verdict.bonus)
        most = float(listed.log_q[-1]) if log_q is None else log_q
        return float(self.draft.scores[row]) + most < proposal.least

    @property
    def _had_nodes_left(self) -> bool:
        """Whether the builder drafted fewer nodes than it might: then a larger budget gives it the
        same draft."""
        return self.budget is not None and self.draft.nodes < self.budget

    def _as_long_as_the_budget(self, proposal: Proposal, listed: Candidates) -> bool:
        """Whether a larger budget has longer lists. A list that is shorter than the budget is all
        that the drafter gives, or that was recorded."""
        budget = self.budget if self._had_nodes_left else self.draft.nodes
        own = proposal.factorised_lists and proposal.read is None
        return own and len(listed.ids) >= (budget or 0)

    def why(self, row: int) -> Cause:
        """Why this row's branch lived or died."""
        status = self.status[row]
        if status != REJECTED:
            return Cause(status)
        last = self.verdict.path[-1]  # of all accepted rows, only this one has no accepted child
        if any(
            self.status[above] == ACCEPTED for above in self.draft.sources[row] if above != last
        ):
            return Cause.OUTRANKED
        return self.stop_reason

    @property
    def mentioned(self) -> list[int]:
        """Every token id that a view shows, ascending; of each list its first ``TEXT_LIMIT``."""
        draft = self.draft
        ids = {*draft.tokens.tolist(), *self.verdict.target_tokens.tolist(), *self.committed}
        ids.add(self.verdict.bonus)
        if (proposal := self.proposal) is not None:
            for lists in (proposal.lists, proposal.by_depth):
                if lists is not None:
                    ids |= set(lists.ids[:, :TEXT_LIMIT].flatten().tolist())
        if self.block is not None:
            ids |= set(self.block.state.tolist())
            ids |= {t for step in self.block.steps for t in step.ranking.ids.flatten().tolist()}
        if isinstance(draft, BlockDraft):
            ids |= {edit.token for edits in draft.edits for edit in edits}
        if self.target_probs is not None:
            ids |= set(self.target_probs.top_ids.flatten().tolist())
        return sorted(token for token in ids if token >= 0)

    def with_texts(self, texts: Mapping[int, str]) -> Round:
        return replace(self, texts=texts)


def _holds_all(listed: Candidates) -> bool:
    """Whether the tokens of a list have all of q."""
    return float(np.exp(listed.log_q.astype(np.float64)).sum()) >= 1 - 1e-6


def new_tokens(rounds: Sequence[Round]) -> list[int]:
    """The new text's token ids: what prefill gave, then what every round committed."""
    if not rounds:
        return []
    return [int(rounds[0].draft.tokens[0]), *(t for r in rounds for t in r.committed)]
