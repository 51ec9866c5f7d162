"""Replace the drafters that ship by those of a training run, where these are better.

    python -m core.train.ship --run runs/one --prompts prompts-eval.jsonl [--into FOLDER] [--dry]

Both are judged in the form that ships (int8), greedily, at B = 64 under best-first search, on the
same texts of the target (``core.train.report`` makes and keeps them in the run). A drafter is
replaced when the 95 % paired bootstrap interval of its gain in τ lies above zero. TreeFlash's head
ships on the DFlash drafter beside it: of the two one must win so and neither lose, or both stay.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from core import ASSETS
from core.drafting import builders
from core.errors import UserError, as_script
from core.files import replacing
from core.methods.dart import drafter as dart
from core.methods.dflash import drafter as dflash
from core.methods.treeflash import drafter as treeflash
from core.models import embedded
from core.models.language import Language, load_language
from core.stats import difference
from core.train.report import Text, evaluation_texts, progress_bar
from core.train.shards import folder_layers, shard_paths
from core.train.simulate import Contender, Score, score
from core.train.students import load_student
from core.train.texts import Sample, read_samples

BUDGET = 64
FIELD = (Contender("best-first", builders.best_first, BUDGET),)
UNITS = (("dflash", "treeflash"), ("dart",))  # what is replaced together


@dataclass(frozen=True)
class Gain:
    """τ of a drafter as it ships and as trained, on the same texts; the interval is of the gain.

    ``before`` and the interval are None where none shipped.
    """

    kind: str
    before: float | None
    after: float
    low: float | None
    high: float | None


def pack(kind: str, trained: Path, into: Path) -> None:
    """Write a trained checkpoint as it ships: ``into/kind``, int8, the backbone only once."""
    folder = into / kind
    if kind == "dflash":
        dflash.save_model(dflash.load_model(trained, torch.float32, "cpu"), folder, small=True)
    elif kind == "treeflash":
        model = treeflash.load_model(trained, torch.float32, "cpu")
        treeflash.save_model(model, folder, small=True, backbone="dflash")
    else:
        dart.save_model(dart.load_checkpoint(trained, torch.float32, "cpu").model, folder, True)


def gain(kind: str, before: Score | None, after: Score) -> Gain:
    """Of one contender's scores on the same texts."""
    (new,), tau = after.runs.values(), next(iter(after.tau.values()))
    if before is None:
        return Gain(kind, None, tau, None, None)
    (old,) = before.runs.values()
    sums = [list(map(sum, runs)) for runs in (new, old)]
    counts = [list(map(len, runs)) for runs in (new, old)]
    low, high = difference(sums[0], counts[0], sums[1], counts[1])
    return Gain(kind, next(iter(before.tau.values())), tau, low, high)


def better(gains: Sequence[Gain]) -> bool:
    """Whether a unit is to be replaced: something surely won, and nothing lost."""
    won = any(g.low is None or g.low > 0 for g in gains)
    return won and all(g.before is None or g.after >= g.before for g in gains)


def judge(kind: str, folder: Path, language: Language, texts: Sequence[Text]) -> Score:
    """A drafter in the form that ships, over the target's texts."""
    student = load_student(kind, folder, language.model, texts[0].layers)
    bar = progress_bar(len(texts), f"judging {kind}", "text")
    documents = [text.document for text in texts]
    found = score(student, documents, FIELD, report=bar.update)
    bar.close()
    return found


def ship(
    language: Language, run: Path, prompts: Sequence[Sample], into: Path, dry: bool
) -> list[Gain]:
    """Judge every drafter the run has, and put the better ones in place. Prints as it goes."""
    layers = folder_layers(run / "shards")
    texts = evaluation_texts(language, layers, prompts, run / "evaluation", ("greedy",))
    found = []
    with tempfile.TemporaryDirectory(dir=run) as made:
        for unit in UNITS:
            trained = renewed(unit, run, into, Path(made))
            gains = []
            for kind in unit if trained else ():
                old, new = into / kind, Path(made) / kind
                if new.is_dir():
                    before = judge(kind, old, language, texts) if old.is_dir() else None
                    gains.append(gain(kind, before, judge(kind, new, language, texts)))
                    print(_said(gains[-1]), flush=True)
            if better(gains) and not dry:
                put(trained, Path(made), into)
            found += gains
    return found


def renewed(unit: Sequence[str], run: Path, into: Path, made: Path) -> list[str]:
    """Make a unit as it would ship, what the run did not train as it is; the kinds it trained."""
    trained = [kind for kind in unit if (run / kind / "checkpoint").is_dir()]
    for kind in unit if trained else ():
        if kind in trained:
            pack(kind, run / kind / "checkpoint", made)
        elif (into / kind).is_dir():
            shutil.copytree(into / kind, made / kind)
    return trained


def put(kinds: Sequence[str], made: Path, into: Path) -> None:
    """Replace these drafters by those in ``made``, together: every file is copied beside its place
    first, so that a kill or a full disk leaves the old ones."""
    with ExitStack() as places:
        for file in (file for kind in kinds for file in (made / kind).iterdir()):
            place = into / file.relative_to(made)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, places.enter_context(replacing(place)))
    for kind in kinds:
        print(f"{kind}: replaced in {into}", flush=True)


def _said(gain: Gain) -> str:
    if gain.before is None:
        return f"{gain.kind}: τ {gain.after:.3f}, none shipped"
    return (
        f"{gain.kind}: τ {gain.before:.3f} shipped, {gain.after:.3f} trained, "
        f"gain [{gain.low:+.3f}, {gain.high:+.3f}]"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--run", type=Path, required=True, help="the --out folder of train")
    parser.add_argument("--prompts", type=Path, required=True, help="held out from training")
    parser.add_argument("--into", type=Path, help="default: where this target's drafters ship")
    parser.add_argument("--dry", action="store_true", help="judge only")
    parser.add_argument("--json", type=Path, help="also write the gains here")
    parser.add_argument("--model", default=embedded.NAME)
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    if not shard_paths(args.run / "shards"):
        raise UserError(f"{args.run} is not a folder of the train command: it has no shards")
    if args.into is None and args.model != embedded.NAME:
        raise UserError("say with --into which folder's drafters are to be replaced")
    into = args.into or ASSETS / "models" / embedded.NAME
    prompts = read_samples(args.prompts)
    language = load_language(args.model, args.device, pack=False)
    found = ship(language, args.run, prompts, into, args.dry)
    if args.json:
        args.json.write_text(json.dumps([asdict(g) for g in found], indent=1))


if __name__ == "__main__":
    as_script(main)
