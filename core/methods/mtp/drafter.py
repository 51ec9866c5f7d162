"""The MTP head at work: a draft language model of one layer, whose rows read hidden states.

Row t of its cache is the hidden state of token t beside the embedding of token t + 1, at the
position t + 1. A prefix row needs the token after it, so a committed token's hidden state waits for
the next one. A round's nodes are written behind the prefix, and dropped when the next round begins:
what is committed is fed again with the target's hidden states.

With a layer for each depth (DeepSeek-V3, arXiv 2412.19437, §2.2), every layer has such a cache. The
row of token t in layer d, counted from 0, reads what layer d − 1 made in the row of token t − 1.
From there back it is the row of the target's state at token t − d − 1: so a node at depth d has
rows in layer d, which drafts what follows it, and in those after it, which its descendants see. No
deeper tokens are drafted, as transformers and SGLang do it.

Shapes: D layers, R rows, N rows of a text, S cache rows, A roots, L depths, V vocabulary, h hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from core.drafting.session import MIN_LISTED, tokens_after
from core.methods.loading import drafter_folder
from core.methods.mtp import MtpOptions
from core.methods.mtp.model import MtpHead, load_head
from core.methods.registry import shipped
from core.methods.sps.drafter import LmDrafter, LmSession
from core.models.cache import StaticKV
from core.models.language import Language
from core.models.target import PREFILL_CHUNK, input_device, make_kv


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
    """Heads with the target's embedding, and the cache of each one's layer.

    layers   the target's last one: its output is the last hidden state
    heads    by depth; a single one is run again at each
    chained  whether a layer reads what the one before it made; if not, each reads the target's
             hidden state
    """

    def __init__(
        self,
        head: MtpHead,
        embedding: nn.Module,
        layers: tuple[int, ...],
        options: MtpOptions = MtpOptions(),  # noqa: B008 (frozen)
    ):
        super().__init__(head.body, min(options.depth, head.config.max_depth or options.depth))
        self.model, self.embedding = head, embedding
        self.heads: list[MtpHead] = [head, *head.further]  # type: ignore[list-item]
        self.chained = head.config.layout.chained
        self.layers, self.temperature = layers, options.temperature
        self._further: list[StaticKV] = []  # the caches of the layers after the first
        self._hidden: list[Tensor] = []  # of the tokens that wait
        self._length = 0  # prefix rows that are final

    def reset(self, capacity: int) -> None:
        """Forget the text. Memory of the last text is used again if it is enough."""
        super().reset(capacity)
        if not self._further or self._further[0].capacity < self.cache.capacity:
            count = len(self.heads) - 1
            self._further = [make_kv(self.lm, self.cache.capacity) for _ in range(count)]
        self._truncate(0)
        self._hidden, self._length = [], 0
        shape = len(self.heads), self.model.config.hidden_size
        device, dtype = input_device(self.lm), self.lm.dtype
        # What each layer made of the last token that was read: zero where it has no row.
        self._made = torch.zeros(*shape, device=device, dtype=dtype)

    def extend(self, tokens: Sequence[int], features: Tensor) -> None:
        """Newly committed tokens [T] and their last hidden states [T, h]."""
        super().extend(tokens, features)
        self._hidden.append(self.model.entering(features))

    @torch.inference_mode()
    def begin(self, root: int, width: int) -> MtpSession:
        """Take in the rows whose next token is committed, and open a session; the last one must not
        be asked again. The last token's row is only supposed to have ``root`` behind it."""
        self._truncate(self._length)
        hidden = torch.cat(self._hidden).to(self.lm.dtype)
        tokens, count = self._waiting, len(self._waiting) - 1
        self._read_rows(tokens[1:], hidden[:count])
        self._length += count
        self._hidden, self._waiting = [hidden[-1:]], tokens[-1:]
        return MtpSession(self, root, width, torch.cat([hidden[-1:], self._made])[None])

    def _read_rows(self, following: list[int], hidden: Tensor) -> None:
        """Take in the next rows of the text: hidden states [N, h], and the tokens after them."""
        for low in range(0, len(following), PREFILL_CHUNK):
            some = following[low : low + PREFILL_CHUNK]
            self._read_some(some, hidden[low : low + len(some)], keep=1)

    def _read_some(
        self, following: list[int], hidden: Tensor, keep: int = 0
    ) -> list[tuple[Tensor, Tensor]]:
        """As ``_read_rows``, in one pass. Returns the logits and what was made, by layers."""
        where, allowed = self.next_rows(len(following))
        given, left, found = hidden, list[Tensor](), list[tuple[Tensor, Tensor]]()
        for depth, before in enumerate(self._made.split(1)):
            logits, made = self.run(depth, following, given, where, allowed, keep)
            found.append((logits, made))
            next_ = self._passed_on(depth, made, given)
            left.append(next_[-1:])
            given = torch.cat([before, next_[:-1]])
        self._made = torch.cat(left)
        self._commit(len(following))
        return found

    def _passed_on(self, depth: int, made: Tensor, given: Tensor) -> Tensor:
        """The hidden states [R, h] that the next layer reads in the next tokens' rows."""
        return made if self.chained or depth == len(self.heads) - 1 else given

    @torch.inference_mode()
    def log_q_at(self, tokens: Tensor, features: Tensor, anchors: Tensor) -> Tensor:
        """All roots' rows are one text's, which is read once, and so are the rows of those after
        them in the layers of their depths; each further depth is one pass of all roots. Forgets
        the drafter's own text."""
        paths, count = tokens_after(tokens, anchors, self.max_depth), len(anchors)
        steps = len(self.heads)
        last = int(anchors[-1]) + steps - 1
        self.reset(last + count * self.max_depth)
        ids = tokens_after(tokens, anchors.new_zeros(1), last + 1)[0].tolist()
        hidden = self.model.entering(features[:last]).to(self.lm.dtype)
        # Tokens after the last root have rows only in layers that read none of these.
        hidden = F.pad(hidden, (0, 0, 0, last - len(hidden)))
        logits, fed = self._roots(ids, hidden, anchors)
        found = [logits[:, : self.max_depth]]
        seen = torch.arange(last) < anchors.cpu()[:, None] + steps - 1  # of the text's rows
        for depth in range(steps, self.max_depth):
            seen = torch.cat([seen, torch.eye(count, dtype=torch.bool)], 1)
            where = (anchors + depth - 1).tolist()
            logits, fed = self.run(steps - 1, paths[:, depth].tolist(), fed, where, seen)
            self._commit(count)
            found.append(logits[:, None])
        self.reset(0)
        return self.log_softmax(torch.cat(found, 1))

    def _roots(self, ids: list[int], hidden: Tensor, anchors: Tensor) -> tuple[Tensor, Tensor]:
        """Read a text: logits [A, D, V] of the roots and those after them, each in the layer of its
        depth, and what the last layer made of them [A, h]."""
        first = int(anchors[0])
        self._read_rows(ids[1:first], hidden[: first - 1])
        found: list[list[tuple[Tensor, Tensor]]] = [[] for _ in self.heads]
        for low in range(first - 1, len(hidden), AT_ONCE):
            given = hidden[low : low + AT_ONCE]
            read = self._read_some(ids[low + 1 : low + 1 + len(given)], given)
            for depth, (logits, made) in enumerate(read):
                at = anchors + depth - 1 - low
                own = at[(at >= 0) & (at < len(given))]
                found[depth].append((logits[own], made[own]))
        whole = [[torch.cat(parts) for parts in zip(*some, strict=True)] for some in found]
        return torch.stack([logits for logits, _ in whole], 1), whole[-1][1]

    @torch.inference_mode()
    def read_nodes(
        self, tokens: list[int], fed: Tensor, positions: list[int], allowed: Tensor, start: int
    ) -> tuple[Tensor, Tensor]:
        """Logits [R, V] behind nodes, and what was made at them [R, 1 + D, h]. ``fed``: the same
        of their parents, where the first is the target's hidden state; ``start``: the root's
        position."""
        depth, last = torch.tensor(positions) - start, len(self.heads) - 1
        made, logits = torch.zeros_like(fed), fed.new_empty(0)
        row = torch.arange(len(fed), device=fed.device)
        for at in range(min(int(depth.min()), last), last + 1):
            # Rows in layers before a node's own cost little, and nobody sees them.
            own, read = depth.clamp(max=last) == at, at + (depth > at).long()
            given = fed[row, read.to(fed.device)]
            keep = 0 if own.any() else 1
            found, out = self.run(at, tokens, given, positions, allowed, keep)
            made[:, at + 1] = self._passed_on(at, out, given)
            if own.all():
                logits = found
            elif own.any():
                here = own.to(fed.device)[:, None]
                logits = torch.where(here, found, logits) if len(logits) else found
        self._commit(len(tokens))
        return logits, made

    @torch.inference_mode()
    def run(
        self,
        depth: int,
        tokens: list[int],
        hidden: Tensor,
        positions: list[int],
        allowed: Tensor,
        keep: int = 0,
    ) -> tuple[Tensor, Tensor]:
        """Logits [R, V] and hidden states [R, h] of R tokens behind ``hidden`` [R, h] in a depth's
        layer, as ``LmDrafter.forward``; ``positions`` are those of the rows. They are not kept."""
        where, mask = self.rows([at + 1 for at in positions], _from_row(depth, allowed))
        kv = [self.cache, *self._further][depth]
        kv.grow(self.cache.length + len(tokens))
        ids = torch.tensor(tokens, device=input_device(self.lm))
        head = self.heads[depth]
        rows = head.join(hidden, self.embedding(ids).to(hidden.dtype))
        return head(rows, where, mask, kv, keep)

    def _commit(self, rows: int) -> None:
        for kv in (self.cache, *self._further):
            kv.commit(rows)

    def _truncate(self, length: int) -> None:
        for kv in (self.cache, *self._further):
            kv.truncate(length)


def _from_row(first: int, allowed: Tensor) -> Tensor:
    """The rows that each sees, bool [R, S], in a layer whose first rows on a path do not count: no
    target state stands so far before them. Those see each other, so that no row sees nothing."""
    place = allowed.cumsum(-1)
    return allowed & ((place > first) | (place[:, -1:] <= first))


class MtpSession(LmSession):
    def __init__(self, drafter: MtpDrafter, root: int, width: int, last: Tensor):
        """``last``: what there is of the token before the root, as ``MtpDrafter.read_nodes``
        has it."""
        super().__init__(drafter, root, max(width, MIN_LISTED))
        self._head = drafter
        self._fed = last  # the same of each node, [1 + nodes, 1 + D, h]

    def score(self, tokens: list[int], parents: list[int]) -> Tensor:
        where, allowed = self.place(parents)
        fed = self._fed[torch.tensor(parents, device=self._fed.device) + 1]
        logits, made = self._head.read_nodes(tokens, fed, where, allowed, self.start)
        self._fed = torch.cat([self._fed, made])
        return self._head.log_softmax(logits)
