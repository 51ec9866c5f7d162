"""The EAGLE-3 drafter: texts, its files and its training."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from safetensors.torch import load_file

from analysis.measures.probe import observe
from core.drafting.builders import DynamicTree
from core.errors import UserError
from core.learning.corpus import Corpus
from core.learning.shards import write_shard
from core.learning.student import TrainingRun
from core.methods.eagle3 import EagleTrainingOptions
from core.methods.eagle3.model import FORM, EagleConfig, EagleModel, save
from core.methods.eagle3.training import TRAINING, EagleStudent
from core.methods.loading import load_drafter
from core.methods.method import DepthOptions, find_drafter
from core.models.checkpoint import WithHead, covered, holds_tokens
from core.models.language import Language
from core.train.fit import Fit
from core.train.options import FitSettings
from tests.helpers import slow_methods, toys
from tests.helpers.drafter_reference import (
    IDS,
    numbers,
)
from tests.helpers.toys_on_disk import write_checkpoint
from tests.helpers.training_toys import training_document
from tests.helpers.users_files import PUBLISHED

SWITCHES = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")


def test_a_level_is_one_batch():
    drafter, sizes = toys.eagle_drafter(), []
    drafter.reset(20)
    drafter.extend([3, 4], numbers(1, 2, 96))
    session = drafter.begin(5, 16)
    score = session.score
    session.score = lambda tokens, parents: sizes.append(len(tokens)) or score(tokens, parents)
    DynamicTree(4)(session, [3, 4, 5], 20)
    assert sizes == [1, 4, 4, 4, 4]


# ── files ────────────────────────────────────────────────────────────────────────────────────────


def published(folder, ids=IDS):
    """A checkpoint in the official layout, written here; (the drafter it should give)."""
    drafter = toys.eagle_drafter(ids=ids, dtype=torch.float32)
    state = dict(drafter.model.state_dict()) | {"lm_head.weight": drafter.head.weight}
    if ids is not None:
        state["d2t"] = ids - torch.arange(len(ids))
        state["t2d"] = torch.isin(torch.arange(48), ids)
    fields = {
        "architectures": ["LlamaForCausalLMEagle3"],
        **toys.LAYER,
        "num_hidden_layers": 1,
        "vocab_size": 48,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
    }
    if ids is not None:
        fields["draft_vocab_size"] = len(ids)
    write_checkpoint(folder, fields, state)
    return drafter, fields, state


def assert_found(found, drafter):
    for name, tensor in drafter.model.state_dict().items():
        assert torch.equal(found.model.state_dict()[name], tensor), name
    assert torch.equal(found.head, drafter.head.weight)
    if drafter.covered is None:
        assert found.ids is None
    else:
        assert torch.equal(found.ids, drafter.covered.ids)


@pytest.mark.parametrize("ids", [None, IDS])
def test_the_published_layout_is_read(tmp_path, ids):
    drafter, _, _ = published(tmp_path, ids)
    found = FORM.load_checkpoint(tmp_path, torch.float32, "cpu")
    assert_found(found, drafter)
    assert found.model.config.feature_layers(30) == (1, 14, 26)
    save(found, tmp_path / "again")
    again = FORM.load_checkpoint(tmp_path / "again", torch.float32, "cpu")
    assert again.model.config == found.model.config
    assert again.ids is found.ids is None or torch.equal(again.ids, found.ids)


def test_speculators_layout_is_read(tmp_path):
    switches = dict.fromkeys(SWITCHES, True)
    own = {"layers": (0, 1, 3), "own_embedding": True}
    drafter = toys.eagle_drafter(ids=IDS, dtype=torch.float32, **own, **switches)
    state = {n.replace("midlayer.", "layers.0."): t for n, t in drafter.model.state_dict().items()}
    state |= {
        "lm_head.weight": drafter.head.weight,
        "d2t": IDS - torch.arange(len(IDS)),
        "t2d": torch.isin(torch.arange(48), IDS),
        "verifier_norm.weight": numbers(1, 32),
    }
    _, fields, _ = published(tmp_path / "other")
    layer = {k: v for k, v in fields.items() if k not in ("architectures", "draft_vocab_size")}
    layer |= {"layer_types": ["sliding_attention"], "sliding_window": 2048}  # their default
    raw = {
        "speculators_model_type": "eagle3",
        "draft_vocab_size": len(IDS),
        "eagle_aux_hidden_state_layer_ids": [1, 2, 4],
        "transformer_layer_config": layer | {"model_type": "llama"},
        **switches,
    }
    write_checkpoint(tmp_path, raw, state)
    found = FORM.load_checkpoint(tmp_path, torch.float32, "cpu")
    assert_found(found, drafter)
    config = found.model.config
    assert config.layers == (0, 1, 3) and config.window == 2048
    assert all(getattr(config, name) for name in SWITCHES)
    told = EagleConfig.from_json(json.loads(json.dumps(config.to_json())))
    assert replace(told, own_embedding=True) == config  # which the tensors tell


def layered(folder, layers=3, model_type="qwen3", **more):
    """A checkpoint of several layers, the second of which sees all, as speculators writes it."""
    kinds = ["sliding_attention", "full_attention", *["sliding_attention"] * layers][:layers]
    drafter = toys.eagle_drafter(
        ids=IDS, dtype=torch.float32, num_hidden_layers=layers, qk_norm=model_type == "qwen3",
        window=4, whole=(1,),
    )  # fmt: skip
    _, fields, _ = published(folder / "other")
    left = ("architectures", "draft_vocab_size")
    layer = {k: v for k, v in fields.items() if k not in left} | {
        "model_type": model_type, "num_hidden_layers": layers, "layer_types": kinds,
        "sliding_window": 4, **more,
    }  # fmt: skip
    raw = {
        "architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3",
        "draft_vocab_size": len(IDS), "transformer_layer_config": layer,
    }  # fmt: skip
    state = {n.replace("midlayer.", "layers.0."): t for n, t in drafter.model.state_dict().items()}
    state |= {"lm_head.weight": drafter.head.weight, "d2t": IDS - torch.arange(len(IDS))}
    write_checkpoint(folder, raw, state)
    return drafter, state


@pytest.mark.parametrize("model_type", ["llama", "qwen3"])
def test_several_layers_are_read_and_written_by_their_published_names(model_type, tmp_path):
    """As speculators writes them: the first is layers.0, and only it has a hidden_norm."""
    drafter, state = layered(tmp_path, 3, model_type)
    assert [n for n in state if n.endswith("hidden_norm.weight")] == ["layers.0.hidden_norm.weight"]
    assert state["layers.0.self_attn.k_proj.weight"].shape == (16, 64)
    assert state["layers.2.self_attn.k_proj.weight"].shape == (16, 32)
    found = FORM.load_checkpoint(tmp_path, torch.float32, "cpu")
    assert_found(found, drafter)
    assert found.model.config.whole == (1,) and found.model.config.window == 4
    save(found, tmp_path / "again")
    again = load_file(tmp_path / "again" / "model.safetensors")
    assert again.keys() == state.keys() | {"t2d"}
    assert FORM.load_config(tmp_path / "again") == found.model.config


def test_a_layer_that_the_config_does_not_count_is_refused(tmp_path):
    layered(tmp_path, 3)
    raw = json.loads((tmp_path / "config.json").read_text())
    for count, words in ((2, r"layers\.2.*none of this name"), (4, r"layers\.3.* missing")):
        layer = raw["transformer_layer_config"] | {"num_hidden_layers": count, "layer_types": None}
        (tmp_path / "config.json").write_text(json.dumps(raw | {"transformer_layer_config": layer}))
        with pytest.raises(UserError, match=words):
            FORM.load_checkpoint(tmp_path, torch.float32, "cpu")


@pytest.mark.parametrize("kind", ["eagle3", "eagle2"])
@pytest.mark.parametrize("trained", [True, False])
def test_an_embedding_that_was_trained_along_is_used_and_a_copy_is_dropped(kind, trained, tmp_path):
    made = {"eagle3": toys.eagle_drafter, "eagle2": toys.feature_drafter}[kind]
    model = made(dtype=torch.float32, own_embedding=True).model
    model.embed_tokens.weight.data = model.embed_tokens.weight.bfloat16().float()
    target = toys.model(dtype=torch.float32).get_input_embeddings().weight.detach()
    if not trained:
        model.embed_tokens.weight = torch.nn.Parameter(target.clone(), False)
    save(WithHead(model), tmp_path)
    own = Language("toy", toys.model(dtype=torch.float32), toys.tokenizer(), None)
    found = load_drafter(find_drafter(kind), own, tmp_path, DepthOptions(5))
    table = model.embed_tokens.weight if trained else target
    assert torch.equal(found.embed([7, 9]), table[[7, 9]])
    assert (found.model.embed_tokens is None) == (not trained)
    assert trained != torch.equal(table, target)


def test_training_reads_the_embedding_that_a_checkpoint_has_and_keeps_it(tmp_path):
    model = toys.eagle_drafter(dtype=torch.float32, own_embedding=True).model
    save(WithHead(model), tmp_path / "start")
    found = FORM.load_checkpoint(tmp_path / "start", torch.float32, "cpu")
    student = EagleStudent(found, toys.model(dtype=torch.float32), 4)
    ids = torch.tensor([[7, 9]])
    assert torch.equal(student.embed(ids), model.embed_tokens.weight.bfloat16().float()[ids])
    assert not student.embed(ids).requires_grad
    student.save(tmp_path / "again")
    again = FORM.load_checkpoint(tmp_path / "again", torch.float32, "cpu").model
    assert torch.equal(again.embed_tokens.weight, model.embed_tokens.weight.bfloat16().float())


def test_the_small_form_has_no_head_where_the_targets_serves(tmp_path):
    drafter = toys.eagle_drafter(ids=IDS)
    save(WithHead(drafter.model, None, IDS), tmp_path, small=True)
    found = FORM.load_checkpoint(tmp_path, torch.float32, "cpu")
    assert found.head is None and torch.equal(found.ids, IDS)


@given(st.integers(0, 2**32), st.integers(2, 700), st.booleans())
@example(0, 32000, False)  # of the size and shape of EAGLE-3's for Llama 3.1
def test_a_map_of_offsets_is_never_taken_for_tokens(seed, count, marked):
    """Whichever tokens a head covers; and tokens are, wherever offsets could not be."""
    draw = torch.Generator().manual_seed(seed)
    size = 128_256 if count == 32_000 else count + int(torch.randint(1, 900, (1,), generator=draw))
    ids = torch.randperm(size, generator=draw)[:count].sort().values
    t2d = torch.isin(torch.arange(size), ids) if marked else None
    offsets = ids - torch.arange(count)
    assert not holds_tokens(offsets, t2d, size)
    assert torch.equal(covered(offsets, count, size, Path(), t2d), ids)
    told = marked or int(ids[-1]) + count > size
    assert holds_tokens(ids, t2d, size) == told
    if told:
        assert torch.equal(covered(ids, count, size, Path(), t2d), ids)


@pytest.mark.parametrize(
    ("fields", "state", "words"),
    [
        ({"num_hidden_layers": 2}, {}, "layers.1"),
        ({"num_hidden_layers": 0}, {}, "0 layers"),
        ({"layer_types": ["sliding_attention"]}, {}, "no window"),
        ({"layer_types": ["linear_attention"]}, {}, "other kinds"),
        ({"hidden_act": "gelu"}, {}, "gelu"),
        ({"hidden_size": None}, {}, "EAGLE-3"),
        ({"eagle_aux_hidden_state_layer_ids": [-1, 2, 4]}, {}, "before the target's embeddings"),
        ({"eagle_aux_hidden_state_layer_ids": 3}, {}, "EAGLE-3"),
        ({"norm_before_fc": True}, {}, "input_norm"),
        ({}, {"lm_head.weight": torch.zeros(3, 32)}, "lm_head"),
        ({}, {"d2t": torch.full((14,), 40)}, "d2t"),
        ({}, {"surplus": torch.zeros(2)}, "surplus"),
        ({}, {"fc.weight": torch.zeros(5, 5)}, r"fc.weight has shape \(5, 5\)"),
    ],
)
def test_what_is_wrong_in_a_checkpoint_is_one_sentence(tmp_path, fields, state, words):
    _, good, tensors = published(tmp_path)
    write_checkpoint(tmp_path, good | fields, tensors | state)
    with pytest.raises(UserError, match=words) as error:
        FORM.load_checkpoint(tmp_path, torch.float32, "cpu")
    assert "\n" not in str(error.value)


# Where a config names its layers and what they number, by what its publisher's code does: the
# target's layers, the config, the layers after which the drafter reads, and the source.
NUMBERED = {
    # SpecForge 0.2.0 trains on SGLang's capture, which adds 1 to each (qwen3_moe.py), and its own
    # default is 1, n//2 − 1, n − 4 (model_providers.py): the list is that default.
    "qwen3-235b-a22b eagle3": (94, None, (1, 46, 90)),
    # SGLang's gpt_oss.py adds 1, for 24 is not among them.
    "gpt-oss-20b eagle3": (24, None, (1, 11, 21)),
    # Gemma 4's layers that see all are 5, 11, 17, 23 and 29; SGLang's gemma4_causal.py adds 1.
    "gemma-4-26b-a4b eagle3": (30, None, (5, 17, 29)),
    # SGLang's deepseek_v2.py adds 1 only where the first is 1 (pull request 25454, for this drafter
    # of Kimi's: with 1 added it accepted less): 2, n//2, n − 3 are EAGLE-3's own states.
    "kimi-k2.5 eagle3": (61, None, (1, 29, 57)),
    # speculators 0.9.0: models/utils.py has the default 2, n//2, n − 3 and the last hidden state at
    # n; vLLM takes the state that enters a layer of this number.
    "qwen3-8b eagle3, speculators": (36, [2, 18, 33], (1, 17, 32)),
    # None: EAGLE-3's own three.
    "llama-3.1-8b eagle3": (32, None, (1, 15, 28)),
}


@pytest.mark.parametrize("name", NUMBERED)
def test_the_numbers_of_layers_are_the_publishers(name):
    layers, own, after = NUMBERED[name]
    raw = PUBLISHED[name]["config"]
    named = {} if own is None else {"eagle_aux_hidden_state_layer_ids": own}
    assert EagleConfig.from_json(raw | named).feature_layers(layers) == after


def test_other_numbers_in_eagle_config_are_of_layers_too():
    raw = PUBLISHED["qwen3-235b-a22b eagle3"]["config"]
    for ids in ([0, 2, 4], [2, 20, 40], [2, 3], [2, 30, 58, 60]):
        nested = {"eagle_config": {"eagle_aux_hidden_state_layer_ids": ids}}
        assert EagleConfig.from_json(raw | nested).feature_layers(94) == tuple(ids)


def test_the_embedding_is_a_feature_where_the_config_counts_from_it(tmp_path):
    """Number 0 is the state that enters the target's first layer."""
    drafter, fields, state = published(tmp_path)
    write_checkpoint(tmp_path, fields | {"eagle_aux_hidden_state_layer_ids": [0, 2, 4]}, state)
    found = FORM.load_checkpoint(tmp_path, torch.float32, "cpu")
    assert found.model.config.feature_layers(4) == (-1, 1, 3)
    assert_found(found, drafter)
    save(found, tmp_path / "again")
    assert FORM.load_config(tmp_path / "again") == found.model.config


