"""All that needs a GPU, in one go: its tests, its speed, and better drafters.

    python -m tests.cuda WORK --prompts gsm8k-train.jsonl … --held-out prompts-eval.jsonl
    python -m tests.cuda WORK … --only checks speed
    python -m tests.cuda WORK … --hours 6

Needs torch ≥ 2.11, transformers ≥ 5.17, pytest, hypothesis, pandas, numba and rich. Nothing
is fetched, so the target must be there (``--model``, or the prepared one in the cache). Every step
writes ``WORK/STEP.log``. A step that is done is not repeated unless its options change (more hours,
say), and one that was cut short resumes. Collected features take 6 kB a token, a gigabyte for some
400 prompts. ``WORK/better`` starts as what ships and takes the new drafters that are better on the
held-out prompts (see ``app.maintainers.ship``). Exit code 1 when a step failed; the others still
run.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from core import ASSETS
from core.errors import UserError, as_script
from core.methods.loading import shipped
from core.methods.registry import drafter_trainings
from core.models import embedded

KINDS = tuple(drafter_trainings())
SHARES = {"dflash": 0.6, "treeflash": 0.25, "dart": 0.15}  # of the hours of fitting
BUDGETS = ("16", "64", "256")
STEPS = ("checks", "speed", "audit", "bench", *(f"train-{kind}" for kind in KINDS), "ship")


@dataclass(frozen=True)
class Step:
    """One command of this project: its name and the words after ``python -m``."""

    name: str
    words: tuple[str, ...]

    def done(self, work: Path) -> bool:
        """Whether it succeeded before, with the same words."""
        mark = work / f"{self.name}.done"
        return mark.exists() and mark.read_text("utf-8") == " ".join(self.words)


def steps(args: argparse.Namespace) -> list[Step]:
    """The steps, the shortest and most needed first."""
    on = ("--model", args.model, "--device", args.device)
    quick = args.quick
    speed = ("--small", "--layers", "8", "--repeats", "2") if quick else ()
    methods = ("ar", "ddtree") if quick else ("ar", "dflash", "ddtree", "dart", "treeflash")
    audit = ("--max-new-tokens", "8", "--budget", "4", "--prompt", "Which?") if quick else ()
    bench = ("--max-new-tokens", "8", "--repeats", "1") if quick else ("--repeats", "10")
    budgets = BUDGETS[:1] if quick else BUDGETS
    found = [
        Step("checks", ("pytest", "-q", "-rs", "-p", "no:cacheprovider", "tests/cuda")),
        Step("speed", ("tests.cuda.speed", *speed)),
        Step("audit", ("app", "audit", methods[-1], *on, *audit, *_drafter(args))),
        Step(
            "bench", ("app", "bench", *methods, *on, "--budget", *budgets, *bench, *_drafter(args))
        ),
    ]
    if args.prompts:
        found += [_training(args, kind, on) for kind in KINDS]
        found.append(Step("ship", (
            "app.maintainers.ship", "--run", str(_run(args)), "--prompts", str(args.held_out),
            "--into", str(args.work / "better"), "--json", str(args.work / "ship.json"), *on,
        )))  # fmt: skip
    return [step for step in found if not args.only or step.name in args.only]


def _training(args: argparse.Namespace, kind: str, on: tuple[str, ...]) -> Step:
    start = ("--start", "shipped") if shipped(kind, args.model) else ()
    size = () if args.quick else ("--sequences", "16", "--anchors", "64", "--batch", "256")
    return Step(f"train-{kind}", (
        "app", "train", kind, "--out", str(_run(args)), *on, *start, *size,
        "--minutes", f"{args.hours * 60 * SHARES.get(kind, 0.25):.3f}",
        "--prompts", *map(str, args.prompts), "--held-out", str(args.held_out),
        "--per-file", "100000", "--synthesise", str(args.synthesise), "--tasks", str(args.tasks),
    ))  # fmt: skip


def _run(args: argparse.Namespace) -> Path:
    return args.work / "run"


def _drafter(args: argparse.Namespace) -> tuple[str, ...]:
    return ("--drafter", str(args.drafter)) if args.drafter else ()


def do(step: Step, work: Path) -> bool:
    """Run a step, its output on the terminal and in its log. True when it succeeded."""
    print(f"── {step.name}: python -m {' '.join(step.words)}", flush=True)
    began = time.monotonic()
    with (work / f"{step.name}.log").open("a", encoding="utf-8") as log:
        command = [sys.executable, "-m", *step.words]
        running = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
        assert running.stdout is not None
        for line in running.stdout:
            print(line, end="", flush=True)
            log.write(line)
        failed = running.wait()
    outcome = f"failed with exit code {failed}" if failed else "done"
    print(f"── {step.name}: {outcome}, {time.monotonic() - began:.0f} s", flush=True)
    if not failed:
        (work / f"{step.name}.done").write_text(" ".join(step.words), "utf-8")
    return not failed


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("work", type=Path, help="folder for logs, texts and weights; reused")
    parser.add_argument("--prompts", type=Path, nargs="*", default=[], metavar="FILE",
                        help="training prompts, as for train; none: no training")  # fmt: skip
    parser.add_argument("--held-out", type=Path, metavar="FILE", help="prompts that decide")
    parser.add_argument("--synthesise", type=int, default=4000, metavar="N")
    parser.add_argument("--tasks", type=int, default=3000, metavar="N")
    parser.add_argument("--hours", type=float, default=0.25, help="of fitting (default 0.25)")
    parser.add_argument("--only", nargs="+", choices=STEPS, metavar="STEP",
                        help=f"these only, of {', '.join(STEPS)}")  # fmt: skip
    parser.add_argument("--model", default=embedded.NAME)
    parser.add_argument("--drafter", type=Path, help="for bench, where none ships")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it all run?")
    args = parser.parse_args()
    if args.prompts and not args.held_out:
        raise UserError(
            "--prompts needs --held-out: the prompts that decide which drafter is better"
        )
    if not (args.quick or torch.cuda.is_available()):
        raise UserError("no CUDA device can be used here: all its checks would be skipped")
    args.work.mkdir(parents=True, exist_ok=True)
    better = args.work / "better"
    if args.model == embedded.NAME and not better.exists():
        shutil.copytree(ASSETS / "models" / embedded.NAME, better)
    results = {step.name: step.done(args.work) or do(step, args.work) for step in steps(args)}
    for name, good in results.items():
        print(f"{name:16} {'done' if good else 'failed'}")
    return int(not all(results.values()))


if __name__ == "__main__":
    as_script(main)
