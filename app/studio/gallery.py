"""The example traces that ship, and files given on the command line: what there is to choose
from, and one of them opened.

A name that comes from a page is looked up in the list of files, never joined to a path.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from app.studio.listing import Listing, OpenFile, is_denoising, title_of
from app.view.text import flowing, visible
from core import ASSETS
from core.errors import UserError
from core.methods.registry import RECIPES
from core.traces.reader import TraceReader, read_trace
from core.traces.schema import Trace

TRACES = ASSETS / "traces"
ORDER = ("maths", "code", "chat")  # then whatever else lies there


@dataclass(frozen=True)
class Gallery:
    """The traces of a folder, by file name without its ending, and before them a list of files."""

    folder: Path = TRACES
    listing: Listing = field(default_factory=Listing)

    @cached_property
    def files(self) -> dict[str, Path]:
        return {f.name.removesuffix(".jsonl.gz"): f for f in sorted(self.folder.glob("*.jsonl.gz"))}

    @property
    def shelf(self) -> list[dict[str, Any]]:
        """What the page offers: the given files in one entry, then one per prompt with its runs."""
        return [*self.listing.group(denoised=False), *self._usual]

    @property
    def denoised(self) -> list[dict[str, Any]]:
        """The same of the denoising runs."""
        return [*self.listing.group(denoised=True), *self._denoised]

    @cached_property
    def _usual(self) -> list[dict[str, Any]]:
        return self._shelf(denoised=False)

    @cached_property
    def _denoised(self) -> list[dict[str, Any]]:
        return self._shelf(denoised=True)

    def _shelf(self, denoised: bool) -> list[dict[str, Any]]:
        topics: dict[str, dict[str, Any]] = {}
        for name in self.files:
            told = self._told(name)
            if is_denoising(told["method"]) != denoised:
                continue
            topic = told.pop("topic")
            entry = topics.setdefault(topic, {"topic": topic, "prompt": told["prompt"], "runs": []})
            entry["runs"].append(told)
        for entry in topics.values():
            entry["runs"].sort(key=lambda run: run.pop("order"))
        place = {topic: at for at, topic in enumerate(ORDER)}
        return sorted(
            topics.values(), key=lambda e: (place.get(e["topic"], len(ORDER)), e["topic"])
        )

    def trace(self, name: object) -> Trace:
        """Raises UserError for a name that is none of them."""
        file = self.files.get(name) if isinstance(name, str) else None
        if file is None:
            raise UserError("there is no such example")
        return read_trace(file)

    def opened(self, name: object) -> Trace | TraceReader:
        """Also one of the given files, which may be long: that is still to be read.

        Raises UserError for a name that is none of them, and for a file that is no trace."""
        given = self.listing.file(name)
        return self.trace(name) if given is None else OpenFile(given.path)

    def _told(self, name: str) -> dict[str, Any]:
        lines = gzip.decompress(self.files[name].read_bytes()).splitlines()
        header, footer = json.loads(lines[0]), json.loads(lines[-1])
        method, budget = header["method"], header["settings"].get("budget")
        methods = list(RECIPES)
        return {
            "name": name,
            "method": visible(method),
            "topic": name.split("-")[0],
            "title": title_of(method, header["settings"]),
            "order": (methods.index(method) if method in methods else len(methods), budget or 0),
            "tau": footer.get("tau"),
            "rounds": footer.get("rounds"),
            "prompt": flowing(header["prompt_text"], 400),
        }
