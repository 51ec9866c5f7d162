"""Patches of what a drafter computes, and of how its checkpoint was written.

Other programs keep the same weights in another order. The weights themselves stay, since they may
be packed: what a layer takes in or gives out is put in the order that the other program would have.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from analysis.drafters.inputs import exchanged, orders
from analysis.drafters.trials import Part, Patch, Subject, through
from core.models import checkpoint
from core.models.adapter import GatedAdapter
from core.models.language import Language
from core.models.layers import MLP, Attention, RMSNorm, Rope, Shape

WINDOWS = (16, 64, 256, 1024, 4096)  # tokens of context
BLOCKS = (4, 8, 16, 32)  # rows
THETAS = (1e4, 5e5, 1e6, 1e7)  # bases of rotary positions that models use
MASKS = ("mask", "pad", "unk", "eos", "bos")  # tokens that a mask often is
MOST_PAIRS = 600  # exchanges of two heads that are tried


# ── the config ───────────────────────────────────────────────────────────────────────────────────


Others = Callable[[Subject, Any], Iterable[Any]]


def config(subject: Subject, field: str, others: Others) -> Iterator[Patch]:
    """A field of the config has another value: one of ``others(subject, its value)``. Words: its
    value and the other one."""
    own = getattr(subject.config, field, None)
    for other in others(subject, own) if own is not None else ():
        yield Patch(words=(own, other), parts=[subject.configured(**{field: other})])


def switch(subject: Subject, field: str) -> Iterator[Patch]:
    """A switch of the config turned over. Words: what it says then."""
    if isinstance(own := getattr(subject.config, field, None), bool):
        parts = [subject.configured(**{field: not own})]
        yield Patch(words=(str(not own).lower(),), parts=parts)


def bases(subject: Subject, own: Any) -> Iterator[Rope]:
    if isinstance(own, Rope):
        for theta in sorted({*THETAS, target_theta(subject.language) or own.theta} - {own.theta}):
            yield replace(own, theta=theta)


def target_theta(language: Language) -> float | None:
    """The base of the target's rotary positions, if it has one."""
    config = language.model.config.get_text_config()
    found = (getattr(config, "rope_parameters", None) or {}).get("rope_theta")
    return float(found) if isinstance(found, (int, float)) else None


def block_sizes(subject: Subject, own: int) -> Iterator[int]:
    """Other numbers of rows, of a block whose rows see each other: a causal one may end anywhere.
    XPress's weights are of a block's places."""
    if own and not all(layer.shape.causal for layer in subject.attention.values()):
        for size in BLOCKS:
            other = replace(subject.config, block_size=size)
            if size != own and other.max_depth > 0 and _same_sizes(subject.network, other):
                yield size


def _same_sizes(network: Any, config: Any) -> bool:
    """Whether the network's tensors would have the same sizes by another config."""
    with torch.device("meta"):
        made, other = (checkpoint.shapes(type(network)(each)) for each in (network.config, config))
    return made == other


def other_masks(subject: Subject) -> Iterator[Patch]:
    """Another mask token. Words: the configured one, the other, and the other's text."""
    own, tokenizer = getattr(subject.config, "mask_token_id", None), subject.language.tokenizer
    ids = [getattr(tokenizer, f"{name}_token_id", None) for name in MASKS]
    for token in dict.fromkeys(ids) if own is not None and subject.embedding is not None else ():
        if isinstance(token, int) and token != own:
            words = own, token, subject.language.piece(token)
            yield Patch(words=words, parts=[subject.configured(mask_token_id=token)])


def full_attention(subject: Subject) -> Iterator[Patch]:
    """Rows see all where the config has a window. Words: its tokens."""
    own = getattr(subject.config, "window", 0)
    if 0 < own <= subject.longest // 2:
        parts = [subject.configured(window=1 << 30)]
        parts += [_shaped(layer, window=0) for layer in subject.attention.values()]
        yield Patch(words=(own,), parts=parts)


def _shaped(layer: Attention, **values: Any) -> Part:
    return layer, "shape", replace(layer.shape, **values)


