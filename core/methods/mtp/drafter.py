"""The MTP head at work: a draft language model of one layer, whose rows read hidden states.

Row t of its cache is the hidden state of token t beside the embedding of token t + 1, at the
position t + 1. A prefix row needs the token after it, so a committed token's hidden state waits for
the next one. A round's nodes are written behind the prefix, and dropped when the next round begins:
what is committed is fed again with the target's hidden states.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from core.drafting.session import MIN_LISTED, tokens_after
from core.methods.loading import drafter_folder
from core.methods.mtp import MtpOptions
from core.methods.mtp.model import MtpHead, load_head
from core.methods.registry import shipped
from core.methods.sps.drafter import LmDrafter, LmSession
from core.models.language import Language
from core.models.target import PREFILL_CHUNK, input_device


def load(language: Language, folder: Path | None, options: MtpOptions) -> MtpDrafter:
    """The MTP head in ``folder`` (None: the one that ships, or the target's own) at work.

    Raises UserError when there is none or it was made for another target.
    """
    head = load_head(language, _folder(language, folder))
    (layer,) = head.config.feature_layers(language.model.config.get_text_config().num_hidden_layers)
    return MtpDrafter(head, language.embedding, (layer,), options)


def _folder(language: Language, folder: Path | None) -> Path:
    own = language.folder
    if folder is None and shipped("mtp", language.name) is None and own is not None:
        return own
    return drafter_folder("mtp", language, folder)


AT_ONCE = 64  # rows that may be roots, and have logits, in a pass


class MtpDrafter(LmDrafter):
    """A head with the target's embedding, and the cache of its one layer.

    layers  the target's last one: its output is the last hidden state
    """

    def __init__(
        self,
        head: MtpHead,
        embedding: nn.Module,
        layers: tuple[int, ...],
        options: MtpOptions = MtpOptions(),  # noqa: B008 (frozen)
    ):
        super().__init__(head.body, options.depth)
        self.model, self.embedding = head, embedding
        self.layers, self.temperature = layers, options.temperature
        self._hidden: list[Tensor] = []  # of the tokens that wait
        self._length = 0  # prefix rows that are final

    def reset(self, capacity: int) -> None:
        """Forget the text. Memory of the last text is used again if it is enough."""
        super().reset(capacity)
        self._hidden, self._length = [], 0

    def extend(self, tokens: Sequence[int], features: Tensor) -> None:
        """Newly committed tokens [T] and their last hidden states [T, h]."""
        super().extend(tokens, features)
        self._hidden.append(features)

    @torch.inference_mode()
    def begin(self, root: int, width: int) -> MtpSession:
        """Take in the rows whose next token is committed, and open a session; the last one must not
        be asked again. The last token's row is only supposed to have ``root`` behind it."""
        self.cache.truncate(self._length)
        hidden = torch.cat(self._hidden).to(self.lm.dtype)
        tokens, count = self._waiting, len(self._waiting) - 1
        self._read_rows(tokens[1:], hidden[:count])
        self._length += count
        self._hidden, self._waiting = [hidden[-1:]], tokens[-1:]
        return MtpSession(self, root, width, hidden[-1:])

    def _read_rows(self, following: list[int], hidden: Tensor) -> None:
        """Take in the next rows of the text: hidden states [N, h], and the tokens after them."""
        for low in range(0, len(following), PREFILL_CHUNK):
            some = following[low : low + PREFILL_CHUNK]
            given = hidden[low : low + len(some)]
            self.run(some, given, *self.next_rows(len(some)), keep=1)

    @torch.inference_mode()
    def log_q_at(self, tokens: Tensor, features: Tensor, anchors: Tensor) -> Tensor:
        """All roots' rows are one text's, which is read once; each further depth is one pass of all
        roots. Forgets the drafter's own text."""
        paths, count = tokens_after(tokens, anchors, self.max_depth), len(anchors)
        last = int(anchors[-1])
        self.reset(last + count * self.max_depth)
        logits, fed = self._roots(tokens[: last + 1].tolist(), features[:last], anchors)
        found = [logits]
        seen = torch.arange(last) < anchors.cpu()[:, None]  # of the text's rows, [A, last]
        for depth in range(1, self.max_depth):
            seen = torch.cat([seen, torch.eye(count, dtype=torch.bool)], 1)
            where = (anchors + depth - 1).tolist()
            logits, fed = self.run(paths[:, depth].tolist(), fed, where, seen)
            found.append(logits)
        self.reset(0)
        return self.log_softmax(torch.stack(found, 1))

    def _roots(self, ids: list[int], features: Tensor, anchors: Tensor) -> tuple[Tensor, Tensor]:
        """Read a text up to its last root: logits [A, V] and hidden states [A, h] of the roots."""
        first, hidden = int(anchors[0]), features.to(self.lm.dtype)
        self._read_rows(ids[1:first], hidden[: first - 1])
        found = list[tuple[Tensor, Tensor]]()
        for low in range(first - 1, len(hidden), AT_ONCE):
            given = hidden[low : low + AT_ONCE]
            high = low + len(given)
            following = ids[low + 1 : high + 1]
            logits, fed = self.run(following, given, *self.next_rows(len(given)))
            own = anchors[(anchors > low) & (anchors <= high)] - 1 - low
            found.append((logits[own], fed[own]))
        logits, fed = zip(*found, strict=True)
        return torch.cat(logits), torch.cat(fed)

    @torch.inference_mode()
    def run(
        self,
        tokens: list[int],
        hidden: Tensor,
        positions: list[int],
        allowed: Tensor,
        keep: int = 0,
    ) -> tuple[Tensor, Tensor]:
        """Logits [R, V] and hidden states [R, h] of R tokens behind ``hidden`` [R, h], as
        ``LmDrafter.forward``; ``positions`` are those of the rows."""
        where, mask = self.rows([at + 1 for at in positions], allowed)
        ids = torch.tensor(tokens, device=input_device(self.lm))
        rows = self.model.join(hidden, self.embedding(ids).to(hidden.dtype))
        logits, fed = self.model(rows, where, mask, self.cache, keep)
        self.cache.commit(len(tokens))
        return logits, fed


class MtpSession(LmSession):
    def __init__(self, drafter: MtpDrafter, root: int, width: int, last: Tensor):
        """``last``: the hidden state [1, h] of the token before the root."""
        super().__init__(drafter, root, max(width, MIN_LISTED))
        self._head = drafter
        self._fed = last  # the hidden state that was made at each node, [1 + nodes, h]

    def score(self, tokens: list[int], parents: list[int]) -> Tensor:
        where, allowed = self.place(parents)
        hidden = self._fed[torch.tensor(parents, device=self._fed.device) + 1]
        logits, fed = self._head.run(tokens, hidden, where, allowed)
        self._fed = torch.cat([self._fed, fed])
        return self._head.log_softmax(logits)
