"""Targets by short name, with their published drafters: ``assets/presets.toml`` and files like it.

Light: finding a preset imports neither torch nor the hub's library.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from core import ASSETS
from core.errors import UserError, reading
from core.lines import open_regular
from core.models.hub import GGUF, Source
from core.rounds.draft import MAX_BUDGET

SHIPPED = ASSETS / "presets.toml"
Value = bool | int | float | str
T = TypeVar("T")


@dataclass(frozen=True)
class Ngram:
    """An n-gram file: ``file`` in a folder or in a hub repository."""

    source: Source
    file: str


@dataclass(frozen=True)
class Preset:
    """A target and what goes with it. The fields are those of ``assets/presets.toml``."""

    name: str
    target: Source
    about: str = ""
    drafters: Mapping[str, Source] = field(default_factory=dict)
    ngram: Ngram | None = None
    template: Mapping[str, Value] = field(default_factory=dict)
    chat_template: str = ""
    budgets: Mapping[str, int] = field(default_factory=dict)
    diffusion: bool = False
    parameters: int | None = None


def find(name: str) -> Preset:
    """The preset of a model's name.

    That is a shipped preset, a preset of a file (``FILE.toml`` or ``FILE.toml#NAME``), or else a
    folder or a hub id with nothing beside it. Raises UserError for a file that is not a presets
    file and for a folder that does not exist.
    """
    path, mark, inside = name.partition("#")
    if path.endswith(".toml"):
        return _select(read_presets(Path(path).expanduser()), path, inside if mark else None)
    return shipped().get(name) or Preset(name, Source.checked(name))


def _select(presets: Mapping[str, Preset], path: str, name: str | None) -> Preset:
    if name is None and len(presets) == 1:
        return next(iter(presets.values()))
    if name is None or name not in presets:
        raise UserError(f"choose a preset of {path} as {path}#NAME: {', '.join(presets)}")
    return presets[name]


@cache
def shipped() -> Mapping[str, Preset]:
    return read_presets(SHIPPED)


def read_presets(path: Path) -> dict[str, Preset]:
    """Every preset of a file, by name. Raises UserError."""
    try:
        with reading(path), open_regular(path) as file:
            raw = tomllib.load(file)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not a presets file: {error}") from None
    if not raw:
        raise UserError(f"{path} holds no preset")
    return {name: _Entry(path, name).preset(entry) for name, entry in raw.items()}


def check_template(drafter: Source, template: Mapping[str, Value]) -> None:
    """Check that a published drafter gets the chat template it was trained with.

    The drafter is recognised by the name of its repository, or of a folder with this name; of a
    GGUF file by how its name begins. Raises UserError: with another template it would draft, but
    lose most of its acceptance.
    """
    name = Path(drafter.name).name.lower()
    names = {name}
    if name.endswith(GGUF):  # NAME.gguf, NAME-Q8_0.gguf
        names = {name[: mark.start()] for mark in re.finditer(r"[-._]", name)}
    for preset in shipped().values():
        if {Path(d.name).name.lower() for d in preset.drafters.values()}.isdisjoint(names):
            continue
        for key, value in preset.template.items():
            if template.get(key) != value:
                setting = f"{key}={str(value).lower()}"
                raise UserError(
                    f"the drafter {str(drafter)!r} was trained with the chat template's {setting}: "
                    f"add --template {setting}, or use --model {preset.name}"
                )


_EXPECTED = {
    str: "a text",
    dict: "a table",
    bool: "true or false",
    int: "a whole number above 0",
}


@dataclass(frozen=True)
class _Entry:
    """Reads one entry of a presets file; its place is part of every error."""

    path: Path
    name: str

    def preset(self, raw: Any) -> Preset:
        if not isinstance(raw, dict):
            raise self._error("a preset is a table, as in [my-model]")
        known = sorted(set(Preset.__dataclass_fields__) - {"name"})
        if unknown := sorted(set(raw) - set(known)):
            raise self._error(f"there is no field {unknown[0]!r} (fields: {', '.join(known)})")
        if "target" not in raw:
            raise self._error("it names no target")

        def get(key: str, default: T) -> T:
            return self._expect(key, raw.get(key, default), type(default))

        return Preset(
            name=self.name,
            target=self._source("target", raw["target"]),
            about=get("about", ""),
            drafters={k: self._source(k, v) for k, v in get("drafters", {}).items()},
            ngram=self._ngram(get("ngram", "")) if "ngram" in raw else None,
            template={k: self._value(k, v) for k, v in get("template", {}).items()},
            chat_template=get("chat_template", ""),
            budgets={k: self._budget(k, v) for k, v in get("budgets", {}).items()},
            diffusion=get("diffusion", False),
            parameters=get("parameters", 1) if "parameters" in raw else None,
        )

    def _source(self, key: str, value: Any) -> Source:
        text = self._expect(key, value, str)
        return Source(str(self._path(text))) if _is_path(text) else Source.of(text)

    def _path(self, text: str) -> Path:
        """Relative paths start at the file's own folder."""
        return self.path.parent / Path(text).expanduser()

    def _ngram(self, text: str) -> Ngram:
        if _is_path(text):
            path = self._path(text)
            return Ngram(Source(str(path.parent)), path.name)
        repository, slash, file = text.rpartition("/")
        if not slash or repository.count("/") != 1:
            raise self._error(f"ngram is a path, or hub-id/file, not {text!r}")
        return Ngram(Source.of(repository), file)

    def _value(self, key: str, value: Any) -> Value:
        if not isinstance(value, Value):
            raise self._error(f"template.{key} is true or false, a number or a text")
        return value

    def _budget(self, key: str, value: Any) -> int:
        budget = self._expect(key, value, int)
        if budget > MAX_BUDGET:
            raise self._error(f"the budget of {key} must be 1 to {MAX_BUDGET}, not {budget}")
        return budget

    def _expect(self, key: str, value: Any, kind: type[T]) -> T:
        if type(value) is not kind or (type(value) is int and value < 1):
            raise self._error(f"{key} is {_EXPECTED[kind]}, not {value!r}")
        return value

    def _error(self, fault: str) -> UserError:
        return UserError(f"{self.path}, [{self.name}]: {fault}")


def _is_path(text: str) -> bool:
    """Whether a text is written as a path (./x, ../x, ~/x, /x) and not as a hub id."""
    return text.startswith((".", "~", "/"))
