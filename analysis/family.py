"""One table of all methods: what each accepts, how far its q is from p, and what it costs.

Made of finished sweeps (``analysis.sweep_folder``), one for each temperature. A row is a method
with a budget at a temperature on the prompts of a source, or on all of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

from analysis.acceptance import per_depth
from analysis.frames import Frame
from analysis.sweep import Plan, Row, Score, label, scores
from analysis.tables import STAGES, Tables
from analysis.variants import Variant
from core.errors import UserError
from core.methods.names import PLAIN
from core.traces.reader import read_trace

ALL = "all"  # the source of rows over all prompts
KEPT = 16  # K of the coverage
_MEANS = ("tvd", f"coverage_{KEPT}")
_DEPTH_COLUMNS = ["depth", "probed", *_MEANS]


@dataclass(frozen=True)
class Entry:
    """A row.

    method, budget, options  the variant; ``options`` those that were set
    temperature  of the target
    source       of the prompts, or "all"
    texts        prompts, or prompts × seeds where the seed decides
    tau, low, high  block efficiency Σ (accepted + 1) ÷ rounds and its 95 % bootstrap interval
    tvd          mean ½ Σ_v |q − p| at depth 1, 2, …, where a probe saw it
    coverage     mean p of the drafter's 16 best tokens, by depth
    draft_ms     drafting and building, a round
    round_ms     all stages, a round
    forward_ms   a round of plain decoding on the same prompts; None without it in the sweep
    speed        tokens per second ÷ plain decoding's on the same prompt: the median over prompts
    same         runs whose tokens are plain decoding's, of ``judged``
    """

    method: str
    budget: int
    options: dict[str, Any]
    temperature: float
    source: str
    texts: int
    tau: float
    low: float
    high: float
    tvd: tuple[float, ...]
    coverage: tuple[float, ...]
    draft_ms: float
    round_ms: float
    forward_ms: float | None
    speed: float | None
    same: int
    judged: int

    def to_json(self) -> dict[str, Any]:
        """Numbers at four digits: more is noise."""
        return {name: _short(value) for name, value in asdict(self).items()}


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    return [_short(each) for each in value] if isinstance(value, (list, tuple)) else value


def entries(plan: Plan, rows: Sequence[Row], traces: Path) -> Iterator[Entry]:
    """The rows of one finished sweep: its plan, the rows of ``with_same_as_plain``, its traces.

    Reads a trace at a time. Raises UserError for a trace that cannot be read.
    """
    good = [row for row in rows if row["error"] is None]
    depths = {row["run"]: _depths(traces / row["trace"]) for row in good}
    sources = dict.fromkeys(row["source"] for row in good if row["source"])
    for source in (ALL, *(sources if len(sources) > 1 else ())):
        some = [row for row in good if source in (ALL, row["source"])]
        plain = {_text(row): row for row in some if row["method"] == PLAIN}
        for variant, score in zip(plan.variants, scores(plan, some), strict=True):
            own = [row for row in some if _is_of(row, variant)]
            if own and score.tau is not None:
                yield _entry(plan, variant, source, score, own, plain, depths)


def _entry(
    plan: Plan,
    variant: Variant,
    source: str,
    score: Score,
    own: Sequence[Row],
    plain: dict[tuple[str, int], Row],
    depths: dict[str, Frame],
) -> Entry:
    beside = [(row, plain[_text(row)]) for row in own if _text(row) in plain]
    means = _by_depth([depths[row["run"]] for row in own])
    assert score.tau is not None
    return Entry(
        method=str(variant.method),
        budget=variant.budget,
        options=dict(variant.options),
        temperature=plan.terms.temperature,
        source=source,
        texts=score.texts,
        tau=score.tau,
        low=score.low,
        high=score.high,
        tvd=tuple(means["tvd"]),
        coverage=tuple(means[f"coverage_{KEPT}"]),
        draft_ms=_round_ms(own, ("draft", "build")),
        round_ms=_round_ms(own, STAGES),
        forward_ms=_round_ms([other for _, other in beside], STAGES) if beside else None,
        speed=_speed(beside),
        same=score.same,
        judged=score.judged,
    )


def _speed(beside: Sequence[tuple[Row, Row]]) -> float | None:
    """The median over prompts of a run's pace by that of plain decoding."""
    paces = [own["tokens_per_second"] / plain["tokens_per_second"] for own, plain in beside]
    return median(paces) if paces else None


def _depths(path: Path) -> Frame:
    """TVD and coverage of one trace by depth, and what was probed."""
    try:
        tables = Tables.of(read_trace(path))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
    frame = per_depth(tables)
    return frame.loc[frame["probed"] > 0, _DEPTH_COLUMNS]


def _by_depth(frames: Sequence[Frame]) -> Frame:
    """Means over all probed positions of several traces, from the first depth on."""
    frame: Frame = pd.concat(frames, ignore_index=True).sort_values("depth")
    parts = [part for _, part in frame.groupby("depth")]
    means = {name: [np.average(p[name], weights=p["probed"]) for p in parts] for name in _MEANS}
    return pd.DataFrame(means)


def _round_ms(rows: Sequence[Row], stages: Sequence[str]) -> float:
    seconds = sum(row[stage] for row in rows for stage in stages)
    return 1e3 * seconds / max(1, sum(row["rounds"] for row in rows))


def _text(row: Row) -> tuple[str, int]:
    return row["prompt_hash"], row["seed"]


def _is_of(row: Row, variant: Variant) -> bool:
    return (row["method"], row["budget"], row["options"]) == (
        variant.method, variant.budget, json.dumps(dict(variant.options)),
    )  # fmt: skip


def title(entry: Entry) -> str:
    """The method with its budget and what was set, as in every other table."""
    return label(Variant(f"{entry.method} B={entry.budget}", entry.method, entry.budget,
                         options=tuple(entry.options.items())))  # fmt: skip
