"""The interface that makes a drafter trainable: a ``Student`` and a ``Training`` in its home.

To make a drafter trainable, write ``training.py`` in its home, with ``TRAINING = MyTraining()``,
and name that and its options in its ``DrafterInfo.training``. The commands ``train``, ``report``,
``ship`` and ``ablate`` and the script for a GPU find it there; nothing else is edited. The file
holds

1. a ``Student``: the network, and ``rows``: what the target's head reads at the places of a step,
   given the text's own tokens before them. By default a step learns KL(p ‖ q) at depths 1 … L
   after each anchor; ``labels`` and ``head`` change that.
2. a ``DrafterTraining``: which target layers the drafter reads, how a student is made of the target
   or of a checkpoint, how its checkpoint ships, and which builders judge it.

The options are a dataclass in the home itself, which stays light (``core.methods.method.option``):
each field becomes a flag of ``train``.

How drafters of other kinds fit in:

Medusa heads           ``rows`` applies head k to the anchor's hidden row, for depth k
EAGLE-3                ``rows`` runs the layer L times, each time on the features it made before
                       (training-time test); ``head`` and ``labels`` keep to its draft vocabulary
draft language model   ``rows`` is one causal pass over the text; ``head`` is its own, and it reads
                       no features (``layers`` returns ())

What a trained drafter would reach is measured by the drafter itself, as it decodes (``simulate``):
a student never drafts.

Shapes: A anchors, L drafted depths, P places of a step (L unless ``labels`` says otherwise), K
stored target tokens, C tokens of the loss's vocabulary, h hidden width, V vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from core.learning.corpus import Blocks, Corpus
from core.models.checkpoint import Form
from core.models.language import Language
from core.models.layers import Rope

M = TypeVar("M", bound=nn.Module)
Head = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Labels:
    """The labels of a step at the places of some blocks.

    ids, p  [A, P, K]  the target's tokens there and their probabilities
    weight  [A, P]     of each place in the loss; 0: nothing to learn
    """

    blocks: Blocks
    ids: Tensor
    p: Tensor
    weight: Tensor


class Student(ABC, Generic[M]):
    """A drafter as training sees it, in float32 on the target's device.

    gamma  the loss of depth k weighs exp(−(k − 1)/γ), by default as in the drafter's paper
    embedding, head_rows  the target's, [V, h]; both stay frozen
    form   of its checkpoint, for the default ``save``
    """

    gamma = 4.0
    form: Form[Any, M]

    def __init__(self, model: M, target: Any):
        """``target``: the causal language model."""
        self.embedding: Tensor = target.get_input_embeddings().weight.detach()
        head = target.get_output_embeddings()
        self.head_rows: Tensor = self.embedding if head is None else head.weight.detach()
        self.device = self.embedding.device
        self.model = model.to(self.device, torch.float32)

    @property
    def max_depth(self) -> int:
        """L, the deepest depth it drafts: by default its config's."""
        config: Any = self.model.config
        return config.max_depth

    @abstractmethod
    def rows(self, blocks: Blocks) -> Tensor:
        """Rows [A, P, h] at the places of ``labels``, given the text's own tokens before them."""

    def save(self, folder: Path) -> None:
        """Write the checkpoint in its official form."""
        self.form.save_model(self.model, folder)

    def labels(self, blocks: Blocks, top_k: int, rng: torch.Generator, gamma: float) -> Labels:
        """Return the labels of these blocks: by default the target's distribution at depths 1 … L.

        rng  for a student that draws what it learns
        """
        ids, p, exists = blocks.target_probs(self.max_depth, top_k)
        return Labels(blocks, ids, p, exists * depth_weights(self.max_depth, gamma))

    def head(self, ids: Tensor) -> Head:
        """Return the head that maps rows [..., h] to logits [..., C] of the tokens ``ids`` [C].

        By default the target's frozen head. A head that learns must be read in the function it
        returns, which is called once per text of a step.
        """
        head = self.head_rows[ids.to(self.device)]
        return lambda rows: (rows @ head.to(rows.dtype).T).float()

    def embed(self, ids: Tensor) -> Tensor:
        """The target's embeddings [..., h] of tokens."""
        return self.embedding[ids.to(self.device)]

    def trained(self) -> dict[str, nn.Parameter]:
        """The parameters that learn."""
        return {n: p for n, p in self.model.named_parameters() if p.requires_grad}

    def features(self, blocks: Blocks, layers: tuple[int, ...]) -> Tensor:
        """Features after these layers of the tokens before the last anchor, [T, F·h].

        Raises UserError for a layer that the training text does not hold.
        """
        found = blocks.document.features_after(layers, int(blocks.anchors[-1]))
        return found.to(self.device, torch.float32)

    def given(self, blocks: Blocks, layers: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
        """``features``, and tokens int64 [T] and anchors [A] on the same device."""
        tokens, anchors = blocks.document.tokens.long(), blocks.anchors
        return self.features(blocks, layers), tokens.to(self.device), anchors.to(self.device)


def depth_weights(depths: int, gamma: float) -> Tensor:
    """exp(−(k − 1)/γ) for k = 1 … L (DFlash §4)."""
    return torch.exp(-torch.arange(depths) / gamma)


@dataclass(frozen=True)
class TrainingRun:
    """One run of training.

    folder  of the run; each drafter's is inside it, by its name
    start   the checkpoint to go on from; None: a start made of the target
    """

    language: Language
    folder: Path
    start: Path | None = None

    def checkpoint(self, drafter: str) -> Path | None:
        """Return the folder of the drafter's checkpoint in this run; None before there is one."""
        folder = self.folder / drafter / "checkpoint"
        return folder if folder.is_dir() else None


class Training(ABC):
    """How something is trained. ``options`` are its own settings, as its home declares them."""

    name: str

    @abstractmethod
    def layers(self, run: TrainingRun, options: Any) -> tuple[int, ...]:
        """The target layers whose features it reads; () for none, or while that is not known."""

    @abstractmethod
    def student(self, run: TrainingRun, options: Any, corpus: Corpus) -> Student:
        """The student at its start. Raises UserError where it can have none."""


class DrafterTraining(Training):
    """How a drafter is trained.

    builders    that judge it: each at several budgets, a chain at its one length
    ships_with  drafters, listed before it, on whose checkpoints its own is read: all of them are
                replaced together
    form        of its checkpoint, for the default ``ship``
    """

    form: Form[Any, Any]
    builders: tuple[str, ...] = ("best-first",)
    ships_with: tuple[str, ...] = ()

    def ship(self, trained: Path, folder: Path) -> None:
        """Write a trained checkpoint to ``folder`` as it ships: int8, what is shared only once."""
        model = self.form.load_model(trained, torch.float32, "cpu")
        self.form.save_model(model, folder, small=True)

    def variants(self, layers: tuple[int, ...]) -> Mapping[str, Mapping[str, Any]]:
        """Options of the trainings that ``ablate`` compares, the first being the base.

        layers  the feature layers that the text holds
        """
        return {"base": {}}


def target_shape(language: Language) -> dict[str, Any]:
    """The config fields that a drafter made here shares with its target."""
    c = language.model.config.get_text_config()
    rope = getattr(c, "rope_parameters", None) or {}
    return {
        "hidden_size": c.hidden_size,
        "intermediate_size": c.intermediate_size,
        "num_attention_heads": c.num_attention_heads,
        "num_key_value_heads": c.num_key_value_heads,
        "head_dim": getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads,
        "vocab_size": c.vocab_size,
        "rms_norm_eps": c.rms_norm_eps,
        "rope": Rope(rope.get("rope_theta", 10000.0)),
        "max_position_embeddings": c.max_position_embeddings,
    }


def start_as_last_layer(fc: nn.Linear, layer: Any, target: Any) -> None:
    """Start a layer that reads an embedding beside a feature as the target's last layer, reading
    the last feature through ``fc``. The embedding's half of the attention starts at a hundredth of
    the feature's."""
    old, width = target.model.layers[-1], fc.out_features
    with torch.no_grad():
        fc.weight.zero_()
        fc.weight[:, -width:] = torch.eye(width)
        for name in ("q_proj", "k_proj", "v_proj"):
            weight = getattr(old.self_attn, name).weight
            getattr(layer.self_attn, name).weight.copy_(torch.cat([weight * 0.01, weight], 1))
        layer.self_attn.o_proj.weight.copy_(old.self_attn.o_proj.weight)
        layer.mlp.load_state_dict(old.mlp.state_dict())
        layer.hidden_norm.weight.copy_(old.input_layernorm.weight)
        layer.input_layernorm.weight.copy_(old.input_layernorm.weight)
        layer.post_attention_layernorm.weight.copy_(old.post_attention_layernorm.weight)


def mask_token(language: Language) -> int:
    """A token that no text holds: a special one that is neither part of the chat nor a stop."""
    used = {*language.encode_chat(""), *language.stop_ids}
    special = sorted(set(language.tokenizer.added_tokens_decoder) - used)
    return special[1] if len(special) > 1 else special[0] if special else 0
