"""The studio's documents: example prompts, the example runs that ship, what a comparison begins
with. Only here does the studio name methods.

    python -m app.studio.shipped assets/traces

makes the example runs anew: real runs of the embedded model with the shipped drafters. Every method
writes the same text to the same prompt, so any of them can be compared. About five minutes on two
idle CPU cores; the seconds in the files are of the machine that made them.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.models.embedded import NAME
from core.traces.schema import Trace
from core.traces.writer import write_trace

if TYPE_CHECKING:
    from core.decoding.engine import Run

# ── what the page offers ─────────────────────────────────────────────────────────────────────────

PROMPTS = (
    ("Definition", "What is photosynthesis? Explain it in two sentences."),
    ("List", "Name the seven days of the week."),
    ("Code", "Write a Python function that returns the sum of two numbers."),
    ("Story", "Write a short story about a cat and a boat."),
    ("Chat", "Explain to a child why the sky is blue."),
)  # what a 135M model does well: its sums are wrong
COMPARED = (("ddtree", 16), ("treeflash", 16))  # the first slots of Compare: method, draft budget
COLLECTED = ("ddtree", "treeflash", "dart")  # whose drafters answer for a run's text in What-if
FIRST = "maths-ddtree-64"  # the run that Calibration opens with
TOGETHER = (
    "ddtree-16",
    "treeflash",
    "dart",
    "dflash",
)  # runs of one prompt that one click compares
TIMED = "maths"  # the prompt whose runs What-if estimates speed with

# ── the example runs ─────────────────────────────────────────────────────────────────────────────

RECORDED = {
    "maths": "A baker makes 24 rolls an hour for 5 hours and sells 87 of them. How many are left?",
    "code": "Write a Python function that counts the vowels in a word, and show how to call it.",
    "chat": "Why do cats purr? Explain it to me in a few friendly sentences.",
}
RUNS = {
    "ar": ("ar", None),
    "dflash": ("dflash", 16),
    "ddtree-16": ("ddtree", 16),
    "ddtree-64": ("ddtree", 64),
    "treeflash": ("treeflash", 16),
    "dart": ("dart", 16),
    "eagle3": ("eagle3", 16),
    "hydra": ("hydra", 16),
    "medusa": ("medusa", 16),
    "sps": ("sps", 5),
    "lookahead": ("lookahead", 16),
    "pld": ("pld", 10),
    "caddtree": ("caddtree", 64),
}  # file name → method, draft budget
ONCE = [*RUNS][-7:]  # for their size: on the first prompt alone
LEFT_OUT = {f"{topic}-{run}" for topic in ("code", "chat") for run in ("ddtree-64", *ONCE)}
TOKENS = 112
DENOISED = {
    "maths": "A train travels 60 miles per hour. How far does it travel in 3 hours?",
    "code": "Write a Python function that checks whether a number is even.",
}
DRAFTS = {"denoise": None, "spiffy-10": 10}  # file name → nodes of the draft graph
LENGTH = 64
DIGITS = 3  # decimals of the log-probabilities in lists of candidates: 0.05 % of each

Chosen = Callable[[str], bool]  # by file name


def drafted(chosen: Chosen) -> Iterator[tuple[str, Run]]:
    """(file name without ending, run) of every method on every prompt."""
    from analysis.probe import observe
    from core.decoding.engine import Engine
    from core.decoding.request import RunRequest

    engine = Engine()
    for topic, prompt in RECORDED.items():
        for run, (method, budget) in RUNS.items():
            name = f"{topic}-{run}"
            if name not in LEFT_OUT and chosen(name):
                request = RunRequest(prompt, method, budget, max_new_tokens=TOKENS)
                yield name, engine.start(request, observe)


def denoised(chosen: Chosen) -> Iterator[tuple[str, Run]]:
    """The same of a masked-diffusion text, plain and with Spiffy."""
    from core.diffusion.models import load_diffusion
    from core.diffusion.request import DenoiseRequest
    from core.diffusion.run import start

    language = load_diffusion(NAME, "cpu")
    for topic, prompt in DENOISED.items():
        for run, nodes in DRAFTS.items():
            if chosen(f"{topic}-{run}"):
                request = DenoiseRequest(prompt, length=LENGTH, nodes=nodes)
                yield f"{topic}-{run}", start(language, request)


def smaller(raw: bytes) -> bytes:
    """A gzipped trace with its longest lists rounded, and packed in one piece: half the size."""
    lines = []
    for line in gzip.decompress(raw).splitlines():
        record = json.loads(line)
        for part in ("candidates", "target_top", "offers"):
            for name in {"log_q", "log_p"} & set(record.get(part) or {}):
                record[part][name] = _rounded(record[part][name])
        lines.append(json.dumps(record, separators=(",", ":")) + "\n")
    return gzip.compress("".join(lines).encode(), 9, mtime=0)


def _rounded(value: Any) -> Any:
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return round(value, DIGITS) if isinstance(value, float) else value


def main(folder: Path, names: list[str]) -> None:
    def chosen(name: str) -> bool:
        return not names or name in names

    for name, run in chain(drafted(chosen), denoised(chosen)):
        path, trace = folder / f"{name}.jsonl.gz", Trace(run.header, tuple(run), {})
        write_trace(path, trace)
        path.write_bytes(smaller(path.read_bytes()))
        print(f"{path}: {len(trace.rounds)} rounds, {path.stat().st_size:,} bytes", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