@pytest.mark.parametrize("sampling", [toys.GREEDY, toys.HOT])
def test_a_drafter_that_reads_the_embedding_is_given_it(sampling, monkeypatch):
    drafter = toys.eagle_drafter(layers=(-1, 1, 3))
    table, given, extend = toys.model().get_input_embeddings().weight, [], drafter.extend

    def look(tokens, features):
        assert torch.equal(features[:, :32], table[torch.tensor(tokens)])
        given.extend(tokens)
        extend(tokens, features)

    monkeypatch.setattr(drafter, "extend", look)
    found = toys.run(toys.Decoder("eagle3", drafter, DynamicTree()), 30, sampling, observe=observe)
    assert found.tokens == toys.plain(30, sampling) and len(given) > 30


@pytest.mark.parametrize("name", ["pytorch_model.bin", "heads.pt"])
def test_a_pickle_is_refused_with_the_way_to_convert_it(tmp_path, name):
    published(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / name)
    with pytest.raises(UserError, match=f"{name} is a pickle.*save_file"):
        FORM.load_checkpoint(tmp_path, torch.float32, "cpu")


# ── training ─────────────────────────────────────────────────────────────────────────────────────


SETTINGS = FitSettings(
    minutes=1e9, sequences=1, anchors=20, warmup=1, frequent=48, sampled=0, held_out=0
)


