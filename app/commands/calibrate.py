"""``calibrate``: TVD and coverage against depth along the target's own continuations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.numbers import interval, number, signed
from app.command_line import REQUIRED, option, words
from app.commands import common
from app.commands.given import Texts, asked_of
from app.commands.options import POSITIVE, WHOSE, Model, Set, drafting, method
from app.terminal import FittingTable, ProgressBar, console, one_line, print_lines, say
from core.methods.method import BY_RUN

if TYPE_CHECKING:
    import pandas as pd

    from analysis.collected.given import Answer
    from core.decoding.along import Reading


@dataclass(frozen=True, kw_only=True)
class Options(Set, Texts, Model):
    """Measure how far drafters are from the target at every depth.

    From each anchor, a place in a text, the target writes N continuations at temperature 1. Along
    them q is compared with p. There are two references: the marginal, which is the mean of p over
    the continuations, and held out, which for each continuation is the mean over the others. On
    average, the largest coverage of a q that knows only the context lies between the two. (In TVD a
    sharper q may be nearer than either.)

    With --answer the anchors lie in a text that was served. With --states the kept text itself is
    the one continuation, and no marginal is measured. Writes Parquet, CSV and figures. Repeat the
    command to continue an interrupted one.
    """

    methods: tuple[str, ...] = words(WHOSE, (), method)
    out: Path = option(REQUIRED, "the folder that is written", metavar="FOLDER")
    anchors: int = option(64, "places in the texts, in all", POSITIVE)
    continuations: int = option(16, "texts written from each anchor", POSITIVE)
    repeats: int = option(
        3, "measurements with other random numbers, on the same anchors", POSITIVE
    )
    max_new_tokens: int = option(128, "tokens of the texts that the anchors lie in", POSITIVE)
    depths: int | None = option(None, "how deep (default: as the deepest drafter)", POSITIVE)


def main(args: Options) -> int:
    from analysis.experiments.prompts import PROMPTS

    asked = asked_of(args, PROMPTS)
    args = replace(args, methods=args.methods or drafting(args, BY_RUN))
    engine = common.load_engine(args, args.methods, ends=bool(args.states))
    from analysis.collected.calibrate import CalibrationPlan, calibrate, given_texts
    from analysis.collected.calibration import BETWEEN, HELD_OUT, curves
    from analysis.collected.collect import source_of

    plan = CalibrationPlan(
        args.anchors, args.continuations, args.repeats, args.max_new_tokens, args.depths
    )
    plan.check(len(asked))
    source = source_of(engine, args.methods, args.values)
    language = engine.prepare()
    ids, given, kept = list[list[int]](), list["Answer"](), list[Callable[[], "Reading"]]()
    for text in asked:
        read = text.read(args, language, source.layers)
        ids.append(read.ids)
        given += [read.answer] if read.answer else []
        if text.states is not None:  # read again when it is its turn: states are large
            kept.append(partial(args.read, text.states, language, source.layers))
    if kept:
        plan = replace(plan, continuations=1)
    with ProgressBar("calibrating") as progress:
        found = calibrate(source, ids, args.out, plan, progress.at, given, kept)
    print_lines(console(), given_texts(args.out))
    _show(curves(found))
    if HELD_OUT in set(found["series"]):
        console().print(BETWEEN, soft_wrap=True)
    _show_texts(found)
    say(f"{args.out}: calibration and curves (.parquet, .csv), tvd.html and coverage.html")
    return 0


def _show_texts(found: pd.DataFrame) -> None:
    from analysis.collected.many_texts import departing, several_texts

    texts: Any = several_texts(found)
    if texts is None:
        return
    rows = [
        (
            row["series"], str(row["depth"]), str(row["texts"]), number(row["tvd"], 3),
            interval(row["low"], row["high"], 3), signed(row["difference"], 3),
            interval(row["difference_low"], row["difference_high"], 3, sign=True),
            furthest,
        )
        for row, furthest in zip(
            texts.to_dict("records"), departing(texts, "tvd", 3, ""), strict=True
        )
    ]  # fmt: skip
    out = console()
    against = one_line(str(texts["against"].iloc[0]), 60)
    out.print(f"\nAcross texts; differences in TVD from {against}, paired by text", style="bold")
    columns = ("", "depth", "texts", "TVD", "95 %", "difference", "95 %", "differs most")
    out.print(FittingTable(columns, rows, left=("", columns[-1])))


def _show(curves: pd.DataFrame) -> None:
    rows = [
        (
            row["series"],
            str(row["depth"]),
            str(row["observed"]),
            number(row["tvd"], 3),
            interval(row["tvd_low"], row["tvd_high"], 3),
            *(number(row[f"coverage_{k}"], 3) for k in (1, 4, 16)),
        )
        for row in curves.to_dict("records")
    ]
    columns = ("", "depth", "anchors", "TVD", "95 %", "top-1", "top-4", "top-16")
    console().print(FittingTable(columns, rows, left=("",)))
