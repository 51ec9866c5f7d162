"""Fit a DFlash drafter to the target's distribution, from shards (see ``core.train.shards``).

Anchors are drawn in the target's answers; each gives L masked positions whose target is the
target model's own distribution there (forward KL, the paper of TreeFlash §4; depth weights
exp(−(k − 1)/γ), DFlash §4). The vocabulary softmax runs over a sampled part of the vocabulary:
every token the target finds likely in this step, the corpus's frequent ones, and a uniform sample
of the rest that stands for it with the usual log-weight correction.

Hidden layers are trained with Muon, gains and ``fc`` with AdamW; the weights that are kept are an
exponential average. ``state.safetensors`` holds everything a killed run needs to go on.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from core.drafters.dflash import DFlashConfig, DFlashModel, save_model
from core.train.shards import Document, read_shard, shard_paths


@dataclass(frozen=True)
class FitSettings:
    """One training recipe. ``sequences`` × ``anchors`` blocks make a step."""

    minutes: float = 90.0  # of training; the learning rate's schedule follows the clock
    sequences: int = 8
    anchors: int = 32
    optimizer: str = "adamw"  # or "muon" for the layers' matrices
    lr: float = 1e-3  # AdamW's
    muon_lr: float = 0.01
    warmup: int = 40  # steps
    decay_from: float = 0.3  # constant until this share of the run, then linear to zero
    gamma: float = 4.0
    top_k: int = 12  # of the shard's stored target probabilities
    frequent: int = 4096
    sampled: int = 512
    average: float = 0.995
    seed: int = 0
    save_every: int = 100  # steps
    held_out: int = 48  # documents never trained on


@dataclass(frozen=True)
class FitStatus:
    """What one step reports."""

    step: int
    done: float  # share of the run, 0 … 1
    loss: float  # KL(p ‖ q), nats, weighted over depths


class TargetParts:
    """What training needs of the target: embedding and head rows. Both stay frozen."""

    def __init__(self, target: Any):
        self.embedding = target.get_input_embeddings().weight.detach()
        head = target.get_output_embeddings()
        self.head = (head.weight if head is not None else self.embedding).detach()


def initial_model(config: DFlashConfig, target: Any, probe_ids: Tensor) -> DFlashModel:
    """A drafter that starts as the target's last layers reading the feature that enters them.

    ``fc`` is the identity on the last feature, ``hidden_norm`` the first copied layer's input norm,
    and the q/k norm gains are the target's own head RMS on the text ``probe_ids`` [1, T].
    """
    model = DFlashModel(config)
    source = target.model.layers[-config.num_hidden_layers :]
    rms = _head_rms(target, source, probe_ids)
    with torch.no_grad():
        for layer, old, (q_rms, k_rms) in zip(model.layers, source, rms, strict=True):
            new, own = layer.state_dict(), old.state_dict()
            new["self_attn.q_norm.weight"].fill_(q_rms)
            new["self_attn.k_norm.weight"].fill_(k_rms)
            layer.load_state_dict({n: own.get(n, p) for n, p in new.items()})
        model.norm.weight.copy_(target.model.norm.weight)
        model.hidden_norm.weight.copy_(source[0].input_layernorm.weight)
        model.fc.weight.zero_()
        model.fc.weight[:, -config.hidden_size :] = torch.eye(config.hidden_size)
    return model


@torch.inference_mode()
def _head_rms(target, layers, probe_ids: Tensor) -> list[tuple[float, float]]:
    seen: dict[nn.Module, float] = {}

    def keep(module, _, out):
        seen[module] = out.float().square().mean().sqrt().item()

    hooks = [
        proj.register_forward_hook(keep)
        for layer in layers
        for proj in (layer.self_attn.q_proj, layer.self_attn.k_proj)
    ]
    target(probe_ids, use_cache=False)
    for hook in hooks:
        hook.remove()
    return [(seen[x.self_attn.q_proj], seen[x.self_attn.k_proj]) for x in layers]


class Corpus:
    """The documents of a shard folder, some of them held out (by a fixed stride, greedy first)."""

    def __init__(self, folder: Path, held_out: int):
        self.folder, self._held = folder, held_out
        self._read: set[Path] = set()
        self.train: list[Document] = []
        self.test: list[Document] = []
        self.refresh()

    def refresh(self) -> None:
        """Take in shards that have appeared since: collecting and fitting may run side by side."""
        for path in shard_paths(self.folder):
            if path in self._read:
                continue
            self._read.add(path)
            for index, document in enumerate(read_shard(path)):
                if len(document) - document.answer < 16:
                    continue
                fresh = len(self.test) < self._held and index % 12 == 0
                (self.test if fresh else self.train).append(document)

    @property
    def tokens(self) -> int:
        return sum(len(d) - d.answer for d in self.train)


@dataclass(frozen=True)
class Blocks:
    """Some anchors of one document."""

    document: Document
    anchors: Tensor  # int64 [A], index of each block's bonus token

    def targets(self, depths: int, top_k: int) -> tuple[Tensor, Tensor, Tensor]:
        """The target's top ids and p at each depth [A, L, K], and which depths exist [A, L]."""
        index = self.anchors[:, None] + torch.arange(depths)
        exists = index < len(self.document)
        index = index.clamp(max=len(self.document) - 1)
        ids = self.document.top_ids[index][..., :top_k].long()
        return ids, self.document.top_logp[index][..., :top_k].float().exp(), exists


