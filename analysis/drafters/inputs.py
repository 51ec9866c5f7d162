"""Patches of what a drafter is given: features, frames of the prompt, tokens and their numbers.

Shapes: T tokens of a text, n target layers, F feature layers, h hidden width, V vocabulary.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import combinations, permutations
from typing import Any

import torch
from torch import Tensor

from analysis.drafters.trials import Part, Patch, Subject, through
from core.chat import last_message
from core.decoding.along import Reading
from core.drafting.session import Covered
from core.models.language import MARKER, encode_chat, encode_marked, final_norm

# Other chat templates: what stands before and after the user's words.
TEMPLATES = {
    "ChatML": ("<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"),
    "Llama 3": (
        "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n",
        "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    ),
    "Vicuna": ("USER: ", " ASSISTANT:"),
}
MOST_REORDERED = 4  # feature layers, of which all orders are tried
THINKING = re.compile(r"\b(?:enable_)?thinking\b")  # a chat template's own variable


# ── features ─────────────────────────────────────────────────────────────────────────────────────


def read(layers: tuple[int, ...], *words: object) -> Patch:
    return Patch(words=words, features=lambda passage: passage.after(layers))


def all_layers(subject: Subject, step: int) -> Iterator[Patch]:
    """All feature layers so many further. Words: the layers as configured."""
    moved = tuple(layer + step for layer in subject.layers)
    if moved and subject.reads(*moved):
        yield read(moved, [*subject.layers])


def one_layer(subject: Subject, step: int) -> Iterator[Patch]:
    """Move one of several layers by ``step``. Words: it, the other, and its place if that has to be
    told."""
    layers = subject.layers
    for at, layer in enumerate(layers if len(layers) > 1 else ()):
        if subject.reads(layer + step):
            place = f" in place {at + 1}" if layers.count(layer) > 1 else ""
            moved = (*layers[:at], layer + step, *layers[at + 1 :])
            yield read(moved, layer, layer + step, place)


def reordered(subject: Subject) -> Iterator[Patch]:
    """The layers in another order. Words: which one, for the name and for the cause."""
    layers = subject.layers
    for moved in dict.fromkeys(tuple(layers[at] for at in o) for o in orders(len(layers))):
        if moved == layers[::-1] != layers:
            yield read(moved, "reverse order", "the opposite order")
        elif moved != layers:  # of the same layer twice
            yield read(moved, *[f"the order {[*moved]}"] * 2)


def orders(count: int) -> list[tuple[int, ...]]:
    """Other orders of so many: all of a few, and of many the reverse, those that begin elsewhere
    and those with two exchanged."""
    own = tuple(range(count))
    if count <= MOST_REORDERED:
        return [order for order in permutations(own) if order != own]
    found = [own[::-1], *(own[at:] + own[:at] for at in own[1:])]
    return found + [exchanged(count, *pair) for pair in combinations(own, 2)]


def exchanged(count: int, one: int, other: int) -> tuple[int, ...]:
    """The order of so many in which two stand for each other."""
    return tuple({one: other, other: one}.get(at, at) for at in range(count))


Change = Callable[[Tensor], Tensor]


def features(subject: Subject, change: Change, least: int = 1) -> Iterator[Patch]:
    """All that it is given, [T, F, h], changed; ``least``: of how many layers."""
    layers = subject.layers

    def changed(passage: Reading) -> Tensor:
        return change(passage.after(layers).unflatten(-1, (len(layers), -1))).flatten(1)

    if len(layers) >= least:
        yield Patch(features=changed)


def of_token(subject: Subject, step: int, joined: bool | None = None) -> Iterator[Patch]:
    """The features of the token so many before. ``joined``: only where each stands beside the next
    token's embedding, as in an MTP head, or only elsewhere; None: everywhere."""

    def shifted(rows: Tensor) -> Tensor:
        at = torch.arange(len(rows), device=rows.device)
        return rows[(at - step).clamp(0, len(rows) - 1)]

    if joined in (None, subject.joined):
        yield from features(subject, shifted)


def normed(rows: Tensor) -> Tensor:
    rows = rows.float()
    return rows * rows.square().mean(-1, keepdim=True).add(1e-6).rsqrt()


def last_state(subject: Subject, change: Callable[..., Any]) -> Iterator[Patch]:
    """Give ``change(last, before, norm)`` to a drafter that reads the target's last state alone;
    ``before`` is the state before the target's final norm."""
    final = final_norm(subject.language) if subject.layers else None
    if final is not None and subject.layers == (subject.target_layers - 1,):
        yield Patch(features=lambda at: change(at.after(subject.layers), at.before, final))


