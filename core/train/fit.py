"""Fit a drafter to the target's distribution, from shards (see ``core.train.shards``).

Anchors are drawn in the target's answers; each gives L positions whose target is the target
model's own distribution there (forward KL: TreeFlash §4, DART §3.3). The vocabulary softmax runs
over a sampled part of the vocabulary: every token the target finds likely in this step, the
corpus's frequent ones, and a uniform sample of the rest that stands for it with the usual
log-weight correction.

AdamW; the weights that are kept are an exponential average. ``state.safetensors`` holds everything
a killed run needs to go on.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from core.errors import UserError
from core.files import replacing
from core.train.shards import Document, folder_layers, read_shard, shard_paths
from core.train.students import Blocks, Student


@dataclass(frozen=True)
class FitSettings:
    """One training recipe. ``sequences`` × ``anchors`` blocks make a step."""

    minutes: float = 90.0  # of training; the learning rate's schedule follows the clock
    sequences: int = 8
    anchors: int = 32
    lr: float = 1e-3
    warmup: int = 40  # steps
    decay_from: float = 0.3  # constant until this share of the run, then linear to zero
    gamma: float | None = None  # depth k weighs exp(−(k − 1)/γ); None: as the drafter's paper
    top_k: int = 12  # of the shard's stored target probabilities
    frequent: int = 4096
    sampled: int = 512
    average: float = 0.995
    seed: int = 0
    save_every: int = 100  # steps
    held_out: int = 48  # prompts never trained on, but at most a twelfth of all


@dataclass(frozen=True)
class FitStatus:
    """What one step reports."""

    step: int
    done: float  # share of the run, 0 … 1
    loss: float  # KL(p ‖ q), nats, weighted over depths


class Corpus:
    """The documents of a shard folder; those of some prompts are held out.

    ``test`` has one document of each of these (the first: greedy, where there is one), ``train``
    none: a prompt's answers resemble each other too much to learn from one and judge by another.
    """

    def __init__(self, folder: Path, held_out: int):
        self.folder, self._count = folder, held_out
        self._read: set[Path] = set()
        self._held: dict[bytes, Document] = {}
        self.train: list[Document] = []
        self.refresh()

    @property
    def layers(self) -> tuple[int, ...]:
        """The feature layers of its shards."""
        return folder_layers(self.folder)

    @property
    def test(self) -> list[Document]:
        return list(self._held.values())

    def refresh(self) -> None:
        """Take in shards that have appeared since: collecting and fitting may run side by side."""
        fresh = [path for path in shard_paths(self.folder) if path not in self._read]
        self._read.update(fresh)
        documents = [d for path in fresh for d in read_shard(path) if len(d) - d.answer >= 16]
        keyed = [(_prompt_key(d), d) for d in documents]
        if not self._held:  # only once: what has been trained on is not held out any more
            self._held = _hold_out(keyed, self._count)
        self.train += [d for key, d in keyed if key not in self._held]

    def holds_out(self, document: Document) -> bool:
        """Whether it answers a prompt that is held out."""
        return _prompt_key(document) in self._held

    @property
    def tokens(self) -> int:
        return sum(len(d) - d.answer for d in self.train)


def _hold_out(documents: list[tuple[bytes, Document]], count: int) -> dict[bytes, Document]:
    """The first document of so many prompts, by their keys. The least keys are those of prompts
    of all shards alike, and the same in every run."""
    first: dict[bytes, Document] = {}
    for key, document in documents:
        first.setdefault(key, document)
    count = min(count, math.ceil(len(first) / 12))
    return {key: first[key] for key in sorted(first)[:count]}


def _prompt_key(document: Document) -> bytes:
    prompt = document.tokens.numpy()[: document.answer].tobytes()
    return hashlib.blake2b(prompt, digest_size=8).digest()


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
    """One training run in a folder. ``steps()`` yields after each step; stop whenever you like.

    ``on_checkpoint`` gets the averaged student each time, to write what lies outside the folder.
    """

    def __init__(
        self,
        student: Student,
        corpus: Corpus,
        settings: FitSettings,
        folder: Path,
        on_checkpoint: Callable[[Student], None] | None = None,
    ):
        self.student, self.parts, self.corpus = student, student.parts, corpus
        self.settings, self.folder, self._on_checkpoint = settings, folder, on_checkpoint
        self.average = {n: p.detach().clone() for n, p in student.trained().items()}
        self.optimizer = torch.optim.AdamW(
            student.trained().values(), settings.lr, betas=(0.9, 0.95), weight_decay=0.0
        )
        self.step, self.seconds = 0, 0.0
        self._resume()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "recipe.json").write_text(json.dumps(asdict(settings), indent=1))

    def steps(self) -> Iterator[FitStatus]:
        settings = self.settings
        if self.done >= 1:  # an earlier version killed in its last save left no whole checkpoint
            self.averaged().save(self.folder / "checkpoint")
        vocabulary = Vocabulary(self.corpus.train, self.student.vocabulary, settings)
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
        settings, student = self.settings, self.student
        scale = self._schedule()
        gamma = settings.gamma or student.gamma
        lessons = [student.lesson(b, settings.top_k, rng, gamma) for b in batch]
        needed = torch.cat([x.ids[x.weight > 0].flatten() for x in lessons]).unique()
        ids, add, column = vocabulary.sample(needed, rng)
        device = self.parts.head.device
        head, add = self.parts.head[ids.to(device)], add.to(device)
        # 1 where nothing is learnt: a denoiser's few states may all lie behind texts that were cut
        whole = sum(float(x.weight.sum()) for x in lessons) or 1.0
        total = 0.0
        for lesson in lessons:
            rows, p = student.taught_rows(lesson.blocks), lesson.p.to(device)
            log_q = F.log_softmax((rows @ head.to(rows.dtype).T).float() + add, -1)
            cross = -(p * log_q.gather(-1, column[lesson.ids].to(device))).sum(-1)
            entropy = -(p * p.clamp_min(1e-9).log()).sum(-1)
            loss = ((cross - entropy) * lesson.weight.to(device)).sum() / whole
            loss.backward()
            total += loss.item()
        nn.utils.clip_grad_norm_(self.student.trained().values(), 10.0)
        for group in self.optimizer.param_groups:
            group["lr"] = settings.lr * scale
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        keep = min(settings.average, (self.step + 1) / (self.step + 10))
        with torch.no_grad():
            for name, parameter in self.student.trained().items():
                self.average[name].lerp_(parameter, 1 - keep)
        return total

    def _schedule(self) -> float:
        s = self.settings
        warm = min(1.0, (self.step + 1) / s.warmup)
        return warm * min(1.0, (1 - self.done) / (1 - s.decay_from))

    def averaged(self) -> Student:
        """The student with the averaged weights (its own are left as they are)."""
        twin = copy.copy(self.student)
        twin.model = copy.deepcopy(self.student.model).eval()
        twin.model.load_state_dict(self.average, strict=False)
        return twin

    def save(self) -> None:
        """The averaged weights in the official format, and the checkpoint for resuming: last, so
        that a fit which is done has written all else."""
        averaged = self.averaged()
        averaged.save(self.folder / "checkpoint")
        if self._on_checkpoint:
            self._on_checkpoint(averaged)
        state = {f"model.{n}": p.detach() for n, p in self.student.trained().items()}
        state |= {f"average.{n}": p for n, p in self.average.items()}
        for index, values in self.optimizer.state_dict()["state"].items():
            for key, value in values.items():
                state[f"optimizer.{index}.{key}"] = torch.as_tensor(value).clone()
        contiguous = {n: t.contiguous() for n, t in state.items()}
        about = {"step": str(self.step), "seconds": str(self.seconds)}
        with replacing(self.folder / "state.safetensors") as partial:
            save_file(contiguous, partial, metadata=about)

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
                kind, *rest = name.split(".")
                if kind == "optimizer":
                    state.setdefault(int(rest[0]), {})[rest[1]] = file.get_tensor(name)
            self.optimizer.load_state_dict(self.optimizer.state_dict() | {"state": state})
