"""``trace pack``: the columns of many traces, for reports over very many rounds. Never torch."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.numbers import plural
from app.command_line import REQUIRED, option, words
from app.commands.options import Large, Placement
from app.object_stores import here
from app.terminal import ProgressBar, one_line, say, say_left_out
from app.trace_files import trace_paths
from core.errors import UserError, writing
from core.traces.reader import read_trace
from core.traces.schema import Trace

if TYPE_CHECKING:
    from analysis.measures.packing import Made, Share
    from app.ray_workers import Cluster


@dataclass(frozen=True, kw_only=True)
class Options(Large, Placement):
    """Pack traces into columns, so that `report` is quick over a million rounds.

    The pack is a folder of Parquet files. The traces remain the record: keep them where they are.
    Repeat the command to add traces that are new or have changed, or to continue after a stop.
    `--ray local` packs with all cores of this machine, `--ray auto` with a cluster's. A file that
    is not a trace is left out, with exit code 1.
    """

    traces: tuple[Path, ...] = words("traces (.jsonl or .jsonl.gz), or folders of them", read=here)
    out: Path = option(REQUIRED, "the pack: a new folder, or an earlier pack", metavar="FOLDER")


def main(args: Options) -> int:
    from analysis.measures.packed import is_free, is_pack
    from analysis.measures.packing import pack

    if args.out.exists() and not args.out.is_dir():
        raise UserError(f"{args.out} is a file: name a folder for the pack")
    if args.out.is_dir() and not is_pack(args.out) and not is_free(args.out):
        raise UserError(f"{args.out} holds other files: name a new folder for the pack")
    for path in args.traces:
        if not path.exists():
            raise UserError(f"there is no file or folder {path}")
    files, cluster = list(trace_paths(args.traces)), args.cluster(each_core=True)
    read = partial(read_trace, limits=args.limits)
    with writing(args.out), ProgressBar("packing traces") as progress:
        elsewhere = cluster and partial(_packed_on, cluster, read, progress)
        done = pack(files, args.out, read, progress.at, elsewhere)
    code = say_left_out(done.refused)
    if done.gone:
        say(f"gone, and no longer in the pack: {plural(done.gone, 'trace')}")
    size = sum(file.stat().st_size for file in args.out.iterdir())
    added = f"{plural(done.added, 'trace')} packed ({plural(done.rounds, 'round')})"
    name = one_line(str(args.out), 200)
    say(f"{added}, {done.kept} there before: {name} has {size / 1e6:,.1f} MB")
    return code


def _packed_on(
    cluster: Cluster, read: Callable[[Path], Trace], progress: ProgressBar, shares: Sequence[Share]
) -> Generator[tuple[Share, Made | str], None, None]:
    """Each share as a worker of the cluster packed it."""
    done = 0
    answers = cluster.answers(
        partial(_maker, read), shares, lambda note: progress.at(done / len(shares), note)
    )
    with closing(answers):
        for share, made in answers:
            done += 1
            yield share, made


def _maker(read: Callable[[Path], Trace]) -> Callable[[Share], Made]:
    """Runs in a worker: all that it needs comes with the first share."""
    return lambda share: share.make(read)
