"""The DSpark network: DFlash's, whose root's row predicts too, and two heads.

Logits at a place get W2 · W1[token before] added; of a gated head W2 · (g ⊙ W1[token before]), g =
σ(G · [row ; W1[token before]] + c). The confidence is σ(w · [row ; W1[token before]] + b). Rows are
those after the last norm. Parameter names are those of the published checkpoints, which also hold
frozen copies of the target's embedding and head.

Shapes: h hidden width, r rank, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from core.errors import UserError
from core.methods.dflash.model import DFlashConfig, DFlashModel
from core.models import checkpoint

HEADS = ("vanilla", "gated")  # a recurrent one is published, too


@dataclass(frozen=True)
class DSparkConfig(DFlashConfig):
    """The heads' options; names are those of published configs.

    markov_head_type    "vanilla" or "gated"
    sample_from_anchor  whether the root's own row predicts the first token
    """

    markov_rank: int = 256
    markov_head_type: str = "vanilla"
    enable_confidence_head: bool = False
    confidence_head_with_markov: bool = False
    sample_from_anchor: bool = True
    architecture: ClassVar[str] = "Qwen3DSparkModel"

    @property
    def first_row(self) -> int:
        return 0 if self.sample_from_anchor else 1

    @staticmethod
    def from_json(raw: dict[str, Any]) -> DSparkConfig:
        """Read a published config. Raises UserError when it is none, or for another Markov head."""
        own = {**raw, **(raw.get("dflash_config") or {})}
        kind, rank = own.get("markov_head_type", "vanilla"), own["markov_rank"]
        if kind not in HEADS or type(rank) is not int or rank < 1:
            what = f"a {kind} Markov head of rank {rank}"
            raise UserError(f"a DSpark drafter with {what} is not supported")
        return DSparkConfig(
            **vars(DFlashConfig.from_json(raw)),
            markov_rank=rank,
            markov_head_type=kind,
            enable_confidence_head=bool(own.get("enable_confidence_head")),
            confidence_head_with_markov=bool(own.get("confidence_head_with_markov")),
            sample_from_anchor=own.get("sample_from_anchor") is not False,
        )


class MarkovHead(nn.Module):
    """``gated``: the width h of the rows that a gate reads; 0: there is none."""

    def __init__(self, vocabulary: int, rank: int, gated: int = 0):
        super().__init__()
        self.markov_w1 = nn.Embedding(vocabulary, rank)
        self.markov_w2 = nn.Linear(rank, vocabulary, bias=False)
        self.gate_proj = nn.Linear(gated + rank, rank) if gated else None

    def forward(self, before: Tensor, normed: Tensor) -> Tensor:
        """Tokens before [R] and normed rows [R, h] → what is added to the logits, [R, V]."""
        known = self.markov_w1(before)
        if self.gate_proj is not None:
            known = known * self.gate_proj(torch.cat([normed, known], -1)).sigmoid()
        return self.markov_w2(known)


class ConfidenceHead(nn.Module):
    def __init__(self, inputs: int):
        super().__init__()
        self.proj = nn.Linear(inputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        """[R, inputs] → the log-probability of being accepted, [R]."""
        return F.logsigmoid(self.proj(x).float())[:, 0]


class DSparkModel(DFlashModel):
    def __init__(self, config: DSparkConfig):
        super().__init__(config)
        gated = config.hidden_size if config.markov_head_type == "gated" else 0
        self.markov_head = MarkovHead(config.vocab_size, config.markov_rank, gated)
        self._joins = config.confidence_head_with_markov
        inputs = config.hidden_size + (config.markov_rank if self._joins else 0)
        self.confidence_head = ConfidenceHead(inputs) if config.enable_confidence_head else None

    def confidence(self, normed: Tensor, before: Tensor) -> Tensor | None:
        """Normed rows [R, h] and the tokens before them [R] → log-probabilities [R]; None without
        the head."""
        if self.confidence_head is None:
            return None
        parts = [normed, self.markov_head.markov_w1(before)] if self._joins else [normed]
        return self.confidence_head(torch.cat(parts, -1))


FORM = checkpoint.Form(
    "DSpark",
    DSparkConfig.from_json,
    DSparkModel,
    beside=("embed_tokens.weight", "lm_head.weight"),
)
