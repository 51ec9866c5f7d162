"""A draft language model at work: it scores nodes as they are asked for, in a cache of its own.

The cache holds the committed context. A round's nodes are written after it, in the order of
scoring. When the next round begins, the rows of those that were committed are kept, the others are
dropped. A node is one token of the target. A model with a vocabulary of its own reads it in none,
one or several rows.

Shapes: R nodes or rows, S cache rows, V vocabulary, C tokens that q is over.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from core.drafting.best import scaled, worth_a_batch
from core.drafting.session import MIN_LISTED, Covered, Drafter, PathSession
from core.errors import UserError
from core.methods.loading import check_fits, drafter_folder
from core.methods.sps import SpsOptions
from core.methods.sps.model import FORM, first_layers, load_adapter
from core.methods.sps.translation import Translation
from core.models.cache import StaticKV, additive_mask
from core.models.language import Language, load_language, load_vocabulary
from core.models.layer_kinds import carries_state
from core.models.target import PREFILL_CHUNK, context_limit, input_device, make_kv, run_rows

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def load(language: Language, folder: Path | None, options: SpsOptions) -> LmDrafter:
    """The draft model in ``folder`` (None: the one that ships) on the target's device.

    A model with other tokens than the target's drafts those that both have.

    Raises UserError when there is none, it carries a state, or shares no token with the target.
    """
    folder = drafter_folder("sps", language, folder)
    config = FORM.load_config(folder)
    check_fits(folder, language, config)
    if config.layers is not None:
        adapter = load_adapter(folder, config).to(language.device, language.model.dtype)
        return LmDrafter(first_layers(language.model, adapter), options.depth)
    translation = _translation(language, folder)
    model = load_language(str(folder), str(language.device)).model
    if carries_state(model.config):
        raise UserError(
            f"the draft model in {folder} has layers that carry a state along the text; only one "
            "that attends in every layer can take back what it drafted"
        )
    return LmDrafter(model, options.depth, translation)


def _translation(language: Language, folder: Path) -> Translation | None:
    """From the target's tokens to those of the model in ``folder``; None: they are the same."""
    draft = load_vocabulary(str(folder))
    if (draft.identity, draft.size) == (language.tokenizer_hash, language.vocabulary):
        return None
    return Translation.of(language.tokens, draft, str(folder))


