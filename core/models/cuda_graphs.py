"""Forwards of fixed shapes, which a GPU replays as CUDA graphs.

A batch-1 round is bound by launching its kernels: some 20 ms for a model whose weights take 2 ms to
read. A CUDA graph launches them all at once, but it replays *the same* kernels on *the same*
memory. So drafts are padded to a few sizes (``BUCKETS``), every row attends over the whole cache
after a mask, and a round's inputs are copied into buffers that stay in place.

The same code runs uncaptured on a CPU, which is how it is tested against the plain forward.

Shapes: n rows of a draft padded to N, S cache rows, T new context tokens, W width of their
features, M ids that a drafter reads.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import torch
from torch import Tensor

from core.errors import first_line
from core.models.cache import StaticKV, mask_value

# Rows of a padded forward: a root and 0, 8, 16, … 1024 nodes.
BUCKETS = (1, 9, 17, 33, 65, 129, 257, 513, 1025)
WARM_UPS = 3  # libraries choose their kernels and allocate workspaces before a capture


class CaptureError(RuntimeError):
    """A GPU could not capture a forward's kernels; use the plain forward from now on."""


Outputs = tuple[Tensor, ...]
# (ids [N], positions [N], additive mask [N, S]) → the forward's outputs, each [N, …]
Forward = Callable[[Tensor, Tensor, Tensor], Outputs]


def bucket(rows: int) -> int:
    """The size that ``rows`` rows are padded to; above the largest bucket, ``rows`` itself."""
    return next((size for size in BUCKETS if size >= rows), rows)


class CapturedFunction:
    """A function of buffers that stay in place: captured on a GPU at the first call, then replayed.

    The first call captures with the real inputs that lie in the buffers. On a CPU every call runs
    the function.
    """

    def __init__(self, run: Callable[[], Outputs], device: torch.device):
        self._run, self._device = run, device
        self._graph: torch.cuda.CUDAGraph | None = None
        self._outputs: Outputs = ()

    def __call__(self) -> Outputs:
        """The outputs, valid until the next call, which overwrites them.

        Raises CaptureError, at the first call if at all.
        """
        if self._device.type != "cuda":
            return self._run()
        if self._graph is None:
            try:
                self._graph = self._capture()
            except RuntimeError as error:
                reason = first_line(error)
                logging.getLogger(__name__).warning("running without a CUDA graph: %s", reason)
                raise CaptureError(reason) from error
        self._graph.replay()
        return self._outputs

    @property
    def captured(self) -> bool:
        return self._graph is not None

    def _capture(self) -> torch.cuda.CUDAGraph:
        with torch.cuda.device(self._device):  # streams and graphs are the current device's
            current = torch.cuda.current_stream()
            stream = _capture_stream(torch.cuda.current_device())
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                for _ in range(WARM_UPS):
                    self._run()
            current.wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            try:
                # thread_local: other threads may use the GPU without spoiling the capture.
                with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                    self._outputs = self._run()
            finally:
                torch.cuda.set_stream(current)  # a failed capture leaves its own stream current
        return graph


@lru_cache
def _capture_stream(device: int) -> torch.cuda.Stream:
    """One stream for all of a GPU's captures.

    Each new stream would keep a cuBLAS workspace for good, and torch's default capture stream
    belongs to the GPU that captured first.
    """
    return torch.cuda.Stream(device)


@dataclass(frozen=True, eq=False)
class PaddedInputs:
    """The buffers of a padded draft forward.

    ids, depths  int64 [N]
    allowed      bool [N, N], which rows see each other
    seen         int64 scalar, committed rows of the cache
    offsets, columns  0 … N − 1 and 0 … S − 1
    all_open     [N, S], an additive mask that hides nothing
    """

    ids: Tensor
    depths: Tensor
    allowed: Tensor
    seen: Tensor
    offsets: Tensor
    columns: Tensor
    all_open: Tensor

    @staticmethod
    def make(rows: int, capacity: int, like: Tensor) -> PaddedInputs:
        """Rows that see the context and themselves, of the dtype and device of ``like``."""
        integers = {"dtype": torch.long, "device": like.device}
        return PaddedInputs(
            torch.zeros(rows, **integers),
            torch.zeros(rows, **integers),
            torch.eye(rows, dtype=torch.bool, device=like.device),
            torch.zeros((), **integers),
            torch.arange(rows, device=like.device),
            torch.arange(capacity, device=like.device),
            like.new_zeros(rows, capacity),
        )

    def run(self, forward: Forward, cache: StaticKV) -> Outputs:
        """The outputs of these rows; their keys go after the committed rows of the cache."""
        slots = self.seen + self.offsets
        context = (self.columns < self.seen).expand(len(slots), -1)
        visible = context.index_copy(1, slots, self.allowed)
        mask = self.all_open.masked_fill(~visible, mask_value(self.all_open.dtype))
        with cache.write_to(slots):
            return forward(self.ids, self.seen + self.depths, mask)


