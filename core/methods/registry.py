"""The list of methods, drafters and builders, and how a name becomes a method. Light: never torch.

A method is given by one of three kinds of names: a listed one ("treeflash"), any drafter with any
builder ("dflash+opt-tree"), or the path of a Python file whose ``METHOD`` is a ``Method``. The
first two may name their drafter's checkpoint ("treeflash@runs/mine"), so that one command can run
several of a kind. ``core.methods.names`` lists the names.
"""

from __future__ import annotations

import runpy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path

from core import ASSETS
from core.errors import UserError
from core.methods.method import (
    BuilderInfo,
    DrafterInfo,
    Method,
    Options,
    TrainingInfo,
    Value,
    find_builder,
    find_drafter,
    lazy,
    shown_name,
)
from core.methods.names import BUILDERS, DEFAULT, DRAFTERS, METHODS
from core.models import presets
from core.models.hub import Source
from core.models.presets import Preset


def find_method(name: str) -> Method:
    """The method of a name: listed, "drafter+builder", either with "@checkpoint", or a file's own.

    Raises UserError for a name that is not a method's, or a file that defines none.
    """
    if (found := built_in(name)) is not None:
        return found
    if (parts := split(name))[1]:
        return _with_weights(*parts)
    if name.endswith(".py"):
        path = Path(name).expanduser()
        if not path.is_file():
            raise UserError(f"there is no method file {path}")
        return _from_file(path, path.stat().st_mtime_ns)
    base, _, builder = name.partition("+")
    if base in METHODS and (own := _listed(base).drafter) and builder in BUILDERS:
        raise UserError(
            f"{base} has a builder of its own: write {own}+{builder}, its drafter's name"
        )
    raise UserError(
        f"unknown method {name!r}: choose one of {', '.join(METHODS)}, a drafter and a builder as "
        f"in {next(iter(DRAFTERS))}+best-first (builders: {', '.join(BUILDERS)}), or your own .py "
        "file"
    )


@dataclass(frozen=True, eq=False)
class Chosen:
    """A method by the name that was asked for, with every option's value."""

    name: str
    method: Method
    options: Mapping[str, Value]

    @property
    def drafter_options(self) -> dict[str, Value]:
        """The options that are the drafter's own."""
        return {o.name: self.options[o.name] for o in self.method.drafter_options}


def choose(name: str, options: Options | None = None) -> Chosen:
    """The method of a name with these options, the others at their defaults.

    Raises UserError as ``find_method``, and for an unknown option or a bad value.
    """
    method = find_method(name)
    return Chosen(name, method, method.resolve(options or {}))


def built_in(name: str) -> Method | None:
    """The same without files, for names that come from others: no program of theirs is run."""
    drafter, plus, builder = name.partition("+")
    if plus and drafter in DRAFTERS and builder in BUILDERS:
        return _pair(drafter, builder)
    return _listed(name) if name in METHODS else None


def shown_title(name: str) -> str:
    """A method's title for people, "DDTree"; of one that has none here, ``shown_name``."""
    found = built_in(name)
    return found.title if found else shown_name(name)


def split(name: str) -> tuple[str, str]:
    """A method's name without its checkpoint, and the checkpoint; "" where it names none."""
    base, _, weights = name.partition("@")
    return (base, weights) if weights and built_in(base) is not None else (name, "")


def deciding_budget(
    name: str, budget: object, depths: object = None, chain: bool = False
) -> int | None:
    """A run's draft budget where it decides what is drafted; None for plain decoding, and for a
    chain that its drafter's depth ends.

    depths  that depth; None: it is taken to end it
    chain   whether a method of a file drafts a chain; a listed method's name tells that
    """
    method = built_in(split(name)[0])
    if type(budget) is not int or (method is not None and method.drafter is None):
        return None
    cut = isinstance(depths, int) and budget < depths
    return None if (chain or (method is not None and method.is_chain)) and not cut else budget


def listed() -> dict[str, Method]:
    """Every listed method by name."""
    return {name: _listed(name) for name in METHODS}


def drafter_trainings() -> dict[str, TrainingInfo]:
    """How every drafter that can be trained here is trained, by name."""
    found = {name: find_drafter(name).training for name in DRAFTERS}
    return {name: info for name, info in found.items() if info is not None}


