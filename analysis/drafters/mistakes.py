"""The named mistakes of wiring a drafter to its target: one table, ``MISTAKES``.

Each mistake turns a loaded drafter into trials: the same drafter fed, patched or read in another
way. A trial that fits the target better than the configuration names what is wrong. A trial changes
the drafter only while it runs, and none asks which kind of drafter it is: it applies where it finds
the part that it changes. ``analysis.drafters.wiring`` runs them; ``docs/wiring.md`` explains each.

Shapes: T tokens of a text, n target layers, F feature layers, h hidden width, V vocabulary.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations, permutations
from typing import Any

import torch
from torch import Tensor

from analysis.drafters.computed_mistakes import (
    adapters,
    block_sizes,
    blocks,
    embeddings,
    feedback,
    masks,
    norms,
    positions,
    rope,
    switches,
    windows,
)
from analysis.drafters.stored_mistakes import (
    exchanged_heads,
    gains,
    halves,
    layer_order,
    pairs,
    swapped_gates,
    turns,
)
from analysis.drafters.trials import Mistake, Subject, Trial, patched
from core.decoding.along import Reading
from core.drafting.session import Covered
from core.models.language import Language, encode_between, encode_chat, final_norm

# Other chat templates: what stands before and after the user's words.
TEMPLATES = {
    "ChatML": ("<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"),
    "Llama 3": (
        "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n",
        "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    ),
    "Vicuna": ("USER: ", " ASSISTANT:"),
}
NO_FEATURES = "features all zero"
OWN_STATE = "hidden state of the token itself"
MOST_REORDERED = 4  # feature layers, of which all orders are tried
THINKING = re.compile(r"\b(?:enable_)?thinking\b")  # a chat template's own variable


# ── what the drafter is given ────────────────────────────────────────────────────────────────────


def _layers(subject: Subject) -> Iterator[Trial]:
    """All feature layers one off, one of them one off, in another order, or stacked instead of
    concatenated."""
    layers = tuple(subject.drafter.layers)
    for step, cause in (
        (1, "the checkpoint's layer numbers are one too low for this target"),
        (-1, "the checkpoint counts layers from 1, or names the states that enter a layer"),
    ):
        moved = tuple(layer + step for layer in layers)
        if moved and subject.reads(*moved):
            yield _read(f"layers {list(layers)} {'+' if step > 0 else '−'} 1", cause, moved)
        for at, layer in enumerate(layers if len(layers) > 1 else ()):
            if subject.reads(layer + step):
                one = (*layers[:at], layer + step, *layers[at + 1 :])
                place = f" in place {at + 1}" if layers.count(layer) > 1 else ""
                name = f"layer {layer + step} for {layer}{place}"
                yield _read(name, f"layer {layer} is misread{place}", one)
    if len(layers) > 1:
        others = dict.fromkeys(tuple(layers[at] for at in order) for order in _orders(len(layers)))
        for moved in others:
            if moved == layers:  # of the same layer twice
                continue
            name, cause = f"layers in the order {list(moved)}", f"in the order {list(moved)}"
            if moved == layers[::-1]:
                name, cause = "layers in reverse order", "in the opposite order"
            yield _read(name, f"the features are concatenated {cause}", moved)

        def stacked(passage: Reading) -> Tensor:
            return passage.after(layers).unflatten(-1, (len(layers), -1)).mT.flatten(1)

        cause = "in training the features were stacked: one number of each layer, then the next"
        yield Trial("features stacked", cause, features=stacked)


def _orders(count: int) -> list[tuple[int, ...]]:
    """Other orders of so many: all of a few, and of many the reverse, those that begin elsewhere
    and those with two exchanged."""
    own = tuple(range(count))
    if count <= MOST_REORDERED:
        return [order for order in permutations(own) if order != own]
    found = [own[::-1], *(own[at:] + own[:at] for at in own[1:])]
    for one, other in combinations(own, 2):
        moved = list(own)
        moved[one], moved[other] = other, one
        found.append(tuple(moved))
    return found


def _layer_index(subject: Subject) -> Iterator[Trial]:
    """An MTP head's layers in another order, the first at every depth, and what they read."""
    drafter: Any = subject.drafter
    heads = getattr(drafter, "heads", [])
    if not (isinstance(heads, list) and len(heads) > 1 and hasattr(drafter, "chained")):
        return
    for order in _orders(len(heads)):
        yield Trial(
            f"layers of the depths in the order {[at + 1 for at in order]}",
            f"the layers' numbers are wrong: depth 1 is layer {order[0] + 1}'s, and so on",
            change=patched((drafter, "heads", [heads[at] for at in order])),
        )
    yield Trial(
        "first layer at every depth",
        "its further layers were not trained for it: the first one drafts better in their places",
        change=patched((drafter, "heads", heads[:1] * len(heads))),
    )
    name, cause = "each layer reads the target's state", "each layer read the target's state"
    if not drafter.chained:
        name, cause = "layers read each other", "a layer read what the one before it made"
    change = patched((drafter, "chained", not drafter.chained))
    yield Trial(name, f"in training {cause}", change=change)


