"""Show what decides how good a drafter gets: a short training for every change to the recipe.

    python -m app.maintainers.ablate --shards runs/one/shards --prompts prompts-eval.jsonl \\
        --out runs/ablate --minutes 6 --texts runs/no-code runs/others

Every variant is a drafter trained from its own start for the same minutes, then judged by
simulation over the same greedy texts of the target, as a chain and as a tree of 64. A mixture of
text is a folder of shards (links will do) given by ``--texts``: one more variant each. Variants
that are done are not trained again, and one that was killed resumes. The table of all that are done
is printed with 95 % paired bootstrap intervals of the differences to the base, and τ by source.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from analysis.numbers import interval, number
from app.command_line import REQUIRED, CommandOptions, one_of, option, run, words
from app.table_texts import FORMS
from app.terminal import ProgressBar
from core.decoding.along import Setup
from core.drafting.builders import Chain, best_first
from core.errors import UserError, as_script
from core.journal import Journal
from core.learning.corpus import Blocks, Corpus
from core.learning.shards import TOP_K, Document, folder_layers
from core.learning.student import DrafterTraining, Student, TrainingRun
from core.methods.method import TrainingInfo
from core.methods.registry import drafter_trainings
from core.models import embedded
from core.models.language import Language, load_language
from core.ranges import Range
from core.samples import read_samples
from core.train.evaluation import HeldOutText, evaluation_texts
from core.train.fit import Fit, divergence
from core.train.options import FitSettings
from core.train.simulate import Score, score, trained_drafter

BUDGET = 64
HELD_OUT = 16  # documents of the shards that the KL is measured on
CHAIN, TREE = "chain", f"tree {BUDGET}"
_AT_ONCE = 16  # anchors that share a pass


@dataclass(frozen=True)
class TrainingVariant:
    """A training with one change to the recipe.

    options  of the drafter's training, where they differ from the defaults
    fit      changed FitSettings
    share    it trains on every n-th document only
    greedy   it trains on the greedy answers only; False: on the drawn ones
    text     it trains on these shards instead of the base's
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    fit: Mapping[str, Any] = field(default_factory=dict)
    share: int = 1
    greedy: bool | None = None
    text: Path | None = None

    @property
    def folder(self) -> str:
        """The name of its folder, in letters that every file system takes."""
        return re.sub(r"\W+", "-", self.name)


OF_ANY_DRAFTER = (
    TrainingVariant("loss: the text's own token", fit={"top_k": 0}),
    TrainingVariant("loss: p's top 4", fit={"top_k": 4}),
    TrainingVariant("depth weights γ = 2", fit={"gamma": 2.0}),
    TrainingVariant("depth weights γ = 8", fit={"gamma": 8.0}),
    TrainingVariant("all depths alike", fit={"gamma": 1e9}),
    TrainingVariant("a quarter of the text", share=4),
    TrainingVariant("a sixteenth of the text", share=16),
    TrainingVariant("text: greedy answers", greedy=True),
    TrainingVariant("text: drawn answers", greedy=False),
    TrainingVariant("no decay, no average", fit={"decay_from": 1.0 - 1e-9, "average": 0.0}),
)


def variants(
    training: DrafterTraining, layers: tuple[int, ...], texts: Sequence[Path]
) -> dict[str, TrainingVariant]:
    """Every variant by name, the base first. Raises UserError for texts of the same name."""
    own = [TrainingVariant(name, options) for name, options in training.variants(layers).items()]
    base = own[0]
    mixtures = [TrainingVariant(f"text: {folder.name}", text=folder) for folder in texts]
    others = [replace(v, options=base.options) for v in (*OF_ANY_DRAFTER, *mixtures)]
    found = {variant.name: variant for variant in (*own, *others)}
    if len({v.folder for v in found.values()}) < len(own) + len(others):
        raise UserError("two of --texts have the same name: a variant is named after its folder")
    return found


