"""Collected texts of toys, and what is measured with them: calibration tables, costs."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
from safetensors.numpy import load_file, save_file

from analysis.collected.collect import CollectionPlan, LoadedModels, collect
from analysis.collected.collection import Collection
from analysis.collected.whatif import SimulatedRun, Simulation
from analysis.experiments.cost import Cost, ForwardTime, Stage, fit
from analysis.frames import COVERAGE
from analysis.measures.probe import observe
from core.decoding.decode import Decoder, decode
from core.decoding.request import Settings
from core.methods.registry import find_method
from tests.helpers import toys

NEW = 48
FACTS = SimpleNamespace(name="toy", vocabulary=toys.VOCABULARY, stop_ids=frozenset())


def simulate(
    collection: Collection,
    method: str,
    budget: int | None = None,
    options: dict | None = None,
    new_tokens: int | None = None,
) -> SimulatedRun:
    return Simulation(collection, method, options).run(budget, new_tokens)


def drafters(candidates=12, siblings=14):
    return {
        "dflash": toys.dflash_drafter(),
        "treeflash": toys.treeflash_drafter(candidates=candidates, siblings=siblings),
        "dart": toys.dart_drafter(),
    }


def source(made=None, facts=FACTS, stop=()):
    facts = SimpleNamespace(**(vars(facts) | {"stop_ids": frozenset(stop)}))
    made = drafters() if made is None else made
    layers = tuple(sorted({layer for drafter in made.values() for layer in drafter.layers}))
    return LoadedModels(
        facts,
        lambda token: f"<b>{token}",
        made,
        toys.target(layers=layers, stop=stop),
    )


def collection_in(folder: Path) -> Collection:
    path = folder / "toy.safetensors"
    return collect(source(), toys.PROMPT, path, CollectionPlan(NEW, 48), "hello")


def real(method, budget, options, count=NEW, stop=(), sampling=toys.GREEDY):
    """The rounds of a real run of the same method and options."""
    chosen = find_method(method)
    values = chosen.resolve(options)
    own = {k: values[k] for k in ("candidates", "siblings") if k in values}
    made = {
        "dflash": toys.dflash_drafter,
        "treeflash": toys.treeflash_drafter,
        "dart": toys.dart_drafter,
    }
    drafter, builder = made[chosen.drafter](**own), chosen.make_builder(FACTS, values)
    rounds = decode(
        toys.target(layers=drafter.layers, stop=stop),
        Decoder(method, drafter, builder),
        toys.PROMPT,
        Settings(budget, count, sampling),
        observe,
    )
    return [r for r in rounds if r.committed]


def corrupt(path, change):
    arrays = {n: np.array(a) for n, a in load_file(path).items()}
    metadata = {"format": "draftscope-collected", "version": "1"}
    header = json.loads(Collection.load(path).header.to_json())
    change(arrays, header, metadata)
    save_file(arrays, path, {"header": json.dumps(header), **metadata})


def table(rows=6):
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "number": np.arange(rows), "seed": np.arange(rows) % 2, "prompt": 0, "position": 9,
            "series": ["a", "marginal"] * (rows // 2), "depth": 1 + np.arange(rows) // 2,
            "continuations": 4, "tvd": rng.random(rows),
            **{name: rng.random(rows) for name in COVERAGE},
        }
    )  # fmt: skip


SIZES = (1, 2, 3, 5, 9, 17, 33, 65, 129, 257)


def points(law):
    return [ForwardTime(n, law(n), law(n), law(n)) for n in SIZES]


KEPT = Cost(
    "toy", "ddtree", fit(points(lambda n: 0.05 + 0.001 * n)),
    (Stage(4, 0.01, 0.001, 0.002, 5), Stage(16, 0.01, 0.003, 0.002, 17)),
)  # fmt: skip
