"""What every table of ``analysis`` shares: types, and columns that docstrings declare."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import Any, Literal, ParamSpec

import pandas as pd

By = Literal["method", "run"]
Frame = Any  # inside our functions: pandas has no types that a checker can follow
WIDEST = 16  # coverage C_K, K = 1 … 16
COVERAGE = tuple(f"coverage_{k}" for k in range(1, WIDEST + 1))

P = ParamSpec("P")


def documented(make: Callable[P, pd.DataFrame]) -> Callable[P, pd.DataFrame]:
    """Give a table the columns that its docstring declares, in that order, and no others.

    ``attrs["about"]`` = {"table": …, "columns": {name: …}} says what they are. In the docstring a
    column is a line of its name, two blanks and its unit and meaning. ``method`` becomes ``run``
    where the argument ``by`` is "run"; ``coverage_K`` is all coverages; a column whose meaning ends
    with "only with ``x``" (or "only with ``x=value``") depends on the argument x.
    """
    about, columns = _read(inspect.getdoc(make) or "")
    signature = inspect.signature(make)

    @wraps(make)
    def made(*args: P.args, **more: P.kwargs) -> pd.DataFrame:
        bound = signature.bind(*args, **more)
        bound.apply_defaults()
        declared = dict(_declared(columns, bound.arguments))
        frame = make(*args, **more).reindex(columns=list(declared))
        frame.attrs = {"about": {"table": about, "columns": declared}}
        return frame

    return made


def plain_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """A table's lines for JSON; what is not known is None."""
    return [
        {str(k): None if isinstance(v, float) and math.isnan(v) else v for k, v in row.items()}
        for row in frame.to_dict("records")
    ]


def _declared(
    columns: Mapping[str, str], arguments: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """(name, meaning) of the columns that a call with these arguments has."""
    for name, meaning in columns.items():
        condition = re.search(r"only with ``(\w+)(?:=(\w+))?``$", meaning)
        if condition and str(arguments[condition[1]]) != (condition[2] or "True"):
            continue
        if name == "method" and "by" in arguments:
            name = arguments["by"]
        for each in COVERAGE if name == "coverage_K" else (name,):
            yield each, meaning


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
