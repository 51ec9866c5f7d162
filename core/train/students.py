"""What is trained: one small class per drafter, all fitted by ``core.train.fit`` and judged alike.

A student turns anchors of a text into rows for the target's head, in a batch; how its loss is
weighted over depths, what is frozen and how it is saved are its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from core.errors import UserError
from core.methods.dart import drafter as dart
from core.methods.dart.drafter import DartConfig, DartModel
from core.methods.dflash import drafter as dflash
from core.methods.dflash.drafter import DFlashConfig, DFlashModel
from core.methods.treeflash import drafter as treeflash
from core.methods.treeflash.drafter import TreeFlashModel, TreeFlashOptions
from core.rounds.draft import Candidates
from core.train.shards import Document

M = TypeVar("M", bound=nn.Module)
KINDS = ("dflash", "treeflash", "dart")


class TargetParts:
    """What training needs of the target: embedding and head rows. Both stay frozen."""

    def __init__(self, target: Any):
        self.embedding = target.get_input_embeddings().weight.detach()
        head = target.get_output_embeddings()
        self.head = (head.weight if head is not None else self.embedding).detach()


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


@dataclass(frozen=True)
class Lesson:
    """What a step learns of some blocks: at every place, ids and p [A, L, K], and its weight
    [A, L] in the loss, 0 where there is nothing to learn."""

    blocks: Blocks
    ids: Tensor
    p: Tensor
    weight: Tensor


class Student(ABC, Generic[M]):
    """A drafter as training sees it. ``features`` are the feature layers the shards hold."""

    kind: str
    gamma: float  # the loss of depth k weighs exp(−(k − 1)/γ)
    model: M
    at_once = 16  # anchors whose proposals are made together

    def __init__(self, parts: TargetParts, features: tuple[int, ...], temperature: float = 1.0):
        self.parts, self.features, self.temperature = parts, features, temperature

    @property
    @abstractmethod
    def depths(self) -> int: ...

    @property
    def vocabulary(self) -> int:
        return self.parts.head.shape[0]

    @abstractmethod
    def rows(self, blocks: Blocks) -> Tensor:
        """Rows [A, L, h] the target's head reads, given the true tokens before them."""

    @abstractmethod
    def save(self, folder: Path, small: bool = False) -> None:
        """Write the checkpoint."""

    def lesson(self, blocks: Blocks, top_k: int, rng: torch.Generator, gamma: float) -> Lesson:
        """What to learn there; the depth-k place weighs exp(−(k − 1)/γ)."""
        ids, p, exists = blocks.targets(self.depths, top_k)
        return Lesson(blocks, ids, p, exists * depth_weights(self.depths, gamma))

    def taught_rows(self, blocks: Blocks) -> Tensor:
        """The rows a lesson is about, at its places."""
        return self.rows(blocks)

    def plain_rows(self, blocks: Blocks) -> Tensor:
        """Rows [A, L, h] of the plain q, which candidates are read off."""
        return self.rows(blocks)

    def proposals(self, rows: Tensor, roots: Sequence[int], width: int) -> Iterator[Candidates]:
        """What decoding would be offered at some anchors, from their plain rows [A, L, h]."""
        logits = (rows @ self.parts.head.to(rows.dtype).T).float()
        log_q = (logits / self.temperature).log_softmax(-1)
        best = log_q.topk(min(width, log_q.shape[-1]))
        pairs = zip(best.indices.cpu().numpy(), best.values.cpu().numpy(), strict=True)
        return (Candidates(ids, odds) for ids, odds in pairs)

    def trained(self) -> dict[str, nn.Parameter]:
        return {n: p for n, p in self.model.named_parameters() if p.requires_grad}

    def _features(self, blocks: Blocks, last: int, wanted: tuple[int, ...]) -> Tensor:
        """The first ``last`` tokens' features after the wanted layers, concatenated."""
        missing = set(wanted) - set(self.features)
        if missing:
            raise UserError(f"the training text holds no features of layer {min(missing)}")
        device, dtype = self.parts.embedding.device, next(self.model.parameters()).dtype
        whole = blocks.document.features[:last]
        if wanted != self.features:
            parts = whole.chunk(len(self.features), -1)
            whole = torch.cat([parts[self.features.index(layer)] for layer in wanted], -1)
        return whole.to(device, dtype)


