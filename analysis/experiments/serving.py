"""How engines are told a drafter: what its home declares, and what is left to add. Light."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from core.methods.method import DrafterInfo, Options, find_drafter, options_of, read_options
from core.methods.names import DRAFTERS


@dataclass(frozen=True)
class Serving:
    """The options of engines for one drafter. An engine without known options is told nothing.

    vllm   fields of vLLM's --speculative-config beside the lengths; None: vLLM is told nothing
    adds   what that config still needs, as a sentence's end
    flags  by engine: its options for chains of K tokens
    """

    vllm: Mapping[str, Any] | None = None
    adds: str = ""
    flags: Mapping[str, Callable[[int], str]] = field(default_factory=dict)


NOTHING = Serving()
UNKNOWN = Serving({}, "add method and model")  # vLLM's K is told alike for every drafter


def of_drafter(info: DrafterInfo, options: Options) -> Serving:
    """The serving that the drafter's home declares; ``options``: those of a run, with others.

    Raises UserError for a bad value.
    """
    declared = options_of(info.options)
    known = {o.name: options[o.name] for o in declared if o.name in options}
    values = read_options(declared, info.name, known)
    flags = {
        engine: lambda size, tell=tell: tell(size, values) for engine, tell in info.flags.items()
    }
    if not info.vllm:
        return Serving(flags=flags)
    fields, adds = dict[str, Any](method=info.vllm), ""
    if info.vllm_fields is not None and len(known) == len(declared):
        fields |= info.vllm_fields(values)
    elif info.vllm_fields is not None:
        adds = f"add {', '.join(info.vllm_fields(values))} as they were"
    elif info.checkpoint is not None:
        adds = "add the drafter's model"
        adds += " unless it is inside the target" if info.checkpoint.inside else ""
    if info.vllm_last:
        adds += f"; vLLM {info.vllm_last} is the last that serves it"
    return Serving(fields, adds, flags)


def of_engine(engine: str, kind: str) -> Serving:
    """Of a drafter that an engine ran under its own name for it; SGLang's are those that have
    vLLM's name too."""
    home = next((info for info in map(find_drafter, DRAFTERS) if info.vllm == kind), None)
    served = NOTHING if home is None else of_drafter(home, {})
    if engine == "vLLM":
        return Serving({"method": kind}, "add the drafter's model, if any") if not home else served
    return served if engine in served.flags else NOTHING
