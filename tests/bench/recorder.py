"""The recorder's share of a step of vLLM on a CPU, with the embedded target and our EAGLE-3: the
same requests without it, with tokens alone, with p, and with p and q, in turn in one process.

    DRAFTSCOPE_VLLM=.venv-vllm/bin/python python -m tests.bench.recorder [--batch 1 8]

Times are of the processor, in one thread, so that other programs count little: of the thread that
serves, and in brackets of all threads of that process. Each step's is the least of the repeats, for
other programs only add to it; a share is of the sums. Behind it stands the median of the shares of
single repeats, each beside the same turn without the recorder, with its 95 % interval.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from app.cli import main as app
from core.models import embedded
from tests import ROOT
from tests.engines.prompts import encoded

PYTHON = os.environ.get("DRAFTSCOPE_VLLM", str(ROOT / ".venv-vllm/bin/python"))


def main() -> None:
    args = options("the recorder in a step of vLLM on a CPU", tokens=24, repeats=15)
    with tempfile.TemporaryDirectory() as name:
        export(Path(name))
        measured = in_vllm("steps.py", Path(name), 3, args, recorded=True)
    for batch, ways in measured.items():
        off = np.array(ways["off"])  # [repeats, steps, 2]
        each = 1e3 * off[..., 0].min(0).mean()
        print(f"batch {batch}: {off.shape[1]} steps of {each:.1f} ms")
        for way, steps in ways.items():
            if way != "off":
                print(f"  {way:8} {line(np.array(steps), off)}")


def options(description: str, tokens: int, repeats: int) -> argparse.Namespace:
    """Read the command line. Without vLLM's Python it ends here, with one sentence."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8], help="requests at once")
    parser.add_argument("--tokens", type=int, default=tokens)
    parser.add_argument("--repeats", type=int, default=repeats)
    args = parser.parse_args()
    if shutil.which(PYTHON) is None:
        parser.exit(2, "DRAFTSCOPE_VLLM must name the Python of an environment that has vLLM\n")
    return args


def export(folder: Path) -> None:
    """Write our EAGLE-3 as vLLM reads it."""
    app(["model", "export", "--kind", "eagle3", "--out", str(folder / "eagle3")])


def in_vllm(
    script: str, folder: Path, places: int, args: argparse.Namespace, recorded: bool
) -> Any:
    """The JSON that a script of ``tests/engines`` writes in vLLM's environment, with chains of so
    many places; of 0 it decodes plainly. ``recorded``: into ``folder``/traces."""
    drafter = {
        "method": "eagle3", "model": str(folder / "eagle3"), "num_speculative_tokens": places,
    }  # fmt: skip
    task = {
        "model": str(embedded.prepare()), "dtype": "bfloat16",
        "speculative": drafter if places else None, "prompts": encoded(), "batches": args.batch,
        "tokens": args.tokens, "repeats": args.repeats,
    }  # fmt: skip
    more = {"PYTHONPATH": str(ROOT / "recorders"), "OMP_NUM_THREADS": "1"}
    if recorded:
        more["DRAFTSCOPE_RECORD"] = str(folder / "traces")
    command = [PYTHON, str(ROOT / "tests/engines" / script), json.dumps(task), str(folder / "out")]
    done = subprocess.run(command, env=os.environ | more, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit((done.stdout + done.stderr)[-3000:])
    return json.loads((folder / "out").read_text())


def line(steps: np.ndarray, off: np.ndarray) -> str:
    """Compare steps [repeats, steps, 2] with those of ``off``."""
    whole, without = steps.min(0).sum(0), off.min(0).sum(0)
    share, extra = 100 * (whole / without - 1), 1e3 * (whole - without)[0] / steps.shape[1]
    each = np.sort(100 * (steps[..., 0].sum(1) / off[..., 0].sum(1) - 1))
    low = max(0, int(len(each) / 2 - 0.98 * len(each) ** 0.5))  # a rank, by the binomial's spread
    return (
        f"{share[0]:+.1f} % ({share[1]:+.1f} %), {extra:+.2f} ms a step; "
        f"median {np.median(each):+.1f} %, {each[low]:+.1f} to {each[-1 - low]:+.1f} %"
    )


if __name__ == "__main__":
    main()
