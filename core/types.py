"""The words of the house, as frozen plain data. Light: numpy only, never torch.

A round of speculative decoding is: a *proposal* by the drafter, a *draft* built from it, the
target's *verdict*, and the *round* that records all three. ``Round`` is what the decoder yields,
what the log file holds and what every view draws.

N counts a draft's rows: the root (row 0, the bonus token, depth 0) and at most B drafted nodes
behind it. L is the number of drafted depths, K the candidates kept per depth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

Array = np.ndarray

ROOT = 0
ACCEPTED, REJECTED, UNREACHED = "accepted", "rejected", "unreached"

# Why a branch ended, by the names used everywhere (see `why`).
OUTRANKED = "outranked"
PRUNED = "not drafted: pruned by budget"
OUTSIDE = "not drafted: outside the candidates"
BEYOND = "not drafted: beyond the last depth"
NO_DRAFT = "not drafted: this round drafted nothing"


@dataclass(frozen=True, eq=False)
class Draft:
    """The nodes to verify. Every parent stands before its children, so one pass serves most work.

    tokens   int64   [N]  token ids; the root's is the bonus token
    parents  int32   [N]  row of the parent; −1 for the root
    depths   int32   [N]  0 for the root
    ranks    int32   [N]  1 = the drafter's best token at that place; 0 for the root
    log_q    float32 [N]  the drafter's log-probability of the token at that place; 0 for the root
    scores   float32 [N]  what the builder ranked by (for best-first: Σ log q along the path)
    """

    tokens: Array
    parents: Array
    depths: Array
    ranks: Array
    log_q: Array
    scores: Array

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def nodes(self) -> int:
        """Drafted nodes: the root does not count toward the budget B."""
        return len(self.tokens) - 1

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """Rows of each row's children, in row order."""
        below: list[list[int]] = [[] for _ in range(len(self))]
        for row, parent in enumerate(self.parents.tolist()):
            if parent >= 0:
                below[parent].append(row)
        return tuple(map(tuple, below))

    def child(self, row: int, token: int) -> int | None:
        """The child of ``row`` that carries ``token``, if it was drafted."""
        return next((c for c in self.children[row] if self.tokens[c] == token), None)

    def path(self, row: int) -> tuple[int, ...]:
        """Rows from the root to ``row``, both included."""
        rows = [row]
        while (row := int(self.parents[row])) >= 0:
            rows.append(row)
        return tuple(reversed(rows))

    @staticmethod
    def root_only(token: int) -> Draft:
        """A draft without drafted nodes: verifying it is one step of plain decoding."""
        zero = np.zeros(1, np.int32)
        return Draft(
            tokens=np.array([token], np.int64),
            parents=np.array([-1], np.int32),
            depths=zero,
            ranks=zero,
            log_q=np.zeros(1, np.float32),
            scores=np.zeros(1, np.float32),
        )


@dataclass(frozen=True, eq=False)
class Verdict:
    """What the target said to a draft.

    path      rows accepted, the root first: [0, …]
    choices   int64 [N]  the target's own token at every row (argmax, or its sample)
    """

    path: tuple[int, ...]
    choices: Array

    @property
    def accepted(self) -> int:
        """Accepted drafted nodes."""
        return len(self.path) - 1

    @property
    def bonus(self) -> int:
        """The target's token where the walk stopped: the next round's root."""
        return int(self.choices[self.path[-1]])


@dataclass(frozen=True, eq=False)
class Candidates:
    """A proposal's best tokens per depth: ids [L, K] and log q [L, K], best first."""

    ids: Array
    log_q: Array


@dataclass(frozen=True, eq=False)
class Beliefs:
    """What the target believed, row by row of a draft.

    log_p    float32 [N]     log p of the row's token given its path (NaN for the root)
    rank     int32   [N]     the token's rank under p, 1 = the target's most probable (0: root)
    top_ids  int64   [N, J]  the target's J most probable next tokens *after* the row
    top_log_p float32 [N, J]
    entropy  float32 [N]     entropy of p after the row, nats
    """

    log_p: Array
    rank: Array
    top_ids: Array
    top_log_p: Array
    entropy: Array


@dataclass(frozen=True, eq=False)
class Probe:
    """Drafter against target at the depths this round observed (d = 1 … accepted + 1, at most L).

    Depth d is observed when its parent was accepted; all others are unobserved, never rejected.

    tvd       float32 [d]      ½ Σ_v |q_d(v) − p(v | true prefix)|, full vocabulary
    coverage  float32 [d, 16]  C_K(d) = Σ_{l≤K} p(x̂_d^(l) | true prefix), x̂ the drafter's K best
    entropy_q float32 [d]      entropy of q_d, nats
    rank_q    int32   [d]      rank of the target's own token under q_d, 1 = best
    """

    tvd: Array
    coverage: Array
    entropy_q: Array
    rank_q: Array


@dataclass(frozen=True)
class Times:
    """Seconds spent in each stage of a round; what is outside the forwards is build + commit."""

    draft: float = 0.0
    build: float = 0.0
    verify: float = 0.0
    commit: float = 0.0

    @property
    def total(self) -> float:
        return self.draft + self.build + self.verify + self.commit


@dataclass(frozen=True, eq=False)
class Round:
    """One round, as plain data.

    index       0, 1, 2 … within the run
    position    absolute position of the root token (prompt tokens come first)
    committed   tokens this round added to the text, after stop tokens and limits cut it
    texts       token id → text, for every id the round mentions
    notes       per-node numbers of one method, name → [N] (for example DART's two score terms)
    """

    index: int
    position: int
    draft: Draft
    verdict: Verdict
    committed: tuple[int, ...]
    candidates: Candidates | None = None
    beliefs: Beliefs | None = None
    probe: Probe | None = None
    times: Times = Times()
    texts: Mapping[int, str] = field(default_factory=dict)
    notes: Mapping[str, Array] = field(default_factory=dict)

    @property
    def accepted(self) -> int:
        return self.verdict.accepted

    def text(self, token: int) -> str:
        return self.texts.get(token, f"⟨{token}⟩")

    @cached_property
    def status(self) -> tuple[str, ...]:
        """accepted, rejected (its parent was accepted, it was not) or unreached, per row."""
        accepted = set(self.verdict.path)
        return tuple(
            ACCEPTED if row in accepted else REJECTED if int(parent) in accepted else UNREACHED
            for row, parent in enumerate(self.draft.parents)
        )

    @cached_property
    def stop_reason(self) -> str:
        """Why the walk ended where it did: why the target's token there was not drafted."""
        row = self.verdict.path[-1]
        depth = int(self.draft.depths[row])
        if self.draft.nodes == 0:
            return NO_DRAFT
        if self.candidates is None or depth >= len(self.candidates.ids):
            return BEYOND
        return PRUNED if self.verdict.bonus in self.candidates.ids[depth] else OUTSIDE

    def why(self, row: int) -> str:
        """Why this row's branch lived or died, in the project's fixed words."""
        status = self.status[row]
        if status != REJECTED:
            return status
        parent = int(self.draft.parents[row])
        return OUTRANKED if parent != self.verdict.path[-1] else self.stop_reason

    def with_texts(self, texts: Mapping[int, str]) -> Round:
        return replace(self, texts=texts)


@dataclass(frozen=True)
class Sampling:
    """The *target's* rule for its own token. Temperature 0 is greedy; the drafter never sees it."""

    temperature: float = 0.0
    top_k: int = 0  # 0 = off
    top_p: float = 1.0
    seed: int = 0

    @property
    def greedy(self) -> bool:
        return self.temperature == 0


GREEDY = Sampling()
