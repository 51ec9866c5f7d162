"""The documents, and the code that stands in them."""

from __future__ import annotations

import re
from typing import Any

from tests import ROOT

EXTENDING = (ROOT / "docs" / "extending.md").read_text("utf-8")


def block(words: str, kind: str = "python") -> str:
    """The one code block of extending.md with these words."""
    (found,) = [b for b in re.findall(rf"```{kind}\n(.*?)```", EXTENDING, re.S) if words in b]
    return found


def run_block(words: str, names: dict[str, Any] | None = None) -> dict[str, Any]:
    names = {} if names is None else names
    exec(compile(block(words), "extending.md", "exec"), names)  # noqa: S102 (our own document)
    return names
