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
from typing import Annotated, Any

import msgspec
from msgspec import Meta, structs

from core import ASSETS
from core.declared import convert
from core.errors import UserError, reading
from core.lines import open_regular
from core.models.hub import GGUF, Source
from core.rounds.draft import MAX_BUDGET

SHIPPED = ASSETS / "presets.toml"
Value = bool | int | float | str
Budget = Annotated[int, Meta(ge=1, le=MAX_BUDGET)]


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


def preset_of(name: str) -> Preset:
    """The preset of a model's name.

    That is a shipped preset, a preset of a file (``FILE.toml`` or ``FILE.toml#NAME``), or else a
    folder or a hub id with nothing beside it. Raises UserError for a file that is not a presets
    file and for a folder that does not exist.
    """
    path, mark, inside = name.partition("#")
    if path.endswith(".toml"):
        return _select(read_presets(Path(path).expanduser()), path, inside if mark else None)
    return shipped_presets().get(name) or Preset(name, Source.checked(name))


def _select(presets: Mapping[str, Preset], path: str, name: str | None) -> Preset:
    if name is None and len(presets) == 1:
        return next(iter(presets.values()))
    if name is None or name not in presets:
        raise UserError(f"choose a preset of {path} as {path}#NAME: {', '.join(presets)}")
    return presets[name]


@cache
def shipped_presets() -> Mapping[str, Preset]:
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
    return {name: _preset(path, name, entry) for name, entry in raw.items()}


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
    for preset in shipped_presets().values():
        if {Path(d.name).name.lower() for d in preset.drafters.values()}.isdisjoint(names):
            continue
        for key, value in preset.template.items():
            if template.get(key) != value:
                setting = f"{key}={str(value).lower()}"
                raise UserError(
                    f"the drafter {str(drafter)!r} was trained with the chat template's {setting}: "
                    f"add --template {setting}, or use --model {preset.name}"
                )


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A preset as a file has it: sources and the n-gram file are texts."""

    target: str
    about: str = ""
    drafters: dict[str, str] = {}
    ngram: str | None = None
    template: dict[str, Value] = {}
    chat_template: str = ""
    budgets: dict[str, Budget] = {}
    diffusion: bool = False
    parameters: Annotated[int, Meta(ge=1)] | None = None


def _preset(file: Path, name: str, raw: Any) -> Preset:
    """A preset of one entry of a file. Raises UserError, which names the place."""
    place = f"{file}, [{name}]"
    entry: _Entry = convert(raw, _Entry, place)
    fields: dict[str, Any] = structs.asdict(entry)
    fields |= {
        "target": _source(file, entry.target),
        "drafters": {kind: _source(file, text) for kind, text in entry.drafters.items()},
        "ngram": None if entry.ngram is None else _ngram(file, entry.ngram, place),
    }
    return Preset(name=name, **fields)


def _source(file: Path, text: str) -> Source:
    return Source(str(_path(file, text))) if _is_path(text) else Source.of(text)


def _path(file: Path, text: str) -> Path:
    """Relative paths start at the file's own folder."""
    return file.parent / Path(text).expanduser()


def _ngram(file: Path, text: str, place: str) -> Ngram:
    if _is_path(text):
        path = _path(file, text)
        return Ngram(Source(str(path.parent)), path.name)
    repository, slash, name = text.rpartition("/")
    if not slash or repository.count("/") != 1:
        raise UserError(f"{place}: ngram is a path, or hub-id/file, not {text!r}")
    return Ngram(Source.of(repository), name)


def _is_path(text: str) -> bool:
    """Whether a text is written as a path (./x, ../x, ~/x, /x) and not as a hub id."""
    return text.startswith((".", "~", "/"))
