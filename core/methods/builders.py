"""The builders that belong to no method: what they are and their options."""

from __future__ import annotations

from dataclasses import dataclass

from core.methods.method import BuilderInfo, Range, TargetFacts, option


@dataclass(frozen=True)
class OptTreeOptions:
    gain: float = option(
        0.0, "a level that adds less expected length is the last", Range(0, step=0.01),
        label="gain a level must add",
    )  # fmt: skip


@dataclass(frozen=True)
class SampledChainOptions:
    classic: bool = option(
        False,
        "accept a token with probability min(1, p/q), else draw from the residual of p: the "
        "target's distribution, but another text; no: draw with the target's noise and accept its "
        "own token",
        label="classic rule",
    )
    block: bool = option(
        False,
        "judge the whole chain at once, with the classic rule's distribution and at least as many "
        "accepted tokens on average (block verification, arXiv 2403.10444)",
        label="block verification",
    )


def chain(facts: TargetFacts, options: None):
    from core.drafting.builders import Chain

    return Chain()


def best_first(facts: TargetFacts, options: None):
    from core.drafting.builders import best_first

    return best_first


def opt_tree(facts: TargetFacts, options: OptTreeOptions):
    from core.drafting.builders import OptTree

    return OptTree(options.gain)


def sampled_chain(facts: TargetFacts, options: SampledChainOptions):
    from core.drafting.builders import SampledChain

    return SampledChain(coupled=not (options.classic or options.block), block=options.block)


def sampled_chains_rule(options: SampledChainOptions) -> str:
    if options.block:
        return "core.verification.rules:BlockVerification"
    return "core.verification.rules:SpeculativeSampling" if options.classic else ""


ONE_EACH = "a chain has one node a depth, and ends where the drafter proposes nothing more"
NO_MORE = "the drafter lists no further path"
CHAIN = BuilderInfo(
    "chain", "the best token after the best token", chain, nested=True, chain=True, ends=ONE_EACH
)
BEST_FIRST = BuilderInfo(
    "best-first", "the B most probable prefixes, popped from a heap", best_first, nested=True,
    optimal=lambda options: True, ends=NO_MORE,
)  # fmt: skip
OPT_TREE = BuilderInfo(
    "opt-tree", "the B most probable prefixes, level by level; ends where a level gains too little",
    opt_tree, OptTreeOptions, optimal=lambda options: options.gain == 0,
    ends=f"a further level gains less than {{gain}} tokens, or {NO_MORE}",
)  # fmt: skip
SAMPLED_CHAIN = BuilderInfo(
    "sampled-chain", "tokens drawn from q, one after the other", sampled_chain,
    SampledChainOptions, chain=True, rule=sampled_chains_rule, ends=ONE_EACH,
)  # fmt: skip
