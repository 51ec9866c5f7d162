"""What the scope asks the server. Everything that comes in was written by a browser."""

from __future__ import annotations

from typing import Any

from app.compare import cautions
from app.drafted import candidate_width
from app.render import svg_tree
from app.studio.desk import Desk, Run
from app.studio.upload import download, download_svg
from app.view import node_view
from app.visible import flowing
from core.errors import UserError
from core.types import Round

GONE = {"error": "this run is no longer on the server"}


class Answers:
    """The scope's server functions. They only read: no model work happens in them.

    Everything that comes in was written by a browser, so nothing about it is believed.
    """

    def __init__(self, desk: Desk):
        self._desk = desk

    def functions(self) -> list[Any]:
        desk = self._desk

        def news(asked: dict[str, Any]) -> dict[str, Any]:
            return desk.news(_get(asked, "ticket"), _whole(_get(asked, "since")) or 0)

        def inspect(asked: dict[str, Any]) -> dict[str, Any]:
            return self._inspect(asked)

        def save(asked: dict[str, Any]) -> dict[str, Any]:
            return self._save(asked)

        def draw(asked: dict[str, Any]) -> dict[str, Any]:
            return self._draw(asked)

        def compare(asked: dict[str, Any]) -> dict[str, Any]:
            return self._compare(asked)

        def halt(asked: dict[str, Any]) -> dict[str, Any]:
            desk.halt(_get(asked, "ticket"))
            return {}

        return [news, inspect, save, draw, compare, halt]

    def _round(self, asked: dict[str, Any]) -> tuple[Run, Round] | None:
        run, at = self._desk.run(_get(asked, "ticket")), _whole(_get(asked, "round"))
        if run is None or at is None or not 0 <= at < len(run.rounds):
            return None
        return run, run.rounds[at]

    def _inspect(self, asked: dict[str, Any]) -> dict[str, Any]:
        found, row = self._round(asked), _whole(_get(asked, "row"))
        if found is None or row is None:
            return GONE
        run, record = found
        try:
            return node_view(record, row, candidate_width(run.header))
        except IndexError:
            return {"error": "there is no such node"}

    def _save(self, asked: dict[str, Any]) -> dict[str, Any]:
        run = self._desk.run(_get(asked, "ticket"))
        if run is None:
            return GONE
        try:
            return dict(download(run.trace()))
        except UserError as error:
            return {"error": flowing(str(error), 1000)}

    def _draw(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The shown tree as an SVG file, light or dark as the page is."""
        found = self._round(asked)
        if found is None or found[0].header is None:
            return GONE
        run, record = found
        svg = svg_tree(record, dark=_get(asked, "dark") is True)
        return dict(download_svg(svg, run.header.method, record.index))

    def _compare(self, asked: dict[str, Any]) -> dict[str, Any]:
        """What the headers of two runs do not share."""
        runs = [self._desk.run(_get(asked, name)) for name in ("ticket", "other")]
        headers = [run.header for run in runs if run is not None and run.header is not None]
        return {"cautions": cautions(*headers) if len(headers) == 2 else []}


def _get(asked: object, name: str) -> object:
    return asked.get(name) if isinstance(asked, dict) else None


def _whole(value: object) -> int | None:
    return value if type(value) is int else None
