"""The denoiser as training sees it: the target itself, its attention opened inside a block.

A low-rank adapter and one embedding row for the mask are trained; the target stays frozen. The
text before a block is read causally, by the adapted weights but without gradient; the block reads
it and, in both directions, itself. Position i is predicted by row i − 1 (the target's own shift),
so a block's rows begin with the last known token.

States are drawn as decoding meets them: mostly a known left part of the block and masks behind it,
sometimes with known positions among the masks, sometimes any mix at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import DynamicCache

from core.diffusion.adapter import MASK, PARTS, AdapterConfig, save_adapter
from core.diffusion.adapter import Adapter as Saved
from core.errors import UserError
from core.models.cache import mask_value
from core.train.students import Blocks, Lesson, Student, TargetParts

DENOISER = "denoiser"
BLOCK_SIZES = (8, 16, 32)
ROWS = 256  # positions of a document's blocks that share a pass


@dataclass(frozen=True)
class MaskedBlocks(Blocks):
    """Blocks of L positions behind each anchor. ``tokens`` and ``masked`` are [A, L]."""

    tokens: Tensor
    masked: Tensor


class Adapter(nn.Module):
    """W + b·a for every projection of every layer, and the mask token's embedding row."""

    def __init__(self, target: nn.Module, rank: int, mask: Tensor):
        super().__init__()
        self.rank = rank
        self.mask_embedding = nn.Parameter(mask.clone())
        self.low = nn.ParameterDict()
        for name, linear in projections(target):
            key = name.replace(".", "/")
            a = torch.randn(rank, linear.in_features) * linear.in_features**-0.5
            self.low[f"{key}/a"] = nn.Parameter(a.to(mask))
            self.low[f"{key}/b"] = nn.Parameter(mask.new_zeros(linear.out_features, rank))

    def added(self, name: str, inputs: Tensor) -> Tensor:
        """What the projection ``name`` adds for its inputs [..., in]."""
        key = name.replace(".", "/")
        a, b = (self.low[f"{key}/{part}"].to(inputs.dtype) for part in "ab")
        return inputs @ a.T @ b.T

    def tensors(self) -> dict[str, Tensor]:
        """By the names of the file format."""
        found = {key.replace("/", "."): value.detach() for key, value in self.low.items()}
        return found | {MASK: self.mask_embedding.detach()}

    @torch.no_grad()
    def take(self, saved: Saved) -> None:
        """Become a saved adapter of the same target. Raises UserError for one of another."""
        own = self.tensors()
        if {n: t.shape for n, t in own.items()} != {n: t.shape for n, t in saved.tensors.items()}:
            raise UserError("the denoiser to start from was made for another target")
        for name, tensor in own.items():
            scale = saved.config.scale if name.endswith(".b") else 1.0
            tensor.copy_(saved.tensors[name].float() * scale)


def projections(target: nn.Module) -> Iterator[tuple[str, nn.Linear]]:
    """(``layers.N.q_proj``, module) of a Llama-like target."""
    for index, layer in enumerate(target.model.layers):  # type: ignore[union-attr, arg-type]
        for name, part in PARTS.items():
            yield f"layers.{index}.{name}", layer.get_submodule(f"{part}.{name}")


