"""The words of the house, as frozen plain data. Light: numpy only, never torch.

A round of speculative decoding is: a *proposal* by the drafter, a *draft* built from it, the
target's *verdict*, and the *round* that records all three. ``Round`` is what the decoder yields,
what the log file holds and what every view draws.

N counts a draft's rows: the root (row 0, the bonus token, depth 0) and at most B drafted nodes
behind it. L is the number of drafted depths, K the candidates kept per depth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
NOT_IN_GRAPH = "not drafted: not in the draft graph"
BLOCK_DONE = "nothing left to draft: the block is finished"

TEXTED = 64  # candidates per depth whose text a round keeps: a list of more is never shown

MASKED = -1  # in a recorded block state: no token stands there yet


@dataclass(frozen=True)
class Edit:
    """One token that a draft of a block state sets: c_ij of Spiffy §4.3.

    position       in the block, from 0
    token          its id
    position_rank  i ≥ 1, the position's rank by confidence among those masked
    token_rank     j ≥ 1, the token's rank at that position
    """

    position: int
    token: int
    position_rank: int
    token_rank: int


@dataclass(frozen=True, eq=False)
class Draft:
    """The nodes to verify. Every parent stands before its children, so one pass serves most work.

    tokens   int64   [N]  token ids; the root's is the bonus token
    parents  int32   [N]  row of the parent; −1 for the root
    depths   int32   [N]  0 for the root
    ranks    int32   [N]  1 = the drafter's best token at that place; 0 for the root
    log_q    float32 [N]  the drafter's log-probability of the token at that place; 0 for the root
    scores   float32 [N]  what the builder ranked by (for best-first: Σ log q along the path)
    notes    name → float32 [N]: what else the builder knows of each node (DART's two score terms).
             A name that begins with "log " is a log-probability and shown as a probability.
    offers   what the drafter offered after each row, when that hangs on more than its depth

    A draft *graph* (Spiffy) has rows that are block states: row 0 is the current block, every other
    row the current block with some more tokens set. Then ``tokens``, ``ranks`` and ``log_q`` tell
    what a row sets beyond ``parents``, its first parent (its first edit; Σ log p), and ``depths``
    is the level. For a tree both of these are empty:

    links    rows of *all* the parents of each row, the root's being ()
    edits    what each row sets in the current block, best position rank first; the root's is ()
    """

    tokens: Array
    parents: Array
    depths: Array
    ranks: Array
    log_q: Array
    scores: Array
    notes: Mapping[str, Array] = field(default_factory=dict)
    offers: Offers | None = None
    links: tuple[tuple[int, ...], ...] = ()
    edits: tuple[tuple[Edit, ...], ...] = ()

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def nodes(self) -> int:
        """Drafted nodes: the root does not count toward the budget B."""
        return len(self.tokens) - 1

    @cached_property
    def sources(self) -> tuple[tuple[int, ...], ...]:
        """Rows of each row's parents: one in a tree, any number in a graph, none for the root."""
        return self.links or tuple((p,) if p >= 0 else () for p in self.parents.tolist())

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """Rows of each row's children, in row order."""
        below: list[list[int]] = [[] for _ in range(len(self))]
        for row, parents in enumerate(self.sources):
            for parent in parents:
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
class Offers:
    """What the drafter offered after each row of a draft: its best tokens there, best first.

    ids    int64   [R, S]
    log_q  float32 [R, S]
    after  int32   [N]     which of the R lists stands after each row; −1: it can have no children
    """

    ids: Array
    log_q: Array
    after: Array


@dataclass(frozen=True, eq=False)
class Transitions:
    """q′, a drafter's distribution given the token before (TreeFlash §3), for M tokens per depth.

    Row m of depth i ≥ 2 stands behind candidate m of depth i − 1; depth 1 stands behind the root,
    and all its rows are the same. A row costs a row of the target's head, so it is evaluated when
    a search first reaches it (``need``); until then plain q or a guess stands in its place, and
    whichever does, the search ends with the same tree.

    ids       int64   [L, M, S]  the S best tokens, best first
    log_q     float32 [L, M, S]  log q′ of them
    marginal  float32 [L, M, S]  plain log q of them, whatever the token before
    follow    int32   [L, M, S]  which candidate of its depth the token is; −1: none, a leaf
    known     bool    [L, M]     which rows are evaluated; None: all of them
    evaluate  puts q′ into rows (depths from 0 [n], ascending; rows [n]), all in one batch
    """

    ids: Array
    log_q: Array
    marginal: Array
    follow: Array
    known: Array | None = None
    evaluate: Callable[[Array, Array], None] | None = None

    def need(self, depths: Array, rows: Array) -> bool:
        """Have these rows evaluated; whether any was not yet."""
        if self.known is None or self.evaluate is None:
            return False
        wanted = np.zeros_like(self.known)
        wanted[depths, rows] = True
        wanted &= ~self.known
        if not wanted.any():
            return False
        self.evaluate(*np.nonzero(wanted))
        self.known[wanted] = True
        return True

    def need_all(self) -> None:
        """Have every row evaluated, for a builder that reads the tables itself."""
        if self.known is not None:
            self.need(*np.nonzero(~self.known))


@dataclass(frozen=True, eq=False)
class Candidates:
    """A proposal's best tokens per depth: ids [L, K] and log q [L, K], best first.

    ``transitions`` come from a drafter that also conditions on the token before. ``read``: how many
    of each depth the builder looked at whatever its budget; None: as many as the budget let it.
    """

    ids: Array
    log_q: Array
    transitions: Transitions | None = None
    read: int | None = None


@dataclass(frozen=True, eq=False)
class Offered:
    """The drafter's best tokens at one place: ids [K] and log q [K], best first."""

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
class Ranking:
    """The masked positions of one block state, the one to be unmasked first in front (Spiffy §4.3).

    positions  int32   [R]     in the block, most confident first; ties: the lowest position first
    ids        int64   [R, J]  the J best tokens of each, best first
    p          float32 [R, J]  the target's softmax(logits) of them; column 0 is the confidence
    """

    positions: Array
    ids: Array
    p: Array

    def __len__(self) -> int:
        return len(self.positions)

    def after(self, count: int) -> Ranking:
        """What is left when the first ``count`` positions are unmasked."""
        return Ranking(self.positions[count:], self.ids[count:], self.p[count:])


@dataclass(frozen=True, eq=False)
class Step:
    """One denoising step: the first ``count`` positions of the ranking got their best token."""

    ranking: Ranking
    count: int

    @property
    def positions(self) -> Array:
        return self.ranking.positions[: self.count]

    @property
    def tokens(self) -> Array:
        return self.ranking.ids[: self.count, 0]

    @property
    def confidences(self) -> Array:
        return self.ranking.p[: self.count, 0]


@dataclass(frozen=True, eq=False)
class Block:
    """What one model call did to the block that is being denoised.

    index  which block of the text, from 0
    step   denoising steps of the text before this call: plain denoising's calls so far
    state  int64 [L], the block when the call began; MASKED where it is masked
    steps  the steps this call decided: step k by the distribution of row ``verdict.path[k]``
    """

    index: int
    step: int
    state: Array
    steps: tuple[Step, ...]

    @property
    def saved(self) -> int:
        """Model calls of plain denoising that this call saved."""
        return len(self.steps) - 1

    def after(self, steps: int | None = None) -> Array:
        """The block after the first ``steps`` steps of this call (None: all of them): int64 [L]."""
        state = self.state.copy()
        for step in self.steps[:steps]:
            state[step.positions] = step.tokens
        return state

    def drafted(self, edits: Sequence[Edit]) -> Array:
        """The block state that a draft with these edits stands for: int64 [L]."""
        state = self.state.copy()
        for edit in edits:
            state[edit.position] = edit.token
        return state


@dataclass(frozen=True, eq=False)
class Round:
    """One round, as plain data.

    index       0, 1, 2 … within the run
    position    absolute position of the root token (prompt tokens come first)
    committed   tokens this round added to the text, after stop tokens and limits cut it
    texts       token id → text, for every id a view shows: long lists of candidates are cut
    block       a denoising call's block; then ``position`` is that of the block's first token, and
                ``committed`` its tokens in the order in which they were unmasked
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
    block: Block | None = None

    @property
    def accepted(self) -> int:
        return self.verdict.accepted

    @property
    def number(self) -> int:
        """Which round it is, from 1: what people are shown and ask for. Files hold ``index``."""
        return self.index + 1

    def text(self, token: int) -> str:
        return self.texts.get(token, f"⟨{token}⟩")

    @cached_property
    def status(self) -> tuple[str, ...]:
        """accepted, rejected (a parent was accepted, it was not) or unreached, per row."""
        accepted = set(self.verdict.path)
        return tuple(
            ACCEPTED if row in accepted else UNREACHED if accepted.isdisjoint(parents) else REJECTED
            for row, parents in enumerate(self.draft.sources)
        )

    def offered(self, row: int) -> Offered | None:
        """What the drafter offered after this row, if the record says."""
        depth, offers = int(self.draft.depths[row]), self.draft.offers
        if offers is not None:
            at = int(offers.after[row])
            return Offered(offers.ids[at], offers.log_q[at]) if at >= 0 else None
        if self.candidates is None or depth >= len(self.candidates.ids):
            return None
        return Offered(self.candidates.ids[depth], self.candidates.log_q[depth])

    @cached_property
    def stop_reason(self) -> str:
        """Why the walk ended where it did: why the target's token there was not drafted."""
        row = self.verdict.path[-1]
        if self.block is not None and MASKED not in self.block.after():
            return BLOCK_DONE
        if self.draft.nodes == 0:
            return NO_DRAFT
        if self.block is not None:
            return NOT_IN_GRAPH
        if self.candidates is None or self.draft.depths[row] >= len(self.candidates.ids):
            return BEYOND
        offered = self.offered(row)
        read = offered.ids[: self.candidates.read] if offered is not None else ()
        return PRUNED if self.verdict.bonus in read else OUTSIDE

    def why(self, row: int) -> str:
        """Why this row's branch lived or died, in the project's fixed words."""
        status = self.status[row]
        if status != REJECTED:
            return status
        behind = self.verdict.path[:-1]  # accepted, and so was a child of it
        outranked = not set(behind).isdisjoint(self.draft.sources[row])
        return OUTRANKED if outranked else self.stop_reason

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