def _read(name: str, cause: str, layers: tuple[int, ...]) -> Trial:
    return Trial(name, cause, features=lambda passage: passage.after(layers))


def _shifted_features(subject: Subject) -> Iterator[Trial]:
    """Each token gets the features of the one before or after it.

    Beside a token's own last state an MTP head reads what p is made of, healthy or not: a trial
    without a cause.
    """
    layers = tuple(subject.drafter.layers)
    joined = hasattr(subject.network, "eh_proj")
    for step, word in ((1, "before"), (-1, "after")) if layers else ():

        def shifted(passage: Reading, step: int = step) -> Tensor:
            rows = torch.arange(len(passage.tokens), device=passage.tokens.device)
            return passage.after(layers)[(rows - step).clamp(0, len(rows) - 1)]

        cause = f"it was trained beside the features of the token {word}: inputs shifted by one"
        named = (f"features of the token {word}", cause)
        yield Trial(*((OWN_STATE, "") if joined and step < 0 else named), features=shifted)
    if joined:
        yield from _late(subject)


def _late(subject: Subject) -> Iterator[Trial]:
    """An MTP head's rows with the tokens one late; its first row without what is newest, which one
    whose inputs come late does not read."""
    drafter = subject.drafter
    plain, size = drafter.log_q_at, subject.language.vocabulary

    def late(tokens: Tensor, features: Tensor, roots: Tensor) -> Tensor | None:
        return plain(torch.cat([tokens[:1], tokens[:-1]]), features, roots)

    def stateless(tokens: Tensor, features: Tensor, root: Tensor) -> Tensor | None:
        known = torch.arange(len(features), device=features.device) < root - 1
        return plain(tokens, features * known[:, None], root)

    def rootless(tokens: Tensor, features: Tensor, root: Tensor) -> Tensor | None:
        here = torch.arange(len(tokens), device=tokens.device) == root
        return plain(torch.where(here, (tokens + 1) % size, tokens), features, root)

    yield Trial(
        "tokens one late",
        "in training each hidden state stood beside its own token, not the next one",
        change=patched((drafter, "log_q_at", late)),
    )
    for name, row, what in (
        ("first row without the newest state", stateless, "the newest hidden state"),
        ("first row with another root", rootless, "the root"),
    ):

        def each(tokens: Tensor, features: Tensor, roots: Tensor, row: Any = row) -> Tensor | None:
            found = [row(tokens, features, root) for root in roots.split(1)]
            return None if any(one is None for one in found) else torch.cat(found)

        moot = f"q stays, so {what} is not read: inputs are shifted by one, or do not arrive"
        parts = ((drafter, "log_q_at", each), (drafter, "max_depth", 1))
        yield Trial(name, "", moot, change=patched(*parts))


def _no_features(subject: Subject) -> Iterator[Trial]:
    layers = tuple(subject.drafter.layers)
    if layers:
        yield Trial(
            NO_FEATURES,
            "the features are worse than none: they are not what it was trained on",
            "the features do not reach the drafter: they, or the layer that reads them, are zero",
            features=lambda passage: torch.zeros_like(passage.after(layers)),
        )


def _feature_norms(subject: Subject) -> Iterator[Trial]:
    """A norm over the features that is missing or comes twice."""
    layers, last = tuple(subject.drafter.layers), subject.target_layers - 1
    if not layers:
        return

    def normed(passage: Reading) -> Tensor:
        parts = passage.after(layers).unflatten(-1, (len(layers), -1)).float()
        return (parts * parts.square().mean(-1, keepdim=True).add(1e-6).rsqrt()).flatten(1)

    yield Trial(
        "features normed", "a norm of the features before they enter is missing", features=normed
    )
    final = final_norm(subject.language)
    if layers == (last,) and final is not None:
        yield Trial(
            "features before the target's final norm",
            "it was trained on the last layer's output, before the final norm",
            features=lambda passage: _present(passage.before),
        )
        yield Trial(
            "features through the target's final norm twice",
            "it was trained on features that went through the final norm twice",
            features=lambda passage: final(passage.after(layers)),
        )


def _present(tensor: Tensor | None) -> Tensor:
    assert tensor is not None, "the target has a final norm"
    return tensor


