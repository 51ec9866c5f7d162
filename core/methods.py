"""The methods by name. A method is a drafter, a builder and its defaults: one line each.

The tables are light, so that help texts and the studio's first page never wait for torch; drafters
and builders are looked up by name when a method is loaded. Wherever a method is asked for, three
kinds of names serve: one of ``RECIPES`` ("treeflash"), any drafter with any builder
("dflash+continuity"), and the path of a Python file whose ``METHOD`` is a ``Recipe`` of one's own.
"""

from __future__ import annotations

import runpy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from core.errors import UserError

if TYPE_CHECKING:
    from core.decode import Builder, Drafter
    from core.models import Language

Value = bool | int | float | str
Options = Mapping[str, Value]


@dataclass(frozen=True)
class Part:
    """A drafter or a builder by name: what it is and its options with their defaults.

    nested  (builders) whether a draft of b nodes is the first b rows of any larger one
    """

    about: str
    options: Options = field(default_factory=dict)
    nested: bool = False


DRAFTERS: dict[str, Part] = {
    "dflash": Part("q for every depth from one pass", {"temperature": 1.0}),
    "treeflash": Part(
        "the same pass, and q′ behind every candidate",
        {"candidates": 16, "siblings": 16, "temperature": 1.0},
    ),
    "dart": Part("q for every depth from one causal layer", {"temperature": 1.0}),
}
BUILDERS: dict[str, Part] = {
    "chain": Part("the best token after the best token", nested=True),
    "best-first": Part("the B most probable prefixes, popped from a heap", nested=True),
    "opt-tree": Part(
        "the same, level by level; ends where a level gains too little", {"gain": 0.0}
    ),
    "continuity": Part(
        "a beam that weighs q against n-gram continuity",
        {
            "width": 25,
            "beam": 20,
            "ngram": "",
            "ngram_weight": 0.5,
            "logit_decay": 0.9,
            "level_power": 0.7,
            "epsilon": 1e-10,
            "ngram_at_first": True,
        },
        nested=True,
    ),
}


class TargetFacts(Protocol):
    """What a builder may need to know of a target: its name, vocabulary and end-of-text tokens."""

    @property
    def name(self) -> str: ...

    @property
    def vocabulary(self) -> int: ...

    @property
    def stop_ids(self) -> frozenset[int]: ...


@dataclass(frozen=True, eq=False)
class Recipe:
    """How a method is put together, before anything heavy is loaded.

    drafter  a name in ``DRAFTERS``, or a function (language, **options) → Drafter; None: plain
    builder  a name in ``BUILDERS``, or a builder (candidates, text, budget) → Draft itself
    options  defaults of a drafter of one's own, or others than those of the named parts
    """

    title: str
    drafter: str | Callable[..., Drafter] | None
    builder: str | Builder | None
    budget: int = 64
    about: str = ""
    options: Options = field(default_factory=dict)

    @property
    def drafter_options(self) -> dict[str, Value]:
        """The drafter's options with their defaults."""
        own = dict(self.options)
        if not isinstance(self.drafter, str):
            return {k: v for k, v in own.items() if k not in self.builder_options}
        return {k: own.get(k, v) for k, v in DRAFTERS[self.drafter].options.items()}

    @property
    def builder_options(self) -> dict[str, Value]:
        """The builder's options with their defaults; a builder of one's own has none."""
        if not isinstance(self.builder, str):
            return {}
        return {k: self.options.get(k, v) for k, v in BUILDERS[self.builder].options.items()}

    @property
    def defaults(self) -> dict[str, Value]:
        """Every option of the method with its default."""
        return self.drafter_options | self.builder_options


RECIPES: dict[str, Recipe] = {
    "ar": Recipe("Plain", None, None, 1, "one token per forward: what every method must equal"),
    "dflash": Recipe("DFlash", "dflash", "chain", 64, "the drafter's argmax chain"),
    "ddtree": Recipe(
        "DDTree", "dflash", "best-first", 64, "the B most probable prefixes, as a tree"
    ),
    "treeflash": Recipe(
        "TreeFlash", "treeflash", "best-first", 64, "a tree that knows the token before"
    ),
    "dart": Recipe("DART", "dart", "continuity", 59, "a beam held together by n-gram continuity"),
}