class LmDrafter(Drafter):
    """A causal language model and its cache of one text.

    model        its network; ``lm``: the language model in it
    translation  of the target's tokens into its own; None: they are its own
    temperature  of q, as the method's option has it
    """

    temperature = 1.0

    def __init__(
        self, model: PreTrainedModel, depth: int = 5, translation: Translation | None = None
    ):
        self.model, self.lm, self.max_depth = model, model, depth
        self.translation = translation
        if translation is not None:
            ids, own = (
                torch.tensor(list(some), device=input_device(model))
                for some in (translation.shared, translation.shared.values())
            )
            self.covered, self._own = Covered(ids, translation.size), own
        self._last_position = context_limit(model) - 1
        self._cache: StaticKV | None = None
        self._forget()

    def _forget(self) -> None:
        self._session: LmSession | None = None
        self._waiting: list[int] = []  # committed tokens that the cache does not hold for good
        self._read: list[int] = []  # what it holds, in the model's own tokens

    def reset(self, capacity: int) -> None:
        """Forget the text. Memory of the last text is used again if it is enough."""
        if self._cache is None or self._cache.capacity < capacity:
            self._cache = make_kv(self.lm, -(-capacity // 256) * 256)
        self._cache.reset()
        self._forget()

    def extend(self, tokens: Sequence[int], features: object) -> None:
        """Newly committed tokens. They are taken in when the next round begins, so that a probe may
        still ask this round's session."""
        self._waiting += tokens

    @torch.inference_mode()
    def begin(self, root: int, width: int) -> LmSession:
        """Take in what was committed, and open a session; the last one must not be asked again."""
        owed = self._keep(self._session) if self._session is not None else []
        text, own = self._with(owed), self.ids(root)
        again = [] if own else text[-1:]  # what stands before a root that it does not see
        context = text[: len(text) - len(again)]
        self.cache.truncate(min(len(self._read), len(context)))
        self.read_text(context[self.cache.length :])
        self._read, self._waiting = context, []
        self._session = LmSession(self, root, max(width, MIN_LISTED), again)
        return self._session

    @torch.inference_mode()
    def log_q_at(self, tokens: Tensor, features: Tensor, anchors: Tensor) -> Tensor | None:
        """In the model's own tokens the nodes along a text are the text's own rows: each is read
        once, whatever the anchors."""
        if self.translation is not None:
            return super().log_q_at(tokens, features, anchors)
        text = tokens.tolist()
        text += text[-1:] * (self.max_depth - 1)
        first, end = int(anchors[0]), int(anchors[-1]) + self.max_depth
        self.reset(end)
        self.read_text(text[:first])
        found = list[Tensor]()
        for low in range(first, end, PREFILL_CHUNK):
            some = text[low : min(low + PREFILL_CHUNK, end)]
            found.append(self.log_softmax(self.forward(some, *self.next_rows(len(some)))))
        depths = torch.arange(self.max_depth, device=anchors.device)
        return torch.cat(found)[anchors[:, None] - first + depths]

    def read_text(self, tokens: list[int]) -> None:
        """Take in the next tokens of the text, in the model's own."""
        for low in range(0, len(tokens), PREFILL_CHUNK):
            some = tokens[low : low + PREFILL_CHUNK]
            self.forward(some, *self.next_rows(len(some)), keep=1)

    def next_rows(self, count: int) -> tuple[list[int], Tensor]:
        """Positions of the text's next rows, and which each sees: all up to itself, bool [R, S]."""
        start = self.cache.length
        seen = torch.ones(count, start + count, dtype=torch.bool).tril(start)
        return list(range(start, start + count)), seen

    def _keep(self, session: LmSession) -> list[int]:
        """Keep the rows of a session's nodes that were committed. Returns what the session took
        from the text and nobody gave back."""
        count, rows = session.committed(self._waiting)
        self.cache.truncate(session.start)
        self.cache.commit(torch.tensor(rows, dtype=torch.long))
        self._read += [session.fed[row] for row in rows]
        del self._waiting[:count]
        return [] if count else session.again

    def _with(self, owed: list[int]) -> list[int]:
        """The committed text in the model's own tokens."""
        if self.translation is None:
            return [*self._read, *self._waiting]
        if not self._read and not owed:
            return self.translation.text(self._waiting)
        fresh = [id_ for token in self._waiting for id_ in self.translation.ids(token)]
        return [*self._read, *owed, *fresh]

    def ids(self, token: int) -> tuple[int, ...]:
        """A token of the target in the model's own; () for one that it does not see."""
        return (token,) if self.translation is None else self.translation.ids(token)

    def log_softmax(self, logits: Tensor) -> Tensor:
        """log q [..., C] of the tokens that target and model share, of its logits [..., V]."""
        shared = logits if self.covered is None else logits[..., self._own]
        return scaled(shared, self.temperature).log_softmax(-1)

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
        ids = torch.tensor(tokens, device=where.device)[None]
        out = run_rows(self.lm, where, mask, self.cache, input_ids=ids, logits_to_keep=keep)
        self.cache.commit(len(tokens))
        return out.logits[0]

    def rows(self, positions: list[int], allowed: Tensor) -> tuple[Tensor, Tensor]:
        """The positions [R] of new rows and their additive mask [R, S], on the model's device; the
        cache has room for them."""
        device, dtype = input_device(self.lm), self.lm.dtype
        self.cache.grow(self.cache.length + len(positions))
        where = torch.tensor(positions, device=device).clamp(max=self._last_position)
        return where, additive_mask(allowed, dtype).to(device)


class LmSession(PathSession):
    """A node's rows in the cache follow ``start``: one for each of its tokens in the model's own.

    again  what the root, which the model does not see, took from the text: its own is read instead
    fed    the model's own token of each row
    """

    def __init__(self, drafter: LmDrafter, root: int, width: int, again: Sequence[int] = ()):
        super().__init__(root, drafter.max_depth, width, drafter.covered)
        self._drafter, self.start, self.again = drafter, drafter.cache.length, list(again)
        self.at_once = worth_a_batch(input_device(drafter.lm))
        self.fed: list[int] = []
        self._rows = 0
        self._seen: list[list[int]] = []  # of every node: the rows that it sees behind ``start``

    def score(self, tokens: list[int], parents: list[int]) -> Tensor:
        spelt = [self._drafter.ids(token) for token in tokens]
        rows = [ids or (self._last(parent),) for ids, parent in zip(spelt, parents, strict=True)]
        where, allowed = self.place(parents, [len(ids) for ids in spelt])
        fresh = [id_ for ids in rows for id_ in ids]
        logits = self._drafter.forward(fresh, where, allowed)
        self.fed += fresh
        if len(fresh) > len(tokens):
            logits = logits[np.cumsum([len(ids) for ids in rows]) - 1]
        return self._drafter.log_softmax(logits)

    def _last(self, node: int) -> int:
        """The model's own token before what follows a node; −1: before the root."""
        return self.fed[self._seen[node][-1]] if node >= 0 else self.again[0]

    def place(self, parents: list[int], counts: Sequence[int] = ()) -> tuple[list[int], Tensor]:
        """The positions of the next nodes' rows, and which rows of the cache each sees, bool
        [R, S].

        counts  rows of each node; (): one each. A node of none is read as its parent is, in a row
                of its own: it stands in the place of the last row that its parent sees
        """
        seen = list[list[int]]()
        for parent, count in zip(parents, counts or [1] * len(parents), strict=True):
            path = self._seen[parent] if parent >= 0 else []
            path = path if count else path[:-1]
            for _ in range(count or 1):
                path = [*path, self._rows]
                seen.append(path)
                self._rows += 1
            self._seen.append(path)
        allowed = torch.zeros(len(seen), self.start + self._rows, dtype=torch.bool)
        allowed[:, : self.start] = True
        for row, path in enumerate(seen):
            allowed[row, [self.start + number for number in path]] = True
        return [self.start + len(path) - 1 for path in seen], allowed

    def committed(self, tokens: Sequence[int]) -> tuple[int, list[int]]:
        """How many of these tokens after the context pass through scored nodes, and their rows."""
        count, node = 0, -1
        for token in tokens:
            if (following := self._number.get((node, token), -1)) < 0:
                break
            count, node = count + 1, following
        return count, self._seen[node] if count else []
