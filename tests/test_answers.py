"""The views' server functions: links stay links, letters stay letters, files have sizes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("gradio")

from app.studio import saving, upload
from app.studio.answers import GONE, said
from app.studio.choices import Choices
from app.studio.desk import Desk
from app.studio.gallery import Gallery
from app.studio.page import build
from app.studio.saving import Saving
from app.studio.upload import tidy
from app.studio.views import denoise
from app.studio.whatif import Kept, WhatIfs
from core.errors import UserError
from core.traces.schema import Trace
from core.traces.writer import write_trace
from tests.fakes import FakeEngine, make_header, make_run

Asks = dict[str, Callable[[dict[str, Any]], Any]]


def answers_of(desk: Desk) -> Asks:
    """As a page asks them: a failure is a sentence."""
    return {each.__name__: said(each) for each in Saving(desk, Gallery()).functions()}


@pytest.fixture
def desk() -> Desk:
    return Desk(FakeEngine())


@pytest.fixture
def ask(desk: Desk) -> Asks:
    return answers_of(desk)


def trace(method: str = "ddtree", count: int = 4) -> Trace:
    return Trace(make_header("why?", method), tuple(make_run(count)), {})


# ── who may do what ──────────────────────────────────────────────────────────────────────────────


def test_no_answer_to_a_link_holds_the_run_s_own_ticket(desk: Desk, ask: Asks):
    ticket = desk.show(trace())
    link = ask["share"]({"ticket": ticket})["link"]
    assert ask["runs"]({"tickets": [link]})["runs"][0]["ticket"] == link
    one = {"ticket": link, "tickets": [link, link], "round": 0, "row": 1, "form": "dot"}
    for name in set(ask) - {"gallery", "example", "parquet"}:
        answer = ask[name](one)
        assert "error" not in answer and ticket not in str(answer), name
    run = desk.run(ticket)
    assert run is not None and not run.stop.is_set()  # `halt` was asked, too
    ask["halt"]({"ticket": ticket})
    assert run.stop.is_set()


def test_numbers_never_move_to_another_letter(desk: Desk, ask: Asks):
    first, second = desk.show(trace()), desk.show(trace("dart", 6))
    rows = ask["measure"]({"tickets": [first, second]})["tau"]
    assert [row["run"] for row in rows] == ["A", "B"]
    assert ask["measure"]({"tickets": ["gone", second]}) == GONE
    assert ask["compare"]({"tickets": [first, "gone"]}) == GONE
    listed = ask["runs"]({"tickets": ["gone", second]})["runs"]
    assert [run["ticket"] for run in listed] == [second]  # each says which it is


def test_a_method_file_is_named_without_its_folders(desk: Desk, ask: Asks):
    ticket = desk.show(trace("/home/ada/secret/mine.py"))
    assert ask["runs"]({"tickets": [ticket]})["runs"][0]["method"] == "mine.py"
    asked = {"ticket": ticket, "round": 0}
    for answer in (ask["draw"](asked), ask["save"](asked), ask["take"](asked | {"form": "dot"})):
        assert answer["name"].startswith("draftscope-mine-")


# ── sizes ────────────────────────────────────────────────────────────────────────────────────────


def test_no_file_is_larger_than_a_page_takes(
    desk: Desk, ask: Asks, monkeypatch: pytest.MonkeyPatch
):
    asked = {"ticket": desk.show(trace()), "round": 0}
    monkeypatch.setattr(saving, "LARGEST", 10)
    assert ask["take"](asked | {"form": "nodes.csv"}) == {"error": saving.TOO_LARGE}
    assert "data" in ask["take"](asked | {"form": "trace"})
    monkeypatch.setattr(upload, "UPLOAD", 1000)
    for answer in (ask["save"](asked), ask["take"](asked | {"form": "trace"})):
        assert "run --trace" in answer["error"]


def test_two_tabs_may_upload_the_same_file_at_once(desk: Desk, tmp_path: Path):
    """Gradio gives both the same path."""
    path = tmp_path / "t.jsonl.gz"
    write_trace(path, trace())
    page = build(desk, Choices.of())
    run, compare = [fn for fn in page.fns.values() if fn.targets[0][1] == "upload"][:2]
    assert [len(run.fn(str(path))["tickets"]) for _ in range(2)] == [1, 1]
    assert len(compare.fn([str(path)] * 2)["added"]) == 2
    assert "cannot be read" in run.fn(str(tmp_path / "gone"))["error"]
    assert page.delete_cache == (upload.LEFT, upload.LEFT)  # Gradio takes it away


def test_what_uploads_leave_is_tidied(tmp_path: Path):
    for name in ("sha-old", "sha-new", "sha-used"):
        (tmp_path / name).mkdir()
    kept, left, fresh = tmp_path / "sha-used" / "t.jsonl", tmp_path / "tmpa", tmp_path / "tmpb"
    kept.write_text("x")
    left.touch()
    fresh.touch()
    for path in (left, tmp_path / "sha-old", tmp_path / "sha-used"):
        os.utime(path, (time.time() - 2 * upload.LEFT,) * 2)
    tidy(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {"sha-new", "sha-used", "tmpb"}
    assert kept.exists()


# ── what-if ──────────────────────────────────────────────────────────────────────────────────────


def test_the_estimate_never_stands_for_a_result_that_is_gone():
    whatifs = WhatIfs()
    curve = {each.__name__: each for each in whatifs.functions()}["curve"]
    asked = {"file": "fibonacci", "method": "ddtree", "options": {}}
    assert curve(asked)["cost"]["points"]
    for name in ("gone", "", 7, []):
        with pytest.raises(UserError, match="no longer on the server"):
            curve(asked | {"cost": name})


def test_the_least_recently_used_goes_first():
    kept: Kept[int] = Kept(2)
    kept.keep("a", 1)
    kept.keep("b", 2)
    assert kept.used("a") == 1
    kept.keep("c", 3)
    assert (kept.used("a"), kept.used("b"), kept.used("c")) == (1, None, 3)


def test_stop_is_switched_within_the_page():
    """Of two requests to the server the second might be answered first."""
    page = build(Desk(FakeEngine()), Choices.of())
    events = [fn for fn in page.fns.values() if fn.targets[0][1] in ("running", "settled")]
    assert len(events) == 6 and all(fn.fn is None and fn.js for fn in events)


# ── what is asked for ────────────────────────────────────────────────────────────────────────────


def test_denoising_asks_for_a_prompt_as_every_run_does():
    from app.studio.panel import LONGEST_PROMPT, checked_prompt

    assert checked_prompt("why?") == "why?"
    for prompt in ("", "  ", None, 7, "x" * (LONGEST_PROMPT + 1)):
        with pytest.raises(UserError, match="prompt"):
            checked_prompt(prompt)
        with pytest.raises(UserError, match="prompt"):
            denoise.asks({"prompt": prompt})
