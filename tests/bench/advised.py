"""Whether the draft length that ``advise`` names is the fastest in vLLM on a CPU, with the embedded
target and our EAGLE-3: plain decoding and chains of K = 1 … 7, each in a process of its own.

    DRAFTSCOPE_VLLM=.venv-vllm/bin/python python -m tests.bench.advised [--batch 1 8]

What is accepted is recorded at the largest K alone; a step's time is measured at each K. Times are
of the processor, of the thread that serves, in steps in which all requests of the batch run. Behind
the measured speed stands the least and the largest of the repeats. Exit code 1 where no repeat of
the advised K is as fast as the slowest repeat of the fastest one.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
import tempfile
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from app.cli import main as app
from tests.bench.recorder import export, in_vllm, options

LONGEST = 7


@dataclass(frozen=True)
class Pace:
    """A draft length at one batch: seconds of a step, and tokens a second of each repeat."""

    seconds: float
    speeds: tuple[float, ...]

    @property
    def speed(self) -> float:
        return float(np.median(self.speeds))


def main() -> int:
    args = options("the advised draft length beside the fastest", tokens=48, repeats=5)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        export(folder)
        paces = {size: measured(folder, size, args) for size in range(LONGEST + 1)}
        advice = advised(folder, paces)
    kept = [compared(batch, paces, advice) for batch in args.batch]
    return int(not all(kept))


def measured(folder: Path, size: int, args: argparse.Namespace) -> dict[int, Pace]:
    """By batch, the pace of chains of ``size``; 0: of plain decoding."""
    found = in_vllm("pace.py", folder, size, args, recorded=size == LONGEST)
    return {int(batch): pace_of(repeats, int(batch)) for batch, repeats in found.items()}


def pace_of(repeats: list[list[tuple[int, float, int]]], batch: int) -> Pace:
    whole = [np.array([step for step in steps if step[0] == batch]) for steps in repeats]
    speeds = tuple(float(each[:, 2].sum() / each[:, 1].sum()) for each in whole)
    return Pace(float(np.concatenate(whole)[:, 1].mean()), speeds)


def advised(folder: Path, paces: dict[int, dict[int, Pace]]) -> dict:
    """Ask ``advise --json`` about the recorded rounds and these steps."""
    with (folder / "steps.csv").open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["batch", "tokens", "ms"])
        for size, by_batch in paces.items():
            lines.writerows([b, size + 1, 1e3 * pace.seconds] for b, pace in by_batch.items())
    said = io.StringIO()
    with redirect_stdout(said):
        code = app(
            ["advise", str(folder / "traces"), "--cost", str(folder / "steps.csv"), "--json"]
        )
    assert code == 0
    return json.loads(said.getvalue())


def compared(batch: int, paces: dict[int, dict[int, Pace]], advice: dict) -> bool:
    """Print a batch; whether the advised length is the fastest, or within its noise."""
    rows = {row["size"]: row for row in advice["table"] if row["batch"] == batch}
    (best,) = (each["size"] for each in advice["best"] if each["batch"] == batch)
    own = {size: by_batch[batch] for size, by_batch in paces.items()}
    fastest = max(own, key=lambda size: own[size].speed)
    print(f"batch {batch}: advised K = {best}, fastest K = {fastest}")
    for size, pace in own.items():
        line = f"  K {size}: {1e3 * pace.seconds:5.1f} ms a step, {pace.speed:6.1f} tokens/s"
        line += f" ({min(pace.speeds):.1f} to {max(pace.speeds):.1f})"
        if size in rows:
            low, high = rows[size]["low"], rows[size]["high"]
            line += f"; advised {rows[size]['tokens_per_second']:.1f} ({low:.1f} to {high:.1f})"
        print(line)
    return max(own[best].speeds) >= min(own[fastest].speeds)


if __name__ == "__main__":
    sys.exit(main())
