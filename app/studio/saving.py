"""What a person takes away from the studio: files of a run, and links by which others may look.

Files are made in memory and handed to the browser; no path comes from there or goes there.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from app.studio.answers import GONE, Answers
from app.studio.desk import Run
from app.studio.upload import download, saved_name
from core.errors import UserError
from core.rounds.round import Round
from core.traces.schema import Trace

LARGEST = 200_000  # nodes of a run that are made into one file here; larger ones: the command line
TOO_LARGE = "this run is too large for the page: save its trace and use the export command"

Made = tuple[bytes, str]  # a file's bytes and its type


class Saving(Answers):
    """The scope's server functions with two more. Reading only, as all of them."""

    def functions(self) -> list[Any]:
        def take(asked: dict[str, Any]) -> dict[str, Any]:
            return self._take(asked)

        def share(asked: dict[str, Any]) -> dict[str, Any]:
            link = self._desk.share(asked.get("ticket") if isinstance(asked, dict) else None)
            return GONE if link is None else {"link": link}

        return [*super().functions(), take, share]

    def _take(self, asked: dict[str, Any]) -> dict[str, Any]:
        """A file of the run or of one of its rounds, by the form's name."""
        found = self._round(asked)
        form = asked.get("form") if isinstance(asked, dict) else None
        if found is None:
            return GONE
        run, record = found
        if form == "trace":
            return {**download(run.trace()), "type": "application/gzip"}
        if form in OF_ROUND:
            return of_round(record, form, _method(run))
        if form not in OF_RUN:
            raise UserError("there is no such file")
        if run.nodes > LARGEST:
            raise UserError(TOO_LARGE)
        data, kind = OF_RUN[form](run.trace())
        return _file(_method(run), OF_RUN_NAMES.get(form, form), data, kind)


def of_round(record: Round, form: object, method: str) -> dict[str, str]:
    """A round's draft as a file. Raises UserError for a form that is none of ``OF_ROUND``."""
    if form not in OF_ROUND:
        raise UserError("there is no such file")
    data, kind = OF_ROUND[form](record)
    return _file(method, f"round-{record.number}.{form}", data, kind)


def _method(run: Run) -> str:
    return run.header.method if run.header is not None else "run"


def _file(method: str, name: str, data: bytes, kind: str) -> dict[str, str]:
    encoded = base64.b64encode(data).decode("ascii")
    return {"name": saved_name(method, name), "type": kind, "data": encoded}


# ── the forms; what each needs is imported when it is first asked for ────────────────────────────


def _dot(record: Round) -> Made:
    from app.export.graphs import dot

    return dot(record).encode(), "text/vnd.graphviz"


def _graphml(record: Round) -> Made:
    from app.export.graphs import graphml

    return graphml(record), "application/graphml+xml"


def _html(trace: Trace) -> Made:
    from app.export.offline import offline_page

    return offline_page([trace]).encode(), "text/html"


def _perfetto(trace: Trace) -> Made:
    from app.export.timeline import perfetto

    return perfetto(trace).encode(), "application/json"


def _table(name: str, form: str) -> Callable[[Trace], Made]:
    def make(trace: Trace) -> Made:
        from analysis.rows import nodes_table, rounds_table
        from app.export.tables import TYPES, table_bytes

        table = rounds_table(trace) if name == "rounds" else nodes_table(trace.rounds)
        return table_bytes(table, form), TYPES[form]

    return make


OF_ROUND: dict[Any, Callable[[Round], Made]] = {"dot": _dot, "graphml": _graphml}
OF_RUN: dict[Any, Callable[[Trace], Made]] = {
    "html": _html,
    "perfetto": _perfetto,
    **{f"{n}.{f}": _table(n, f) for n in ("rounds", "nodes") for f in ("csv", "parquet")},
}
OF_RUN_NAMES = {"html": "run.html", "perfetto": "run.perfetto.json"}
