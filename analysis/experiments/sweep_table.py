"""A grid's table out of a file that anybody may have written: its rows checked, and scored."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct, structs

from analysis.experiments.sweep import VariantScore, variant_score
from analysis.table_files import (
    MAX_ROWS,
    check_columns,
    open_parquet,
    parquet_rows,
    reading_table,
)
from core.declared import Count, Seconds, convert
from core.errors import UserError
from core.methods.registry import deciding_budget
from core.visible import visible

KIND = "a grid's table"
MAX_CSV = 64 << 20  # bytes
MAX_NAME, LINE = 80, 60  # characters; of a name in a line of a table

Temperature = Annotated[float, Meta(ge=0, le=1000)]


class _GridRun(Struct):
    """The columns of ``sweep.SCHEMA`` that scores are made of. A failed run has no numbers."""

    method: str
    budget: Count
    options: str
    seed: int
    prompt_hash: str
    temperature: Temperature
    conversation: str | None = None
    tokens: Count | None = None
    seconds: Seconds | None = None
    acceptance_lengths: list[Count] | None = None
    same_as_plain: bool | None = None
    model: str | None = None
    drafter_sha256: str | None = None
    top_k: int | None = None
    top_p: float | None = None
    max_new_tokens: int | None = None
    device: str | None = None
    hardware: str | None = None
    error: str | None = None


NEEDED = ["acceptance_lengths", *(f.name for f in structs.fields(_GridRun) if f.required)]
READ = {f.name for f in structs.fields(_GridRun)}


def read_results(path: Path) -> tuple[list[VariantScore], list[str]]:
    """A score per variant of a ``results.parquet``, or of the same as CSV, in the order that the
    variants come in; and where they ran, a sentence each.

    Raises UserError, one sentence, for another file, or one that is too large.
    """
    with reading_table(path):
        rows = _csv_rows(path) if path.suffix == ".csv" else _parquet_rows(path)
        told = ({k: v for k, v in row.items() if v == v} for row in rows)  # NaN: not there
        runs: list[_GridRun] = [
            convert(row, _GridRun, f"{path}, run {n}", lax=True) for n, row in enumerate(told, 1)
        ]
    if not runs:
        raise UserError(f"{path} holds no run")
    return _scores(runs, path), _places(runs)


def _scores(runs: list[_GridRun], path: Path) -> list[VariantScore]:
    """Runs of a variant are scored together where they share target, drafter and terms."""
    by: dict[tuple[Any, ...], dict[_Terms | None, list[dict[str, Any]]]] = {}
    for number, run in enumerate(runs, 1):
        row = structs.asdict(run)
        whole = (run.tokens, run.seconds, run.acceptance_lengths)
        if run.error is None and None in whole:
            raise UserError(f"{path}, run {number} neither failed nor has all its numbers")
        key = (run.method, run.budget, run.options, run.temperature)
        by.setdefault(key, {}).setdefault(_terms(run), []).append(row)
    models = {terms[0] for groups in by.values() for terms in groups if terms}
    found: list[VariantScore] = []
    for key, groups in by.items():
        known = [terms for terms in groups if terms]
        if len(known) < 2:  # what failed tells no target: it is of the only one
            groups = {next(iter(known), None): [row for rows in groups.values() for row in rows]}
        differing = [len(set(values)) > 1 for values in zip(*known, strict=True)] or [False]
        differing[0] |= len(models) > 1
        found += [
            variant_score(_name(*key, own=_said(t, differing)), rows) for t, rows in groups.items()
        ]
    return found


_Terms = tuple[str | None, str | None, int | None, float | None, int | None]


def _terms(run: _GridRun) -> _Terms | None:
    """Target, drafter, top-k, top-p and token limit; None for a failed run, which tells no target
    and no drafter."""
    if run.error is not None and run.model is None:
        return None
    return run.model, run.drafter_sha256, run.top_k, run.top_p, run.max_new_tokens


def _said(terms: _Terms | None, differing: list[bool]) -> str:
    """Say by what these terms differ from the others of the file, for the name of a score."""
    if not any(differing):
        return ""
    if terms is None:
        return " (target unknown)"
    model, drafter, top_k, top_p, limit = terms
    words = (
        f"of {visible(model or '?', MAX_NAME // 2)}", f"drafter {visible(drafter or '?', 8)}",
        f"top-k={top_k}", f"top-p={top_p}", f"{limit} tokens",
    )  # fmt: skip
    said = (word for word, differs in zip(words, differing, strict=False) if differs)
    return f" {', '.join(said)}"


def _name(method: str, budget: int, options: str, temperature: float, own: str) -> str:
    more = "" if options in ("", "{}") else f" {options}"
    size = deciding_budget(method, budget)
    sizes = ("" if size is None else f" B={size}", f" T={temperature:g}" if temperature else "")
    terms = f"{''.join(sizes)}{own}"
    if len(whole := f"{method}{terms}{more}") > LINE:
        whole = f"{_ends(method)}{terms}{_ends(more)}"
    return visible(whole, MAX_NAME)


def _ends(text: str) -> str:
    """A long text without its middle: checkpoints differ at the ends of their paths."""
    return text if len(text) <= 24 else f"{text[:8]}…{text[-15:]}"


def _places(runs: list[_GridRun]) -> list[str]:
    found = dict.fromkeys((run.model, run.device, run.hardware) for run in runs if not run.error)
    said = [", ".join(visible(part, MAX_NAME) for part in place if part) for place in found]
    several = ["these are several targets or machines: compare speeds within one of them"]
    return [f"of {each}" for each in said[:4] if each] + (several if len(said) > 1 else [])


def _parquet_rows(path: Path) -> Iterator[dict[str, Any]]:
    with open_parquet(path) as found:
        check_columns(path, found.schema_arrow.names, NEEDED, KIND)
    return parquet_rows(path, READ, KIND)


def _csv_rows(path: Path) -> list[dict[str, Any]]:
    import pandas as pd

    if path.stat().st_size > MAX_CSV:
        raise UserError(f"{path} is larger than {MAX_CSV >> 20} MB")
    check_columns(path, pd.read_csv(path, nrows=0).columns, NEEDED, KIND)
    kept: Any = {"usecols": lambda name: name in READ, "dtype": str, "keep_default_na": False}
    table = pd.read_csv(path, nrows=MAX_ROWS + 1, **kept)
    if len(table) > MAX_ROWS:
        raise UserError(f"{path} is too large for {KIND}")
    rows = [{k: v for k, v in row.items() if v != ""} for row in table.to_dict("records")]
    return [row | _lengths(row) for row in rows]


def _lengths(row: dict[Any, Any]) -> dict[str, list[int]]:
    """Lists in a CSV, as NumPy or Python prints them; none where they were cut."""
    text = row.pop("acceptance_lengths", "")
    listed = re.fullmatch(r"\[[\d,\s]*\]", text)
    return {"acceptance_lengths": [int(n) for n in re.findall(r"\d{1,9}", text)]} if listed else {}
