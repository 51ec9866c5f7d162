"""The DFlash drafter against the method written out plainly, and its checkpoints."""

import json
import math

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import Qwen3DecoderLayer, Qwen3RotaryEmbedding

from core.methods.dflash.drafter import (
    default_layer_ids,
    DFlashConfig,
    DFlashDrafter,
    DFlashModel,
    load_config,
    load_model,
    save_model,
)
from core.models.layers import LayerContext, Rope
from core.errors import UserError
from tests import toys

CLOSE = {"rtol": 1e-5, "atol": 1e-5}  # norms and rotary angles are computed in float32


# ── the method, plainly ──────────────────────────────────────────────────────────────────────────


def norm(x, weight, eps):
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight


# Waves of 6, 63, 628 and 6283 positions: one kept, one between, two slowed eightfold.
LLAMA3 = Rope.of(
    {
        "rope_theta": 10000.0,
        "rope_scaling": {
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
        },
    }
)  # fmt: skip


def turn(rope, wave):
    """The frequency of one wave as Llama 3.1 scales it, or as it is."""
    if not rope.scaling:
        return wave
    given, length = dict(rope.scaling), 2 * math.pi / wave
    original, factor = given["original_max_position_embeddings"], given["factor"]
    low, high = given["low_freq_factor"], given["high_freq_factor"]
    if length < original / high:
        return wave
    if length > original / low:
        return wave / factor
    smooth = (original / length - low) / (high - low)
    return (1 - smooth) * wave / factor + smooth * wave


def rotate(x, position, rope):
    """One head vector at one position: pairs (i, i + D/2) turn by position · θ^(−2i/D)."""
    half = len(x) // 2
    waves = [turn(rope, rope.theta ** (-2 * i / len(x))) for i in range(half)]
    angle = torch.tensor([position * wave for wave in waves], dtype=x.dtype)
    low, high = x[:half], x[half:]
    return torch.cat(
        [low * angle.cos() - high * angle.sin(), high * angle.cos() + low * angle.sin()]
    )


def written_out(config, w, features, block):
    """Hidden rows after the final norm."""
    return norm(residual_rows(config, w, features, block), w["norm.weight"], config.rms_norm_eps)


def residual_rows(config, w, features, block):
    """methods.md word by word, head by head and row by row: the residual stream of the block."""
    eps, width, count = config.rms_norm_eps, config.head_dim, len(features)
    share = config.num_attention_heads // config.num_key_value_heads
    context = norm(features @ w["fc.weight"].T, w["hidden_norm.weight"], eps)
    x = block
    for number in range(config.num_hidden_layers):
        layer = {k.removeprefix(f"layers.{number}."): v for k, v in w.items()}
        normed = norm(x, layer["input_layernorm.weight"], eps)
        source = torch.cat([context, normed])
        out = torch.zeros(len(x), config.num_attention_heads, width, dtype=x.dtype)
        for head in range(config.num_attention_heads):
            at, kv = slice(head * width, (head + 1) * width), head // share
            kv_at = slice(kv * width, (kv + 1) * width)
            query = normed @ layer["self_attn.q_proj.weight"][at].T
            key = source @ layer["self_attn.k_proj.weight"][kv_at].T
            value = source @ layer["self_attn.v_proj.weight"][kv_at].T
            query = norm(query, layer["self_attn.q_norm.weight"], eps)
            key = norm(key, layer["self_attn.k_norm.weight"], eps)
            query = torch.stack([rotate(q, count + i, config.rope) for i, q in enumerate(query)])
            key = torch.stack([rotate(k, i, config.rope) for i, k in enumerate(key)])
            out[:, head] = (query @ key.T / math.sqrt(width)).softmax(-1) @ value
        x = x + out.flatten(1) @ layer["self_attn.o_proj.weight"].T
        normed = norm(x, layer["post_attention_layernorm.weight"], eps)
        gate = normed @ layer["mlp.gate_proj.weight"].T
        up = normed @ layer["mlp.up_proj.weight"].T
        x = x + (gate * gate.sigmoid() * up) @ layer["mlp.down_proj.weight"].T
    return x


def log_q(proposal, depths=7):
    """The whole q of every depth over the full vocabulary; it hangs on no path."""
    return proposal.along([0] * depths)


def numbers(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_key_value_heads": 4},
        {"num_key_value_heads": 1, "head_dim": 16},
        {"num_hidden_layers": 1, "block_size": 2},
        {"rope": LLAMA3},
        {"rope": Rope(500.0), "rms_norm_eps": 1e-2, "target_layer_ids": (0, 1, 2)},
    ],
)
@pytest.mark.parametrize("context", [0, 1, 13])
def test_the_network_equals_the_method_written_out(changes, context):
    model = toys.dflash_model(1, **changes)
    config, size = model.config, model.config.block_size
    features = numbers(2, context, len(config.target_layer_ids) * 32)
    block = numbers(3, size, 32)
    where = torch.arange(context, context + size)[None]
    found = model.norm(model(block[None], where, model.project(features, torch.arange(context))))[0]
    expected = written_out(config, model.state_dict(), features, block)
    torch.testing.assert_close(found, expected, **CLOSE)