@dataclass(frozen=True)
class VariantResult:
    """The result of one variant.

    kl       KL(p ‖ q) on held-out documents, mean over its own depths, nats
    sources  where each text's prompt is from
    lengths  of each setup, the rounds' tokens text by text
    """

    name: str
    minutes: float
    steps: int
    parameters: int
    kl: float
    sources: list[str]
    lengths: dict[str, list[list[int]]]

    def comparable(self, minutes: float, texts: int) -> bool:
        """Whether a training of these minutes, judged on so many texts, compares with it."""
        return self.minutes == minutes and len(self.lengths[CHAIN]) == texts

    @property
    def score(self) -> Score:
        return Score(self.lengths)

    def tau_of(self, source: str) -> float:
        """Tokens per round of the tree over the texts of one source."""
        return self.score.of([named == source for named in self.sources]).tau(TREE)


def is_greedy(document: Document) -> bool:
    """Whether every token of the answer is the target's most probable one."""
    first = document.answer
    return torch.equal(document.tokens[first:], document.top_ids[first - 1 : -1, 0])


def corpus_of(variant: TrainingVariant, shards: Path, held_out: int) -> Corpus:
    """Return the variant's training text. The documents held out are the same for all variants."""
    corpus = Corpus(shards, held_out)
    if variant.text:
        others = Corpus(variant.text, 0)
        if others.layers != corpus.layers:
            raise UserError(f"{variant.text} holds no text with the features of {shards}")
        corpus.train = [d for d in others.train if not corpus.holds_out(d)]
    if variant.greedy is not None:
        corpus.train = [d for d in corpus.train if is_greedy(d) == variant.greedy]
    corpus.train = corpus.train[:: variant.share]
    return corpus


@dataclass(frozen=True, eq=False)
class Ablation:
    """The common part of all variants: drafter, target, shards, recipe and texts to judge them."""

    info: TrainingInfo
    language: Language
    shards: Path
    settings: FitSettings
    texts: Sequence[HeldOutText]

    def train(self, variant: TrainingVariant, folder: Path) -> Fit:
        settings = replace(self.settings, **variant.fit)
        corpus = corpus_of(variant, self.shards, settings.held_out)
        torch.manual_seed(settings.seed)
        run, options = TrainingRun(self.language, folder), self.info.options(**variant.options)
        fit = Fit(self.info.training.student(run, options, corpus), corpus, settings, folder)
        with ProgressBar("fitting") as progress:
            fit.run(progress.at)
        return fit

    def judge(self, variant: TrainingVariant, fit: Fit) -> VariantResult:
        """The averaged drafter over the target's texts, as a chain and as a tree."""
        drafter = trained_drafter(self.info.training.name, self.language, fit.checkpoint)
        setups = [Setup(CHAIN, Chain(), drafter.max_depth), Setup(TREE, best_first, BUDGET)]
        with ProgressBar("simulating") as progress:
            runs = score(self.language, drafter, self.texts, setups, progress.at).runs
        student = fit.averaged()
        return VariantResult(
            name=variant.name,
            minutes=fit.settings.minutes,
            steps=fit.step,
            parameters=sum(p.numel() for p in student.trained().values()),
            kl=held_out_kl(student, fit.corpus.test[:HELD_OUT]),
            sources=[text.source for text in self.texts],
            lengths={name: [list(run) for run in some] for name, some in runs.items()},
        )


@torch.inference_mode()
def held_out_kl(student: Student, documents: Sequence[Document]) -> float:
    """Mean over texts, anchors and depths of KL(p ‖ q) on the stored target tokens, nats."""
    head, rng = student.head(torch.arange(len(student.embedding))), torch.Generator()
    means = []
    for document in documents:
        anchors = torch.arange(document.answer, len(document) - 1)
        found = []
        for part in anchors.split(_AT_ONCE):
            labels = student.labels(Blocks(document, part), TOP_K, rng, math.inf)
            log_q = head(student.rows(labels.blocks)).log_softmax(-1).cpu()
            apart = divergence(labels.p, log_q.gather(-1, labels.ids)) * labels.weight
            found.append(apart.sum(-1) / labels.weight.sum(-1).clamp_min(1))
        means.append(float(torch.cat(found).mean()))
    return sum(means) / max(1, len(means))


