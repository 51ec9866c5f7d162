"""Every command on a trace: its cost for each megabyte and round, and whether it can be followed.

    python -m tests.bench.commands                  # 200, 2,000 and 20,000 rounds
    python -m tests.bench.commands --only report check --rounds 500 5000

Each command runs in a process of its own on traces of several lengths, which are recorded rounds of
16 nodes in other places. Printed are milliseconds of processor time for each megabyte unpacked and
microseconds for each round, both above the shortest trace, and the growth: the exponent of time
over rounds (1: twice as long for twice as many). Of the longest trace also memory, whether anything
is said of how far it is, and the seconds that Ctrl-C takes in its midst.

Exit code 1 where time grows faster than rounds to the power of ``GROWTH``, or where a command
beyond ``LONG`` seconds is silent or takes more than ``STOPS`` seconds to stop.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import math
import os
import resource
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench.million import SHIPPED, Recorded

COMMANDS = {  # words after ``python -m app``; {t} the trace, {o} a new place, {c} step times
    "show": "trace show {t}",
    "show one": "trace show {t} --round 3",
    "check": "trace check {t}",
    "compare": "trace compare {t} {t}",
    "pack": "trace pack {t} --out {o}",
    "report": "report {t}",
    "report files": "report {t} --to csv parquet json --html --out {o}",
    "advise": "advise {t} --cost {c}",
    "rounds.csv": "trace export {t} --to csv --out {o}",
    "nodes.csv": "trace export {t} --to csv --table nodes --out {o}",
    "nodes.parquet": "trace export {t} --to parquet --table nodes --out {o}",
    "perfetto": "trace export {t} --to perfetto --out {o}",
    "profile": "trace export {t} --to profile --out {o}",
    "svg": "trace export {t} --to svg --out {o}",
    "dot": "trace export {t} --to dot --out {o}",
    "html": "trace export {t} --to html --out {o}",
    "site": "trace export {t} --to site --out {o}",
}
TIMES = "batch,tokens,ms\n1,1,10\n1,2,11\n1,8,14\n1,17,15\n"
GROWTH, LONG, STOPS = 1.25, 2.0, 1.0


@dataclass(frozen=True)
class Cost:
    """The cost of one call. ``told``: it said how far it is."""

    seconds: float
    wall: float
    memory: int
    code: int
    told: bool
    said: str


def write_long(path: Path, rounds: int) -> int:
    """Write a trace of so many rounds; returns its bytes unpacked."""
    size = 0
    with gzip.open(path, "wb", 1) as file:
        for line in Recorded(SHIPPED[0]).lines(0, rounds):
            size += file.write(line + b"\n")
    return size


def call(words: list[str], stop_after: float | None = None) -> Cost:
    """Run a command, and press Ctrl-C after so many seconds: ``wall`` is then the time from there
    to its end."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-m", "app", *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True, env=os.environ | {"OMP_NUM_THREADS": "1"},
    ) as child:  # fmt: skip
        assert child.stderr is not None
        if stop_after is not None:
            time.sleep(stop_after)
            began = time.monotonic()
            os.kill(child.pid, signal.SIGINT)
        said = child.stderr.read()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    wall = time.monotonic() - began
    return Cost(
        seconds,
        wall,
        used.ru_maxrss << 10,
        child.returncode,
        "%)" in said or "making" in said,
        said,
    )


def measure(name: str, traces: dict[int, tuple[Path, int]], folder: Path) -> list[str]:
    """Print the command's line; returns what is wrong."""
    costs, numbers = dict[int, Cost](), itertools.count()

    def words(rounds: int) -> list[str]:
        place = folder / f"out-{name.replace(chr(32), chr(45))}-{next(numbers)}"
        named = COMMANDS[name].format(t=traces[rounds][0], o=place, c=folder / "times.csv")
        return named.split()

    for rounds in traces:
        costs[rounds] = call(words(rounds))
        if costs[rounds].code:
            return [f"{name}: exit code {costs[rounds].code}: {costs[rounds].said[-300:]}"]
    few, *_, some, many = sorted(traces)
    more = costs[many].seconds - costs[few].seconds
    size, rounds = (traces[many][1] - traces[few][1]) / 1e6, many - few
    middle = costs[some].seconds - costs[few].seconds
    grown = math.log(more / middle) / math.log((many - few) / (some - few)) if middle > 0.2 else 0
    last, stopped = costs[many], None
    wrong = []
    if last.wall > LONG:
        stopped = call(words(many), 0.7 * last.wall)
        if not last.told:
            wrong.append(f"{name}: {last.wall:.1f} s without a word of how far it is")
        if stopped.wall > STOPS:
            wrong.append(f"{name}: {stopped.wall:.1f} s from Ctrl-C to its end")
    if grown > GROWTH:
        wrong.append(f"{name}: time grows as rounds to the power of {grown:.2f}")
    print(
        f"{name:<14} {1e3 * more / size:8.1f} {1e6 * more / rounds:8.0f} "
        f"{grown or math.nan:8.2f} {last.seconds:8.1f} {last.memory / 1e6:8.0f} "
        f"{'yes' if last.told else 'no':>6} {stopped.wall if stopped else math.nan:8.2f}",
        flush=True,
    )
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, nargs="+", default=[200, 2_000, 20_000])
    parser.add_argument("--only", nargs="+", choices=COMMANDS, default=[*COMMANDS])
    args = parser.parse_args()
    if len(args.rounds) < 3:
        parser.error("growth needs three lengths")
    with TemporaryDirectory() as made:
        folder, traces = Path(made), dict[int, tuple[Path, int]]()
        (folder / "times.csv").write_text(TIMES)
        for rounds in sorted(args.rounds):
            path = folder / f"{rounds}.jsonl.gz"
            traces[rounds] = path, write_long(path, rounds)
            print(f"{rounds:,} rounds: {traces[rounds][1] / 1e6:.1f} MB unpacked")
        print(
            f"\n{'command':<14} {'ms/MB':>8} {'µs/round':>8} {'growth':>8} {'CPU s':>8} "
            f"{'MB':>8} {'told':>6} {'Ctrl-C s':>8}"
        )
        wrong = [fault for name in args.only for fault in measure(name, traces, folder)]
    print("\n".join(["", *wrong]) if wrong else "\nheld")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
