"""``train``: text → shards → drafter or denoiser → report, each stage resumable."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from analysis.numbers import interval, number
from app.command_line import REQUIRED, CommandOptions, Declared, one_of, option, words
from app.terminal import ProgressBar
from core.errors import UserError
from core.files import write_json
from core.journal import alone
from core.methods.method import TrainingInfo
from core.methods.registry import drafter_trainings, shipped
from core.models import embedded
from core.samples import Sample
from core.stats import TOO_FEW
from core.train.options import DENOISER, DENOISER_TRAINING, FitSettings, TextOptions

if TYPE_CHECKING:
    from core.learning.student import DrafterTraining, Training, TrainingRun
    from core.models.language import Language
    from core.train.evaluation import HeldOutText
    from core.train.fit import Fit
    from core.train.simulate import Row

BUDGETS = (16, 64)  # of the report
TEXT = "text (made once; an option that is left out later keeps its value)"


@cache
def trainings() -> dict[str, TrainingInfo]:
    """Everything that is trained here, by name: the drafters and the denoiser."""
    return {**drafter_trainings(), DENOISER: DENOISER_TRAINING}


@dataclass(frozen=True, kw_only=True)
class Options(CommandOptions):
    """Train a drafter for a target, or the denoiser: text, fit, report, each stage resumable.

    Everything is in the --out folder: shards/ (the target's text, shared by all kinds), and a
    folder for each kind with its state, the averaged checkpoint/ in its official format and a
    report. Repeat the command to resume. A GPU is used when there is one. Text is made once: later
    commands may leave out its options, and other values are refused.
    """

    kind: str = words("what to train", next(iter(trainings())), one_of(tuple(trainings())))
    out: Path = option(REQUIRED, "folder of the run; reused to resume", metavar="FOLDER")
    model: str = option(embedded.NAME, "the target: name, path or hub id", metavar="NAME|PATH")
    device: str = option("auto", "auto, cpu, cuda, …", metavar="DEVICE")
    start: str | None = option(
        None,
        "checkpoint of this kind to continue from, or the word shipped (default: a start made from "
        "the target's own layers); the drafter then has the checkpoint's shape",
        metavar="PATH",
    )
    named: Mapping[str, Any] = field(default_factory=dict)  # options of the text, fit and kinds

    @classmethod
    def groups(cls) -> Iterator[tuple[str, list[Declared]]]:
        """Those above, of the text, of the fit, and of each kind what no kind before it has."""
        yield from super().groups()
        known: dict[str, Declared] = {}
        kinds = {name: info.options for name, info in trainings().items()}
        for title, owner in {TEXT: TextOptions, "fit": FitSettings, **kinds}.items():
            hints = get_type_hints(owner)
            own = {f.name: (f, hints[f.name]) for f in fields(owner) if f.metadata.get("help")}
            shared = [f"--{name.replace('_', '-')}" for name in own if name in known]
            new = [each for name, each in own.items() if name not in known]
            yield f"{title} (and {' '.join(shared)})" if shared else title, new
            known |= own

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Options:
        own = {f.name for f in fields(cls)}
        named = {name: value for name, value in given.items() if name not in own}
        return cls(**{name: given[name] for name in given if name in own}, named=named)

    def set_of(self, kind: type) -> dict[str, Any]:
        """The fields of an options dataclass that were named."""
        own = [f.name for f in fields(kind) if f.metadata.get("help")]
        return {name: self.named[name] for name in own if name in self.named}


def main(args: Options) -> int:
    """Run the stages that are not finished. Returns the exit code."""
    import torch

    from core.learning.corpus import Corpus
    from core.learning.student import TrainingRun
    from core.models.language import load_language
    from core.train.fit import Fit
    from core.train.sources import Sources, make_shards

    shards, folder, options = args.out / "shards", args.out / args.kind, own_options(args)
    training: Training = trainings()[args.kind].training
    sources = Sources.chosen(args.set_of(TextOptions), args.model, shards)
    start = starting_point(args.start, args.kind, args.model)
    _check_folders(*sources.code, start, *vars(options[args.kind]).values())
    held_out = sources.held_out_samples()
    language = load_language(args.model, args.device, fast=False)
    run = TrainingRun(language, args.out, start)
    layers = feature_layers(training, run, options, shards)
    with ProgressBar("collecting text") as progress:
        make_shards(language, sources.settings(layers), sources, shards, progress.at)
    settings = FitSettings(**args.set_of(FitSettings) | {"seed": sources.seed})
    corpus = Corpus(shards, settings.held_out)
    if not corpus.train:
        raise UserError(f"{shards} holds no training documents")
    torch.manual_seed(sources.seed)
    with alone(folder, "training", resumes=True):
        student = training.student(run, options[args.kind], corpus)
        fit = Fit(student, corpus, settings, folder)
        _fit_and_report(args, training, language, fit, held_out)
    return 0


def _fit_and_report(
    args: Options,
    training: Training,
    language: Language,
    fit: Fit,
    held_out: Sequence[Sample],
) -> None:
    """Fit to the end; then the reports, on the held-out prompts or on held-out training text."""
    from core.learning.student import DrafterTraining
    from core.train.accuracy import DOCUMENTS, of_student, write_accuracy
    from core.train.evaluation import HeldOutText, evaluation_texts
    from core.train.simulate import ALL

    corpus, folder = fit.corpus, fit.folder
    with ProgressBar("fitting") as progress:
        fit.run(progress.at)
    if held_out:
        with ProgressBar("evaluation texts") as progress:
            place = args.out / "evaluation"
            texts = evaluation_texts(language, corpus.layers, held_out, place, report=progress.at)
    else:
        texts = [HeldOutText("held out", ALL, document) for document in corpus.test]
    if isinstance(training, DrafterTraining):
        found = report_drafter(training, language, fit.checkpoint, texts)
        student, place = fit.averaged(), folder / "accuracy.json"
        kinds = {"train": corpus.train[:DOCUMENTS], "held out": corpus.test[:DOCUMENTS]}
        shown = [of_student(student, some, text) for text, some in kinds.items() if some]
        write_accuracy(place, training.name, fit.step, shown)
    else:
        found = report_denoiser(fit.checkpoint, args, texts)
    numbers = {"recipe": asdict(fit.settings), "steps": fit.step, "tokens": corpus.tokens}
    write_json(folder / "report.json", numbers | {"scores": found})


def own_options(args: Options) -> dict[str, Any]:
    """The options of everything that is trained here, as the arguments say.

    Numbers and paths of other kinds are accepted, so that one command line serves them all. Raises
    UserError for a switch of another kind.
    """
    mine = args.set_of(trainings()[args.kind].options)
    for name, info in trainings().items():
        switches = [n for n, value in args.set_of(info.options).items() if value is True]
        if foreign := [n for n in switches if n not in mine]:
            flag = foreign[0].replace("_", "-")
            raise UserError(f"--{flag} is an option of {name}, not of {args.kind}")
    return {name: info.options(**args.set_of(info.options)) for name, info in trainings().items()}


def feature_layers(
    training: Training, run: TrainingRun, options: dict[str, Any], shards: Path
) -> tuple[int, ...]:
    """The layers whose features new shards hold: as those already there, else all that drafters of
    the target may read. Raises UserError when those there lack some that this training reads."""
    from core.learning.shards import folder_layers, shard_paths
    from core.learning.student import TrainingRun
    from core.methods.loading import check_layers

    read = set(training.layers(run, options[training.name]))
    count = run.language.model.config.get_text_config().num_hidden_layers
    check_layers(f"the {training.name}", sorted(read), repr(run.language.name), count)
    if not shard_paths(shards):
        fresh = TrainingRun(run.language, run.folder)
        others = (name for name in trainings() if name != training.name)
        every = read.union(
            *(trainings()[name].training.layers(fresh, options[name]) for name in others)
        )
        return tuple(sorted(every & {*range(count)}))  # others may need a target of more layers
    layers = folder_layers(shards)
    if missing := read - set(layers):
        raise UserError(
            f"the text in {shards} holds no features of layer {min(missing)}: name another folder"
        )
    return layers


def starting_point(named: str | None, kind: str, target: str) -> Path | None:
    """The checkpoint folder that ``--start`` names; the word ``shipped`` is the one in assets."""
    if named is None:
        return None
    folder = shipped(kind, target) if named == "shipped" else Path(named)
    if folder is None:
        raise UserError(f"no {kind} ships for {target!r}: name a folder, or leave --start out")
    return folder


def report_drafter(
    training: DrafterTraining, language: Language, folder: Path, texts: Sequence[HeldOutText]
) -> list[Row]:
    """τ of a drafter's checkpoint under the builders that judge it."""
    from core.train.simulate import named_builder, score_by_source, setups, trained_drafter

    drafter = trained_drafter(training.name, language, folder)
    found = [
        setup
        for name in training.builders
        for setup in setups(name, named_builder(name, language), BUDGETS, drafter.max_depth)
    ]
    with ProgressBar("simulating") as progress:
        return print_rows(score_by_source(language, drafter, texts, found, progress.at))


def print_rows(found: Iterable[Row]) -> list[Row]:
    """Print rows as they come, and return them."""
    made = []
    for row in found:
        print(
            f"{row['method']:20} {row['sampling']:7} {row['source']:10} "
            f"{number(row['tau'], 3)} "
            + (TOO_FEW if row["low"] is None else interval(row["low"], row["high"])),
            flush=True,
        )
        made.append(row)
    return made


def report_denoiser(folder: Path, args: Options, texts: Sequence[HeldOutText]) -> list[Row]:
    """Perplexity under the target of what the denoiser writes, beside the target's own texts."""
    from core.train.denoiser_report import compare

    own = {
        f"target, {sampling}": [t.document for t in texts if t.sampling == sampling]
        for sampling in dict.fromkeys(text.sampling for text in texts)
    }
    found = [asdict(w) for w in compare(folder, args.model, args.device, own)]
    for row in found:
        print(json.dumps(row), flush=True)
    return found


def _check_folders(*values: Any) -> None:
    """Raises UserError for a folder among the values that is not there."""
    for value in values:
        if isinstance(value, Path) and not value.is_dir():
            raise UserError(f"there is no folder {value}")