def windows(subject: Subject) -> Iterator[Patch]:
    """The drafted rows see only the last tokens of the context. Words: how many."""
    layers, own = subject.attention.values(), getattr(subject.config, "window", 0)
    for size in WINDOWS if layers and not own else ():
        if size <= subject.longest // 2:
            parts = [through(layer, "attend", _windowed(size)) for layer in layers]
            yield Patch(words=(size,), parts=parts)


def _windowed(size: int) -> Callable[..., tuple[Any, ...]]:
    def recent(queries: Any, context: Any, near: Any, visible: Any, *hidden: Any) -> tuple:
        columns = torch.arange(context.keys.shape[1], device=queries.device)
        if visible is None:
            visible = columns.new_ones(len(queries), len(columns), dtype=torch.bool)
        last = columns >= visible.sum(-1, keepdim=True) - size
        return queries, context, near, visible & last, *hidden

    return recent


def block(subject: Subject, causal: bool) -> Iterator[Part]:
    """Whether a drafted row sees the rows after it in its block."""
    for each in subject.attention.values() if hasattr(subject.config, "block_size") else ():
        if each.shape.causal != causal:
            yield _shaped(each, causal=causal)


# ── what it computes ─────────────────────────────────────────────────────────────────────────────


def context_moved(subject: Subject, step: int) -> Iterator[Part]:
    """The context so many positions nearer to what is drafted."""

    def moved(*given: Any) -> tuple[Any, ...]:
        return *given[:-1], given[-1] + step

    if hasattr(subject.network, "project"):
        yield through(subject.network, "project", moved)


def norms(subject: Subject) -> Iterator[Patch]:
    """Each of the network's own norms skipped, or applied once more; not those inside a stack.
    Words: its name, which of both, and what was in training."""
    for name, norm in subject.named_modules.items():
        if is_norm(norm) and not re.search(r"\blayers\.\d", name) and "_norm." not in name:
            for words, after in (
                (("skipped", "was not there"), lambda out, x: x),
                (("twice", "was applied twice"), lambda out, x, plain=norm.forward: plain(out)),
            ):
                yield Patch(words=(name, *words), parts=[through(norm, after=after)])


def gains(subject: Subject, step: int) -> Iterator[Part]:
    """Every norm of the network multiplies by its gain plus ``step``."""
    for norm in filter(is_norm, subject.named_modules.values()):
        eps = getattr(norm, "eps", None) or norm.variance_epsilon

        def gained(out: Tensor, x: Tensor, eps: Any = eps) -> Tensor:
            return out + step * F.rms_norm(x, x.shape[-1:], None, eps)

        yield through(norm, after=gained)


def epsilon(subject: Subject) -> Iterator[Patch]:
    """Its norms add the target's epsilon, where the config names another. Words: both."""
    own = getattr(subject.config, "rms_norm_eps", None)
    theirs = getattr(subject.language.model.config.get_text_config(), "rms_norm_eps", None)
    if own and theirs and not math.isclose(own, theirs, rel_tol=0.01):
        norms = filter(is_norm, subject.named_modules.values())
        names = ((n, "eps" if hasattr(n, "eps") else "variance_epsilon") for n in norms)
        yield Patch(words=(own, theirs), parts=[(norm, name, theirs) for norm, name in names])


def is_norm(module: nn.Module) -> bool:
    """Whether it multiplies by weight / rms: a norm of ours, or of the target's own class."""
    eps = hasattr(module, "eps") or hasattr(module, "variance_epsilon")
    return isinstance(module, RMSNorm) or (eps and type(module).__name__.endswith("Norm"))


def fed_back(subject: Subject) -> Iterator[Part]:
    """A layer that is run again on its own hidden state, or hands it to the next depth's layer,
    reads it before the last norm."""
    network: Any = subject.network
    again = subject.joined and getattr(subject.drafter, "chained", True)
    for head in (network, *network.further) if again else ():
        given = list[Tensor]()

        def keep(x: Tensor, given: list[Tensor] = given) -> tuple[Tensor]:
            given[:] = x
            return (x,)

        def unnormed(found: tuple, *rows: Any, given: list[Tensor] = given) -> tuple:
            return found[0], given[0]

        yield through(head.norm, before=keep)
        yield through(head, after=unnormed)


