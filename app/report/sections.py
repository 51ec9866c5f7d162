"""The parts of a report in the terminal, each with its title. Every number is a cell of a table of
``analysis.measures.metrics``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from analysis.numbers import number, share
from app.report.columns import (
    DEPTHS,
    ERRORS,
    MAX_DEPTHS,
    ORACLE,
    PLACES,
    RATES,
    SUMS,
    TAU,
    Body,
    by_method,
    if_any,
    table_of,
    text,
)
from app.report.endings import causes, mismatches
from app.report.pairs import checkpoint_sections, compared
from app.terminal import bar, table
from core.stats import FEW

if TYPE_CHECKING:
    from analysis.measures.tables import Tables


def sections(tables: Tables) -> Iterator[tuple[str, Body]]:
    """Title and contents of each part that has something to show."""
    from analysis.measures.acceptance import tau

    found: Any = tau(tables)
    taus: Body = [table_of(found, TAU)]
    if bool((found["low"].isna() & (found["rounds"] > 0)).any()):
        taus.append(f"Fewer than {FEW} texts, or rounds of one text, give no interval.")
    yield "Block efficiency τ, tokens per round, with its 95 % interval", taus
    yield from if_any("What stands out", _findings(tables, outstanding=True))
    yield from if_any("The same by other names", _engines(tables))
    yield from if_any("Methods on the same texts", compared(tables))
    yield from checkpoint_sections(tables)
    yield from _depths(tables)
    yield from if_any("Tokens per round, accepted + 1: share of rounds", _lengths(tables))
    yield from if_any("In words, each with a round to look at", _findings(tables))
    yield from if_any("Why branches ended", causes(tables))
    yield from if_any("By place in the text", _places(tables))
    yield from _kinds(tables)
    yield from if_any("Against hindsight, accepted nodes per round", _oracle(tables))
    yield from if_any("Where the target first left the drafter's best chain", mismatches(tables))
    yield from if_any("Is q a probability?", _reliability(tables))
    yield from if_any("Where the time went, ms per round", _stages(tables))


def _engines(tables: Tables) -> Body:
    """A line per metric, a column per method."""
    from analysis.measures.conventions import METRICS, engine_metrics

    values = [[metric.engine, metric.name, metric.formula] for metric in METRICS]
    titles = ["engine", "metric", "formula"]
    for method, part in by_method(engine_metrics(tables)):
        titles.append(method)
        for row, value in zip(values, part["value"], strict=True):
            row.append(number(value))
    return [table(titles, values, left=titles[:3])] if len(titles) > 3 else []


def _depths(tables: Tables) -> Iterator[tuple[str, Body]]:
    from analysis.measures.acceptance import per_depth

    for method, part in by_method(per_depth(tables)):
        yield f"By depth: {method}", [table_of(part.head(MAX_DEPTHS), DEPTHS)]


def _lengths(tables: Tables) -> Body:
    from analysis.measures.acceptance import acceptance_histogram

    found: Any = acceptance_histogram(tables)
    most, rows = found["share"].max(), []
    for method, part in by_method(found):
        for n, row in enumerate(part.to_dict("records")):
            rows.append((
                method if n == 0 else "", str(row["length"]), str(row["rounds"]),
                share(row["share"]), bar(row["share"], most),
            ))  # fmt: skip
    return [table(("", "tokens", "rounds", "share", " "), rows, left=("", " "))] if rows else []


def _findings(tables: Tables, outstanding: bool = False) -> Body:
    """Sentences, each with a round to look at."""
    from analysis.measures.findings import OUTSTANDING, findings

    some = [each for each in findings(tables) if (each.about in OUTSTANDING) == outstanding]
    return [f"{each.label}: {each.words} ({each.run}, round {each.round})" for each in some]


def _places(tables: Tables) -> Body:
    """Only where there is more than one bin to compare."""
    from analysis.measures.places import by_place

    found: Any = by_place(tables)
    return [table_of(found, PLACES)] if len(found) and found["place"].nunique() > 1 else []


def _kinds(tables: Tables) -> Iterator[tuple[str, Body]]:
    from analysis.measures.places import KINDS, by_kind

    titles = (
        "By the sort of the target's token", "By the script of the target's token",
        "By the prompts' tag",
    )  # fmt: skip
    for over, title in zip(KINDS, titles, strict=True):
        found: Any = by_kind(tables, over)
        if len(found) and (over == "token_class" or found[over].nunique() > 1):
            columns = (("", text("method")), (over.replace("_", " "), text(over)), *RATES)
            yield title, [table_of(found, columns)]


def _oracle(tables: Tables) -> Body:
    from analysis.measures.oracle import oracle

    found: Any = oracle(tables)
    if found.empty:
        return []
    return [
        "Hindsight drafts the text itself, as far as the drafter lists its tokens and the budget "
        "reaches. What is missing there the drafter lost, the rest the tree.",
        table_of(found, ORACLE),
    ]


def _reliability(tables: Tables) -> Body:
    from analysis.measures.reliability import calibration_error, surrogate

    errors = calibration_error(tables)
    return [table_of(errors, ERRORS), "", table_of(surrogate(tables), SUMS)] if len(errors) else []


def _stages(tables: Tables) -> Body:
    from analysis.measures.acceptance import stages
    from analysis.measures.tables import STAGES

    found: Any = stages(tables)
    rows = []
    for method, part in by_method(found):
        own = {row["stage"]: row for row in part.to_dict("records")}
        cells = [f"{number(own[s]['ms_per_round'])} ({share(own[s]['share'], 0)})" for s in STAGES]
        rows.append((method, *cells))
    return [table(("", *STAGES), rows, left=("",))] if found["seconds"].sum() > 0 else []
