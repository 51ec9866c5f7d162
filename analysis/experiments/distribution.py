"""Whether a verification rule is lossless in distribution, tested at one place of a text.

A rule such as speculative sampling writes another text than plain decoding with the same seed; only
the distribution is the target's. After a prompt and the target's best first token, one round is
drafted and verified with many seeds. The first token that a round commits must follow the target's
exact p there; and after a first token that was accepted often, the second must follow p too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from analysis.numbers import number, percent
from core.decoding.decode import Decoder
from core.decoding.engine import Engine
from core.decoding.request import RunRequest, Settings
from core.memory import Recent
from core.models.cuda_graphs import bucket
from core.models.target import Target
from core.rounds.draft import Array, Draft
from core.stats import POWER, GoodnessOfFit, goodness_of_fit
from core.verification.sampling import TargetSampler

SEEDS = 500
DEPTHS = 2  # committed tokens of a round that are tested
LEAST_DRAWS = 30  # draws of a context that is tested
_SCORES = 16  # drafts whose logits are remembered: seeds often draw the same one

Context = tuple[int, ...]  # the root and the committed tokens before the one that is tested


def check_distribution(engine: Engine, request: RunRequest, seeds: int = SEEDS) -> GoodnessOfFit:
    """Test the tokens that ``seeds`` rounds commit after the request's prompt.

    The seeds are the request's and those after it. Raises UserError for a request that cannot be
    decoded.
    """
    method = engine.load(request.resolved.chosen)
    prompt = engine.prepare().encode_chat(request.prompt)
    return check_rounds(engine.target(method), method, prompt, request.resolved.settings, seeds)


@torch.inference_mode()
def check_rounds(
    target: Target, method: Decoder, prompt: list[int], settings: Settings, seeds: int
) -> GoodnessOfFit:
    """The same of a loaded method and a prompt of token ids."""
    counts: dict[Context, Counter[int]] = defaultdict(Counter)
    for tokens in _rounds(target, method, prompt, settings, seeds):
        for depth, token in enumerate(tokens[1 : 1 + DEPTHS], 1):
            counts[tokens[:depth]][token] += 1
    least = min(LEAST_DRAWS, seeds)
    tested = [context for context, found in counts.items() if found.total() >= least]
    p = [_exact(target, TargetSampler(settings.sampling), context) for context in tested]
    return goodness_of_fit([_vector(counts[c], len(p[0])) for c in tested], p)


def sentence(found: GoodnessOfFit) -> str:
    """The result and its power, in one sentence."""
    verdict = "do not follow" if found.refuted else "follow"
    contexts = "1 context" if found.contexts == 1 else f"{found.contexts} contexts"
    return (
        f"{found.draws} tokens in {contexts} {verdict} the target's p: χ² "
        f"{number(found.statistic, 1)} over {found.bins} bins, p-value {found.p_value:.2g}; a "
        f"total variation of {number(found.detectable)} would be found with {percent(POWER)} power"
    )


def _rounds(
    target: Target, method: Decoder, prompt: list[int], settings: Settings, seeds: int
) -> Iterator[tuple[int, ...]]:
    """The root, and the tokens that one round after it commits, with each seed."""
    drafter, builder = method.drafter, method.builder
    assert drafter is not None and builder is not None, "plain decoding has no rule to test"
    room = bucket(settings.budget + 1)
    prefilled = target.prefill(prompt, room)
    root, logits = int(prefilled.logits.argmax()), Recent[torch.Tensor](_SCORES)
    for trial in range(seeds):
        sampling = replace(settings.sampling, seed=settings.sampling.seed + trial)
        build = builder.for_run(sampling)
        drafter.reset(len(prompt) + room)
        drafter.extend(prompt, prefilled.features)
        session = drafter.begin(root, build.width(settings.budget))
        draft = build(session, [*prompt, root], settings.budget)
        key = draft.tokens.tobytes(), draft.parents.tobytes()
        # a padded forward's result is gone with the next one
        scored = logits.get(key, lambda draft=draft: target.score(draft).logits.clone())
        verdict = method.rule(sampling).verify(draft, scored, len(prompt), session)
        yield (*draft.tokens[list(verdict.path)].tolist(), verdict.bonus)


def _exact(target: Target, sampler: TargetSampler, context: Context) -> Array:
    """The target's probabilities [V] after these tokens, at the run's temperature, top-k and
    top-p."""
    logits = target.score(Draft.chain(context)).logits[-1:].double()
    return sampler.filtered(logits)[0].softmax(-1, dtype=torch.float64).cpu().numpy()


def _vector(counts: Counter[int], size: int) -> Array:
    found = np.zeros(size, np.int64)
    found[list(counts)] = list(counts.values())
    return found
