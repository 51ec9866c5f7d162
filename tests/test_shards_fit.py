"""Training data and the fit: what is stored is what the target said, and a killed run goes on."""

import copy
from dataclasses import replace

import pytest
import torch

from core.drafters.dflash import load_model
from core.train import fit as fitting
from core.train.collect import Collector, CollectSettings, collect
from core.train.fit import Corpus, Fit, FitSettings, TargetParts, depth_weights, initial_model
from core.train.shards import TOP_K, Document, read_shard, shard_layers, shard_paths, write_shard
from core.train.texts import Sample
from tests import toys

PROMPTS = ["hi", "tell me more", "a longer question about nothing"]


def document(seed, length=12, width=8):
    generator = torch.Generator().manual_seed(seed)
    return Document(
        tokens=torch.randint(0, 50, (length,), generator=generator, dtype=torch.int32),
        answer=3,
        features=torch.randn(length, width, generator=generator).half(),
        top_ids=torch.randint(0, 50, (length, TOP_K), generator=generator, dtype=torch.int32),
        top_logp=torch.randn(length, TOP_K, generator=generator).half(),
    )


# ── shards ───────────────────────────────────────────────────────────────────────────────────────


def test_a_shard_round_trips(tmp_path):
    documents = [document(seed, length) for seed, length in enumerate([12, 1, 40])]
    write_shard(tmp_path / "deep" / "a-00000.safetensors", documents, (0, 2))
    [path] = shard_paths(tmp_path / "deep")
    assert shard_layers(path) == (0, 2)
    for found, given in zip(read_shard(path), documents, strict=True):
        assert found.answer == given.answer and len(found) == len(given)
        for name in ("tokens", "features", "top_ids", "top_logp"):
            assert torch.equal(getattr(found, name), getattr(given, name))
            assert getattr(found, name).dtype == getattr(given, name).dtype


