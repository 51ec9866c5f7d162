"""The named mistakes of wiring a drafter to its target: one table, ``MISTAKES``.

Each mistake turns a loaded drafter into trials: the same drafter fed, patched or read in another
way. A trial that fits the target better than the configuration names what is wrong. A trial changes
the drafter only while it runs, and none asks which kind of drafter it is: it applies where it finds
the part that it changes. ``analysis.wiring`` runs them; ``docs/wiring.md`` explains each.

Shapes: T tokens of a text, n target layers, F feature layers, h hidden width, V vocabulary.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from core.drafting.session import Covered, Drafter
from core.models.language import Language, encode_between, encode_chat
from core.models.layers import Attention, RMSNorm, Rope

WINDOWS = (16, 64, 256, 1024, 4096)  # tokens of context
THETAS = (1e4, 5e5, 1e6, 1e7)  # bases of rotary positions that models use
# Other chat templates: what stands before and after the user's words.
TEMPLATES = {
    "ChatML": ("<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"),
    "Llama 3": (
        "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n",
        "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    ),
    "Vicuna": ("USER: ", " ASSISTANT:"),
}
SYSTEM = "You are a helpful assistant."
THINKING = re.compile(r"\b(?:enable_)?thinking\b")  # a chat template's own variable


@dataclass(frozen=True, eq=False)
class Passage:
    """A text of the target's, with all that a drafter could be given of it.

    tokens  int64 [T]; ``answer``: where the target's own text begins
    states  [T, n + 1, h]: the embeddings and the output of every layer
    before  [T, h]: the last layer's output before the target's final norm; None: not known
    p       float32 [T − answer, V]: after every token from the answer on
    """

    tokens: Tensor
    answer: int
    states: Tensor
    before: Tensor | None
    p: Tensor

    def after(self, layers: tuple[int, ...]) -> Tensor:
        """The features [T, F·h] after these layers; −1 is the embedding."""
        return self.states[:, [layer + 1 for layer in layers]].flatten(1)


@dataclass(frozen=True, eq=False)
class Subject:
    """A drafter and the target it drafts for; ``longest``: tokens of the longest text."""

    drafter: Drafter
    language: Language
    longest: int

    @property
    def target_layers(self) -> int:
        return self.language.model.config.get_text_config().num_hidden_layers

    @property
    def network(self) -> nn.Module | None:
        """The drafter's own network; None for one without."""
        found = getattr(self.drafter, "model", None)
        return found if isinstance(found, nn.Module) else None

    @property
    def config(self) -> Any:
        """The network's config, if it is one of ours."""
        return getattr(self.network, "config", None)


@dataclass(frozen=True, eq=False)
class Trial:
    """One way to run a drafter.

    name      what differs from the configuration
    cause     what is wrong if the drafter does better so
    moot      what is wrong if it does not matter at all; "": nothing
    features  what it is given of a text, [T, F·h]; None: as configured
    frame     the prompt's token ids in another frame
    change    the drafter is another one while this context is open
    reach     of which place a row of q speaks: 1, one token further than it says; −1, one less
    """

    name: str
    cause: str
    moot: str = ""
    features: Callable[[Passage], Tensor] | None = None
    frame: Callable[[str], list[int]] | None = None
    change: Callable[[], AbstractContextManager[None]] = nullcontext
    reach: int = 0


@dataclass(frozen=True)
class Mistake:
    """``trials``: its trials of a drafter; none where it does not apply."""

    name: str
    trials: Callable[[Subject], Iterator[Trial]]


# ── what the drafter is given ────────────────────────────────────────────────────────────────────


def _layers(subject: Subject) -> Iterator[Trial]:
    """All feature layers one off, one of them one off, or all in reverse order."""
    layers, last = tuple(subject.drafter.layers), subject.target_layers - 1
    for step, cause in (
        (1, "the checkpoint's layer numbers are one too low for this target"),
        (-1, "the checkpoint counts layers from 1, or names the states that enter a layer"),
    ):
        moved = tuple(layer + step for layer in layers)
        if moved and min(moved) >= -1 and max(moved) <= last:
            yield _read(f"layers {list(layers)} {'+' if step > 0 else '−'} 1", cause, moved)
        for at, layer in enumerate(layers if len(layers) > 1 else ()):
            if -1 <= layer + step <= last:
                one = (*layers[:at], layer + step, *layers[at + 1 :])
                yield _read(f"layer {layer + step} for {layer}", f"layer {layer} is misread", one)
    if len(layers) > 1:
        cause = "the features are concatenated in the opposite order"
        yield _read("layers in reverse order", cause, layers[::-1])


def _read(name: str, cause: str, layers: tuple[int, ...]) -> Trial:
    return Trial(name, cause, features=lambda passage: passage.after(layers))


