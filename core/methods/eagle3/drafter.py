"""The EAGLE-3 drafter at work: the layers with the target's embedding and a head, on one text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from core.drafting.best import worth_a_batch
from core.drafting.network import NetworkDrafter
from core.drafting.session import MIN_LISTED, Covered, DraftSession, PathSession
from core.drafting.work import DraftWork
from core.methods.eagle3.model import FORM, Contexts, EagleModel
from core.methods.loading import loaded
from core.methods.method import DepthOptions
from core.models.checkpoint import Form
from core.models.language import Language


def _equal(own: nn.Embedding, theirs: nn.Module) -> bool:
    """Whether two tables of embeddings hold the same rows, in the precision of published files."""
    mine, table = own.weight.bfloat16(), getattr(theirs, "weight", None)
    return isinstance(table, Tensor) and torch.equal(mine, table.to(mine))


class EagleDrafter(NetworkDrafter):
    """The layers with an embedding and a head, and one text's keys and values.

    The embedding is the network's own where it has one, else the target's.

    A prefix row needs the token after it, so a committed token's feature waits for the next one.

    layers  the target layers whose hidden states it reads
    ids     int64 [C], the target's token of each row of the head; None: all
    """

    def __init__(
        self,
        model: EagleModel,
        embedding: nn.Module,
        head: nn.Module,
        layers: tuple[int, ...],
        ids: Tensor | None = None,
        options: DepthOptions = DepthOptions(),  # noqa: B008 (frozen)
    ):
        own = model.embed_tokens
        self.model, self.head = model, head
        self.embedding = embedding if own is None else own
        self.layers, self.options, self.temperature = layers, options, options.temperature
        self.covered = None if ids is None else Covered(ids, model.config.vocab_size)
        self._context: Contexts | None = None
        self._forget()

    def _forget(self) -> None:
        self._waiting: list[Tensor] = []
        self._tokens: list[int] = []
        self._length = 0  # prefix rows that are final

    @property
    def max_depth(self) -> int:
        return self.options.depth

    @property
    def work(self) -> DraftWork:
        model, every = self.model, nn.ModuleList(self.model.stack)
        return DraftWork(
            network=model,
            context=nn.ModuleList([model.fc, *model.stack[:-1]]),
            block=every,
            head=self.head,
            rows=1,
            pairs=1,
            scored=1,
            state=every,
            in_turn=True,
        )

    def reset(self, capacity: int) -> None:
        if self._context is None or self._context[0].rows < capacity:
            self._context = self.model.empty(capacity)
        self._forget()

    def extend(self, tokens: Sequence[int], features: Tensor) -> None:
        """Newly committed tokens [T] and their features [T, F·h]."""
        self._tokens += tokens
        self._waiting.append(features)

    @torch.inference_mode()
    def begin(self, root: int, width: int) -> DraftSession:
        """Take in the rows whose next token is committed. The last row's is only supposed to be
        ``root``: it is the session's first node, and waits for the next round."""
        assert self._context is not None, "reset comes first"
        like = self.model.like
        features = torch.cat(self._waiting).to(like.dtype)
        hidden, count = self.model.reduce(features), len(self._tokens) - 1
        if count:
            positions = torch.arange(count, device=like.device) + self._length
            embedded, known = self.embed(self._tokens[1:]), _first(self._context, self._length)
            fresh = self.model.project(hidden[:-1], embedded, known, positions)
            for layer, own in zip(self._context, fresh, strict=True):
                layer.write(self._length, own)
        self._length += count
        self._waiting, self._tokens = [features[-1:]], self._tokens[-1:]
        return self.session(_first(self._context, self._length), hidden[-1:], root, width)

    def session(self, context: Contexts, last: Tensor, root: int, width: int) -> DraftSession:
        """A session on the keys and values of a prefix, whose last token's feature is ``last``
        [1, h]."""
        return EagleSession(self, context, last, root, width)

    @torch.inference_mode()
    def begin_each(
        self, tokens: Tensor, features: Tensor, anchors: Tensor, width: int
    ) -> Iterator[DraftSession]:
        """Sessions with roots at A places of one text, on the keys and values of one pass."""
        features, last, ids = features.to(self.model.like.dtype), int(anchors[-1]), tokens.tolist()
        hidden, context = self.model.read(self.embedding, tokens, features, last)
        for anchor in anchors.tolist():
            before = _first(context, anchor - 1)
            yield self.session(before, hidden[anchor - 1 : anchor], ids[anchor], width)

    @torch.inference_mode()
    def log_q_at(self, tokens: Tensor, features: Tensor, anchors: Tensor) -> Tensor:
        features = features.to(self.model.like.dtype)
        rows = self.model.rows_at(self.embedding, tokens, features, anchors, self.max_depth)
        log_q = self.whole(self.log_softmax(self.head(rows.flatten(0, 1))))
        return log_q.unflatten(0, rows.shape[:2])

    def embed(self, tokens: Sequence[int]) -> Tensor:
        """Embeddings [N, h]."""
        like = self.model.like
        return self.embedding(torch.tensor(tokens, device=like.device)).to(like.dtype)


