"""What a section is made of: sentences, and tables whose columns are declared here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console

from analysis.numbers import interval, number, share, signed
from app.terminal import one_line, table

MAX_DEPTHS = 32  # that the terminal shows
Body = list[Any]  # tables and sentences, one below the other
Row = Mapping[Any, Any]
Column = tuple[str, Callable[[Row], str]]  # its title, and a row's cell


def if_any(title: str, body: Body) -> Iterator[tuple[str, Body]]:
    """The section, if it has something to show."""
    if body:
        yield title, body


def show(out: Console, sections: Iterable[tuple[str, Body]]) -> None:
    """Print sections, a blank line after each."""
    for title, body in sections:
        out.print(title, style="bold", soft_wrap=True)
        for part in body:
            if isinstance(part, str):
                out.print(one_line(part, 1000), soft_wrap=True)
            else:
                out.print(part)
        out.print()


def table_of(frame: Any, columns: Sequence[Column]) -> Any:
    """A line per row; the columns that ``text`` makes are left-aligned."""
    rows = [[cell(row) for _, cell in columns] for row in frame.to_dict("records")]
    left = [title for title, cell in columns if getattr(cell, "left", False)]
    return table([title for title, _ in columns], rows, left)


def by_method(frame: Any) -> Iterator[tuple[str, Any]]:
    for method, part in frame.groupby("method", observed=True, sort=False):
        yield one_line(str(method), 60), part


def text(name: str) -> Callable[[Row], str]:
    def cell(row: Row) -> str:
        return one_line(str(row[name]), 60)

    cell.left = True  # type: ignore[attr-defined]
    return cell


def _count(name: str) -> Callable[[Row], str]:
    return lambda row: str(row[name])


def _number(name: str, digits: int = 2) -> Callable[[Row], str]:
    return lambda row: number(row[name], digits)


def _signed(name: str, digits: int = 2) -> Callable[[Row], str]:
    return lambda row: signed(row[name], digits)


def _interval(stem: str = "", sign: bool = False) -> Callable[[Row], str]:
    return lambda row: interval(row[f"{stem}low"], row[f"{stem}high"], sign=sign)


TAU: tuple[Column, ...] = (
    ("", text("method")), ("τ", _number("tau")), ("95 %", _interval()), ("over", text("over")),
    ("texts", _count("texts")), ("rounds", _count("rounds")), ("tokens", _count("tokens")),
    ("nodes/round", _number("nodes_per_round", 1)),
    ("in text/round", _number("committed_per_round")),
    ("tokens/s", _number("tokens_per_second", 1)),
)  # fmt: skip
PAIRED: tuple[Column, ...] = (
    ("", text("method")), ("against", text("other")), ("texts", _count("texts")),
    ("τ", _number("tau")), ("its τ", _number("other_tau")), ("difference", _signed("difference")),
    ("95 %", _interval(sign=True)), ("better on", lambda row: share(row["better"], 0)),
)  # fmt: skip
CHECKPOINTS: tuple[Column, ...] = (
    ("measure", text("measure")), ("depth", _count("depth")), ("texts", _count("texts")),
    ("value", _number("value", 3)), ("against", _number("other_value", 3)),
    ("difference", _signed("difference", 3)), ("95 %", _interval(sign=True)),
)  # fmt: skip
DEPTHS: tuple[Column, ...] = (
    ("depth", _count("depth")), ("observed", _count("observed")), ("tested", _count("tested")),
    ("accepted", _count("accepted")), ("acceptance", _number("acceptance")),
    ("95 %", _interval("acceptance_")), ("of tested", _number("tested_acceptance")),
    ("of rounds", _number("marginal")), ("best right", _number("top1")), ("TVD", _number("tvd")),
    ("95 %", _interval("tvd_")), ("C₁", _number("coverage_1")), ("C₄", _number("coverage_4")),
    ("C₁₆", _number("coverage_16")),
)  # fmt: skip
SIBLINGS: tuple[Column, ...] = (
    ("", text("method")), ("the next place", text("context")), ("observed", _count("observed")),
    ("accepted", _number("acceptance")), ("95 %", _interval()), ("best right", _number("top1")),
    ("95 %", _interval("top1_")), ("TVD", _number("tvd")),
)  # fmt: skip
ERRORS: tuple[Column, ...] = (
    ("", text("method")), ("event", text("event")), ("nodes", _count("nodes")),
    ("mean q", _number("mean_q", 3)), ("came true", _number("share", 3)),
    ("bias", _signed("bias", 3)), ("ECE (mass)", _number("ece_mass", 3)),
    ("ECE (width)", _number("ece_width", 3)), ("Brier", _number("brier", 3)),
)  # fmt: skip
RATES: tuple[Column, ...] = (
    ("observed", _count("observed")), ("acceptance", _number("acceptance")),
    ("95 %", _interval("acceptance_")), ("TVD", _number("tvd")), ("95 %", _interval("tvd_")),
)  # fmt: skip
PLACES: tuple[Column, ...] = (
    ("", text("method")), ("from token", _count("place")), ("rounds", _count("rounds")),
    ("τ", _number("tau")), ("95 %", _interval()), *RATES,
)  # fmt: skip
ORACLE: tuple[Column, ...] = (
    ("", text("method")), ("rounds", _count("rounds")), ("accepted", _number("accepted")),
    ("best-first on q", _number("marginal")), ("hindsight", _number("listed")),
    ("possible", _number("possible")), ("builder loses", _number("builder_loses")),
    ("order loses", _number("order_loses")), ("lists lose", _number("lists_lose")),
    ("tree's share", lambda row: share(row["tree_share"], 0)),
    ("drafter's", lambda row: share(row["lists_share"], 0)),
)  # fmt: skip
SUMS: tuple[Column, ...] = (
    ("", text("method")), ("rounds", _count("rounds")), ("Σq", _number("expected")),
    ("accepted", _number("accepted")), ("bias", _signed("bias")),
    ("95 %", _interval("bias_", sign=True)), ("correlation", _number("correlation")),
)  # fmt: skip
