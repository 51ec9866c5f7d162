"""A run as one text that the page's own viewer reads without a server: a *pack*.

It holds what the studio's server would answer of the run: the line and tree of every round, and
every node, made by ``app.view`` as the server makes them, and what the run measures by
itself and beside others. An offline file, a site and an embedded run all hold packs;
app/web/offline/packs.js reads them.

    {"each": 16, "run": BLOCK, "trees": [BLOCK, …], "nodes": [BLOCK, …]}

A block is JSON, or gzipped JSON in base64. Blocks of ``trees`` hold the trees of ``each`` rounds,
blocks of ``nodes`` the details of their nodes (``node_parts``); both are unpacked when they are
asked for.
"""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

from app.view.comparison import facts
from app.view.explanation import Explainer
from app.view.node import node_parts
from app.view.rounds import drawable, header_view, round_line, tree_view, why_view
from app.view.statistics import DEPTHS, depth_records, figures_json, numbers_only
from core.progress import At, silent
from core.traces.schema import Trace
from core.visible import flowing

LEVEL = 6  # of gzip: 9 takes twice as long for a hundredth less
EACH = 16  # rounds whose nodes' details are unpacked together
# Nodes, and nodes before each of them, of a file that keeps details: about 60 MB of it. Each
# node's path is listed, so a chain of n nodes takes n²/2 places.
DETAILED = 1_500_000


def packed_run(trace: Trace, plain: bool = False, detailed: bool = True, at: At = silent) -> str:
    """The run as ASCII JSON without "<" and ">".

    ``plain``: no compression, about ten times larger. ``detailed``: with the details of nodes.
    ``at``: is told how much is done, of 1.
    """
    rounds, explainer = trace.rounds, Explainer.of(trace.header)
    trees, nodes = [], []
    for start in range(0, len(rounds), EACH):
        drawn, details = [], []
        for n in range(start, min(start + EACH, len(rounds))):
            at(n / len(rounds))
            before = rounds[n - 1] if n else None
            drawn.append(tree_view(rounds[n], explainer, before) | why_view(rounds[n]))
            if detailed:
                details.append(node_parts(rounds[n], explainer))
        trees.append(_block(drawn, plain))
        if detailed:
            nodes.append(_block(details, plain))
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
