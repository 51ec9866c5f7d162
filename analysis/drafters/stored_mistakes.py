"""Mistakes in how a checkpoint was written: other programs keep the same weights in another order.

The weights themselves stay, since they may be packed: what a layer takes in or gives out is put in
the order that the other program would have. Each is a function from a loaded drafter to its
trials, as ``analysis.drafters.mistakes`` says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from analysis.drafters.trials import Subject, Trial, patched
from core.models.layers import MLP, Attention, RMSNorm

Forward = Callable[[Tensor], Tensor]


def pairs(subject: Subject) -> Iterator[Trial]:
    """Rotary positions that turn neighbouring numbers of a head, not its two halves."""
    made = dict[nn.Module, Forward]()
    for layer in _modules(subject):
        if isinstance(layer, Attention):
            for linear in (layer.q_proj, layer.k_proj):
                made[linear] = _halved(linear.forward, layer.shape.head_dim)
    if made:
        yield Trial(
            "rotary pairs of neighbours",
            "its queries and keys are stored for rotary positions that turn neighbouring numbers, "
            "as in Meta's files and in GGUF, and not a head's two halves",
            change=lambda: _exchanged(made),
        )


def _halved(plain: Forward, width: int) -> Forward:
    """What comes as (0, 0', 1, 1', …) in each head, as (0, 1, …, 0', 1', …)."""

    def forward(x: Tensor) -> Tensor:
        heads = plain(x).unflatten(-1, (-1, width // 2, 2))
        return heads.mT.flatten(-3)

    return forward


def swapped_gates(subject: Subject) -> Iterator[Trial]:
    """The halves of a fused gate_up_proj were split in the wrong order."""
    made = dict[nn.Module, Forward]()
    for mlp in _modules(subject):
        if isinstance(mlp, MLP):
            made |= {mlp.gate_proj: mlp.up_proj.forward, mlp.up_proj: mlp.gate_proj.forward}
    if made:
        cause = "gate_proj and up_proj stand for each other: a fused one was split the other way"
        yield Trial("gate and up exchanged", cause, change=lambda: _exchanged(made))


def halves(subject: Subject) -> Iterator[Trial]:
    """Attention that reads an embedding beside a feature has them in the other order."""
    made = dict[nn.Module, Forward]()
    for layer in _modules(subject):
        if isinstance(layer, Attention) and layer.shape.inputs == 2 * layer.shape.hidden:
            for linear in (layer.q_proj, layer.k_proj, layer.v_proj):
                made[linear] = _turned(linear.forward)
    if made:
        cause = "it was trained with the feature first and the embedding after it"
        yield Trial("embedding and feature exchanged", cause, change=lambda: _exchanged(made))


def _turned(plain: Forward) -> Forward:
    return lambda x: plain(torch.cat([*reversed(x.chunk(2, -1))], -1))


def gains(subject: Subject) -> Iterator[Trial]:
    """Every norm of the network multiplies by gain + 1, or by gain − 1."""
    inner = getattr(subject.drafter, "conditioner", subject.drafter)
    network = getattr(inner, "model", None)
    modules = network.modules() if isinstance(network, nn.Module) else ()
    every = [each for each in modules if isinstance(each, RMSNorm)]
    for step, cause in (
        (1, "the file holds gain − 1, as Gemma's do, and the norms multiply by it as it is"),
        (-1, "one was added to the gains when the file was written"),
    ):
        made = dict[nn.Module, Forward]((norm, _gained(norm, step)) for norm in every)
        if made:
            yield Trial(
                f"gains {'+' if step > 0 else '−'} 1", cause, change=lambda m=made: _exchanged(m)
            )


def _gained(norm: RMSNorm, step: int) -> Forward:
    plain = norm.forward
    return lambda x: plain(x) + step * F.rms_norm(x, norm.weight.shape, None, norm.eps)


def _modules(subject: Subject) -> list[nn.Module]:
    return [] if subject.network is None else [*subject.network.modules()]


@contextmanager
def _exchanged(made: dict[nn.Module, Forward]) -> Iterator[None]:
    """Modules with other forwards for a while."""
    with ExitStack() as stack:
        for module, forward in made.items():
            stack.enter_context(patched(module, "forward", forward))
        yield
