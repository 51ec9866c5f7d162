"""The overfit gate: can this training learn one sample, and does the drafter then decode it?

    python -m app.maintainers.overfit dflash --out runs/gate --steps 300 --expect 0.9

A training that cannot learn one text by heart has a mistake: labels, features, masks or rates. One
that has learnt it, and whose drafter then drafts something else, is fed otherwise when it decodes.
Exit code 1 and a sentence for each. The folder must be new, so that the start is a fresh one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch

from app.command_line import REQUIRED, CommandOptions, one_of, option, run, words
from app.terminal import ProgressBar
from core.errors import UserError, as_script
from core.learning.corpus import SHORTEST, Corpus
from core.learning.shards import write_shard
from core.learning.student import TrainingRun
from core.methods.method import TrainingInfo
from core.methods.registry import drafter_trainings
from core.models import embedded
from core.models.language import Language, load_language
from core.ranges import Range
from core.train.accuracy import Accuracy, of_drafter, of_student
from core.train.collect import Collector, CollectSettings
from core.train.fit import Fit
from core.train.options import FitSettings
from core.train.simulate import trained_drafter

PROMPT = "Count from one to thirty in words."
APART = 0.9  # of the student's accuracy that its drafter must reach
ENDLESS = 1e6  # minutes: the learning rate stays


@dataclass(frozen=True)
class Bound:
    """The bound of the gate: the accuracy ``expect`` over all depths after so many steps on the
    target's greedy answer to one prompt."""

    steps: int = 300
    expect: float = 0.9
    prompt: str = PROMPT
    new_tokens: int = 64


@dataclass(frozen=True)
class OverfitResult:
    """The outcome: the accuracy of the student, and that of its drafter."""

    kind: str
    plan: Bound
    student: Accuracy
    drafter: Accuracy

    @property
    def missed(self) -> Iterator[str]:
        """A sentence for each way in which it is missed."""
        learnt, drafts = self.student.mean, self.drafter.mean
        if learnt < self.plan.expect:
            yield (
                f"gate missed: after {self.plan.steps} steps on one sample {self.kind} has learnt "
                f"{learnt:.2f} of it, not {self.plan.expect:g}: labels, features, masks or the "
                "rate are wrong, or the steps are too few"
            )
        if drafts < APART * learnt:
            yield (
                f"gate missed: training says {learnt:.2f}, and the drafter as it decodes is right "
                f"at {drafts:.2f} of the same text: it is fed otherwise than in training "
                "(`diagnose` tries the ways)"
            )


def overfit(
    info: TrainingInfo,
    language: Language,
    folder: Path,
    settings: FitSettings,
    plan: Bound = Bound(),
) -> OverfitResult:
    """Fit a fresh student on the one sample.

    Raises UserError for a folder that is not new, or an answer that is too short.
    """
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder} is not empty: the gate begins anew, in a folder of its own")
    training, run, options = info.training, TrainingRun(language, folder), info.options()
    text = CollectSettings(
        training.layers(run, options), (0.0,), max_new_tokens=plan.new_tokens, cut_loops=False
    )
    collector = Collector(language, text)
    documents = collector.answer([collector.chat(plan.prompt)], 0)
    if (length := len(documents[0]) - documents[0].answer) < SHORTEST:
        raise UserError(f"the answer has {length} tokens, the gate needs {SHORTEST}: ask another")
    write_shard(folder / "shards" / "00000.safetensors", documents)
    corpus = Corpus(folder / "shards", 0)
    torch.manual_seed(settings.seed)
    fit = Fit(training.student(run, options, corpus), corpus, settings, folder / training.name)
    with ProgressBar("overfitting", plan.steps) as progress:
        for status in islice(fit.steps(), plan.steps):
            progress.at(status.step)
    student = fit.averaged()
    student.save(fit.checkpoint)
    drafter = trained_drafter(training.name, language, fit.checkpoint)
    own = of_student(student, corpus.train, "train", anchors=len(documents[0]))
    return OverfitResult(
        training.name, plan, own, of_drafter(language, drafter, corpus.train, "train")
    )


KINDS = tuple(drafter_trainings())


@dataclass(frozen=True, kw_only=True)
class Options(CommandOptions):
    """Say whether a training can learn one sample, and whether the drafter then decodes it."""

    kind: str = words("which drafter", read=one_of(KINDS))
    out: Path = option(REQUIRED, "a new folder", metavar="FOLDER")
    model: str = option(embedded.NAME, "the target: name, path or hub id", metavar="NAME|PATH")
    device: str = option("auto", "auto, cpu, cuda, …", metavar="DEVICE")
    prompt: str = option(PROMPT, "whose greedy answer is the one sample")
    max_new_tokens: int = option(64, "of that answer", Range(SHORTEST))
    steps: int = option(300, "of training", Range(1))
    expect: float = option(0.9, "accuracy over all depths", Range(0, 1, above=True))
    lr: float = option(1e-3, "the learning rate", Range(0, above=True))


def main(args: Options) -> int:
    language = load_language(args.model, args.device, fast=False)
    settings = FitSettings(
        ENDLESS, sequences=1, lr=args.lr, warmup=10, average=0.9, save_every=1 << 30
    )
    info = drafter_trainings()[args.kind]
    plan = Bound(args.steps, args.expect, args.prompt, args.max_new_tokens)
    gate = overfit(info, language, args.out, settings, plan)
    for title, found in (("as trained", gate.student), ("as it decodes", gate.drafter)):
        shares = (f"{r / max(1, n):.2f}" for r, n in zip(found.right, found.seen, strict=True))
        print(f"{title:14} {found.mean:.2f}  by depth {' '.join(shares)}")
    missed = list(gate.missed)
    for sentence in missed:
        print(sentence, file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    as_script(lambda: run(Options, main, "python -m app.maintainers.overfit"))
