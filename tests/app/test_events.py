"""The stream of news: what it says adds up to the run, and a run is watched while it is open."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

pytest.importorskip("gradio")

from starlette.requests import Request
from starlette.responses import StreamingResponse

from app.studio import events
from app.studio import run as module
from app.studio.events import Events
from app.studio.run import DONE, STOPPED
from app.studio.runs import Runs
from core.decoding.request import RunRequest
from core.traces.schema import Trace
from tests.helpers.fakes import FakeEngine, make_header, make_run

T = TypeVar("T")
Messages = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(events, "LOOK_EVERY", 0.005)


def complete(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, from a thread of its own: after a browser test this thread has a
    loop already."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


async def ask(runs: Runs, query: str) -> Any:
    scope = {"type": "http", "method": "GET", "headers": [], "query_string": query.encode()}
    return await Events(runs).answer(Request(scope))


def listen(runs: Runs, query: str) -> Messages:
    """All messages of the stream that answers a question."""

    async def whole() -> Messages:
        return await heard(await ask(runs, query))

    return complete(whole())


async def heard(response: StreamingResponse, most: int | None = None) -> Messages:
    """The messages of a stream to its end, or the first ``most``; then it is closed."""
    found: Messages = []
    stream = response.body_iterator
    async for part in stream:
        text = bytes(part).decode() if not isinstance(part, str) else part
        assert text.endswith("\n\n")
        if text.startswith("data: "):
            assert "\n" not in text[6:-2]
            found.append(json.loads(text[6:]))
        if most is not None and len(found) >= most:
            break
    await stream.aclose()  # type: ignore[attr-defined]
    return found


def test_messages_add_up_to_what_was_decoded(monkeypatch: pytest.MonkeyPatch):
    # a message that finds many rounds leaves most trees out; a slow look finds many
    monkeypatch.setattr(module, "ANSWER_ROWS", 100_000)
    runs = Runs(FakeEngine())
    runs.start()
    first, second = runs.submit(RunRequest("patient"), RunRequest("hello"))
    found = listen(runs, f"run={first}.0&run={second}.1")
    for ticket, since in ((first, 0), (second, 1)):
        own = [m["news"]["run"] for m in found if m["ticket"] == ticket]
        views = [view for news in own for view in news["rounds"]]
        lines = json.loads(json.dumps(runs.updates(ticket, since)["run"]["rounds"]))
        assert [line | view for line, view in zip(lines, views, strict=True)] == views
        assert all("parents" in view for view in views)
        firsts = [news["first"] for news in own]
        counts = [len(news["rounds"]) for news in own]
        assert firsts == [since + sum(counts[:at]) for at in range(len(counts))]
        assert own[-1]["state"] == DONE
    runs.close()


def test_a_closed_stream_is_a_page_that_is_gone(monkeypatch: pytest.MonkeyPatch):
    runs = Runs(FakeEngine())
    runs.start()
    (ticket,) = runs.submit(RunRequest("slow"))
    run = runs._runs[ticket]

    async def look() -> None:
        response = await ask(runs, f"run={ticket}.0")
        monkeypatch.setattr(module, "ABANDONED_AFTER", 0.2)
        await heard(response, most=4)
        assert run.state != STOPPED
        for _ in range(2000):
            if run.state == STOPPED:
                return
            await asyncio.sleep(0.01)

    complete(look())
    assert run.state == STOPPED and run.watchers == 0
    runs.close()


def test_an_ended_run_and_one_that_is_gone_end_the_stream():
    runs = Runs(FakeEngine())
    ticket = runs.open(Trace(make_header(), tuple(make_run(3)), {}))
    found = listen(runs, f"run={ticket}.2&run=nobody.0")
    assert [m["ticket"] for m in found] == [ticket, "nobody"]
    assert len(found[0]["news"]["run"]["rounds"]) == 1 and found[1]["news"]["run"] is None


def test_a_server_that_closes_ends_its_streams():
    runs = Runs(FakeEngine())
    (ticket,) = runs.submit(RunRequest("hello"))  # the worker is not started: it waits for ever
    response = complete(ask(runs, f"run={ticket}.0"))
    runs.close()
    assert complete(heard(response)) == []


@pytest.mark.parametrize(
    "query",
    ["", "of=rounds", "run=abc", "run=.1", "run=a.-1", "run=a.²", "run=a.99999999", "of=a.1"],
)  # fmt: skip
def test_other_questions_are_refused(query: str):
    assert complete(ask(Runs(FakeEngine()), query)).status_code == 400
