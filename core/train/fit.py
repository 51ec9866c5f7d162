"""Fit a student to the target's distribution, from shards (see ``core.learning.shards``).

Anchors are drawn in the target's answers; each gives L places at which the target's own stored
distribution is learnt (forward KL: TreeFlash §4, DART §3.3). The softmax runs over a part of the
vocabulary: every token the target finds likely in this step, the corpus's frequent ones, and a
uniform sample of the rest, whose logits are raised by log(rest ÷ sampled) to count for all of it.

AdamW; the weights that are saved are an exponential average. ``state.safetensors`` holds
everything that a killed run needs to go on.
"""

from __future__ import annotations

import copy
import math
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor, nn

from core.errors import UserError
from core.files import replacing, write_json
from core.learning.corpus import Blocks, Corpus, draw_blocks, frequent_tokens
from core.learning.shards import Document
from core.learning.student import Student
from core.progress import Steps, silent
from core.train.options import FitSettings

REREAD = 25  # steps between looks for new shards


@dataclass(frozen=True)
class FitStatus:
    """The report of one step."""

    step: int
    done: float  # share of the run, 0 … 1
    loss: float  # KL(p ‖ q), nats, weighted over depths


@dataclass(frozen=True, eq=False)
class Softmax:
    """The part of the vocabulary that a step's softmax runs over.

    ids     int64 [C]
    raised  [C]  added to their logits
    column  int64 [V]  each token's place in ``ids``
    """

    ids: Tensor
    raised: Tensor
    column: Tensor


class VocabularySampler:
    """Draws the part of the vocabulary for each step."""

    def __init__(self, documents: list[Document], size: int, settings: FitSettings):
        self.frequent = frequent_tokens(documents, size)[: settings.frequent]
        self.size, self.sampled = size, settings.sampled

    def sample(self, needed: Tensor, rng: torch.Generator) -> Softmax:
        """The needed tokens, the frequent ones and a sample of the rest."""
        inside = torch.zeros(self.size, dtype=torch.bool)
        inside[self.frequent] = True
        inside[needed] = True
        sure = inside.nonzero().flatten()
        rest = (~inside).nonzero().flatten()
        some = rest[torch.randperm(len(rest), generator=rng)[: self.sampled]]
        ids = torch.cat([sure, some])
        raised = torch.zeros(len(ids))
        if len(some):
            raised[len(sure) :] = math.log(len(rest) / len(some))
        column = torch.zeros(self.size, dtype=torch.long)
        column[ids] = torch.arange(len(ids))
        return Softmax(ids, raised, column)


def divergence(p: Tensor, log_q: Tensor) -> Tensor:
    """Σ p·(log p − log q) over the last dimension, nats."""
    return (p * (p.clamp_min(1e-9).log() - log_q)).sum(-1)