def a_fit(folder, shards, ids=IDS, steps=4):
    made = toys.eagle_drafter(ids=ids, dtype=torch.float32)
    made.model.requires_grad_(True)
    student = EagleStudent(WithHead(made.model, None, ids), toys.model(dtype=torch.float32), steps)
    return Fit(student, Corpus(shards, 0), SETTINGS, folder)


@pytest.fixture
def shards(tmp_path):
    write_shard(tmp_path / "shards" / "a.safetensors", [training_document()])
    return tmp_path / "shards"


def test_the_loss_is_that_of_chains_drafted_one_by_one(tmp_path, shards, monkeypatch):
    """Soft cross-entropy, less p's entropy, to p restricted to the draft vocabulary; depth k
    weighs 0.8^(k − 1); nothing is learnt where the target's best token is outside."""
    fit, found, drawn = a_fit(tmp_path, shards), training_document(), []
    student, kept = fit.student, fit.settings.top_k
    drafter = toys.eagle_drafter(ids=IDS)
    drafter.head.weight.data = student.own_head.double()
    labels = student.labels
    monkeypatch.setattr(
        student, "labels", lambda blocks, *_: drawn.append(blocks) or labels(blocks, *_)
    )
    loss = next(fit.steps()).loss
    [blocks] = drawn
    features = found.features_after(student.layers).double()
    total, weights = 0.0, 0.0
    for anchor in blocks.anchors.tolist():
        for depth in range(4):
            at = anchor + depth
            if at >= len(found) or int(found.top_ids[at, 0]) not in IDS.tolist():
                continue
            context = found.tokens[:anchor].tolist()
            path = found.tokens[anchor : at + 1].tolist()
            log_q = slow_methods.eagle3(drafter, context, features[:anchor], path)
            ids, p = found.top_ids[at, :kept].long(), found.top_logp[at, :kept].double().exp()
            inside = torch.isin(ids, IDS)
            p = p[inside] * p.sum() / p[inside].sum()
            total += 0.8**depth * float((p * (p.log() - log_q[ids[inside]])).sum())
            weights += 0.8**depth
    assert weights > 3 and loss == pytest.approx(total / weights, rel=2e-3)


