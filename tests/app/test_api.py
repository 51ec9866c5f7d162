"""Runs for programs: the endpoint ``decode``, called by gradio_client as docs/share.md says."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest

pytest.importorskip("gradio")

from gradio_client import Client
from gradio_client.exceptions import AppError

from app.studio.access import Access, Token
from app.studio.run import ENDED
from app.studio.runs import Runs
from app.studio.server import launch
from core.rounds.round import new_tokens
from core.traces.reader import read_trace
from tests.helpers.fakes import FakeEngine


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Runs, Client]]:
    runs = Runs(FakeEngine())
    runs.start()
    page = launch(runs, "127.0.0.1", 0)
    try:
        yield runs, Client(page.address, verbose=False)
    finally:
        runs.close()
        page.close()


def test_a_run_comes_as_it_grows_and_its_trace_opens(served, tmp_path):
    job = served[1].submit(
        prompt="patient", method="ddtree", budget=8, max_new_tokens=9, api_name="/decode"
    )
    told = list(job)
    assert [a["state"] for a in told][-2:] == ["running", "done"]
    assert all(b["text"].startswith(a["text"]) for a, b in pairwise(told))
    assert len({a["rounds"] for a in told}) > 2 and not any("trace" in a for a in told[:-1])
    file = tmp_path / "run.jsonl"
    file.write_text(told[-1]["trace"])
    trace = read_trace(file)
    assert trace.complete and not trace.faults
    assert trace.header.settings["budget"] == 8 and trace.header.prompt_text == "patient"
    texts = {token: text for record in trace.rounds for token, text in record.texts.items()}
    tokens = new_tokens(trace.rounds)
    assert len(tokens) == 9 and told[-1]["text"] == "".join(texts[token] for token in tokens)
    assert told[-1]["tau"] == trace.footer["tau"] and told[-1]["rounds"] == len(trace.rounds)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"prompt": ""}, "write a prompt first"),
        ({"prompt": "a", "method": "../../etc"}, "does not offer that method"),
        ({"prompt": "a", "budget": 10**9}, "budget must be"),
        ({"prompt": "a", "temperature": "hot"}, "fill in every number"),
        ({"prompt": "a", "options": {"temprature": 2}}, "ddtree has no option 'temprature' here"),
        ({"prompt": "please refuse"}, "the fake refuses this prompt"),
        ({"prompt": "fail"}, "the fake broke in round 2"),
    ],
)
def test_what_cannot_run_is_a_sentence(served, asked, why):
    with pytest.raises(AppError, match=why):
        served[1].predict(**asked, api_name="/decode")


def test_a_run_that_nobody_waits_for_any_more_is_stopped(served):
    runs, client = served
    job = client.submit(prompt="slow", api_name="/decode")
    while not job.outputs():
        time.sleep(0.02)
    job.cancel()
    before = time.monotonic()
    while not all(run.state in ENDED for run in runs._runs.values()):
        time.sleep(0.05)
        assert time.monotonic() - before < 60


def test_nothing_else_of_the_page_is_called_by_programs(served):
    known = served[1].view_api(return_format="dict", print_info=False)
    assert {*known["named_endpoints"]} == {"/decode"} and not known["unnamed_endpoints"]


@pytest.mark.skipif(sys.platform != "linux", reason="127.0.0.2 is this machine there")
def test_on_a_network_a_program_needs_the_token():
    access = replace(Access.of("0.0.0.0"), token=(token := Token.of(1)))
    runs = Runs(FakeEngine())
    runs.start()
    page = launch(runs, "0.0.0.0", 0, access=access)
    try:
        home = f"http://127.0.0.2:{page.port}"
        with pytest.raises(ValueError, match="Could not fetch config"):
            Client(home, verbose=False)
        let_in = Client(home, headers={"cookie": f"draftscope_token={token}"}, verbose=False)
        found = let_in.predict(prompt="hello", max_new_tokens=4, api_name="/decode")
        assert found["state"] == "done"
    finally:
        runs.close()
        page.close()