def _frames(subject: Subject) -> Iterator[Trial]:
    """The same answer after the bare prompt, by another template, and with the template's thinking
    mode turned over."""
    language = subject.language
    tokenizer, template = language.tokenizer, str(language.tokenizer.chat_template or "")
    if not template or subject.known is not None:
        return
    yield Trial(
        "no chat template",
        "it was trained on text without the chat template",
        frame=lambda prompt: list(tokenizer(prompt, split_special_tokens=True).input_ids),
    )
    yield from _templates(language)
    for name in sorted(set(THINKING.findall(template))):
        other = not language.template.get(name, True)
        yield Trial(
            f"{name}={str(other).lower()}",
            f"it was trained with the chat template's {name}={str(other).lower()}",
            frame=lambda prompt, name=name, other=other: encode_chat(
                tokenizer, prompt, **{**language.template, name: other}
            ),
        )


def _templates(language: Language) -> Iterator[Trial]:
    """Templates whose marks this tokenizer has, but its own."""
    tokenizer = language.tokenizer
    known = {str(token) for token in tokenizer.added_tokens_decoder.values()}
    for name, ends in TEMPLATES.items():
        if not set(re.findall(r"<\|\w+\|>", "".join(ends))) <= known:
            continue

        def frame(prompt: str, ends: tuple[str, str] = ends) -> list[int]:
            return encode_between(tokenizer, ends[0], prompt, ends[1])

        if frame("a") != language.encode_chat("a"):
            cause = f"it was trained in another chat template, like {name}'s"
            yield Trial(f"chat template of {name}", cause, frame=frame)


# ── how the drafter is read ──────────────────────────────────────────────────────────────────────


def _draft_vocabulary(subject: Subject) -> Iterator[Trial]:
    """The head's rows stand for other tokens than the map d2t says."""
    drafter: Any = subject.drafter
    if drafter.covered is None or getattr(drafter, "translation", None) is not None:
        return
    ids: Tensor = drafter.covered.ids
    rows, shifted = torch.arange(len(ids), device=ids.device), "the map d2t is shifted by one row"
    for name, other, cause in (
        ("d2t ignored", rows, "the head's rows are the vocabulary's first tokens, without d2t"),
        ("d2t as token ids", ids - rows, "d2t holds token ids, not what is added to a row"),
        ("d2t one row up", ids.roll(-1), shifted),
        ("d2t one row down", ids.roll(1), shifted),
    ):
        if int(other.min()) < 0 or len(other.unique()) < len(other) or torch.equal(other, ids):
            continue
        made = Covered(other, drafter.covered.size)
        yield Trial(name, cause, change=patched((drafter, "covered", made)))


def _translated(subject: Subject) -> Iterator[Trial]:
    """A draft model's tokens are the target's, and its folder holds another model's tokenizer."""
    drafter: Any = subject.drafter
    translation: Any = getattr(drafter, "translation", None)
    if translation is None or subject.config.get_text_config().vocab_size != translation.size:
        return
    yield Trial(
        "ids not translated",
        "the tokenizer beside the draft model is another model's: its tokens are the target's",
        change=patched((drafter, "translation", None), (drafter, "covered", None)),
    )


def _rows(subject: Subject) -> Iterator[Trial]:
    """Rows of q that speak of the token before or after the one they are read for."""
    yield Trial(
        "rows one token further",
        "labels are shifted by one: its first row was trained on the second token after the root",
        reach=1,
    )
    yield Trial(
        "rows one token nearer",
        "labels are shifted by one: its first row was trained on the root itself",
        reach=-1,
    )
    network = subject.network
    if network is None or not hasattr(subject.config, "block_size"):
        return
    plain = network.forward

    def rolled(*args: Any, **more: Any) -> Tensor:
        return plain(*args, **more).roll(1, dims=1)

    yield Trial(
        "anchor first",
        "each row was trained on the token after it: the root's row speaks of depth 1",
        change=patched((network, "forward", rolled)),
    )


MISTAKES = (
    Mistake("feature layers", _layers),
    Mistake("shifted features", _shifted_features),
    Mistake("features unused", _no_features),
    Mistake("norms of features", _feature_norms),
    Mistake("chat template", _frames),
    Mistake("positions", positions),
    Mistake("rotary base", rope),
    Mistake("norms", norms),
    Mistake("gains of norms", gains),
    Mistake("switches of norms", switches),
    Mistake("norm of what is fed back", feedback),
    Mistake("window", windows),
    Mistake("causal block", blocks),
    Mistake("block size", block_sizes),
    Mistake("mask embedding", masks),
    Mistake("adapter", adapters),
    Mistake("scale of embeddings", embeddings),
    Mistake("rotary pairs", pairs),
    Mistake("gate and up", swapped_gates),
    Mistake("embedding and feature", halves),
    Mistake("order of heads", turns),
    Mistake("order of layers", layer_order, late=True),
    Mistake("two heads", exchanged_heads, late=True),
    Mistake("the layer's index", _layer_index),
    Mistake("draft vocabulary", _draft_vocabulary),
    Mistake("translation of tokens", _translated),
    Mistake("shifted rows", _rows),
)
