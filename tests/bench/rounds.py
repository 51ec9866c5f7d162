"""Where a round's time goes on the embedded target: each stage, and what is outside the forwards.

    python -m tests.bench.rounds [--budget 64] [--drafter FOLDER]

Two readings. By stage: build + commit against the round. Strictly: everything that is not inside
the target's forward, the drafter's network or the head (so masks, top-K, transfers, the walk and
the bookkeeping between two rounds all count as outside), by wrapping exactly those three.

Then what TreeFlash's rounds cost beside DDTree's, at M = 16: the same prompts in the same run, one
method after the other on each. Where no TreeFlash drafter ships, a head that changes nothing takes
its place: it costs the same.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from statistics import median
from typing import Any, cast

from analysis.experiments.prompts import PROMPTS
from app.command_line import option, run
from app.commands import common
from app.commands.options import POSITIVE, Model
from core.decoding.decode import Decoder, decode
from core.decoding.engine import Engine
from core.decoding.request import RunRequest, Settings
from core.drafting.builders import best_first
from core.errors import UserError, as_script
from core.methods.dflash import model as dflash
from core.methods.dflash.drafter import DFlashDrafter
from core.methods.loading import shipped
from core.methods.method import find_drafter
from core.methods.treeflash import TreeFlashOptions
from core.methods.treeflash import model as treeflash
from core.methods.treeflash.drafter import load
from core.rounds.round import Round, Times

GOAL = 0.03
TREEFLASH_GOAL = 0.15


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
    inside, drafter = Inside(), cast(DFlashDrafter, engine.method("ddtree").drafter)
    model, own = engine.prepare().model, drafter.model
    for module, name in ((model, "forward"), (own, "forward"), (own, "project")):
        setattr(module, name, inside.wrap(getattr(module, name)))
    drafter.head.forward = inside.wrap(drafter.head.forward)
    return inside


def rounds(engine: Engine, inside: Inside, request: RunRequest) -> Iterator[Measured]:
    """The run's rounds but the first, which carries prefill and its projection."""
    records = engine.start(request).rounds
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


def beside(engine: Engine, budget: int, tokens: int, repeats: int) -> None:
    """TreeFlash's rounds against DDTree's: medians of wall seconds, alternating by prompt."""
    methods = {"ddtree": engine.method("ddtree"), "treeflash": _treeflash(engine)}
    seconds: dict[str, list[float]] = {name: [] for name in methods}
    stages: dict[str, list[float]] = {name: [] for name in methods}
    settings = Settings(budget, tokens, timed=False)
    for turn, prompt in enumerate(PROMPTS * repeats):
        ids = engine.prepare().encode_chat(prompt)
        for name in list(methods)[:: 1 if turn % 2 else -1]:
            method = methods[name]
            for record in list(decode(engine.target(method), method, ids, settings))[1:]:
                seconds[name].append(record.times.total)
                stages[name].append(record.times.draft + record.times.build)
    one, two = (median(seconds[name]) for name in methods)
    print(f"B = {budget}: ddtree {one * 1e3:.2f} ms a round, treeflash {two * 1e3:.2f} ms", end="")
    print(f" ({len(seconds['ddtree'])} and {len(seconds['treeflash'])} rounds)")
    extra = median(stages["treeflash"]) - median(stages["ddtree"])
    print(f"ratio of medians {two / one:.3f}; draft + build alone {extra * 1e3:+.2f} ms ", end="")
    print(f"= {extra / one:+.1%} of a round (goal at most {TREEFLASH_GOAL:+.0%})")


def _treeflash(engine: Engine) -> Decoder:
    """With the shipped drafter, or on the DFlash backbone with a head as before training."""
    language, options = engine.prepare(), TreeFlashOptions()
    if shipped("treeflash", language.name) is not None:
        return Decoder("treeflash", load(language, None, options), best_first)
    source = engine.checkpoint(find_drafter("dflash"))
    if source is None:
        raise UserError("name a DFlash drafter with --drafter")
    print("no TreeFlash drafter ships: a zero head on the DFlash backbone")
    backbone = dflash.FORM.load_model(source.full_folder(), language.model.dtype, language.device)
    with tempfile.TemporaryDirectory() as made:
        treeflash.save_model(treeflash.initial_model(backbone), Path(made))
        return Decoder("treeflash", load(language, Path(made), options), best_first)


@dataclass(frozen=True, kw_only=True)
class Options(Model):
    """Time the parts of a round, and the builder beside DDTree's own."""

    budget: int = option(64, "drafted nodes a round", POSITIVE)
    max_new_tokens: int = option(48, "the length of each text", POSITIVE)
    repeats: int = option(1, "of every prompt, beside DDTree", POSITIVE)


def main(args: Options) -> int:
    engine = common.load_engine(args)
    for budget in sorted({16, args.budget}):
        beside(engine, budget, args.max_new_tokens, args.repeats)
    inside = watch(engine)
    measured: list[Measured] = []
    for prompt in PROMPTS:
        request = RunRequest(prompt, "ddtree", args.budget, args.max_new_tokens, timed=False)
        measured += rounds(engine, inside, request)
    report(measured)
    return 0


if __name__ == "__main__":
    as_script(lambda: run(Options, main, "python -m tests.bench.rounds"))
