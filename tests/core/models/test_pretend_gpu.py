"""Whole runs, trainings and denoisings on a pretend GPU: no tensor mixes with the host's, and all
results equal the CPU's."""

import copy
from dataclasses import replace
from functools import partial
from itertools import product
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.numpy import load_file

from analysis.collected import calibrate, collect
from analysis.measures.probe import observe
from core.decoding.decode import decode
from core.decoding.request import Settings
from core.diffusion.denoise import denoise
from core.diffusion.nfe import denoised_tokens
from core.diffusion.request import DenoiseSettings
from core.models.target import Target
from core.rounds.round import Verdict, new_tokens
from core.train.collect import Collector
from tests.helpers import toys
from tests.helpers.diffusion_models import GRAPH, MAKERS, own_model
from tests.helpers.pretend_gpu import HERE, counts, gpu, padded_forwards
from tests.helpers.timing import amount, usually
from tests.helpers.training_toys import (
    KINDS,
    PROMPTS,
    a_fit,
    collector_of,
    losses,
    owner_of_text,
    write_shards,
)

CLOSE = {"rtol": 1e-4, "atol": 1e-5}  # logits are float64, angles and softmaxes float32
DRAFTERS = {
    "dflash": toys.dflash_drafter,
    "treeflash": toys.treeflash_drafter,
    "dart": toys.dart_drafter,
}


@pytest.fixture(scope="module")
def owner():
    return owner_of_text()


@pytest.fixture(scope="module")
def collector(owner):
    return collector_of(owner)


@pytest.fixture(scope="module")
def shards(collector, tmp_path_factory):
    return write_shards(collector, tmp_path_factory.mktemp("shards"))


def method(kind):
    """The method, on the CPU."""
    if kind == "ar":
        return toys.AR
    drafter = DRAFTERS[kind]()
    return toys.line(drafter) if kind == "dflash" else toys.tree(drafter)


@pytest.fixture
def device(monkeypatch):
    with gpu(monkeypatch):
        yield HERE


def test_it_refuses_what_a_gpu_refuses(device):
    there = torch.ones(3, device=device)
    assert (there + 1).device == device and (there * 2).tolist() == [2.0, 2.0, 2.0]
    assert torch.arange(3).to(device)[1:].cpu().numpy().tolist() == [1, 2]
    for mixed in (lambda: there + torch.ones(3), lambda: there[:, None] @ torch.ones(1, 3)):
        with pytest.raises(RuntimeError, match="same device"):
            mixed()
    with pytest.raises(RuntimeError):
        there.numpy()
    host = torch.zeros(3)
    copied = host.to(device)
    host += 1
    assert copied.tolist() == [0.0, 0.0, 0.0] and host.copy_(copied).sum() == 0
    there[0] = 5
    assert there.tolist() == [5.0, 1.0, 1.0]


def on(device, method):
    """The method with its drafter there, drafting in padded passes."""
    if method.drafter is None:
        return method
    drafter = toys.moved(method.drafter, device)
    drafter._padded = True
    return replace(method, drafter=drafter)


RUNS = [*product(("ar", *DRAFTERS), (toys.GREEDY, toys.SAMPLED))]


@pytest.mark.parametrize(("kind", "sampling"), usually([*RUNS[1::4], *RUNS[2::4]], RUNS))
def test_a_run_equals_the_cpus(kind, sampling, device):
    """Rounds, target probabilities and probes; every verification and every draft is a replay."""
    settings, prompt = Settings(16, amount(12, 20), sampling), list(toys.PROMPT)
    layers = method(kind).drafter.layers if kind != "ar" else ()
    model = copy.deepcopy(toys.model()).to(device)
    there, used = Target(model, layers, padded=True), on(device, method(kind))
    expected = list(decode(Target(toys.model(), layers), method(kind), prompt, settings, observe))
    found = list(decode(there, used, prompt, settings, observe))
    assert new_tokens(found) == new_tokens(expected)
    for one, two in zip(found, expected, strict=True):
        assert one.draft.tokens.tolist() == two.draft.tokens.tolist()
        assert one.verdict.path == two.verdict.path
        np.testing.assert_allclose(one.target_probs.log_p, two.target_probs.log_p, **CLOSE)
        if two.probe is not None:
            np.testing.assert_allclose(one.probe.tvd, two.probe.tvd, **CLOSE)
    graphs = [forward._run._graph for forward in padded_forwards(there).values()]
    assert there.no_graph_reason is None and sum(g.replays for g in graphs) == len(found)
    if kind != "ar":
        assert used.drafter._pass._run._graph.replays >= len(found) - 1


