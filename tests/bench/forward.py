"""The verify forward beside Hugging Face's own on the same mask, and both beside the roofline.

    python -m tests.bench.forward [--rows 17 65 257] [--contexts 256 1024 4096] [--threads 2]
    python -m tests.bench.forward --quick

Ours is ``Target.score``: it builds its mask and keeps the shipped drafter's features. Hugging
Face's is the same model with SDPA attention, plain linear layers and a ``DynamicCache``. Its mask
is prepared as a bool, as transformers makes it for SDPA, and its cache is cropped between two
forwards, both untimed. The two alternate in changing order; ratios are medians.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from analysis.experiments.bench import as_transformers_runs_it
from analysis.experiments.cost import bushy
from analysis.experiments.roofline import Forward, Gauge, seconds_of
from app.command_line import option, run
from app.commands import common
from app.commands.options import POSITIVE, Model
from app.terminal import ProgressBar, console, table
from core.decoding.engine import Engine
from core.errors import UserError, as_script
from core.models.cache import cache_argument
from core.models.target import PREFILL_CHUNK, Target
from core.models.tree_mask import ancestor_mask
from core.rounds.draft import Draft
from tests.bench.growth import long_text

ROWS, CONTEXTS = (17, 65, 257), (256, 512, 1024, 2048, 4096)


class Theirs:
    """Hugging Face's forward over a tree after a text."""

    def __init__(self, model: PreTrainedModel, text: list[int]):
        self._model, self._text, self._cache = model, len(text), DynamicCache()
        self._argument = cache_argument(type(model))
        for low in range(0, len(text), PREFILL_CHUNK):
            ids = torch.tensor([text[low : low + PREFILL_CHUNK]], device=model.device)
            self._forward(input_ids=ids, logits_to_keep=1)

    def prepared(self, draft: Draft) -> Callable[[], Tensor]:
        """The forward of a draft [N, V], its inputs ready."""
        device, count = self._model.device, len(draft)
        mask = torch.ones(1, 1, count, self._text + count, dtype=torch.bool, device=device)
        mask[0, 0, :, self._text :] = torch.from_numpy(ancestor_mask(draft)).to(device)
        where = torch.from_numpy(draft.depths).to(device)[None] + self._text
        ids = torch.from_numpy(draft.tokens).to(device)[None]
        return partial(self._forward, input_ids=ids, attention_mask=mask, position_ids=where.long())

    @torch.inference_mode()
    def _forward(self, **inputs: Any) -> Tensor:
        return self._model(**inputs, **{self._argument: self._cache}, use_cache=True).logits[0]

    def crop(self) -> None:
        """Drop the rows of the last forward."""
        if over := self._cache.get_seq_length() - self._text:
            self._cache.crop(-over)


@dataclass(frozen=True)
class Compared:
    """Seconds of both, turn by turn, and the largest difference between their logits."""

    context: int
    rows: int
    ours: list[float]
    theirs: list[float]
    difference: float


def compare(engine: Engine, args: Options, gauge: Gauge, progress: ProgressBar) -> list[Compared]:
    language, rival = engine.prepare(), as_transformers_runs_it(engine)
    found = []
    for context in args.contexts:
        progress.at(None, f"reading {context} tokens")
        text = long_text(language, context)
        ours, theirs = Target(language.model, _layers(engine)), Theirs(rival, text)
        ours.prefill(text, max(args.rows))
        for rows in args.rows:
            progress.at(None, f"{context} tokens, {rows} rows")
            draft = bushy(rows, language.vocabulary, text[-1])
            found.append(_compare(ours, theirs, draft, args.repeats, gauge))
    return found


def _layers(engine: Engine) -> tuple[int, ...]:
    """The layers of the drafter's features, which verification keeps; () without a drafter."""
    try:
        drafter = engine.method("ddtree").drafter
    except UserError:
        return ()
    return drafter.layers if drafter else ()


def _compare(ours: Target, theirs: Theirs, draft: Draft, repeats: int, gauge: Gauge) -> Compared:
    forward = theirs.prepared(draft)
    difference = float((ours.score(draft).logits - forward()).abs().max())  # warms both up
    theirs.crop()
    seconds: dict[str, list[float]] = {"ours": [], "theirs": []}
    calls = {"ours": lambda: ours.score(draft), "theirs": forward}
    for turn in range(repeats):
        gauge.sample()
        for name in list(calls)[:: 1 if turn % 2 else -1]:
            seconds[name].append(seconds_of(ours.device, calls[name]))
            theirs.crop()
    return Compared(ours.length, len(draft), seconds["ours"], seconds["theirs"], difference)


def show(engine: Engine, found: list[Compared], gauge: Gauge) -> None:
    language, machine = engine.prepare(), gauge.machine
    forward = Forward.of(language.model)
    print(
        f"{language.name} · {language.device} · {torch.get_num_threads()} threads · "
        f"copies {machine.bandwidth / 1e9:.1f} GB/s, matrices {machine.rate / 1e9:.0f} GFLOP/s"
    )
    rows = []
    for c in found:
        ratios = [b / a for a, b in zip(c.ours, c.theirs, strict=True)]
        low, high = np.quantile(ratios, [0.25, 0.75])
        work = forward.verify(bushy(c.rows, language.vocabulary), c.context)
        floor, own, other = machine.floor([work]), median(c.ours), median(c.theirs)
        rows.append([
            str(c.context), str(c.rows), f"{1e3 * own:.1f}", f"{1e3 * other:.1f}",
            f"{median(ratios):.2f} ({low:.2f}–{high:.2f})",
            f"{work.bytes / 1e6:.0f}", f"{work.flops / 1e9:.1f}", f"{1e3 * floor:.1f}",
            f"{floor / own:.0%}", f"{floor / other:.0%}", f"{c.difference:.1e}",
        ])  # fmt: skip
    columns = (
        "context", "rows", "ours ms", "theirs ms", "theirs ÷ ours",
        "MB", "GFLOP", "floor ms", "reached", "theirs", "difference",
    )  # fmt: skip
    console().print(table(columns, rows))


@dataclass(frozen=True, kw_only=True)
class Options(Model):
    """Compare our forward pass with transformers' own."""

    contexts: tuple[int, ...] = option(CONTEXTS, "tokens before the round", POSITIVE)
    rows: tuple[int, ...] = option(ROWS, "rows of a forward pass", POSITIVE)
    repeats: int = option(11, "turns", POSITIVE)
    threads: int = option(torch.get_num_threads(), "threads of torch", POSITIVE)
    quick: bool = option(False, "256 and 1024 tokens, 17 and 65 rows")


def main(args: Options) -> int:
    if args.quick:
        args = replace(args, contexts=(256, 1024), rows=(17, 65), repeats=5)
    torch.set_num_threads(args.threads)
    engine = common.load_engine(args)
    gauge = Gauge(engine.prepare().device, engine.prepare().model.dtype)
    with ProgressBar("comparing") as progress:
        found = compare(engine, args, gauge, progress)
    show(engine, found, gauge)
    return 0


if __name__ == "__main__":
    as_script(lambda: run(Options, main, "python -m tests.bench.forward"))
