"""The traces that ship are the recordings that the command would make, and no others."""

from __future__ import annotations

import pytest

from app.learn.material import FOLDER
from app.maintainers import recording
from app.studio.examples import TRACES
from core.decoding.request import RunRequest
from core.errors import UserError
from core.traces.reader import read_trace

REQUESTS = recording.recordings()


def test_every_trace_that_ships_is_one_of_them():
    shipped = {path for folder in (TRACES, FOLDER) for path in folder.glob("*.jsonl.gz")}
    assert shipped == set(REQUESTS)


@pytest.mark.parametrize("path", REQUESTS, ids=lambda path: path.name.partition(".")[0])
def test_a_trace_is_of_its_request(path):
    request, header = REQUESTS[path], read_trace(path).header
    assert header.prompt_text == request.prompt
    if isinstance(request, RunRequest):
        assert header.method == request.method
        assert request.budget in (None, header.settings["budget"])
        assert header.settings["max_new_tokens"] == request.max_new_tokens
    else:
        graph = header.settings["graph"]
        assert header.settings["length"] == request.length
        assert (graph and str(len(graph["formulas"]))) == request.graph


def test_a_name_that_is_none_of_them_is_a_sentence():
    with pytest.raises(UserError, match="there is no recording nonsense; there are "):
        recording.main(recording.Options(names=("nonsense",)))
