"""Collect the prompt of a run on view for What-if, in the background.

The studio's worker makes the file as it decodes runs: one after the other, with progress, and
stopped when the page is gone. A second question about the same prompt finds the file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import astuple
from pathlib import Path
from typing import Any

from app.studio import shipped
from app.studio.background import Background
from app.studio.engine import CollectRequest
from app.studio.methods import Methods
from app.studio.routes import GONE, Question, Route, get
from app.studio.runs import Runs
from app.view.text import flowing
from core.errors import UserError
from core.rounds.round import Sampling
from core.traces.schema import Header

MOST_TOKENS = 64  # of the collected text: a minute on two cores
MAX_TITLE = 40  # characters


class Collecting:
    """``add`` opens a finished file and returns the name by which What-if knows it."""

    def __init__(self, runs: Runs, methods: Methods, add: Callable[[Path], str]):
        self._runs, self._methods, self._add = runs, methods, add
        self._work = Background(runs, "collected")
        self._names: dict[Path, str] = {}  # of files that are open

    def routes(self) -> dict[str, Route]:
        return self._work.routes() | {"collect": self._collect, "collected": self._collected}

    def _collect(self, question: Question) -> Any:
        """Begin, for the run of a ticket: another ticket, of the work, and the run's setting."""
        run = self._runs.get(get(question, "ticket"))
        if run is None or run.header is None:
            return GONE
        ticket = self._work.begin(self._request(run.header))
        setting = {"method": run.header.method, "budget": run.header.settings.get("budget")}
        return {"ticket": ticket, "setting": setting}

    def _request(self, header: Header) -> CollectRequest:
        settings = header.settings
        sampling = Sampling(**settings.get("sampling", {}))
        tokens = min(MOST_TOKENS, max(2, settings.get("max_new_tokens", MOST_TOKENS)))
        methods = tuple(_listable([header.method, *shipped.COLLECTED], self._methods))
        key = repr((header.prompt_text, astuple(sampling), tokens, methods))
        name = hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()[:20]
        path = self._work.folder / f"{name}.safetensors"
        return CollectRequest(header.prompt_text, path, methods, tokens, sampling)

    def _collected(self, question: Question) -> Any:
        """What finished work made: the file's name in What-if, and a title."""
        otherwise = "this text is not collected: ask for it again"
        request = self._work.finished(question, CollectRequest, otherwise)
        path = request.path
        if path not in self._names:
            self._names[path] = self._add(path)
        return {"file": self._names[path], "title": flowing(request.prompt, MAX_TITLE)}


def _listable(names: Iterable[str], methods: Methods) -> Iterable[str]:
    """Those that the studio offers and a file can hold, one for each drafter."""
    from analysis.collection import check_listable, drafter_key

    found: dict[str, str] = {}
    for name in names:
        try:
            if methods.choice(name) is not None:
                check_listable(name)
                found.setdefault(drafter_key(name), name)
        except UserError:
            continue
    return found.values()
