"""What every table of ``analysis`` shares: types, and columns that are explained in docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import wraps
from typing import Any, Literal, ParamSpec

import pandas as pd

By = Literal["method", "run"]
Frame = Any  # inside our functions: pandas has no types that a checker can follow
WIDEST = 16  # coverage C_K, K = 1 … 16
COVERAGE = tuple(f"coverage_{k}" for k in range(1, WIDEST + 1))

P = ParamSpec("P")


def documented(make: Callable[P, pd.DataFrame]) -> Callable[P, pd.DataFrame]:
    """Attach a table's docstring to it: ``attrs["about"]`` = {"table": …, "columns": {name: …}}.

    In the docstring a column is a line of its name, two blanks and its unit and meaning.
    ``method`` also describes ``run``, and ``coverage_K`` all of the coverages.
    """
    about, columns = _read(inspect.getdoc(make) or "")

    @wraps(make)
    def made(*args: P.args, **more: P.kwargs) -> pd.DataFrame:
        frame = make(*args, **more)
        described = {}
        for name in map(str, frame.columns):
            known = "coverage_K" if name in COVERAGE else name
            described[name] = columns.get(known, columns["method"] if name == "run" else "")
        frame.attrs = {"about": {"table": about, "columns": described}}
        return frame

    return made


def _read(doc: str) -> tuple[str, dict[str, str]]:
    """A docstring's prose, and its columns with their meanings."""
    prose: list[str] = []
    columns: dict[str, str] = {}
    last = ""
    for line in doc.splitlines():
        found = re.match(r"([\w, ]*\w)  +(\S.*)", line)
        if found:
            last = found[1]
            columns |= dict.fromkeys(last.split(", "), found[2])
        elif last and line.startswith("    "):
            for name in last.split(", "):
                columns[name] += " " + line.strip()
        elif line.strip():
            last = ""
            prose.append(line.strip())
    return " ".join(prose), columns
