"""Where a round's time goes on the embedded target: each stage, and what is outside the forwards.

    python -m tests.bench.rounds [--budget 64] [--drafter FOLDER]

Two readings. By stage: build + commit against the round. Strictly: everything that is not inside
the target's forward, the drafter's network or the head (so masks, top-K, transfers, the walk and
the bookkeeping between two rounds all count as outside), by wrapping exactly those three.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from statistics import median
from typing import Any

from analysis.prompts import PROMPTS
from app.commands import common
from core.session import Engine, RunRequest
from core.types import Round, Times

GOAL = 0.05


@dataclass(eq=False)
class Inside:
    """Seconds inside wrapped calls, nested ones counted once."""

    seconds: float = 0.0
    _depth: int = field(default=0, init=False)

    def wrap(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            self._depth += 1
            start = time.perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self.seconds += time.perf_counter() - start

        return timed


@dataclass(frozen=True)
class Measured:
    """One round: its record, its wall seconds and those inside the forwards."""

    record: Round
    wall: float
    inside: float


def watch(engine: Engine) -> Inside:
    """Time the networks of the engine's DDTree from here on."""
    inside, drafter = Inside(), engine.method("ddtree").drafter
    model, own = engine.prepare().model, drafter.model  # type: ignore[union-attr]
    for module, name in ((model, "forward"), (own, "forward"), (own, "project")):
        setattr(module, name, inside.wrap(getattr(module, name)))
    drafter.head.forward = inside.wrap(drafter.head.forward)  # type: ignore[union-attr]
    return inside


def rounds(engine: Engine, inside: Inside, request: RunRequest) -> Iterator[Measured]:
    """The run's rounds but the first, which carries prefill and its projection."""
    records = engine.start(request).bare()
    next(records, None)
    while True:
        start, before = time.perf_counter(), inside.seconds
        record = next(records, None)
        if record is None:
            return
        yield Measured(record, time.perf_counter() - start, inside.seconds - before)


def report(measured: list[Measured]) -> None:
    wall = median(m.wall for m in measured)
    print(f"{len(measured)} rounds, median {wall * 1e3:.2f} ms")
    print(f"{'stage':<10} {'median ms':>10} {'share':>8}")
    for stage in (f.name for f in fields(Times)):
        own = median(getattr(m.record.times, stage) for m in measured)
        print(f"{stage:<10} {own * 1e3:>10.3f} {own / wall:>8.2%}")
    staged = median((m.record.times.build + m.record.times.commit) / m.wall for m in measured)
    strict = median((m.wall - m.inside) / m.wall for m in measured)
    outside = median(m.wall - m.inside for m in measured)
    print(f"build + commit           {staged:.2%} of a round")
    print(f"all outside the forwards {strict:.2%} of a round ({outside * 1e3:.2f} ms)", end="")
    print(f"; the goal is at most {GOAL:.0%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    common.add_model_options(parser)
    parser.add_argument("--budget", type=int, default=64)
    parser.add_argument("--max-new-tokens", type=int, default=48)
    args = parser.parse_args()
    engine = common.load_engine(args)
    inside = watch(engine)
    measured: list[Measured] = []
    for prompt in PROMPTS:
        request = RunRequest(prompt, "ddtree", args.budget, args.max_new_tokens, timed=False)
        measured += rounds(engine, inside, request)
    report(measured)


if __name__ == "__main__":
    main()
