"""The target at work as its own drafter.

One pass reads what was committed since the last round, the root, and the places to guess. Rows of
the text and the root are the target's own; those of the places are adapted, and dropped again. The
keys and values of the text are kept in a cache beside the target's own.

Shapes: L depths, M places to guess (L − 1 or more), V vocabulary.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from core.drafting.best import scaled
from core.drafting.session import DraftSession, FactorisedSession
from core.errors import UserError
from core.methods.loading import check_fits, drafter_folder
from core.methods.sps.drafter import LmDrafter
from core.methods.uno import UnoOptions
from core.methods.uno.model import RowGate, UnoConfig, gated, load_config, load_tensors
from core.models.adapter import MASK
from core.models.language import Language
from core.models.layer_kinds import carries_state
from core.models.target import PREFILL_CHUNK, input_device


def load(language: Language, folder: Path | None, options: UnoOptions) -> UnoDrafter:
    """The target with the adapter in ``folder`` (None: the denoiser that ships).

    Raises UserError when there is none or it does not fit, and for a target that carries a state.
    """
    folder = drafter_folder("uno", language, folder)
    config = load_config(folder)
    check_fits(folder, language, config)
    if carries_state(language.model.config):
        raise UserError("uno drafts with targets that attend in every layer: this one has a state")
    if (config.mask_token_id or 0) >= language.vocabulary:
        raise UserError(f"{folder}: its mask token is none of the target's tokens")
    tensors, gate = load_tensors(folder), RowGate()
    model = gated(language.model, tensors, config.scale, gate)
    return UnoDrafter(model, gate, config, options, tensors.get(MASK))


class UnoDrafter(LmDrafter):
    """A target with an adapter that ``gate`` opens, and its cache of one text.

    mask  the input embedding [h] of the places to guess; None: that of their tokens

    Raises UserError for a bound of the noise that leaves no token, or allows more than there are.
    """

    def __init__(
        self,
        model: Any,
        gate: RowGate,
        config: UnoConfig,
        options: UnoOptions = UnoOptions(),  # noqa: B008 (frozen)
        mask: Tensor | None = None,
    ):
        super().__init__(model, options.depth)
        self.gate, self.config, self.temperature = gate, config, options.temperature
        self.mask = None if mask is None else mask.to(input_device(model), model.dtype)
        self.masks = max(config.masks, options.depth - 1)
        vocabulary = model.config.get_text_config().vocab_size
        self._noise = options.noise or vocabulary
        if not 1 < self._noise <= vocabulary:
            raise UserError(
                f"noise is {self._noise}: it lies from 2 to the vocabulary, {vocabulary}"
            )

    @torch.inference_mode()
    def begin(self, root: int, width: int) -> DraftSession:
        """One pass; everything a round asks for follows from it."""
        tokens, self._waiting = self._waiting, []
        while len(tokens) > PREFILL_CHUNK:
            some, tokens = tokens[:PREFILL_CHUNK], tokens[PREFILL_CHUNK:]
            where, known = self._seen(len(some))
            self.forward(some, where, known, keep=1)
        return FactorisedSession.of(self._guessed(tokens, root), width)

    def _seen(self, count: int) -> tuple[list[int], Tensor]:
        """Positions of the next rows, and which each sees: all up to itself, bool [T, S]."""
        start = self.cache.length
        seen = torch.ones(count, start + count, dtype=torch.bool).tril(start)
        return list(range(start, start + count)), seen

    def _guessed(self, tokens: list[int], root: int) -> Tensor:
        """log q [L, V] behind the root. ``tokens`` before it join the text."""
        known = len(tokens) + 1
        positions, allowed = self._seen(known + self.masks)
        if not self.config.causal:
            allowed[known:, self.cache.length + known :] = True
        where, mask = self.rows(positions, allowed)
        rows = torch.arange(known, len(positions), device=where.device)
        lm: Any = self.lm
        self.gate.rows = rows
        try:
            out = lm(
                inputs_embeds=self._embedded([*tokens, root], self.cache.length + known)[None],
                attention_mask=mask[None, None],
                position_ids=where[None],
                past_key_values=self.cache,
                use_cache=True,
                logits_to_keep=1 + self.masks,
            )
        finally:
            self.gate.rows = None
        self.cache.commit(len(tokens))
        return scaled(out.logits[0, : self.max_depth].float(), self.temperature).log_softmax(-1)

    def _embedded(self, text: list[int], position: int) -> Tensor:
        """Input embeddings [T + M, h] of a text and of the places to guess behind it, the first at
        ``position``: their tokens are drawn for it alone, so that a text is drafted alike again."""
        token = self.config.mask_token_id
        if token is None:
            drawn = np.random.default_rng(position).integers(1, self._noise, self.masks).tolist()
        else:
            drawn = [token] * self.masks
        ids = torch.tensor([*text, *drawn], device=input_device(self.lm))
        found: Tensor = self.lm.get_input_embeddings()(ids)
        if self.mask is not None:
            found = torch.cat([found[: len(text)], self.mask.expand(self.masks, -1)])
        return found
