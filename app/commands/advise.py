"""``advise``: which draft length or tree budget pays at which batch, and what to tell an engine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.command_line import REQUIRED, option, words
from app.commands.common import collected_at
from app.commands.options import BUDGETS, METHOD_HELP, POSITIVE, Large, Set, method
from app.object_stores import here
from app.report.advised import advice_sheets, size_words
from app.terminal import ProgressBar, console, one_line, print_lines, say, say_left_out
from app.trace_files import read_all
from core.errors import UserError, writing
from core.files import replacing
from core.journal import alone

if TYPE_CHECKING:
    from analysis.experiments.advise import Choice, Flags
    from analysis.experiments.shorter import Choose, Shorter
    from analysis.frames import Frame


@dataclass(frozen=True, kw_only=True)
class Options(Set, Large):
    """Say which draft length (chains) or budget (trees) pays at which batch.

    Acceptance comes from recorded rounds: shorter drafts are cut out of them, and longer drafts
    are not judged. Step times come from `cost --json` or from a table, CSV or JSON. Its columns are
    tokens (verified of each sequence: K + 1, and 1 for plain decoding), ms, and optionally batch,
    draft_ms and context. The output ends with the options for vLLM, SGLang, TensorRT-LLM and
    llama.cpp.
    """

    files: tuple[Path, ...] = words(
        "traces of one method, counts of one engine (`trace import`), or collected texts",
        read=here,
    )
    cost: Path = option(REQUIRED, "step times (.csv, .json, or a result of `cost --json`)")
    methods: tuple[str, ...] = option(
        (), f"for collected texts: {METHOD_HELP}", read=method, metavar="METHOD"
    )
    budget: tuple[int, ...] = option(
        (), "draft sizes to compare (default: all that were recorded and timed)", BUDGETS
    )
    batch: tuple[int, ...] = option((), "batches (default: those of the table)", POSITIVE)
    out: Path | None = option(
        None, "write the table and the chart into this folder", metavar="FOLDER"
    )
    json: bool = option(False, "one JSON object on stdout")


def main(args: Options) -> int:
    from analysis.experiments.advise import advise, choices, flags, sentences, sizes_of
    from analysis.experiments.step_times import read_step_times
    from analysis.frames import plain_rows

    times = read_step_times(args.cost)
    left_out = list[str]()
    shorter = _recorded(args, sizes_of(times, args.budget), left_out)
    batches = sorted(set(args.batch))
    found = advise(shorter, times, batches)
    chosen = choices(found)
    said, given = list(sentences(chosen, shorter, times, batches)), flags(chosen, shorter)
    if args.json:
        best = [] if shorter.few else [_facts(each) for each in chosen]
        facts = {"table": plain_rows(found), "best": best}
        facts |= {"sentences": said, "flags": [asdict(each) for each in given]}
        print(json.dumps(facts))
    else:
        _show(found, chosen, shorter, said, given)
    if args.out is not None:
        _write(found, shorter, args.out)
    return say_left_out(left_out)


def _recorded(args: Options, choose: Choose, left_out: list[str]) -> Shorter:
    """Read what the files say of shorter drafts, whichever kind they are; ``left_out`` as for
    ``read_all``."""
    from analysis.engines.served import read_served
    from analysis.engines.texts import is_trace
    from analysis.experiments import shorter

    collected = [path for path in args.files if _is_collected(path)]
    if collected:
        if len(collected) < len(args.files):
            raise UserError("collected texts cannot be mixed with other files: name one kind")
        return _simulated(args, choose)
    if args.methods or args.set:
        raise UserError("--methods and --set are for collected texts; these files name theirs")
    traces = [path for path in args.files if path.is_dir() or is_trace(path)]
    if traces and len(traces) == len(args.files):
        with ProgressBar("reading traces", late=True) as progress:
            found = read_all(traces, progress.at, args.limits, left_out)
            return shorter.of_traces(found, choose)
    first, *others = args.files
    if traces or others:
        raise UserError("name traces, or one file of an engine's counts")
    return shorter.of_counts(read_served(first), choose)


def _is_collected(path: Path) -> bool:
    return path.suffix == ".safetensors" or (path.is_dir() and any(path.glob("*.safetensors")))


def _simulated(args: Options, choose: Choose) -> Shorter:
    from analysis.collected.collection import Collection
    from analysis.experiments.shorter import of_texts

    if len(args.methods) != 1:
        raise UserError("name with --methods the method to simulate on these texts")
    collections = [Collection.load(file) for file in collected_at(args.files)]
    return of_texts(collections, args.methods[0], args.values, choose)


def _facts(choice: Choice) -> dict[str, Any]:
    return {k: None if v != v else v for k, v in asdict(choice).items()} | {"shown": choice.shown}


def _show(
    found: Frame, chosen: Sequence[Choice], shorter: Shorter, said: Sequence[str],
    given: Sequence[Flags],
) -> None:  # fmt: skip
    out = console()
    title = f"{one_line(shorter.name, 60)} · {'chains' if shorter.drafts.chain else 'trees'}"
    out.print(title, style="bold", soft_wrap=True)
    for sheet in advice_sheets(found, chosen, shorter):
        if sheet.title:
            out.print(sheet.title, soft_wrap=True)
        out.print(sheet)
        out.print()
    print_lines(out, said)
    for each in given:
        out.print(f"\n{each.engine}" + (f" ({each.note})" if each.note else ""), style="bold")
        out.print(one_line(each.text, None), soft_wrap=True)


def _write(found: Frame, shorter: Shorter, folder: Path) -> None:
    from analysis.charts.figures import Style, worth_by_size
    from app.export.report_page import write_table

    with alone(folder, "advice"), writing(folder):
        write_table(found, folder / "advice.csv")
        figure = worth_by_size(found, size_words(shorter.drafts), Style("light"))
        with replacing(folder / "advice.html") as file:
            figure.write_html(file, include_plotlyjs=True)
    say(f"{folder}: advice.csv, advice.html")
