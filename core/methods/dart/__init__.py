"""DART (arXiv 2601.19278): one causal layer with shifted prediction, and a beam that weighs q
against n-gram continuity.

Light. ``model`` is the network and its checkpoint form, ``drafter`` the network at work, ``search``
the builder, ``training`` how the layer is trained.
"""

from __future__ import annotations

from dataclasses import dataclass

from core.methods.method import (
    BuilderInfo,
    Checkpoint,
    DrafterInfo,
    Explanation,
    Mark,
    Method,
    Note,
    QOptions,
    Range,
    TrainingInfo,
    option,
)

# Notes of a node: the two terms of its score, the tokens of n-gram context, the gram's count.
TERM_Q, TERM_NGRAM = "score: q term", "score: n-gram term"
CONTEXT, COUNT = "n-gram context", "n-gram count"
NOTES = (TERM_Q, TERM_NGRAM, CONTEXT, COUNT)


@dataclass(frozen=True)
class ContinuityOptions:
    """The search's constants, by default the paper's (Algorithm 1, Appendix D)."""

    width: int = option(25, "tokens read per depth", Range(1, 1024), "tokens read per depth")
    beam: int = option(20, "sequences kept per depth", Range(1, 1024), "sequences kept per depth")
    ngram: str = option("", "path of an n-gram store; empty: the target's own")
    ngram_weight: float = option(
        0.5, "weight of the n-gram term; 0 searches without n-grams", Range(0, 100, step=0.05),
        "n-gram weight",
    )  # fmt: skip
    logit_decay: float = option(
        0.9, "the q term of level l weighs decay^l", Range(0, 100, step=0.05), "decay of the q term"
    )
    level_power: float = option(
        0.7, "a level weighs (level + 1)^-power", Range(0, 100, step=0.05), "power of the level"
    )
    epsilon: float = option(
        1e-10, "added to probabilities before the logarithm",
        Range(0, 1, above=True, below=True, log=True),
    )  # fmt: skip
    ngram_at_first: bool = option(
        True, "whether depth 1 has an n-gram term, as in the paper; released builds leave it out",
        label="n-gram term at depth 1",
    )  # fmt: skip


EXPLAIN = Explanation(
    "terms",
    terms=(TERM_Q, TERM_NGRAM),
    notes=(
        Note(TERM_Q, "q term", "signed", "the weighted log q of the token among those read"),
        Note(TERM_NGRAM, "n-gram term", "signed", "the weighted log of its n-gram probability"),
        Note(CONTEXT, "n-gram context", "count", "tokens before it that the n-gram model knew"),
        Note(COUNT, "n-gram count", "count", "how often the n-gram model saw it there"),
    ),
    marks=(
        Mark("n–", COUNT, "the n-gram model never saw it here", high=0.5),
        Mark("n2", CONTEXT, "the n-gram model knows it after the 2 tokens before", 1.5, 2.5),
        Mark("n1", CONTEXT, "the n-gram model knows it after the token before", 0.5, 1.5),
        Mark("n0", CONTEXT, "the n-gram model knows it after no context", -0.5, 0.5),
    ),
    closing="The score orders the draft. It is not a probability: its terms are weighted "
    "log-probabilities.",
)


@dataclass(frozen=True)
class DartTrainingOptions:
    draft_length: int = option(7, "masks after the prefix; DART drafts one token more", Range(1))


DRAFTER = DrafterInfo(
    "dart",
    "q for every depth from one causal layer",
    "core.methods.dart.drafter:load",
    QOptions,
    checkpoint=Checkpoint(
        "core.methods.dart.model:FORM",
        "core.methods.dart.model:export",
        told=r"^=\w+Dart$|^draft_length=",
    ),
    training=TrainingInfo("core.methods.dart.training:TRAINING", DartTrainingOptions),
)
BUILDER = BuilderInfo(
    "continuity",
    "a beam that weighs q against n-gram continuity",
    "core.methods.dart.search:load",
    ContinuityOptions,
    nested=True,
    explain=EXPLAIN,
    files=("ngram",),
    ends="the beam has no more candidates: it follows {beam} nodes of a depth and reads {width} "
    "tokens of the drafter there",
)
METHOD = Method(
    "DART", "dart", "continuity", 59, "a beam held together by n-gram continuity",
)  # fmt: skip
