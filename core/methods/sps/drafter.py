"""A draft language model at work: it scores nodes as they are asked for, in a cache of its own.

The cache holds the committed context. A round's nodes are written after it, in the order of
scoring. When the next round begins, the rows of those that were committed are kept, the others are
dropped.

Shapes: R nodes, S cache rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from core.drafting.best import worth_a_batch
from core.drafting.session import MIN_LISTED, Drafter, PathSession
from core.errors import UserError
from core.methods.loading import check_fits, drafter_folder
from core.methods.sps import SpsOptions
from core.methods.sps.model import first_layers, load_adapter, load_config
from core.models.cache import StaticKV, mask_value
from core.models.language import Language, load_language, load_vocabulary
from core.models.layer_kinds import carries_state
from core.models.target import PREFILL_CHUNK, context_limit, input_device, make_kv

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def load(language: Language, folder: Path | None, options: SpsOptions) -> LmDrafter:
    """The draft model in ``folder`` (None: the one that ships) on the target's device.

    Raises UserError when there is none or it has another tokenizer than the target.
    """
    folder = drafter_folder("sps", language, folder)
    config = load_config(folder)
    check_fits(folder, language, config)
    if config.layers is not None:
        adapter = load_adapter(folder, config).to(language.device, language.model.dtype)
        return LmDrafter(first_layers(language.model, adapter), options.depth)
    if load_vocabulary(str(folder)).identity != language.tokenizer_hash:
        raise UserError(
            f"the draft model in {folder} has another tokenizer than {language.name!r}: "
            "its tokens are not the target's"
        )
    model = load_language(str(folder), str(language.device)).model
    if carries_state(model.config):
        raise UserError(
            f"the draft model in {folder} has layers that carry a state along the text; only one "
            "that attends in every layer can take back what it drafted"
        )
    return LmDrafter(model, options.depth)


class LmDrafter(Drafter):
    """A causal language model and its cache of one text.

    model  its network; ``lm``: the language model in it
    """

    layers = ()

    def __init__(self, model: PreTrainedModel, depth: int = 5):
        self.model, self.lm, self.max_depth = model, model, depth
        self._last_position = context_limit(model) - 1
        self._cache: StaticKV | None = None
        self._session: LmSession | None = None
        self._waiting: list[int] = []  # committed tokens that the cache does not hold for good

    def reset(self, capacity: int) -> None:
        """Forget the text. Memory of the last text is used again if it is enough."""
        if self._cache is None or self._cache.capacity < capacity:
            self._cache = make_kv(self.lm, -(-capacity // 256) * 256)
        self._cache.reset()
        self._session, self._waiting = None, []

    def extend(self, tokens: Sequence[int], features: object) -> None:
        """Newly committed tokens. They are taken in when the next round begins, so that a probe may
        still ask this round's session."""
        self._waiting += tokens

    @torch.inference_mode()
    def begin(self, root: int, width: int) -> LmSession:
        """Take in what was committed, and open a session; the last one must not be asked again."""
        length = self.cache.length
        if self._session is not None:
            length, rows = self._session.start, self._session.rows(self._waiting)
            self.cache.truncate(length)
            self.cache.commit(torch.tensor(rows, dtype=torch.long))
            del self._waiting[: len(rows)]
            length += len(rows)
        for low in range(0, len(self._waiting), PREFILL_CHUNK):
            some = self._waiting[low : low + PREFILL_CHUNK]
            known = torch.ones(len(some), self.cache.length + len(some), dtype=torch.bool)
            allowed = known.tril(self.cache.length)
            self.forward(some, [length + low + i for i in range(len(some))], allowed, keep=1)
        self._waiting = []
        self._session = LmSession(self, root, max(width, MIN_LISTED))
        return self._session

    @property
    def cache(self) -> StaticKV:
        assert self._cache is not None, "reset comes first"
        return self._cache

    @torch.inference_mode()
    def forward(
        self, tokens: list[int], positions: list[int], allowed: Tensor, keep: int = 0
    ) -> Tensor:
        """Logits of R tokens, which are added to the cache; row i sees the rows ``allowed[i]``
        [S]. ``keep``: logits of so many last rows; 0: of all."""
        where, mask = self.rows(positions, allowed)
        lm: Any = self.lm
        out = lm(
            torch.tensor(tokens, device=where.device)[None],
            attention_mask=mask[None, None],
            position_ids=where[None],
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=keep,
        )
        self.cache.commit(len(tokens))
        return out.logits[0]

    def rows(self, positions: list[int], allowed: Tensor) -> tuple[Tensor, Tensor]:
        """The positions [R] of new rows and their additive mask [R, S], on the model's device; the
        cache has room for them."""
        device, dtype = input_device(self.lm), self.lm.dtype
        self.cache.grow(self.cache.length + len(positions))
        mask = torch.zeros(allowed.shape, dtype=dtype).masked_fill_(~allowed, mask_value(dtype))
        return torch.tensor(positions, device=device).clamp(max=self._last_position), mask.to(
            device
        )


class LmSession(PathSession):
    """A node's row in the cache is ``start`` and its number."""

    def __init__(self, drafter: LmDrafter, root: int, width: int):
        super().__init__(root, drafter.max_depth, width)
        self._drafter, self.start = drafter, drafter.cache.length
        self.at_once = worth_a_batch(input_device(drafter.lm))
        self._paths: list[list[int]] = []  # numbers of every node's ancestors and its own

    def score(self, tokens: list[int], parents: list[int]) -> Tensor:
        where, allowed = self.place(parents)
        return self._drafter.forward(tokens, where, allowed).float().log_softmax(-1)

    def place(self, parents: list[int]) -> tuple[list[int], Tensor]:
        """The next nodes' positions, and which rows of the cache each sees, bool [R, S]."""
        first = len(self._paths)
        for number, parent in enumerate(parents, first):
            self._paths.append([*(self._paths[parent] if parent >= 0 else ()), number])
        fresh = self._paths[first:]
        allowed = torch.zeros(len(fresh), self.start + len(self._paths), dtype=torch.bool)
        allowed[:, : self.start] = True
        for row, path in enumerate(fresh):
            allowed[row, [self.start + number for number in path]] = True
        return [self.start + len(path) - 1 for path in fresh], allowed

    def rows(self, tokens: Sequence[int]) -> list[int]:
        """The numbers of the nodes that these tokens after the context pass through, as far as they
        were scored."""
        found, number = list[int](), -1
        for token in tokens:
            if (number := self._number.get((number, token), -1)) < 0:
                break
            found.append(number)
        return found
