"""Diagnose a drafter in the background, as the command ``diagnose`` does."""

from __future__ import annotations

import secrets
from typing import Any

from app.studio.background import Background
from app.studio.engine import DiagnoseRequest
from app.studio.methods import Methods
from app.studio.routes import Question, Route, get
from app.studio.runs import Runs
from core.errors import UserError
from core.json_input import read_json
from core.methods.registry import find


class Diagnosing:
    def __init__(self, runs: Runs, methods: Methods):
        self._work, self._methods = Background(runs, "diagnosed"), methods

    def routes(self) -> dict[str, Route]:
        """Without those that every view of runs has."""
        return {
            "drafters": lambda _: {"methods": self._drafters()},
            "diagnose": self._diagnose,
            "diagnosed": self._diagnosed,
        }

    def _drafters(self) -> list[list[str]]:
        """(name, title) of the methods whose drafter has weights, and so tells q."""
        infos = [(find(name).drafter_info, title, name) for title, name in self._methods.titles]
        return [[name, title] for info, title, name in infos if info and info.checkpoint]

    def _diagnose(self, question: Question) -> Any:
        method = get(question, "method")
        if method not in [name for name, _ in self._drafters()]:
            raise UserError("this page does not offer that drafter")
        path = self._work.folder / f"{secrets.token_hex(8)}.json"
        return {"ticket": self._work.begin(DiagnoseRequest(str(method), path))}

    def _diagnosed(self, question: Question) -> Any:
        """What ``diagnose --json`` prints."""
        otherwise = "this diagnosis is not there: ask for it again"
        request = self._work.finished(question, DiagnoseRequest, otherwise)
        return read_json(request.path)
