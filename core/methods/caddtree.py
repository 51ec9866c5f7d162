"""CaDDTree (arXiv 2606.01813): DDTree with a budget chosen anew every round, by what a node costs.

The builder works with any drafter. What a round costs on a machine is an option; ``python -m app
cost`` measures it, and so does the run itself with ``measure``.
"""

from __future__ import annotations

from dataclasses import dataclass

from core.methods.method import BuilderInfo, Explanation, Method, Note, Range, TargetFacts, option

WORTH = "worth"  # a note of a node
MILLISECONDS = Range(1e-3, 1e6, step=0.1)


@dataclass(frozen=True)
class CostOptions:
    """Costs; by default about what DDTree takes with the embedded target on two CPU cores."""

    round_ms: float = option(
        90.0, "what a round takes without drafted nodes", MILLISECONDS, "ms per round"
    )
    node_ms: float = option(1.6, "what each drafted node adds", MILLISECONDS, "ms per node")
    measure: bool = option(
        False, "fit both anew from the run's own rounds; drafts then differ from run to run",
        label="measure while running",
    )  # fmt: skip


def make(facts: TargetFacts, options: CostOptions):
    from core.drafting.builders import AsFarAsItPays, PaysAsMeasured

    start = AsFarAsItPays(options.round_ms, options.node_ms, WORTH)
    return PaysAsMeasured(start) if options.measure else start


EXPLAIN = Explanation(
    notes=(
        Note(
            WORTH, "worth", "number",
            "the tokens per ms that it was expected to add, over those of the round without it, at "
            "{round_ms} ms a round and {node_ms} ms a node, or as measured; from 1 on it pays",
        ),
    ),
)  # fmt: skip
BUILDER = BuilderInfo(
    "cost-aware",
    "best-first, as long as a node is expected to pay for itself",
    make,
    CostOptions,
    nested=True,
    optimal=lambda options: True,
    explain=EXPLAIN,
    ends="no further node is expected to pay for its time, or the drafter lists none",
)
METHOD = Method(
    "CaDDTree", "dflash", "cost-aware", 256, "DDTree with a budget that each round chooses by cost",
)  # fmt: skip
