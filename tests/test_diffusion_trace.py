"""Denoising runs in the trace: they read back as they were, and hostile ones say why not."""

import copy
import json
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.diffusion.denoise import Denoising
from core.diffusion.graph import Pace
from core.errors import UserError
from core.traces.reader import read_trace, round_from_json
from core.traces.schema import Header, Trace
from core.traces.writer import round_to_json, write_trace
from core.rounds.round import Round
from tests.diffusion_toys import ToyTarget, chain, graphs, paces, run
from tests.test_trace import mutated, opens_or_says_why

HEADER = Header(
    method="spiffy", settings={}, model={"name": "toy"}, prompt_text="p", prompt_ids=(1,)
)


def line_of(record: Round):
    return json.loads(json.dumps(round_to_json(record), allow_nan=False))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 40), graphs, paces)
def test_every_round_reads_back_as_it_was(seed, graph, pace):
    for record in run(ToyTarget(seed, 0.2), Denoising(8, 8, pace), graph):
        again = round_from_json(line_of(record))
        assert line_of(again) == line_of(record)
        assert again.draft.links == record.draft.links
        assert again.draft.edits == record.draft.edits
        assert again.status == record.status
        assert again.block.saved == record.block.saved
        assert again.stop_reason == record.stop_reason
        for k in range(len(record.block.steps) + 1):
            assert (again.block.after(k) == record.block.after(k)).all()


def test_a_trace_file_keeps_blocks_and_its_summary_counts_no_prefill(tmp_path):
    rounds = run(ToyTarget(1, 0.1), Denoising(16, 8), chain(4))
    path = tmp_path / "run.jsonl"
    write_trace(path, Trace(HEADER, rounds, {}))
    trace = read_trace(path)
    assert [line_of(r) for r in trace.rounds] == [line_of(r) for r in rounds]
    assert trace.footer["tokens"] == 16
    assert trace.footer["tau"] == 16 / len(rounds)


def test_a_tree_has_no_links_in_its_line():
    record = run(ToyTarget(), Denoising(8, 8))[0]
    assert "links" not in round_to_json(replace(record, block=None))["nodes"]


@pytest.fixture(scope="module")
def drafted():
    """The line of a call that accepted two drafts or more and left some."""
    rounds = run(ToyTarget(2, 0.15), Denoising(16, 16, Pace(1)), chain(6))
    record = max(rounds, key=lambda r: (r.accepted < r.draft.nodes, r.accepted))
    assert record.accepted >= 2 and record.draft.nodes > record.accepted
    return line_of(record)


WRONG = {
    "no state": lambda v: v["block"].pop("state"),
    "empty state": lambda v: v["block"].update(state=[]),
    "endless state": lambda v: v["block"].update(state=[-1] * 5000),
    "a state below masked": lambda v: v["block"]["state"].__setitem__(0, -2),
    "no steps": lambda v: v["block"].update(steps=[]),
    "steps that are no list": lambda v: v["block"].update(steps={}),
    "a step that is no object": lambda v: v["block"]["steps"].__setitem__(0, 3),
    "fewer steps than rows": lambda v: v["block"]["steps"].pop(),
    "an index that is text": lambda v: v["block"].update(index="0"),
    "a negative step": lambda v: v["block"].update(step=-1),
    "count 0": lambda v: v["block"]["steps"][0].update(count=0),
    "count beyond": lambda v: v["block"]["steps"][0].update(count=99),
    "a position twice": lambda v: v["block"]["steps"][0]["position"].__setitem__(
        0, v["block"]["steps"][0]["position"][1]
    ),
    "an unmasked position": lambda v: v["block"]["steps"][1].update(
        position=v["block"]["steps"][0]["position"]
    ),
    "a position outside": lambda v: v["block"]["steps"][0]["position"].__setitem__(0, 4000),
    "no tokens": lambda v: v["block"]["steps"][0].update(token=[]),
    "a negative token": lambda v: v["block"]["steps"][0]["token"][0].__setitem__(0, -1),
    "ragged tokens": lambda v: v["block"]["steps"][0]["token"][0].pop(),
    "odds of another shape": lambda v: v["block"]["steps"][0]["p"].pop(),
    "odds that are text": lambda v: v["block"]["steps"][0]["p"][0].__setitem__(0, "1"),
    "no links": lambda v: v["nodes"].pop("links"),
    "no edits": lambda v: v["nodes"].pop("edits"),
    "links of the root": lambda v: v["nodes"]["links"].__setitem__(0, [0]),
    "links to itself": lambda v: v["nodes"]["links"].__setitem__(1, [1]),
    "links twice": lambda v: v["nodes"]["links"].__setitem__(1, [0, 0]),
    "links without the parent": lambda v: v["nodes"]["links"].__setitem__(2, [0]),
    "links that are text": lambda v: v["nodes"]["links"].__setitem__(1, "0"),
    "too few links": lambda v: v["nodes"]["links"].pop(),
    "an edit of three": lambda v: v["nodes"]["edits"][1][0].pop(),
    "an edit outside": lambda v: v["nodes"]["edits"][1][0].__setitem__(0, 99),
    "an edit at rank 0": lambda v: v["nodes"]["edits"][1][0].__setitem__(2, 0),
    "an edit to no token": lambda v: v["nodes"]["edits"][1][0].__setitem__(1, -1),
    "an edit twice": lambda v: v["nodes"]["edits"][1].append(v["nodes"]["edits"][1][0]),
    "less than its parent": lambda v: v["nodes"]["edits"].__setitem__(2, []),
    "a path past the links": lambda v: v.update(path=[0, 2, 1]),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
def test_a_broken_block_is_one_sentence(drafted, wrong, tmp_path):
    value = copy.deepcopy(drafted)
    wrong(value)
    path = tmp_path / "t.jsonl"
    write_trace(path, Trace(HEADER, ()))
    with path.open("a") as file:
        file.write(json.dumps({"kind": "round", **value}) + "\n")
    with pytest.raises(UserError, match="line 2"):
        read_trace(path)


def test_unknown_fields_in_a_block_are_ignored(drafted):
    value = copy.deepcopy(drafted)
    value["block"]["later"] = value["block"]["steps"][0]["later"] = {"a": 1}
    assert line_of(round_from_json(value)) == line_of(round_from_json(drafted))


@pytest.mark.parametrize("seed", range(3))
def test_random_mutations_open_or_say_why(tmp_path, seed):
    path = tmp_path / "t.jsonl"
    write_trace(path, Trace(HEADER, run(ToyTarget(1, 0.1), Denoising(8, 8), chain(4)), {}))
    rng, data = random.Random(seed), path.read_bytes()
    results = [opens_or_says_why(mutated(data, rng)) for _ in range(300)]
    assert 5 < sum(results) < 295