def _shifted_features(subject: Subject) -> Iterator[Trial]:
    """Each token gets the features of the one before or after it."""
    layers = tuple(subject.drafter.layers)
    for step, word in ((1, "before"), (-1, "after")) if layers else ():

        def shifted(passage: Passage, step: int = step) -> Tensor:
            rows = torch.arange(len(passage.tokens), device=passage.states.device)
            return passage.after(layers)[(rows - step).clamp(0, len(rows) - 1)]

        cause = f"it was trained beside the features of the token {word}: inputs shifted by one"
        yield Trial(f"features of the token {word}", cause, features=shifted)


def _no_features(subject: Subject) -> Iterator[Trial]:
    layers = tuple(subject.drafter.layers)
    if layers:
        yield Trial(
            "features all zero",
            "the features are worse than none: they are not what it was trained on",
            "the features do not reach the drafter: they, or the layer that reads them, are zero",
            features=lambda passage: torch.zeros_like(passage.after(layers)),
        )


def _feature_norms(subject: Subject) -> Iterator[Trial]:
    """A norm over the features that is missing or comes twice."""
    layers, last = tuple(subject.drafter.layers), subject.target_layers - 1
    if not layers:
        return

    def normed(passage: Passage) -> Tensor:
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


def final_norm(language: Language) -> nn.Module | None:
    """The target's norm before its head, where it goes by the usual name."""
    return getattr(language.model.get_decoder(), "norm", None)


def _present(tensor: Tensor | None) -> Tensor:
    assert tensor is not None, "the target has a final norm"
    return tensor


def _frames(subject: Subject) -> Iterator[Trial]:
    """The same answer after the bare prompt, by another template or system prompt, and with the
    template's thinking mode turned over."""
    language = subject.language
    tokenizer, template = language.tokenizer, str(language.tokenizer.chat_template or "")
    if not template:
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
    known = set(tokenizer.added_tokens_encoder)
    for name, ends in TEMPLATES.items():
        if not set(re.findall(r"<\|\w+\|>", "".join(ends))) <= known:
            continue

        def frame(prompt: str, ends: tuple[str, str] = ends) -> list[int]:
            return encode_between(tokenizer, ends[0], prompt, ends[1])

        if frame("a") != language.encode_chat("a"):
            cause = f"it was trained in another chat template, like {name}'s"
            yield Trial(f"chat template of {name}", cause, frame=frame)


# ── what the drafter computes ────────────────────────────────────────────────────────────────────


def _positions(subject: Subject) -> Iterator[Trial]:
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


def _rope(subject: Subject) -> Iterator[Trial]:
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


def _norms(subject: Subject) -> Iterator[Trial]:
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


def _switches(subject: Subject) -> Iterator[Trial]:
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


def _windows(subject: Subject) -> Iterator[Trial]:
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


def _blocks(subject: Subject) -> Iterator[Trial]:
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


def _masks(subject: Subject) -> Iterator[Trial]:
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
    for name, parameter in network.named_parameters() if network is not None else ():
        if name.endswith("mask_rep"):
            yield Trial("mask embedding zero", cause, moot, change=lambda p=parameter: _zeroed(p))


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


# ── how the drafter is read ──────────────────────────────────────────────────────────────────────


def _draft_vocabulary(subject: Subject) -> Iterator[Trial]:
    """The head's rows stand for other tokens than the map d2t says."""
    drafter: Any = subject.drafter
    owner = "covered" if getattr(drafter, "covered", None) is not None else "head"
    holder: Any = getattr(drafter, owner, None)
    ids = getattr(holder, "ids", None)
    if not isinstance(ids, Tensor):
        return
    rows = torch.arange(len(ids), device=ids.device)
    for name, other, cause in (
        ("d2t ignored", rows, "the head's rows are the vocabulary's first tokens, without d2t"),
        ("d2t as token ids", ids - rows, "d2t holds token ids, not what is added to a row"),
    ):
        if int(other.min()) < 0 or len(other.unique()) < len(other) or torch.equal(other, ids):
            continue
        made = Covered(other, holder.size) if owner == "covered" else replace(holder, ids=other)

        def change(made: Any = made) -> AbstractContextManager[None]:
            return patched(drafter, owner, made)

        yield Trial(name, cause, change=change)


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
        change=lambda: patched(network, "forward", rolled),
    )


@contextmanager
def patched(owner: object, name: str, made: object) -> Iterator[None]:
    """An object's attribute is another one for a while."""
    own = vars(owner)
    had, before = name in own, own.get(name)
    object.__setattr__(owner, name, made)
    try:
        yield
    finally:
        if had:
            object.__setattr__(owner, name, before)
        else:
            object.__delattr__(owner, name)


MISTAKES = (
    Mistake("feature layers", _layers),
    Mistake("shifted features", _shifted_features),
    Mistake("features unused", _no_features),
    Mistake("norms of features", _feature_norms),
    Mistake("chat template", _frames),
    Mistake("positions", _positions),
    Mistake("rotary base", _rope),
    Mistake("norms", _norms),
    Mistake("switches of norms", _switches),
    Mistake("window", _windows),
    Mistake("causal block", _blocks),
    Mistake("mask embedding", _masks),
    Mistake("draft vocabulary", _draft_vocabulary),
    Mistake("shifted rows", _rows),
)