def test_the_drafters_q_is_the_method_with_the_targets_embedding_and_head():
    drafter, owner = toys.dflash_drafter(), toys.model()
    features, context = numbers(4, 9, 64), [3, 1, 4, 1, 5, 9, 2, 6, 5]
    drafter.reset(40)
    drafter.extend(context, features)
    proposal = drafter.propose(7, 16)
    block = owner.get_input_embeddings().weight[[7] + [47] * 7]
    hidden = written_out(drafter.model.config, drafter.model.state_dict(), features, block)
    expected = (hidden[1:] @ owner.get_output_embeddings().weight.T).log_softmax(-1)
    torch.testing.assert_close(log_q(proposal).double(), expected, **CLOSE)
    assert log_q(proposal).shape == (drafter.depths, toys.VOCABULARY) == (7, 48)


def test_context_in_pieces_equals_the_whole_context_at_once():
    features = numbers(5, 40, 64)
    pieces, whole = toys.dflash_drafter(), toys.dflash_drafter()
    pieces.reset(64)
    low = 0
    for size in (13, 1, 1, 5, 8, 2, 10):
        pieces.extend([0] * size, features[low : low + size])
        low += size
        whole.reset(64)
        whole.extend([0] * low, features[:low])
        one, two = pieces.propose(low % 40, 20), whole.propose(low % 40, 20)
        torch.testing.assert_close(log_q(one), log_q(two), **CLOSE)
        assert (one.candidates.ids[:, 0] == two.candidates.ids[:, 0]).all()


def test_several_extensions_before_a_proposal_keep_their_order():
    features = numbers(6, 12, 64)
    pieces, whole = toys.dflash_drafter(), toys.dflash_drafter()
    for drafter in (pieces, whole):
        drafter.reset(20)
    pieces.extend([0] * 7, features[:7])
    pieces.extend([0] * 5, features[7:])
    whole.extend([0] * 12, features)
    torch.testing.assert_close(log_q(pieces.propose(3, 16)), log_q(whole.propose(3, 16)), **CLOSE)


def test_proposing_leaves_no_block_entries_behind():
    drafter = toys.dflash_drafter()
    drafter.reset(20)
    drafter.extend([0] * 5, numbers(7, 5, 64))
    first = log_q(drafter.propose(3, 16))
    drafter.propose(9, 16)
    assert torch.equal(log_q(drafter.propose(3, 16)), first)


def test_reset_forgets_the_text_and_what_was_waiting():
    drafter = toys.dflash_drafter()
    drafter.reset(30)
    drafter.extend([0] * 9, numbers(8, 9, 64))
    drafter.propose(1, 16)
    drafter.extend([0] * 4, numbers(9, 4, 64))
    drafter.reset(30)
    drafter.extend([0] * 6, numbers(10, 6, 64))
    fresh = toys.dflash_drafter()
    fresh.reset(30)
    fresh.extend([0] * 6, numbers(10, 6, 64))
    assert torch.equal(log_q(drafter.propose(2, 16)), log_q(fresh.propose(2, 16)))


@pytest.mark.parametrize(("width", "kept"), [(1, 16), (16, 16), (20, 20), (48, 48), (1024, 48)])
def test_candidates_are_sorted_and_as_many_as_asked(width, kept):
    drafter = toys.dflash_drafter()
    drafter.reset(20)
    drafter.extend([0] * 5, numbers(7, 5, 64))
    proposal = drafter.propose(3, width)
    candidates = proposal.candidates
    assert candidates.ids.shape == candidates.log_q.shape == (7, kept)
    assert (candidates.log_q[:, :-1] >= candidates.log_q[:, 1:]).all()
    picked = log_q(proposal).gather(1, torch.from_numpy(candidates.ids))
    assert torch.equal(picked, torch.from_numpy(candidates.log_q))
    assert torch.allclose(log_q(proposal).exp().sum(-1), torch.ones(7))


def test_blocks_side_by_side_equal_blocks_alone():
    """Training runs many anchors of a text in one pass; each must see its own context only."""
    model, features = toys.dflash_model(1), numbers(11, 20, 64)
    anchors = torch.tensor([3, 9, 10, 20])
    blocks = numbers(12, 4, 8, 32)
    where = anchors[:, None] + torch.arange(8)
    visible = torch.arange(20)[None] < anchors[:, None]
    together = model(blocks, where, model.project(features, torch.arange(20)), visible)
    for index, anchor in enumerate(anchors.tolist()):
        context = model.project(features[:anchor], torch.arange(anchor))
        alone = model(blocks[index : index + 1], where[index : index + 1], context)
        torch.testing.assert_close(together[index : index + 1], alone, **CLOSE)


