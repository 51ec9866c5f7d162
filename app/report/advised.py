"""Advice on draft lengths as tables of words, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from analysis.numbers import (
    UNKNOWN,
    interval,
    milliseconds,
    number,
    percent,
    plural,
    rate,
    ratio,
    tau,
)
from app.report.shown import TextTable

if TYPE_CHECKING:
    from analysis.experiments.advise import Choice
    from analysis.experiments.shorter import Drafts, Shorter
    from analysis.frames import Frame

MOST_SIZES = 16  # columns of the map
BEST = ("tokens/round", "step", "tokens/s", "95 %", "plain", "×", "95 %", "drawn best", "times")


def size_words(drafts: Drafts) -> str:
    """The words for a draft's size, its letter last: places of a chain, or nodes of a tree."""
    return "draft length K" if drafts.chain else "draft budget B"


def advice_sheets(found: Frame, chosen: Sequence[Choice], shorter: Shorter) -> Iterator[TextTable]:
    """The speed of every draft size by batch; and, of rounds enough, the best size of each batch
    with its numbers."""
    name = size_words(shorter.drafts)[-1]
    with_context = any(each.context is not None for each in chosen)
    heads = (*(("context",) if with_context else ()), "batch")
    sizes = _shown(sorted(set(found["size"])), chosen)
    cells = {(_context(r), r["batch"], r["size"]): r for r in found.to_dict("records")}
    speeds, best = [], []
    for each in chosen:
        head = [*([str(each.context)] if with_context else []), str(each.batch)]
        own = [cells.get((each.context, each.batch, size)) for size in sizes]
        speeds.append([*head, *(UNKNOWN if row is None else _speed(row) for row in own)])
        best.append([*head, *_best(found, each)])
    marks = f"of only {plural(min(shorter.rounds), 'round')}" if shorter.few else "* the best"
    title = f"× plain decoding · {marks} · ~ between measured steps"
    yield TextTable((*heads, *(f"{name}={size}" for size in sizes)), speeds, title=title)
    if not shorter.few:
        yield TextTable((*heads, name, *BEST), best, ("times",))


def _context(row: dict[str, Any]) -> int | None:
    return None if row["context"] != row["context"] else int(row["context"])


def _shown(sizes: Sequence[int], chosen: Sequence[Choice]) -> Sequence[int]:
    """Some of many sizes, at even distances, and every best one."""
    if len(sizes) <= MOST_SIZES:
        return sizes
    step = (len(sizes) - 1) / (MOST_SIZES - 1)
    some = {sizes[round(n * step)] for n in range(MOST_SIZES)}
    return sorted(some | {each.size for each in chosen if each.size})


def _speed(row: dict[str, Any]) -> str:
    return f"{'' if row['measured'] else '~'}{number(row['ratio'])}{'*' if row['best'] else ' '}"


def _best(found: Frame, each: Choice) -> tuple[str, ...]:
    own = found[(found["batch"] == each.batch)]
    own = own[own["context"].isna() if each.context is None else own["context"] == each.context]
    row = own.loc[own["ratio"].idxmax()].to_dict()
    return (
        str(row["size"]) if each.size else f"plain ({row['size']})",
        tau(row["tau"]), milliseconds(row["seconds"], 1), rate(row["tokens_per_second"]),
        interval(row["low"], row["high"], 1), rate(row["plain"]), ratio(row["ratio"]),
        interval(row["ratio_low"], row["ratio_high"]),
        percent(row["chosen"] if each.size else None),
        ("measured" if row["measured"] else "between measured")
        + (", rounds not exact" if row["doubt"] else ""),
    )  # fmt: skip
