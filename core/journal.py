"""Finished work as lines of JSON, so that a kill at any moment loses no finished part and doubles
none. Light: never torch.

A part is a line ``{"key": …, "value": …}``, on disk before anything else goes on. What is too large
for a line is a file that has its name before its line is written. The first line says what the work
is made of.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from core.errors import UserError, reading, writing
from core.files import LOCK, held
from core.json_input import parse_json
from core.lines import open_regular
from core.visible import visible

MADE_OF = "made of"  # the key of the first line
FILE = "journal.jsonl"


def key_of(*facts: Any) -> str:
    """A key that differs where any of these facts does; each must be plain data."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:24]


class Journal:
    """A file of finished parts; the last line of a key counts, and a last line that was cut short
    goes. None: in memory.

    Raises UserError when the file cannot be read or written.
    """

    def __init__(self, path: Path | None):
        self.path, self._values = path, dict[str, Any]()
        if path is None:
            return
        with reading(path):
            data = b""
            if path.exists():
                with open_regular(path) as file:
                    data = file.read()
            whole = data.rfind(b"\n") + 1
            if whole < len(data):
                os.truncate(path, whole)
        for number, line in enumerate(data[:whole].split(b"\n")[:-1], 1):
            entry = parse_json(line, f"{path}, line {number}")
            if not isinstance(entry, dict) or not isinstance(entry.get("key"), str):
                raise UserError(f"{path}, line {number} holds no key: name another folder")
            self._values[entry["key"]] = entry.get("value")

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def get(self, key: str) -> Any:
        """Return the value that is kept under ``key``, or None."""
        return self._values.get(key)

    def add(self, key: str, value: Any) -> None:
        """Keep a value of plain data; it is on disk when this returns."""
        line = json.dumps({"key": key, "value": value}) + "\n"
        if self.path is not None:
            with writing(self.path), self.path.open("a", encoding="utf-8") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        self._values[key] = json.loads(json.dumps(value))

    def made(self, key: str, make: Callable[[], Any]) -> Any:
        """Return the value that is kept under ``key``; where there is none, make it and keep it."""
        if key not in self._values:
            self.add(key, make())
        return self._values[key]


def plan_difference(old: Any, new: Any, name: str = "plan") -> str:
    """Name the first thing in which two plans (plain data) differ; empty where they are equal."""
    if old == new:
        return ""
    if isinstance(old, dict) and isinstance(new, dict):
        parts = (
            plan_difference(old.get(key), new.get(key), key) for key in dict.fromkeys([*new, *old])
        )
        return next(filter(None, parts), "")
    name = visible(name.replace("_", "-"), 40)
    if any(isinstance(value, (dict, list)) for value in (old, new)):
        return f"its {name} differs"
    was, now = (visible(json.dumps(value), 80) for value in (old, new))
    return f"its {name} is {was}, not {now}"


@contextmanager
def open_journal(folder: Path, what: str, made_of: Any, anew: bool = False) -> Iterator[Journal]:
    """The journal of the work ``what`` in its folder, made if need be, for this process alone.

    made_of  plain data that says what the work is made of
    anew     other work goes, and what cannot be read

    Raises UserError for a folder that holds other work, where another process is at work, or that
    cannot be written.
    """
    with alone(folder, what, resumes=True):
        new = json.loads(json.dumps(made_of))
        journal = _fresh(folder / FILE, new) if anew else Journal(folder / FILE)
        old = journal.get(MADE_OF)
        if old not in (None, new):
            other = plan_difference(old, new) or "its plan differs"
            raise UserError(f"{folder} holds another {what} ({other}): name another folder")
        if old != new:
            journal.add(MADE_OF, new)
        yield journal


def _fresh(path: Path, made_of: Any) -> Journal:
    """The journal there if it is made of this, else an empty one."""
    try:
        journal = Journal(path)
        if journal.get(MADE_OF) == made_of:
            return journal
    except UserError:
        pass
    with writing(path):
        path.unlink(missing_ok=True)
    return Journal(path)


@contextmanager
def alone(folder: Path, what: str, resumes: bool = False) -> Iterator[None]:
    """Hold the folder, which is made. Raises UserError where another process holds it (``what`` is
    at work) and where it cannot be written.

    resumes  whether work that was stopped goes on from what the folder holds: Ctrl-C says so
    """
    busy = UserError(f"another {what} is at work in {folder}")
    with ExitStack() as stack:
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(held(folder / LOCK, busy, goes=True))
        try:
            yield
        except KeyboardInterrupt:
            if not resumes:
                raise
            raise KeyboardInterrupt(f"the same command continues from {folder}") from None
