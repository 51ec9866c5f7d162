"""Some 10,000 damaged traces, in little memory: each opens or says why, and what opens is shown.

``python -m tests.helpers.mutants`` runs ten thousand of them through every view and export.
"""

from __future__ import annotations

import gzip
import json
import random
import time

import pytest

from app.studio import files
from core.errors import UserError
from core.lines import Limits
from core.traces.schema import MAX_ROWS
from tests.helpers.mutants import (
    NASTY,
    at_every_place,
    everything,
    huge,
    in_little_memory,
    measured,
    mutants,
    of_bytes,
    opened,
    read_through,
    shown,
    sound,
)
from tests.helpers.timing import amount, usually

HEADER = sound()[0].split(b"\n")[0] + b"\n"


def test_sound_traces_of_every_kind_pass_everything():
    for data in sound():
        trace = opened(data)
        assert trace is not None and trace.rounds
        everything(trace)
        measured(trace)


@pytest.mark.parametrize("seed", range(3))
@in_little_memory()
def test_a_damaged_trace_opens_or_says_why_and_what_opens_can_be_used(seed: int):
    let_in = 0
    for number, data in enumerate(mutants(500, 100 + seed)):
        trace = opened(data)
        if trace is None:
            continue
        let_in += 1
        read_through(trace)
        if number % 100 == 0:
            everything(trace)
        elif number % 5 == 0:
            shown(trace)
    assert 100 < let_in < 400  # both outcomes are really tried


@pytest.mark.parametrize("number", range(len(sound())))
@in_little_memory()
def test_any_field_may_be_missing_or_hold_anything(number: int):
    results = [opened(data) for data in at_every_place(sound()[number], amount(4, 8), seed=number)]
    let_in = [trace for trace in results if trace is not None]
    for trace in let_in:
        read_through(trace)
    assert 0 < len(let_in) < len(results)


@pytest.mark.parametrize("value", NASTY, ids=lambda v: v[:30])
@in_little_memory()
def test_a_line_of_nothing_but_nastiness_holds_no_round(value: str):
    for data in (value.encode(), HEADER + value.encode() + b"\n"):
        trace = opened(data)
        assert trace is None or trace.rounds == ()


# ── huge ones ────────────────────────────────────────────────────────────────────────────────────


SHAPES = {
    "chain": lambda rows: range(-1, rows - 1),
    "star": lambda rows: [-1, *[0] * (rows - 1)],
    "comb": lambda rows: [-1, *((row // 2) * 2 for row in range(rows - 1))],
    "binary": lambda rows: [-1, *(row // 2 for row in range(rows - 1))],
}


@pytest.mark.parametrize(
    "shape, far",
    usually(
        [("chain", True), ("star", False)],
        [("chain", True), ("chain", False), ("star", False), ("comb", True), ("binary", False)],
    ),
)
@in_little_memory()
def test_a_huge_tree_is_read_shown_exported_and_measured_in_time(shape: str, far: bool):
    """As large as may be, with a longest path accepted, or nothing."""
    parents, path = list(SHAPES[shape](MAX_ROWS)), [MAX_ROWS - 1 if far else 0]
    while path[-1]:
        path.append(parents[path[-1]])
    data, began = huge(parents, path[::-1]), time.thread_time()
    trace = opened(data)
    assert trace is not None
    read_through(trace)
    everything(trace)
    measured(trace)
    assert time.thread_time() - began < 30  # far more where a step goes by squares


@pytest.mark.parametrize("shape", SHAPES)
def test_a_tree_beyond_the_limit_is_refused(shape: str):
    assert opened(huge(list(SHAPES[shape](MAX_ROWS + 1)))) is None


# ── files ────────────────────────────────────────────────────────────────────────────────────────


@in_little_memory()
def test_an_upload_of_a_broken_gzip_file_opens_or_says_why(tmp_path):
    rng, path, let_in = random.Random(7), tmp_path / "t.jsonl.gz", 0
    whole = gzip.compress(sound()[0], mtime=0)
    for _ in range(300):
        path.write_bytes(of_bytes(whole, rng))
        try:
            files.open_upload(path).trace()
            let_in += 1
        except UserError as error:
            assert 5 < len(str(error)) < 200 and "\n" not in str(error)
    assert 0 < let_in < 300


def test_a_small_file_cannot_fill_the_memory(tmp_path, monkeypatch):
    """A gzip bomb ends at the limit with a sentence, both in one line and in many."""
    monkeypatch.setattr(files, "LIMITS", Limits(unpacked=1 << 20))
    for body in (b" " * (3 << 20), b"{}\n" * (1 << 20), b"[" * (3 << 20)):
        path = tmp_path / "bomb.jsonl.gz"
        path.write_bytes(gzip.compress(HEADER + body))
        with pytest.raises(UserError, match=r"^[^\n]{5,200}$"):
            files.open_upload(path).trace()


def test_a_name_in_a_trace_is_never_a_path():
    """A hostile header reads no other file and names none: what is saved has a plain name."""
    data = sound()[0].replace(b'"method":"ddtree"', b'"method":"../../../etc/passwd"')
    trace = opened(data)
    assert trace is not None
    name = files.trace_file(trace)["name"]
    assert "/" not in name and ".." not in name
    everything(trace)


@pytest.mark.parametrize("key", ["settings", "model", "creator"])
def test_a_header_that_could_not_be_written_again_is_refused(key: str):
    """1e400 is JSON and reads as infinity, which no JSON can hold: saving the run would break."""
    line = json.dumps({**json.loads(HEADER), key: {"x": "here"}}).replace('"here"', "1e400")
    assert opened(line.encode() + b"\n") is None
