"""The names that an address gives to runs, so that a link shows them in another browser.

An example is its name, a live run the request that started it: the same request writes the same
text again. A file cannot be in an address, nor can a method that a file of this machine defines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from app.studio.engine import Request
from app.studio.methods import (
    SHARED,
    MethodChoice,
    Methods,
    checked_prompt,
    finite_number,
    mapping,
    requests,
)
from core.decoding.request import RunRequest
from core.diffusion.draft_graph_search import BUDGETS
from core.diffusion.pace import Pace
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
    """Values by the names that ``denoising_of`` reads."""
    graph = int(request.graph or 0)
    said = {"prompt": request.prompt, "graph": graph, "length": request.length}
    said |= request.pace.to_json()
    also = {"block": request.block, "ahead": request.ahead}
    said |= {name: value for name, value in also.items() if value is not None}
    return said | {"temperature": request.temperature, "seed": request.seed}


def requests_of(
    methods: Methods, asked: Sequence[Mapping[str, Any]]
) -> list[RunRequest | DenoiseRequest]:
    """The requests of an address; whoever wrote it is not believed. Raises UserError for what this
    page does not offer, and for what no run can have."""
    return [
        denoising_of({**USUAL, **each})[0] if "graph" in each else _request(methods, each)
        for each in asked[:MOST]
    ]


def _request(methods: Methods, asked: Mapping[str, Any]) -> RunRequest:
    name, given = asked.get("method", DEFAULTS["method"]), asked.get("options")
    choice = methods.choice(name) if isinstance(name, str) else None
    if choice is None:
        raise UserError("this page does not offer that method")
    shared = {name: asked.get(name, DEFAULTS[name]) for name in SHARED}
    budget = asked.get("budget")
    own = MethodChoice(
        *choice, methods.budget(choice[0], 64) if budget is None else budget, mapping(given)
    )
    return requests(methods, asked.get("prompt"), shared, [own])[0]


# ── denoising ────────────────────────────────────────────────────────────────────────────────────

OWN_AHEAD = -1  # an empty number would be shown, and sent, as 0
NO_GRAPH = 0  # plain denoising alone
USUAL: Mapping[str, Any] = {
    "length": 64, "block": 0, "tokens": 1, "ahead": OWN_AHEAD, "temperature": 0, "seed": 0,
}  # fmt: skip


def denoising_of(values: Mapping[str, Any]) -> list[DenoiseRequest]:
    """Spiffy first, then plain; one run without a graph. A browser wrote it, as a form or as an
    address; with a ``threshold`` no number of ``tokens`` is read.

    Raises UserError with a sentence about what is amiss.
    """
    prompt, threshold = checked_prompt(values.get("prompt")), values.get("threshold")
    pace = (
        Pace(_whole(values, "tokens"))
        if threshold is None
        else Pace(threshold=finite_number(threshold))
    )
    pace.check()
    nodes = _whole(values, "graph")
    if nodes not in (NO_GRAPH, *BUDGETS):
        raise UserError("choose one of the draft graphs, or none")
    ahead = finite_number(values["ahead"])
    plain = DenoiseRequest(
        prompt,
        _whole(values, "length"),
        _whole(values, "block") or None,
        pace,
        temperature=finite_number(values["temperature"]),
        seed=_whole(values, "seed"),
        ahead=None if ahead == OWN_AHEAD else ahead,
    )
    return [replace(plain, graph=str(nodes)), plain] if nodes else [plain]


def _whole(values: Mapping[str, Any], name: str) -> int:
    value = finite_number(values[name])
    if value != int(value):
        raise UserError(f"{name} must be a whole number")
    return int(value)
