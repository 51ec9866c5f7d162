"""Memory of the studio's process: idle with a model ready, during runs, and after many of them.

    python -m tests.bench.memory --runs 200

The runs are as in an hour of ordinary use: every method, budgets up to 1,024, short prompts, kept
on view as the studio keeps them. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import random
import threading
import time
from collections.abc import Sequence

from app.studio.engine import LiveEngine, ModelChoice
from app.studio.run import ENDED
from app.studio.runs import Runs
from core.decoding.request import RunRequest
from core.memory import resident
from core.methods.names import METHODS
from core.methods.registry import runnable

BUDGETS = (16, 64, 256, 1024)
PROMPTS = ("Name three fruits.", "Write a haiku.", "Why is the sky blue?", "Count to ten.")


class Watch:
    """The most memory that was seen, looked at ten times a second."""

    def __init__(self):
        self.most = 0
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        while True:
            self.most = max(self.most, resident() or 0)
            time.sleep(0.1)


def requests(count: int, tokens: int) -> Sequence[RunRequest]:
    draw, names = random.Random(0), [n for n in METHODS if n in runnable(ModelChoice.model)]
    return [
        RunRequest(draw.choice(PROMPTS), names[at % len(names)], draw.choice(BUDGETS), tokens)
        for at in range(count)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=12, help="of each run")
    args = parser.parse_args()
    watch, runs = Watch(), Runs(LiveEngine(ModelChoice()))
    runs.start()
    while runs.model.state == "loading":
        time.sleep(0.1)
    time.sleep(0.5)
    said("idle, the model ready", resident())
    watch.most = 0
    for at, request in enumerate(requests(args.runs, args.tokens), 1):
        (ticket,) = runs.submit(request)
        with runs.watching([ticket]):
            while runs.updates(ticket, 1 << 40)["run"]["state"] not in ENDED:
                time.sleep(0.05)
        runs.updates(ticket, 0)  # as the page asks: views are made
        if at in (1, 5, 10, 20, 50) or at % 50 == 0 or at == args.runs:
            said(f"after {at} runs", resident(), f"at most {(watch.most or 0) / 2**30:.2f} GiB")
    runs.close()


def said(when: str, size: int | None, more: str = "") -> None:
    print(f"{when:24s} {(size or 0) / 2**30:6.2f} GiB   {more}", flush=True)


if __name__ == "__main__":
    main()
