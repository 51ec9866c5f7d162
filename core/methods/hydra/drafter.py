"""The Hydra drafter at work: the heads on the last committed token's hidden state and a path."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from core.drafting.best import worth_a_batch
from core.drafting.network import NetworkDrafter
from core.drafting.session import MIN_LISTED, PathSession, tokens_after
from core.methods.hydra.model import FORM, HydraModel, HydraPlusModel, form_for
from core.methods.loading import check_fits, drafter_folder
from core.methods.method import QOptions
from core.models.fast_layers import use_fast_layers
from core.models.language import Language, last_layer
from core.models.layers import LayerContext


def load(language: Language, folder: Path | None, options: QOptions) -> HydraDrafter:
    """The Hydra drafter in ``folder`` (None: the one that ships) on the target's device.

    Raises UserError when there is none or it was made for another target.
    """
    folder = drafter_folder("hydra", language, folder)
    check_fits(folder, language, FORM.load_config(folder))
    form, target = form_for(language.model.config), language.model
    model = form.load_model(folder, target.dtype, language.device)
    use_fast_layers(model, target.dtype, language.device)
    parts = language.embedding, language.head, (last_layer(target),), options.temperature
    if isinstance(model, HydraPlusModel):
        return HydraPlusDrafter(model, *parts)
    return HydraDrafter(model, *parts)


class HydraDrafter(NetworkDrafter):
    """The heads, and the hidden state of the last committed token.

    head    the target's, where the heads have none of their own
    layers  the target's last
    """

    def __init__(
        self,
        model: HydraModel,
        embedding: nn.Module,
        head: nn.Module,
        layers: tuple[int, ...],
        temperature: float = 1.0,
    ):
        self.model, self.embedding, self.layers = model, embedding, layers
        self.head = nn.Identity() if model.config.vocab_size else head
        self.temperature = temperature
        self._last: Tensor | None = None

    @property
    def max_depth(self) -> int:
        return self.model.config.heads

    def reset(self, capacity: int) -> None:
        self._last = None

    def extend(self, tokens: Sequence[int], features: Tensor) -> None:
        """Features [T, h] of newly committed tokens."""
        self._last = features[-1:]

    def begin(self, root: int, width: int) -> HydraSession:
        """Nothing is computed before it is asked for."""
        assert self._last is not None, "extend comes first"
        return HydraSession(self, self._last, root, width)

    def begin_each(
        self, tokens: Tensor, features: Tensor, anchors: Tensor, width: int
    ) -> Iterator[HydraSession]:
        read = self._read_at(features, anchors)
        for last, root in zip(read.split(1), tokens[anchors].tolist(), strict=True):
            yield HydraSession(self, last, root, width)

    @torch.inference_mode()
    def log_q_at(self, tokens: Tensor, features: Tensor, anchors: Tensor) -> Tensor:
        paths = self.embedding(tokens_after(tokens, anchors, self.max_depth))
        last = self._read_at(features, anchors).to(paths.dtype)
        rows = [self.model(last, paths[:, :depth]) for depth in range(1, self.max_depth + 1)]
        return self.log_softmax(self.head(torch.stack(rows, 1)))

    def _read_at(self, features: Tensor, anchors: Tensor) -> Tensor:
        """Return the features [A, h] of the token before each anchor, which the heads read."""
        return features[anchors - 1]


class HydraPlusDrafter(HydraDrafter):
    """Heads that read a layer's hidden state of the last committed token, and the keys and values
    of all committed tokens. What is drafted never enters that layer."""

    model: HydraPlusModel

    def __init__(self, model: HydraPlusModel, *parts: Any):
        super().__init__(model, *parts)
        self._context: LayerContext | None = None
        self.reset(0)

    def reset(self, capacity: int) -> None:
        super().reset(capacity)
        self._waiting: list[Tensor] = []
        self._length = 0  # tokens whose keys and values are there
        if self._context is None or self._context.rows < capacity:
            shape = self.model.config.shape
            self._context = LayerContext.empty(shape, capacity, self.model.like)

    def extend(self, tokens: Sequence[int], features: Tensor) -> None:
        """Features [T, h] of newly committed tokens; projected when the next round drafts."""
        self._waiting.append(features)

    @torch.inference_mode()
    def begin(self, root: int, width: int) -> HydraSession:
        """Take in the committed tokens, and run the layer for the last one."""
        assert self._context is not None
        if self._waiting:
            hidden = torch.cat(self._waiting).to(self.model.like.dtype)
            positions = torch.arange(len(hidden), device=hidden.device) + self._length
            self._context.write(self._length, self.model.project(hidden, positions))
            self._length, self._waiting = self._length + len(hidden), []
            before = self._context.first(self._length - 1)
            self._last = self.model.attend(hidden[-1:], positions[-1:], before)
        return super().begin(root, width)

    @torch.inference_mode()
    def _read_at(self, features: Tensor, anchors: Tensor) -> Tensor:
        """Read on the keys and values of one pass."""
        hidden = features[: int(anchors[-1])].to(self.model.like.dtype)
        positions = torch.arange(len(hidden), device=hidden.device)
        context, ends = self.model.project(hidden, positions), anchors.to(hidden.device) - 1
        return self.model.attend(hidden[ends], ends, context)


class HydraSession(PathSession):
    def __init__(self, drafter: HydraDrafter, last: Tensor, root: int, width: int):
        """``last``: what the heads read of the token before the root, [1, h]."""
        super().__init__(root, drafter.max_depth, max(width, MIN_LISTED))
        self._drafter, self._last = drafter, last
        self.at_once = worth_a_batch(last.device)

    @torch.inference_mode()
    def score(self, tokens: list[int], parents: list[int]) -> Tensor:
        """Nodes of one depth are one batch."""
        paths = list(map(self.path, tokens, parents))
        drafter, found = self._drafter, dict[int, Tensor]()
        for depth in {len(path) for path in paths}:
            rows = [row for row, path in enumerate(paths) if len(path) == depth]
            ids = torch.tensor([paths[row] for row in rows], device=self._last.device)
            path = drafter.embedding(ids)
            hidden = self._last.to(path.dtype).expand(len(rows), -1)
            found |= zip(rows, drafter.model(hidden, path), strict=True)
        logits = drafter.head(torch.stack([found[row] for row in range(len(paths))]))
        return drafter.log_softmax(logits)
