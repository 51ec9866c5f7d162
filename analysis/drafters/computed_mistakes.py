"""Mistakes in what a drafter computes: positions, norms, windows, blocks, masks.

Each is a function from a loaded drafter to its trials, as ``analysis.drafters.mistakes`` says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from analysis.drafters.stored_mistakes import Part, is_norm
from analysis.drafters.trials import Subject, Trial, patched
from core.models import checkpoint
from core.models.adapter import GatedAdapter
from core.models.language import Language
from core.models.layers import Attention, Rope

WINDOWS = (16, 64, 256, 1024, 4096)  # tokens of context
BLOCKS = (4, 8, 16, 32)  # rows
THETAS = (1e4, 5e5, 1e6, 1e7)  # bases of rotary positions that models use
MASKS = ("mask", "pad", "unk", "eos", "bos")  # tokens that a mask often is


def positions(subject: Subject) -> Iterator[Trial]:
    """The context one position nearer to what is drafted, or one further off."""
    network = subject.network
    plain = getattr(network, "project", None)
    if plain is None:
        return
    for step, word in ((1, "nearer"), (-1, "further off")):

        def moved(*given: Any, step: int = step) -> Any:
            *rows, places = given
            return plain(*rows, places + step)

        cause = f"its positions are off by one: in training the context was one {word}"
        change = patched((network, "project", moved))
        yield Trial(f"context one position {word}", cause, change=change)


def rope(subject: Subject) -> Iterator[Trial]:
    """Rotary positions of another base."""
    rope = getattr(subject.config, "rope", None)
    if not isinstance(rope, Rope):
        return
    for theta in sorted({*THETAS, target_theta(subject.language) or rope.theta} - {rope.theta}):
        cause = f"its config says rope_theta {rope.theta:g}, but it was trained with {theta:g}"
        change = subject.configured(rope=replace(rope, theta=theta))
        yield Trial(f"rope_theta {theta:g}", cause, change=change)


def target_theta(language: Language) -> float | None:
    """The base of the target's rotary positions, if it has one."""
    config = language.model.config.get_text_config()
    found = (getattr(config, "rope_parameters", None) or {}).get("rope_theta")
    return float(found) if isinstance(found, (int, float)) else None


def norms(subject: Subject) -> Iterator[Trial]:
    """Each of the network's own norms skipped, or applied once more; not those inside a stack."""
    for name, norm in subject.named_modules.items():
        if not is_norm(norm) or re.search(r"\blayers\.\d", name) or "_norm." in name:
            continue
        plain = norm.forward
        for word, cause, forward in (
            ("skipped", "was not there in training", lambda x: x),
            ("twice", "was applied twice in training", lambda x, plain=plain: plain(plain(x))),
        ):
            change = patched((norm, "forward", forward))
            yield Trial(f"{name} {word}", f"{name} {cause}", change=change)


def switches(subject: Subject) -> Iterator[Trial]:
    """The config's switches of norms that take no weights of their own."""
    for name in ("norm_before_residual", "norm_output"):
        value = getattr(subject.config, name, None)
        if isinstance(value, bool):
            word = str(not value).lower()
            cause, change = f"its config should say {name}: {word}", {name: not value}
            yield Trial(f"{name}={word}", cause, change=subject.configured(**change))


def feedback(subject: Subject) -> Iterator[Trial]:
    """A layer that is run again on its own hidden state, or hands it to the next depth's layer,
    reads it before the last norm."""
    network: Any = subject.network
    if not hasattr(network, "eh_proj") or not getattr(subject.drafter, "chained", True):
        return
    made = list[Part]()
    for head in (network, *network.further):
        normed, plain, given = head.norm.forward, head.forward, list[Tensor]()

        def kept(x: Tensor, normed: Any = normed, given: list[Tensor] = given) -> Tensor:
            given[:] = x
            return normed(x)

        def unnormed(
            *rows: Any, plain: Any = plain, given: list[Tensor] = given
        ) -> tuple[Tensor, Tensor]:
            return plain(*rows)[0], given[0]

        made += [(head.norm, "forward", kept), (head, "forward", unnormed)]
    yield Trial(
        "fed back before the norm",
        "in training the layer read its own hidden state before the last norm, not after it",
        change=patched(*made),
    )


def windows(subject: Subject) -> Iterator[Trial]:
    """The drafted rows see only the last tokens of the context, or all where the config has a
    window."""
    layers, own = list(subject.attention.values()), getattr(subject.config, "window", 0)
    if own:
        if own <= subject.longest // 2:
            full = replace(subject.config, window=1 << 30)
            parts = [_shaped(layer, window=0) for layer in layers]
            yield Trial(
                "window as full attention",
                f"its config says a window of {own}, and it was trained with full attention",
                change=patched((subject.network, "config", full), *parts),
            )
        return
    for size in WINDOWS if layers else ():
        if size > subject.longest // 2:
            return
        cause = f"it was trained with a sliding window of about {size} tokens, and sees all"
        parts = [(layer, "attend", _windowed(layer, size)) for layer in layers]
        yield Trial(f"context in a window of {size}", cause, change=patched(*parts))


def _shaped(layer: Attention, **values: Any) -> tuple[object, str, object]:
    return layer, "shape", replace(layer.shape, **values)


def _windowed(layer: Attention, size: int) -> Callable[..., Tensor]:
    plain = layer.attend

    def attend(queries, context, near, visible, hidden=None):
        columns = torch.arange(context.keys.shape[1], device=queries.device)
        if visible is None:
            visible = columns.new_ones(len(queries), len(columns), dtype=torch.bool)
        recent = columns >= visible.sum(-1, keepdim=True) - size
        return plain(queries, context, near, visible & recent, hidden)

    return attend


