"""The DFlash drafter at work: the network with the target's embedding and head, on one text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from core.drafting.network import NetworkDrafter
from core.drafting.session import Covered, DraftSession, tokens_after
from core.drafting.work import DraftWork
from core.methods.dflash.model import FORM, DFlashModel
from core.methods.loading import loaded
from core.methods.method import QOptions
from core.models.checkpoint import Form
from core.models.cuda_graphs import CaptureError, DrafterInputs, PaddedDrafterPass
from core.models.language import Language
from core.models.layers import LayerContext

D = TypeVar("D", bound="DFlashDrafter")
ANCHORS_AT_ONCE = 16  # places of a known text that share a pass


class DFlashDrafter(NetworkDrafter):
    """The network with the target's embedding and head, and one text's projected context.

    Context keys and values are kept across rounds: each round projects only what was committed.
    ``padded``: draft in shapes that never change, which a GPU replays as a CUDA graph (the default
    there).
    """

    def __init__(
        self,
        model: DFlashModel,
        embedding: nn.Module,
        head: nn.Module,
        temperature: float = 1.0,
        padded: bool | None = None,
        covered: Covered | None = None,
    ):
        self.model, self.embedding, self.head = model, embedding, head
        self.covered = covered
        self._before = 0  # the last committed token
        self.temperature = temperature / model.config.logit_scale
        self._padded = model.norm.weight.device.type == "cuda" if padded is None else padded
        self._waiting: list[Tensor] = []
        self._context: list[LayerContext] = []
        self._pass: PaddedDrafterPass | None = None  # on this context
        self._length = 0

    @property
    def max_depth(self) -> int:
        return self.model.config.max_depth

    @property
    def layers(self) -> tuple[int, ...]:
        return self.model.config.target_layer_ids

    @property
    def work(self) -> DraftWork:
        model, size = self.model, self.model.config.block_size
        return DraftWork(
            network=model,
            context=model.fc,
            block=model.layers,
            head=self.head,
            rows=size,
            pairs=size * size,
            scored=self.max_depth,
        )

    def reset(self, capacity: int) -> None:
        """Forget the text. Memory of the last text is used again if it is enough."""
        if not self._context or self._context[0].rows < capacity:
            shape, like = self.model.config.shape, self.model.norm.weight
            self._context = [LayerContext.empty(shape, capacity, like) for _ in self.model.layers]
            self._pass = None
        self._waiting, self._length = [], 0

    def extend(self, tokens: Sequence[int], features: Tensor) -> None:
        """Features [T, F·h] of newly committed tokens; projected when the next round drafts."""
        self._waiting.append(features)
        self._before = [self._before, *tokens][-1]

    @torch.inference_mode()
    def begin(self, root: int, width: int) -> DraftSession:
        """One pass over [root, mask × L]; everything a round asks for follows from it."""
        return self.session(self.hidden(root), (self._before, root), width)

    @torch.inference_mode()
    def begin_each(
        self, tokens: Tensor, features: Tensor, anchors: Tensor, width: int
    ) -> Iterator[DraftSession]:
        """Sessions with roots at A places of one text, many from each pass. The drafter's own text
        stays as it is."""
        features = features.to(self.model.norm.weight.dtype)
        for some in anchors.split(ANCHORS_AT_ONCE) if len(anchors) else ():
            rows = self.model.rows_at(self.embedding, tokens, features, some)
            ends = torch.stack([tokens[some - 1], tokens[some]], 1).tolist()
            for hidden, (before, root) in zip(rows, ends, strict=True):
                yield self.session(hidden, (before, root), width)

    @torch.inference_mode()
    def log_q_at(self, tokens: Tensor, features: Tensor, anchors: Tensor) -> Tensor:
        features = features.to(self.model.norm.weight.dtype)
        rows = self.model.rows_at(self.embedding, tokens, features, anchors)
        paths = tokens_after(tokens, anchors - 1, 1 + self.max_depth)
        log_q = self.log_softmax(self.logits(rows, paths))
        return self.whole(log_q.flatten(0, 1)).unflatten(0, log_q.shape[:2])

    def logits(self, hidden: Tensor, paths: Tensor) -> Tensor:
        """Logits [A, L, C] of blocks' residual rows [A, b, h], along paths [A, 1 + L] that begin
        with the token before the root."""
        return self.head(self.model.norm(hidden))

    def session(self, hidden: Tensor, ends: tuple[int, int], width: int) -> DraftSession:
        """The session of a pass's residual rows [b, h], after the last committed token and the
        root."""
        return self.by_depth(self.log_softmax(self.head(self.model.norm(hidden))), width)

    def hidden(self, root: int) -> Tensor:
        """The residual stream [b, h] of the rows that are read; takes in the context that waits."""
        if self._padded and (rows := self._padded_hidden(root)) is not None:
            return rows
        self._project()
        config, like = self.model.config, self.model.norm.weight
        ids = torch.full((1, config.block_size), config.mask_token_id, device=like.device)
        ids[0, 0] = root
        where = torch.arange(config.block_size, device=like.device)[None] + self._length
        seen = [layer.first(self._length) for layer in self._context]
        block = self.model.embed(self.embedding, ids)
        return self.model(block, where, seen)[0, config.first_read :]

    def _padded_hidden(self, root: int) -> Tensor | None:
        """The same by a padded pass; None when this round's context does not fit one."""
        count = sum(map(len, self._waiting))
        if self._pass is None:
            self._pass = self._new_pass()
        if not self._pass.fits(self._length, count):
            return None
        features = self._taken() if count else self._pass.inputs.features[:0]
        try:
            rows = self._pass(features, self._length, (root,))
        except CaptureError:
            self._padded, self._waiting = False, [features]
            return None
        self._length += count
        return rows

    def _new_pass(self) -> PaddedDrafterPass:
        """At most a block of tokens is taken in; after the root stand masks."""
        config, rows = self.model.config, self._context[0].rows
        features = (config.block_size, self.model.fc.in_features)
        block = torch.full((config.block_size,), config.mask_token_id)
        return PaddedDrafterPass(self._run, features, block, rows, self.model.norm.weight)

    def _run(self, inputs: DrafterInputs) -> Tensor:
        """A padded pass: all context rows are read, after a mask."""
        projected = self.model.project(inputs.features, inputs.slots)
        for kept, new in zip(self._context, projected, strict=True):
            kept.write_at(inputs.slots, new)
        length = inputs.known + inputs.count
        columns = torch.arange(self._context[0].rows, device=length.device)
        block = self.model.embed(self.embedding, inputs.ids[None])
        where = (length + inputs.offsets)[None]
        rows = self.model(block, where, self._context, (columns < length)[None])[0]
        return rows[self.model.config.first_read :]

    def _taken(self) -> Tensor:
        """The waiting features [T, F·h], which wait no longer."""
        features = torch.cat(self._waiting) if len(self._waiting) > 1 else self._waiting[0]
        self._waiting = []
        return features

    def _project(self) -> None:
        if not self._waiting:
            return
        features = self._taken()
        start, end = self._length, self._length + len(features)
        positions = torch.arange(start, end, device=features.device)
        fresh = self.model.project(features.to(self.model.norm.weight.dtype), positions)
        for kept, new in zip(self._context, fresh, strict=True):
            kept.write(start, new)
        self._length = end


def loader(
    kind: str, form: Form[Any, Any], drafter: type[D]
) -> Callable[[Language, Path | None, QOptions], D]:
    """The ``load`` of a kind of drafters on DFlash's block: the one in a folder (None: the one that
    ships) on the target's device. It raises UserError when there is none or it was made for another
    target."""

    def load(language: Language, folder: Path | None, options: QOptions) -> D:
        model, embedding, head, covered = loaded(kind, form, language, folder)
        return drafter(model, embedding, head, options.temperature, covered=covered)

    return load


load = loader("dflash", FORM, DFlashDrafter)
