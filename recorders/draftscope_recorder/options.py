"""``DRAFTSCOPE_RECORD``: a folder, and options after it, separated by commas.

DRAFTSCOPE_RECORD=runs/served
DRAFTSCOPE_RECORD=runs/served,sample=0.01,p=0
"""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

VARIABLE = "DRAFTSCOPE_RECORD"
REQUEST = "draftscope"  # a request's own word, in its extra arguments


@dataclass(frozen=True)
class Options:
    """The settings of a recording.

    folder   where traces go
    sample   share of the requests, chosen by their id; a request may ask for itself
    p        how many of the target's best tokens are kept at each place; 0: p is not recorded
    q        how many of the drafter's best tokens; 0: q is not recorded
    text     1: the words of prompt and tokens too, where the tokenizer can be read
    queue    steps that may wait for the writer; more are lost
    max_mb   of finished traces; the oldest of this server are removed beyond it
    """

    folder: Path
    sample: float = 1.0
    p: int = 10
    q: int = 16
    text: int = 1
    queue: int = 256
    max_mb: int = 4096

    def wants(self, request: str, asked: Any = None) -> bool:
        """Whether a request is recorded. ``asked``: its own word; None: it has none, 0 or "": no,
        anything else: yes."""
        if asked is not None:
            return bool(asked)
        return zlib.crc32(request.encode()) < self.sample * 2**32


def from_environment() -> Options | None:
    """None where nothing is to be recorded. Raises ValueError, one sentence."""
    value = os.environ.get(VARIABLE, "")
    return parse(value) if value else None


def parse(value: str) -> Options:
    """Raises ValueError, one sentence, for an unknown option or a number out of range."""
    folder, *rest = value.split(",")
    kinds = {f.name: {"int": int, "float": float}.get(str(f.type)) for f in fields(Options)}
    found: dict[str, Any] = {}
    for each in filter(None, map(str.strip, rest)):
        name, _, number = each.partition("=")
        kind = kinds.get(name)
        if kind is None:
            known = ", ".join(name for name, kind in kinds.items() if kind)
            raise ValueError(f"{VARIABLE}: there is no option {name!r}; there are {known}")
        try:
            found[name] = kind(number)
        except ValueError:
            raise ValueError(f"{VARIABLE}: {name} is not a number: {number!r}") from None
        if not 0 <= found[name] <= (1 if name in ("sample", "text") else 1 << 20):
            raise ValueError(f"{VARIABLE}: {name}={number} is out of range")
    if not folder.strip():
        raise ValueError(f"{VARIABLE} begins with no folder")
    return Options(Path(folder.strip()).expanduser().absolute(), **found)