class DenoiserStudent(Student[Adapter]):
    """The adapted target. ``stop`` is the token that fills a block behind the end of a text."""

    kind, gamma = DENOISER, 4.0

    def __init__(self, target: Any, config: AdapterConfig, stop: int):
        super().__init__(TargetParts(target), ())
        self.target, self.config, self.stop = target, config, stop
        self.model = Adapter(target, config.rank, self.parts.embedding.float().mean(0))
        self._worn: list[Adapter | None] = [None]  # which adapter the projections add, if any
        for name, linear in projections(target):
            linear.register_forward_hook(self._hook(name))

    def _hook(self, name: str):
        worn = self._worn

        def add(_module: nn.Module, inputs: tuple[Tensor, ...], out: Tensor) -> Tensor:
            return out if worn[0] is None else out + worn[0].added(name, inputs[0])

        return add

    @contextmanager
    def _wearing(self) -> Iterator[None]:
        self._worn[0] = self.model
        try:
            yield
        finally:
            self._worn[0] = None

    @property
    def depths(self) -> int:
        return self.config.block_size

    def lesson(self, blocks: Blocks, top_k: int, rng: torch.Generator, gamma: float) -> Lesson:
        """Draw a state for every block; only masked positions are learnt.

        A position with nothing known to its right learns the target's distribution there; one
        with a known right side learns the token itself, for the target's left-to-right
        distribution is not the answer then. A block reaching behind the end of its text goes on
        with end-of-text tokens, as decoding would fill it; behind a text that was cut it ends.
        """
        size = BLOCK_SIZES[int(torch.randint(len(BLOCK_SIZES), (), generator=rng))]
        some = torch.randperm(len(blocks.anchors), generator=rng)[: max(1, ROWS // size)]
        anchors = blocks.anchors[some.sort().values]
        whole, document = Blocks(blocks.document, anchors), blocks.document
        index = anchors[:, None] + 1 + torch.arange(size)
        inside = index < len(document)
        tokens = document.tokens[index.clamp(max=len(document) - 1)].long()
        ended = int(document.tokens[-1]) == self.stop
        tokens = torch.where(inside, tokens, self.stop)
        masked = draw_states(len(anchors), size, rng)
        taught = masked & (inside | ended)
        ids, p, _ = whole.targets(size, top_k)
        hard = torch.zeros_like(p)
        hard[..., 0] = 1.0
        known_right = (~masked).flip(-1).cumsum(-1).flip(-1) > 0
        by_token = known_right | ~inside
        ids = ids.clone()
        ids[..., 0] = torch.where(by_token, tokens, ids[..., 0])
        p = torch.where(by_token[..., None], hard, p)
        gap = (masked.cumsum(-1) - 1).clamp_min(0)
        weight = torch.exp(-gap / gamma) * taught
        weight *= torch.where(inside, 1.0, 0.2)
        return Lesson(MaskedBlocks(document, anchors, tokens, masked), ids, p, weight)

    def rows(self, blocks: Blocks) -> Tensor:
        assert isinstance(blocks, MaskedBlocks)
        with self._wearing():
            return self._denoised(blocks)

    def _denoised(self, blocks: MaskedBlocks) -> Tensor:
        device = self.parts.embedding.device
        count, size = blocks.tokens.shape
        anchors = blocks.anchors.to(device)
        last = int(anchors[-1])
        cache = DynamicCache()
        with torch.no_grad():
            before = blocks.document.tokens[None, :last].long().to(device)
            causal = torch.ones(last, last, dtype=torch.bool, device=device).tril()
            self._forward(self.parts.embedding[before], causal, torch.arange(last), cache)
        roots = blocks.document.tokens[blocks.anchors].long()[:, None]
        rows = torch.cat([roots, blocks.tokens], 1).to(device)
        masked = torch.cat([torch.zeros_like(roots, dtype=torch.bool), blocks.masked], 1)
        known = self.parts.embedding[rows]
        mask = self.model.mask_embedding.to(known.dtype)
        inputs = torch.where(masked[..., None].to(device), mask, known)
        where = anchors[:, None] + torch.arange(size + 1, device=device)
        context = torch.arange(last, device=device) < anchors[:, None]
        context = context.repeat_interleave(size + 1, 0)
        own = torch.eye(count, dtype=torch.bool, device=device)
        own = own.repeat_interleave(size + 1, 0).repeat_interleave(size + 1, 1)
        flat = inputs.reshape(1, count * (size + 1), -1)
        out = self._forward(flat, torch.cat([context, own], 1), where.flatten(), cache)
        return out.reshape(count, size + 1, -1)[:, :size]

    def _forward(self, inputs: Tensor, allowed: Tensor, where: Tensor, cache: Any) -> Tensor:
        dtype = self.parts.embedding.dtype
        mask = torch.zeros(allowed.shape, dtype=dtype, device=allowed.device)
        mask.masked_fill_(~allowed, mask_value(dtype))
        return self.target.model(
            inputs_embeds=inputs,
            attention_mask=mask[None, None],
            position_ids=where[None].to(allowed.device),
            past_key_values=cache,
            use_cache=True,
        ).last_hidden_state

    def save(self, folder: Path, small: bool = False) -> None:
        save_adapter(folder, self.model.tensors(), self.config, small)


def draw_states(count: int, size: int, rng: torch.Generator) -> Tensor:
    """Which positions are masked, [count, size]: at least one in every row.

    Half the rows know a left part and nothing else, three in ten know some positions behind it
    too, the rest know any positions.
    """
    place = torch.arange(size)
    left = torch.randint(size, (count, 1), generator=rng)
    kind = torch.rand(count, 1, generator=rng)
    share = torch.rand(count, 1, generator=rng)
    noise = torch.rand(count, size, generator=rng)
    beyond = place >= left
    masked = torch.where(kind < 0.5, beyond, beyond & (noise > share * 0.5))
    masked = torch.where(kind < 0.8, masked, noise < share)
    none = ~masked.any(-1, keepdim=True)
    return masked | (none & (place == left))
