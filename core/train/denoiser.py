"""How the denoiser is trained: the target itself, with attention opened inside a block.

A low-rank adapter and one embedding row for the mask are trained; the target stays frozen. The
text before a block is read causally, by the adapted weights but without gradient; the block reads
it and, in both directions, itself. Row i − 1 predicts position i (the target's own shift), so a
block's rows begin with the last known token.

States are drawn as decoding meets them: mostly a known left part of the block and masks after it,
sometimes with known positions among the masks, sometimes any mix.

Shapes: A blocks, L positions of a block, K stored target tokens, h hidden width.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import DynamicCache

from core.diffusion.adapter import MASK, PARTS, AdapterConfig, load_adapter, save_adapter
from core.diffusion.adapter import Adapter as Saved
from core.errors import UserError
from core.methods.method import Range, option
from core.models.cache import mask_value
from core.train.corpus import Blocks, Corpus
from core.train.student import Labels, Student, Training, TrainingRun, mask_token

BLOCK_SIZES = (8, 16, 32)
ROWS = 256  # positions of a document's blocks that share a pass


@dataclass(frozen=True)
class MaskedBlocks(Blocks):
    """The L positions after each anchor: their tokens and which are masked, [A, L]."""

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
    def load(self, saved: Saved) -> None:
        """Take over a saved adapter. Raises UserError for one of another target."""
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
    """The adapted target. ``stop`` is the token that fills a block after the end of a text."""

    def __init__(self, language_model: Any, config: AdapterConfig, stop: int):
        mask = language_model.get_input_embeddings().weight.detach().float().mean(0)
        super().__init__(Adapter(language_model, config.rank, mask), language_model)
        self.language_model, self.config, self.stop = language_model, config, stop
        self._active: list[Adapter | None] = [None]  # the adapter that the projections add, if any
        for name, linear in projections(language_model):
            linear.register_forward_hook(self._hook(name))

    def _hook(self, name: str):
        active = self._active

        def add(_module: nn.Module, inputs: tuple[Tensor, ...], out: Tensor) -> Tensor:
            return out if active[0] is None else out + active[0].added(name, inputs[0])

        return add

    @contextmanager
    def _adapted(self) -> Iterator[None]:
        self._active[0] = self.model
        try:
            yield
        finally:
            self._active[0] = None

    @property
    def max_depth(self) -> int:
        return self.config.block_size

    def labels(self, blocks: Blocks, top_k: int, rng: torch.Generator, gamma: float) -> Labels:
        """Draw a state for every block; only masked positions are learnt.

        A position with nothing known to its right learns the target's distribution there. One
        with a known right side learns the token itself, since the target's left-to-right
        distribution does not know that side. After the end of its text a block continues with
        end-of-text tokens, as decoding would fill it; after a text that was cut it ends.
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
        learnt = masked & (inside | ended)
        ids, p, _ = whole.target_probs(size, top_k)
        one_token = torch.zeros_like(p)
        one_token[..., 0] = 1.0
        known_right = (~masked).flip(-1).cumsum(-1).flip(-1) > 0
        by_token = known_right | ~inside
        ids = ids.clone()
        ids[..., 0] = torch.where(by_token, tokens, ids[..., 0])
        p = torch.where(by_token[..., None], one_token, p)
        gap = (masked.cumsum(-1) - 1).clamp_min(0)
        weight = torch.exp(-gap / gamma) * learnt
        weight *= torch.where(inside, 1.0, 0.2)
        return Labels(MaskedBlocks(document, anchors, tokens, masked), ids, p, weight)

    def rows(self, blocks: Blocks) -> Tensor:
        assert isinstance(blocks, MaskedBlocks)
        with self._adapted():
            return self._denoised(blocks)

    def _denoised(self, blocks: MaskedBlocks) -> Tensor:
        device = self.device
        count, size = blocks.tokens.shape
        anchors = blocks.anchors.to(device)
        last = int(anchors[-1])
        cache = DynamicCache()
        with torch.no_grad():
            before = blocks.document.tokens[None, :last].long().to(device)
            causal = torch.ones(last, last, dtype=torch.bool, device=device).tril()
            self._forward(self.embedding[before], causal, torch.arange(last), cache)
        roots = blocks.document.tokens[blocks.anchors].long()[:, None]
        rows = torch.cat([roots, blocks.tokens], 1).to(device)
        masked = torch.cat([torch.zeros_like(roots, dtype=torch.bool), blocks.masked], 1)
        known = self.embedding[rows]
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
        dtype = self.embedding.dtype
        mask = torch.zeros(allowed.shape, dtype=dtype, device=allowed.device)
        mask.masked_fill_(~allowed, mask_value(dtype))
        return self.language_model.model(
            inputs_embeds=inputs,
            attention_mask=mask[None, None],
            position_ids=where[None].to(allowed.device),
            past_key_values=cache,
            use_cache=True,
        ).last_hidden_state

    def save(self, folder: Path) -> None:
        save_adapter(folder, self.model.tensors(), self.config, small=False)


def draw_states(count: int, size: int, rng: torch.Generator) -> Tensor:
    """Which positions are masked, [count, size]: at least one in every row.

    Half the rows know a left part and nothing else, three in ten know some positions after it
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


@dataclass(frozen=True)
class DenoiserOptions:
    rank: int = option(16, "rank of the denoiser's adapter", Range(1))
    block_size: int = option(8, "positions of the denoiser's block", Range(2))


class DenoiserTraining(Training):
    """An adapter that changes nothing yet, or the one of a checkpoint."""

    name, options = "denoiser", DenoiserOptions

    def layers(self, run: TrainingRun, options: DenoiserOptions) -> tuple[int, ...]:
        return ()

    def student(
        self, run: TrainingRun, options: DenoiserOptions, corpus: Corpus
    ) -> DenoiserStudent:
        language, rank = run.language, options.rank
        start = load_adapter(run.start) if run.start else None
        if start is None:
            mask, size = mask_token(language), options.block_size
            config = AdapterConfig(language.name, mask, True, "causal", size, rank, float(rank))
        else:
            config = replace(start.config, alpha=float(start.config.rank))
        student = DenoiserStudent(language.model, config, min(language.stop_ids, default=0))
        if start is not None:
            student.model.load(start)
        return student