YARN = Rope.of({"rope_scaling": {"type": "yarn", "factor": 4.0}, "max_position_embeddings": 32})


@pytest.mark.parametrize("rope", [Rope(), LLAMA3, YARN])
def test_a_layer_without_context_is_a_qwen3_layer_without_causal_mask(rope):
    config = toys.dflash_config(num_hidden_layers=1, rope=rope)
    model = toys.dflash_model(3, num_hidden_layers=1, rope=rope)
    theirs = Qwen3DecoderLayer(
        Qwen3Config(
            hidden_size=32, intermediate_size=40, num_attention_heads=4, num_key_value_heads=2,
            head_dim=8, num_hidden_layers=1, attn_implementation="eager",
            rope_parameters=config.rope.to_json(),
        ),
        0,
    ).double()  # fmt: skip
    theirs.load_state_dict(model.layers[0].state_dict())
    block, where = numbers(13, 1, 8, 32), torch.arange(8)[None] + 5
    rotary = Qwen3RotaryEmbedding(theirs.self_attn.config)(block, where)
    expected = theirs(block, position_embeddings=rotary, attention_mask=None)
    expected = expected[0] if isinstance(expected, tuple) else expected
    empty = [LayerContext(numbers(0, 2, 0, 8), numbers(0, 2, 0, 8))]
    torch.testing.assert_close(model(block, where, empty), expected, **CLOSE)


def test_every_row_sees_the_whole_block():
    """No causal mask: the last position's embedding moves the first row."""
    model = toys.dflash_model(1)
    context = model.project(numbers(2, 4, 64), torch.arange(4))
    block, where = numbers(3, 1, 8, 32), torch.arange(4, 12)[None]
    before = model(block, where, context)
    block[0, -1] += 1
    assert (model(block, where, context) - before)[0, 0].abs().max() > 1e-4


# ── configs ──────────────────────────────────────────────────────────────────────────────────────

PUBLISHED = {
    "architectures": ["DFlashDraftModel"], "attention_bias": False, "block_size": 16,
    "dflash_config": {"mask_token_id": 151669, "target_layer_ids": [1, 9, 17, 25, 33]},
    "head_dim": 128, "hidden_size": 2560, "intermediate_size": 9728,
    "max_position_embeddings": 40960, "model_type": "qwen3", "num_attention_heads": 32,
    "num_hidden_layers": 5, "num_key_value_heads": 8, "num_target_layers": 36,
    "rms_norm_eps": 1e-06, "rope_theta": 1000000, "vocab_size": 151936,
}  # fmt: skip


def test_a_published_config_is_read():
    config = DFlashConfig.from_json(PUBLISHED)
    assert config.target_layer_ids == (1, 9, 17, 25, 33) and config.mask_token_id == 151669
    assert config.depths == 15 and config.head_dim == 128 and config.rope == Rope(1e6)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"layer_types": ["sliding_attention"] * 4 + ["full_attention"]}, "sliding window"),
        ({"use_sliding_window": True, "sliding_window": 4096}, "sliding window"),
        ({"dflash_config": {"mask_token_id": 1, "use_swa": True}}, "sliding window"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "dynamic"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "part of its heads"),
    ],
)
def test_layers_of_another_kind_are_refused_and_not_drafted_with(changes, words):
    with pytest.raises(UserError, match=words):
        DFlashConfig.from_json(PUBLISHED | changes)


def test_absent_optional_fields_have_the_references_defaults():
    bare = {k: v for k, v in PUBLISHED.items() if k not in ("head_dim", "num_key_value_heads")}
    config = DFlashConfig.from_json(bare | {"dflash_config": {"mask_token_id": 1}})
    assert config.head_dim == 80 and config.num_key_value_heads == 32
    assert config.target_layer_ids == (1, 9, 17, 25, 33)


def test_the_newer_spelling_of_the_rope_base_is_read():
    raw = {k: v for k, v in PUBLISHED.items() if k != "rope_theta"}
    assert DFlashConfig.from_json(raw | {"rope_parameters": {"rope_theta": 7e5}}).rope.theta == 7e5


@pytest.mark.parametrize(
    ("target_layers", "draft_layers", "ids"),
    [
        (36, 5, (1, 9, 17, 25, 33)),
        (36, 1, (18,)),
        (30, 3, (1, 14, 27)),
        (28, 2, (1, 25)),
        (30, 1, (15,)),
    ],
)
def test_default_layer_ids(target_layers, draft_layers, ids):
    assert default_layer_ids(target_layers, draft_layers) == ids


