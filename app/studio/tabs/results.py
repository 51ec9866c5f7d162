"""Results: all methods on the same prompts, as ``grid table`` measured them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from app.studio.components import Studio, Tab, view
from core import ASSETS
from core.json_input import read_json
from core.methods.registry import built_in

SHIPPED = ASSETS / "measured" / "table.json"


def build(studio: Studio) -> None:
    made = cache(table)
    view("results", "ds-results", {"table": lambda _: made()})


TAB = Tab("results", "Results", build, ("view.css",))


def table(path: Path = SHIPPED) -> dict[str, Any]:
    """The rows with each method's title and what its q depends on."""
    found = read_json(path)
    return {**found, "rows": [row | _about(row["method"]) for row in found["rows"]]}


def _about(name: str) -> dict[str, str]:
    method = built_in(name)
    if method is None:
        return {"title": name, "knows": ""}
    drafter, _, builder = name.partition("+")
    own = built_in(drafter)
    title = f"{own.title}, {builder}" if builder and own is not None else method.title
    info = method.drafter_info
    return {"title": title, "knows": info.knows if info is not None else ""}
