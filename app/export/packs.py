"""A run as one text that the page's own viewer reads without a server: a *pack*.

It holds what the studio's server would answer of the run: the line and tree of every round, and
every node, made by ``app.view.rounds`` as the server makes them, and what the run measures by
itself and beside others. An offline file, a site and an embedded run all hold packs;
app/web/offline/packs.js reads them.

    {"each": 64, "run": BLOCK, "trees": [BLOCK, …], "nodes": [BLOCK, …]}

A block is JSON, or gzipped JSON in base64. Blocks of ``trees`` hold the trees of ``each`` rounds,
blocks of ``nodes`` the details of their nodes; both are unpacked when they are asked for.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from typing import Any

from app.view.comparison import facts
from app.view.explanation import Explainer
from app.view.node import node_views
from app.view.rounds import (
    drawable,
    header_view,
    round_line,
    tree_view,
    why_view,
)
from app.view.statistics import DEPTHS, depth_records, figures_json, numbers_only
from core.progress import At, silent
from core.rounds.round import Round
from core.traces.schema import Trace
from core.visible import flowing

LEVEL = 6  # of gzip: 9 takes twice as long for a hundredth less
EACH = 64  # rounds whose nodes' details are unpacked together
# Nodes, and nodes before each of them, of a file that keeps details: about 60 MB unpacked. Each
# node's path is listed, so a chain of n nodes takes n²/2 places.
DETAILED = 1_500_000


def packed_run(trace: Trace, plain: bool = False, detailed: bool = True, at: At = silent) -> str:
    """The run as ASCII JSON without "<" and ">".

    ``plain``: no compression, three to six times larger. ``detailed``: with the details of nodes.
    ``at``: is told how much is done, of 1.
    """
    rounds, explainer = trace.rounds, Explainer.of(trace.header)
    trees, nodes = [], []
    for start in range(0, len(rounds), EACH):
        some = rounds[start : start + EACH]

        def told(done: float, start: int = start) -> None:
            at((start + done) / len(rounds))

        told(0)
        if detailed:
            nodes.append(_block(_details(some, explainer, told), plain))
        drawn = [
            tree_view(rounds[n], explainer, rounds[n - 1] if n else None) | why_view(rounds[n])
            for n in range(start, start + len(some))
        ]
        trees.append(_block(drawn, plain))
    run = _block(_run(trace), plain)
    return inert({"each": EACH, "run": run, "trees": trees, "nodes": nodes})


def weight(trace: Trace) -> int:
    """Count the nodes, and the nodes before each of them, for ``DETAILED``."""
    drafts = [drawable(record).draft for record in trace.rounds]
    return sum(int(draft.depths.sum()) + len(draft) for draft in drafts)


def inert(value: Any) -> str:
    """JSON in ASCII that can end no script element, wherever it stands."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e")


def _block(value: Any, plain: bool) -> Any:
    if plain:
        return value
    packed = gzip.compress(inert(value).encode("ascii"), LEVEL, mtime=0)
    return base64.b64encode(packed).decode("ascii")


def _run(trace: Trace) -> dict[str, Any]:
    return {
        "header": header_view(trace.header),
        "message": flowing(trace.remarks),
        "rounds": [round_line(record, at == 0) for at, record in enumerate(trace.rounds)],
        "facts": facts(trace.header),
        "measured": _measured(trace),
    }


def _measured(trace: Trace) -> dict[str, Any]:
    """Return what the run measures, with figures as tables: the script that draws them is 5 MB.

    In all of them the run is called A. A figure of several runs has other series than of one."""
    from analysis.measures.parts import RecordedPart
    from analysis.measures.tables import Tables

    part = RecordedPart([trace])
    alone = depth_records(Tables(["A"], [part]), {"A": "A"})
    several = figures_json(Tables(["A", "B"], [part, part]), {"A": "A", "B": "B"}, DEPTHS)
    beside = {name: numbers_only(figure) for name, figure in several.items()}
    for figure in beside.values():
        figure["data"] = [each for each in figure["data"] if each["meta"]["name"] != "B"]
    figures = {name: numbers_only(figure) for name, figure in alone["figures"].items()}
    return alone | {"figures": figures, "beside": beside}


def _details(rounds: Sequence[Round], explainer: Explainer, told: At) -> dict[str, Any]:
    """Return the inspector's view of every node: the root first, the target's token last.

    told  is told how many rounds are done
    """
    packer = Packer()
    places = []
    for number, record in enumerate(rounds):
        told(number)
        places.append([packer.put(view) for view in node_views(record, explainer)])
    return {"rounds": places, "table": packer.table, "shapes": packer.shapes}


class Packer:
    """JSON values, each stored once: nodes of one tree share their paths, lists and labels.

    ``table`` holds scalars as they are, lists as [-1, place, …] and objects as [shape, place, …],
    where ``shapes`` names an object's keys. app/web/offline/packs.js unfolds them.
    """

    def __init__(self) -> None:
        self.table: list[Any] = []
        self.shapes: list[list[str]] = []
        self._places: dict[Any, int] = {}
        self._shapes: dict[tuple[str, ...], int] = {}
        self._seen: dict[int, tuple[int, Any]] = {}  # by identity; held, so none takes its place

    def put(self, value: Any) -> int:
        """The value's place in the table. A list or an object may not change after."""
        kind = type(value)
        if kind is not dict and kind is not list and kind is not tuple:
            # 1, 1.0 and True are equal to Python, and not the same in JSON
            return self._place((kind, value), value)
        if (seen := self._seen.get(id(value))) is not None:
            return seen[0]
        shape, parts = (self._shape(value), value.values()) if kind is dict else (-1, value)
        entry = (shape, *[self.put(each) for each in parts])
        place = self._place(entry, entry)
        self._seen[id(value)] = place, value
        return place

    def _place(self, key: Any, entry: Any) -> int:
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = len(self.table)
            self.table.append(entry)
        return place

    def _shape(self, value: dict[str, Any]) -> int:
        keys = tuple(value)
        shape = self._shapes.setdefault(keys, len(self._shapes))
        if shape == len(self.shapes):
            self.shapes.append(list(keys))
        return shape
