"""A draft as a graph for other programs: DOT (graphviz) and GraphML (networkx, Gephi, yEd).

Nodes keep the draft's row numbers. Model text is shown as the page shows it (``core.visible``), so
it can end no string, name no attribute and hold no character that XML forbids.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from typing import Any

import graphviz
import networkx as nx

from analysis.charts.palette import PALETTES
from app.view.rounds import drawable, has_stop, node_text, target_probability
from app.view.values import finite
from core.rounds.blocks import BlockDraft
from core.rounds.draft import Draft
from core.rounds.round import ACCEPTED, REJECTED, SIDE, UNREACHED, Round
from core.visible import flowing, visible

GHOST = "target"  # the node of the target's token where the walk stopped
_COLOURS = PALETTES["light"]
# The page's signs: outline and dash say what a colour says.
_LOOK = {
    ACCEPTED: {"color": _COLOURS["accepted"], "fillcolor": _COLOURS["accepted-box"],
               "penwidth": "2"},
    REJECTED: {"color": _COLOURS["rejected"]},
    UNREACHED: {"color": _COLOURS["faint"], "style": "rounded,filled,dotted"},
    SIDE: {"color": _COLOURS["faint"], "style": "rounded,dashed"},
    GHOST: {"color": _COLOURS["ghost"], "style": "rounded,dashed"},
}  # fmt: skip


def draft_graph(record: Round) -> nx.DiGraph:
    """The round's draft with all that is known of its nodes, and the target's token where the walk
    stopped. What is unknown is left out: formats differ in how they say NaN."""
    record = drawable(record)
    path, verdict = set(record.verdict.path), record.verdict
    graph = nx.DiGraph(round=record.number, position=record.position, accepted=record.accepted)
    for row in range(len(record.draft)):
        graph.add_node(row, **_known(dict(_node(record, row))))
    graph.add_edges_from(
        (above, row, {"accepted": above in path and row in path})
        for row, parents in enumerate(record.draft.sources)
        for above in parents
    )
    if has_stop(record):
        end, bonus = verdict.path[-1], verdict.bonus
        node = {"text": visible(record.text(bonus)), "token": bonus, "status": GHOST}
        node |= {"p": target_probability(record, end, bonus), "cause": record.stop_reason.value}
        graph.add_node(GHOST, **_known(node))
        graph.add_edge(end, GHOST, accepted=False)
    return graph


def _node(record: Round, row: int) -> Iterator[tuple[str, Any]]:
    draft, node = record.draft, record.node(row)
    if isinstance(draft, BlockDraft):
        yield "text", visible(node.text) if row else "the block"
        yield "edits", node_text(record, row)
    else:
        yield "text", visible(node.text)
    yield "token", node.token
    yield "depth", node.depth
    yield "status", node.status
    yield "cause", node.cause.value
    yield "rank", node.rank
    yield "q", finite(node.q)
    yield "score", node.score
    for name, values in draft.notes.items() if row and isinstance(draft, Draft) else ():
        yield flowing(f"note: {name}", 80), float(values[row])
    yield "p", finite(node.p)
    yield "rank_p", node.rank_p


def _known(node: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in node.items()
        if value is not None and (not isinstance(value, float) or math.isfinite(value))
    }


def graphml(record: Round) -> bytes:
    out = io.BytesIO()
    nx.write_graphml(draft_graph(record), out, named_key_ids=False)
    return out.getvalue()


def dot(record: Round) -> str:
    """The draft as DOT source; needs the graphviz package, never its ``dot`` program."""
    graph = draft_graph(record)
    made = graphviz.Digraph(
        f"round {record.number}",
        graph_attr={"rankdir": "LR"},
        node_attr={"shape": "box", "style": "rounded,filled", "fillcolor": "white",
                   "fontname": "monospace"},
        edge_attr={"arrowhead": "none"},
    )  # fmt: skip
    for name, node in graph.nodes(data=True):
        chances = [f"{key} {node[key]:.3g}" for key in ("q", "p") if key in node]
        # Each line is escaped: text of a model must not become a DOT escape.
        lines = [node.get("edits", node["text"]), *([", ".join(chances)] * any(chances))]
        label = "\\n".join(map(graphviz.escape, lines))
        made.node(str(name), graphviz.nohtml(label), **_LOOK[node["status"]])
    for above, below, edge in graph.edges(data=True):
        look = _LOOK[ACCEPTED]["color"] if edge["accepted"] else _LOOK[UNREACHED]["color"]
        made.edge(str(above), str(below), color=look, penwidth="2" if edge["accepted"] else "1")
    return made.source


# name → what writes it, and its type
FORMS = {
    "dot": (lambda record: dot(record).encode(), "text/vnd.graphviz"),
    "graphml": (graphml, "application/graphml+xml"),
}
