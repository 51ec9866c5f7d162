"""Gemma 4's assistant at work: every node is a row that reads the target's keys of the context."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from core.drafting.best import scaled, worth_a_batch
from core.drafting.session import MIN_LISTED, Drafter, PathSession
from core.methods.gemma4_assistant.keys import TargetKeys, joined
from core.methods.gemma4_assistant.model import Assistant, KeysAndValues, load_assistant
from core.methods.loading import check_fits, drafter_folder
from core.methods.method import DepthOptions
from core.models.fast_layers import use_fast_layers
from core.models.language import Language


def load(language: Language, folder: Path | None, options: DepthOptions) -> AssistantDrafter:
    """The assistant in ``folder`` on the target's device.

    Raises UserError when there is none or it was made for another target.
    """
    folder = drafter_folder("gemma4-assistant", language, folder)
    model = load_assistant(folder, language.model.dtype, language.device)
    check_fits(folder, language, model.config)
    keys = TargetKeys(language.model, language.name, model.model.config)
    use_fast_layers(model.model, language.model.dtype, language.device)
    return AssistantDrafter(model, language.embedding, keys, options)


class AssistantDrafter(Drafter):
    """The assistant with the target's embedding, and the keys and values of one text.

    keys  what it reads of the target: ``layers``, ``hidden`` and ``project``
    """

    def __init__(
        self,
        model: Assistant,
        embedding: nn.Module,
        keys: Any,
        options: DepthOptions = DepthOptions(),  # noqa: B008 (frozen)
    ):
        self.model, self.embedding, self.keys = model, embedding, keys
        self.layers, self.options = keys.layers, options
        self._forget()

    def _forget(self) -> None:
        self._waiting: list[Tensor] = []
        self._known: KeysAndValues = {}
        self._last: Tensor | None = None  # the last hidden state [1, H]
        self._length = 0

    @property
    def max_depth(self) -> int:
        return self.options.depth

    def reset(self, capacity: int) -> None:
        self._forget()

    def extend(self, tokens: Sequence[int], features: Tensor) -> None:
        """Newly committed tokens [T] and their features [T, F·H]."""
        self._waiting.append(features)

    @torch.inference_mode()
    def begin(self, root: int, width: int) -> AssistantSession:
        """Take in the keys of what was committed, and open a session."""
        if self._waiting:
            features = torch.cat(self._waiting)
            positions = torch.arange(len(features), device=features.device) + self._length
            self._known = joined(self._known, self.keys.project(features, positions))
            self._length += len(features)
            self._last, self._waiting = self.keys.hidden(features[-1:]), []
        assert self._last is not None, "a text comes first"
        return AssistantSession(self, root, width, self._last)

    @torch.inference_mode()
    def run(self, tokens: Sequence[int], hidden: Tensor) -> tuple[Tensor, Tensor]:
        """log q [R, V] after R nodes with their parents' states [R, H], and their states."""
        embedded = self.embedding(torch.tensor(tokens, device=hidden.device)).to(hidden.dtype)
        logits, fed = self.model(embedded, hidden, self._length, self._known)
        return scaled(logits.float(), self.options.temperature).log_softmax(-1), fed


class AssistantSession(PathSession):
    """A round's tree: nodes see the context and their parents' states, and no other node."""

    def __init__(self, drafter: AssistantDrafter, root: int, width: int, last: Tensor):
        """``last``: the target's hidden state [1, H] of the token before the root."""
        super().__init__(root, drafter.max_depth, max(width, MIN_LISTED))
        self._drafter, self.at_once = drafter, worth_a_batch(last.device)
        self._fed = last  # the state that every node's row left, [1 + nodes, H]

    def score(self, tokens: list[int], parents: list[int]) -> Tensor:
        hidden = self._fed[torch.tensor(parents, device=self._fed.device) + 1]
        log_q, fed = self._drafter.run(tokens, hidden)
        self._fed = torch.cat([self._fed, fed])
        return log_q
