"""Targets by short name, with their published drafters: ``assets/presets.toml`` and files like it.

Light: looking a name up imports neither torch nor the hub's library.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from core import ASSETS
from core.errors import UserError
from core.models.hub import Source
from core.rounds.draft import MAX_BUDGET

SHIPPED = ASSETS / "presets.toml"
Value = bool | int | float | str


@dataclass(frozen=True)
class Ngram:
    """An n-gram file: on this machine, or ``file`` of a hub repository."""

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
    budgets: Mapping[str, int] = field(default_factory=dict)
    diffusion: bool = False
    parameters: int | None = None


def find(name: str) -> Preset:
    """The preset a model's name means.

    One of the shipped ones by its name, one of a file as ``FILE.toml`` or ``FILE.toml#NAME``; any
    other name is a folder or a hub id, with nothing beside it. Raises UserError for a file that is
    no presets file, and for a folder that is not there.
    """
    path, mark, inside = name.partition("#")
    if path.endswith(".toml"):
        return _chosen(read_presets(Path(path).expanduser()), path, inside if mark else None)
    return shipped().get(name) or Preset(name, Source.typed(name))


def _chosen(presets: Mapping[str, Preset], path: str, name: str | None) -> Preset:
    if name is None and len(presets) == 1:
        return next(iter(presets.values()))
    if name is None or name not in presets:
        raise UserError(f"choose a preset of {path} as {path}#NAME: {', '.join(presets)}")
    return presets[name]


@cache
def shipped() -> Mapping[str, Preset]:
    """The presets that ship, by name."""
    return read_presets(SHIPPED)


def read_presets(path: Path) -> dict[str, Preset]:
    """Every preset of a file, by name. Raises UserError with one sentence."""
    try:
        raw = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"{path} is no presets file: {error}") from None
    if not raw:
        raise UserError(f"{path} holds no preset")
    return {name: _Reading(path, name).preset(entry) for name, entry in raw.items()}


def trained_with(drafter: Source, template: Mapping[str, Value]) -> None:
    """Check that a published drafter meets the chat template it was trained with.

    It is told by its repository's name, also where a folder of that name holds it. Raises
    UserError: in another mode it would draft, and lose most of its acceptance.
    """
    called = Path(drafter.name).name.lower()
    for preset in shipped().values():
        if called not in {Path(d.name).name.lower() for d in preset.drafters.values()}:
            continue
        for key, value in preset.template.items():
            if template.get(key) != value:
                setting = f"{key}={str(value).lower()}"
                raise UserError(
                    f"the drafter {str(drafter)!r} was trained with the chat template's {setting}: "
                    f"add --template {setting}, or use --model {preset.name}"
                )


@dataclass(frozen=True)
class _Reading:
    """One entry being read: where it stands, for what is wrong with it."""

    path: Path
    name: str

    def preset(self, raw: Any) -> Preset:
        if not isinstance(raw, dict):
            raise self._wrong("a preset is a table, as in [my-model]")
        known = sorted(set(Preset.__dataclass_fields__) - {"name"})
        if unknown := sorted(set(raw) - set(known)):
            raise self._wrong(f"there is no field {unknown[0]!r} (fields: {', '.join(known)})")
        if "target" not in raw:
            raise self._wrong("it names no target")
        table, word = self._table, self._word
        budgets = {k: self._budget(k, v) for k, v in table(raw, "budgets").items()}
        drafters = {k: self._source(word(k, v)) for k, v in table(raw, "drafters").items()}
        parameters = raw.get("parameters")
        return Preset(
            name=self.name,
            target=self._source(word("target", raw["target"])),
            about=word("about", raw.get("about", "")),
            drafters=drafters,
            ngram=self._ngram(word("ngram", raw["ngram"])) if "ngram" in raw else None,
            template={k: self._value(k, v) for k, v in table(raw, "template").items()},
            budgets=budgets,
            diffusion=self._flag("diffusion", raw.get("diffusion", False)),
            parameters=None if parameters is None else self._count("parameters", parameters),
        )

    def _source(self, text: str) -> Source:
        """A path that says so (./x, ../x, ~/x, /x) is read from the file's own folder."""
        if text.startswith((".", "~", "/")):
            return Source(str(self._path(text)))
        return Source.of(text)

    def _path(self, text: str) -> Path:
        return self.path.parent / Path(text).expanduser()

    def _ngram(self, text: str) -> Ngram:
        if text.startswith((".", "~", "/")):
            path = self._path(text)
            return Ngram(Source(str(path.parent)), path.name)
        repository, slash, file = text.rpartition("/")
        if not slash or repository.count("/") != 1:
            raise self._wrong(f"ngram is a path, or hub-id/file, not {text!r}")
        return Ngram(Source.of(repository), file)

    def _table(self, raw: Mapping[str, Any], key: str) -> dict[str, Any]:
        found = raw.get(key, {})
        if not isinstance(found, dict):
            raise self._wrong(f"{key} is a table")
        return found

    def _word(self, key: str, value: Any) -> str:
        if not isinstance(value, str):
            raise self._wrong(f"{key} is a text, not {value!r}")
        return value

    def _value(self, key: str, value: Any) -> Value:
        if not isinstance(value, bool | int | float | str):
            raise self._wrong(f"template.{key} is yes or no, a number or a text")
        return value

    def _flag(self, key: str, value: Any) -> bool:
        if not isinstance(value, bool):
            raise self._wrong(f"{key} is true or false, not {value!r}")
        return value

    def _count(self, key: str, value: Any) -> int:
        if type(value) is not int or value < 1:
            raise self._wrong(f"{key} is a whole number above 0, not {value!r}")
        return value

    def _budget(self, key: str, value: Any) -> int:
        count = self._count(key, value)
        if count > MAX_BUDGET:
            raise self._wrong(f"the budget of {key} must be 1 to {MAX_BUDGET}, not {count}")
        return count

    def _wrong(self, what: str) -> UserError:
        return UserError(f"{self.path}, [{self.name}]: {what}")
