"""The DSpark network: DFlash's, whose root's row predicts too, and two heads.

Logits at a place get W2 · W1[token before] added; of a gated head W2 · (g ⊙ W1[token before]), g =
σ(G · [row ; W1[token before]] + c). A recurrent head keeps a state s along the path: [f ; n ; o] =
J · [s ; W1[token before] ; row] + c, s ← σ(f) ⊙ s + (1 − σ(f)) ⊙ tanh(n), and adds W2 · tanh(o).
The confidence is σ(w · [row ; W1[token before]] + b). Rows are those after the last norm. Parameter
names are those of the published checkpoints, some of which also hold frozen copies of the target's
embedding and head.

Shapes: A blocks, L drafted depths, R rows, h hidden width, r rank, V vocabulary, C tokens of the
head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from core.errors import UserError
from core.methods.dflash.before import Correction
from core.methods.dflash.model import DFlashConfig, DFlashModel, form, of_speculators
from core.models.layers import Embed

VANILLA, GATED, RECURRENT = HEADS = ("vanilla", "gated", "rnn")


@dataclass(frozen=True)
class DSparkConfig(DFlashConfig):
    """The heads' options; names are those of published configs.

    markov_head_type  one of ``HEADS``
    """

    markov_rank: int = 256
    markov_head_type: str = VANILLA
    enable_confidence_head: bool = False
    confidence_head_with_markov: bool = False
    sample_from_anchor: bool = True
    architecture: ClassVar[str] = "Qwen3DSparkModel"

    @staticmethod
    def from_json(raw: dict[str, Any]) -> DSparkConfig:
        """Read a published config. Raises UserError for any other, or another Markov head."""
        raw = of_speculators(raw)
        own = {**raw, **(raw.get("dflash_config") or {})}
        kind, rank = own.get("markov_head_type", VANILLA), own["markov_rank"]
        if kind not in HEADS or type(rank) is not int or not 1 <= rank <= 1 << 16:
            what = f"a {kind} Markov head of rank {rank}"
            raise UserError(f"a DSpark drafter with {what} is not supported")
        told = vars(DFlashConfig.from_json(raw))
        told["sample_from_anchor"] = own.get("sample_from_anchor") is not False
        return DSparkConfig(
            **told,
            markov_rank=rank,
            markov_head_type=kind,
            enable_confidence_head=bool(own.get("enable_confidence_head")),
            confidence_head_with_markov=bool(own.get("confidence_head_with_markov")),
        )


class MarkovHead(Correction):
    def __init__(self, config: DSparkConfig):
        super().__init__()
        rank, kind, rows = config.markov_rank, config.markov_head_type, config.hidden_size
        self.markov_w1 = nn.Embedding(config.vocab_size, rank)
        self.markov_w2 = nn.Linear(rank, config.draft_vocab_size or config.vocab_size, bias=False)
        self.gate_proj = nn.Linear(rows + rank, rank) if kind == GATED else None
        self.joint_proj = nn.Linear(2 * rank + rows, 3 * rank) if kind == RECURRENT else None
        self.along = kind == RECURRENT

    def latents(self, rows: Tensor, paths: Tensor, embed: Embed) -> Tensor:
        known = self.markov_w1(paths[:, 1:])
        rows = rows[:, : known.shape[1]]
        if self.gate_proj is not None:
            return known * self.gate_proj(torch.cat([rows, known], -1)).sigmoid()
        return known if self.joint_proj is None else self._along(rows, known)

    def _along(self, rows: Tensor, known: Tensor) -> Tensor:
        assert self.joint_proj is not None
        state, found = torch.zeros_like(known[:, 0]), list[Tensor]()
        for row, one in zip(rows.unbind(1), known.unbind(1), strict=True):
            forget, new, out = self.joint_proj(torch.cat([state, one, row], -1)).chunk(3, -1)
            kept = forget.sigmoid()
            state = kept * state + (1 - kept) * new.tanh()
            found.append(out.tanh())
        return torch.stack(found, 1)

    def read_out(self, latents: Tensor, depths: Tensor) -> Tensor:
        return self.markov_w2(latents)


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
        self.markov_head = MarkovHead(config)
        self._joins = config.confidence_head_with_markov
        inputs = config.hidden_size + (config.markov_rank if self._joins else 0)
        self.confidence_head = ConfidenceHead(inputs) if config.enable_confidence_head else None

    @property
    def correction(self) -> Correction:
        return self.markov_head

    def confidence(self, normed: Tensor, before: Tensor) -> Tensor | None:
        """Normed rows [R, h] and the tokens before them [R] → log-probabilities [R]; None without
        the head."""
        if self.confidence_head is None:
            return None
        parts = [normed, self.markov_head.markov_w1(before)] if self._joins else [normed]
        return self.confidence_head(torch.cat(parts, -1))


FORM = form("DSpark", DSparkConfig.from_json, DSparkModel)