def blocks(subject: Subject) -> Iterator[Trial]:
    """Whether a drafted row sees the rows after it in its block."""
    layers = list(subject.attention.values())
    if not layers or not hasattr(subject.config, "block_size"):
        return
    for causal, name, cause in (
        (True, "block causal", "each row saw only those before it in training (JetSpec's head)"),
        (False, "block seen whole", "each row saw its whole block in training"),
    ):
        wrong = [_shaped(each, causal=causal) for each in layers if each.shape.causal != causal]
        if wrong:
            cause = f"the config's causal switch is wrong: {cause}"
            yield Trial(name, cause, change=patched(*wrong))


def block_sizes(subject: Subject) -> Iterator[Trial]:
    """Another number of rows in a block whose rows see each other."""
    own = getattr(subject.config, "block_size", 0)
    if not own or all(layer.shape.causal for layer in subject.attention.values()):
        return  # a causal block may end anywhere
    for size in BLOCKS:
        other = replace(subject.config, block_size=size)
        if size != own and other.max_depth > 0 and _same_sizes(subject.network, other):
            cause = f"its config says blocks of {own}, and it was trained with {size}"
            yield Trial(f"block of {size}", cause, change=subject.configured(block_size=size))


def _same_sizes(network: Any, config: Any) -> bool:
    """Whether the network's tensors would have the same sizes by another config: XPress's weights
    are of a block's places."""
    with torch.device("meta"):
        made, other = (checkpoint.shapes(type(network)(each)) for each in (network.config, config))
    return made == other


def masks(subject: Subject) -> Iterator[Trial]:
    """The embedding of the masked positions is zero, or another token's."""
    cause = "the mask's embedding is not the one it was trained with"
    moot = "the mask's embedding is zero already: all masked positions look alike"
    own, embedding = getattr(subject.config, "mask_token_id", None), _embedding(subject)
    if own is not None and embedding is not None:
        plain = embedding.forward

        def forward(ids: Tensor) -> Tensor:
            return plain(ids).masked_fill((ids == own)[..., None], 0)

        change = patched((embedding, "forward", forward))
        yield Trial("mask embedding zero", cause, moot, change=change)
        yield from _other_masks(subject, int(own))
    for module in subject.named_modules.values():
        if isinstance(mask := getattr(module, "mask_rep", None), nn.Parameter):
            change = patched((module, "mask_rep", torch.zeros_like(mask)))
            yield Trial("mask embedding zero", cause, moot, change=change)
        if isinstance(mask := getattr(module, "mask_hidden", None), nn.Parameter):
            yield Trial(
                "mask feature zero",
                "the masked places' feature is not the one it was trained with",
                "the masked places' feature is zero already",
                change=patched((module, "mask_hidden", torch.zeros_like(mask))),
            )


def _other_masks(subject: Subject, own: int) -> Iterator[Trial]:
    tokenizer = subject.language.tokenizer
    ids = [getattr(tokenizer, f"{name}_token_id", None) for name in MASKS]
    for token in dict.fromkeys(token for token in ids if isinstance(token, int) and token != own):
        text = subject.language.piece(token)
        yield Trial(
            f"mask token {token}",
            f"the mask token is not {own}, as its config says, but one like {token} ({text})",
            change=subject.configured(mask_token_id=token),
        )


def adapters(subject: Subject) -> Iterator[Trial]:
    """Low-rank weights that are on at some rows: left out, scaled in another way, or at rows that
    see more or less of each other."""
    drafter, adapter = subject.drafter, getattr(subject.drafter, "adapter", None)
    config: Any = getattr(drafter, "config", None)
    if not isinstance(adapter, GatedAdapter):
        return
    cause = "the adapter is of another target, or was never trained"
    yield Trial("adapter left out", cause, change=patched((adapter, "pair", _times(adapter, 0))))
    for word, times in (
        ("1", 1 / config.scale),
        ("alpha / √r", config.rank**0.5),
        ("alpha / r", config.rank**-0.5),
    ):
        if abs(times - 1) > 1e-9:
            cause = f"the adapter was trained with a scale of {word}"
            change = patched((adapter, "pair", _times(adapter, times)))
            yield Trial(f"adapter's scale {word}", cause, change=change)
    words = "all of them" if config.causal else "only those before it"
    yield Trial(
        "places seen whole" if config.causal else "places seen causally",
        f"in training each place to guess saw {words}",
        change=patched((drafter, "config", replace(config, causal=not config.causal))),
    )


def _times(adapter: GatedAdapter, times: float) -> Callable[[str], tuple[Tensor, Tensor]]:
    """Its pairs, with what they add multiplied."""
    plain = adapter.pair

    def pair(name: str) -> tuple[Tensor, Tensor]:
        a, b = plain(name)
        return a, b * times

    return pair


def embeddings(subject: Subject) -> Iterator[Trial]:
    """Embeddings times √h, which some models do after the table and others in it."""
    embedding, width = _embedding(subject), getattr(subject.config, "hidden_size", 0)
    if embedding is None or not width:
        return
    plain = embedding.forward
    cause = "it was trained on embeddings times √h, as Gemma's models use them"
    change = patched((embedding, "forward", lambda ids: plain(ids) * width**0.5))
    yield Trial("embeddings times √h", cause, change=change)


def _embedding(subject: Subject) -> nn.Module | None:
    found = getattr(subject.drafter, "embedding", None)
    return found if isinstance(found, nn.Module) else None
