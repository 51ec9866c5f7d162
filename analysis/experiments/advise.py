"""Which draft length pays at which batch: tokens per round against the seconds of a step.

At a batch of b sequences a step with drafts of size K commits b · τ(K) tokens on average and takes
t(b, K + 1) seconds; plain decoding commits b in t(b, 1). Their ratio is what drafting is worth.
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

from analysis.experiments.shorter import Choose, Drafts, Shorter
from analysis.experiments.step_times import PLAIN, Step, StepTimes
from analysis.frames import Frame, declared
from analysis.numbers import interval, percent, plural, ratio
from core.errors import UserError
from core.stats import interval as middle


def sizes_of(times: StepTimes, asked: Sequence[int]) -> Choose:
    """The draft sizes that are looked at: those asked for, else every chain length that was both
    recorded and timed, or the trees that were timed."""

    def choose(drafts: Drafts) -> Sequence[int]:
        kind, unit = ("places", "chain") if drafts.chain else ("nodes", "tree")
        if asked and max(asked) > drafts.most:
            raise UserError(
                f"the longest recorded {unit} has {plural(drafts.most, kind[:-1])}: what a draft "
                f"of {max(asked)} would accept was not recorded, and is not extrapolated"
            )
        last = min(drafts.most + 1, times.tokens[-1])
        timed = range(PLAIN + 1, last + 1) if drafts.chain else times.tokens
        sizes = sorted(set(asked)) or [n - 1 for n in timed if PLAIN < n <= last]
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

    ``batches``: those asked for; none: those of the table. Raises UserError for a batch outside of
    it.
    """
    rows = list[dict[str, Any]]()
    for context in times.contexts:
        for batch in batches or times.batches(context):
            plain = times.step(context, batch, PLAIN)
            if plain is None:
                known = times.batches(context)
                raise UserError(
                    f"batch {batch} is outside of the table, which has {known[0]} to {known[-1]}"
                )
            rows += _cell(shorter, times, context, batch, plain)
    return pd.DataFrame(rows)


