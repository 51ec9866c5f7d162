"""Block efficiency τ of methods on prompts, simulated over the target's own texts.

A drafter is judged in minutes (see ``core.train.simulate``). The intervals are 95 % bootstrap
intervals over prompts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from core.decoding.along import Setup, why_run
from core.decoding.decode import Decoder
from core.decoding.engine import Engine
from core.drafting.session import Drafter
from core.errors import UserError
from core.learning.shards import folder_layers, shard_paths
from core.learning.student import TrainingRun
from core.methods.loading import shipped
from core.methods.registry import drafter_trainings, find, listed
from core.models.language import Language
from core.stats import bootstrap
from core.train.evaluation import SAMPLINGS, HeldOutText
from core.train.simulate import Score, score, setups

BUDGETS = (16, 64)
ALL = "all"  # the source of rows over all sources
Row = dict[str, Any]


def default_methods() -> list[str]:
    """The listed methods whose drafter is trained here, and each such drafter under best-first."""
    methods = {n: m for n, m in listed().items() if m.drafter in drafter_trainings()}
    plain = {m.drafter for m in methods.values() if m.builder == "best-first"}
    return [*methods, *(f"{d}+best-first" for d in drafter_trainings() if d not in plain)]


def score_by_source(
    language: Language, drafter: Drafter, texts: Sequence[HeldOutText], setups: Sequence[Setup]
) -> Iterator[Row]:
    """A row for each setup, sampling and source, and one over all sources."""
    for sampling in dict.fromkeys(t.sampling for t in texts):
        some = [t for t in texts if t.sampling == sampling]
        whole = score(language, drafter, some, setups)
        for source in dict.fromkeys([*(t.source for t in some), ALL]):
            mine = [source in (ALL, t.source) for t in some]
            for name in whole.runs:
                yield _row(name, whole.of(mine)) | {"sampling": sampling, "source": source}


def _row(name: str, result: Score) -> Row:
    """One row of the report. ``lengths``: how many rounds had length 1, 2, …"""
    low, high = bootstrap(result.runs[name])
    counts = Counter(chain.from_iterable(result.runs[name]))
    lengths = [counts[n] for n in range(1, max(counts) + 1)]
    return {"method": name, "tau": result.tau(name), "low": low, "high": high, "lengths": lengths}


def load(engine: Engine, methods: Sequence[str], options: Mapping[str, Any]) -> list[Decoder]:
    """The methods, loaded. Raises UserError for one whose rounds do not follow from the text."""
    found = []
    for name in methods:
        if find(name).drafter_info is None:
            raise UserError(f"{name} has no drafter: its rounds have one token each")
        found.append(engine.method(name, options))
        if why := why_run(found[-1]):
            raise UserError(f"{name} {why}: its rounds cannot be simulated")
    return found


def by_drafter(
    decoders: Sequence[Decoder], budgets: Sequence[int]
) -> list[tuple[Drafter, list[Setup]]]:
    """Each drafter with the setups of all its methods: it then walks along a text once for all."""
    found: dict[int, tuple[Drafter, list[Setup]]] = {}
    for each in decoders:
        assert each.drafter is not None and each.builder is not None
        own = setups(each.name, each.builder, budgets, each.drafter.max_depth)
        found.setdefault(id(each.drafter), (each.drafter, []))[1].extend(own)
    return list(found.values())


def text_layers(work: Path, language: Language, decoders: Sequence[Decoder]) -> tuple[int, ...]:
    """The feature layers of texts already made, else all that these and the shipped drafters
    read."""
    made = [work / name for name in SAMPLINGS if shard_paths(work / name)]
    if made:
        return folder_layers(made[0])
    layers = {layer for each in decoders if each.drafter for layer in each.drafter.layers}
    for name, training in drafter_trainings().items():
        if (folder := shipped(name, language.name)) is not None:
            run = TrainingRun(language, work, folder)
            layers |= set(training.layers(run, training.options()))
    return tuple(sorted(layers))