def shipped(kind: str, target: str) -> Path | None:
    """The checkpoint of this kind that ships for the target of this name, if one does."""
    own = find_drafter(kind).checkpoint if kind in DRAFTERS else None
    kind = (own and own.shipped) or kind
    from core.models.embedded import NAME  # it loads libraries: only here

    if target != NAME:  # other names are paths and hub ids: never joined to ours
        return None
    folder = ASSETS / "models" / target / kind
    return folder if (folder / "config.json").is_file() else None


def runnable(model: str, drafter: str | None = None) -> tuple[str, ...]:
    """The listed methods whose drafter needs no weights, or has some for this model: in
    ``drafter``, where its config tells no other kind, named by the model's preset, or shipped. The
    default one is among them: without it there is little to run. Raises UserError as
    ``presets.preset_of``."""
    named, told = presets.preset_of(model).drafters, _told(drafter)

    def has(info: DrafterInfo | None) -> bool:
        if info is None or info.checkpoint is None:
            return True
        if drafter is not None:
            return told in (None, info.name)
        return info.name in named or shipped(info.name, model) is not None

    every, default = listed().items(), DEFAULT if told is None else ""
    return tuple(name for name, each in every if name == default or has(each.drafter_info))


def _told(drafter: str | None) -> str | None:
    """The kind that a checkpoint folder on this machine says it is."""
    folder = None if drafter is None else Source.of(drafter).folder
    if folder is None:
        return None
    from core.methods.layouts import told_kind  # it loads libraries: only here

    return told_kind(folder)


@cache
def _listed(name: str) -> Method:
    return lazy(METHODS[name])


@cache
def _pair(drafter: str, builder: str) -> Method:
    """One object per pair, so that an engine finds again what it has loaded for it."""
    about = f"{find_drafter(drafter).about}; {find_builder(builder).about}"
    return Method(f"{drafter}+{builder}", drafter, builder, 64, about)


@cache
def _with_weights(name: str, weights: str) -> Method:
    """Raises UserError for a method whose drafter has no weights, or none at all."""
    found = built_in(name)
    assert found is not None  # split says so
    if found.drafter is None:
        raise UserError(f"{name} has no drafter: it takes no checkpoint {weights!r}")
    find_drafter(str(found.drafter), weights)  # it must have weights at all
    return replace(found, title=f"{found.title} @ {weights}", weights=weights)


@lru_cache(maxsize=32)
def _from_file(path: Path, _changed: int) -> Method:
    """The file's ``METHOD``. The file is the user's own program, run because it was named."""
    try:
        found = runpy.run_path(str(path)).get("METHOD")
        if isinstance(found, Method):
            _check(found)
    except UserError as error:
        raise UserError(f"the method file {path}: {error}") from None
    except (Exception, SystemExit) as error:
        raise UserError(f"the method file {path} fails: {type(error).__name__}: {error}") from error
    if not isinstance(found, Method):
        raise UserError(f"the method file {path} defines no METHOD = Method(…)")
    return found


def _check(method: Method) -> None:
    """Raises UserError for parts of a wrong type, names not listed, and options they lack."""
    drafter, builder = method.drafter, method.builder
    if not isinstance(drafter, str | DrafterInfo | None):
        kind = type(drafter).__name__
        raise UserError(f"its drafter is neither a name nor a DrafterInfo, but of type {kind}")
    if not (builder is None or callable(builder) or isinstance(builder, str | BuilderInfo)):
        kind = type(builder).__name__
        raise UserError(f"its builder must be a name, BuilderInfo or function, not of type {kind}")
    if (drafter is None) != (builder is None):
        raise UserError("a drafter needs a builder and a builder a drafter")
    method.resolve(method.options)


def check_preset(preset: Preset) -> None:
    """Raises UserError for a preset that names drafters or methods that are not listed."""
    for field, names, known in (
        ("drafters", preset.drafters, DRAFTERS),
        ("budgets", preset.budgets, METHODS),
    ):
        if unknown := sorted(set(names) - set(known)):
            raise UserError(
                f"preset [{preset.name}]: {field} has no {unknown[0]!r} "
                f"(choose one of {', '.join(known)})"
            )
