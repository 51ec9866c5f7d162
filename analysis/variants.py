"""Who runs when several methods, budgets and options are compared. Light: never torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.errors import UserError
from core.methods.registry import Value, recipe, settle

PLAIN = "ar"


@dataclass(frozen=True)
class Variant:
    """One way of decoding. ``method`` None is transformers' generate; ``lookup`` 0 is off."""

    name: str
    method: str | None
    budget: int = 1
    lookup: int = 0
    options: tuple[tuple[str, Value], ...] = ()


def variants_of(
    methods: Sequence[str], budgets: Sequence[int], options: Mapping[str, Value] | None = None
) -> tuple[Variant, ...]:
    """Every method with every budget, each once, in this order. A method that cannot use a budget
    (a chain, plain decoding) runs once, at its own.

    Each method takes those of the options that it has, in their own types. Raises UserError for an
    unknown method, or an option that none has.
    """
    unused = set(options or {})
    made: list[Variant] = []
    for name in methods:
        own = {k: v for k, v in (options or {}).items() if _key(k) in recipe(name).defaults}
        settled = settle(name, own)
        unused -= set(own)
        made += _sized(name, budgets, {_key(k): settled[_key(k)] for k in own})
    if unused:
        raise UserError(f"none of these methods has an option {sorted(unused)[0]!r}")
    return tuple(dict.fromkeys(made))


def _sized(name: str, budgets: Sequence[int], options: Mapping[str, Value]) -> Iterator[Variant]:
    own, pairs = recipe(name), tuple(options.items())
    if name == PLAIN:
        yield Variant("plain", PLAIN)
        return
    title = Path(name).stem if name.endswith(".py") else name
    for size in budgets if own.builder not in (None, "chain") else (own.budget,):
        yield Variant(f"{title} B={size}", name, size, options=pairs)


def _key(option: str) -> str:
    return option.replace("-", "_")
