"""The trials of the wiring probe: a drafter, a text, and one way to run the drafter on it.

``mistakes`` lists the ways. Shapes: T tokens of a text, F feature layers, h hidden width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from core.decoding.along import Reading
from core.drafting.session import Drafter
from core.models.language import Language
from core.models.layers import Attention

Change = Callable[[], AbstractContextManager[None]]


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

    def configured(self, **values: Any) -> Change:
        """The config says something else."""
        return patched((self.network, "config", replace(self.config, **values)))


@dataclass(frozen=True, eq=False)
class Trial:
    """One way to run a drafter.

    name      what differs from the configuration
    cause     what is wrong if the drafter does better so; "": nothing can be told of it
    moot      what is wrong if it does not matter at all; "": nothing
    features  what it is given of a text, [T, F·h]; None: as configured
    frame     the prompt's token ids in another frame
    change    the drafter is another one while this context is open
    reach     of which place a row of q speaks: 1, one token further than it says; −1, one less
    """

    name: str
    cause: str
    moot: str = ""
    features: Callable[[Reading], Tensor] | None = None
    frame: Callable[[str], list[int]] | None = None
    change: Change = nullcontext
    reach: int = 0


@dataclass(frozen=True)
class Mistake:
    """``trials``: its trials of a drafter; none where it does not apply. ``late``: they are many,
    and run only where nothing else explains a drafter."""

    name: str
    trials: Callable[[Subject], Iterator[Trial]]
    late: bool = False


def patched(*parts: tuple[object, str, object]) -> Change:
    """A change in which attributes of objects have other values: (object, name, value) each."""

    @contextmanager
    def change() -> Iterator[None]:
        with ExitStack() as stack:
            for part in parts:
                stack.enter_context(_patched(*part))
            yield

    return change


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
