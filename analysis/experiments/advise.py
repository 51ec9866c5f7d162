"""Which draft length pays at which batch: tokens per round against the seconds of a step.

At a batch of b sequences a step with drafts of size K commits b · τ(K) tokens on average and takes
t(b, K + 1) seconds; plain decoding commits b in t(b, 1). Their ratio is what drafting is worth. A
round that drafted n < K takes t(b, n + 1): the step is the mean over the recorded rounds.
Acceptance is taken to be the same at every batch and context. Light.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd

from analysis.experiments.serving import Serving
from analysis.experiments.shorter import Choose, Drafts, Shorter
from analysis.experiments.step_times import PLAIN, StepTime, StepTimes
from analysis.frames import Frame, declared
from analysis.numbers import interval, percent, plural, ratio
from core.errors import UserError
from core.rounds.draft import Array
from core.stats import middle_interval


def sizes_of(times: StepTimes, asked: Sequence[int]) -> Choose:
    """The draft sizes that are looked at: those asked for, else every chain length that was both
    recorded and timed, or the trees that were timed; where nothing follows for smaller drafts, the
    recorded size alone."""

    def choose(drafts: Drafts) -> Sequence[int]:
        kind, unit = ("places", "chain") if drafts.chain else ("nodes", "tree")
        if asked and max(asked) > drafts.most:
            raise UserError(
                f"the longest recorded {unit} has {plural(drafts.most, kind[:-1])}: what a draft "
                f"of {max(asked)} would accept was not recorded, and is not extrapolated"
            )
        last = min(drafts.most + 1, times.tokens[-1])
        timed = range(PLAIN + 1, last + 1) if drafts.chain else times.tokens
        fit = [drafts.most] if drafts.whole else [n - 1 for n in timed if PLAIN < n <= last]
        sizes = sorted(set(asked)) or fit
        if not sizes or sizes[-1] + 1 > times.tokens[-1]:
            raise UserError(
                f"a draft of {plural(sizes[-1] if sizes else 1, kind[:-1])} is verified with one "
                f"token more, and the table of step times ends at {times.tokens[-1]}"
            )
        return sizes

    return choose


@declared("advice")
def advise(shorter: Shorter, times: StepTimes, batches: Sequence[int] = ()) -> pd.DataFrame:
    """Expected speed at every context, batch and draft size whose step times are known.

    ``batches``: those asked for; none: those of the table. Raises UserError where none of them has
    an answer; ``sentences`` names those that have none beside others.
    """
    rows, silent = list[dict[str, Any]](), list[str]()
    for context in times.contexts:
        for batch in batches or times.batches(context):
            plain = times.step(context, batch, PLAIN)
            own = _cell(shorter, times, context, batch, plain) if plain is not None else []
            rows += own
            if not own:
                silent.append(_timed(times, context, batch))
    if silent and not rows:
        raise UserError(f"{silent[0]}: nothing is said of it")
    return pd.DataFrame(rows)


def _timed(times: StepTimes, context: int | None, batch: int) -> str:
    """Why nothing is said of a batch."""
    known, at = times.batches(context), _at(context)
    if times.step(context, batch, PLAIN) is None:
        return f"batch {batch}{at} is outside of the table, which has {known[0]} to {known[-1]}"
    return f"batch {batch}{at} is timed to {plural(times.most(context, batch), 'token')}"


def _mean_step(
    shorter: Shorter, times: StepTimes, context: int | None, batch: int, at: int
) -> tuple[StepTime, Array] | None:
    """The mean step over the rounds of a size, and in each draw [D]; None: it was not timed.

    A step is that of a whole draft where what rounds drafted is not known.
    """
    size = shorter.sizes[at]
    whole = times.step(context, batch, size + 1)
    if whole is None:
        return None
    if times.means or not shorter.drafted:
        return whole, np.full(len(shorter.draws), whole.seconds)
    drafted = shorter.drafted[at]
    tokens = drafted.tokens(size)
    steps = [step for n in tokens if (step := times.step(context, batch, n)) is not None]
    if len(steps) < len(tokens):
        return None  # side rows make more of them than the table has
    seconds = np.array([step.seconds for step in steps])
    measured = all(step.measured for step in steps)
    return StepTime(float(drafted.shares @ seconds), measured), drafted.draws @ seconds


def _cell(
    shorter: Shorter, times: StepTimes, context: int | None, batch: int, plain: StepTime
) -> list[dict[str, Any]]:
    """One batch: a line for each size that was timed."""
    every = range(len(shorter.sizes))
    means = [_mean_step(shorter, times, context, batch, at) for at in every]
    kept = [at for at in every if means[at] is not None]
    found = [mean for mean in means if mean is not None]
    if not found:
        return []
    ratios = shorter.tau[kept] * [plain.seconds / step.seconds for step, _ in found]
    draws = shorter.draws[:, kept] * plain.seconds / np.stack([drawn for _, drawn in found], 1)
    best = int(ratios.argmax())
    best = best if ratios[best] > 1 and not shorter.few else -1
    rows = []
    for n, (at, (step, _)) in enumerate(zip(kept, found, strict=True)):
        low, high = middle_interval(draws[:, n])
        rows.append({
            "context": np.nan if context is None else context, "batch": batch,
            "size": shorter.sizes[at], "rounds": shorter.rounds[at] if shorter.rounds else np.nan,
            "tau": shorter.tau[at], "seconds": step.seconds,
            "plain": batch / plain.seconds, "tokens_per_second": ratios[n] * batch / plain.seconds,
            "low": low * batch / plain.seconds, "high": high * batch / plain.seconds,
            "ratio": ratios[n], "ratio_low": low, "ratio_high": high, "best": n == best,
            "chosen": _chosen(draws, n) if shorter.paired else np.nan,
            "measured": step.measured and plain.measured,
            "doubt": shorter.doubts.get(shorter.sizes[at], ""),
        })  # fmt: skip
    return rows


def _chosen(draws: Any, n: int) -> float:
    """The share of draws in which this size is the fastest, and faster than plain decoding."""
    if not len(draws):
        return np.nan
    return float(((draws.argmax(1) == n) & (draws[:, n] > 1)).mean())


# ── what to use ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Choice:
    """The draft to use at one context and batch. ``size`` 0: plain decoding; the rest is then of
    the best draft size all the same. ``largest``: the size above which nothing was timed there."""

    context: int | None
    batch: int
    size: int
    largest: int
    ratio: float
    low: float
    high: float
    chosen: float
    measured: bool

    @property
    def shown(self) -> bool:
        """Whether the interval leaves plain decoding no chance."""
        return self.low > 1

    @property
    def refuted(self) -> bool:
        """Whether the interval leaves the best draft no chance."""
        return self.high <= 1


def choices(advice: Frame) -> list[Choice]:
    """Choose for each context and batch, in their order; too few rounds choose plain decoding."""
    found = []
    for (context, batch), rows in advice.groupby(["context", "batch"], dropna=False, sort=False):
        row = rows.loc[rows["ratio"].idxmax()]
        found.append(Choice(
            None if context != context else int(context), int(batch),
            int(row["size"]) if row["best"] else 0, int(rows["size"].max()), float(row["ratio"]),
            float(row["ratio_low"]), float(row["ratio_high"]), float(row["chosen"]),
            bool(row["measured"]),
        ))  # fmt: skip
    return found


def sentences(
    found: Sequence[Choice], shorter: Shorter, times: StepTimes, batches: Sequence[int] = ()
) -> Iterator[str]:
    """Say what the table means, and what it stands on. ``batches``: as ``advise`` has them."""
    name = "K" if shorter.drafts.chain else "B"
    if shorter.few:
        yield f"Only {plural(min(shorter.rounds), 'round')}: too few rounds to choose a draft."
    for context, some in groupby(() if shorter.few else found, key=lambda c: c.context):
        at, every = _at(context), list(some)
        if all(c.size == 0 for c in every):
            most = max(every, key=lambda c: c.ratio)
            sure = all(c.refuted for c in every) and not shorter.doubts
            yield (
                f"No draft {'beats' if sure else 'is shown to beat'} plain decoding{at}: the best, "
                f"at batch {most.batch}, has {ratio(most.ratio)}{_within(most)} of its speed."
            )
            continue
        for c in every:
            yield _one(c, name, at)
    yield from _silent(found, times, batches)
    if not shorter.few:
        yield from _largest(found, shorter, name)
        if any(c.size for c in found) and not flags(found, shorter):
            yield "No engine's options are given: none is known to draft in this way."
    for doubt in dict.fromkeys(shorter.doubts.values()):
        sizes = [str(size) for size, why in shorter.doubts.items() if why == doubt]
        yield f"{name} = {', '.join(sizes)}: {doubt}."
    yield from shorter.notes
    yield from times.notes
    if len(shorter.draws):
        yield "Intervals come from the rounds alone: step times are taken as exact."
    if times.method and shorter.method and times.method != shorter.method:
        yield (
            f"The times are from {times.method}'s rounds and the acceptance from "
            f"{shorter.method}'s: drafting may take a different time."
        )
    if len({c.batch for c in found}) > 1 or len({c.context for c in found}) > 1:
        yield "Acceptance is taken to be the same at every batch and context."


def _at(context: int | None) -> str:
    return "" if context is None else f" at context {context}"


def _within(c: Choice) -> str:
    return "" if np.isnan(c.low) else f" {interval(c.low, c.high)}"


def _silent(found: Sequence[Choice], times: StepTimes, batches: Sequence[int]) -> Iterator[str]:
    """Name the batches without an answer."""
    said = {(c.context, c.batch) for c in found}
    for context in times.contexts:
        for batch in batches or times.batches(context):
            if (context, batch) not in said:
                yield f"{_timed(times, context, batch).capitalize()}: nothing is said of it."


def _largest(found: Sequence[Choice], shorter: Shorter, name: str) -> Iterator[str]:
    """Where the best draft is the largest that was timed, a larger one may be better."""
    for size in dict.fromkeys(c.size for c in found if c.size == c.largest):
        own = dict.fromkeys(c.batch for c in found if c.size == c.largest == size)
        where = "" if size == shorter.sizes[-1] else f" at batch {', '.join(map(str, own))}"
        yield (
            f"{name} = {size} is the largest that was compared{where}: whether a larger one pays "
            "more is not known."
        )


def _one(c: Choice, name: str, at: str) -> str:
    where = f"Batch {c.batch}{at}: "
    within = _within(c)
    if c.size == 0:
        return f"{where}plain decoding; the best draft has {ratio(c.ratio)}{within} of its speed."
    said = f"{where}{name} = {c.size}, {ratio(c.ratio)}{within} plain decoding"
    if not np.isnan(c.chosen):
        said += f"; it is the best in {percent(c.chosen)} of the draws"
    if not np.isnan(c.low) and not c.shown:
        said += "; it is not shown to beat plain decoding"
    return said + ("." if c.measured else "; an estimate between measured steps.")


# ── what one pastes ──────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Flags:
    """Options of an engine. ``note``: what they are for, or what they leave open."""

    engine: str
    text: str
    note: str = ""


def flags(found: Sequence[Choice], shorter: Shorter) -> list[Flags]:
    """List the flags to give the engines; none where no draft beats plain decoding or rounds are
    too few, and none of an engine for which the drafter's home declares none.

    vLLM's schedule is a list of [first batch, last batch, K], K = 0 for no draft; between two
    batches of the table that of the larger one is used. The others have one length for all batches.
    """
    serving = shorter.serving
    lines = list[Flags]()
    if shorter.few:
        return lines
    for context, some in groupby(found, key=lambda c: c.context):
        every = list(some)
        if not any(c.size for c in every):
            continue
        at = "" if context is None else f"context {context}"
        if shorter.drafts.chain and serving.vllm is not None:
            lines.append(_vllm(every, serving, at))
        for size in dict.fromkeys(c.size for c in every if c.size):
            own = [str(c.batch) for c in every if c.size == size]
            note = ", ".join(filter(None, [f"batch {', '.join(own)}", at]))
            lines += _others(size, shorter.drafts.chain, serving, note)
    return lines


def _vllm(every: Sequence[Choice], serving: Serving, at: str) -> Flags:
    config = dict(serving.vllm or {})
    config["num_speculative_tokens"] = max(c.size for c in every)
    schedule, first = list[list[int]](), 1
    in_order = sorted(every, key=lambda c: c.batch)
    for c in in_order:
        if schedule and schedule[-1][2] == c.size:
            schedule[-1][1] = c.batch
        else:
            schedule.append([first, c.batch, c.size])
        first = c.batch + 1
    if len(schedule) > 1:
        config["num_speculative_tokens_per_batch_size"] = schedule
    text = f"--speculative-config {shlex.quote(json.dumps(config))}"
    beyond = _beyond([c.batch for c in in_order])
    return Flags("vLLM", text, "; ".join(filter(None, [at, serving.adds, beyond])))


def _beyond(batches: Sequence[int]) -> str:
    """Say what the schedule gives to batches that the table does not have."""
    least, most = batches[0], batches[-1]
    told = [f"below batch {least} its K holds"] if least > 1 else []
    if len(batches) < most - least + 1:
        told.append("between two batches the K of the larger holds")
    told.append(f"above batch {most} its K holds")
    return f"not from the table: {', '.join(told)}"


def _others(size: int, chain: bool, serving: Serving, note: str) -> list[Flags]:
    if chain:
        return [Flags(engine, tell(size), note) for engine, tell in serving.flags.items()]
    if "SGLang" not in serving.flags:
        return []
    of = f"{note}, with the depth and width the tree was recorded with"
    return [Flags("SGLang", f"--speculative-num-draft-tokens {size + 1}", of)]