def draw_blocks(
    corpus: list[Document], settings: FitSettings, rng: torch.Generator
) -> list[Blocks]:
    lengths = torch.tensor([float(len(d) - d.answer) for d in corpus])
    chosen = torch.multinomial(lengths, settings.sequences, replacement=True, generator=rng)
    batch = []
    for index in chosen.tolist():
        document = corpus[index]
        room = len(document) - document.answer - 1
        picks = torch.randperm(room, generator=rng)[: settings.anchors].sort().values
        batch.append(Blocks(document, picks + document.answer))
    return batch


def hidden_rows(model: DFlashModel, blocks: Blocks, embedding: Tensor) -> Tensor:
    """Final hidden rows of the masked positions, [A, L, h]: what the head reads."""
    config, device, dtype = model.config, embedding.device, model.fc.weight.dtype
    last = int(blocks.anchors[-1])  # the block's own token and all after it are not context
    positions = torch.arange(last, device=device)
    features = blocks.document.features[:last].to(device, dtype)
    context = model.project(features, positions)
    anchors = blocks.anchors.to(device)
    ids = torch.full((len(anchors), config.block_size), config.mask_token_id, device=device)
    ids[:, 0] = blocks.document.tokens.to(device)[anchors]
    where = anchors[:, None] + torch.arange(config.block_size, device=device)
    visible = positions[None] < anchors[:, None]
    x = model(embedding[ids].to(dtype), where, context, visible)
    return model.norm(x[:, 1:])


