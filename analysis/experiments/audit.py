"""The lossless check: decode a prompt both ways and find the first token that differs.

Plain decoding is the reference. In float32 on a CPU no difference is allowed. In bfloat16 or
float16 a draft's rows are rounded in another order than single steps are, so the two best tokens
may swap where they (nearly) tie: a difference is allowed when the gap between the best and the
second score of plain decoding there is at most ``TIE_ULPS`` units in the last place of the best
logit. Such ties are counted and shown. After the first difference the texts may differ.

A verification rule that keeps only the distribution (``identity`` False) writes another text when
it samples: there the distribution is tested instead (``analysis.experiments.distribution``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import zip_longest

import torch

from analysis.experiments.distribution import SEEDS, check_distribution
from analysis.measures.probe import observe
from core.decoding.decode import Observation, Scene
from core.decoding.engine import Engine
from core.decoding.request import RunRequest
from core.methods.names import PLAIN
from core.rounds.round import new_tokens
from core.stats import GoodnessOfFit
from core.verification.sampling import gumbel_noise

TIE_ULPS = 4


@dataclass(frozen=True)
class Margin:
    """How sure the target was of one token.

    gap    best score − second score: logits when greedy, logits / T + noise when sampled
    bound  the largest gap that counts as a tie in this dtype: 0 in float32 and float64
    """

    gap: float
    bound: float


@dataclass(frozen=True)
class Mismatch:
    """The first new token (0 = the first) that is not the same; None where a text had ended."""

    index: int
    plain: int | None
    method: int | None
    margin: Margin

    @property
    def tied(self) -> bool:
        """Within the stated bound: allowed, counted, shown. A NaN gap is not a tie."""
        return self.margin.bound > 0 and self.margin.gap <= self.margin.bound


@dataclass(frozen=True)
class Comparison:
    """A method's text on one prompt, compared with plain decoding's.

    tokens        compared, in ``rounds`` rounds
    difference    the first one from plain decoding's tokens
    distribution  the test of the tokens' distribution, in place of a comparison
    """

    request: RunRequest
    tokens: int
    rounds: int
    difference: Mismatch | None = None
    distribution: GoodnessOfFit | None = None

    @property
    def lossless(self) -> bool:
        if self.distribution is not None:
            return not self.distribution.refuted
        return self.difference is None or self.difference.tied


@dataclass(frozen=True)
class Plain:
    """A text of plain decoding, and the margin of every token but the first (from prefill)."""

    tokens: tuple[int, ...]
    margins: tuple[Margin, ...]

    def margin(self, index: int) -> Margin:
        known = 1 <= index <= len(self.margins)
        return self.margins[index - 1] if known else Margin(math.nan, 0.0)


def audit(
    engine: Engine, requests: Iterable[RunRequest], seeds: int = SEEDS
) -> Iterator[Comparison]:
    """Compare every request with plain decoding; requests that share their text share its run.

    ``seeds``: rounds of a test of the distribution. Raises UserError for a request that cannot be
    decoded.
    """
    known: dict[RunRequest, Plain] = {}
    for request in requests:
        if not request.keeps_text:
            found = check_distribution(engine, request, seeds)
            yield Comparison(request, found.draws, seeds, distribution=found)
            continue
        reference = replace(request, method=PLAIN, budget=1, options=())
        if reference not in known:
            known[reference] = plain(engine, reference)
        rounds = list(engine.start(request).rounds)
        expected, got = known[reference], new_tokens(rounds)
        difference = first_difference(expected, got)
        yield Comparison(request, len(expected.tokens), len(rounds), difference)


def plain(engine: Engine, request: RunRequest) -> Plain:
    """Decode plainly and keep the margin of every choice."""
    watch = _MarginWatch()
    tokens = new_tokens(list(engine.start(request, watch).rounds))
    return Plain(tuple(tokens), tuple(watch.margins))


def first_difference(expected: Plain, got: list[int]) -> Mismatch | None:
    for index, (a, b) in enumerate(zip_longest(expected.tokens, got)):
        if a != b:
            return Mismatch(index, a, b, expected.margin(index))
    return None


@dataclass(eq=False)
class _MarginWatch:
    """An observer of plain decoding: the margin of each round's one choice."""

    margins: list[Margin] = field(default_factory=list)

    def __call__(self, scene: Scene) -> Observation:
        self.margins.append(margin(scene))
        return observe(scene)


@torch.inference_mode()
def margin(scene: Scene) -> Margin:
    """The margin of the target's choice after the root of a decided round."""
    row, sampler = scene.logits[0], scene.rule.sampler
    sampling = sampler.sampling
    if sampling.greedy:
        scores, scale = row.float(), 1.0
    else:
        noise = gumbel_noise(sampling.seed, scene.position + 1, len(row)).to(row.device)
        scores, scale = sampler.filtered(row[None])[0] + noise, sampling.temperature
    best, second = scores.topk(2).values.tolist()
    return Margin(best - second, tie_bound(float(row.max()), row.dtype) / scale)


def tie_bound(logit: float, dtype: torch.dtype) -> float:
    """``TIE_ULPS`` units in the last place of a logit of this size; 0 from float32 on, and for one
    that is not finite."""
    if dtype not in (torch.bfloat16, torch.float16) or not math.isfinite(logit):
        return 0.0
    size = max(abs(logit), torch.finfo(dtype).tiny)  # from there down all steps are equal
    return TIE_ULPS * torch.finfo(dtype).eps * 2.0 ** math.floor(math.log2(size))
