"""A run in a notebook: the offline file in a frame of its own.

    from app.notebook import show
    show("run.jsonl", round=3)             # or a Trace; two of them are compared

The frame is sandboxed: its scripts reach neither the notebook's page nor the network, and two
views on one page share nothing.
"""

from __future__ import annotations

from functools import cached_property
from html import escape
from pathlib import Path

from app.commands.common import pick
from app.export.offline import offline_page
from core.errors import UserError
from core.traces.reader import read_trace
from core.traces.schema import Trace

HEIGHT = 900  # pixels


class View:
    """The output of a cell. ``html`` is the offline file, ``save`` writes it."""

    def __init__(self, traces: list[Trace], height: int = HEIGHT, round: int | None = None):
        if not (isinstance(height, int) and 200 <= height <= 10_000):
            raise UserError("a view's height is from 200 to 10,000 pixels")
        self._traces, self._height = traces, height
        self._opens = 0
        if round is not None and traces:
            self._opens = traces[0].rounds.index(pick(traces[0], round))

    @cached_property
    def html(self) -> str:
        return offline_page(self._traces, opens=self._opens)

    def save(self, path: str | Path) -> Path:
        """Write the offline file; returns its path."""
        Path(path).write_text(self.html, encoding="utf-8")
        return Path(path)

    def _repr_html_(self) -> str:
        return (
            '<iframe sandbox="allow-scripts allow-downloads" referrerpolicy="no-referrer" '
            'title="Draftscope: a recorded run" loading="lazy" width="100%" '
            f'height="{self._height}" style="border:0;border-radius:8px" '
            f'srcdoc="{escape(self.html, quote=True)}"></iframe>'
        )


def show(*runs: str | Path | Trace, height: int = HEIGHT, round: int | None = None) -> View:
    """One run, or two side by side, from trace files or traces. ``round``: the one that it opens
    at, from 1, of the first run.

    Raises UserError, with one sentence, for anything else, and for a round that is not there.
    """
    traces = [run if isinstance(run, Trace) else read_trace(Path(run)) for run in runs]
    return View(traces, height, round)
