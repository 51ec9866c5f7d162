"""What the page is told of the files given on the command line, and one of them opened.

Headers are read when somebody first looks, which takes a moment for hundreds of files. τ stands
behind all rounds of a file, so that is read beside, and the page asks again.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from app.trace_files import TraceFile, TraceFiles
from app.view.denoise import run_title
from app.view.rounds import method_name
from app.view.text import flowing, visible
from core.diffusion.graph import PLAIN, SPIFFY
from core.errors import UserError
from core.methods.registry import RECIPES
from core.rounds.round import Round
from core.traces.reader import TraceReader, read_ends

HEADING = "From the command line"
LABEL, PROMPT, TROUBLE = 160, 120, 200  # characters that are shown of each


def is_denoising(method: object) -> bool:
    return method in (PLAIN, SPIFFY)


def title_of(method: str, settings: Mapping[str, Any]) -> str:
    """A run in a few words: its method, and the budget where the method has one."""
    if is_denoising(method):
        return visible(run_title(settings))
    recipe, budget = RECIPES.get(method), settings.get("budget")
    budgeted = method != "dflash" and (recipe is None or recipe.drafter is not None)
    title = recipe.title if recipe else method_name(method)
    return visible(f"{title}, B = {budget}" if budgeted and type(budget) is int else title)


@dataclass(frozen=True)
class Told:
    """What is known of a file so far. ``trouble``: why it cannot be opened."""

    title: str = ""
    prompt: str = ""
    denoised: bool = False
    result: str = "…"
    trouble: str = ""

    @property
    def words(self) -> str:
        return self.trouble or f"{self.title} · {self.result}"


class Listing:
    """The files by the names that a page asks for them by; no other file is ever opened."""

    def __init__(self, given: TraceFiles | None = None):
        given = given or TraceFiles()
        self._files = {file.name: file for file in given.files}
        self._note = given.note
        self._told: dict[str, Told] = {}
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read_on, name="draftscope-list", daemon=True)

    def group(self, denoised: bool) -> list[dict[str, Any]]:
        """The shelf's group of them, of denoising runs or of the others; none where it is empty."""
        self._look()
        told = [(name, t) for name, t in self._told.items() if t.denoised == denoised]
        files = [self._entry(self._files[name], about) for name, about in told]
        group = {"topic": HEADING, "note": self._note, "files": files}
        return [group | {"reading": self._reader.is_alive()}] if files else []

    def file(self, name: object) -> TraceFile | None:
        return self._files.get(name) if isinstance(name, str) else None

    def _entry(self, file: TraceFile, told: Told) -> dict[str, Any]:
        return {
            "name": file.name,
            "label": visible(file.label, LABEL),
            "words": told.words,
            "prompt": told.prompt,
            "opens": not told.trouble,
        }

    def _look(self) -> None:
        """Every header, once."""
        with self._lock:
            if self._told or not self._files:
                return
            self._told = {name: _about(file) for name, file in self._files.items()}
            self._reader.start()

    def _read_on(self) -> None:
        for name, told in list(self._told.items()):
            if not told.trouble:
                self._told[name] = replace(told, result=_result(self._files[name], told.denoised))


def _about(file: TraceFile) -> Told:
    try:
        header = file.header()
        title = title_of(header.method, header.settings)
        return Told(title, flowing(header.prompt_text, PROMPT), is_denoising(header.method))
    except Exception as error:
        return Told(trouble=_reason(error))


def _result(file: TraceFile, denoised: bool) -> str:
    try:
        footer = read_ends(file.path).footer
    except Exception as error:
        return _reason(error)
    if footer is None:
        return "interrupted"
    tau, calls = footer.get("tau"), footer.get("rounds")
    if denoised:
        return visible(f"{calls} model calls") if type(calls) is int else "no calls"
    return visible(f"τ {tau:.2f}") if type(tau) is float and math.isfinite(tau) else "no τ"


def _reason(error: Exception) -> str:
    """In a sentence: one broken file among many is no failure of the list."""
    if isinstance(error, UserError):
        return visible(str(error), TROUBLE)
    logging.getLogger(__name__).error("a listed file could not be read", exc_info=error)
    return f"this file could not be read ({type(error).__name__})"


def address_end(given: TraceFiles | None) -> str:
    """What the page's address ends with to open the only given file at once; the tab of denoising
    runs has no links."""
    files = given.files if given else ()
    with suppress(UserError):
        if len(files) == 1 and not is_denoising(files[0].header().method):
            return f"/#trace={files[0].name}"
    return ""


class OpenFile(TraceReader):
    """A trace file that is read as its rounds are asked for, and closed behind the last of them."""

    def __init__(self, path: Path):
        self._open = _opened(path)
        try:
            super().__init__(self._open, path.name)
        except BaseException:
            self._open.close()
            raise

    def __iter__(self) -> Iterator[Round]:
        with self._open:
            yield from super().__iter__()


def _opened(path: Path) -> IO[bytes]:
    try:
        return path.open("rb")
    except OSError as error:
        raise UserError(f"{path.name} cannot be read: {error.strerror or error}") from None