def test_a_killed_training_goes_on_with_its_own_draft_vocabulary(tmp_path, shards):
    language = toys.SimpleNamespace(model=toys.model(dtype=torch.float32), device="cpu")
    run, options = TrainingRun(language, tmp_path), EagleTrainingOptions(3, 20)
    assert TRAINING.layers(run, options) == (1, 1, 0)

    def fit():
        student = TRAINING.student(run, options, Corpus(shards, 0))
        student.model.train().requires_grad_(True)
        return Fit(student, Corpus(shards, 0), SETTINGS, tmp_path / "eagle3")

    whole = fit()
    steps = whole.steps()
    for _ in range(2):
        next(steps)
    whole.save()
    ids = whole.student.ids
    assert len(ids) == 20 and ids.tolist() == sorted(set(ids.tolist()))
    write_shard(shards / "b.safetensors", [training_document(seed) for seed in range(5, 9)])
    again = fit()
    assert again.step == 2 and torch.equal(again.student.ids, ids)
    for name, tensor in whole.student.model.state_dict().items():
        assert torch.equal(again.student.model.state_dict()[name], tensor), name
    assert next(again.steps()).step == 3


def test_what_ships_is_small_and_drafts_with_the_targets_head(tmp_path, shards):
    fit = a_fit(tmp_path, shards)
    fit.student.saved_head = None
    fit.student.save(tmp_path / "trained")
    TRAINING.ship(tmp_path / "trained", tmp_path / "small")
    found = FORM.load_checkpoint(tmp_path / "small", torch.float32, "cpu")
    assert found.head is None and torch.equal(found.ids, IDS)
    assert isinstance(found.model, EagleModel)
