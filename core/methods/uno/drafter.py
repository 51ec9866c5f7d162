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

from core.drafting.session import DraftSession, FactorisedSession
from core.errors import UserError
from core.methods.loading import check_fits, drafter_folder
from core.methods.sps.drafter import LmDrafter
from core.methods.uno import UnoOptions
from core.methods.uno.model import FORM, UnoConfig, adapted, load_tensors
from core.models.adapter import GatedAdapter
from core.models.language import Language
from core.models.layer_kinds import carries_state
from core.models.target import PREFILL_CHUNK, run_rows


def load(language: Language, folder: Path | None, options: UnoOptions) -> UnoDrafter:
    """The target with the adapter in ``folder`` (None: the denoiser that ships).

    Raises UserError when there is none or it does not fit, and for a target that carries a state.
    """
    folder = drafter_folder("uno", language, folder)
    config = FORM.load_config(folder)
    check_fits(folder, language, config)
    if carries_state(language.model.config):
        raise UserError("uno drafts with targets that attend in every layer: this one has a state")
    model, adapter = adapted(language.model, load_tensors(folder), config)
    return UnoDrafter(model, adapter, config, options)


class UnoDrafter(LmDrafter):
    """A target, the adapter on it, and its cache of one text.

    Raises UserError for a bound of the noise that leaves no token, or allows more than there are.
    """

    def __init__(
        self,
        model: Any,
        adapter: GatedAdapter,
        config: UnoConfig,
        options: UnoOptions = UnoOptions(),  # noqa: B008 (frozen)
    ):
        super().__init__(model, options.depth)
        self.adapter, self.config, self.temperature = adapter, config, options.temperature
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
        early = max(0, len(tokens) - 1) // PREFILL_CHUNK * PREFILL_CHUNK
        self.read_text(tokens[:early])
        return FactorisedSession.of(self._guessed(tokens[early:], root), width)

    def _guessed(self, tokens: list[int], root: int) -> Tensor:
        """log q [L, V] behind the root. ``tokens`` before it join the text."""
        known = len(tokens) + 1
        positions, allowed = self.next_rows(known + self.masks)
        if not self.config.causal:
            allowed[known:, self.cache.length + known :] = True
        ids = [*tokens, root, *self._guesses(self.cache.length + known)]
        guessed = torch.arange(known, len(ids))
        logits = self._logits(ids, positions, allowed, guessed, 1 + self.masks)
        self.cache.commit(len(tokens))
        return self.log_softmax(logits[: self.max_depth])

    @torch.inference_mode()
    def log_q_at(self, tokens: Tensor, features: object, anchors: Tensor) -> Tensor:
        """The text is read once, and the places behind all roots are guessed in one pass. Forgets
        the drafter's own text."""
        ids, roots, size = tokens.tolist(), anchors.tolist(), 1 + self.masks
        count = len(roots) * size
        self.reset(roots[-1] + count)
        self.read_text(ids[: roots[-1]])
        block = torch.ones(size, size, dtype=torch.bool).tril()
        block[1:, 1:] |= not self.config.causal
        before = torch.arange(roots[-1]) < anchors.cpu()[:, None]
        blocks = torch.block_diag(*[block] * len(roots))
        logits = self._logits(
            [token for root in roots for token in (ids[root], *self._guesses(root + 1))],
            [at for root in roots for at in range(root, root + size)],
            torch.cat([before.repeat_interleave(size, 0), blocks], 1),
            torch.arange(count).view(-1, size)[:, 1:].flatten(),
            count,
        )
        self.reset(0)
        return self.log_softmax(logits.unflatten(0, (-1, size))[:, : self.max_depth])

    def _logits(
        self, ids: list[int], positions: list[int], allowed: Tensor, guessed: Tensor, keep: int
    ) -> Tensor:
        """Logits of the last ``keep`` rows, of which the ``guessed`` are adapted. The rows do not
        join the text."""
        where, mask = self.rows(positions, allowed)
        rows, cache = guessed.to(where.device), self.cache
        embedded = self.adapter.embed(torch.tensor(ids, device=rows.device), rows)[None]
        after = None
        if not self.config.causal:  # a window counts from the place, not from its block's end
            after = torch.zeros_like(where)
            places = torch.arange(self.masks - 1, -1, -1, device=where.device)
            after[rows] = places.repeat(len(rows) // self.masks)
        with self.adapter.open(rows):
            out = run_rows(
                self.lm, where, mask, cache, after, inputs_embeds=embedded, logits_to_keep=keep
            )
        return out.logits[0]

    def _guesses(self, position: int) -> list[int]:
        """The tokens [M] at the places to guess, the first at ``position``: without a mask token
        they are drawn for it alone, so that a text is drafted alike again."""
        if (mask := self.config.mask_token_id) is not None:
            return [mask] * self.masks
        drawn: list[int] = (
            np.random.default_rng(position).integers(1, self._noise, self.masks).tolist()
        )
        return drawn
