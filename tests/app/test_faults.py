"""Requests that no page sends: a sentence and status 400 for who asked, a line in the log."""

from __future__ import annotations

import errno
import json
import logging
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("gradio")

from starlette.testclient import TestClient

from app.studio import faults
from app.studio.access import Access
from app.studio.components import EARLY_HEAD, SCRIPT, SHEET
from app.studio.methods import Methods
from app.studio.routes import Routes
from app.studio.runs import Runs
from app.studio.server import application, build
from core.traces.schema import Trace
from tests.helpers.fakes import FakeEngine, make_header, make_run
from tests.helpers.mutants import of_json

API = "/gradio_api"


@dataclass(frozen=True)
class Asked:
    """A studio in this process, and what it says in the log."""

    runs: Runs
    page: Any
    client: TestClient  # raises what the application raises
    log: pytest.LogCaptureFixture

    @property
    def view(self) -> Any:
        """That of Run."""
        return next(part for part in self.page.blocks.values() if hasattr(part, "inspect"))

    def post(self, path: str, body: object) -> Any:
        """Checks what holds of every answer."""
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.log.clear()
        json_sent = {"content-type": "application/json"}
        found = self.client.post(API + path, content=sent, headers=json_sent)
        assert found.status_code in (200, 400, 404), (found.status_code, sent)
        if found.status_code != 200:
            answer = found.json()
            said = answer.get("error", answer.get("detail"))
            assert isinstance(said, str) and 5 < len(said) < 1100 and "\n" not in said, sent
        assert self.lines() <= 1
        return found

    def lines(self) -> int:
        """Lines in the log about the last request; none of them with a traceback."""
        said = [self.log.handler.format(record) for record in self.log.records]
        assert all("\n" not in line for line in said), said
        return len([r for r in self.log.records if r.name == faults.LOG.name])

    def question(self, name: str, data: object) -> dict[str, Any]:
        return {"data": data, "component_id": self.view._id, "session_hash": "s", "fn_name": name}

    def ask(self, name: str, data: object) -> Any:
        return self.post("/component_server", self.question(name, data))


@pytest.fixture(scope="module")
def studio() -> Iterator[tuple[Runs, Any, TestClient]]:
    runs = Runs(FakeEngine())
    page = build(runs, Methods.of())
    with TestClient(application(page, runs, Access()), "http://127.0.0.1:7860") as client:
        yield runs, page, client
    page.close(verbose=False)


@pytest.fixture
def asked(
    studio: tuple[Runs, Any, TestClient],
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> Iterator[Asked]:
    caplog.set_level(logging.WARNING)
    yield Asked(*studio, caplog)
    assert "Traceback" not in "".join(capfd.readouterr())


def whole(runs: Runs) -> dict[str, Any]:
    """A question with every field that the routes about runs read."""
    ticket = runs.open(Trace(make_header("why?"), tuple(make_run(2)), {}))
    place = {"ticket": ticket, "round": 0, "row": 1}
    return {
        **place, "since": 0, "token": 1, "form": "dot", "open": [1], "whole": False,
        "tickets": [ticket], "letters": "A", "places": [place, None], "name": "chat-ar",
        "records": [{"x": 1}],
    }  # fmt: skip


def test_damaged_questions_are_answered_in_a_sentence(asked: Asked):
    """Of the whole body, of the question alone, and of single fields, to every route."""
    rng, good = random.Random(5), whole(asked.runs)
    names = [*Routes.of_runs(Routes(asked.runs, None)), "nobody"]
    statuses = set()
    for number in range(160):
        name = names[number % len(names)]
        data = json.dumps(good).encode()
        for _ in range(rng.choice((1, 1, 2))):
            data = of_json(data, rng)
        body = json.dumps(asked.question(name, "here")).encode().replace(b'"here"', data)
        if number % 4 == 0:
            body = of_json(json.dumps(asked.question(name, good)).encode(), rng)
        statuses.add(asked.post("/component_server", body).status_code)
    assert statuses == {200, 400, 404}
    for name, route in Routes(asked.runs, None).of_runs().items():
        assert asked.ask(name, good).status_code == 200
        for bad in (None, [], 3, "x"):
            assert asked.ask(name, bad).status_code == 400
        for field in {"ticket", "round", "tickets", "open"} & {*route.asks.__struct_fields__}:
            assert asked.ask(name, good | {field: {"x": 1}}).status_code == 400


def test_a_picture_that_cannot_be_a_pdf_is_answered_in_a_sentence(asked: Asked):
    for body in (b"", b"words", b"<svg><image/></svg>", b"\0" * 999):
        answer = asked.client.post("/pdf", content=body)
        assert answer.status_code == 400
        assert answer.text == "this is not a picture that the page saves\n"
    assert asked.client.post("/pdf", content=b" " * ((8 << 20) + 1)).status_code == 413
    away = asked.client.post("/pdf", content=b"", headers={"sec-fetch-site": "cross-site"})
    assert away.status_code == 403


def test_events_with_damaged_data_are_answered_in_a_sentence(asked: Asked):
    rng, statuses = random.Random(6), []
    for number, event in asked.page.fns.items():
        values = [part.get_config().get("value") for part in event.inputs]
        good = {"data": values, "fn_index": number, "session_hash": "s", "event_data": {}}
        bodies = [good, good | {"data": [[1]] * len(values)}, good | {"event_data": 7}]
        bodies += [good | {"data": [rng.choice((None, {}, "x" * 99, -1e300, []))] * len(values)}]
        bodies += [good | {"trigger_id": 10**9, "batched": True}, good | {"fn_index": -1}]
        written = json.dumps(good).encode()
        for body in [*bodies, *(of_json(written, rng) for _ in range(24))]:
            statuses.append(asked.post("/run/predict", body).status_code)
    assert statuses.count(200) > 10 and statuses.count(400) > 200


def test_a_method_that_is_not_offered_is_named_in_the_answer(asked: Asked):
    ticket = asked.runs.open(Trace(make_header("why?", "mine.py"), tuple(make_run(2)), {}))
    number = next(
        n for n, fn in asked.page.fns.items() if fn.targets and fn.targets[0][1] == "refill"
    )
    event = {"fn_index": number, "event_data": {"tickets": [ticket]}}
    found = asked.post("/run/predict", event | {"data": [], "session_hash": "s"})
    assert found.status_code == 400
    assert found.json()["error"] == "this page does not offer the run's method"
    (fills,) = [fn for fn in asked.page.fns.values() if fn.trigger_after == number]
    assert fills.trigger_only_on_success, "the form is not filled with an earlier answer"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/queue/data?session_hash=nobody"),
        ("GET", "/queue/data"),
        ("GET", "/call/x/y"),
        ("POST", "/call/v2/x"),
        ("POST", "/queue/join"),
        ("POST", "/cancel"),
        ("POST", "/upload"),
        ("GET", "/stream/s/1/5/playlist.m3u8"),
        ("GET", "/file=/etc/passwd"),
        ("GET", "/proxy=http://a.example/"),
        ("GET", "/startup-events/x"),
        ("GET", "/custom_component/x/y/z/w"),
    ],
)
def test_other_requests_are_a_line_in_the_log_at_most(asked: Asked, method: str, path: str):
    found = asked.client.request(method, API + path, content=b'{"fn_index": 9, "data": []}')
    assert found.status_code < 500 and asked.lines() <= 1


