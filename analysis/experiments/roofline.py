"""The roofline: what a round must at least move and compute, and how long that takes here.

Counted from the modules themselves. A forward reads every weight once, the keys and values of its
context once, and writes those of its own rows; it multiplies its rows by every matrix and its
queries by the keys and values they may see. The walk reads the logits of the accepted path, and the
cache copies that path's rows where they do not lie behind each other. Not counted, so that the
result is a lower bound: activations and all other logits, states that layers carry, the rows looked
up in an embedding, norms, softmax, rotary embedding, building, and what an implementation reads
twice. All weights count, so mixtures of experts are overstated.

A multiply-add is two FLOPs. A floor is the larger of bytes ÷ the measured copy bandwidth and
FLOPs ÷ the measured rate of a matrix product; the share reached is the floor ÷ the seconds taken.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from core.drafting.session import Drafter
from core.models.fast_layers import PackedLinear
from core.models.layer_kinds import ATTENDING, layer_kinds
from core.models.layers import Attention as DrafterAttention
from core.rounds.draft import DraftRows
from core.rounds.round import Round

MEMORY, COMPUTE = "memory", "compute"


# ── counting ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Work:
    """Bytes to move and FLOPs to compute, at least."""

    bytes: float = 0.0
    flops: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(self.bytes + other.bytes, self.flops + other.flops)


@dataclass(frozen=True)
class Weights:
    """The weights of some modules: bytes, read once a pass, and FLOPs of the matrices per row."""

    bytes: int
    flops: int

    @staticmethod
    def of(*modules: nn.Module, without: Collection[nn.Module] = ()) -> Weights:
        """All below ``modules`` but embeddings and ``without``; a shared tensor is read once."""
        parts = {m: None for module in modules for m in module.modules()}
        left_out = {m for module in without for m in module.modules()}
        tensors, packed, flops = {}, 0, 0
        for part in parts:
            if part in left_out or isinstance(part, nn.Embedding):
                continue
            tensors |= {id(p): p.nbytes for p in part.parameters(recurse=False)}
            if isinstance(part, PackedLinear):
                packed += part.nbytes
            if isinstance(part, (nn.Linear, PackedLinear)):
                flops += 2 * part.in_features * part.out_features
        return Weights(sum(tensors.values()) + packed, flops)

    def work(self, rows: float) -> Work:
        """A pass of ``rows`` rows through them; none read nothing."""
        return Work(self.bytes, self.flops * rows) if rows else Work()


@dataclass(frozen=True)
class AttentionShape:
    """Attention of all layers: query heads, key/value heads, head width, bytes of one number."""

    layers: int
    heads: int
    groups: int
    width: int
    item: int

    @staticmethod
    def of(config: PreTrainedConfig, dtype: torch.dtype) -> AttentionShape:
        """From a Llama-like config; a model of several parts counts its text part. Layers that
        carry a state keep no keys."""
        text = config.get_text_config()
        heads = text.num_attention_heads
        return AttentionShape(
            sum(kind in ATTENDING for kind in layer_kinds(config)),
            heads,
            getattr(text, "num_key_value_heads", None) or heads,
            getattr(text, "head_dim", None) or text.hidden_size // heads,
            dtype.itemsize,
        )

    @staticmethod
    def among(layers: Sequence[DrafterAttention], dtype: torch.dtype) -> AttentionShape:
        """Of a drafter's layers, which are alike."""
        if not layers:
            return AttentionShape(0, 0, 0, 0, 0)
        shape = layers[0].shape
        return AttentionShape(
            len(layers), shape.heads, shape.groups, shape.head_dim, dtype.itemsize
        )

    @property
    def row_bytes(self) -> int:
        """Keys and values of one token, in all layers."""
        return 2 * self.layers * self.groups * self.width * self.item

    @property
    def pair_flops(self) -> int:
        """One query against one key and its value, in all heads and layers."""
        return 4 * self.layers * self.heads * self.width

    def work(self, read: float, written: float, pairs: float) -> Work:
        """Cache rows read and written, and (query, key) pairs scored and summed."""
        return Work(self.row_bytes * (read + written), self.pair_flops * pairs)