def _cell(
    shorter: Shorter, times: StepTimes, context: int | None, batch: int, plain: Step
) -> list[dict[str, Any]]:
    """One batch: a line for each size that was timed."""
    steps = [times.step(context, batch, size + 1) for size in shorter.sizes]
    found = [(at, step) for at, step in enumerate(steps) if step is not None]
    worth = np.array([plain.seconds / step.seconds for _, step in found])
    kept = [at for at, _ in found]
    ratios = shorter.tau[kept] * worth
    draws = shorter.draws[:, kept] * worth
    best = int(ratios.argmax()) if len(ratios) else -1
    best = best if best >= 0 and ratios[best] > 1 else -1
    rows = []
    for n, (at, step) in enumerate(found):
        low, high = middle(draws[:, n])
        rows.append({
            "context": np.nan if context is None else context, "batch": batch,
            "size": shorter.sizes[at], "tau": shorter.tau[at], "seconds": step.seconds,
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
    """What to use at one context and batch. ``size`` 0: plain decoding; the rest is then of the
    best draft size all the same."""

    context: int | None
    batch: int
    size: int
    ratio: float
    low: float
    high: float
    chosen: float
    measured: bool

    @property
    def shown(self) -> bool:
        """Whether the interval leaves plain decoding no chance."""
        return self.low > 1


def choices(advice: Frame) -> list[Choice]:
    """One for each context and batch, in their order."""
    found = []
    for (context, batch), rows in advice.groupby(["context", "batch"], dropna=False, sort=False):
        row = rows.loc[rows["ratio"].idxmax()]
        found.append(Choice(
            None if context != context else int(context), int(batch),
            int(row["size"]) if row["best"] else 0, float(row["ratio"]), float(row["ratio_low"]),
            float(row["ratio_high"]), float(row["chosen"]), bool(row["measured"]),
        ))  # fmt: skip
    return found


def sentences(found: Sequence[Choice], shorter: Shorter, times: StepTimes) -> Iterator[str]:
    """What the table means, and what it stands on."""
    name = "K" if shorter.drafts.chain else "B"
    for context, some in groupby(found, key=lambda c: c.context):
        at = "" if context is None else f" at context {context}"
        every = list(some)
        if all(c.size == 0 for c in every):
            most = max(every, key=lambda c: c.ratio)
            beats = "is shown to beat" if shorter.doubts else "beats"
            yield (
                f"No draft {beats} plain decoding{at}: the best, at batch {most.batch}, has "
                f"{ratio(most.ratio)} of its speed."
            )
            continue
        for c in every:
            yield _one(c, name, at)
    if shorter.sizes[-1] in (c.size for c in found):
        yield (
            f"{name} = {shorter.sizes[-1]} is the largest that was compared: whether a larger one "
            "pays more does not follow."
        )
    for doubt in dict.fromkeys(shorter.doubts.values()):
        sizes = [str(size) for size, why in shorter.doubts.items() if why == doubt]
        yield f"{name} = {', '.join(sizes)}: {doubt}."
    yield from shorter.notes
    yield from times.notes
    if len(shorter.draws):
        yield "Intervals are of the rounds alone: step times are taken as they stand."
    if times.method and shorter.method and times.method != shorter.method:
        yield (
            f"The times are of {times.method}'s rounds and the acceptance of {shorter.method}'s: "
            "drafting may take another time."
        )
    if len({c.batch for c in found}) > 1 or len({c.context for c in found}) > 1:
        yield "Acceptance is taken to be the same at every batch and context."


def _one(c: Choice, name: str, at: str) -> str:
    where = f"Batch {c.batch}{at}: "
    within = "" if np.isnan(c.low) else f" {interval(c.low, c.high)}"
    if c.size == 0:
        return f"{where}plain decoding; the best draft has {ratio(c.ratio)}{within} of its speed."
    said = f"{where}{name} = {c.size}, {ratio(c.ratio)}{within} plain decoding"
    if not np.isnan(c.chosen):
        said += f"; it is the best in {percent(c.chosen)} of the draws"
    if not np.isnan(c.low) and not c.shown:
        said += "; that it beats plain decoding is not shown"
    return said + ("." if c.measured else "; an estimate between measured steps.")


# ── what one pastes ──────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Flags:
    """Options of an engine. ``note``: what they are for, or what they leave open."""

    engine: str
    text: str
    note: str = ""


def flags(found: Sequence[Choice], shorter: Shorter) -> list[Flags]:
    """What to give the engines; nothing where no draft beats plain decoding.

    vLLM's schedule is a list of [first batch, last batch, K], K = 0 for no draft; between two
    batches of the table that of the larger one is used. SGLang and llama.cpp have one length for
    all batches.
    """
    lines = list[Flags]()
    for context, some in groupby(found, key=lambda c: c.context):
        every = list(some)
        if not any(c.size for c in every):
            continue
        at = "" if context is None else f"context {context}"
        if shorter.drafts.chain:
            lines.append(_vllm(every, shorter.vllm, at))
        for size in dict.fromkeys(c.size for c in every if c.size):
            own = [str(c.batch) for c in every if c.size == size]
            note = ", ".join(filter(None, [f"batch {', '.join(own)}", at]))
            lines += _others(size, shorter.drafts.chain, note)
    return lines


def _vllm(every: Sequence[Choice], method: str, at: str) -> Flags:
    config: dict[str, Any] = {"method": method} if method else {}
    config["num_speculative_tokens"] = max(c.size for c in every)
    schedule, first = list[list[int]](), 1
    for c in sorted(every, key=lambda c: c.batch):
        if schedule and schedule[-1][2] == c.size:
            schedule[-1][1] = c.batch
        else:
            schedule.append([first, c.batch, c.size])
        first = c.batch + 1
    if len(schedule) > 1:
        config["num_speculative_tokens_per_batch_size"] = schedule
    missing = "add the drafter's model" if method else "add method and model"
    text = f"--speculative-config {shlex.quote(json.dumps(config))}"
    return Flags("vLLM", text, ", ".join(filter(None, [at, missing])))


def _others(size: int, chain: bool, note: str) -> list[Flags]:
    if not chain:
        of = f"{note}, with the depth and width the tree was recorded with"
        return [Flags("SGLang", f"--speculative-num-draft-tokens {size + 1}", of)]
    tree = f"--speculative-num-steps {size} --speculative-eagle-topk 1"
    return [
        Flags("SGLang", f"{tree} --speculative-num-draft-tokens {size + 1}", note),
        Flags("llama.cpp", f"--spec-draft-n-max {size} --spec-draft-n-min 0", note),
        Flags("llama.cpp, older", f"--draft-max {size} --draft-min 0", note),
    ]
