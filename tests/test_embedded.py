"""Reality: the embedded model with the drafter that ships, through the engine everybody uses."""

import os

import pytest
import torch

from core.models import embedded
from core.methods.dart.search import shipped_store
from core.decoding.decode import new_tokens
from core.methods.loading import shipped
from core.errors import UserError
from core.methods.registry import RECIPES
from core.verification.sampling import TargetSampler
from core.decoding.engine import Engine, RunRequest
from core.rounds.round import Sampling

pytestmark = pytest.mark.embedded

COUNT = 136
PROMPT = "Explain in detail, step by step, how bread is made and why the dough has to rest."
TEMPERATURES = (0.0, 1.0)


@pytest.fixture(scope="module")
def engine():
    try:
        embedded.prepare()
    except UserError as error:
        if os.environ.get("DRAFTSCOPE_REQUIRE_MODEL"):
            raise
        pytest.skip(f"the embedded model cannot be prepared here: {error}")
    return Engine(device="cpu")


@pytest.fixture(scope="module")
def plain(engine):
    """Plain decoding's tokens at each temperature, decoded once."""
    torch.set_num_threads(
        1
    )  # module fixtures come before conftest's: beside other work two are slower
    return {t: decoded(engine, "ar", 1, t)[1] for t in TEMPERATURES}


def decoded(engine, method, budget, temperature):
    request = RunRequest(PROMPT, method, budget, COUNT, temperature, seed=3)
    rounds = list(engine.start(request))
    return rounds, new_tokens(rounds)


def test_a_drafter_ships_for_the_embedded_model(engine):
    assert shipped("dflash", engine.prepare().name) is not None


def needs_shipped(engine, method):
    """Skip a method whose drafter, or whose n-gram store, does not ship."""
    kind, name = RECIPES[method].drafter, engine.prepare().name
    if shipped(kind, name) is None:
        pytest.skip(f"no {kind} drafter ships for {name}")
    if RECIPES[method].builder == "continuity" and shipped_store(name) is None:
        pytest.skip(f"no n-gram store ships for {name}")


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_plain_decoding_is_what_the_models_own_forward_says(engine, plain, temperature):
    """One forward of Hugging Face's over the whole text, without any cache of ours."""
    language, tokens = engine.prepare(), plain[temperature]
    assert len(tokens) == COUNT or tokens[-1] in engine.target(engine.method("ar")).stop_ids
    prompt = language.encode_chat(PROMPT)
    ids = torch.tensor([prompt + tokens])
    count = ids.shape[1]
    lowest = torch.finfo(torch.float32).min
    causal = torch.full((count, count), lowest).triu(1)[None, None]
    with torch.inference_mode():
        logits = language.model(ids, attention_mask=causal, use_cache=False).logits[0]
    rule, told = TargetSampler(Sampling(temperature, seed=3)), logits[len(prompt) - 1 : -1]
    positions = list(range(len(prompt), len(prompt) + len(tokens)))
    assert rule.choose(told, positions).tolist() == tokens


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize(
    ("method", "budget"),
    [("dflash", 16), ("ddtree", 16), ("ddtree", 64), ("treeflash", 16), ("dart", 16)],
)
def test_the_text_is_plain_decodings_token_for_token(engine, plain, method, budget, temperature):
    needs_shipped(engine, method)
    rounds, tokens = decoded(engine, method, budget, temperature)
    assert tokens == plain[temperature]
    assert len(tokens) >= 128, "choose a prompt whose answer is long enough"
    assert len(rounds) < 0.9 * len(tokens), "the shipped drafter must be worth something"
