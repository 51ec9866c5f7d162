"""Medusa-1 (arXiv 2401.10774): a head for each depth on the target's last hidden state, and a
static tree.

Light. ``model`` is the network and its checkpoint form, ``drafter`` the network at work, ``tree``
the builder, ``training`` how the heads are trained. Above T = 0 the published method accepts by a
rule that is not lossless; here the target's own token is accepted at any temperature.
"""

from __future__ import annotations

from dataclasses import dataclass

from core.methods.method import (
    BuilderInfo,
    Checkpoint,
    DrafterInfo,
    Method,
    Range,
    TrainingInfo,
    option,
    temperature_of_q,
)

ACCURACIES = "accuracies.json"  # beside a checkpoint: what the static tree is computed from


@dataclass(frozen=True)
class MedusaOptions:
    heads: int = option(4, "heads that draft, at most", Range(1, 64))
    temperature: float = temperature_of_q()


@dataclass(frozen=True)
class StaticTreeOptions:
    accuracies: str = option(
        "", "path of how often each rank is right at each depth; empty: the target's own"
    )
    published: bool = option(
        False, "the published tree of 63 nodes, made for Vicuna-7B (also where none is measured)",
        label="published tree",
    )  # fmt: skip


@dataclass(frozen=True)
class HeadsOptions:
    heads: int = option(4, "heads, one for each depth", Range(1, 16))


DRAFTER = DrafterInfo(
    "medusa",
    "q for every depth, from one head per depth",
    "core.methods.medusa.drafter:load",
    MedusaOptions,
    checkpoint=Checkpoint(
        "core.methods.medusa.model:FORM",
        "core.methods.medusa.model:export",
        layouts="FasterDecoding's layout",
        told=r"^medusa_num_heads=",
    ),
    training=TrainingInfo("core.methods.medusa.training:TRAINING", HeadsOptions),
    vllm="medusa",
    vllm_last="0.32",
)
BUILDER = BuilderInfo(
    "static",
    "a tree whose shape is the same in every round",
    "core.methods.medusa.tree:load",
    StaticTreeOptions,
    ends="the static tree has no more nodes, or the drafter does not list those that it asks for",
)
METHOD = Method(
    "Medusa", "medusa", "static", 63, "a static tree of a head for each depth",
)  # fmt: skip