class PaddedForward:
    """A draft's forward, padded to ``rows`` rows, on the whole of one cache.

    Padding sees the context and itself; no row of the draft sees padding. Its keys land after the
    draft's, in rows that the next forward overwrites.
    """

    def __init__(self, forward: Forward, cache: StaticKV, rows: int, like: Tensor):
        """``like``: a tensor on the device and in the precision of the mask."""
        self._cache, self.rows = cache, rows
        self.inputs = PaddedInputs.make(rows, cache.capacity, like)
        # Not a method of this object: a reference cycle would keep a dropped cache alive.
        self._run = CapturedFunction(partial(self.inputs.run, forward, cache), like.device)

    @property
    def fits(self) -> bool:
        """Whether the cache has room for all rows, padding included."""
        return self._cache.length + self.rows <= self._cache.capacity

    def __call__(self, ids: Tensor, depths: Tensor, allowed: Tensor) -> Outputs:
        """ids [n], depths [n], allowed [n, n] of n ≤ ``rows`` rows → outputs [n, …].

        The outputs are valid until the next call. Raises CaptureError.
        """
        count, inputs = len(ids), self.inputs
        inputs.ids[:count].copy_(ids, non_blocking=True)
        inputs.depths[:count].copy_(depths, non_blocking=True)
        inputs.allowed[:count] = False
        inputs.allowed[:count, :count].copy_(allowed, non_blocking=True)
        inputs.seen.fill_(self._cache.length)
        return tuple(out[:count] for out in self._run())


@dataclass(frozen=True, eq=False)
class DrafterInputs:
    """The buffers of a padded drafter pass.

    features  [N, W] of new context tokens; the first ``count`` rows are real
    ids       int64 [M] that the pass reads
    known     int64 scalar, context rows before the new ones
    count     int64 scalar
    offsets   0 … N − 1
    """

    features: Tensor
    ids: Tensor
    known: Tensor
    count: Tensor
    offsets: Tensor

    @property
    def slots(self) -> Tensor:
        """The context rows of the features [N]. Padding lands after the real ones: nothing sees
        it, and the next round overwrites it."""
        return self.known + self.offsets


class PaddedDrafterPass:
    """A drafter's pass, padded to a fixed number of new rows, on ``capacity`` rows of context."""

    def __init__(
        self,
        run: Callable[[DrafterInputs], Tensor],
        features: tuple[int, int],
        ids: Tensor,
        capacity: int,
        like: Tensor,
    ):
        """``features`` is the shape [N, W], in the precision and on the device of ``like``;
        ``ids`` [M] are the default ids."""
        number, self._capacity = like.new_zeros((), dtype=torch.long), capacity
        self.inputs = inputs = DrafterInputs(
            like.new_zeros(features),
            ids.to(like.device),
            number,
            number.clone(),
            torch.arange(features[0], device=like.device),
        )
        self._run = CapturedFunction(lambda: (run(inputs),), like.device)

    def fits(self, known: int, count: int) -> bool:
        """Whether ``count`` new rows after ``known`` fit, padding included."""
        size = len(self.inputs.offsets)
        return count <= size and known + size <= self._capacity

    def __call__(self, features: Tensor, known: int, ids: Sequence[int]) -> Tensor:
        """Run the pass on new features [T, W] after ``known`` context rows.

        ``ids`` replace the first of the default ids. The output is valid until the next call.
        Raises CaptureError.
        """
        inputs = self.inputs
        inputs.features[: len(features)].copy_(features)
        inputs.known.fill_(known)
        inputs.count.fill_(len(features))
        inputs.ids[: len(ids)].copy_(torch.tensor(ids), non_blocking=True)
        return self._run()[0]
