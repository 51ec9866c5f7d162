"""Whole commands of this checkout beside those of an older one: their time and their figures.

    git worktree add ../before REVISION
    python -m tests.bench.before ../before --runs 5

Both take turns, each in a process of its own, on the traces, collected texts and drafters that this
checkout ships. The ratio is new ÷ old of processor time, pair by pair: 0.9 means that the new one
needs a tenth less. Figures are the numbers that stand at the same place in the JSON of both; times
and what only one of them writes are not compared. ``--python`` names an interpreter for the older
checkout, whose requirements may differ.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from app.terminal import FittingTable, console
from core.errors import as_script

HERE = Path(__file__).resolve().parents[2]
TRACES, TEXTS = HERE / "assets/traces", HERE / "assets/collected"
THREE = " ".join(f"{TRACES}/chat-{name}.jsonl.gz" for name in ("ar", "dflash", "ddtree-64"))
PROMPT = "Why is the sky blue in the day and red in the evening?"
STARTS = "studio"  # runs until it answers
WAIT = 120.0  # seconds for that
SAME = 1e-9  # relative: sums in another order


@dataclass(frozen=True)
class Pair:
    """One command in both checkouts. ``{o}`` is a folder for what it writes; ``old`` is given where
    the words have changed since."""

    name: str
    new: str
    old: str = ""


def _run(method: str, more: str = "") -> str:
    return f"run {method} --max-new-tokens 64 --json {more}"


PAIRS = (
    Pair("--help", "--help"),
    Pair("report", f"report {TRACES}/chat-ddtree-64.jsonl.gz --out {{o}} --to json",
         f"report {TRACES}/chat-ddtree-64.jsonl.gz --out {{o}} --format json"),
    Pair("report, three runs", "report {t} --out {o} --to json",
         "report {t} --out {o} --format json"),
    Pair("whatif", f"whatif {TEXTS}/train-journey.safetensors --json"),
    Pair("diagnose", "diagnose dflash --max-new-tokens 96 --json"),
    Pair("run, plain", _run("ar")),
    Pair("run, DDTree", _run("ddtree", "--budget 64")),
    Pair("run, DART", _run("dart", "--budget 64")),
    Pair("run, EAGLE-3", _run("eagle3", "--budget 64")),
    Pair("studio, until it answers", STARTS),
)  # fmt: skip
TIMES = ("second", "_ms", "per_s", "pace", "wall", "time")  # within names of what differs by itself


@dataclass(frozen=True)
class Ended:
    """A command that ran: seconds of processor time, and its figures by place."""

    cpu: float
    figures: dict[str, float]


def figures(value: Any, place: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a JSON value and its place; times are left out."""
    if isinstance(value, dict):
        for name, each in value.items():
            if not any(part in str(name) for part in TIMES):
                yield from figures(each, f"{place}.{name}")
    elif isinstance(value, list):
        seen = Counter[str]()
        for each in value:
            name = _words(each)
            seen[name] += 1
            yield from figures(each, f"{place}[{name} {seen[name]}]")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield place, float(value)


def _words(row: Any) -> str:
    """The words that name a row of a table: rows may stand in another order since."""
    words = [v for v in row.values() if isinstance(v, str)] if isinstance(row, dict) else []
    return "; ".join(words[:3])


def written(stdout: str, folder: Path) -> dict[str, float]:
    """The figures of JSON objects on stdout, a line each, and of the files in a folder."""
    found: dict[str, float] = {}
    with suppress(ValueError):
        for at, line in enumerate(stdout.splitlines()):
            found |= figures(json.loads(line), f"line {at + 1}")
    for path in sorted(folder.rglob("*.json")):
        found |= figures(json.loads(path.read_text()), path.stem)
    return found


def ended(checkout: Path, python: str, words: str) -> Ended:
    """Run one command to its end. Raises SystemExit where it fails."""
    with TemporaryDirectory() as out:
        command = [python, "-m", "app", *words.replace("{t}", THREE).replace("{o}", out).split()]
        if words.startswith(("run ", "diagnose ")):
            command += ["--prompt", PROMPT]
        start = _children()
        done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1):
            raise SystemExit(f"{' '.join(command)}\n{done.stderr[-2000:]}")
        return Ended(_children() - start, written(done.stdout, Path(out)))


def studio(checkout: Path, python: str, port: int) -> Ended:
    """Start the studio and kill it as soon as its page is there: it goes on to warm up."""
    command = [python, "-m", "app", STARTS, "--port", str(port)]
    start, begun, none = _children(), time.monotonic(), subprocess.DEVNULL
    with subprocess.Popen(command, cwd=checkout, stdout=none, stderr=none) as server:
        while time.monotonic() - begun < WAIT:
            with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/"):
                break
            time.sleep(0.02)
        server.kill()
    return Ended(_children() - start, {})


def _children() -> float:
    times = os.times()
    return times.children_user + times.children_system


def compared(new: dict[str, float], old: dict[str, float]) -> tuple[int, list[str]]:
    """How many figures both have, and where they are not the same."""
    both = [place for place in new if place in old]
    differ = [p for p in both if abs(new[p] - old[p]) > SAME * max(abs(new[p]), abs(old[p]))]
    return len(both), differ


def measured(pair: Pair, before: Path, python: str, runs: int) -> tuple[list[str], list[str]]:
    """A line of the table, and the places of figures that differ."""
    ratios, cpu = [], []
    for turn in range(runs + 1):
        if pair.new == STARTS:
            new, old = studio(HERE, sys.executable, 7961), studio(before, python, 7962)
        else:
            new = ended(HERE, sys.executable, pair.new)
            old = ended(before, python, pair.old or pair.new)
        if turn:  # the first of each fills the file cache
            ratios.append(new.cpu / old.cpu)
            cpu.append((new.cpu, old.cpu))
    both, differ = compared(new.figures, old.figures)
    seconds = [f"{median(each):.2f}" for each in zip(*cpu, strict=True)]
    spread = f"{min(ratios):.2f}–{max(ratios):.2f}"
    return [
        pair.name,
        *seconds,
        f"{median(ratios):.2f}",
        spread,
        str(both),
        str(len(differ)),
    ], differ


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("before", type=Path, help="the older checkout")
    parser.add_argument("--python", default=sys.executable, help="its interpreter")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[], help="parts of commands' names")
    args = parser.parse_args()
    chosen = [p for p in PAIRS if not args.only or any(part in p.name for part in args.only)]
    lines, differing = [], list[str]()
    for pair in chosen:
        line, differ = measured(pair, args.before.resolve(), args.python, args.runs)
        lines.append(line)
        differing += [f"{pair.name}: {place}" for place in differ]
        print(" · ".join(line), file=sys.stderr)
    columns = ("", "new s", "old s", "new ÷ old", "of single pairs", "figures of both", "differ")
    console().print(FittingTable(columns, lines, left=("",)))
    for each in differing[:40]:
        print(each)
    if len(differing) > 40:
        print(f"and {len(differing) - 40} more")


if __name__ == "__main__":
    as_script(main)
