"""Fifteen hundred damaged traces: each opens or says why, and what opens can be shown and taken.

``python -m tests.mutants`` runs ten thousand of them through every view and export.
"""

from __future__ import annotations

import gzip
import io

import pytest

from app.studio import upload
from app.studio.upload import open_upload
from core.errors import UserError
from core.traces.reader import TraceReader
from tests.mutants import NASTY, everything, measured, mutants, opened, shown, sound, taken


@pytest.mark.parametrize("seed", range(3))
def test_a_damaged_trace_opens_or_says_why_and_what_opens_can_be_used(seed: int):
    let_in = 0
    for number, data in enumerate(mutants(500, 100 + seed)):
        trace = opened(data)
        if trace is None:
            continue
        let_in += 1
        if number % 20 == 0:
            everything(trace)
        elif number % 3 == 0:
            shown(trace)
    assert 100 < let_in < 400  # both outcomes are really tried


def test_sound_traces_of_every_kind_pass_everything():
    for data in sound():
        trace = opened(data)
        assert trace is not None and trace.rounds
        shown(trace)
        taken(trace)
        measured(trace)


@pytest.mark.parametrize("value", NASTY)
def test_a_line_of_nothing_but_nastiness_is_refused(value: str):
    first = sound()[0].split(b"\n")[0]
    for data in (value.encode(), first + b"\n" + value.encode() + b"\n"):
        try:
            assert TraceReader(io.BytesIO(data), "t").trace().rounds == ()
        except UserError as error:
            assert "\n" not in str(error)


def test_a_small_file_cannot_fill_the_memory(tmp_path, monkeypatch):
    """A gzip bomb ends at the limit with a sentence, both in one line and in many."""
    monkeypatch.setattr(upload, "UNPACKED", 1 << 20)
    first = sound()[0].split(b"\n")[0]
    for body in (b" " * (3 << 20), b"{}\n" * (1 << 20), b"[" * (3 << 20)):
        path = tmp_path / "bomb.jsonl.gz"
        path.write_bytes(gzip.compress(first + b"\n" + body))
        with pytest.raises(UserError, match=r"^[^\n]{5,200}$"):
            open_upload(path).trace()


def test_a_name_in_a_trace_is_never_a_path(tmp_path):
    """A hostile header reads no other file and names none: what is saved has a plain name."""
    data = sound()[0].replace(b'"method":"ddtree"', b'"method":"../../../etc/passwd"')
    trace = opened(data)
    assert trace is not None
    name = upload.download(trace)["name"]
    assert "/" not in name and ".." not in name
    everything(trace)


@pytest.mark.parametrize("key", ["settings", "model", "creator"])
def test_a_header_that_could_not_be_written_again_is_refused(key: str):
    """1e400 is JSON and reads as infinity, which no JSON can hold: saving the run would break."""
    first, *rest = sound()[0].split(b"\n")
    data = b"\n".join([first[:-1] + f',"{key}":{{"x":1e400}}}}'.encode(), *rest])
    with pytest.raises(UserError, match="beyond all range"):
        TraceReader(io.BytesIO(data), "t.jsonl").trace()
