"""The Medusa drafter at work: the heads on the last committed token's hidden state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from core.drafting.network import NetworkDrafter
from core.drafting.session import DraftSession
from core.methods.loading import check_fits, drafter_folder
from core.methods.medusa import MedusaOptions
from core.methods.medusa.model import FORM, MedusaModel
from core.models.fast_layers import use_fast_layers
from core.models.language import Language, last_layer


def load(language: Language, folder: Path | None, options: MedusaOptions) -> MedusaDrafter:
    """The Medusa drafter in ``folder`` (None: the one that ships) on the target's device.

    Raises UserError when there is none or it was made for another target.
    """
    folder = drafter_folder("medusa", language, folder)
    model = FORM.load_model(folder, language.model.dtype, language.device)
    check_fits(folder, language, model.config)
    del model[options.heads :]
    use_fast_layers(model, language.model.dtype, language.device)
    return MedusaDrafter(
        model,
        language.head,
        (last_layer(language.model),),
        language.model.dtype,
        options.temperature,
    )


class MedusaDrafter(NetworkDrafter):
    """The heads, and the hidden state of the last committed token.

    head    the target's, where the heads have none of their own
    layers  the target's last
    """

    def __init__(
        self,
        model: MedusaModel,
        head: nn.Module,
        layers: tuple[int, ...],
        dtype: torch.dtype,
        temperature: float = 1.0,
    ):
        self.model, self.head, self.layers = model, head, layers
        self.dtype, self.temperature = dtype, temperature
        self._last: Tensor | None = None

    @property
    def max_depth(self) -> int:
        return len(self.model)

    def reset(self, capacity: int) -> None:
        self._last = None

    def extend(self, tokens: Sequence[int], features: Tensor) -> None:
        """Features [T, h] of newly committed tokens."""
        self._last = features[-1]

    @torch.inference_mode()
    def begin(self, root: int, width: int) -> DraftSession:
        """One pass of all heads. They do not know the root."""
        assert self._last is not None, "extend comes first"
        return self._session(self._last, width)

    @torch.inference_mode()
    def begin_each(
        self, tokens: Tensor, features: Tensor, anchors: Tensor, width: int
    ) -> Iterator[DraftSession]:
        for last in features[anchors - 1]:
            yield self._session(last, width)

    @torch.inference_mode()
    def log_q_at(self, tokens: Tensor, features: Tensor, anchors: Tensor) -> Tensor:
        return self._log_q(features[anchors - 1])

    def _log_q(self, last: Tensor) -> Tensor:
        """log q [A, L, V] after tokens of hidden states [A, h]."""
        rows = self.model(last.to(self.dtype))
        return self.log_softmax(rows if self.model.config.vocab_size else self.head(rows))

    def _session(self, last: Tensor, width: int) -> DraftSession:
        return self.by_depth(self._log_q(last[None])[0], width)
