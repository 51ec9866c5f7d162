"""Verification rules: which drafted nodes are accepted, and the next bonus token.

``TargetTokens`` is the default: the text equals plain decoding, token for token.
``SpeculativeSampling`` is the classic rule of speculative sampling: its text has the target's
distribution, but is another text than plain decoding writes with the same seed.
``BlockVerification`` has the same distribution, and judges a chain as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from core.errors import UserError
from core.rounds.draft import ROOT, Array, Draft
from core.rounds.round import Sampling, Verdict
from core.verification.sampling import (
    ACCEPT_STREAM,
    RESIDUAL_STREAM,
    TargetSampler,
    of_round,
    uniforms,
)
from core.verification.walk import walk


class Proposes(Protocol):
    """The part of a draft session that a rule may need."""

    def log_q(self, path: Sequence[int]) -> Tensor | None: ...


class VerificationRule(Protocol):
    """Made anew for each run from its ``Sampling``.

    sampler   the target's own token after any row; what observers show
    identity  whether the text equals that of plain decoding, token for token; if not, the rule is
              lossless in distribution only
    """

    sampler: TargetSampler
    identity: bool

    def verify(
        self, draft: Draft, logits: Tensor, position: int, session: Proposes | None
    ) -> Verdict:
        """The verdict on a draft whose root stands at absolute ``position``; logits [N, V]."""
        ...


class TargetTokens:
    """Accept a child if it carries the target's own token; that token is emitted either way.

    Needs no rejection sampling. With position-keyed noise every method and every budget writes the
    text that plain decoding writes.
    """

    identity = True

    def __init__(self, sampling: Sampling):
        self.sampler = TargetSampler(sampling)

    def verify(
        self, draft: Draft, logits: Tensor, position: int, session: Proposes | None = None
    ) -> Verdict:
        verdict = walk(draft, self._chooser(draft, logits, position))
        tell_side(verdict.target_tokens, draft, logits, position, self.sampler)
        return verdict

    def _chooser(self, draft: Draft, logits: Tensor, position: int) -> Callable[[int], int]:
        """The target's token after a row: only of rows the walk asks for, but on a GPU with greedy
        decoding of all rows at once, in one transfer."""
        if self.sampler.sampling.greedy and logits.device.type != "cpu":
            return self.sampler.choose(logits, []).tolist().__getitem__

        def choose(row: int) -> int:
            after = position + int(draft.depths[row]) + 1
            return int(self.sampler.choose(logits[row : row + 1], [after])[0])

        return choose


class SpeculativeSampling:
    """Accept a drafted token x with probability min(1, p(x)/q(x)); after a refusal, p becomes
    norm(max(0, p − q)) (Leviathan et al., 2023; Chen et al., 2023).

    Children of one row are tried in row order and must be independent draws from q (multi-round
    sampling of SpecInfer); in a chain there is one. Temperature, top-k and top-p act on p and q
    alike before they are compared.
    """

    identity = False

    def __init__(self, sampling: Sampling):
        self.sampler = TargetSampler(sampling)

    def verify(
        self, draft: Draft, logits: Tensor, position: int, session: Proposes | None
    ) -> Verdict:
        """Raises UserError for a drafter that cannot tell all of q."""
        emitted = np.full(len(draft), -1, np.int64)
        tell_side(emitted, draft, logits, position, self.sampler)
        path, tokens = [ROOT], [int(draft.tokens[ROOT])]
        while True:
            row, after = path[-1], position + len(path)
            p = self.probabilities(logits[row])
            children = [c for c in draft.children[row] if c not in draft.side]
            q = self._q(session, tokens) if children else p
            taken, p = self._try(children, draft.tokens, p, q, after)
            if taken is None:
                emitted[row] = draw(p, self._uniform(after, RESIDUAL_STREAM, 0))
                return self._verdict(path, emitted)
            emitted[row] = draft.tokens[taken]
            path.append(taken)
            tokens.append(int(draft.tokens[taken]))

    def _verdict(self, path: list[int], emitted: Array) -> Verdict:
        """Greedy, the token after the path is the target's own: nothing was drawn."""
        greedy = self.sampler.sampling.greedy
        return Verdict(tuple(path), emitted, None if greedy else int(emitted[path[-1]]))

    def probabilities(self, logits: Tensor) -> Array:
        """float64 [V] from logits [V] at the run's temperature, top-k and top-p."""
        if self.sampler.sampling.greedy:
            return np.eye(1, len(logits), int(logits.argmax()))[0]
        scores = self.sampler.filtered(logits[None].double())[0]
        return scores.softmax(-1, dtype=torch.float64).cpu().numpy()

    def _q(self, session: Proposes | None, tokens: list[int]) -> Array:
        whole = None if session is None else session.log_q(tokens)
        if whole is None:
            raise UserError("speculative sampling needs a drafter that tells all of q")
        return self.probabilities(whole[-1])

    def _try(
        self, children: list[int], tokens: Array, p: Array, q: Array, after: int
    ) -> tuple[int | None, Array]:
        """The first accepted child, and what is left of p when none is."""
        for number, child in enumerate(children):
            token = int(tokens[child])
            if self._uniform(after, ACCEPT_STREAM, number) * q[token] < p[token]:
                return child, p
            p = residual(p, q)
        return None, p

    def _uniform(self, after: int, stream: int, number: int) -> float:
        return float(uniforms(self.sampler.sampling.seed, after, number + 1, stream)[number])


