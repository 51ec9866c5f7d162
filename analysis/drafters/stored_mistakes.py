"""Mistakes in how a checkpoint was written: other programs keep the same weights in another order.

The weights themselves stay, since they may be packed: what a layer takes in or gives out is put in
the order that the other program would have. Each is a function from a loaded drafter to its
trials, as ``analysis.drafters.mistakes`` says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from analysis.drafters.trials import Subject, Trial, patched
from core.models.layers import MLP, Attention, RMSNorm, Shape

Forward = Callable[[Tensor], Tensor]
Part = tuple[object, str, object]
MOST_PAIRS = 600  # exchanges of two heads that are tried


def pairs(subject: Subject) -> Iterator[Trial]:
    """Rotary positions that turn neighbouring numbers of a head, not its two halves."""
    made = [
        _through(linear, after=lambda x, width=layer.shape.head_dim: _halved(x, width))
        for layer in subject.attention.values()
        for linear in (layer.q_proj, layer.k_proj)
    ]
    if made:
        yield Trial(
            "rotary pairs of neighbours",
            "its queries and keys are stored for rotary positions that turn neighbouring numbers, "
            "as in Meta's files and in GGUF, and not a head's two halves",
            change=patched(*made),
        )


def _halved(x: Tensor, width: int) -> Tensor:
    """Reorder each head of ``x`` from (0, 0', 1, 1', …) to (0, 1, …, 0', 1', …)."""
    return x.unflatten(-1, (-1, width // 2, 2)).mT.flatten(-3)


def _same(x: Tensor) -> Tensor:
    return x


def _through(linear: nn.Module, before: Forward = _same, after: Forward = _same) -> Part:
    """A module that computes ``after(module(before(x)))``."""
    plain = linear.forward
    return linear, "forward", lambda x: after(plain(before(x)))


def swapped_gates(subject: Subject) -> Iterator[Trial]:
    """The halves of a fused gate_up_proj were split in the wrong order."""
    made = list[Part]()
    for mlp in subject.named_modules.values():
        if isinstance(mlp, MLP):
            made += _swapped((mlp.gate_proj, "forward"), (mlp.up_proj, "forward"))
    if made:
        cause = "gate_proj and up_proj stand for each other: a fused one was split the other way"
        yield Trial("gate and up exchanged", cause, change=patched(*made))


def _swapped(one: tuple[object, str], other: tuple[object, str]) -> list[Part]:
    return [(*one, getattr(*other)), (*other, getattr(*one))]


def halves(subject: Subject) -> Iterator[Trial]:
    """Swap the halves of inputs that hold an embedding beside a feature, or beside a row."""
    read = [
        _through(linear, lambda x: torch.cat([*reversed(x.chunk(2, -1))], -1))
        for layer in subject.attention.values()
        if layer.shape.inputs == 2 * layer.shape.hidden
        for linear in (layer.q_proj, layer.k_proj, layer.v_proj)
    ]
    joined = (getattr(each, "eh_proj", None) for each in subject.named_modules.values())
    read += [
        _through(linear, lambda x: torch.cat([*reversed(x.chunk(2, -1))], -1))
        for linear in joined
        if isinstance(linear, nn.Module)
    ]
    heads = list[Part]()
    for module in subject.named_modules.values():
        if callable(getattr(module, "left", None)) and callable(getattr(module, "right", None)):
            heads += _swapped((module, "left"), (module, "right"))
    for what, made in (("feature", read), ("row", heads)):
        if made:
            first = (
                ("embedding", what)
                if getattr(subject.config, "hidden_first", False)
                else (what, "embedding")
            )
            cause = f"it was trained with the {first[0]} first and the {first[1]} after it"
            yield Trial(f"embedding and {what} exchanged", cause, change=patched(*made))


def gains(subject: Subject) -> Iterator[Trial]:
    """Every norm of the network multiplies by gain + 1, or by gain − 1."""
    every = [each for each in subject.named_modules.values() if is_norm(each)]
    for step, cause in (
        (1, "the file holds gain − 1, as Gemma's do, and the norms multiply by it as it is"),
        (-1, "one was added to the gains when the file was written"),
    ):
        made = [(norm, "forward", _gained(norm, step)) for norm in every]
        if made:
            yield Trial(f"gains {'+' if step > 0 else '−'} 1", cause, change=patched(*made))


def _gained(norm: Any, step: int) -> Forward:
    plain, eps = norm.forward, getattr(norm, "eps", None) or norm.variance_epsilon
    return lambda x: plain(x) + step * F.rms_norm(x, norm.weight.shape, None, eps)


def is_norm(module: nn.Module) -> bool:
    """Whether it multiplies by weight / rms: a norm of ours, or of the target's own class."""
    eps = hasattr(module, "eps") or hasattr(module, "variance_epsilon")
    return isinstance(module, RMSNorm) or (eps and type(module).__name__.endswith("Norm"))


