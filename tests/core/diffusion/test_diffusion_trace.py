"""Denoising runs in the trace: they read back as they were, and what does not fit is refused."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.studio.examples import TRACES
from app.studio.shipped import DENOISED
from core.declared import BadField
from core.diffusion.draft_graph_search import BUDGETS
from core.diffusion.graph_files import shipped_graph
from core.diffusion.nfe import simulate
from core.diffusion.request import DenoiseSettings, Pace
from core.models.embedded import NAME
from core.rounds.blocks import BlockDraft
from core.rounds.round import Round
from core.traces.reader import read_trace
from core.traces.schema import Header, Trace
from core.traces.writer import round_to_json, write_trace
from tests.helpers.diffusion_toys import ToyTarget, chain, graphs, paces, run
from tests.helpers.fakes import round_from_json
from tests.helpers.mutants import MISSING, placed


def line_of(record: Round) -> dict[str, Any]:
    return json.loads(json.dumps(round_to_json(record), allow_nan=False))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 40), graphs, paces)
def test_every_round_reads_back_as_it_was(seed, graph, pace):
    for record in run(ToyTarget(seed, 0.2), DenoiseSettings(8, 8, pace), graph):
        again = round_from_json(line_of(record))
        assert line_of(again) == line_of(record)
        assert isinstance(record.draft, BlockDraft) and isinstance(again.draft, BlockDraft)
        assert again.draft.links == record.draft.links
        assert again.draft.edits == record.draft.edits
        assert (again.status, again.stop_reason) == (record.status, record.stop_reason)
        assert again.block is not None and record.block is not None
        assert again.block.saved == record.block.saved
        for k in range(len(record.block.steps) + 1):
            assert (again.block.after(k) == record.block.after(k)).all()


def test_a_trace_file_keeps_blocks_and_its_summary_counts_no_prefill(tmp_path):
    rounds = run(ToyTarget(1, 0.1), DenoiseSettings(16, 8), chain(4))
    path = tmp_path / "run.jsonl"
    write_trace(path, Trace(Header("spiffy", {}, {"name": "toy"}, "p", (1,)), rounds, {}))
    trace = read_trace(path)
    assert [line_of(r) for r in trace.rounds] == [line_of(r) for r in rounds]
    assert trace.footer is not None and trace.footer["tokens"] == 16
    assert trace.footer["tau"] == 16 / len(rounds)


def test_a_round_without_a_block_has_no_links_in_its_line():
    record = run(ToyTarget(), DenoiseSettings(8, 8))[0]
    assert "links" not in round_to_json(replace(record, block=None))["nodes"]


@pytest.fixture(scope="module")
def line():
    """Of a call on a wholly masked block that accepted two drafts or more and left some."""
    rounds = run(ToyTarget(2, 0.15), DenoiseSettings(16, 16, Pace(1)), chain(6))
    record = max(rounds, key=lambda r: (r.accepted < r.draft.nodes, r.accepted))
    assert record.accepted >= 2 and record.draft.nodes > record.accepted
    return line_of(record)


WRONG = [
    ("block.state", MISSING), ("block.state", []), ("block.state", [-1] * 5000),
    ("block.state.0", -2), ("block.steps", []), ("block.steps", {}), ("block.steps.0", 3),
    ("block.steps.2", MISSING), ("block.index", "0"), ("block.step", -1),
    ("block.steps.0.count", 0), ("block.steps.0.count", 99),
    ("block.steps.0.position", [0] * 16), ("block.steps.1.position", list(range(16))),
    ("block.steps.0.position.0", 4000), ("block.steps.0.token", []),
    ("block.steps.0.token.0.0", -1), ("block.steps.0.token.0", [1]),
    ("block.steps.0.p.0", MISSING), ("block.steps.0.p.0.0", "1"),
    ("nodes.links", MISSING), ("nodes.edits", MISSING), ("nodes.links.0", [0]),
    ("nodes.links.1", [1]), ("nodes.links.1", [0, 0]), ("nodes.links.1", []),
    ("nodes.links.1", [-1, 0]), ("nodes.links.2", [0]), ("nodes.links.1", "0"),
    ("nodes.links.1", MISSING), ("nodes.edits.1.0", [0, 1, 1]), ("nodes.edits.1.0.0", 99),
    ("nodes.edits.1.0.2", 0), ("nodes.edits.1.0.3", 0), ("nodes.edits.1.0.1", -1),
    ("nodes.edits.1", [[0, 5, 1, 1]] * 2), ("nodes.edits.2", []), ("path", [0, 2, 1]),
]  # fmt: skip


@pytest.mark.parametrize(("place", "value"), WRONG, ids=lambda v: str(v)[:40])
def test_a_broken_block_is_refused(line, place, value):
    parts = [int(part) if part.isdigit() else part for part in place.split(".")]
    with pytest.raises(BadField, match=r"^[^\n]{5,120}$"):
        round_from_json(placed(line, parts, value))


def test_unknown_fields_in_a_block_are_ignored(line):
    more = placed(placed(line, ["block", "later"], {"a": 1}), ["block", "steps", 0, "later"], 1)
    assert line_of(round_from_json(more)) == line_of(round_from_json(line))


@pytest.mark.parametrize("topic", sorted(DENOISED))
def test_a_plain_example_run_foretells_the_calls_of_every_shipped_graph(topic):
    plain = read_trace(TRACES / f"{topic}-denoise.jsonl.gz").rounds
    spiffy = read_trace(TRACES / f"{topic}-spiffy-10.jsonl.gz").rounds
    calls = {}
    for nodes in BUDGETS:
        graph = shipped_graph(nodes, NAME, Pace())
        calls[nodes] = len(list(simulate(plain, graph, Pace())))
    assert calls[10] == len(spiffy) < len(plain)
    assert len(plain) > calls[3] >= calls[10]