def test_an_interrupted_shard_is_no_shard(tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("core.train.shards.os.replace", stop)
    with pytest.raises(KeyboardInterrupt):
        write_shard(tmp_path / "a-00000.safetensors", [document(0)], (0,))
    assert shard_paths(tmp_path) == []


# ── collecting ───────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def owner():
    made = toys.language_model()
    made.generation_config.eos_token_id = toys.tokenizer().eos_token_id
    return made


@pytest.fixture(scope="module")
def collector(owner):
    settings = CollectSettings(toys.LAYERS, (0.0, 1.0), batch=3, max_new_tokens=30, top_k=20)
    return Collector(owner, toys.tokenizer(), settings)


@pytest.fixture(scope="module")
def eager(owner):
    """The same weights on Hugging Face's own attention."""
    made = copy.deepcopy(owner)
    made.set_attn_implementation("eager")
    return made


@torch.inference_mode()
def check_document(eager, found):
    """Features and top-K equal a plain forward on the same tokens, unpadded and alone."""
    out = eager(found.tokens[None].long(), output_hidden_states=True, use_cache=False)
    features = torch.cat([out.hidden_states[i + 1][0] for i in toys.LAYERS], -1)
    torch.testing.assert_close(found.features.float(), features, rtol=2e-3, atol=2e-3)
    log_p = out.logits[0].log_softmax(-1)
    best = log_p.topk(TOP_K)
    torch.testing.assert_close(found.top_logp.float(), best.values, rtol=2e-3, atol=5e-3)
    own = log_p.gather(1, found.top_ids.long())
    torch.testing.assert_close(own, best.values, rtol=2e-3, atol=2e-3)
    return log_p


def test_generated_documents_hold_what_a_plain_forward_says(eager, collector):
    prompts = [collector.chat(p) for p in PROMPTS]
    documents = collector.answer(prompts, seed=1)
    assert len(documents) == 6
    for index, found in enumerate(documents):
        prompt = prompts[index // 2]
        assert found.tokens[: found.answer].tolist() == prompt
        assert len(found) > len(prompt)
        log_p = check_document(eager, found)
        if index % 2 == 0:  # temperature 0: every answer token is the argmax before it
            told = log_p[found.answer - 1 : -1].argmax(-1)
            assert told.tolist() == found.tokens[found.answer :].tolist()
    assert documents[0].tokens.tolist() != documents[1].tokens.tolist()


def test_read_documents_hold_what_a_plain_forward_says(eager, collector):
    samples = [Sample(p, "an answer " * n) for n, p in enumerate(PROMPTS, 1)]
    for found, sample in zip(collector.read(samples), samples, strict=True):
        prompt = collector.chat(sample.user)
        assert found.answer == len(prompt)
        assert toys.tokenizer().decode(found.tokens[found.answer : -1]) == sample.answer
        assert found.tokens[-1] == toys.tokenizer().eos_token_id
        check_document(eager, found)


def test_the_same_seed_generates_the_same_text(collector):
    prompts = [collector.chat(PROMPTS[0])]
    one, two = (collector.answer(prompts, seed=5)[1].tokens for _ in "ab")
    other = collector.answer(prompts, seed=6)[1].tokens
    assert torch.equal(one, two) and not torch.equal(one, other)


def test_collecting_again_skips_finished_shards(collector, tmp_path):
    samples = [Sample(p) for p in PROMPTS * 2]
    first = list(collect(collector, samples, tmp_path, "s"))
    assert len(first) == 2 and all(first)
    paths = shard_paths(tmp_path)
    kept = paths[0].read_bytes()
    paths[1].unlink()
    assert list(collect(collector, samples, tmp_path, "s")) == [0, first[1]]
    assert paths[0].read_bytes() == kept and shard_paths(tmp_path) == paths


# ── fitting ──────────────────────────────────────────────────────────────────────────────────────

ENDLESS = FitSettings(
    minutes=1e6, sequences=3, anchors=6, warmup=1, lr=3e-3, frequent=64, sampled=32,
    save_every=10**9, held_out=1, gamma=3.0,
)  # fmt: skip


@pytest.fixture(scope="module")
def shards(collector, tmp_path_factory):
    where = tmp_path_factory.mktemp("shards")
    samples = [Sample(f"question {i}", f"answer {i} " * 8) for i in range(6)]
    list(collect(collector, samples, where, "read"))
    return where


def a_fit(owner, shards, folder, settings=ENDLESS):
    config = toys.dflash_config(
        vocab_size=toys.LANGUAGE_SIZE, mask_token_id=258, intermediate_size=48
    )
    model = initial_model(config, owner, torch.arange(20)[None])
    return Fit(model, TargetParts(owner), Corpus(shards, settings.held_out), settings, folder)


def losses(fit, count):
    return [status.loss for status, _ in zip(fit.steps(), range(count), strict=False)]


def test_a_fit_lowers_the_loss(owner, shards, tmp_path):
    seen = losses(a_fit(owner, shards, tmp_path), 60)
    assert all(loss >= 0 for loss in seen)
    assert sum(seen[-10:]) < 0.8 * sum(seen[:10])


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_resumed_fit_goes_on_exactly(owner, shards, tmp_path, optimizer):
    settings = replace(ENDLESS, optimizer=optimizer, save_every=6)
    whole = a_fit(owner, shards, tmp_path / "whole", settings)
    expected = losses(whole, 11)
    first = a_fit(owner, shards, tmp_path / "cut", settings)
    assert losses(first, 8) == expected[:8]  # killed two steps behind the checkpoint
    second = a_fit(owner, shards, tmp_path / "cut", settings)
    assert second.step == 6
    assert losses(second, 5) == expected[6:]
    for (name, a), (_, b) in zip(
        whole.model.named_parameters(), second.model.named_parameters(), strict=True
    ):
        assert torch.equal(a, b), name
        assert torch.equal(whole.average[name], second.average[name]), name


def test_a_checkpoint_is_the_average_in_the_official_format(owner, shards, tmp_path):
    fit = a_fit(owner, shards, tmp_path)
    losses(fit, 4)
    fit.save()
    loaded = load_model(tmp_path / "checkpoint", torch.float32, "cpu")
    for name, tensor in loaded.state_dict().items():
        assert torch.equal(tensor, fit.average[name].bfloat16().float()), name


def test_an_interrupted_save_keeps_the_last_one(owner, shards, tmp_path, monkeypatch):
    fit = a_fit(owner, shards, tmp_path)
    losses(fit, 2)
    fit.save()
    before = (tmp_path / "state.safetensors").read_bytes()
    losses(fit, 2)

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(fitting.os, "replace", stop)
    with pytest.raises(KeyboardInterrupt):
        fit.save()
    assert (tmp_path / "state.safetensors").read_bytes() == before


def test_the_target_is_never_trained(owner, shards, tmp_path):
    before = {name: tensor.clone() for name, tensor in owner.state_dict().items()}
    losses(a_fit(owner, shards, tmp_path), 5)
    assert all(torch.equal(tensor, before[name]) for name, tensor in owner.state_dict().items())


def test_held_out_documents_are_not_trained_on(shards):
    corpus = Corpus(shards, 2)
    assert len(corpus.test) == 2 and len(corpus.train) == 4
    held = {tuple(d.tokens.tolist()) for d in corpus.test}
    assert not held & {tuple(d.tokens.tolist()) for d in corpus.train}


def test_depth_weights_fall_exponentially():
    weights = depth_weights(4, 2.0)
    assert weights[0] == 1
    torch.testing.assert_close(weights[1:] / weights[:-1], torch.full((3,), 0.60653))