def test_what_breaks_in_our_own_code_is_told_and_logged_in_a_line(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
):
    def breaks(*_: object) -> None:
        raise KeyError("ours\n\x1b[2J")

    monkeypatch.setattr(asked.runs, "updates", breaks)
    found = asked.ask("updates", {"ticket": "x"})
    assert found.json() == {"error": "the server could not work this out (KeyError)"}
    assert asked.lines() == 1 and "test_faults.py" in asked.log.text
    assert "\x1b" not in asked.log.text


def test_a_full_disk_is_one_sentence(asked: Asked, monkeypatch: pytest.MonkeyPatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("gradio.route_utils.NamedTemporaryFile", full)
    found = asked.client.post(API + "/upload", files={"files": ("t.jsonl", b"{}")})
    assert found.status_code == 507 and asked.lines() == 1
    assert found.json() == {"error": "the server's disk is full: nothing was kept"}


@pytest.mark.parametrize("streamed", [False, True])
def test_a_body_that_is_too_large_is_refused_before_it_is_read(
    asked: Asked, monkeypatch: pytest.MonkeyPatch, streamed: bool
):
    monkeypatch.setattr(faults, "MAX_BODY", 10_000)
    body = json.dumps(asked.question("updates", {"ticket": "x" * 9000})).encode()
    assert asked.post("/component_server", body).status_code == 200
    for path in ("/component_server", "/run/predict", "/queue/join", "/nowhere"):
        sent: Any = iter([b" " * 5000] * 3) if streamed else b" " * 15_000
        found = asked.client.post(API + path, content=sent)
        assert found.status_code in ((413, 404) if path == "/nowhere" else (413,))
        if found.status_code == 413:
            assert "may have at most" in found.text and asked.lines() == 1
        asked.log.clear()
    upload = asked.client.post(API + "/upload", files={"files": ("t.jsonl", b" " * 15_000)})
    assert upload.status_code == 200  # these have a limit of their own


def test_the_page_has_its_script_from_the_start(studio):
    client = studio[2]
    text = client.get("/").text
    assert text.count(EARLY_HEAD) == 1 and text.index(EARLY_HEAD) < text.index("<script>")
    for name, kind in ((SCRIPT, "text/javascript"), (SHEET, "text/css")):
        first = client.get(f"/{name}")
        assert first.status_code == 200 and first.headers["content-type"].startswith(kind)
        same = client.get(f"/{name}", headers={"If-None-Match": first.headers["etag"]})
        assert same.status_code == 304 and not same.content
        assert client.get(f"/{name}", headers={"If-None-Match": '"other"'}).text == first.text
