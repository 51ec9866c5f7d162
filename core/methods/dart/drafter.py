"""The DART drafter at work: the network with the target's embedding and a head, on one text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from core.drafting.network import NetworkDrafter
from core.drafting.session import Covered, DraftSession
from core.drafting.work import DraftWork
from core.methods.dart.model import FORM, DartModel, PrefixRows
from core.methods.loading import loaded
from core.methods.method import QOptions
from core.models.cuda_graphs import CaptureError, DrafterInputs, PaddedDrafterPass
from core.models.language import Language
from core.models.layers import LayerContext


def load(language: Language, folder: Path | None, options: QOptions) -> DartDrafter:
    """The DART drafter in ``folder`` (None: the one that ships) on the target's device.

    Raises UserError when there is none or it was made for another target.
    """
    model, embedding, head, covered = loaded("dart", FORM, language, folder)
    layers = model.config.feature_layers(language.model.config.get_text_config().num_hidden_layers)
    return DartDrafter(model, embedding, head, layers, options.temperature, covered=covered)


class DartDrafter(NetworkDrafter):
    """The network with the target's embedding, a head, and one text's projected prefix.

    A prefix row needs the token after it, so a committed token's feature waits for the next one.
    ``padded``: draft in shapes that never change, as DFlash's does.
    """

    def __init__(
        self,
        model: DartModel,
        embedding: nn.Module,
        head: nn.Module,
        layers: tuple[int, ...],
        temperature: float = 1.0,
        padded: bool | None = None,
        covered: Covered | None = None,
    ):
        self.model, self.embedding, self.head = model, embedding, head
        self.layers, self.temperature, self.covered = layers, temperature, covered
        self._padded = model.norm.weight.device.type == "cuda" if padded is None else padded
        self._context: LayerContext | None = None
        self._pass: PaddedDrafterPass | None = None  # on this context
        self._forget()

    def _forget(self) -> None:
        self._waiting: list[Tensor] = []
        self._tokens: list[int] = []
        self._length = 0  # prefix rows that are final

    @property
    def max_depth(self) -> int:
        return self.model.config.max_depth

    @property
    def work(self) -> DraftWork:
        rows = self.max_depth
        return DraftWork(
            network=self.model,
            context=self.model.fc,
            block=self.model.midlayer,
            head=self.head,
            rows=rows,
            pairs=rows * (rows + 1) / 2,
            scored=rows,
        )

    def reset(self, capacity: int) -> None:
        """Forget the text. Memory of the last text is used again if it is enough."""
        if self._context is None or self._context.rows < capacity:
            shape, like = self.model.config.shape, self.model.norm.weight
            self._context = LayerContext.empty(shape, capacity, like)
            self._pass = None
        self._forget()

    def extend(self, tokens: Sequence[int], features: Tensor) -> None:
        """Newly committed tokens [T] and their features [T, 3h]."""
        self._tokens += tokens
        self._waiting.append(features)

    @torch.inference_mode()
    def begin(self, root: int, width: int) -> DraftSession:
        """One pass over the waiting prefix rows and the masks."""
        return self.by_depth(self._log_q(self._rows(root)), width)

    @torch.inference_mode()
    def begin_each(
        self, tokens: Tensor, features: Tensor, anchors: Tensor, width: int
    ) -> Iterator[DraftSession]:
        """Sessions with roots at A places of one text, from one pass."""
        features = features.to(self.model.norm.weight.dtype)
        for rows in self.model.rows_at(self.embedding, tokens, features, anchors):
            yield self.by_depth(self._log_q(rows), width)

    @torch.inference_mode()
    def log_q_at(self, tokens: Tensor, features: Tensor, anchors: Tensor) -> Tensor:
        features = features.to(self.model.norm.weight.dtype)
        rows = self.model.rows_at(self.embedding, tokens, features, anchors)
        return self.whole(self._log_q(rows.flatten(0, 1))).unflatten(0, rows.shape[:2])

    def _log_q(self, rows: Tensor) -> Tensor:
        """log q [N, C] of rows [N, h]."""
        return self.log_softmax(self.head(rows))

    def _rows(self, root: int) -> Tensor:
        """Rows [L, h] for the head; prefix rows whose next token is committed join the context.

        The last one stays: until ``root`` is committed it is only supposed to be the next token.
        """
        assert self._context is not None, "reset comes first"
        features = torch.cat(self._waiting) if len(self._waiting) > 1 else self._waiting[0]
        next_tokens = [*self._tokens[1:], root]
        rows = self._padded_rows(features, next_tokens) if self._padded else None
        if rows is None:
            rows = self._plain_rows(features, next_tokens, self._context)
        self._length += len(next_tokens) - 1
        self._waiting, self._tokens = [features[-1:]], self._tokens[-1:]
        return rows

    def _plain_rows(
        self, features: Tensor, next_tokens: list[int], context: LayerContext
    ) -> Tensor:
        like = self.model.norm.weight
        ids = torch.tensor(next_tokens, device=like.device)
        prefix = self.model.prefix(features.to(like.dtype), self.embedding(ids).to(like.dtype))
        positions = torch.arange(len(ids), device=like.device) + self._length
        context.write(self._length, self.model.project(prefix, positions))
        last = PrefixRows(prefix.inputs[-1:], prefix.residual[-1:])
        return self.model(last, positions[-1:], context.first(self._length + len(ids) - 1))[0]

    def _padded_rows(self, features: Tensor, next_tokens: list[int]) -> Tensor | None:
        """The same by a padded pass; None when this round's context does not fit one."""
        if self._pass is None:
            self._pass = self._new_pass()
        if not self._pass.fits(self._length, len(next_tokens)):
            return None
        try:
            return self._pass(features, self._length, next_tokens)
        except CaptureError:
            self._padded = False
            return None

    def _new_pass(self) -> PaddedDrafterPass:
        """At most the deepest path, the bonus token and the row that waits are taken in."""
        assert self._context is not None
        features = (self.max_depth + 2, self.model.fc.in_features)
        ids = torch.zeros(self.max_depth + 2, dtype=torch.long)
        return PaddedDrafterPass(
            self._run, features, ids, self._context.rows, self.model.norm.weight
        )

    def _run(self, inputs: DrafterInputs) -> Tensor:
        """A padded pass: all context rows are read, after a mask."""
        assert self._context is not None
        embedded = self.embedding(inputs.ids).to(inputs.features.dtype)
        prefix = self.model.prefix(inputs.features, embedded)
        self._context.write_at(inputs.slots, self.model.project(prefix, inputs.slots))
        end = (inputs.count - 1)[None]
        last = PrefixRows(prefix.inputs.index_select(0, end), prefix.residual.index_select(0, end))
        where = inputs.known + end
        columns = torch.arange(self._context.rows, device=where.device)
        return self.model(last, where, self._context, columns[None] < where[:, None])[0]
