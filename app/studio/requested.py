"""The names that an address gives to runs, so that a link shows them in another browser.

An example is its name, a live run the request that started it: the same request writes the same
text again. A file cannot be in an address, nor can a method that a file of this machine defines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from app.studio.engine import Request
from app.studio.methods import SHARED, MethodChoice, Methods, mapping, requests
from core.decoding.request import RunRequest
from core.diffusion.request import DenoiseRequest
from core.errors import UserError

Said = str | dict[str, Any] | bool | None
UNSAID = False  # a live run that an address cannot hold
DEFAULTS = {each.name: each.default for each in fields(RunRequest)}
MOST = 4  # requests of one address


def said_of(request: Request | None) -> Said:
    """A request's settings that are not the usual ones; None for a file, which has no request."""
    if request is None:
        return None
    if isinstance(request, RunRequest):
        return _run(request)
    return _denoise(request) if isinstance(request, DenoiseRequest) else UNSAID


def _run(request: RunRequest) -> Said:
    if request.method.endswith(".py"):
        return UNSAID
    names = ("method", "budget", *SHARED)
    changed = {n: v for n in names if (v := getattr(request, n)) != DEFAULTS[n]}
    options = {"options": dict(request.options)} if request.options else {}
    return {"prompt": request.prompt, **changed, **options}


def _denoise(request: DenoiseRequest) -> Said:
    """By the names of the form's inputs (``tabs.denoise.requests``)."""
    graph = int(request.graph or 0)
    said = {"prompt": request.prompt, "graph": graph, "length": request.length}
    said |= request.pace.to_json()
    also = {"block": request.block, "ahead": request.ahead}
    said |= {name: value for name, value in also.items() if value is not None}
    return said | {"temperature": request.temperature, "seed": request.seed}


def requests_of(methods: Methods, asked: Sequence[Mapping[str, Any]]) -> list[RunRequest]:
    """The requests of an address; whoever wrote it is not believed. Raises UserError for what this
    page does not offer, and for what no run can have."""
    return [_request(methods, each) for each in asked[:MOST]]


def _request(methods: Methods, asked: Mapping[str, Any]) -> RunRequest:
    name, given = asked.get("method", DEFAULTS["method"]), asked.get("options")
    choice = methods.choice(name) if isinstance(name, str) else None
    if choice is None:
        raise UserError("this page does not offer the method that the address names")
    shared = {name: asked.get(name, DEFAULTS[name]) for name in SHARED}
    budget = asked.get("budget")
    own = MethodChoice(
        *choice, methods.budget(choice[0], 64) if budget is None else budget, mapping(given)
    )
    return requests(methods, asked.get("prompt"), shared, [own])[0]
