"""Mistakes in what a drafter computes: positions, norms, windows, blocks, masks.

Each is a function from a loaded drafter to its trials, as ``analysis.drafters.mistakes`` says.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from analysis.drafters.trials import Subject, Trial, patched
from core.drafting.session import Drafter
from core.models.language import Language
from core.models.layers import Attention, RMSNorm, Rope

WINDOWS = (16, 64, 256, 1024, 4096)  # tokens of context
BLOCKS = (4, 8, 16, 32)  # rows
THETAS = (1e4, 5e5, 1e6, 1e7)  # bases of rotary positions that models use


def positions(subject: Subject) -> Iterator[Trial]:
    """The context one position nearer to what is drafted, or one further off."""
    network = subject.network
    place = next((name for name in ("project", "join") if hasattr(network, name)), None)
    if network is None or place is None:
        return
    for step, word in ((1, "nearer"), (-1, "further off")):
        cause = f"its positions are off by one: in training the context was one {word}"

        def change(step: int = step) -> AbstractContextManager[None]:
            return _moved(subject.drafter, network, place, step)

        yield Trial(f"context one position {word}", cause, change=change)


@contextmanager
def _moved(drafter: Any, network: nn.Module, place: str, step: int) -> Iterator[None]:
    """What places context rows places them ``step`` further on. ``join`` also places drafted rows:
    only what it does when a round begins is moved."""
    plain = getattr(network, place)
    at = inspect.signature(plain)

    def moved(*args: Any) -> Any:
        given = at.bind(*args)
        given.arguments["positions"] = given.arguments["positions"] + step
        return plain(*given.args)

    if place == "project":
        with patched(network, place, moved):
            yield
        return
    begin, each = drafter.begin, getattr(drafter, "begin_each", None)

    def begin_moved(root: int, width: int) -> Any:
        with patched(network, place, moved):
            return begin(root, width)

    def each_moved(*args: Any) -> Iterator[Any]:
        assert each is not None  # it is put in only where there is one
        sessions = each(*args)
        with patched(network, place, moved):
            first = next(sessions)  # the prefix is placed before the first session is there
        yield first
        yield from sessions

    with ExitStack() as stack:
        stack.enter_context(patched(drafter, "begin", begin_moved))
        if each is not None:
            stack.enter_context(patched(drafter, "begin_each", each_moved))
        yield


def rope(subject: Subject) -> Iterator[Trial]:
    """Rotary positions of another base."""
    network, config = subject.network, subject.config
    rope = getattr(config, "rope", None)
    if network is None or not isinstance(rope, Rope):
        return
    for theta in sorted({*THETAS, target_theta(subject.language) or rope.theta} - {rope.theta}):

        def change(theta: float = theta) -> AbstractContextManager[None]:
            return patched(network, "config", replace(config, rope=replace(rope, theta=theta)))

        cause = f"its config says rope_theta {rope.theta:g}, but it was trained with {theta:g}"
        yield Trial(f"rope_theta {theta:g}", cause, change=change)


def target_theta(language: Language) -> float | None:
    """The base of the target's rotary positions, if it has one."""
    config = language.model.config.get_text_config()
    found = (getattr(config, "rope_parameters", None) or {}).get("rope_theta")
    return float(found) if isinstance(found, (int, float)) else None


def norms(subject: Subject) -> Iterator[Trial]:
    """Each of the network's own norms skipped, or applied once more; not those inside a stack."""
    inner = getattr(subject.drafter, "conditioner", subject.drafter)
    network = getattr(inner, "model", None)
    for name, norm in network.named_modules() if isinstance(network, nn.Module) else ():
        if not isinstance(norm, RMSNorm) or re.search(r"\blayers\.\d", name) or "_norm." in name:
            continue

        def skipped(norm: RMSNorm = norm) -> AbstractContextManager[None]:
            return patched(norm, "forward", lambda x: x)

        def twice(norm: RMSNorm = norm) -> AbstractContextManager[None]:
            plain = norm.forward
            return patched(norm, "forward", lambda x: plain(plain(x)))

        yield Trial(f"{name} skipped", f"{name} was not there in training", change=skipped)
        yield Trial(f"{name} twice", f"{name} was applied twice in training", change=twice)


def switches(subject: Subject) -> Iterator[Trial]:
    """The config's switches of norms that take no weights of their own."""
    network, config = subject.network, subject.config
    for name in ("norm_before_residual", "norm_output"):
        value = getattr(config, name, None)
        if network is None or not isinstance(value, bool):
            continue

        def change(name: str = name, value: bool = value) -> AbstractContextManager[None]:
            return patched(network, "config", replace(config, **{name: not value}))

        word = str(not value).lower()
        yield Trial(f"{name}={word}", f"its config should say {name}: {word}", change=change)


def windows(subject: Subject) -> Iterator[Trial]:
    """The drafted rows see only the last tokens of the context, or all where the config has a
    window."""
    layers = _attention(subject)
    yield from _own_window(subject, layers)
    for size in WINDOWS if layers and not getattr(subject.config, "window", 0) else ():
        if size > subject.longest // 2:
            return

        def change(size: int = size) -> AbstractContextManager[None]:
            return _windowed(layers, size)

        cause = f"it was trained with a sliding window of about {size} tokens, and sees all"
        yield Trial(f"context in a window of {size}", cause, change=change)


def _attention(subject: Subject) -> list[Attention]:
    modules = subject.network.modules() if subject.network is not None else ()
    return [module for module in modules if isinstance(module, Attention)]


