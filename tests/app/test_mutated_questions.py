"""Some 17,000 damaged questions to every route of the page: each has an answer, or one sentence.

In this process, as the page's views ask; ``test_faults.py`` sends some over HTTP.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("gradio")

from app.studio import faults
from app.studio.methods import Methods
from app.studio.runs import Runs
from app.studio.server import build
from core.traces.schema import Header, Trace
from tests.helpers.fakes import FakeEngine, make_header, make_run
from tests.helpers.mutants import (
    HOLE,
    NASTY,
    UNSEEN,
    at_most,
    denoising,
    in_little_memory,
    of_json,
    placed,
    places,
)

MANY, FEW = 250, 8
SECONDS = 10.0  # of processor time that one answer may take
SLOW = {"calibrate", "measure", "why", "simulate", "curve", "about", "course", "export", "table"}
VIEWS = {  # the question that each view's routes answer, beside what all have
    "ds-scope": {},
    "ds-c-scope": {},
    "ds-k-scope": {},
    "ds-w-scope": {"file": "fibonacci", "method": "ddtree", "options": {}, "budget": 8},
    "ds-d-scope": {"ticket": "blocks", "tickets": ["blocks"], "form": "trace"},
    "ds-results": {"kept": [{"name": "a"}]},
    "ds-learn": {},
    "ds-options": {"method": "ddtree"},
}

Answer = Callable[[object], Any]


@pytest.fixture(scope="module")
def routes() -> Iterator[tuple[dict[str, str], dict[str, dict[str, Answer]]]]:
    """Tickets of two runs, and each view's routes."""
    runs = Runs(FakeEngine())
    page = build(runs, Methods.of())
    made = {
        "tree": runs.open(Trace(make_header("why?"), tuple(make_run(2)), {})),
        "blocks": runs.open(Trace(Header("denoise", {}, {}, "", ()), denoising(), {})),
    }
    found: dict[str, dict[str, Answer]] = {}
    for part in page.blocks.values():
        if fns := getattr(part, "server_fns", None):
            found[str(part.elem_id)] = {fn.__name__: fn for fn in fns}
    yield made, found
    page.close(verbose=False)


def whole(tickets: dict[str, str], view: str) -> dict[str, Any]:
    """A question with every field that the view's routes read."""
    place = {"ticket": "tree", "round": 0, "row": 1}
    question: dict[str, Any] = {
        **place, "since": 0, "token": 1, "form": "dot", "open": [1], "whole": False,
        "tickets": ["tree"], "letters": "A", "places": [place, None], "name": "chat-ar",
        "records": [{"x": 1}], "asked": [{"prompt": "a", "method": "ddtree", "budget": 4}],
        "left": True, "quietly": True, "place": 0, "depth": 1, "unit": "nodes",
    }  # fmt: skip
    text = json.dumps(question | VIEWS[view])
    for name, ticket in tickets.items():
        text = text.replace(json.dumps(name), json.dumps(ticket))
    return json.loads(text)


def damaged(good: object, count: int, rng: random.Random) -> Iterator[object]:
    """The question with every field in turn as something else, and with several damages."""
    at = [place for place in places(good) if place]
    for number in range(count):
        if number % 2:
            text = json.dumps(placed(good, at[number // 2 % len(at)], HOLE))
            data = text.replace(json.dumps(HOLE), rng.choice(NASTY)).encode()
        else:
            data = json.dumps(good).encode()
            for _ in range(rng.choice((1, 1, 2))):
                data = of_json(data, rng)
        try:
            yield json.loads(data)
        except (ValueError, RecursionError):  # no JSON: it comes to no route
            yield rng.choice((None, [], 3, "x", {"ticket": 1e300}))


def test_every_view_is_asked(routes):
    views = {view for view in routes[1] if not view.startswith("ds-slot-")}
    assert views == set(VIEWS)


@pytest.mark.parametrize("view", VIEWS)
@in_little_memory()
def test_a_damaged_question_is_answered_or_refused_with_one_sentence(
    routes, view: str, caplog: pytest.LogCaptureFixture
):
    tickets, found = routes
    good, rng, answered = whole(tickets, view), random.Random(view), 0
    for name, ask in found[view].items():
        for question in damaged(good, FEW if name in SLOW else MANY, rng):
            with at_most(SECONDS):
                answer = ask(question)
            said = answer.get("error") if isinstance(answer, dict) else None
            json.dumps(answer, allow_nan=False)
            if said is None:
                answered += 1
                continue
            assert isinstance(said, str) and 5 < len(said) < 1100, (name, question)
            assert not UNSEEN.search(said) and "\n" not in said, (name, said)
            assert "could not work this out" not in said, (name, said, question)
    assert answered > 0
    bugs = [each.getMessage() for each in caplog.records if each.name == faults.LOG.name]
    assert not bugs, bugs[:3]
