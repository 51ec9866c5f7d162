"""The methods that a page offers, their builders and options, and the requests made from them.

Method files are named on the command line only: whatever a page sends is looked up here, so that
none of it reaches the registry as a path.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.decoding.request import RunRequest
from core.errors import UserError
from core.methods.method import Method, Option
from core.methods.names import BUILDERS, METHODS
from core.methods.registry import find_method, split
from core.models.presets import Value

BUDGETS = (1, 4, 16, 64, 256, 1024)
OWN = "own"  # the method's own builder
MAX_PROMPT = 40_000  # characters
NONE = ""  # no method in this place of a comparison
SHARED = ("max_new_tokens", "temperature", "top_k", "top_p", "seed")
WHOLE = frozenset({"max_new_tokens", "top_k", "seed", "budget"})


def form_options(method: Method) -> tuple[Option, ...]:
    """The options that a page may set: numbers and flags, no text such as a path."""
    return tuple(o for o in method.all_options if o.type in (bool, int, float))


def option_value(option: Option, value: Any) -> Value:
    """An option's value as a browser states it. Raises UserError for one that it cannot have."""
    if not (isinstance(value, bool) or is_number(value)):
        raise UserError(f"fill in the option {option.label}")
    return option.read(value)


@dataclass(frozen=True)
class Methods:
    """The listed methods and those of the command line.

    budgets  what the model's preset finds sensible, by method
    """

    names: tuple[str, ...]
    budgets: Mapping[str, int] = field(default_factory=dict)

    @staticmethod
    def of(
        extra: Sequence[str] = (),
        budgets: Mapping[str, int] | None = None,
        listed: Iterable[str] = METHODS,
    ) -> Methods:
        """Raises UserError for a name that is not a method's, or a file that defines none."""
        for name in extra:
            find_method(name)
        return Methods(tuple(dict.fromkeys((*listed, *extra))), budgets or {})

    @property
    def titles(self) -> list[tuple[str, str]]:
        """(title, name) of every method."""
        return [(find_method(name).title, name) for name in self.names]

    def budget(self, method: str, usual: int) -> int:
        """The offered budget nearest to the preset's for this method, else the usual one."""
        wanted = self.budgets.get(split(method)[0], usual)
        return min(BUDGETS, key=lambda offered: abs(offered - wanted))

    def takes_builders(self, method: object) -> bool:
        """Whether the method's drafter may be given another builder: it must have a name."""
        return method in self.names and isinstance(find_method(str(method)).drafter, str)

    def name(self, method: object, builder: object) -> str:
        """The name with the builder exchanged. Raises UserError for what is not offered."""
        if method not in self.names:
            raise UserError("this page does not offer that method")
        chosen = find_method(str(method))
        if builder == OWN or builder == chosen.builder or chosen.drafter is None:
            return str(method)
        if builder not in tuple(BUILDERS) or not self.takes_builders(method):
            raise UserError(f"{chosen.title} keeps its own builder")
        at = f"@{chosen.weights}" if chosen.weights else ""
        return f"{chosen.drafter}+{builder}{at}"

    def choice(self, name: str) -> tuple[str, str] | None:
        """The method and builder that are chosen for a name; None for what is not offered."""
        if name in self.names:
            return name, OWN
        drafter, _, builder = name.partition("+")
        for method in self.names:
            if self.takes_builders(method) and find_method(method).drafter == drafter:
                return (method, builder) if builder in BUILDERS else None
        return None

    def options(self, method: object, builder: object) -> tuple[Option, ...]:
        """The options that a page can set for a choice. Raises UserError for one not offered."""
        return form_options(find_method(self.name(method, builder)))

    def described(self) -> dict[str, Any]:
        """The options of every choice as a page draws them: ``methods`` has their places in
        ``options`` by method and builder. ``about``: what each method drafts, in words."""
        found = {m: {b: self.options(m, b) for b in self._builders(m)} for m in self.names}
        options = dict.fromkeys(o for own in found.values() for each in own.values() for o in each)
        place = {option: at for at, option in enumerate(options)}
        methods = {
            method: {builder: [place[o] for o in each] for builder, each in own.items()}
            for method, own in found.items()
        }
        chosen = {name: find_method(name) for name in self.names}
        about = {n: f"{m.title}: {m.about}" if m.about else "" for n, m in chosen.items()}
        drawn = [_described(option) for option in options]
        return {"options": drawn, "methods": methods, "about": about}

    def changes(
        self, method: object, builder: object, values: Mapping[str, Any]
    ) -> tuple[tuple[str, Value], ...]:
        """The options that differ from their defaults; of ``values`` only the choice's own are
        read. Raises UserError for a value that is not a number or out of range."""
        stated = [o for o in self.options(method, builder) if o.name in values]
        found = {option: option_value(option, values[option.name]) for option in stated}
        return tuple((o.name, value) for o, value in found.items() if value != o.default)

    def _builders(self, method: str) -> Iterable[str]:
        return (OWN, *BUILDERS) if self.takes_builders(method) else (OWN,)


def _described(option: Option) -> dict[str, Any]:
    words = [option.help] if option.help != option.label else []
    words += [str(option.range)] if option.range is not None else []
    step = option.range.step if option.range is not None and not option.range.log else "any"
    about = {"name": option.name, "label": option.label, "about": " · ".join(filter(None, words))}
    return about | {"value": option.default, "step": step}


# ── what a form states ────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class MethodChoice:
    """The values of one method's inputs; a browser wrote all of them. An option that is missing is
    at its default."""

    method: Any
    builder: Any = OWN
    budget: Any = 64
    options: Mapping[str, Any] = field(default_factory=dict)


def requests(
    methods: Methods, prompt: Any, shared: Mapping[str, Any], choices: Sequence[MethodChoice]
) -> list[RunRequest]:
    """One request for each method. Raises UserError for what no run can have."""
    prompt = checked_prompt(prompt)
    numbers = {name: finite_number(shared[name], name in WHOLE) for name in SHARED}
    chosen = [c for c in choices if c.method not in (NONE, None) or len(choices) == 1]
    if not chosen:
        raise UserError("choose a method first")
    made = [
        RunRequest(
            prompt,
            methods.name(choice.method, choice.builder),
            budget=finite_number(choice.budget, whole=True),
            options=methods.changes(choice.method, choice.builder, choice.options),
            **numbers,
        )
        for choice in chosen
    ]
    for request in made:
        request.check()
    return made


def checked_prompt(prompt: Any) -> str:
    """Raises UserError for none, and for one that is too long."""
    if not (isinstance(prompt, str) and prompt.strip()):
        raise UserError("write a prompt first")
    if len(prompt) > MAX_PROMPT:
        raise UserError(f"the prompt is longer than {MAX_PROMPT} characters")
    return prompt


def mapping(value: Any) -> dict[str, Any]:
    """The mapping that a browser wrote: an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def is_number(value: object) -> bool:
    """Whether it is a number, and finite as a float."""
    try:
        return (
            isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        )
    except OverflowError:  # an int of any length
        return False


def finite_number(value: Any, whole: bool = False) -> Any:
    """Raises UserError for a value that is not a finite number."""
    if not is_number(value):
        raise UserError("fill in every number of the settings")
    return int(value) if whole else float(value)
