"""Work of the studio's worker that has no rounds: begun by a ticket, followed and stopped by it.

What it makes lies in a file in a folder of the server's, at the request's ``path``.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, TypeVar

from app.studio.engine import Request
from app.studio.routes import Question, Route, get, whole
from app.studio.runs import DONE, Runs
from core.errors import UserError

T = TypeVar("T")


class Background:
    """The queue of runs as a queue of other work."""

    def __init__(self, runs: Runs, name: str):
        self.runs = runs
        self._folder = tempfile.TemporaryDirectory(prefix=f"draftscope-{name}-")
        self.folder = Path(self._folder.name)

    def routes(self) -> dict[str, Route]:
        return {
            "updates": lambda q: self.runs.updates(get(q, "ticket"), whole(get(q, "since")) or 0),
            "stop": self._stop,
        }

    def begin(self, request: Request) -> str:
        """The work's ticket. Raises UserError when too much waits."""
        (ticket,) = self.runs.submit(request)
        return ticket

    def finished(self, question: Question, kind: type[T], otherwise: str) -> T:
        """The request of finished work. Raises UserError, with ``otherwise``, for anything else."""
        run = self.runs.get(get(question, "ticket"))
        if run is None or not isinstance(run.request, kind) or run.state != DONE:
            raise UserError(otherwise)
        return run.request

    def _stop(self, question: Question) -> Any:
        self.runs.stop(get(question, "ticket"))
        return {}
