"""Make the example traces that ship: real runs of the embedded model with the shipped drafters.

    python -m app.studio.record assets/traces

Every method writes the same text to the same prompt, so any of them can be compared. About ten
minutes on two CPU cores; the seconds in the files are of the machine that made them.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from core.trace import Trace, write_trace

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
LEFT_OUT = {"code-ddtree-64", "chat-ddtree-64", "chat-dflash", "chat-dart"}  # for their size
TOKENS = 112
DIGITS = 3  # decimals kept of the log-probabilities in lists of candidates: 0.05 % of each


def record(names: list[str]) -> Iterator[tuple[str, Trace]]:
    """(file name without ending, trace) of every run, or of those named."""
    from analysis.probe import observe
    from core.session import Engine, RunRequest

    engine = Engine()
    for topic, prompt in PROMPTS.items():
        for run, (method, budget) in RUNS.items():
            name = f"{topic}-{run}"
            if name in LEFT_OUT or (names and name not in names):
                continue
            asked = {"budget": budget} if budget else {}
            request = RunRequest(prompt, method=method, max_new_tokens=TOKENS, **asked)
            started = engine.start(request, observe)
            yield name, Trace(started.header, tuple(started), {})


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
    for name, trace in record(names):
        path = folder / f"{name}.jsonl.gz"
        write_trace(path, trace)
        path.write_bytes(smaller(path.read_bytes()))
        print(f"{path}: {len(trace.rounds)} rounds, {path.stat().st_size:,} bytes", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