class Fit:
    """One training in a folder. ``steps()`` yields after each step; stop whenever you like."""

    def __init__(self, student: Student, corpus: Corpus, settings: FitSettings, folder: Path):
        self.student, self.corpus = student, corpus
        self.settings, self.folder = settings, folder
        self.average = {n: p.detach().clone() for n, p in student.trained().items()}
        self.optimizer = torch.optim.AdamW(
            student.trained().values(), settings.lr, betas=(0.9, 0.95), weight_decay=0.0
        )
        self.step, self.seconds = 0, 0.0
        self._resume()
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "recipe.json", asdict(settings))

    @property
    def checkpoint(self) -> Path:
        """The folder of the averaged drafter."""
        return self.folder / "checkpoint"

    @property
    def done(self) -> float:
        """Share of the run, 0 … 1."""
        return min(1.0, self.seconds / 60 / self.settings.minutes)

    def steps(self) -> Iterator[FitStatus]:
        settings = self.settings
        if self.done >= 1:  # an earlier version killed in its last save left no whole checkpoint
            self.averaged().save(self.checkpoint)
        vocabulary = VocabularySampler(self.corpus.train, len(self.student.embedding), settings)
        while self.done < 1:
            began = time.perf_counter()
            rng = torch.Generator().manual_seed(settings.seed * 1_000_003 + self.step)
            if self.step % REREAD == 0:
                self.corpus.refresh()
            batch = draw_blocks(self.corpus.train, settings.sequences, settings.anchors, rng)
            loss = self._learn(batch, vocabulary, rng)
            self.step += 1
            self.seconds += time.perf_counter() - began
            if self.step % settings.save_every == 0 or self.done >= 1:
                self.save()
            yield FitStatus(self.step, self.done, loss)

    def run(self, report: Steps = silent) -> None:
        """All steps."""
        losses = deque[float](maxlen=50)
        for status in self.steps():
            losses.append(status.loss)
            mean = sum(losses) / len(losses)
            report(status.done, f"step {status.step}, KL {mean:.3f}")

    def _learn(
        self, batch: list[Blocks], vocabulary: VocabularySampler, rng: torch.Generator
    ) -> float:
        """One step; returns its loss."""
        settings, student = self.settings, self.student
        rate, gamma = settings.lr * self._schedule(), settings.gamma or student.gamma
        labels = [student.labels(blocks, settings.top_k, rng, gamma) for blocks in batch]
        needed = torch.cat([each.ids[each.weight > 0].flatten() for each in labels]).unique()
        softmax = vocabulary.sample(needed, rng)
        head = student.head(softmax.ids)
        # 1 where nothing is learnt: all of a denoiser's few states may lie after cut texts
        weight = sum(float(each.weight.sum()) for each in labels) or 1.0
        total = 0.0
        for each in labels:
            logits = head(student.rows(each.blocks))
            log_q = (logits + softmax.raised.to(logits)).log_softmax(-1)
            chosen = log_q.gather(-1, softmax.column[each.ids].to(log_q.device))
            apart = divergence(each.p.to(log_q), chosen)
            loss = (apart * each.weight.to(log_q)).sum() / weight
            loss.backward()
            total += loss.item()
        self._update(rate)
        return total

    def _update(self, rate: float) -> None:
        trained = self.student.trained()
        nn.utils.clip_grad_norm_(trained.values(), 10.0)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        decay = min(self.settings.average, (self.step + 1) / (self.step + 10))
        with torch.no_grad():
            for name, parameter in trained.items():
                self.average[name].lerp_(parameter, 1 - decay)

    def _schedule(self) -> float:
        s = self.settings
        warm = min(1.0, (self.step + 1) / s.warmup)
        return warm * min(1.0, (1 - self.done) / (1 - s.decay_from))

    def averaged(self) -> Student:
        """The student with the averaged weights; its own stay as they are."""
        twin = copy.copy(self.student)
        twin.model = copy.deepcopy(self.student.model).eval()
        twin.model.load_state_dict(self.average, strict=False)
        return twin

    def save(self) -> None:
        """The averaged weights in the official format, then the state for resuming: last, so that
        a fit that is done has written all else."""
        self.averaged().save(self.checkpoint)
        state = {f"model.{n}": p.detach() for n, p in self.student.trained().items()}
        state |= {f"average.{n}": p for n, p in self.average.items()}
        for index, values in self.optimizer.state_dict()["state"].items():
            for key, value in values.items():
                state[f"optimizer.{index}.{key}"] = torch.as_tensor(value).clone()
        contiguous = {n: t.contiguous() for n, t in state.items()}
        about = {"step": str(self.step), "seconds": str(self.seconds)}
        with replacing(self.folder / "state.safetensors") as partial:
            partial.write_bytes(save(contiguous, metadata=about))

    def _resume(self) -> None:
        path = self.folder / "state.safetensors"
        if not path.exists():
            return
        with safe_open(path, framework="pt") as file:
            self.step = int(file.metadata()["step"])
            self.seconds = float(file.metadata()["seconds"])
            names = list(file.keys())
            own = {f"{part}.{n}" for part in ("model", "average") for n in self.average}
            if own != {n for n in names if not n.startswith("optimizer.")}:
                raise UserError(f"{path} is of a training of other parts: name another folder")
            with torch.no_grad():
                for name, parameter in self.student.trained().items():
                    parameter.copy_(file.get_tensor(f"model.{name}"))
                    self.average[name].copy_(file.get_tensor(f"average.{name}"))
            state: dict[int, dict[str, Tensor]] = {}
            for name in names:
                part, *rest = name.split(".")
                if part == "optimizer":
                    state.setdefault(int(rest[0]), {})[rest[1]] = file.get_tensor(name)
            self.optimizer.load_state_dict(self.optimizer.state_dict() | {"state": state})
