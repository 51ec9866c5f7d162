"""The trials of the wiring probe: a drafter, a text, and one way to run the drafter on it.

``mistakes`` lists the ways. Shapes: T tokens of a text, F feature layers, h hidden width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from core.decoding.along import Reading
from core.drafting.session import Drafter
from core.models.language import Language
from core.models.layers import Attention

Part = tuple[object, str, object]  # an object, an attribute's name, another value for it


@dataclass(frozen=True, eq=False)
class Subject:
    """A drafter and the target it drafts for.

    longest  tokens of the longest text
    known    layers whose states are there; None: all, and the target reads other texts as well
    """

    drafter: Drafter
    language: Language
    longest: int
    known: frozenset[int] | None = None

    @property
    def target_layers(self) -> int:
        return self.language.model.config.get_text_config().num_hidden_layers

    def reads(self, *layers: int) -> bool:
        """Whether the target has these layers, and what they say of the texts is there."""
        last = self.target_layers - 1
        return all(-1 <= n <= last and (self.known is None or n in self.known) for n in layers)

    @property
    def network(self) -> nn.Module | None:
        """The drafter's own network; None for one without."""
        found = getattr(self.drafter, "model", None)
        return found if isinstance(found, nn.Module) else None

    @property
    def config(self) -> Any:
        """The network's config, if it is one of ours."""
        return getattr(self.network, "config", None)

    @property
    def named_modules(self) -> dict[str, nn.Module]:
        """All modules of the drafter's own by their names: of its network, and of a head that
        conditions on what that says."""
        owner = getattr(self.drafter, "conditioner", self.drafter)
        found = getattr(owner, "model", None)
        return dict(found.named_modules()) if isinstance(found, nn.Module) else {}

    @property
    def attention(self) -> dict[str, Attention]:
        """Its attention layers by their names."""
        found = self.named_modules.items()
        return {name: module for name, module in found if isinstance(module, Attention)}

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers whose features it reads."""
        return tuple(self.drafter.layers)

    @property
    def embedding(self) -> nn.Module | None:
        found = getattr(self.drafter, "embedding", None)
        return found if isinstance(found, nn.Module) else None

    @property
    def joined(self) -> bool:
        """Whether each feature stands beside the next token's embedding, as in an MTP head."""
        return hasattr(self.network, "eh_proj")

    @property
    def template(self) -> str:
        """The chat template; "" without one, and where no other text can be read."""
        return str(self.language.tokenizer.chat_template or "") if self.known is None else ""

    def configured(self, **values: Any) -> Part:
        """The config says something else."""
        return self.network, "config", replace(self.config, **values)


@dataclass(frozen=True, eq=False, kw_only=True)
class Patch:
    """The difference between a trial and the configuration.

    words     what its row's sentences say of it
    parts     what is another one while it runs: a config, a module, what a module computes
    features  what it is given of a text, [T, F·h]; None: as configured
    frame     the prompt's token ids in another frame
    reach     of which place a row of q speaks: 1, one token further than it says; −1, one less
    """

    words: tuple[object, ...] = ()
    parts: Sequence[Part] = ()
    features: Callable[[Reading], Tensor] | None = None
    frame: Callable[[str], list[int]] | None = None
    reach: int = 0

    @contextmanager
    def change(self) -> Iterator[None]:
        """The drafter is another one while this context is open."""
        with ExitStack() as stack:
            for part in self.parts:
                stack.enter_context(_patched(*part))
            yield


@dataclass(frozen=True, eq=False)
class Trial(Patch):
    """One way to run a drafter.

    mistake  whose row it is of; "": the configuration
    name     what differs from the configuration
    cause    what is wrong if the drafter does better so; "": nothing can be told of it
    moot     what is wrong if it does not matter at all; "": nothing
    """

    mistake: str
    name: str
    cause: str = ""
    moot: str = ""


Patches = Callable[[Subject], Iterable[Patch]]


def each(patches: Callable[..., Iterable[Patch]], *given: Any) -> Patches:
    return lambda subject: patches(subject, *given)


def whole(parts: Callable[..., Iterable[Part]], *given: Any) -> Patches:
    """One trial in which all these parts are other ones; none without a part."""

    def patches(subject: Subject) -> Iterator[Patch]:
        if made := [*parts(subject, *given)]:
            yield Patch(parts=made)

    return patches


def through(
    owner: object,
    name: str = "forward",
    before: Callable[..., tuple[Any, ...]] | None = None,
    after: Callable[..., Any] | None = None,
) -> Part:
    """A function of ``owner`` with other inputs, ``before(*inputs)``, or with another output,
    ``after(output, *inputs)``."""
    plain = getattr(owner, name)

    def made(*given: Any, **more: Any) -> Any:
        given = before(*given) if before is not None else given
        found = plain(*given, **more)
        return after(found, *given) if after is not None else found

    return owner, name, made


@dataclass(frozen=True)
class Mistake:
    """A kind of trial of a named mistake.

    name, cause, moot  a trial's, with {} for its patch's words
    patches            of a drafter; none where the row does not apply
    late               they are many, and run only where nothing else explains a drafter
    """

    mistake: str
    name: str
    patches: Patches
    cause: str
    moot: str = ""
    late: bool = False

    def trials(self, subject: Subject) -> Iterator[Trial]:
        for patch in self.patches(subject):
            said = (text.format(*patch.words) for text in (self.name, self.cause, self.moot))
            yield Trial(self.mistake, *said, **vars(patch))


@contextmanager
def _patched(owner: object, name: str, made: object) -> Iterator[None]:
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