# ── frames of the prompt ─────────────────────────────────────────────────────────────────────────


def bare(subject: Subject) -> Iterator[Patch]:
    """The prompt alone."""
    if subject.template:
        tokenizer = subject.language.tokenizer

        def frame(prompt: str) -> list[int]:
            return tokenizer(last_message(prompt), split_special_tokens=True).input_ids

        yield Patch(frame=frame)


def other_templates(subject: Subject) -> Iterator[Patch]:
    """Templates whose marks this tokenizer has, but its own. Words: the template's name."""
    tokenizer = subject.language.tokenizer
    for name, ends in TEMPLATES.items() if subject.template else ():
        known = {str(token) for token in tokenizer.added_tokens_decoder.values()}
        if not set(re.findall(r"<\|\w+\|>", "".join(ends))) <= known:
            continue

        def frame(prompt: str, ends: tuple[str, str] = ends) -> list[int]:
            words = {MARKER: last_message(prompt)}
            return encode_marked(tokenizer, MARKER.join(ends), words)

        if frame("a") != subject.language.encode_chat("a"):
            yield Patch(words=(name,), frame=frame)


def thinking(subject: Subject) -> Iterator[Patch]:
    """The template's thinking mode turned over. Words: its variable, and the other value."""
    language = subject.language
    for name in sorted(set(THINKING.findall(subject.template))):
        own = {**language.template, name: not language.template.get(name, True)}
        yield Patch(
            words=(name, str(own[name]).lower()),
            frame=lambda prompt, own=own: encode_chat(language.tokenizer, prompt, **own),
        )


# ── tokens, and what the rows speak of ───────────────────────────────────────────────────────────


def reach(subject: Subject, places: int) -> Iterator[Patch]:
    yield Patch(reach=places)


def late_tokens(subject: Subject) -> Iterator[Part]:
    """An MTP head's rows with the tokens one late."""

    def late(tokens: Tensor, *more: Tensor) -> tuple[Tensor, ...]:
        return torch.cat([tokens[:1], tokens[:-1]]), *more

    if subject.joined:
        yield through(subject.drafter, "log_q_at", before=late)


def stateless(size: int, tokens: Tensor, features: Tensor, root: Tensor) -> tuple[Tensor, ...]:
    known = torch.arange(len(features), device=features.device) < root - 1
    return tokens, features * known[:, None], root


def rootless(size: int, tokens: Tensor, features: Tensor, root: Tensor) -> tuple[Tensor, ...]:
    here = torch.arange(len(tokens), device=tokens.device) == root
    return torch.where(here, (tokens + 1) % size, tokens), features, root


def first_row(subject: Subject, change: Callable[..., tuple[Tensor, ...]]) -> Iterator[Part]:
    """An MTP head's first row without what is newest, which one whose inputs come late does not
    read."""
    plain = subject.drafter.log_q_at

    def each(tokens: Tensor, features: Tensor, roots: Tensor) -> Tensor | None:
        size = subject.language.vocabulary
        found = [plain(*change(size, tokens, features, root)) for root in roots.split(1)]
        told = [one for one in found if one is not None]
        return torch.cat(told) if len(told) == len(found) else None

    if subject.joined:
        yield subject.drafter, "log_q_at", each
        yield subject.drafter, "max_depth", 1


def tokens_of_rows(subject: Subject, change: Callable[[Tensor, Tensor], Tensor]) -> list[Part]:
    """The head's rows stand for other tokens than its map says: ``change(ids, rows)``."""
    drafter: Any = subject.drafter
    if drafter.covered is None or getattr(drafter, "translation", None) is not None:
        return []
    ids = drafter.covered.ids
    other = change(ids, torch.arange(len(ids), device=ids.device))
    if int(other.min()) < 0 or len(other.unique()) < len(other) or torch.equal(other, ids):
        return []
    return [(drafter, "covered", Covered(other, drafter.covered.size))]


def untranslated(subject: Subject) -> Iterator[Part]:
    """A draft model's tokens are the target's, and its folder holds another model's tokenizer."""
    translation: Any = getattr(subject.drafter, "translation", None)
    if translation is not None and subject.config.get_text_config().vocab_size == translation.size:
        yield subject.drafter, "translation", None
        yield subject.drafter, "covered", None
