"""Make the example traces that ship: real runs of the embedded model with the shipped drafters.

    python -m app.studio.record assets/traces

Every method writes the same text to the same prompt, so any of them can be compared. About five
minutes on two idle CPU cores; the seconds in the files are of the machine that made them.
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

Wanted = Callable[[str], bool]  # by file name

PROMPTS = {
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
}  # file name → method, draft budget
LEFT_OUT = {"code-ddtree-64", "chat-ddtree-64"}  # for their size
TOKENS = 112
DENOISED = {
    "maths": "A train travels 60 miles per hour. How far does it travel in 3 hours?",
    "code": "Write a Python function that checks whether a number is even.",
}
DRAFTS = {"denoise": None, "spiffy-10": "10"}  # file name → draft graph
LENGTH = 64
DIGITS = 3  # decimals kept of the log-probabilities in lists of candidates: 0.05 % of each


def drafted(names: Wanted) -> Iterator[tuple[str, Run]]:
    """(file name without ending, run) of every method on every prompt."""
    from analysis.probe import observe
    from core.decoding.engine import Engine, RunRequest

    engine = Engine()
    for topic, prompt in PROMPTS.items():
        for run, (method, budget) in RUNS.items():
            name = f"{topic}-{run}"
            if name not in LEFT_OUT and names(name):
                asked = {"budget": budget} if budget else {}
                request = RunRequest(prompt, method=method, max_new_tokens=TOKENS, **asked)
                yield name, engine.start(request, observe)


def denoised(names: Wanted) -> Iterator[tuple[str, Run]]:
    """The same of a masked-diffusion text, plain and with Spiffy."""
    from core.diffusion.denoise import Denoising
    from core.diffusion.graph import find_graph
    from core.diffusion.models import load_diffusion
    from core.diffusion.run import DenoiseRequest, start

    language = load_diffusion(NAME, "cpu")
    settings = Denoising(length=LENGTH, block=language.block)
    for topic, prompt in DENOISED.items():
        for run, drafts in DRAFTS.items():
            if names(f"{topic}-{run}"):
                graph = drafts and find_graph(drafts, NAME, settings.pace)
                yield f"{topic}-{run}", start(language, DenoiseRequest(prompt, settings, graph))


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
    def wanted(name: str) -> bool:
        return not names or name in names

    for name, run in chain(drafted(wanted), denoised(wanted)):
        path, trace = folder / f"{name}.jsonl.gz", Trace(run.header, tuple(run), {})
        write_trace(path, trace)
        path.write_bytes(smaller(path.read_bytes()))
        print(f"{path}: {len(trace.rounds)} rounds, {path.stat().st_size:,} bytes", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