def mask_rows(subject: Subject) -> Iterator[Part]:
    """The embedding of the masked positions is zero."""
    own, embedding = getattr(subject.config, "mask_token_id", None), subject.embedding
    if own is not None and embedding is not None:
        yield through(
            embedding, after=lambda rows, ids: rows.masked_fill((ids == own)[..., None], 0)
        )
    yield from zeroed(subject, "mask_rep")


def zeroed(subject: Subject, name: str) -> Iterator[Part]:
    """The network's parameter of this name is zero."""
    for module in subject.named_modules.values():
        if isinstance(found := getattr(module, name, None), nn.Parameter):
            yield module, name, torch.zeros_like(found)


def scaled_embeddings(subject: Subject) -> Iterator[Part]:
    """Embeddings times √h, which some models do after the table and others in it."""
    width = getattr(subject.config, "hidden_size", 0)
    if subject.embedding is not None and width:
        yield through(subject.embedding, after=lambda rows, ids: rows * width**0.5)


def adapter(subject: Subject, times: Callable[[Any], float]) -> Iterator[Part]:
    """Multiply what low-rank weights add: left out, or scaled in another way."""
    drafter: Any = subject.drafter
    made = getattr(drafter, "adapter", None)
    if isinstance(made, GatedAdapter) and abs((by := times(drafter.config)) - 1) > 1e-9:
        yield through(made, "pair", after=lambda pair, name: (pair[0], pair[1] * by))


def places(subject: Subject, causal: bool) -> Iterator[Part]:
    """The places where low-rank weights are on see more or less of each other."""
    drafter: Any = subject.drafter
    on = isinstance(getattr(drafter, "adapter", None), GatedAdapter)
    if on and drafter.config.causal != causal:
        yield drafter, "config", replace(drafter.config, causal=causal)


def anchor_first(subject: Subject) -> Iterator[Part]:
    if subject.network is not None and hasattr(subject.config, "block_size"):
        yield through(subject.network, after=lambda rows, *given: rows.roll(1, dims=1))


# ── an MTP head's layers of each depth ───────────────────────────────────────────────────────────


def _layers(subject: Subject) -> list[Any]:
    """None where one serves all depths."""
    drafter: Any = subject.drafter
    heads = getattr(drafter, "heads", None) if hasattr(drafter, "chained") else None
    return heads if isinstance(heads, list) and len(heads) > 1 else []


def depths_reordered(subject: Subject) -> Iterator[Patch]:
    """Its layers in another order. Words: the order, and the first one's number."""
    if heads := _layers(subject):
        for order in orders(len(heads)):
            parts = [(subject.drafter, "heads", [heads[at] for at in order])]
            yield Patch(words=([at + 1 for at in order], order[0] + 1), parts=parts)


def first_for_all(subject: Subject) -> Iterator[Part]:
    if heads := _layers(subject):
        yield subject.drafter, "heads", heads[:1] * len(heads)


def chained(subject: Subject, on: bool) -> Iterator[Part]:
    """A layer reads what the one before it made, or each reads the target's state."""
    drafter: Any = subject.drafter
    if _layers(subject) and drafter.chained != on:
        yield drafter, "chained", on


# ── how it was written ───────────────────────────────────────────────────────────────────────────


def neighbours(subject: Subject) -> Iterator[Part]:
    """Rotary positions turn neighbouring numbers of a head, not its two halves."""
    for layer in subject.attention.values():
        width = layer.shape.head_dim
        for linear in (layer.q_proj, layer.k_proj):  # (0, 0', 1, 1', …) to (0, 1, …, 0', 1', …)
            yield through(
                linear,
                after=lambda out, x, half=width // 2: out.unflatten(-1, (-1, half, 2)).mT.flatten(
                    -3
                ),
            )


def swapped_gates(subject: Subject) -> Iterator[Part]:
    """The halves of a fused gate_up_proj were split in the wrong order."""
    for mlp in subject.named_modules.values():
        if isinstance(mlp, MLP):
            yield from _swapped((mlp.gate_proj, "forward"), (mlp.up_proj, "forward"))


