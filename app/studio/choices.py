"""What the panel offers: methods, builders to exchange, and a method's own options as fields.

Method files are named on the command line only, so whatever a page sends is looked up here and
never reaches ``core.methods`` as a path.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.errors import UserError
from core.methods.registry import BUILDERS, RECIPES, Recipe, Value, recipe

BUDGETS = (1, 4, 16, 64, 256, 1024)
OWN = "own"  # the method's own builder
LABELS = {
    "temperature": "temperature of q",
    "candidates": "candidates per depth (M)",
    "siblings": "siblings per candidate (S)",
    "ngram_weight": "n-gram weight",
    "ngram_at_first": "n-gram term at depth 1",
    "gain": "gain a level must add",
    "width": "tokens looked at per depth",
    "beam": "sequences kept per depth",
}  # where the option's own name says too little; any other is shown as it is


@dataclass(frozen=True)
class Field:
    """One option's input. Methods share a field when name and type are the same."""

    name: str
    type: type

    @property
    def label(self) -> str:
        return LABELS.get(self.name, self.name.replace("_", " "))


@dataclass(frozen=True)
class Choices:
    """The listed methods and those given on the command line.

    budgets  what the model's preset finds sensible, by method
    """

    methods: tuple[str, ...]
    budgets: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @staticmethod
    def of(extra: Sequence[str] = (), budgets: Mapping[str, int] | None = None) -> Choices:
        """Raises UserError for a name that is no method, or a file that defines none."""
        for name in extra:
            recipe(name)
        return Choices(tuple(dict.fromkeys((*RECIPES, *extra))), budgets or {})

    def budget(self, method: str, usual: int) -> int:
        """The offered budget nearest to the preset's for this method, else the usual one."""
        wanted = self.budgets.get(method, usual)
        return min(BUDGETS, key=lambda offered: abs(offered - wanted))

    @property
    def titled(self) -> list[tuple[str, str]]:
        """(title, name) of every method."""
        return [(recipe(name).title, name) for name in self.methods]

    def exchangeable(self, method: object) -> bool:
        """Whether the method's drafter may be given another builder: it must have a name."""
        return method in self.methods and isinstance(recipe(str(method)).drafter, str)

    def name(self, method: object, builder: object) -> str:
        """The name with the builder exchanged. Raises UserError for what is not offered."""
        if method not in self.methods:
            raise UserError("this page does not offer that method")
        chosen = recipe(str(method))
        if builder == OWN or builder == chosen.builder or chosen.drafter is None:
            return str(method)
        if builder not in BUILDERS or not self.exchangeable(method):
            raise UserError(f"{chosen.title} keeps its own builder")
        return f"{chosen.drafter}+{builder}"

    @property
    def fields(self) -> tuple[Field, ...]:
        """Every option that any combination has and a page may set: numbers and flags, no text."""
        names = [self.name(m, b) for m in self.methods for b in self._builders(m)]
        found = (f for name in names for f in _fields(recipe(name)))
        return tuple(dict.fromkeys(found))

    def defaults(self, method: object, builder: object) -> dict[Field, Value]:
        """The fields of one choice with their defaults."""
        chosen = recipe(self.name(method, builder))
        return {field: chosen.defaults[field.name] for field in _fields(chosen)}

    def options(
        self, method: object, builder: object, values: Mapping[Field, Any]
    ) -> tuple[tuple[str, Value], ...]:
        """What differs from the defaults. Raises UserError for a number that is missing."""
        changed: list[tuple[str, Value]] = []
        for field, default in self.defaults(method, builder).items():
            value = values.get(field, default)
            if value is None:
                raise UserError(f"fill in the option {field.label}")
            if value != default:
                changed.append((field.name, _whole(value) if field.type is int else value))
        return tuple(changed)

    def _builders(self, method: str) -> Iterable[str]:
        return (OWN, *BUILDERS) if self.exchangeable(method) else (OWN,)


def _fields(chosen: Recipe) -> list[Field]:
    typed = ((name, type(value)) for name, value in chosen.defaults.items())
    return [Field(name, kind) for name, kind in typed if kind in (bool, int, float)]


def _whole(value: Any) -> Any:
    """A number field sends 8 as 8.0; as text, what is no whole number is complained of later."""
    return int(value) if isinstance(value, float) and value.is_integer() else str(value)