def test_default_layer_ids_are_evenly_spaced_and_rounded_for_every_size():
    for layers in range(5, 81):
        for count in range(2, 9):
            span = layers - 4
            expected = tuple(round(1 + i * span / (count - 1)) for i in range(count))
            assert default_layer_ids(layers, count) == expected


def test_a_config_survives_its_own_json():
    config = toys.dflash_config(rope=LLAMA3, attention_bias=True)
    assert DFlashConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


@pytest.mark.parametrize(
    "field", ["hidden_size", "block_size", "vocab_size", "num_target_layers", "dflash_config"]
)
def test_a_missing_config_field_is_named(field, tmp_path):
    raw = {k: v for k, v in PUBLISHED.items() if k != field}
    (tmp_path / "config.json").write_text(json.dumps(raw))
    name = "mask_token_id" if field == "dflash_config" else field
    with pytest.raises(UserError, match=name):
        load_config(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '"x"', "null", '{"dflash_config": 3}'])
def test_a_config_that_is_none_is_a_user_error(text, tmp_path):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UserError):
        load_config(tmp_path)


# ── checkpoints ──────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def saved(tmp_path):
    model = toys.dflash_model(5, dtype=torch.bfloat16)
    save_model(model, tmp_path)
    return model, tmp_path


def test_a_checkpoint_round_trips_exactly(saved):
    model, folder = saved
    loaded = load_model(folder, torch.bfloat16, "cpu")
    assert loaded.config == model.config
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor), name
    assert not loaded.training
    assert load_model(folder, torch.float32, "cpu").fc.weight.dtype == torch.float32


def test_tensors_carry_the_official_names(saved):
    names = set(load_file(saved[1] / "model.safetensors"))
    layer = {
        *(f"self_attn.{p}_proj.weight" for p in "qkvo"),
        *(f"self_attn.{p}_norm.weight" for p in "qk"),
        *(f"mlp.{p}.weight" for p in ("gate_proj", "up_proj", "down_proj")),
        "input_layernorm.weight", "post_attention_layernorm.weight",
    }  # fmt: skip
    expected = {f"layers.{i}.{name}" for i in range(2) for name in layer}
    assert names == expected | {"norm.weight", "fc.weight", "hidden_norm.weight"}


def test_a_sharded_checkpoint_is_loaded_whole(saved):
    model, folder = saved
    state = load_file(folder / "model.safetensors")
    names = sorted(state)
    (folder / "model.safetensors").unlink()
    for part, chosen in enumerate((names[:9], names[9:]), 1):
        save_file({n: state[n] for n in chosen}, folder / f"model-0000{part}-of-00002.safetensors")
    loaded = load_model(folder, torch.bfloat16, "cpu")
    assert torch.equal(loaded.fc.weight, model.fc.weight)


def rewrite(folder, change):
    state = load_file(folder / "model.safetensors")
    change(state)
    save_file(state, folder / "model.safetensors")


def test_a_missing_tensor_is_named(saved):
    rewrite(saved[1], lambda state: state.pop("layers.1.self_attn.q_norm.weight"))
    with pytest.raises(UserError, match=r"layers\.1\.self_attn\.q_norm\.weight.*missing"):
        load_model(saved[1], torch.float32, "cpu")


def test_a_surplus_tensor_is_named(saved):
    rewrite(saved[1], lambda state: state.update({"lm_head.weight": torch.zeros(2, 2)}))
    with pytest.raises(UserError, match=r"lm_head\.weight"):
        load_model(saved[1], torch.float32, "cpu")


def test_a_misshapen_tensor_is_named(saved):
    rewrite(saved[1], lambda state: state.update({"fc.weight": torch.zeros(32, 96)}))
    with pytest.raises(UserError, match=r"fc\.weight.*\(32, 96\).*\(32, 64\)"):
        load_model(saved[1], torch.float32, "cpu")


def test_files_that_are_no_checkpoint_are_user_errors(saved):
    folder = saved[1]
    (folder / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{broken}")
    with pytest.raises(UserError, match="cannot be read"):
        load_model(folder, torch.float32, "cpu")
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"no \.safetensors"):
        load_model(folder, torch.float32, "cpu")
    with pytest.raises(UserError, match="no DFlash checkpoint"):
        load_model(folder / "nowhere", torch.float32, "cpu")


def test_the_networks_state_is_all_that_is_saved():
    """A buffer kept out of the state dict would be lost on the way."""
    model = toys.dflash_model()
    assert dict(model.named_buffers()) == {}
    assert isinstance(toys.dflash_drafter(), DFlashDrafter)
    assert isinstance(model, DFlashModel)