def layer_order(subject: Subject) -> Iterator[Trial]:
    """Two decoder layers of the same sizes stand for each other."""
    for name, stack in subject.named_modules.items():
        kept = dict(stack.named_children()) if isinstance(stack, STACKS) else {}
        layers = {n: x for n, x in kept.items() if isinstance(_attention(x), Attention)}
        for one, other in combinations(layers, 2):
            if _sizes(layers[one]) != _sizes(layers[other]):
                continue
            moved = kept | {one: layers[other], other: layers[one]}
            made: list[Part] = [(stack, "_modules", moved)]
            for here, there in ((one, other), (other, one)):  # what a place sees stays its own
                made.append((_attention(layers[there]), "shape", _attention(layers[here]).shape))
            cause = f"the decoder layers {name}.{one} and {name}.{other} stand for each other"
            yield Trial(f"{name}.{one} and {name}.{other} exchanged", cause, change=patched(*made))


STACKS = (nn.ModuleList, nn.ModuleDict)


def _attention(layer: nn.Module) -> Any:
    return getattr(layer, "self_attn", None)


def _sizes(layer: nn.Module) -> Shape:
    """Its shape, but for what its rows see."""
    return replace(_attention(layer).shape, causal=False, window=0)


# ── attention heads ──────────────────────────────────────────────────────────────────────────────


def turns(subject: Subject) -> Iterator[Trial]:
    """Query heads that read one key head stand beside each other; elsewhere they take turns."""
    found = subject.attention.values()
    layers = [each for each in found if 1 < each.shape.groups < each.shape.heads]
    for word, turned in (("in turns", True), ("in blocks", False)):
        made = list[Part]()
        for layer in layers:
            shape = layer.shape
            size = (shape.groups, -1) if turned else (-1, shape.groups)
            order = torch.arange(shape.heads).view(size).mT.flatten().tolist()
            made += _ordered(layer, "queries and outputs", order)
        same = all(layer.shape.groups**2 == layer.shape.heads for layer in layers)
        if made and (turned or not same):  # a square is its own inverse
            cause = "its query heads are stored in another order: those of one key head " + (
                "take turns with the others" if turned else "stand beside each other"
            )
            yield Trial(f"query heads {word}", cause, change=patched(*made))


def exchanged_heads(subject: Subject) -> Iterator[Trial]:
    """Two heads of a layer stand for each other: query heads, key heads or both sides of one."""
    found = [
        (name, layer, which, pair)
        for name, layer in subject.attention.items()
        for which, pair in _exchanges(layer)
    ]
    for name, layer, which, (one, other) in found if len(found) <= MOST_PAIRS else ():
        count = layer.shape.groups if which in KEY_HEADS else layer.shape.heads
        order = list(range(count))
        order[one], order[other] = other, one
        where = name.removesuffix(".self_attn")
        yield Trial(
            f"{where}: {which} of heads {one} and {other} exchanged",
            f"in {where} the {which} of heads {one} and {other} stand for each other",
            change=patched(*_ordered(layer, which, order)),
        )


KEY_HEADS = ("keys", "values", "keys and values")
QUERY_HEADS = ("queries", "outputs", "queries and outputs")


def _exchanges(layer: Attention) -> Iterator[tuple[str, tuple[int, int]]]:
    """List what may be exchanged between which two heads; each distinct exchange once."""
    heads, groups = layer.shape.heads, layer.shape.groups
    share = heads // groups
    for pair in combinations(range(heads), 2):
        together = pair[0] // share == pair[1] // share  # both read one key head
        yield from ((which, pair) for which in (QUERY_HEADS[:1] if together else QUERY_HEADS))
    for pair in combinations(range(groups), 2):
        yield from ((which, pair) for which in KEY_HEADS if share > 1)


def _ordered(layer: Attention, which: str, order: list[int]) -> list[Part]:
    """Reorder the heads that ``which`` names: head ``order[i]`` comes as the i-th. Outputs go back
    to the order in which the layer that reads them is stored."""
    width, back = layer.shape.head_dim, sorted(range(len(order)), key=order.__getitem__)

    def heads(x: Tensor, order: list[int]) -> Tensor:
        return x.unflatten(-1, (-1, width))[..., order, :].flatten(-2)

    made, words = list[Part](), which.split(" and ")
    for word, linear in (
        ("queries", layer.q_proj),
        ("keys", layer.k_proj),
        ("values", layer.v_proj),
    ):
        if word in words:
            made.append(_through(linear, after=lambda x: heads(x, order)))
    if "outputs" in words:
        made.append(_through(layer.o_proj, before=lambda x: heads(x, back)))
    return made
