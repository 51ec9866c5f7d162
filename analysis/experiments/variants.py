"""The ways of decoding that are compared: methods, budgets and options. Light: never torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from core.errors import UserError
from core.methods.method import Value, shown_name
from core.methods.registry import deciding_budget, find_method

GENERATE, LLAMA_CPP = ENGINES = ("generate", "llama.cpp")  # that decode plainly beside ours


@dataclass(frozen=True)
class Variant:
    """One way of decoding.

    method  ours; None: the ``engine`` decodes, transformers' generate or llama.cpp
    lookup  tokens of generate's prompt lookup; 0 is off
    """

    name: str
    method: str | None
    budget: int = 1
    lookup: int = 0
    options: tuple[tuple[str, Value], ...] = ()
    engine: str = GENERATE


def variant_name(method: str, budget: int) -> str:
    """The method, and its budget where that decides what is drafted."""
    size = deciding_budget(method, budget, chain=find_method(method).is_chain)
    name = shown_name(method)
    return name if size is None else f"{name} B={size}"


def variants_of(
    methods: Sequence[str],
    budgets: Sequence[int | None],
    options: Mapping[str, Value] | None = None,
) -> tuple[Variant, ...]:
    """Every method with every budget, each once, in this order; None is the method's own budget. A
    method that cannot use a budget (a chain, plain decoding) runs once, at its own.

    Each method takes its own of the options. Raises UserError for an unknown method, or an option
    that no method has.
    """
    values = {name.replace("-", "_"): value for name, value in (options or {}).items()}
    unused, made = set(values), list[Variant]()
    for name in methods:
        method = find_method(name)
        own = {o.name for o in method.all_options} & set(values)
        resolved = method.resolve({key: values[key] for key in own})
        pairs = tuple((key, resolved[key]) for key in values if key in own)
        unused -= own
        if method.drafter_info is None:
            made.append(Variant(shown_name(name), name))
            continue
        for size in [None] if method.is_chain else budgets:
            size = method.budget if size is None else size
            made.append(Variant(variant_name(name, size), name, size, options=pairs))
    if unused:
        raise UserError(f"none of these methods has an option {sorted(unused)[0]!r}")
    return tuple(dict.fromkeys(made))