def rows_of(table: Journal) -> dict[str, VariantResult]:
    """The results that are kept, by name."""
    return {name: VariantResult(**table.get(name)) for name in table}


def print_table(rows: Sequence[VariantResult], base: VariantResult | None) -> None:
    """Print the table as Markdown."""
    sources = sorted({source for row in rows for source in row.sources if source})
    heads = ["variant", "steps", "M parameters", "KL", f"τ {CHAIN}", f"τ {TREE}", *sources]
    lines = []
    for row in rows:
        cells = [row.name, str(row.steps), number(row.parameters / 1e6, 1), number(row.kl)]
        for setup in (CHAIN, TREE):
            cell = number(row.score.tau(setup))
            if base and row is not base:
                cell += f" {interval(*row.score.gain(base.score, setup), sign=True)}"
            cells.append(cell)
        lines.append([*cells, *(number(row.tau_of(source)) for source in sources)])
    print(FORMS["markdown"](heads, lines, heads[:1]))


KINDS = tuple(drafter_trainings())


@dataclass(frozen=True, kw_only=True)
class Options(CommandOptions):
    """Say what each choice of a training changes: train a variant of each, and judge them."""

    kind: str = words("which drafter", KINDS[0], one_of(KINDS))
    shards: Path = option(REQUIRED, "text of the train command", metavar="FOLDER")
    prompts: Path = option(REQUIRED, "held out from training", metavar="FILE")
    out: Path = option(REQUIRED, "of one drafter; reused to resume", metavar="FOLDER")
    minutes: float = option(6.0, "of training, each variant", Range(0, above=True))
    every: int = option(4, "judge on every n-th prompt only", Range(1))
    texts: tuple[Path, ...] = option(
        (),
        "shards to train on instead: one more variant each, named after its folder",
        metavar="FOLDER",
    )
    only: tuple[str, ...] = option((), "of the variants", metavar="NAME")
    model: str = option(embedded.NAME, "the target", metavar="NAME|PATH")
    device: str = option("auto", "auto, cpu, cuda, …", metavar="DEVICE")


def main(args: Options) -> int:
    info = drafter_trainings()[args.kind]
    prompts = read_samples(args.prompts)
    layers, *_ = [folder_layers(folder) for folder in (args.shards, *args.texts)]
    known = variants(info.training, layers, args.texts)
    if unknown := set(args.only) - set(known):
        raise UserError(f"no variant {sorted(unknown)[0]!r}: choose one of {', '.join(known)}")
    language = load_language(args.model, args.device, fast=False)
    with ProgressBar("evaluation texts") as progress:
        place = args.out / "evaluation"
        texts = evaluation_texts(language, layers, prompts, place, ("greedy",), progress.at)
    texts = texts[:: args.every]
    table = Journal(args.out / "table.jsonl")
    if not all(row.comparable(args.minutes, len(texts)) for row in rows_of(table).values()):
        raise UserError(f"{table.path} is of other minutes or prompts: name another --out")
    settings = FitSettings(minutes=args.minutes)
    ablation = Ablation(info, language, args.shards, settings, texts)
    for name in args.only or known:
        if name not in table:
            print(name, file=sys.stderr, flush=True)
            fit = ablation.train(known[name], args.out / known[name].folder)
            table.add(name, asdict(ablation.judge(known[name], fit)))
    rows = rows_of(table)
    in_order = [name for name in known if name in rows]
    shown = [rows[name] for name in dict.fromkeys([*in_order, *rows])]
    print_table(shown, rows.get(next(iter(known))))
    return 0


if __name__ == "__main__":
    as_script(lambda: run(Options, main, "python -m app.maintainers.ablate"))
