"""The methods by name. A method is a drafter, a builder and its defaults: one line each.

The table is light, so that help texts and the studio's first page never wait for torch; drafters
and builders are looked up by name when a method is loaded, and any builder goes with any drafter.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import UserError

if TYPE_CHECKING:
    from core.decode import Builder, Drafter, Method
    from core.models import Language


@dataclass(frozen=True)
class Recipe:
    """How a method is put together, before anything heavy is loaded."""

    title: str
    drafter: str | None
    builder: str | None
    budget: int
    about: str


RECIPES: dict[str, Recipe] = {
    "ar": Recipe("Plain", None, None, 1, "one token per forward: what every method must equal"),
    "dflash": Recipe("DFlash", "dflash", "chain", 64, "the drafter's argmax chain"),
    "ddtree": Recipe(
        "DDTree", "dflash", "best-first", 64, "the B most probable prefixes, as a tree"
    ),
}


def recipe(name: str) -> Recipe:
    """Raises UserError for a name that is no method."""
    if name not in RECIPES:
        raise UserError(f"unknown method {name!r}: choose one of {', '.join(RECIPES)}")
    return RECIPES[name]


def load_drafter(name: str, language: Language, folder: Path | None = None) -> Drafter:
    """The drafter of this kind for the target, from ``folder`` or as it ships."""
    from core.models import load_dflash

    return {"dflash": load_dflash}[name](language, folder)


def builder(name: str) -> Builder:
    """The tree builder of this name."""
    from core import builders

    return {"chain": builders.chain, "best-first": builders.best_first}[name]


def assemble(name: str, drafter: Drafter | None) -> Method:
    """The method of this name around a loaded drafter."""
    from core.decode import Method

    chosen = recipe(name)
    return Method(name, drafter, builder(chosen.builder) if chosen.builder else None)
