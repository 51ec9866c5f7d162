"""A draft as a graph for other programs: DOT (graphviz) and GraphML (networkx, Gephi, yEd).

A tree is a graph whose nodes have one parent: both are written from ``Draft.sources``. Nodes keep
the draft's row numbers. Model text is shown as the page shows it (``app.view.text``), so it can end
no string, name no attribute and hold no character that XML forbids.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from typing import Any

import graphviz
import networkx as nx

from app.view.explanation import odds
from app.view.rounds import drawable, has_stop, target_odds
from app.view.text import flowing, visible
from core.errors import UserError
from core.rounds.round import ACCEPTED, REJECTED, UNREACHED, Round

GHOST = "target"  # the node of the target's token where the walk stopped
# The page's signs: outline and dash say what a colour says.
_LOOK = {
    ACCEPTED: {"color": "#0b67a5", "fillcolor": "#dfeefa", "penwidth": "2"},
    REJECTED: {"color": "#ad4d12"},
    UNREACHED: {"color": "#a6adb9", "style": "rounded,filled,dotted"},
    GHOST: {"color": "#843b82", "style": "rounded,dashed"},
}


def draft_graph(record: Round) -> nx.DiGraph:
    """The round's draft with everything a file should keep of its nodes, and the target's token
    where the walk stopped. What is unknown is left out: formats differ in how they say NaN."""
    record = drawable(record)
    graph = nx.DiGraph(round=record.index, position=record.position, accepted=record.accepted)
    for row in range(len(record.draft)):
        graph.add_node(row, **_known(dict(_node(record, row))))
    graph.add_edges_from(
        (above, row, {"accepted": above in record.verdict.path and record.status[row] == ACCEPTED})
        for row, parents in enumerate(record.draft.sources)
        for above in parents
    )
    if has_stop(record):
        end, bonus = record.verdict.path[-1], record.verdict.bonus
        told = {"text": visible(record.text(bonus)), "token": bonus, "status": GHOST}
        told |= {"p": target_odds(record, end, bonus), "why": record.stop_reason}
        graph.add_node(GHOST, **_known(told))
        graph.add_edge(end, GHOST, accepted=False)
    return graph


def _node(record: Round, row: int) -> Iterator[tuple[str, Any]]:
    draft, beliefs = record.draft, record.target_probs
    block = draft.edits and not row  # a denoised block's root is the block, not a token
    yield "text", "the block" if block else visible(record.text(int(draft.tokens[row])))
    yield "token", int(draft.tokens[row])
    yield "depth", int(draft.depths[row])
    yield "status", record.status[row]
    yield "why", record.why(row)
    if draft.edits and row:
        words = (
            f"{edit.position}: {visible(record.text(edit.token))}" for edit in draft.edits[row]
        )
        yield "edits", ", ".join(words)
    if row:
        yield "rank_q", int(draft.ranks[row])
        yield "q", odds(float(draft.log_q[row]))
        yield "score", float(draft.scores[row])
        for name, values in draft.notes.items():
            yield flowing(f"note: {name}", 80), float(values[row])
    if row and beliefs is not None:
        yield "p", odds(float(beliefs.log_p[row]))
        yield "rank_p", int(beliefs.rank[row])


def _known(told: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in told.items()
        if value is not None and (not isinstance(value, float) or math.isfinite(value))
    }


def graphml(record: Round) -> bytes:
    """The draft as a GraphML file."""
    out = io.BytesIO()
    nx.write_graphml(draft_graph(record), out, named_key_ids=False)
    return out.getvalue()


def dot(record: Round) -> str:
    """The draft as DOT source; needs the graphviz package, never its ``dot`` program."""
    return _digraph(record).source


def dot_svg(record: Round) -> bytes:
    """The draft as graphviz itself lays it out. Raises UserError where ``dot`` is not installed."""
    try:
        return _digraph(record).pipe(format="svg")
    except graphviz.ExecutableNotFound:
        raise UserError(
            "graphviz's dot program is not installed: leave out --layout dot to draw with "
            "Draftscope's own layout, or take --to dot and lay it out elsewhere"
        ) from None
    except graphviz.CalledProcessError:
        raise UserError("graphviz's dot program could not lay this draft out") from None


def _digraph(record: Round) -> graphviz.Digraph:
    graph = draft_graph(record)
    made = graphviz.Digraph(
        f"round {record.number}",
        graph_attr={"rankdir": "LR"},
        node_attr={"shape": "box", "style": "rounded,filled", "fillcolor": "white",
                   "fontname": "monospace"},
        edge_attr={"arrowhead": "none"},
    )  # fmt: skip
    for name, told in graph.nodes(data=True):
        chances = [f"{key} {told[key]:.3g}" for key in ("q", "p") if key in told]
        # A list of lines, each escaped: text of a model must not become a DOT escape.
        lines = [told.get("edits", told["text"]), *([", ".join(chances)] * any(chances))]
        label = "\\n".join(map(graphviz.escape, lines))
        made.node(str(name), graphviz.nohtml(label), **_LOOK[told["status"]])
    for above, below, told in graph.edges(data=True):
        look = _LOOK[ACCEPTED]["color"] if told["accepted"] else _LOOK[UNREACHED]["color"]
        made.edge(str(above), str(below), color=look, penwidth="2" if told["accepted"] else "1")
    return made
