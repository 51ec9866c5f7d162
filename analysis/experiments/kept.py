"""Finished work as lines of JSON, each kept by a key that tells what it was made of.

A stopped call loses only what it was in the middle of. Light: never torch.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from core.errors import UserError
from core.json_input import parse_json
from core.lines import open_regular


def key_of(*facts: Any) -> str:
    """A key that differs where any of these facts does; each must be plain data."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:24]


class Kept:
    """A file of lines ``{"key": …, "value": …}``. The last one of a key counts.

    Raises UserError when the file cannot be read or written. A last line that was cut short goes.
    """

    def __init__(self, path: Path):
        self.path, self._values = path, dict[str, Any]()
        try:
            data = b""
            if path.exists():
                with open_regular(path) as file:
                    data = file.read()
            whole = data.rfind(b"\n") + 1
            if whole < len(data):
                os.truncate(path, whole)
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
        for number, line in enumerate(data[:whole].split(b"\n")[:-1], 1):
            entry = parse_json(line, f"{path}, line {number}")
            if not isinstance(entry, dict) or not isinstance(entry.get("key"), str):
                raise UserError(f"{path}, line {number} holds no key: name another folder")
            self._values[entry["key"]] = entry.get("value")

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def get(self, key: str) -> Any:
        """What is kept there, or None."""
        return self._values.get(key)

    def add(self, key: str, value: Any) -> None:
        """Keep a value of plain data; it is on disk when this returns."""
        line = json.dumps({"key": key, "value": value}) + "\n"
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise UserError(f"{self.path} cannot be written: {error.strerror or error}") from None
        self._values[key] = value
