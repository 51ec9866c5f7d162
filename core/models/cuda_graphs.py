"""Forwards whose shapes never change, so that a GPU can replay them as one CUDA graph.

A round of batch 1 is bound by launching its kernels: some 20 ms for a model whose weights take 2 ms
to read. A graph launches them all at once, but it replays *the same* kernels on *the same* memory.
So drafts are padded to a few sizes (``BUCKETS``), every row attends over the whole cache behind a
mask, and what a round brings is written in place into buffers that stay where they are.

The same code runs uncaptured on a CPU, which is how it is tested against the plain forward.
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

# Rows of a forward: a root and 0, 8, 16, … 1024 nodes.
BUCKETS = (1, 9, 17, 33, 65, 129, 257, 513, 1025)
WARM_UPS = 3  # libraries choose their kernels and take their workspaces before a capture


class CannotCapture(RuntimeError):
    """A GPU refused to capture a forward's kernels: it is to be read plainly from then on."""


Outputs = tuple[Tensor, ...]
# (ids [N], positions [N], additive mask [N, S]) → what a forward gives, each [N, …]
Read = Callable[[Tensor, Tensor, Tensor], Outputs]


def bucket(rows: int) -> int:
    """The fewest rows a padded forward of ``rows`` rows has; above the largest bucket, ``rows``."""
    return next((size for size in BUCKETS if size >= rows), rows)


class Replayed:
    """A function of buffers that stay where they are. On a GPU its kernels are captured at the
    first call, with the real inputs that lie in the buffers, and replayed from then on."""

    def __init__(self, run: Callable[[], Outputs], device: torch.device):
        self._run, self._device = run, device
        self._graph: torch.cuda.CUDAGraph | None = None
        self._outputs: Outputs = ()

    def __call__(self) -> Outputs:
        """Valid until the next call: a replay writes the same memory again. Raises CannotCapture
        the first time, if ever."""
        if self._device.type != "cuda":
            return self._run()
        if self._graph is None:
            try:
                self._graph = self._capture()
            except RuntimeError as error:
                reason = first_line(error)
                logging.getLogger(__name__).warning("read without a CUDA graph: %s", reason)
                raise CannotCapture(reason) from error
        self._graph.replay()
        return self._outputs

    @property
    def captured(self) -> bool:
        """Whether what is called is a CUDA graph."""
        return self._graph is not None

    def _capture(self) -> torch.cuda.CUDAGraph:
        with torch.cuda.device(self._device):  # streams and graphs are the current device's
            here, beside = torch.cuda.current_stream(), _beside(torch.cuda.current_device())
            beside.wait_stream(here)
            with torch.cuda.stream(beside):
                for _ in range(WARM_UPS):
                    self._run()
            here.wait_stream(beside)
            graph = torch.cuda.CUDAGraph()
            try:
                # What other threads ask of the GPU meanwhile must not spoil the capture.
                with torch.cuda.graph(graph, stream=beside, capture_error_mode="thread_local"):
                    self._outputs = self._run()
            finally:
                torch.cuda.set_stream(here)  # a capture that fails leaves its own in place
        return graph


@lru_cache
def _beside(device: int) -> torch.cuda.Stream:
    """One stream for all of a GPU's captures: each new one would keep a cuBLAS workspace for good,
    and torch's own belongs to the GPU that captured first."""
    return torch.cuda.Stream(device)


@dataclass(frozen=True, eq=False)
class Padded:
    """What a draft's fixed forward is brought: ids and depths [N], who sees whom [N, N], and how
    many rows of the cache are committed. The rest never changes."""

    ids: Tensor
    depths: Tensor
    allowed: Tensor
    seen: Tensor
    offsets: Tensor
    columns: Tensor
    open: Tensor  # the mask of someone who sees all [N, S]

    @staticmethod
    def make(rows: int, capacity: int, like: Tensor) -> Padded:
        """Rows that see the context and themselves, in the precision and on the device of
        ``like``."""
        whole = {"dtype": torch.long, "device": like.device}
        return Padded(
            torch.zeros(rows, **whole),
            torch.zeros(rows, **whole),
            torch.eye(rows, dtype=torch.bool, device=like.device),
            torch.zeros((), **whole),
            torch.arange(rows, device=like.device),
            torch.arange(capacity, device=like.device),
            like.new_zeros(rows, capacity),
        )

    def forward(self, read: Read, cache: StaticKV) -> Outputs:
        """The rows' outputs; their keys go behind the committed rows of the cache."""
        slots = self.seen + self.offsets
        context = (self.columns < self.seen).expand(len(slots), -1)
        visible = context.index_copy(1, slots, self.allowed)
        mask = self.open.masked_fill(~visible, mask_value(self.open.dtype))
        with cache.fixed(slots):
            return read(self.ids, self.seen + self.depths, mask)


