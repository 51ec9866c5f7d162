"""Memory of the studio's process: idle with a model ready, during runs, and after many of them.

    python -m tests.bench.memory --runs 200
    python -m tests.bench.memory --peaks

The runs are as in an hour of ordinary use: every method, budgets up to 1,024, short prompts, kept
on view as the studio keeps them. ``--peaks`` runs each method at each budget once and prints the
most memory during the run and what the worker was doing then. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # as the studio sets it

import random
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from app.studio.engine import LiveEngine, ModelChoice
from app.studio.run import ENDED
from app.studio.runs import Runs
from core import ASSETS
from core.decoding.request import RunRequest
from core.memory import resident, use_one_heap
from core.methods.names import METHODS
from core.methods.registry import runnable

WORKER = "draftscope-worker"
OURS = (ASSETS.parent / "core", ASSETS.parent / "analysis", ASSETS.parent / "app")
BUDGETS = (16, 64, 256, 1024)
PROMPTS = ("Name three fruits.", "Write a haiku.", "Why is the sky blue?", "Count to ten.")


class Watch:
    """The most memory that was seen, looked at a hundred times a second, and where the worker was
    then."""

    def __init__(self):
        self.most, self.where = 0, ""
        threading.Thread(target=self._look, daemon=True).start()

    def restart(self) -> None:
        self.most, self.where = 0, ""

    def _look(self) -> None:
        while True:
            if (now := resident() or 0) > self.most:
                self.most, self.where = now, place_of(WORKER)
            time.sleep(0.01)


def place_of(name: str) -> str:
    """The innermost functions of ours that a thread is in, the caller last."""
    ident = next((t.ident for t in threading.enumerate() if t.name == name), None)
    frame = sys._current_frames().get(ident or 0)
    # No frame outlives this function: it would keep its tensors alive.
    steps = traceback.extract_stack(frame) if frame is not None else []
    found = [s for s in reversed(steps) if any(o in Path(s.filename).parents for o in OURS)]
    return " < ".join(f"{Path(s.filename).stem}.{s.name}" for s in found[:3])


def requests(args: argparse.Namespace) -> Sequence[RunRequest]:
    draw = random.Random(0)
    return [
        RunRequest(
            draw.choice(PROMPTS),
            args.methods[at % len(args.methods)],
            draw.choice(args.budgets),
            args.tokens,
        )
        for at in range(args.runs)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=12, help="of each run")
    parser.add_argument("--peaks", action="store_true", help="each method at each budget, once")
    known = [name for name in METHODS if name in runnable(ModelChoice.model)]
    parser.add_argument("--methods", nargs="+", default=known, help="default: all")
    parser.add_argument("--budgets", type=int, nargs="+", default=list(BUDGETS))
    args = parser.parse_args()
    use_one_heap()
    watch, runs = Watch(), Runs(LiveEngine(ModelChoice()))
    runs.start()
    while runs.model.state == "loading":
        time.sleep(0.1)
    time.sleep(0.5)
    said("idle, the model ready", resident())
    if args.peaks:
        peaks(runs, watch, args)
    else:
        many(runs, watch, requests(args))
    runs.close()
    runs.wait(60)


def peaks(runs: Runs, watch: Watch, args: argparse.Namespace) -> None:
    for name in args.methods:
        for budget in args.budgets:
            before = resident() or 0
            watch.restart()
            decode(runs, RunRequest(PROMPTS[0], name, budget, args.tokens))
            more = f"{(watch.most - before) / 2**20:+6.0f} MiB   {watch.where}"
            said(f"{name} B {budget}, at most", watch.most, more)


def many(runs: Runs, watch: Watch, wanted: Sequence[RunRequest]) -> None:
    watch.restart()
    for at, request in enumerate(wanted, 1):
        decode(runs, request)
        if at in (1, 5, 10, 20, 50) or at % 50 == 0 or at == len(wanted):
            most = f"at most {watch.most / 2**30:.2f} GiB   {watch.where}"
            said(f"after {at} runs", resident(), most)


def decode(runs: Runs, request: RunRequest) -> None:
    """A run from its start to its end, its views made as the page asks for them."""
    (ticket,) = runs.submit(request)
    with runs.watching([ticket]):
        while runs.updates(ticket, 1 << 40)["run"]["state"] not in ENDED:
            time.sleep(0.05)
    runs.updates(ticket, 0)


def said(when: str, size: int | None, more: str = "") -> None:
    print(f"{when:24s} {(size or 0) / 2**30:6.2f} GiB   {more}", flush=True)


if __name__ == "__main__":
    main()
