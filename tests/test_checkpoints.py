"""Every drafter's checkpoints: they survive saving, and what is wrong in one is one sentence."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from core.errors import UserError
from core.methods.dart import model as dart
from core.methods.dflash import model as dflash
from core.methods.loading import digest
from core.methods.treeflash import model as treeflash
from core.models import checkpoint
from core.models.layers import Rope
from tests import toys
from tests.test_dflash import LLAMA3, numbers

HOMES = {"dflash": dflash.FORM, "treeflash": treeflash, "dart": dart.FORM}
TOYS = {"dflash": toys.dflash_model, "treeflash": toys.treeflash_model, "dart": toys.dart_model}
TENSORS = "model.safetensors"
every_kind = pytest.mark.parametrize("kind", HOMES)


def load(kind, folder, dtype=torch.bfloat16):
    if kind == "dart":
        return dart.FORM.load_checkpoint(folder, dtype, "cpu").model
    return HOMES[kind].load_model(folder, dtype, "cpu")


def saved(kind, folder, small=False):
    model = TOYS[kind](5, dtype=torch.bfloat16)
    HOMES[kind].save_model(model, folder, small)
    return model


def one_sentence(kind, folder, words):
    with pytest.raises(UserError, match=words) as error:
        load(kind, folder)
    assert "\n" not in str(error.value) and 10 < len(str(error.value)) < 500


def assert_same_weights(one, two):
    assert one.state_dict().keys() == two.state_dict().keys()
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, two.state_dict()[name]), name


def rewrite(folder, change):
    state = load_file(folder / TENSORS)
    change(state)
    save_file(state, folder / TENSORS, {"format": "pt"})


def rewrite_config(folder, without=(), **changes):
    raw = json.loads((folder / "config.json").read_text()) | changes
    raw = {name: value for name, value in raw.items() if name not in without}
    (folder / "config.json").write_text(json.dumps(raw))


# ── saving and loading ───────────────────────────────────────────────────────────────────────────


@every_kind
def test_a_checkpoint_is_loaded_as_it_was_saved(kind, tmp_path):
    model = saved(kind, tmp_path)
    found = load(kind, tmp_path)
    assert found.config == model.config and not found.training
    assert_same_weights(found, model)
    assert {t.dtype for t in load(kind, tmp_path, torch.float32).parameters()} == {torch.float32}
    assert not dict(found.named_buffers()), "a buffer outside the state dict would be lost"


@every_kind
def test_the_small_form_saved_again_is_the_same_bf16_checkpoint(kind, tmp_path):
    model = saved(kind, tmp_path / "small", small=True)
    assert any(t.dtype == torch.int8 for t in load_file(tmp_path / "small" / TENSORS).values())
    once = load(kind, tmp_path / "small")
    HOMES[kind].save_model(once, tmp_path / "official")
    assert_same_weights(load(kind, tmp_path / "official"), once)
    for name, tensor in once.state_dict().items():
        exact = model.state_dict()[name].float()
        assert (tensor.float() - exact).abs().max() <= 0.01 * exact.abs().max(), name


@every_kind
def test_a_sharded_checkpoint_is_loaded_whole(kind, tmp_path):
    model = saved(kind, tmp_path)
    state = load_file(tmp_path / TENSORS)
    (tmp_path / TENSORS).unlink()
    for part in range(2):
        names = sorted(state)[part::2]
        file = tmp_path / f"model-0000{part + 1}-of-00002.safetensors"
        save_file({name: state[name] for name in names}, file)
    assert_same_weights(load(kind, tmp_path), model)


MLP = {f"mlp.{name}_proj.weight" for name in ("gate", "up", "down")}
ATTENTION = {f"self_attn.{name}_proj.weight" for name in "qkvo"}
LAYER = {"input_layernorm.weight", "post_attention_layernorm.weight", *MLP, *ATTENTION}
DFLASH_LAYER = LAYER | {f"self_attn.{name}_norm.weight" for name in "qk"}
DFLASH = {f"layers.{i}.{name}" for i in range(2) for name in DFLASH_LAYER}
DFLASH |= {"norm.weight", "fc.weight", "hidden_norm.weight"}
HEAD = {f"ar_approximation.{name}" for name in ("ug.weight", "ug.bias", "d.weight", "norm.weight")}
DART = {f"midlayer.{name}" for name in LAYER | {"mask_rep", "hidden_norm.weight"}}
DART |= {"fc.weight", "norm.weight"}


@pytest.mark.parametrize(
    ("kind", "names", "fields"),
    [
        (
            "dflash",
            DFLASH,
            {"dflash_config": {"target_layer_ids": [0, 2], "mask_token_id": 47}},
        ),
        (
            "treeflash",
            HEAD | {f"model.{name}" for name in DFLASH},
            {"treeflash_config": {"ar_approximation": "swiglu", "candidate_tokens": 16}},
        ),
        ("dart", DART, {"architectures": ["LlamaForCausalLMDart"], "draft_length": 6}),
    ],
)
def test_tensors_and_fields_carry_the_published_names(kind, names, fields, tmp_path):
    saved(kind, tmp_path)
    assert set(load_file(tmp_path / TENSORS)) == names
    config = json.loads((tmp_path / "config.json").read_text())
    assert {name: config[name] for name in fields} == fields


# ── what is wrong in one ─────────────────────────────────────────────────────────────────────────


def without(name):
    return lambda state: state.pop(name)


def with_shape(name, *shape):
    return lambda state: state.update({name: torch.zeros(shape)})


@pytest.mark.parametrize(
    ("kind", "change", "words"),
    [
        ("dflash", without("layers.1.self_attn.q_norm.weight"), r"layers\.1\.\S*q_norm.*missing"),
        ("dflash", with_shape("lm_head.weight", 2, 2), r"lm_head\.weight"),
        ("dflash", with_shape("fc.weight", 32, 96), r"fc\.weight.*\(32, 96\).*\(32, 64\)"),
        ("treeflash", without("ar_approximation.ug.bias"), r"ar_approximation\.ug\.bias.*missing"),
        ("treeflash", without("ar_approximation.ug.weight"), r"ug\.weight is missing"),
        ("treeflash", without("model.norm.weight"), r"model\.norm\.weight.*missing"),
        ("treeflash", with_shape("lm_head.weight", 2), r"lm_head\.weight"),
        ("treeflash", with_shape("ar_approximation.d.bias", 32), r"d\.bias"),
        ("treeflash", with_shape("ar_approximation.ug.weight", 48), r"ug\.weight"),
        ("treeflash", with_shape("ar_approximation.ug.weight", 48, 63), r"\(48, 63\)"),
        ("treeflash", with_shape("ar_approximation.ug.weight", 49, 64), r"ug\.weight"),
        ("treeflash", with_shape("ar_approximation.d.weight", 32, 25), r"\(32, 25\)"),
        ("treeflash", with_shape("model.fc.weight", 32, 96), r"\(32, 96\).*\(32, 64\)"),
        ("dart", without("midlayer.mask_rep"), r"midlayer\.mask_rep.*missing"),
        ("dart", without("fc.weight"), r"fc\.weight.*missing"),
        ("dart", with_shape("midlayer.mask_rep", 32), r"\(32,\).*\(64,\)"),
        ("dart", with_shape("midlayer.self_attn.q_norm.weight", 8), "q_norm"),
        ("dart", with_shape("lm_head.weight", 48, 31), r"lm_head\.weight"),
        ("dart", with_shape("lm_head.weight", 47, 32), r"lm_head\.weight"),
    ],
)
def test_a_tensor_that_is_missing_surplus_or_misshapen_is_named(kind, change, words, tmp_path):
    saved(kind, tmp_path)
    rewrite(tmp_path, change)
    one_sentence(kind, tmp_path, words)


@every_kind
@pytest.mark.parametrize("damage", ["lost", "misshapen"])
def test_int8_weights_without_their_exponents_are_one_sentence(kind, damage, tmp_path):
    saved(kind, tmp_path, small=True)

    def change(state):
        name = next(n for n in state if n.endswith(".exponent"))
        exponents = state.pop(name)
        if damage == "misshapen":
            state[name] = exponents[:1].repeat(7, 1)

    rewrite(tmp_path, change)
    one_sentence(kind, tmp_path, "int8 weights and exponents")


@every_kind
def test_files_that_are_no_checkpoint_are_one_sentence(kind, tmp_path):
    saved(kind, tmp_path)
    (tmp_path / TENSORS).write_bytes(b"\x08\0\0\0\0\0\0\0{broken}")
    one_sentence(kind, tmp_path, "cannot be read")
    (tmp_path / TENSORS).unlink()
    one_sentence(kind, tmp_path, r"no \.safetensors")
    one_sentence(kind, tmp_path / "nowhere", "checkpoint")


@every_kind
@pytest.mark.parametrize("text", ["", "{", "[]", "3", '"x"', "null", "{}"])
def test_a_file_that_is_no_config_is_one_sentence(kind, text, tmp_path):
    saved(kind, tmp_path)
    (tmp_path / "config.json").write_text(text)
    one_sentence(kind, tmp_path, ".")


FLASHES = ("dflash", "treeflash")  # one network, one config


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize(
    ("kinds", "name", "value"),
    [
        (["treeflash"], "treeflash_config", {"ar_approximation": None}),
        (["treeflash"], "treeflash_config", {"ar_approximation": "gru"}),
        (["treeflash"], "treeflash_config", 3),
        (["treeflash"], "treeflash_config", ["swiglu"]),
        (FLASHES, "dflash_config", 3),
        (FLASHES, "num_hidden_layers", -1),
        (["dart"], "draft_length", "many"),
        (HOMES, "num_attention_heads", 0),
        (HOMES, "rope_scaling", 3),
        (HOMES, "rope_parameters", [1]),
        (HOMES, "hidden_size", "x"),
        (HOMES, "hidden_size", None),
    ],
)
def test_a_config_that_cannot_be_is_one_sentence(kinds, name, value, tmp_path):
    for kind in kinds:
        saved(kind, tmp_path / kind)
        rewrite_config(tmp_path / kind, **{name: value})
        one_sentence(kind, tmp_path / kind, ".")


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("dflash", ["hidden_size", "vocab_size", "block_size", "num_target_layers"]),
        ("treeflash", ["hidden_size", "block_size", "dflash_config"]),
        ("dart", ["hidden_size", "vocab_size", "draft_length"]),
    ],
)
def test_a_missing_config_field_is_named(kind, names, tmp_path):
    for name in names:
        saved(kind, tmp_path)
        rewrite_config(tmp_path, without=[name])
        named = "mask_token_id" if name == "dflash_config" else name
        one_sentence(kind, tmp_path, f"no field.*{named}")


# ── published configs ────────────────────────────────────────────────────────────────────────────

PUBLISHED = {
    "hidden_size": 2560,
    "intermediate_size": 9728,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "rope_theta": 1000000,
}
PUBLISHED_DFLASH = PUBLISHED | {
    "block_size": 16,
    "dflash_config": {"mask_token_id": 151669, "target_layer_ids": [1, 9, 17, 25, 33]},
    "num_hidden_layers": 5,
    "num_target_layers": 36,
}
PUBLISHED_DART = PUBLISHED | {"draft_vocab_size": 32000, "draft_length": 7, "rope_scaling": None}


def test_published_configs_are_read():
    config = dflash.DFlashConfig.from_json(PUBLISHED_DFLASH)
    assert config.target_layer_ids == (1, 9, 17, 25, 33) and config.mask_token_id == 151669
    assert config.max_depth == 15 and config.head_dim == 128 and config.rope == Rope(1e6)
    config = dart.DartConfig.from_json(PUBLISHED_DART)
    assert config.max_depth == 8 and config.head_dim == 128 and config.rope == Rope(1e6)
    assert config.draft_vocab_size == 32000 and config.target_hidden_size == 2560
    small = replace(config, hidden_size=32, intermediate_size=8)
    assert dart.DartModel(small).fc.in_features == 7680


def test_absent_optional_fields_have_the_references_defaults():
    raw = {"dflash_config": {"mask_token_id": 1}, "head_dim": None, "num_key_value_heads": None}
    config = dflash.DFlashConfig.from_json(PUBLISHED_DFLASH | raw)
    assert config.head_dim == 80 and config.num_key_value_heads == 32
    assert config.target_layer_ids == (1, 9, 17, 25, 33)
    assert dflash.default_layer_ids(36, 1) == (18,) and dflash.default_layer_ids(28, 2) == (1, 25)
    assert dflash.default_layer_ids(30, 3) == (1, 14, 27)


MIXED = ["sliding_attention", "sliding_attention", *["full_attention"] * 3]
USED = {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 28}
SWA = {"mask_token_id": 1, "use_swa": True, "swa_window_size": 99}


@pytest.mark.parametrize(
    ("fields", "window", "sliding", "causal"),
    [
        ({}, 0, (), []),
        (USED, 0, (), []),
        (USED | {"max_window_layers": 3}, 64, (3, 4), [3, 4]),
        ({"layer_types": MIXED, "sliding_window": 2048}, 2048, (0, 1), [0, 1]),
        ({"layer_types": MIXED, "sliding_window": 2048, "is_causal": False}, 2048, (0, 1), []),
        ({"dflash_config": SWA}, 99, range(5), []),
        ({"dflash_config": SWA | {"causal": True}}, 99, range(5), range(5)),
        ({"dflash_config": {"mask_token_id": 1, "causal_head": True}}, 0, (), range(5)),
        ({"block_size": None, "dflash_config": {"mask_token_id": 1, "block_size": 16}}, 0, (), []),
    ],
)  # fmt: skip
def test_what_the_layers_of_published_configs_see(fields, window, sliding, causal):
    """By z-lab's reference, vLLM's reading of ``use_swa``, and JetSpec's ``causal_head``."""
    config = dflash.DFlashConfig.from_json(PUBLISHED_DFLASH | fields)
    shapes = [config.layer_shape(layer) for layer in range(5)]
    assert [i for i in range(5) if shapes[i].window] == [*sliding] and config.max_depth == 15
    assert all(shape.window in (0, window) for shape in shapes)
    assert [i for i in range(5) if shapes[i].causal] == [*causal]
    again = dflash.DFlashConfig.from_json(json.loads(json.dumps(config.to_json())))
    assert [again.layer_shape(i) for i in range(5)] == shapes