def _own_window(subject: Subject, layers: list[Attention]) -> Iterator[Trial]:
    """No window although the config has one."""
    network, config = subject.network, subject.config
    size = getattr(config, "window", 0)
    if network is None or not size or size > subject.longest // 2:
        return

    @contextmanager
    def full() -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(patched(network, "config", replace(config, window=1 << 30)))
            for layer in layers:
                stack.enter_context(patched(layer, "shape", replace(layer.shape, window=0)))
            yield

    cause = f"its config says a window of {size}, and it was trained with full attention"
    yield Trial("window as full attention", cause, change=full)


def blocks(subject: Subject) -> Iterator[Trial]:
    """Whether a drafted row sees the rows after it in its block."""
    layers = _attention(subject)
    if not layers or not hasattr(subject.config, "block_size"):
        return
    for causal, name, cause in (
        (True, "block causal", "each row saw only those before it in training (JetSpec's head)"),
        (False, "block seen whole", "each row saw its whole block in training"),
    ):
        wrong = [layer for layer in layers if layer.shape.causal != causal]

        @contextmanager
        def change(wrong: list[Attention] = wrong, causal: bool = causal) -> Iterator[None]:
            with ExitStack() as stack:
                for layer in wrong:
                    made = replace(layer.shape, causal=causal)
                    stack.enter_context(patched(layer, "shape", made))
                yield

        if wrong:
            yield Trial(name, f"the config's causal switch is wrong: {cause}", change=change)


def block_sizes(subject: Subject) -> Iterator[Trial]:
    """Another number of rows in a block whose rows see each other."""
    network, config = subject.network, subject.config
    own = getattr(config, "block_size", 0)
    if network is None or all(layer.shape.causal for layer in _attention(subject)):
        return  # a causal block may end anywhere
    for size in BLOCKS if own else ():
        made = None if size == own else replace(config, block_size=size)
        if made is not None and made.max_depth > 0:
            cause = f"its config says blocks of {own}, and it was trained with {size}"
            yield Trial(
                f"block of {size}", cause, change=lambda m=made: patched(network, "config", m)
            )


@contextmanager
def _windowed(layers: list[Attention], size: int) -> Iterator[None]:
    if not layers:
        yield
        return
    plain = layers[0].attend

    def attend(queries, context, near, visible, hidden=None):
        columns = torch.arange(context.keys.shape[1], device=queries.device)
        if visible is None:
            visible = columns.new_ones(len(queries), len(columns), dtype=torch.bool)
        recent = columns >= visible.sum(-1, keepdim=True) - size
        return plain(queries, context, near, visible & recent, hidden)

    with patched(layers[0], "attend", attend), _windowed(layers[1:], size):
        yield


def masks(subject: Subject) -> Iterator[Trial]:
    """The embedding of the masked positions is zero."""
    network, drafter = subject.network, subject.drafter
    cause = "the mask's embedding is not the one it was trained with"
    moot = "the mask's embedding is zero already: all masked positions look alike"
    token, embedding = getattr(subject.config, "mask_token_id", None), _part(drafter, "embedding")
    if token is not None and embedding is not None:
        plain = embedding.forward

        def forward(ids: Tensor) -> Tensor:
            return plain(ids).masked_fill((ids == token)[..., None], 0)

        yield Trial(
            "mask embedding zero",
            cause,
            moot,
            change=lambda: patched(embedding, "forward", forward),
        )
        yield from _other_masks(subject, int(token))
    for name, parameter in network.named_parameters() if network is not None else ():
        if name.endswith("mask_rep"):
            yield Trial("mask embedding zero", cause, moot, change=lambda p=parameter: _zeroed(p))


def _other_masks(subject: Subject, own: int) -> Iterator[Trial]:
    """Tokens that a mask often is."""
    tokenizer, network, config = subject.language.tokenizer, subject.network, subject.config
    usual = ("mask", "pad", "unk", "eos", "bos")
    ids = [getattr(tokenizer, f"{name}_token_id", None) for name in usual]
    for token in dict.fromkeys(token for token in ids if isinstance(token, int)):
        if token == own or network is None:
            continue
        made, text = replace(config, mask_token_id=token), subject.language.piece(token)
        yield Trial(
            f"mask token {token}",
            f"the mask token is not {own}, as its config says, but one like {token} ({text})",
            change=lambda m=made: patched(network, "config", m),
        )


def embeddings(subject: Subject) -> Iterator[Trial]:
    """Embeddings times √h, which some models do after the table and others in it."""
    embedding = _part(subject.drafter, "embedding")
    if embedding is None:
        return
    plain, width = embedding.forward, getattr(subject.config, "hidden_size", 0)

    def forward(ids: Tensor) -> Tensor:
        return plain(ids) * width**0.5

    if width:
        cause = "it was trained on embeddings times √h, as Gemma's models use them"
        yield Trial(
            "embeddings times √h", cause, change=lambda: patched(embedding, "forward", forward)
        )


def _part(drafter: Drafter, name: str) -> nn.Module | None:
    found = getattr(drafter, name, None)
    return found if isinstance(found, nn.Module) else None


@contextmanager
def _zeroed(parameter: nn.Parameter) -> Iterator[None]:
    kept = parameter.detach().clone()
    with torch.no_grad():
        parameter.zero_()
        try:
            yield
        finally:
            parameter.copy_(kept)