def depth_weights(depths: int, gamma: float) -> Tensor:
    """exp(−(k − 1)/γ) for k = 1 … L (DFlash §4)."""
    return torch.exp(-torch.arange(depths) / gamma)


class DFlashStudent(Student[DFlashModel]):
    """Every block position masked (DFlash §4)."""

    kind, gamma = "dflash", 4.0

    def __init__(
        self,
        model: DFlashModel,
        parts: TargetParts,
        features: tuple[int, ...],
        temperature: float = 1.0,
    ):
        super().__init__(parts, features, temperature)
        self.model = model

    @property
    def depths(self) -> int:
        return self.model.config.depths

    def rows(self, blocks: Blocks) -> Tensor:
        return self.model.norm(backbone_rows(self, self.model, blocks))

    def save(self, folder: Path, small: bool = False) -> None:
        dflash.save_model(self.model, folder, small)


def backbone_rows(student: Student, model: DFlashModel, blocks: Blocks) -> Tensor:
    """The residual stream of a DFlash backbone's masked positions, [A, L, h]."""
    last, embedding = int(blocks.anchors[-1]), student.parts.embedding
    features = student._features(blocks, last, model.config.target_layer_ids)
    tokens, anchors = (x.to(embedding.device) for x in (blocks.document.tokens, blocks.anchors))
    return model.rows_at(lambda ids: embedding[ids], tokens, features, anchors)


class TreeFlashStudent(Student[TreeFlashModel]):
    """The head behind true previous tokens; the backbone stays frozen (TreeFlash §3, Table 3), or
    with ``joint`` learns beside it: a lesson then has every place twice, for q and for q′.
    """

    kind, gamma = "treeflash", 4.0
    at_once = 1  # a proposal costs M·L rows of the head: only what is asked for is made

    def __init__(
        self,
        model: TreeFlashModel,
        parts: TargetParts,
        features: tuple[int, ...],
        options: TreeFlashOptions = TreeFlashOptions(),  # noqa: B008 (frozen)
        joint: bool = False,
    ):
        super().__init__(parts, features, options.temperature)
        self.model, self.options, self.joint = model, options, joint
        model.model.requires_grad_(joint)

    @property
    def depths(self) -> int:
        return self.model.config.depths

    def hidden(self, blocks: Blocks) -> Tensor:
        """The backbone's residual rows [A, L, h]."""
        with torch.set_grad_enabled(self.joint and torch.is_grad_enabled()):
            return backbone_rows(self, self.model.model, blocks)

    def lesson(self, blocks: Blocks, top_k: int, rng: torch.Generator, gamma: float) -> Lesson:
        once = super().lesson(blocks, top_k, rng, gamma)
        if not self.joint:
            return once
        ids, p, weight = (torch.cat([x, x], 1) for x in (once.ids, once.p, once.weight))
        return Lesson(blocks, ids, p, weight)

    def taught_rows(self, blocks: Blocks) -> Tensor:
        hidden = self.hidden(blocks)
        conditioned = self._conditioned(hidden, blocks)
        if not self.joint:
            return conditioned
        return torch.cat([self.model.model.norm(hidden), conditioned], 1)

    def rows(self, blocks: Blocks) -> Tensor:
        return self._conditioned(self.hidden(blocks), blocks)

    def _conditioned(self, hidden: Tensor, blocks: Blocks) -> Tensor:
        index = blocks.anchors[:, None] + torch.arange(self.depths)
        before = blocks.document.tokens[index.clamp(max=len(blocks.document) - 1)].long()
        embedded = self.parts.embedding[before.to(hidden.device)].to(hidden.dtype)
        return self.model.conditioned(hidden, embedded)

    def plain_rows(self, blocks: Blocks) -> Tensor:
        return self.hidden(blocks)  # before the norm: the head conditions on both forms

    def proposals(self, rows: Tensor, roots: Sequence[int], width: int) -> Iterator[Candidates]:
        head, embedding = self.parts.head.to(rows.dtype), self.parts.embedding
        conditioner = treeflash.Conditioner(
            self.model,
            lambda ids: embedding[ids],
            lambda x: x @ head.T,
            self.options,
            lambda ids: head[ids],
        )
        return (
            conditioner.proposal(hidden, root, width).candidates
            for hidden, root in zip(rows, roots, strict=True)
        )

    def save(self, folder: Path, small: bool = False) -> None:
        treeflash.save_model(self.model, folder, small)