class Vocabulary:
    """The part of the vocabulary a step's softmax runs over."""

    def __init__(self, corpus: list[Document], size: int, settings: FitSettings):
        counts = torch.zeros(size, dtype=torch.long)
        for document in corpus:
            counts += torch.bincount(document.top_ids[:, :4].flatten().long(), minlength=size)
        self.frequent = counts.topk(min(settings.frequent, size)).indices
        self.size, self.sampled = size, settings.sampled

    def sample(self, needed: Tensor, rng: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Ids in the softmax [C], what to add to their logits [C], and id → column [V]."""
        inside = torch.zeros(self.size, dtype=torch.bool)
        inside[self.frequent] = True
        inside[needed] = True
        sure = inside.nonzero().flatten()
        rest = (~inside).nonzero().flatten()
        some = rest[torch.randperm(len(rest), generator=rng)[: self.sampled]]
        ids = torch.cat([sure, some])
        add = torch.zeros(len(ids))
        if len(some):
            add[len(sure) :] = math.log(len(rest) / len(some))
        column = torch.zeros(self.size, dtype=torch.long)
        column[ids] = torch.arange(len(ids))
        return ids, add, column


class Fit:
    """One training run in a folder. ``steps()`` yields after each step; stop whenever you like."""

    def __init__(
        self,
        model: DFlashModel,
        parts: TargetParts,
        corpus: Corpus,
        settings: FitSettings,
        folder: Path,
    ):
        self.model, self.parts, self.corpus = model, parts, corpus
        self.settings, self.folder = settings, folder
        self.average = {n: p.detach().clone() for n, p in model.named_parameters()}
        self.optimizers = _optimizers(model, settings)
        self.step, self.seconds = 0, 0.0
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "recipe.json").write_text(json.dumps(asdict(settings), indent=1))
        self._resume()

    def steps(self) -> Iterator[FitStatus]:
        settings = self.settings
        vocabulary = Vocabulary(self.corpus.train, self.model.config.vocab_size, settings)
        while self.done < 1:
            began = time.perf_counter()
            rng = torch.Generator().manual_seed(settings.seed * 1_000_003 + self.step)
            if self.step % 25 == 0:
                self.corpus.refresh()
            batch = draw_blocks(self.corpus.train, settings, rng)
            loss = self._learn(batch, vocabulary, rng)
            self.step += 1
            self.seconds += time.perf_counter() - began
            if self.step % settings.save_every == 0 or self.done >= 1:
                self.save()
            yield FitStatus(self.step, self.done, loss)

    @property
    def done(self) -> float:
        return min(1.0, self.seconds / 60 / self.settings.minutes)

    def _learn(self, batch: list[Blocks], vocabulary: Vocabulary, rng: torch.Generator) -> float:
        settings, depths = self.settings, self.model.config.depths
        scale = self._schedule()
        targets = [b.targets(depths, settings.top_k) for b in batch]
        needed = torch.cat([ids[exists].flatten() for ids, _, exists in targets]).unique()
        ids, add, column = vocabulary.sample(needed, rng)
        device = self.parts.head.device
        head, add = self.parts.head[ids.to(device)], add.to(device)
        weight = depth_weights(depths, settings.gamma)
        whole = sum(float((e * weight).sum()) for _, _, e in targets)
        total = 0.0
        for blocks, (top, p, exists) in zip(batch, targets, strict=True):
            rows = hidden_rows(self.model, blocks, self.parts.embedding)
            log_q = F.log_softmax((rows @ head.to(rows.dtype).T).float() + add, -1)
            p = p.to(device)
            cross = -(p * log_q.gather(-1, column[top].to(device))).sum(-1)
            entropy = -(p * p.clamp_min(1e-9).log()).sum(-1)
            loss = ((cross - entropy) * (exists * weight).to(device)).sum() / whole
            loss.backward()
            total += loss.item()
        nn.utils.clip_grad_norm_(self.model.parameters(), 10.0)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["base_lr"] * scale
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        keep = min(settings.average, (self.step + 1) / (self.step + 10))
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                self.average[name].lerp_(parameter, 1 - keep)
        return total

    def _schedule(self) -> float:
        s = self.settings
        warm = min(1.0, (self.step + 1) / s.warmup)
        return warm * min(1.0, (1 - self.done) / (1 - s.decay_from))

    def averaged(self) -> DFlashModel:
        """A copy of the drafter with the averaged weights."""
        model = DFlashModel(self.model.config).to(self.parts.head.device)
        model.load_state_dict(self.average)
        return model.eval()

    def save(self) -> None:
        """Checkpoint for resuming, and the averaged weights in the official format."""
        state = {f"model.{n}": p.detach() for n, p in self.model.named_parameters()}
        state |= {f"average.{n}": p for n, p in self.average.items()}
        for number, optimizer in enumerate(self.optimizers):
            for index, values in optimizer.state_dict()["state"].items():
                for key, value in values.items():
                    state[f"optimizer.{number}.{index}.{key}"] = torch.as_tensor(value).clone()
        partial = self.folder / "state.partial"
        contiguous = {n: t.contiguous() for n, t in state.items()}
        save_file(
            contiguous, partial, metadata={"step": str(self.step), "seconds": str(self.seconds)}
        )
        os.replace(partial, self.folder / "state.safetensors")
        save_model(self.averaged(), self.folder / "checkpoint")

    def _resume(self) -> None:
        path = self.folder / "state.safetensors"
        if not path.exists():
            return
        with safe_open(path, framework="pt") as file:
            self.step = int(file.metadata()["step"])
            self.seconds = float(file.metadata()["seconds"])
            names = list(file.keys())
            with torch.no_grad():
                for name, parameter in self.model.named_parameters():
                    parameter.copy_(file.get_tensor(f"model.{name}"))
                    self.average[name].copy_(file.get_tensor(f"average.{name}"))
            for number, optimizer in enumerate(self.optimizers):
                state: dict[int, dict[str, Tensor]] = {}
                for name in names:
                    kind, *rest = name.split(".")
                    if kind == "optimizer" and int(rest[0]) == number:
                        state.setdefault(int(rest[1]), {})[rest[2]] = file.get_tensor(name)
                whole = optimizer.state_dict()
                optimizer.load_state_dict(whole | {"state": state})


def depth_weights(depths: int, gamma: float) -> Tensor:
    """exp(−(k − 1)/γ) for k = 1 … L (DFlash §4)."""
    return torch.exp(-torch.arange(depths) / gamma)


class Muon(torch.optim.Optimizer):
    """Muon (orthogonalised momentum) in the parameters' own precision.

    torch.optim.Muon iterates in bfloat16, which a CPU without bf16 units does ten times slower.
    """

    def __init__(self, params, lr: float, momentum: float = 0.95, weight_decay: float = 0.0):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if "momentum" not in state:
                    state["momentum"] = torch.zeros_like(p)
                buffer = state["momentum"].lerp_(p.grad, 1 - group["momentum"])
                update = orthogonalise(p.grad.lerp(buffer, group["momentum"]))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                # 0.2·√max(n, m): the update's RMS then matches AdamW's (Moonlight's scaling).
                p.add_(update, alpha=-group["lr"] * 0.2 * max(p.shape) ** 0.5)


def orthogonalise(matrix: Tensor, steps: int = 5) -> Tensor:
    """Newton–Schulz iteration towards the nearest (semi-)orthogonal matrix, [n, m] → [n, m]."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    x = x / (x.norm() + 1e-7)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x if matrix.shape[0] <= matrix.shape[1] else x.T


def _optimizers(model: DFlashModel, settings: FitSettings) -> list[torch.optim.Optimizer]:
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and not n.startswith("fc")]
    others = [p for n, p in model.named_parameters() if p.ndim != 2 or n.startswith("fc")]
    if settings.optimizer == "adamw":
        matrices, others = [], list(model.parameters())
    made: list[torch.optim.Optimizer] = []
    if matrices:
        made.append(Muon(matrices, settings.muon_lr))
    made.append(torch.optim.AdamW(others, settings.lr, betas=(0.9, 0.95), weight_decay=0.0))
    for optimizer in made:
        for group in optimizer.param_groups:
            group["base_lr"] = group["lr"]
    return made