def _first(context: Contexts, rows: int) -> Contexts:
    """A view of each layer's first rows."""
    return tuple(layer.first(rows) for layer in context)


class EagleSession(PathSession):
    """A round's tree. Its keys and values are the session's own: what is committed is fed again
    with the target's features.

    context  each layer's keys and values of the prefix, [G, T, D]
    """

    def __init__(
        self, drafter: EagleDrafter, context: Contexts, last: Tensor, root: int, width: int
    ):
        """``last``: the feature [1, h] of the token before the root."""
        super().__init__(root, drafter.max_depth, max(width, MIN_LISTED), drafter.covered)
        self._drafter, self._rows = drafter, context
        self._prefix = context[0].rows
        self.at_once = worth_a_batch(last.device)
        self._fed = last  # the feature that was made after each node, [1 + nodes, h]
        self._above: list[list[int]] = []  # every node's ancestors and itself

    @torch.inference_mode()
    def score(self, tokens: list[int], parents: list[int]) -> Tensor:
        model = self._drafter.model
        above = [self._above[parent] if parent >= 0 else [] for parent in parents]
        visible = torch.zeros(len(tokens), self._rows[0].rows, dtype=torch.bool)
        visible[:, : self._prefix] = True
        for row, nodes in enumerate(above):
            visible[row, [self._prefix + node for node in nodes]] = True
        device = self._fed.device
        positions = torch.tensor([self._prefix + len(nodes) for nodes in above], device=device)
        seen = model.seen(visible.to(device), positions, self._prefix)
        hidden = self._fed[torch.tensor(parents, device=device) + 1]
        rows = model.join(hidden, self._drafter.embed(tokens), positions)
        fed, out, near = model(rows, self._rows, seen)
        self._rows = tuple(old.then(own) for old, own in zip(self._rows, near, strict=True))
        self._above += [[*nodes, len(self._above) + i] for i, nodes in enumerate(above)]
        self._fed = torch.cat([self._fed, fed])
        return self._drafter.log_softmax(self._drafter.head(out))


def loader(
    kind: str, form: Form[Any, Any], drafter: type[EagleDrafter] = EagleDrafter
) -> Callable[[Language, Path | None, DepthOptions], EagleDrafter]:
    """The ``load`` of a kind of drafters whose network is an ``EagleModel``: the one in a folder
    (None: the one that ships) on the target's device. It raises UserError when there is none or it
    was made for another target."""

    def load(language: Language, folder: Path | None, options: DepthOptions) -> EagleDrafter:
        model, embedding, head, covered = loaded(kind, form, language, folder)
        if (own := model.embed_tokens) is not None and _equal(own, embedding):
            model.embed_tokens = None  # a copy of the target's, as EAGLE's own trainer writes it
        count = language.model.config.get_text_config().num_hidden_layers
        ids = None if covered is None else covered.ids
        return drafter(model, embedding, head, model.config.feature_layers(count), ids, options)

    return load


load = loader("eagle3", FORM)