@dataclass(frozen=True)
class Forward:
    """The target's forward: all weights but embedding and head, the head, attention. ``logits``:
    bytes of one row of them."""

    body: Weights
    head: Weights
    attention: AttentionShape
    logits: int

    @staticmethod
    def of(model: PreTrainedModel) -> Forward:
        """A causal LM's. A head tied to the embedding is read as the head."""
        head = model.get_output_embeddings()
        assert head is not None, "a causal LM has a head"
        body = Weights.of(model, without=(head,))
        attention = AttentionShape.of(model.config, model.dtype)
        logits = model.config.get_text_config().vocab_size * model.dtype.itemsize
        return Forward(body, Weights.of(head), attention, logits)

    def work(
        self, rows: int, context: int, pairs: float | None = None, scored: int | None = None
    ) -> Work:
        """N rows on S context rows, the head on ``scored`` of them (None: all).

        ``pairs``: how many (row, own row) pairs may see each other; None: a causal text's
        N·(N + 1) / 2. A tree's is the sum of its rows' depths + 1.
        """
        own = rows * (rows + 1) / 2 if pairs is None else pairs
        return (
            self.body.work(rows)
            + self.head.work(rows if scored is None else scored)
            + self.attention.work(context, rows, rows * context + own)
        )

    def verify(self, draft: DraftRows, context: int) -> Work:
        """The forward that scores a draft."""
        return self.work(len(draft), context, float(draft.depths.sum()) + len(draft))

    def commit(self, path: Sequence[int] = (0,)) -> Work:
        """Walk and cache: the logits after the accepted ``path`` are read for the target's tokens,
        and cache rows that do not lie behind each other are copied."""
        moved = 0 if tuple(path) == tuple(range(len(path))) else 2 * len(path)
        return Work(self.logits * len(path) + self.attention.row_bytes * moved)

    def stored(self, bytes: int, cache: torch.dtype) -> Forward:
        """The same forward over weights of so many bytes, with another kind of cache."""
        return replace(
            self,
            body=replace(self.body, bytes=bytes),
            head=replace(self.head, bytes=0),
            attention=replace(self.attention, item=cache.itemsize),
        )


@dataclass(frozen=True)
class Drafting:
    """A drafter's network in one round.

    body     its own weights: bytes; FLOPs of one row of its block
    context  FLOPs of one newly committed token: its feature's projection to keys and values
    rows     rows of a block; ``own`` of their pairs see each other; ``scored`` get the head
    state    what each expanded state costs after the block, head included; None: nothing
    in_turn  whether states are scored depth by depth, the root's with the block
    """

    body: Weights
    context: int
    rows: int
    own: float
    scored: int
    head: Weights
    attention: AttentionShape
    state: Weights | None = None
    in_turn: bool = False

    @staticmethod
    def of(drafter: Drafter | None) -> Drafting | None:
        """From the work a drafter describes (``DraftWork``); None where it describes none."""
        work = None if drafter is None else drafter.work
        if work is None:
            return None
        layers = [m for m in work.network.modules() if isinstance(m, DrafterAttention)]
        projections = (p for layer in layers for p in (layer.k_proj, layer.v_proj))
        head, state = Weights.of(work.head), None
        if work.state is not None:
            own = Weights.of(work.state)
            state = Weights(own.bytes + head.bytes, own.flops + head.flops)
        return Drafting(
            body=Weights(Weights.of(work.network).bytes, Weights.of(work.block).flops),
            context=Weights.of(work.context, *projections).flops,
            rows=work.rows,
            own=work.pairs,
            scored=work.scored,
            head=head,
            attention=AttentionShape.among(layers, next(work.network.parameters()).dtype),
            state=state,
            in_turn=work.in_turn,
        )

    def expanded(self, record: Round) -> tuple[int, ...]:
        """States in each pass after the block: every list after a row of the draft needed its state
        to be expanded."""
        proposal = record.proposal
        if proposal is None or proposal.factorised_lists:
            return ()
        if not self.in_turn:
            return (len(proposal.lists.ids),)
        depths = record.draft.depths[proposal.after >= 0]
        return tuple(count for count in np.bincount(depths)[1:].tolist() if count)

    def work(self, context: int, fresh: int, states: Sequence[int] = ()) -> tuple[Work, ...]:
        """Passes of one round after ``context`` tokens, ``fresh`` of them new.

        ``states``: how many expanded states each pass after the block scores.
        """
        pairs = self.rows * context + self.own
        first = Work(self.body.bytes, self.body.flops * self.rows + self.context * fresh)
        first += self.head.work(self.scored) + self.attention.work(context, fresh, pairs)
        if self.state is None:
            return (first,)
        return first, *map(self.state.work, states)


@dataclass(frozen=True)
class RoundWork:
    """The work of a round, by stage: the drafter's passes, the target's forward, walk and cache.
    Building a draft moves and computes nothing that is worth counting."""

    draft: tuple[Work, ...]
    verify: Work
    commit: Work

    @property
    def passes(self) -> tuple[Work, ...]:
        return (*self.draft, self.verify, self.commit)

    def stage(self, name: str) -> tuple[Work, ...]:
        """Those of a stage of ``core.rounds.round.Times``."""
        return {"draft": self.draft, "verify": (self.verify,), "commit": (self.commit,)}.get(
            name, ()
        )


