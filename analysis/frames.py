"""Types that all tables of ``analysis`` share, and the columns that ``columns.toml`` declares.
Light: pandas only when a table is there."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, wraps
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec

if TYPE_CHECKING:
    import pandas as pd

By = Literal["method", "run"]
Frame = Any  # inside our functions: pandas has no types that a checker can follow
WIDEST = 16  # coverage C_K, K = 1 … 16
COVERAGE = tuple(f"coverage_{k}" for k in range(1, WIDEST + 1))

P = ParamSpec("P")


@dataclass(frozen=True)
class Column:
    """A column of a table, as ``columns.toml`` declares it.

    meaning  its unit and what it says
    title    over it in a report; None: the shared title, or its name
    format   in a report (``app.report.shown``); "": by the kind of its values
    when     "ARGUMENT=VALUE" (or "ARGUMENT", for true) of the calls that have it; "": all
    """

    meaning: str = ""
    title: str | None = None
    format: str = ""
    when: str = ""


def declared(
    table: str, kept: bool = False
) -> Callable[[Callable[P, pd.DataFrame]], Callable[P, pd.DataFrame]]:
    """Give a table the columns that are declared for it, in that order, and no others.

    ``kept``: one that several others read is made once for the same first argument, whose ``made``
    holds it, and the same others.

    ``attrs["about"]`` = {"table": the docstring, "columns": {name: meaning}} goes into files.
    ``method`` becomes ``run`` where the argument ``by`` is "run". A line that lacks a declared
    column raises KeyError.
    """

    def decorate(make: Callable[P, pd.DataFrame]) -> Callable[P, pd.DataFrame]:
        signature, about = inspect.signature(make), " ".join((make.__doc__ or "").split())

        @wraps(make)
        def made(*args: P.args, **more: P.kwargs) -> pd.DataFrame:
            bound = signature.bind(*args, **more)
            bound.apply_defaults()
            key = (table, *bound.args[1:])
            if kept and key in bound.args[0].made:
                return bound.args[0].made[key].copy()
            meanings = dict(_meanings(table, bound.arguments))
            frame: Frame = make(*args, **more)
            names = list(meanings)
            frame = frame.reindex(columns=names) if frame.empty else frame[names]
            frame.attrs = {"about": {"table": about, "columns": meanings}, "declared": table}
            if kept:
                bound.args[0].made[key] = frame
            return frame.copy() if kept else frame

        return made

    return decorate


def plain_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """A table's lines for JSON; what is not known, or not finite, is None."""
    from pandas import NA

    def known(value: Any) -> Any:
        return None if value is NA or (isinstance(value, float) and not isfinite(value)) else value

    return [{str(k): known(v) for k, v in row.items()} for row in frame.to_dict("records")]


def _meanings(table: str, arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(name, meaning) of the columns that a call with these arguments has."""
    for name, column in declared_columns(table).items():
        argument, _, value = column.when.partition("=")
        if argument and str(arguments[argument]) != (value or "True"):
            continue
        yield arguments.get("by", name) if name == "method" else name, column.meaning


@cache
def declared_columns(table: str) -> Mapping[str, Column]:
    """The columns of a table, in their order; of "shown", titles and formats that tables share."""
    return {
        name: Column(said) if isinstance(said, str) else Column(**said)
        for names, said in _declarations()[table].items()
        for name in (COVERAGE if names == "coverage_K" else names.split(", "))
    }


@cache
def _declarations() -> Mapping[str, Any]:
    return tomllib.loads(Path(__file__).with_name("columns.toml").read_text(encoding="utf-8"))
