"""Drafts as DOT and GraphML: complete, readable by others, and safe whatever a token says."""

from __future__ import annotations

import io
import re
from dataclasses import fields, replace

import graphviz
import networkx as nx
import numpy as np
import pytest

from app.export.graphs import GHOST, dot, draft_graph, graphml
from core.rounds.blocks import BlockDraft, Edit
from core.rounds.draft import DraftRows
from core.rounds.round import ACCEPTED, Round
from core.visible import visible
from tests.helpers.fakes import HOSTILE, make_round
from tests.helpers.small_rounds import small_round

STRING = r'"(?:[^"\\]|\\.)*"'


def statements(source: str) -> list[tuple[list[str], dict[str, str]]]:
    """A reader of DOT of our own: (ids of a statement, its attributes), nothing left over."""
    found = []
    token = re.compile(rf"\s*({STRING}|->|[\w.\-]+|[\[\]={{}};,])", re.S)
    words, at = [], 0
    while at < len(source.rstrip()):
        match = token.match(source, at)
        assert match, source[at : at + 60]
        words.append(match[1])
        at = match.end()
    assert words[0] == "digraph" and words[2] == "{" and words[-1] == "}"
    at = 3
    while at < len(words) - 1:
        ids, told = [words[at]], {}
        at += 1
        while words[at] == "->":
            ids.append(words[at + 1])
            at += 2
        assert words[at] == "["
        at += 1
        while words[at] != "]":
            assert words[at + 1] == "="
            told[words[at]] = words[at + 2]
            at += 3
        at += 1
        found.append((ids, told))
    return found


def diamond() -> Round:
    """A block's draft graph: row 3 has two parents."""
    record = small_round()
    draft = record.draft
    links = ((), (0,), (0,), (1, 2), (1,), (2,))
    edits = ((), *((Edit(row, 1, 1, 1),) for row in range(1, 6)))
    columns = {f.name: getattr(draft, f.name) for f in fields(DraftRows)}
    return replace(record, draft=BlockDraft(**columns, links=links, edits=edits))


def test_the_graph_holds_every_node_edge_and_number():
    record = make_round(budget=64, method="treeflash")
    graph = draft_graph(record)
    assert set(graph.nodes) == {*range(len(record.draft)), GHOST}
    edges = {(int(p), row) for row, p in enumerate(record.draft.parents) if p >= 0}
    assert set(graph.edges) == edges | {(record.verdict.path[-1], GHOST)}
    for row in range(1, len(record.draft)):
        told = graph.nodes[row]
        assert told["token"] == record.draft.tokens[row] and told["cause"] == record.why(row)
        assert told["q"] == pytest.approx(np.exp(record.draft.log_q[row]), rel=1e-3)
        assert told["p"] == pytest.approx(np.exp(record.target_probs.log_p[row]), rel=1e-3)
        assert "note: log q (marginal)" in told
    walked = {e for e in graph.edges if graph.edges[e]["accepted"]}
    assert walked == set(zip(record.verdict.path, record.verdict.path[1:], strict=False))
    assert {r for r, s in graph.nodes(data="status") if s == ACCEPTED} == set(record.verdict.path)


def test_a_node_may_have_several_parents():
    graph = draft_graph(diamond())
    assert set(graph.predecessors(3)) == {1, 2}
    edges = {tuple(ids) for ids, _ in statements(dot(diamond())) if len(ids) == 2}
    assert {("1", "3"), ("2", "3")} <= edges


@pytest.mark.parametrize("hostile", [False, True])
def test_graphml_reads_back(hostile: bool):
    for seed in range(6):
        record = make_round(seed, 32, hostile=hostile, method="dart")
        graph, back = draft_graph(record), nx.read_graphml(io.BytesIO(graphml(record)))
        assert {str(n): told for n, told in graph.nodes(data=True)} == dict(back.nodes(data=True))
        assert {(str(a), str(b)) for a, b in graph.edges} == set(back.edges)


@pytest.mark.parametrize("hostile", [False, True])
def test_dot_says_the_same_and_no_text_leaves_its_string(hostile: bool):
    record = make_round(3, 64, hostile=hostile)
    graph, found = draft_graph(record), statements(dot(record))
    nodes = {ids[0]: told for ids, told in found if len(ids) == 1}
    assert {n for n in nodes if n not in ("graph", "node", "edge")} == {str(n) for n in graph.nodes}
    assert {tuple(ids) for ids, _ in found if len(ids) == 2} == {
        (str(a), str(b)) for a, b in graph.edges
    }
    allowed = {"label", "color", "fillcolor", "penwidth", "style", "shape", "rankdir", "fontname",
               "arrowhead"}  # fmt: skip
    assert {name for _, told in found for name in told} <= allowed
    for name, told in graph.nodes(data=True):
        text = told["text"].replace("\\", "\\\\").replace('"', '\\"')
        assert text in nodes[str(name)]["label"]


@pytest.mark.parametrize(
    "attack", [*HOSTILE, "\\", '\\\\"', "<<b>x</b>>", "\\N\\G\\E", "-> x [a=b]", "graph"]
)
def test_any_text_is_only_ever_a_label(attack: str):
    record = small_round()
    record = record.with_texts(dict.fromkeys(record.texts, attack))
    assert len(statements(dot(record))) == len(statements(dot(small_round())))
    back = nx.read_graphml(io.BytesIO(graphml(record)))
    assert back.nodes["1"]["text"] == visible(attack)


def test_a_draft_without_nodes_and_numbers_that_are_none():
    record = make_round(budget=8, method="ar")
    assert len(draft_graph(record)) == 2
    odd = replace(small_round().draft, log_q=np.full(6, np.nan, np.float32))
    assert "q" not in draft_graph(replace(small_round(), draft=odd)).nodes[1]


@pytest.mark.usefixtures("dot")
def test_graphviz_itself_takes_it():
    svg = graphviz.Source(dot(make_round(1, 16, hostile=True))).pipe("svg")
    assert svg.count(b'class="node"') == 18