class FixedForward:
    """A draft's forward, padded to ``rows`` rows, on the whole of one cache.

    Padding sees the context and itself; nobody sees padding. Its keys land behind the draft's, in
    rows that the next forward overwrites.
    """

    def __init__(self, read: Read, cache: StaticKV, rows: int, like: Tensor):
        """``like``: a tensor on the device and in the precision of the mask."""
        self._cache, self.rows = cache, rows
        self.padded = padded = Padded.make(rows, cache.capacity, like)
        # Not a method of this object: in a circle with it, a cache left behind would stay.
        self._replayed = Replayed(partial(padded.forward, read, cache), like.device)

    @property
    def fits(self) -> bool:
        """Whether the cache has room for all rows, padding included."""
        return self._cache.length + self.rows <= self._cache.capacity

    def __call__(self, ids: Tensor, depths: Tensor, allowed: Tensor) -> Outputs:
        """ids [n], depths [n], allowed [n, n] of a draft of n ≤ ``rows`` rows → outputs [n, …].

        They are valid until the next call. Raises CannotCapture.
        """
        count, padded = len(ids), self.padded
        padded.ids[:count].copy_(ids, non_blocking=True)
        padded.depths[:count].copy_(depths, non_blocking=True)
        padded.allowed[:count] = False
        padded.allowed[:count, :count].copy_(allowed, non_blocking=True)
        padded.seen.fill_(self._cache.length)
        return tuple(out[:count] for out in self._replayed())


@dataclass(frozen=True, eq=False)
class Fresh:
    """What a drafter's fixed pass is brought: features [N, W] of tokens in rows ``known``,
    ``known`` + 1, … of its context, ``count`` of them real, and ids [M] of which the drafter says
    what they are. ``offsets`` are 0 … N − 1; what the text decides lies on the device."""

    features: Tensor
    ids: Tensor
    known: Tensor
    count: Tensor
    offsets: Tensor

    @property
    def slots(self) -> Tensor:
        """The rows of the context its features belong in [N]. Padding lands behind: nothing sees
        it, and the next round writes over it."""
        return self.known + self.offsets


class FixedPass:
    """A drafter's round, padded to as many new rows as ``fresh`` holds, on ``capacity`` rows of
    context."""

    def __init__(
        self,
        run: Callable[[Fresh], Tensor],
        features: tuple[int, int],
        ids: Tensor,
        capacity: int,
        like: Tensor,
    ):
        """``features`` is the shape of what it takes in, in the precision and on the device of
        ``like``; ``ids`` stand there unless said otherwise."""
        number, self._capacity = like.new_zeros((), dtype=torch.long), capacity
        self.fresh = fresh = Fresh(
            like.new_zeros(features),
            ids.to(like.device),
            number,
            number.clone(),
            torch.arange(features[0], device=like.device),
        )
        self._replayed = Replayed(lambda: (run(fresh),), like.device)

    def fits(self, known: int, count: int) -> bool:
        """Whether so many new rows behind ``known`` are taken in, padding included."""
        size = len(self.fresh.offsets)
        return count <= size and known + size <= self._capacity

    def __call__(self, features: Tensor, known: int, ids: Sequence[int]) -> Tensor:
        """New features [T, W] behind ``known`` rows, and the first of the ids → what the drafter's
        pass gives, valid until the next call. Raises CannotCapture."""
        fresh = self.fresh
        fresh.features[: len(features)].copy_(features)
        fresh.known.fill_(known)
        fresh.count.fill_(len(features))
        fresh.ids[: len(ids)].copy_(torch.tensor(ids), non_blocking=True)
        return self._replayed()[0]