@dataclass(frozen=True)
class Passes:
    """The work of a decoding: for the prompt, and in each round."""

    prompt: tuple[Work, ...]
    rounds: tuple[RoundWork, ...]
    rows: int = 0  # that the target scored in the rounds


def passes_of(
    target: Forward, drafting: Drafting | None, prompt: int, rounds: Sequence[Round]
) -> Passes:
    """Those of a run after a prompt of ``prompt`` tokens."""
    real = [r for r in rounds if r.committed]  # a text of one token has a record, and no round
    fresh = [prompt, *(r.accepted + 1 for r in real)]
    found = (round_work(target, drafting, *both) for both in zip(real, fresh, strict=False))
    rows = sum(len(r.draft) for r in real)
    return Passes((target.work(prompt, 0, scored=1),), tuple(found), rows)


def round_work(target: Forward, drafting: Drafting | None, record: Round, fresh: int) -> RoundWork:
    """That of one round; ``fresh`` tokens were committed since the drafter drafted last."""
    drafted: tuple[Work, ...] = ()
    if drafting is not None:
        drafted = drafting.work(record.position, fresh, drafting.expanded(record))
    verify, commit = (
        target.verify(record.draft, record.position),
        target.commit(record.verdict.path),
    )
    return RoundWork(drafted, verify, commit)


def plain_passes(target: Forward, prompt: int, tokens: int) -> Passes:
    """Those of ``tokens`` new tokens, one forward each; the prompt gives the first."""
    rounds = tuple(
        RoundWork((), target.work(1, prompt + done), target.commit()) for done in range(tokens - 1)
    )
    return Passes((target.work(prompt, 0, scored=1),), rounds, len(rounds))


# ── the machine ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Machine:
    """Measured limits: bytes/s of a large copy (read and written both count), FLOP/s of a large
    matrix product in the compute dtype."""

    bandwidth: float
    rate: float

    def floor(self, passes: Sequence[Work]) -> float:
        """Seconds that passes take at least, one after the other."""
        return sum(max(self._seconds(work)) for work in passes)

    def bound(self, passes: Sequence[Work]) -> str:
        """Which limit makes most of the floor."""
        by_memory = sum(m for m, c in map(self._seconds, passes) if m >= c)
        return MEMORY if 2 * by_memory >= self.floor(passes) else COMPUTE

    def _seconds(self, work: Work) -> tuple[float, float]:
        return work.bytes / self.bandwidth, work.flops / self.rate


class Gauge:
    """Measures a machine's limits, best in turns with what is held against them.

    A sample is a copy of 256 MiB (512 on a GPU) and a product of square matrices, on the device
    and with torch's threads.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype):
        on_gpu = device.type == "cuda"
        self._device, self._times = device, 8 if on_gpu else 1  # waiting must not show
        self._source = torch.ones((512 if on_gpu else 256) << 18, device=device)
        self._copy = torch.zeros_like(self._source)
        side = 8192 if on_gpu else 1536
        self._matrix = torch.randn(side, side, device=device).to(dtype)
        self._product = torch.empty_like(self._matrix)
        self._copies: list[float] = []
        self._products: list[float] = []
        self._sample()  # the first warms up

    def sample(self) -> None:
        copy, product = self._sample()
        self._copies.append(copy)
        self._products.append(product)

    def _sample(self) -> tuple[float, float]:
        """Seconds of one copy and of one product."""
        copy = self._seconds(lambda: self._copy.copy_(self._source))
        mm = self._seconds(lambda: torch.mm(self._matrix, self._matrix, out=self._product))
        return copy, mm

    def _seconds(self, call: Callable[[], object]) -> float:
        def repeated() -> None:
            for _ in range(self._times):
                call()

        return seconds_of(self._device, repeated) / self._times

    @property
    def machine(self) -> Machine:
        """The machine by the medians of the samples, of which there is at least one."""
        if not self._copies:
            self.sample()
        moved, flops = 2 * self._source.nbytes, 2 * len(self._matrix) ** 3
        return Machine(moved / median(self._copies), flops / median(self._products))


def seconds_of(device: torch.device, call: Callable[[], object]) -> float:
    """Wall seconds of a call, the device's work included and nothing before it."""
    _wait(device)
    began = time.perf_counter()
    call()
    _wait(device)
    return time.perf_counter() - began


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
