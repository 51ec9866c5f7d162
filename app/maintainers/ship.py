"""Replace the drafters that ship by those of a training run that are better.

    python -m app.maintainers.ship --run runs/one --prompts prompts-eval.jsonl

Both are judged in the form that ships (int8), greedily, at B = 64 under best-first search, on the
same texts of the target (made and stored in the run, see ``core.train.evaluation``). A drafter is
replaced when the 95 % paired bootstrap interval of its gain in τ lies above zero. Drafters that
share weights are replaced together: one of them must win so and none lose, or all stay.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from app.command_line import REQUIRED, CommandOptions, option, run
from app.terminal import ProgressBar
from core import ASSETS
from core.decoding.along import Setup
from core.drafting.builders import best_first
from core.errors import UserError, as_script
from core.files import replacing
from core.learning.shards import folder_layers, shard_paths
from core.learning.student import TrainingRun
from core.methods.registry import drafter_trainings
from core.models import embedded
from core.models.language import Language, load_language
from core.samples import Sample, read_samples
from core.train.evaluation import HeldOutText, evaluation_texts
from core.train.simulate import Score, score, trained_drafter

SETUP = Setup("best-first", best_first, 64)


@dataclass(frozen=True)
class Gain:
    """τ of a drafter as it ships and as trained, on the same texts, and the interval of the gain.

    ``before`` and the interval are None where none shipped.
    """

    kind: str
    before: float | None
    after: float
    low: float | None
    high: float | None

    @staticmethod
    def of(kind: str, before: Score | None, after: Score) -> Gain:
        tau = after.tau(SETUP.name)
        if before is None:
            return Gain(kind, None, tau, None, None)
        return Gain(kind, before.tau(SETUP.name), tau, *after.gain(before, SETUP.name))

    def __str__(self) -> str:
        if self.before is None:
            return f"{self.kind}: τ {self.after:.3f}, none shipped"
        return (
            f"{self.kind}: τ {self.before:.3f} shipped, {self.after:.3f} trained, "
            f"gain [{self.low:+.3f}, {self.high:+.3f}]"
        )


def better(gains: Sequence[Gain]) -> bool:
    """Whether drafters are replaced together: one won for sure, and none lost."""
    won = any(g.low is None or g.low > 0 for g in gains)
    return won and all(g.before is None or g.after >= g.before for g in gains)


def units() -> list[list[str]]:
    """Drafters in groups that are replaced together."""
    found: list[list[str]] = []
    for name, info in drafter_trainings().items():
        joined = [unit for unit in found if set(unit) & set(info.training.ships_with)]
        found = [unit for unit in found if unit not in joined]
        found.append([*(kind for unit in joined for kind in unit), name])
    return found


def judge(kind: str, folder: Path, language: Language, texts: Sequence[HeldOutText]) -> Score:
    """A drafter in the form that ships, over the target's texts."""
    drafter = trained_drafter(kind, language, folder)
    with ProgressBar(f"simulating {kind}") as progress:
        return score(language, drafter, texts, [SETUP], progress.at)


def ship(
    language: Language, run: Path, prompts: Sequence[Sample], into: Path, dry: bool
) -> list[Gain]:
    """Judge every drafter the run has, and put the better ones in place. Prints as it goes."""
    layers = folder_layers(run / "shards")
    with ProgressBar("evaluation texts") as progress:
        place = run / "evaluation"
        texts = evaluation_texts(language, layers, prompts, place, ("greedy",), progress.at)
    found = []
    with tempfile.TemporaryDirectory(dir=run) as temporary:
        made = Path(temporary)
        for unit in units():
            trained = write_unit(unit, TrainingRun(language, run), into, made)
            gains = []
            for kind in (kind for kind in unit if trained and (made / kind).is_dir()):
                old = into / kind
                before = judge(kind, old, language, texts) if old.is_dir() else None
                gains.append(Gain.of(kind, before, judge(kind, made / kind, language, texts)))
                print(gains[-1], flush=True)
            if better(gains) and not dry:
                replace_together(trained, made, into)
            found += gains
    return found


def write_unit(unit: Sequence[str], run: TrainingRun, into: Path, made: Path) -> list[str]:
    """Write a unit to ``made`` as it would ship, and what the run did not train as it is in
    ``into``. Returns the kinds that it did train."""
    checkpoints = {kind: found for kind in unit if (found := run.checkpoint(kind))}
    for kind in unit if checkpoints else ():
        if kind in checkpoints:
            drafter_trainings()[kind].training.ship(checkpoints[kind], made / kind)
        elif (into / kind).is_dir():
            shutil.copytree(into / kind, made / kind)
    return list(checkpoints)


def replace_together(kinds: Sequence[str], made: Path, into: Path) -> None:
    """Replace these drafters by those in ``made``. Every file is first copied beside its place, so
    that a kill or a full disk leaves the old ones."""
    with ExitStack() as places:
        for file in (file for kind in kinds for file in (made / kind).iterdir()):
            place = into / file.relative_to(made)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, places.enter_context(replacing(place)))
    for kind in kinds:
        print(f"{kind}: replaced in {into}", flush=True)


@dataclass(frozen=True, kw_only=True)
class Options(CommandOptions):
    """Replace the drafters that ship by those of a training run that are better."""

    run: Path = option(REQUIRED, "the --out folder of train", metavar="FOLDER")
    prompts: Path = option(REQUIRED, "held out from training", metavar="FILE")
    into: Path | None = option(None, "default: where this target's drafters ship", metavar="FOLDER")
    dry: bool = option(False, "judge only")
    json: Path | None = option(None, "also write the gains here", metavar="FILE")
    model: str = option(embedded.NAME, "the target", metavar="NAME|PATH")
    device: str = option("auto", "auto, cpu, cuda, …", metavar="DEVICE")


def main(args: Options) -> int:
    if not shard_paths(args.run / "shards"):
        raise UserError(f"{args.run} is not a folder of the train command: it has no shards")
    if args.into is None and args.model != embedded.NAME:
        raise UserError("say with --into which folder's drafters are to be replaced")
    into = args.into or ASSETS / "models" / embedded.NAME
    prompts = read_samples(args.prompts)
    language = load_language(args.model, args.device, fast=False)
    found = ship(language, args.run, prompts, into, args.dry)
    if args.json:
        args.json.write_text(json.dumps([asdict(g) for g in found], indent=1))
    return 0


if __name__ == "__main__":
    as_script(lambda: run(Options, main, "python -m app.maintainers.ship"))