def _swapped(one: tuple[object, str], other: tuple[object, str]) -> list[Part]:
    return [(*one, getattr(*other)), (*other, getattr(*one))]


def swapped(
    subject: Subject, what: str, parts: Callable[[Subject], Iterable[Part]]
) -> Iterator[Patch]:
    """The halves of an input that holds an embedding beside something. Words: what came first and
    second in training."""
    first = getattr(subject.config, "hidden_first", False)
    if made := [*parts(subject)]:
        yield Patch(words=("embedding", what) if first else (what, "embedding"), parts=made)


def halves(subject: Subject) -> Iterator[Part]:
    """Inputs that hold an embedding beside a feature."""
    for module in subject.named_modules.values():
        linears = [getattr(module, "eh_proj", None)]
        if isinstance(module, Attention) and module.shape.inputs == 2 * module.shape.hidden:
            linears = [module.q_proj, module.k_proj, module.v_proj]
        for linear in linears:
            if isinstance(linear, nn.Module):
                yield through(
                    linear, before=lambda x: (torch.cat([*reversed(x.chunk(2, -1))], -1),)
                )


def sides(subject: Subject) -> Iterator[Part]:
    """Heads that multiply an embedding by one matrix and a row by another."""
    for module in subject.named_modules.values():
        if callable(getattr(module, "left", None)) and callable(getattr(module, "right", None)):
            yield from _swapped((module, "left"), (module, "right"))


def layer_order(subject: Subject) -> Iterator[Patch]:
    """Two decoder layers of the same sizes stand for each other. Words: their names."""
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
            yield Patch(words=(f"{name}.{one}", f"{name}.{other}"), parts=made)


STACKS = (nn.ModuleList, nn.ModuleDict)


def _attention(layer: nn.Module) -> Any:
    return getattr(layer, "self_attn", None)


def _sizes(layer: nn.Module) -> Shape:
    """Its shape, but for what its rows see."""
    return replace(_attention(layer).shape, causal=False, window=0)


# ── attention heads ──────────────────────────────────────────────────────────────────────────────


def turns(subject: Subject, turned: bool) -> Iterator[Part]:
    """Query heads that read one key head stand beside each other; elsewhere they take turns."""
    found = subject.attention.values()
    layers = [each for each in found if 1 < each.shape.groups < each.shape.heads]
    square = all(each.shape.groups**2 == each.shape.heads for each in layers)
    for layer in layers if turned or not square else ():  # a square is its own inverse
        size = (layer.shape.groups, -1) if turned else (-1, layer.shape.groups)
        order = torch.arange(layer.shape.heads).view(size).mT.flatten().tolist()
        yield from _ordered(layer, "queries and outputs", order)


def two_heads(subject: Subject) -> Iterator[Patch]:
    """Two heads of a layer stand for each other: query heads, key heads or both sides of one.
    Words: the layer, what of the heads, and their numbers."""
    found = [
        (name, layer, which, pair)
        for name, layer in subject.attention.items()
        for which, pair in _exchanges(layer)
    ]
    for name, layer, which, pair in found if len(found) <= MOST_PAIRS else ():
        count = layer.shape.groups if which in KEY_HEADS else layer.shape.heads
        words = (name.removesuffix(".self_attn"), which, *pair)
        yield Patch(words=words, parts=_ordered(layer, which, exchanged(count, *pair)))


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


def _ordered(layer: Attention, which: str, order: Sequence[int]) -> list[Part]:
    """Reorder the heads that ``which`` names: head ``order[i]`` comes as the i-th. Outputs go back
    to the order in which the layer that reads them is stored."""
    width, back = layer.shape.head_dim, sorted(range(len(order)), key=order.__getitem__)

    def heads(x: Tensor, order: Sequence[int]) -> Tensor:
        return x.unflatten(-1, (-1, width))[..., list(order), :].flatten(-2)

    sides = {"queries": layer.q_proj, "keys": layer.k_proj, "values": layer.v_proj}
    words = which.split(" and ")
    made = [through(sides[w], after=lambda out, x: heads(out, order)) for w in words if w in sides]
    if "outputs" in words:
        made.append(through(layer.o_proj, before=lambda x: (heads(x, back),)))
    return made