def recipe(name: str) -> Recipe:
    """The recipe of a method's name: listed, "drafter+builder", or a file's own.

    Raises UserError for a name that is no method, or a file that defines none.
    """
    if (found := built_in(name)) is not None:
        return found
    if name.endswith(".py"):
        path = Path(name).expanduser()
        if not path.is_file():
            raise UserError(f"there is no method file {path}")
        return _from_file(path, path.stat().st_mtime_ns)
    raise UserError(
        f"unknown method {name!r}: choose one of {', '.join(RECIPES)}, a drafter and a builder as "
        f"in dart+best-first (drafters: {', '.join(DRAFTERS)}; builders: {', '.join(BUILDERS)}), "
        "or your own .py file"
    )


def built_in(name: str) -> Recipe | None:
    """The same without files, for names that come from others: no program of theirs is run."""
    drafter, plus, builder = name.partition("+")
    if plus and drafter in DRAFTERS and builder in BUILDERS:
        return _pair(drafter, builder)
    return RECIPES.get(name)


@lru_cache
def _pair(drafter: str, builder: str) -> Recipe:
    """One object per pair: what an engine has loaded for it is found again."""
    about = f"{DRAFTERS[drafter].about}; {BUILDERS[builder].about}"
    return Recipe(f"{drafter}+{builder}", drafter, builder, 64, about)


@lru_cache(maxsize=32)
def _from_file(path: Path, _changed: int) -> Recipe:
    """The file's ``METHOD``. The file is the user's own program, run because he named it."""
    try:
        found = runpy.run_path(str(path)).get("METHOD")
    except (Exception, SystemExit) as error:
        raise UserError(f"the method file {path} fails: {type(error).__name__}: {error}") from error
    if not isinstance(found, Recipe):
        raise UserError(f"the method file {path} defines no METHOD = Recipe(…)")
    for part, table in ((found.drafter, DRAFTERS), (found.builder, BUILDERS)):
        known = isinstance(part, str) and part in table
        if not (part is None or callable(part) or known):
            raise UserError(f"the method file {path} names {part!r}: choose of {', '.join(table)}")
    if (found.drafter is None) != (found.builder is None):
        raise UserError(
            f"the method file {path}: a drafter needs a builder and a builder a drafter"
        )
    return found


def settle(name: str, given: Options) -> dict[str, Value]:
    """A method's options with what was given put in, each in its default's type.

    Raises UserError for an option the method does not have or a value of another type.
    """
    settled = recipe(name).defaults
    for key, value in given.items():
        key = key.replace("-", "_")
        if key not in settled:
            known = ", ".join(settled) or "none"
            raise UserError(f"{name} has no option {key!r} (its options: {known})")
        settled[key] = _typed(key, value, settled[key])
    return settled


def _typed(key: str, value: Value, default: Value) -> Value:
    kind = type(default)
    if kind is bool:
        word = str(value).lower()
        if word not in ("true", "false", "yes", "no", "1", "0"):
            raise UserError(f"the option {key} is yes or no, not {value!r}")
        return word in ("true", "yes", "1")
    try:
        if kind is int and float(value) != int(value):
            raise ValueError
        return kind(value)
    except (ValueError, OverflowError):
        what = "a whole number" if kind is int else "a number"
        raise UserError(f"the option {key} is {what}, not {value!r}") from None


def load_drafter(
    chosen: Recipe, language: Language, options: Options, folder: Path | None = None
) -> Drafter:
    """The recipe's drafter for the target, from ``folder`` or as it ships; it must have one."""
    own: dict[str, Any] = {k: options[k] for k in chosen.drafter_options}
    if callable(chosen.drafter):
        return chosen.drafter(language, **own)
    from core.drafters import load

    makers = {"dflash": load.dflash, "treeflash": load.treeflash, "dart": load.dart}
    return makers[chosen.drafter or ""](language, folder, **own)


def load_builder(chosen: Recipe, target: TargetFacts, options: Options) -> Builder:
    """The recipe's builder; it must have one."""
    if callable(chosen.builder):
        return chosen.builder
    from core import builders, continuity

    own: dict[str, Any] = {k: options[k] for k in chosen.builder_options}
    if chosen.builder == "continuity":
        return continuity.load(target, **own)
    if chosen.builder == "opt-tree":
        return builders.OptTree(**own)
    return {"chain": builders.chain, "best-first": builders.best_first}[chosen.builder or ""]