class BlockVerification(SpeculativeSampling):
    """Judge a chain as a whole (Sun et al., arXiv 2403.10444, algorithm 2): the target's
    distribution, with at least as many accepted tokens on average as one by one.

    Whether a prefix is kept depends on tokens and noise behind it, so the next round must not meet
    them again: the builder and the rule key theirs by the round too.
    """

    def verify(
        self, draft: Draft, logits: Tensor, position: int, session: Proposes | None
    ) -> Verdict:
        """Raises UserError for a drafter that cannot tell all of q, or a draft that branches."""
        emitted = np.full(len(draft), -1, np.int64)
        tell_side(emitted, draft, logits, position, self.sampler)
        path = [ROOT]
        while children := [c for c in draft.children[path[-1]] if c not in draft.side]:
            if len(children) > 1:
                raise UserError("block verification needs a chain")
            path += children
        tokens = [int(draft.tokens[row]) for row in path]
        p = np.stack([self.probabilities(logits[row]) for row in path])
        q = [self._q(session, tokens[: end + 1]) for end in range(len(path) - 1)]
        keep, after = block_odds(p, np.reshape(q, (-1, p.shape[1])), tokens[1:])
        stream = of_round(ACCEPT_STREAM, position)
        kept = max(
            end for end, odds in enumerate(keep)
            if end == 0 or self._uniform(position + end, stream, 0) < odds
        )  # fmt: skip
        emitted[path[:kept]] = tokens[1 : kept + 1]
        emitted[path[kept]] = draw(
            after[kept], self._uniform(position + kept + 1, RESIDUAL_STREAM, 0)
        )
        return self._verdict(path[: kept + 1], emitted)


def block_odds(p: Array, q: Array, tokens: Sequence[int]) -> tuple[Array, Array]:
    """The odds [n + 1] at which each length of a chain of n tokens is accepted, and what the token
    after it is drawn from, [n + 1, V]; p [n + 1, V] and q [n, V]. The longest accepted length
    counts, each by a uniform number of its own; 0 is always accepted."""
    keep, after, weight = np.ones(len(p)), p.copy(), 1.0
    for end, token in enumerate(tokens):
        over = np.maximum(weight * p[end] - q[end], 0).sum()
        keep[end] = over / (over + 1 - weight) if over > 0 else float(end == 0)
        after[end] = residual(weight * p[end], q[end])
        weight = min(1.0, weight * p[end, token] / q[end, token]) if q[end, token] > 0 else 0.0
    keep[-1] = weight
    return keep, after


def tell_side(
    tokens: Array, draft: Draft, logits: Tensor, position: int, sampler: TargetSampler
) -> None:
    """Fill in the target's own tokens [N] after the draft's side rows."""
    if rows := sorted(draft.side):
        after = [position + int(draft.depths[row]) + 1 for row in rows]
        tokens[rows] = sampler.choose(logits[rows], after).cpu().numpy()


def residual(p: Array, q: Array) -> Array:
    """norm(max(0, p − q)), float64 [V]; p itself where nothing is left but rounding."""
    left = np.maximum(p - q, 0)
    total = left.sum()
    return left / total if total > 0 else p


def draw(p: Array, uniform: float) -> int:
    """The token where the cumulative p passes a uniform number in [0, 1)."""
    cumulative = p.cumsum()
    return int(np.searchsorted(cumulative, uniform * cumulative[-1], side="right"))
