"""CUDA graphs: a replayed forward equals the plain one, and every method writes the same text."""

from typing import Any

import numpy as np
import pytest
import torch

from core.decoding.decode import decode
from core.decoding.request import Settings
from core.models.target import Target
from core.rounds.round import Verdict, new_tokens
from tests.helpers import toys
from tests.helpers.pretend_gpu import padded_forwards

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
PROMPT: list[int] = list(toys.PROMPT)
# The model sums its norms in float32: kernels of other sizes may round one of them otherwise.
CLOSE: dict[str, Any] = {"rtol": 1e-6, "atol": 1e-6}


def pair(family="llama", layers=toys.LAYERS):
    """The same float64 model on the GPU, running plainly and by replayed graphs."""
    model = toys._make(family, 0, toys.VOCABULARY, "draftscope_grouped").double().cuda()
    return Target(model, layers, padded=False), Target(model, layers)


@pytest.mark.parametrize("family", toys.FAMILIES)
def test_replays_equal_plain_forwards_over_rounds_and_texts(family):
    plain, graphed = pair(family)
    assert graphed._padded
    rng = np.random.default_rng(0)
    for _ in range(3):
        prompt = rng.integers(0, toys.VOCABULARY, int(rng.integers(1, 60))).tolist()
        for where in (plain, graphed):
            where.prefill(prompt, 800)
        for nodes in (0, 5, 8, 16, 16, 40, 64, 64, 3):
            draft = toys.random_draft(rng, nodes + 1)
            one, two = plain.score(draft), graphed.score(draft)
            torch.testing.assert_close(two.logits, one.logits, **CLOSE)
            torch.testing.assert_close(two.features, one.features, **CLOSE)
            path = [int(rng.integers(len(draft)))]
            while path[0]:
                path.insert(0, int(draft.parents[path[0]]))
            for where in (plain, graphed):
                where.commit(Verdict(tuple(path), np.array([0])))
    assert_captured(graphed)


def assert_captured(where):
    """Otherwise the plain forward was compared with itself."""
    assert where._padded and where.no_graph_reason is None
    assert padded_forwards(where) and all(f._run.captured for f in padded_forwards(where).values())


def test_a_capture_is_made_once_per_size():
    _, graphed = pair()
    graphed.prefill(PROMPT, 400)
    rng = np.random.default_rng(1)
    graphs = set()
    for nodes in (3, 8, 5, 8):
        graphed.score(toys.random_draft(rng, nodes + 1))
        graphs.add(id(padded_forwards(graphed)[9]._run._graph))
    assert len(graphs) == 1 and set(padded_forwards(graphed)) == {9}


@pytest.mark.parametrize("sampling", [toys.GREEDY, toys.SAMPLED])
@pytest.mark.parametrize("kind", ["dflash", "treeflash", "dart"])
def test_a_method_writes_the_same_text(kind, sampling):
    make = {
        "dflash": toys.dflash_drafter,
        "treeflash": toys.treeflash_drafter,
        "dart": toys.dart_drafter,
    }[kind]
    texts = []
    for where in pair(layers=make().layers):
        drafter = toys.moved(make(), "cuda")
        drafter._padded = where._padded
        rounds = list(decode(where, toys.tree(drafter), PROMPT, Settings(16, 50, sampling)))
        texts.append(new_tokens(rounds))
    assert texts[0] == texts[1]
    assert_captured(where)
    assert drafter._padded and drafter._pass._run.captured


def test_another_gpu_than_the_first_captures_on_itself():
    if torch.cuda.device_count() < 2:
        pytest.skip("one CUDA device here")
    model = toys._make("llama", 0, toys.VOCABULARY, "draftscope_grouped").double().to("cuda:1")
    plain, graphed = Target(model, toys.LAYERS, padded=False), Target(model, toys.LAYERS)
    rng = np.random.default_rng(2)
    for where in (plain, graphed):
        where.prefill(PROMPT, 400)
    for nodes in (5, 7, 3):  # a graph on another GPU's stream would repeat the first
        draft = toys.random_draft(rng, nodes + 1)
        torch.testing.assert_close(graphed.score(draft).logits, plain.score(draft).logits, **CLOSE)
    assert_captured(graphed)


def test_an_expert_model_runs_plainly():
    model = toys._make("qwen3_moe", 0, toys.VOCABULARY, "draftscope_grouped").cuda()
    target = Target(model, toys.LAYERS)
    assert not target._padded and "experts" in (target.no_graph_reason or "")
