"""What the wiring probe tries: a drafter, a text, and one way to run the drafter on it.

``mistakes`` lists the ways. Shapes: T tokens of a text, n target layers, F feature layers,
h hidden width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from core.drafting.session import Drafter
from core.models.language import Language


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