class DartStudent(Student[DartModel]):
    """Every prefix position an instance, shifted prediction; λ_k = 0.6^(k−1) (DART §3.3).

    Its head is the target's, frozen: training one of 49,152 rows would double what ships.
    """

    kind, gamma = "dart", 1.9576  # exp(−1/γ) = 0.6

    def __init__(
        self,
        model: DartModel,
        parts: TargetParts,
        features: tuple[int, ...],
        layers: int,
        temperature: float = 1.0,
    ):
        super().__init__(parts, features, temperature)
        self.model, self.layers = model, dart.feature_layers(layers)

    @property
    def depths(self) -> int:
        return self.model.config.depths

    def rows(self, blocks: Blocks) -> Tensor:
        last, embedding = int(blocks.anchors[-1]), self.parts.embedding
        features = self._features(blocks, last, self.layers)
        tokens = blocks.document.tokens.long().to(embedding.device)
        anchors = blocks.anchors.to(embedding.device)
        return self.model.rows_at(lambda ids: embedding[ids], tokens, features, anchors)

    def save(self, folder: Path, small: bool = False) -> None:
        dart.save_model(self.model, folder, small)


# ── starts ───────────────────────────────────────────────────────────────────────────────────────


def initial_dflash(config: DFlashConfig, target: Any, probe_ids: Tensor) -> DFlashModel:
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


def initial_dart(config: DartConfig, target: Any) -> DartModel:
    """A layer that starts as the target's last one, reading its last feature through ``fc``.

    The embedding's half of the attention starts at a hundredth of the feature's; the final norm,
    being applied twice, starts as what twice gives the target's.
    """
    model, old = DartModel(config), target.model.layers[-1]
    width = config.hidden_size
    with torch.no_grad():
        model.fc.weight.zero_()
        model.fc.weight[:, -width:] = torch.eye(width)
        layer = model.midlayer
        for name in ("q_proj", "k_proj", "v_proj"):
            weight = getattr(old.self_attn, name).weight
            getattr(layer.self_attn, name).weight.copy_(torch.cat([weight * 0.01, weight], 1))
        layer.self_attn.o_proj.weight.copy_(old.self_attn.o_proj.weight)
        layer.mlp.load_state_dict(old.mlp.state_dict())
        layer.hidden_norm.weight.copy_(old.input_layernorm.weight)
        layer.input_layernorm.weight.copy_(old.input_layernorm.weight)
        layer.post_attention_layernorm.weight.copy_(old.post_attention_layernorm.weight)
        layer.mask_rep.copy_(torch.randn_like(layer.mask_rep) * 0.02)
        root = target.model.norm.weight.float().clamp_min(1e-4).sqrt()
        model.norm.weight.copy_(root * root.square().mean().sqrt())
    return model


# ── from a checkpoint ────────────────────────────────────────────────────────────────────────────


def load_student(
    kind: str,
    folder: Path,
    target: Any,
    features: tuple[int, ...],
    options: Mapping[str, Any] = MappingProxyType({}),
) -> Student:
    """A drafter's checkpoint folder as a student of the target, in float32 on its device.

    ``options``: the drafter's, as it decodes. Raises UserError for a kind that is not trained here
    or a folder that holds none.
    """
    parts, device = TargetParts(target), target.device
    if kind == "dflash":
        model = dflash.load_model(folder, torch.float32, device)
        return DFlashStudent(model, parts, features, **options)
    if kind == "treeflash":
        settled = TreeFlashOptions(**options)
        head = treeflash.load_model(folder, torch.float32, device)
        return TreeFlashStudent(head, parts, features, settled)
    if kind == "dart":
        found = dart.load_checkpoint(folder, torch.float32, device)
        if found.head is not None:
            raise UserError(f"{folder}: a DART drafter with a head of its own is not trained here")
        layers = target.config.get_text_config().num_hidden_layers
        return DartStudent(found.model, parts, features, layers, **options)
    raise UserError(f"there is no drafter of kind {kind!r}: choose of {', '.join(KINDS)}")