DFLASH_ALONE = [(dflash.DFlashConfig, PUBLISHED_DFLASH)]
BOTH = [*DFLASH_ALONE, (dart.DartConfig, PUBLISHED_DART)]


@pytest.mark.parametrize(
    ("configs", "changes", "words"),
    [
        (DFLASH_ALONE, {"layer_types": ["sliding_attention"] * 4}, "other kinds"),
        (DFLASH_ALONE, {"layer_types": ["chunked_attention"] * 5}, "other kinds"),
        (DFLASH_ALONE, {"layer_types": ["sliding_attention"] * 5}, "no window"),
        (
            DFLASH_ALONE,
            {"layer_types": ["sliding_attention"] * 5, "sliding_window": 0},
            "no window",
        ),
        (DFLASH_ALONE, {"dflash_config": {"mask_token_id": 1, "use_swa": True}}, "no window"),
        (DFLASH_ALONE, {"final_logit_softcapping": 20.0}, "softcapping"),
        (DFLASH_ALONE, {"dflash_config": {"output_multiplier": 0.2}}, "output_multiplier"),
        (DFLASH_ALONE, {"hidden_act": "gelu"}, "gelu"),
        (BOTH, {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "dynamic"),
        (BOTH, {"rope_scaling": {"type": "dynamic", "factor": 2}}, "rotary"),
        (BOTH, {"rope_scaling": {"rope_type": "longrope"}}, "longrope"),
        (BOTH, {"rope_parameters": {"partial_rotary_factor": 0.5}}, "part of its heads"),
    ],
)
def test_layers_of_another_kind_are_refused_and_not_drafted_with(configs, changes, words):
    for config, published in configs:
        with pytest.raises(UserError, match=words):
            config.from_json(published | changes)


@pytest.mark.parametrize(("config", "published"), BOTH)
@pytest.mark.parametrize("kind", ["type", "rope_type"])
def test_rotary_positions_are_read_in_every_spelling(config, published, kind):
    plain = config.from_json(published | {"rope_scaling": {kind: "default"}})
    assert plain.rope == Rope(1e6)
    raw = {name: value for name, value in published.items() if name != "rope_theta"}
    assert config.from_json(raw | {"rope_parameters": {"rope_theta": 7e5}}).rope.theta == 7e5
    scaled = config.from_json(published | {"rope_scaling": {kind: "linear", "factor": 2}})
    assert dict(scaled.rope.scaling) == {"rope_type": "linear", "factor": 2}
    assert config.from_json(json.loads(json.dumps(scaled.to_json()))) == scaled


@pytest.mark.parametrize(
    "config",
    [
        toys.dflash_config(rope=LLAMA3, attention_bias=True),
        toys.dart_config(rope=Rope(123.0), draft_vocab_size=20),
    ],
)
def test_a_config_survives_its_own_json(config):
    assert type(config).from_json(json.loads(json.dumps(config.to_json()))) == config


@pytest.mark.parametrize(("layers", "expected"), [(36, (1, 17, 32)), (30, (1, 14, 26))])
def test_darts_features_enter_layers_2_the_middle_and_the_third_last(layers, expected):
    """The state entering layer k is the one after layer k − 1, and index k of Hugging Face's."""
    assert dart.feature_layers(layers) == expected
    assert [i + 1 for i in dart.feature_layers(layers)] == [2, layers // 2, layers - 3]


# ── treeflash: a head alone ──────────────────────────────────────────────────────────────────────


@pytest.fixture
def head_alone(tmp_path):
    """A folder with a head whose backbone lies in the folder beside it."""
    model = toys.treeflash_model(5, dtype=torch.bfloat16)
    dflash.FORM.save_model(model.model, tmp_path / "dflash")
    treeflash.save_model(model, tmp_path / "treeflash", backbone="dflash")
    return tmp_path / "treeflash"


@pytest.mark.parametrize("small", [False, True])
def test_a_head_alone_takes_its_backbone_from_the_folder_beside_it(tmp_path, small):
    model = toys.treeflash_model(5, dtype=torch.bfloat16)
    dflash.FORM.save_model(model.model, tmp_path / "dflash", small)
    treeflash.save_model(model, tmp_path / "treeflash", small, backbone="dflash")
    assert {n.split(".")[0] for n in load_file(tmp_path / "treeflash" / TENSORS)} == {
        "ar_approximation"
    }
    found = treeflash.load_model(tmp_path / "treeflash", torch.bfloat16, "cpu")
    assert_same_weights(found.model, load("dflash", tmp_path / "dflash"))
    treeflash.save_model(found, tmp_path / "joined")
    assert_same_weights(load("treeflash", tmp_path / "joined"), found)


def test_the_hash_of_a_head_alone_tells_backbones_apart(head_alone):
    found = set()
    for seed in range(2):
        dflash.FORM.save_model(toys.dflash_model(seed, torch.float32), head_alone.parent / "dflash")
        found |= {digest("treeflash", head_alone), digest("dflash", head_alone.parent / "dflash")}
    assert len(found) == 4


@pytest.mark.parametrize("name", ["../dflash", "/etc", "a/b", "..", "", "gone"])
def test_a_backbone_elsewhere_is_refused(head_alone, name):
    rewrite_config(head_alone, treeflash_config={"backbone": name})
    one_sentence("treeflash", head_alone, "backbone|safetensors|gone")


def test_a_backbone_of_another_shape_is_one_sentence(head_alone):
    dflash.FORM.save_model(toys.dflash_model(num_hidden_layers=1), head_alone.parent / "dflash")
    one_sentence("treeflash", head_alone, r"model\.layers\.1\..*missing")


# ── dart: heads ──────────────────────────────────────────────────────────────────────────────────


def test_darts_official_form_has_head_embedding_and_maps(tmp_path):
    model = toys.dart_model(5, dtype=torch.bfloat16)
    head, embedding = numbers(1, 48, 32).bfloat16(), numbers(2, 48, 32).bfloat16()
    dart.save_official(model, head, embedding, tmp_path)
    state = load_file(tmp_path / TENSORS)
    assert set(state) == DART | set(dart.BESIDE)
    assert state["d2t"].dtype == torch.int64 and not state["d2t"].any()
    assert state["t2d"].dtype == torch.bool and state["t2d"].all()
    assert torch.equal(state["embed_tokens.weight"], embedding)
    assert state["midlayer.self_attn.q_proj.weight"].shape == (32, 64)
    found = dart.FORM.load_checkpoint(tmp_path, torch.bfloat16, "cpu")
    assert found.head is not None and torch.equal(found.head, head) and found.ids is None
    assert_same_weights(found.model, model)
    with pytest.raises(UserError, match="vocabulary"):
        dart.save_official(model, head[:20], embedding, tmp_path)


def reduced(folder, ids, **maps):
    """An official checkpoint whose head covers some tokens only."""
    model = toys.dart_model(5, torch.bfloat16, draft_vocab_size=len(ids))
    ids = torch.tensor(ids)
    beside = {
        "lm_head.weight": numbers(1, len(ids), 32),
        "embed_tokens.weight": numbers(2, 48, 32),
        "d2t": ids - torch.arange(len(ids)),
        "t2d": torch.isin(torch.arange(48), ids),
    }
    state = {**model.state_dict(), **beside, **maps}
    state = {name: tensor for name, tensor in state.items() if tensor is not None}
    checkpoint.write(folder, model.config.to_json(), state, False)


@pytest.mark.parametrize(
    ("ids", "maps"),
    [
        ([3, 5, 6, 30, 47], {}),
        ([40, 3, 17], {}),
        (list(range(20)), {}),  # all shifts are zero, but a part of the vocabulary is not covered
        (list(range(20)), {"d2t": None}),  # and then the map may be absent
    ],
)
def test_d2t_maps_a_reduced_heads_rows_to_tokens(ids, maps, tmp_path):
    reduced(tmp_path, ids, **maps)
    found = dart.FORM.load_checkpoint(tmp_path, torch.bfloat16, "cpu")
    assert found.head is not None and found.head.shape == (len(ids), 32)
    assert found.ids is not None and found.ids.tolist() == ids


@pytest.mark.parametrize(
    ("d2t", "words"),
    [
        (torch.tensor([0, 50, 0]), "vocabulary"),
        (torch.tensor([-1, 0, 0]), "vocabulary"),
        (torch.tensor([0, 3]), "d2t"),
        (torch.zeros(3, 1, dtype=torch.int64), "d2t"),
        (torch.tensor([0.5, 1.0, 2.0]), "d2t"),
        (torch.tensor(4), "d2t"),
    ],
)
def test_a_map_that_does_not_fit_is_one_sentence(d2t, words, tmp_path):
    reduced(tmp_path, [3, 5, 6], d2t=d2t)
    one_sentence("dart", tmp_path, words)