def costs(of):
    """Launches and waits of a call."""
    before = counts.launches, counts.waits
    of()
    return counts.launches - before[0], counts.waits - before[1]


@pytest.mark.parametrize(("kind", "launches", "waits"), [("dflash", 29, 3), ("treeflash", 81, 7)])
def test_a_rounds_launches_do_not_depend_on_the_number_of_layers(kind, launches, waits, device):
    """Launches and waits outside the graphs: they bound a GPU's round when the rest is captured.
    That of equals the lowest id comes first takes five launches a list."""
    found = []
    for layers in (3, 4):
        target = Target(
            copy.deepcopy(own_model(layers=layers)).to(device), toys.LAYERS, padded=True
        )
        settings = Settings(16, 30, toys.GREEDY)
        rounds = decode(
            target, on(device, toys.tree(DRAFTERS[kind]())), list(toys.PROMPT), settings
        )
        seen = [costs(partial(next, rounds)) for _ in range(10)][3:]  # graphs are made before
        gap = Verdict((0, 2, 5), np.array([0]))
        found.append((max(seen), costs(partial(target.commit, gap))))
    assert found[0] == found[1]
    (round_, (commit, waited)) = found[0]
    assert round_[0] <= launches and 0 < round_[1] <= waits and commit <= 6 and waited == 0, found


def source(device):
    """A target and its drafters, for collecting and calibrating."""
    model = copy.deepcopy(toys.model()).to(device)
    drafters = {kind: on(device, method(kind)).drafter for kind in DRAFTERS}
    layers = tuple(sorted({layer for drafter in drafters.values() for layer in drafter.layers}))
    return collect.LoadedModels(
        SimpleNamespace(name="toy", vocabulary=toys.VOCABULARY, stop_ids=frozenset()),
        str,
        drafters,
        Target(model, layers, device == HERE),
    )


def test_a_collected_text_equals_the_cpus(device, tmp_path):
    arrays = []
    for where in (torch.device("cpu"), device):
        path = tmp_path / f"{where.type}.safetensors"
        collect.collect(source(where), toys.PROMPT, path, collect.CollectionPlan(16, 16))
        arrays.append(load_file(path))
    assert arrays[0].keys() == arrays[1].keys() and len(arrays[0]) > 8
    for name, expected in arrays[0].items():
        np.testing.assert_allclose(arrays[1][name], expected, **CLOSE, err_msg=name)


def test_a_calibration_equals_the_cpus(device, tmp_path):
    plan = calibrate.CalibrationPlan(anchors=2, seeds=1, continuations=4, depths=4, new_tokens=16)
    found, expected = (
        calibrate.calibrate(source(where), [toys.PROMPT], tmp_path / where.type, plan)
        for where in (device, torch.device("cpu"))
    )
    pd.testing.assert_frame_equal(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", MAKERS)
def test_a_denoising_equals_the_cpus(make, device):
    settings = DenoiseSettings(16, 8, timed=False, go_on=True)
    texts = [
        (denoised_tokens(rounds), len(rounds))
        for where in (torch.device("cpu"), device)
        for rounds in [
            list(denoise(make(copy.deepcopy(own_model()).to(where)), toys.PROMPT, settings, GRAPH))
        ]
    ]
    assert texts[0] == texts[1] and texts[0][1] < 16


def test_training_text_equals_the_cpus(collector, device):
    prompts = [collector.chat(p) for p in PROMPTS]
    model = copy.deepcopy(collector.model).to(device)
    there = Collector(replace(collector.language, model=model), collector.settings)
    pairs = zip(there.answer(prompts, 1), collector.answer(prompts, 1), strict=True)
    for found, expected in pairs:
        assert found.tokens.tolist() == expected.tokens.tolist()
        torch.testing.assert_close(found.features, expected.features, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_a_training_equals_the_cpus(owner, shards, tmp_path, kind, device):
    on_cpu = a_fit(owner, shards, tmp_path / "cpu", kind=kind)
    there = a_fit(copy.deepcopy(owner).to(device), shards, tmp_path / "gpu", kind=kind)
    np.testing.assert_allclose(losses(there, 3), losses(on_cpu, 3), rtol=1e-3)
