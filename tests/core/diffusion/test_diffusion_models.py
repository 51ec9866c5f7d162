"""Tiny random diffusion checkpoints in the exact published layouts, and the adapter's files."""

from __future__ import annotations

import json
from copy import deepcopy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from core.diffusion import models
from core.diffusion.models import llada_name, load_diffusion
from core.diffusion.target import BidirectionalTarget, BlockCausalTarget, BlockLayout
from core.errors import UserError
from core.models import adapter as adapters
from core.models import configs, embedded
from core.models.adapter import AdapterConfig, load_adapter, save_adapter
from core.models.hub import SMALL_FILES, Source
from tests.helpers import diffusion_reference as reference
from tests.helpers import toys

MASK, END, TURN = 258, 256, 257  # of the toy tokenizer
CLOSE = {"rtol": 0, "atol": 1e-3}  # float32 against float64, logits of size 10
STATES = np.array([[MASK] * 4, [MASK, 7, MASK, MASK], [MASK, 7, MASK, 9]])
ALL = [np.arange(4)] * 3

# config.json of GSAI-ML/LLaDA-8B-Base, -Instruct and LLaDA-1.5, without the code it points to.
LLADA = {
    "activation_type": "silu",
    "alibi": False,
    "alibi_bias_max": 8.0,
    "architectures": ["LLaDAModelLM"],
    "attention_dropout": 0.0,
    "attention_layer_norm": False,
    "attention_layer_norm_with_affine": True,
    "auto_map": {"AutoConfig": "configuration_llada.LLaDAConfig"},
    "bias_for_layer_norm": False,
    "block_group_size": 1,
    "block_type": "llama",
    "d_model": 4096,
    "embedding_dropout": 0.0,
    "embedding_size": 126464,
    "eos_token_id": 126081,
    "flash_attention": False,
    "include_bias": False,
    "include_qkv_bias": False,
    "init_cutoff_factor": None,
    "init_device": "meta",
    "init_fn": "mitchell",
    "init_std": 0.02,
    "input_emb_norm": False,
    "layer_norm_type": "rms",
    "layer_norm_with_affine": True,
    "mask_token_id": 126336,
    "max_sequence_length": 4096,
    "mlp_hidden_size": 12288,
    "mlp_ratio": 4,
    "model_type": "llada",
    "multi_query_attention": None,
    "n_heads": 32,
    "n_kv_heads": 32,
    "n_layers": 32,
    "pad_token_id": 126081,
    "precision": "amp_bf16",
    "residual_dropout": 0.0,
    "rms_norm_eps": 1e-05,
    "rope": True,
    "rope_full_precision": True,
    "rope_theta": 500000.0,
    "scale_logits": False,
    "transformers_version": "4.46.3",
    "use_cache": False,
    "vocab_size": 126464,
    "weight_tying": False,
}
TINY = LLADA | {
    "d_model": 32,
    "embedding_size": 264,
    "eos_token_id": END,
    "mask_token_id": MASK,
    "max_sequence_length": 128,
    "mlp_hidden_size": 40,
    "n_heads": 4,
    "n_kv_heads": 4,
    "n_layers": 3,
    "pad_token_id": END,
    "vocab_size": 259,
}
A2D = {
    "architectures": ["A2DQwen3LMHeadModel"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "auto_map": {"AutoConfig": "modeling_qwen3.A2DQwen3Config"},
    "bos_token_id": None,
    "dtype": "bfloat16",
    "eos_token_id": END,
    "head_dim": 16,
    "hidden_act": "silu",
    "hidden_size": 32,
    "initializer_range": 0.02,
    "intermediate_size": 48,
    "layer_types": ["full_attention"] * 3,
    "max_position_embeddings": 256,
    "max_window_layers": 3,
    "model_type": "a2d-qwen3",
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "transformers_version": "4.57.0",
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": 264,
}


def random_state(shapes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(shape, generator=generator) * (0.25 if len(shape) == 2 else 0.2)
        + (len(shape) == 1)
        for name, shape in shapes.items()
    }


def llada_shapes(config):
    """The published names, from the reference model's module tree."""
    wide, mlp = config["d_model"], config["mlp_hidden_size"]
    rows = config["embedding_size"]
    narrow = wide // config["n_heads"] * config["n_kv_heads"]
    shapes = {"wte.weight": (rows, wide), "ln_f.weight": (wide,)}
    if not config["weight_tying"]:
        shapes["ff_out.weight"] = (rows, wide)
    for layer in range(config["n_layers"]):
        block = {"attn_norm": (wide,), "ff_norm": (wide,), "ff_out": (wide, mlp)}
        block |= {"q_proj": (wide, wide), "k_proj": (narrow, wide), "v_proj": (narrow, wide)}
        block |= {"attn_out": (wide, wide), "ff_proj": (mlp, wide), "up_proj": (mlp, wide)}
        shapes |= {f"blocks.{layer}.{name}.weight": shape for name, shape in block.items()}
    return {f"model.transformer.{name}": shape for name, shape in shapes.items()}


def a2d_shapes(config):
    wide, mlp, width = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    outs = config["num_attention_heads"] * width
    narrow = config["num_key_value_heads"] * width
    embed = (config["vocab_size"], wide)
    shapes = {"model.embed_tokens.weight": embed, "model.norm.weight": (wide,)}
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = embed
    for layer in range(config["num_hidden_layers"]):
        block = {"q_proj": (outs, wide), "k_proj": (narrow, wide), "v_proj": (narrow, wide)}
        block |= {"o_proj": (wide, outs), "q_norm": (width,), "k_norm": (width,)}
        block = {f"self_attn.{name}": shape for name, shape in block.items()}
        block |= {"mlp.gate_proj": (mlp, wide), "mlp.up_proj": (mlp, wide)}
        block |= {"mlp.down_proj": (wide, mlp)}
        block |= {"input_layernorm": (wide,), "post_attention_layernorm": (wide,)}
        shapes |= {f"model.layers.{layer}.{name}.weight": shape for name, shape in block.items()}
    return shapes


def write(folder, config, state, shards=1, template=toys.TEMPLATE, **tokenizer):
    """A checkpoint folder as the hub has it; several files come with an index."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    words = toys.tokenizer()
    words.save_pretrained(folder)
    described = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(described | tokenizer))
    (folder / "chat_template.jinja").write_text(template)
    names = sorted(state)
    if shards == 1:
        save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
        return folder
    where = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        part = names[shard::shards]
        save_file({name: state[name] for name in part}, folder / file, metadata={"format": "pt"})
        where |= dict.fromkeys(part, file)
    index = {"metadata": {"total_size": 1}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def run_of(state, names, **shape):
    made = reference.Shape(**shape)
    return lambda ids, allowed, place=None: reference.forward(
        state, names, made, ids, allowed, place
    )


def one_sentence(error):
    text = str(error.value)
    return "\n" not in text and 10 < len(text) < 500


# ── LLaDA ────────────────────────────────────────────────────────────────────────────────────────


def llada_run(config, state):
    width = config["d_model"] // config["n_heads"]
    return run_of(
        state, reference.LLADA, layers=config["n_layers"], head_width=width, eps=1e-5, theta=5e5
    )


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize(
    "changes", [{}, {"n_kv_heads": 2}, {"weight_tying": True}], ids=["8B", "grouped", "tied"]
)
def test_llada_equals_the_reference(tmp_path, shards, changes):
    config = TINY | changes
    state = random_state(llada_shapes(config))
    language = load_diffusion(str(write(tmp_path / "LLaDA", config, state, shards)), "cpu")
    target, run = language.target, llada_run(config, state)
    assert isinstance(target, BidirectionalTarget) and target.exact and language.block == 32
    target.begin(toys.PROMPT, 12, 4)
    line = [*toys.PROMPT, *[MASK] * 12]
    for begin, block in ((8, [5, 6, 7, 8]), (12, None)):
        for logits, values in zip(target.score(STATES, ALL), STATES.tolist(), strict=True):
            expected = reference.bidirectional(run, line, begin, values)
            torch.testing.assert_close(logits.double(), expected, **CLOSE)
        if block:
            target.advance(block)
            line[8:12] = block


def test_the_mapping_covers_the_published_checkpoint_exactly():
    """291 tensors of LLaDA-8B, name and shape, on the meta device."""
    form = models._llada(LLADA)
    with torch.device("meta"):
        model = form.model_class(form.config)
    mine = {llada_name(n): tuple(p.shape) for n, p in model.state_dict().items()}
    assert mine == llada_shapes(LLADA) and len(mine) == 291
    assert sum(p.numel() for p in model.parameters()) == 8_015_581_184
    assert form.mask_id == 126336 and form.config.rope_parameters["rope_theta"] == 5e5


def test_the_shared_context_is_an_option(tmp_path):
    state = random_state(llada_shapes(TINY))
    language = load_diffusion(str(write(tmp_path / "m", TINY, state)), "cpu", shared=True)
    assert isinstance(language.target, BidirectionalTarget) and not language.target.exact


def test_lladas_tokens(tmp_path):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "generation_config.json").write_text('{"eos_token_id": 256}')
    state = random_state(llada_shapes(TINY))
    language = load_diffusion(str(write(tmp_path / "m", TINY, state)), "cpu")
    assert language.target.stop_ids == language.stop_ids == {END}
    assert language.target.mask_id == MASK and language.target.vocabulary == 264
    ids = language.encode_chat("Hi")
    assert language.text(ids) == "user\nHi\nassistant\n" and language.piece(ids[-2]) == "t"
    assert language.tokenizer_hash and language.device.type == "cpu"


def test_the_end_of_a_turn_ends_the_text_too(tmp_path):
    state = random_state(llada_shapes(TINY))
    folder = write(tmp_path / "m", TINY, state)
    words = (folder / "tokenizer.json").read_text().replace("<|start|>", "<|eot_id|>")
    (folder / "tokenizer.json").write_text(words)
    assert load_diffusion(str(folder), "cpu").target.stop_ids == {END, TURN}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"block_type": "sequential"}, "block_type must be 'llama'"),
        ({"activation_type": "gelu"}, "activation_type must be 'silu'"),
        ({"layer_norm_type": "default"}, "layer_norm_type must be 'rms'"),
        ({"alibi": True}, "alibi must be False"),
        ({"include_qkv_bias": True}, "include_qkv_bias"),
        ({"scale_logits": True}, "scale_logits"),
        ({"bias_for_layer_norm": True}, "bias_for_layer_norm"),
        ({"block_group_size": 4}, "block_group_size"),
        ({"d_model": None}, "cannot be loaded"),
        ({"n_heads": "four"}, "cannot be loaded"),
        ({"mask_token_id": 264}, "no mask token"),
        ({"mask_token_id": None}, "no mask token"),
        ({"model_type": "gpt2"}, "not a diffusion model this program knows"),
        ({"n_layers": 4}, "blocks.3.attn_norm.weight is missing"),
        ({"n_layers": 2}, "expected none of this name"),
        ({"mlp_hidden_size": 41}, r"has shape .* expected \(32, 41\)"),
    ],
)
def test_a_checkpoint_that_is_not_a_llama_is_refused(tmp_path, changes, why):
    folder = write(tmp_path / "m", TINY | changes, random_state(llada_shapes(TINY)))
    reports = []
    with pytest.raises(UserError, match=why) as error:
        load_diffusion(str(folder), "cpu", reports.append)
    assert one_sentence(error) and not reports, "no weight is read"


def test_broken_files_are_an_error(tmp_path):
    state = random_state(llada_shapes(TINY))
    for spoil, why in (
        (lambda f: (f / "config.json").unlink(), "holds no diffusion checkpoint"),
        (lambda f: (f / "config.json").write_text("[]"), "holds no diffusion checkpoint"),
        (lambda f: (f / "tokenizer.json").write_text("{"), "cannot be loaded"),
        (lambda f: (f / "model-00002-of-00003.safetensors").unlink(), "is missing"),
        (
            lambda f: (f / "model-00002-of-00003.safetensors").write_bytes(b"x" * 99),
            "not a file of weights",
        ),
        (lambda f: [p.unlink() for p in f.glob("*.safetensors")], "holds no .safetensors"),
    ):
        folder = write(tmp_path / f"m{len(list(tmp_path.iterdir()))}", TINY, state, 3)
        spoil(folder)
        with pytest.raises(UserError, match=why) as error:
            load_diffusion(str(folder), "cpu")
        assert one_sentence(error)


def test_a_model_that_does_not_exist_is_an_error():
    with pytest.raises(UserError, match="cannot be loaded") as error:
        load_diffusion("nobody/no-such-diffusion-model", "cpu")
    assert one_sentence(error)


@pytest.mark.parametrize("surplus", [True, False])
def test_a_hub_index_is_checked_before_any_weight_is_fetched(tmp_path, monkeypatch, surplus):
    folder = write(tmp_path / "m", TINY, random_state(llada_shapes(TINY)), 3)
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    name = "model.transformer.blocks.1.q_proj.weight"
    if surplus:
        index["weight_map"]["model.transformer.wpe.weight"] = "x"
    else:
        del index["weight_map"][name]
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    fetched = []

    def fetch(_source, patterns):
        fetched.append(patterns)
        return folder

    monkeypatch.setattr(Source, "fetch", fetch)
    with pytest.raises(UserError, match=r"wpe.weight|lacks .*1.q_proj") as error:
        load_diffusion("somebody/a-model", "cpu")
    assert one_sentence(error) and fetched == [SMALL_FILES]


def test_a_hub_model_is_fetched_in_two_steps(tmp_path, monkeypatch):
    state = random_state(llada_shapes(TINY))
    folder, fetched = write(tmp_path / "m", TINY, state, 3), []
    monkeypatch.setattr(Source, "fetch", lambda _source, p, *_: fetched.append(p) or folder)
    assert load_diffusion("somebody/a-model", "cpu").target.vocabulary == 264
    shards = tuple(f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3))
    assert set(fetched) == {SMALL_FILES, shards} and fetched[-1] == shards


# ── dllm's Qwen3 ─────────────────────────────────────────────────────────────────────────────────


def a2d_folder(tmp_path, state, name="Qwen3-0.6B-diffusion-bd3lm-v0.1", **changes):
    return write(tmp_path / name, A2D | changes, state, mask_token="<|mask|>", pad_token="<|end|>")


def a2d_run(state):
    return run_of(state, reference.LLAMA, layers=3, head_width=16, theta=1e6)


def block_causal(run, prompt, finished, state, size):
    """dllm's sampler: the prompt padded on the left to whole blocks, block numbers by column."""
    text = [*prompt, *finished, *state]
    padding = -len(prompt) % size
    block = [(padding + i) // size for i in range(len(text))]
    number = torch.tensor(block)
    return run(text, number[None, :] <= number[:, None])[-len(state) :]


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("length", [1, 3, 4, 7, 8])
def test_bd3lm_equals_the_reference(tmp_path, tied, length):
    shapes = a2d_shapes(A2D | {"tie_word_embeddings": tied})
    state = random_state(shapes)
    language = load_diffusion(str(a2d_folder(tmp_path, state, tie_word_embeddings=tied)), "cpu")
    target, prompt, run = language.target, toys.PROMPT[:length], a2d_run(state)
    assert isinstance(target, BlockCausalTarget) and target.layout == BlockLayout(False, "block")
    assert language.block == 32 and target.mask_id == MASK
    target.begin(prompt, 12, 4)
    finished = []
    for block in ([5, 6, 7, 8], [1, 2, 3, 4], None):
        for logits, values in zip(target.score(STATES, ALL), STATES.tolist(), strict=True):
            expected = block_causal(run, prompt, finished, values, 4)
            torch.testing.assert_close(logits.double(), expected, **CLOSE)
        if block:
            target.advance(block)
            finished += block


def test_a_head_that_is_stored_is_used_even_if_the_config_ties_it(tmp_path):
    state = random_state(a2d_shapes(A2D))
    language = load_diffusion(str(a2d_folder(tmp_path, state, tie_word_embeddings=True)), "cpu")
    language.target.begin(toys.PROMPT, 4, 4)
    expected = block_causal(a2d_run(state), toys.PROMPT, [], STATES[0].tolist(), 4)
    got = language.target.score(STATES[:1], ALL[:1])[0].double()
    torch.testing.assert_close(got, expected, **CLOSE)


def test_mdlm_is_bidirectional(tmp_path):
    folder = a2d_folder(tmp_path, random_state(a2d_shapes(A2D)), "Qwen3-0.6B-diffusion-mdlm-v0.1")
    assert isinstance(load_diffusion(str(folder), "cpu").target, BidirectionalTarget)


def test_bd3lms_template_turns_thinking_off(tmp_path):
    folder = a2d_folder(tmp_path, random_state(a2d_shapes(A2D)))
    template = toys.TEMPLATE + "{% if enable_thinking is false %}<think></think>{% endif %}"
    (folder / "chat_template.jinja").write_text(template)
    language = load_diffusion(str(folder), "cpu")
    assert language.text(language.encode_chat("Hi")).endswith("assistant\n<think></think>")


def test_bd3lm_without_a_mask_token_is_refused(tmp_path):
    folder = write(tmp_path / "m", A2D, random_state(a2d_shapes(A2D)))
    with pytest.raises(UserError, match="no mask token"):
        load_diffusion(str(folder), "cpu")


# ── the adapter ──────────────────────────────────────────────────────────────────────────────────


RANK, ALPHA = 3, 6.0


def adapter_config(**changes):
    fields = {"base": "toy", "mask_token_id": MASK, "block_size": 4, "rank": RANK, "alpha": ALPHA}
    return AdapterConfig(**(fields | changes))


def adapter_tensors(model, seed=0, layers=(0, 2)):
    generator = torch.Generator().manual_seed(seed)
    made = {"mask_embedding": torch.randn(32, generator=generator)}
    for layer in layers:
        for name, part in adapters.PARTS.items():
            outs, ins = model.get_submodule(f"model.layers.{layer}.{part}.{name}").weight.shape
            made[f"layers.{layer}.{name}.a"] = torch.randn(RANK, ins, generator=generator) * 0.2
            made[f"layers.{layer}.{name}.b"] = torch.randn(outs, RANK, generator=generator) * 0.2
    return made


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A toy causal LM with its tokenizer, as a folder; and its weights."""
    where = tmp_path_factory.mktemp("base")
    model = toys.language_model()
    model.generation_config.eos_token_id = END
    model.save_pretrained(where)
    toys.tokenizer().save_pretrained(where)
    return SimpleNamespace(folder=where, model=model)


@pytest.mark.parametrize("small", [True, False])
def test_an_adapter_survives_a_file(tmp_path, base, small):
    tensors, config = adapter_tensors(base.model), adapter_config(base_sha="abc")
    save_adapter(tmp_path / "one", tensors, config, small)
    assert {f.name for f in (tmp_path / "one").iterdir()} == {"config.json", "adapter.safetensors"}
    read = load_adapter(tmp_path / "one")
    assert read.config == config and read.tensors.keys() == tensors.keys()
    for name, value in read.tensors.items():
        assert value.dtype == torch.bfloat16 and value.shape == tensors[name].shape
        assert (value.float() - tensors[name]).abs().max() <= 0.02 * tensors[name].abs().max()
    save_adapter(tmp_path / "two", read.tensors, config, small)
    again = load_adapter(tmp_path / "two").tensors
    assert all(torch.equal(value, again[name]) for name, value in read.tensors.items())


def test_the_denoiser_is_the_base_and_for_open_rows_the_adapter_too(tmp_path, base):
    save_adapter(tmp_path, adapter_tensors(base.model), adapter_config(base=str(base.folder)))
    stored = load_adapter(tmp_path).tensors
    plain = {name: p.double() for name, p in base.model.state_dict().items()}
    state = {name: p.clone() for name, p in plain.items()}
    for name in stored:
        if name.endswith(".a"):
            part, a, b = name[:-2], stored[name].double(), stored[name[:-1] + "b"].double()
            layer, kind = part.rpartition(".")[::2]
            state[f"model.{layer}.{adapters.PARTS[kind]}.{kind}.weight"] += ALPHA / RANK * b @ a
    state["model.embed_tokens.weight"][MASK] = stored["mask_embedding"].double()
    shape = reference.Shape(4, 8, 1e-6)

    def run(ids, allowed, rows):
        adapted = reference.Adapted(state, rows)
        return reference.forward(plain, reference.LLAMA, shape, ids, allowed, None, adapted)

    language = load_diffusion(str(tmp_path), "cpu")
    target = language.target
    assert language.block == 4 and target.stop_ids == {END} and target.mask_id == MASK
    prompt = [*toys.PROMPT[:3], MASK, *toys.PROMPT[3:]]  # in a text the mask is a token like others
    target.begin(prompt, 8, 4)
    states = np.array([*STATES.tolist(), [3, 4, MASK, MASK], [3, MASK, 5, MASK], [3, 4, 5, MASK]])
    for blocks in ([], [[5, 6, 7, 8]]):
        for block in blocks:
            target.advance(block)
        masked = [np.flatnonzero(state == MASK) for state in states]
        for logits, values, at in zip(
            target.score(states, masked), states.tolist(), masked, strict=True
        ):
            expected = reference.gated(run, prompt, blocks, values, MASK)[torch.from_numpy(at)]
            torch.testing.assert_close(logits.double(), expected, **CLOSE)


def test_the_first_masked_position_is_the_targets_own(tmp_path, base):
    """While nothing behind it is known: so text set from left to right is the target's."""
    save_adapter(tmp_path, adapter_tensors(base.model), adapter_config(base=str(base.folder)))
    target = load_diffusion(str(tmp_path), "cpu").target
    known = [5, 6, 7]
    target.begin(toys.PROMPT, 4, 4)
    plain = deepcopy(base.model)(torch.tensor([[*toys.PROMPT, *known]])).logits[0]
    for count in range(4):
        state = np.array([known[:count] + [MASK] * (4 - count)])
        found = target.score(state, [np.array([count])])[0][0]
        torch.testing.assert_close(found, plain[len(toys.PROMPT) - 1 + count], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda t, c: t.pop("layers.0.q_proj.b"), "layers.0.q_proj.b is missing"),
        (lambda t, c: t.pop("layers.2.up_proj.a"), "layers.2.up_proj.a is missing"),
        (lambda t, c: t.update({"layers.0.z_proj.a": torch.ones(3, 32)}), "belongs to no adapter"),
        (lambda t, c: t.update({"mask_embedding": torch.ones(1, 32)}), "belongs to no adapter"),
        (lambda t, c: t.update({"layers.0.q_proj.a": torch.ones(4, 32)}), "not of rank 3"),
        (lambda t, c: c.update(format="other"), "the format in its config is not"),
        (lambda t, c: c.update(format="draftscope-denoiser"), "of an earlier version: train it"),
        (lambda t, c: c.update(ahead=2), "ahead must be from 0 to 1"),
        (lambda t, c: c.update(ahead="0.7"), "ahead must be from 0 to 1"),
        (lambda t, c: c.update(rank="3"), "whole numbers"),
        (lambda t, c: c.update(block_size=0), "block_size"),
        (lambda t, c: c.pop("alpha"), "alpha"),
    ],
)
def test_a_broken_adapter_is_an_error(tmp_path, base, spoil, why):
    tensors = adapter_tensors(base.model)
    save_adapter(tmp_path, tensors, adapter_config(), small=False)
    tensors = load_file(tmp_path / "adapter.safetensors")
    config = configs.read_config(tmp_path, "denoiser")
    spoil(tensors, config)
    save_file(tensors, tmp_path / "adapter.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=why) as error:
        load_adapter(tmp_path)
    assert one_sentence(error)


@pytest.mark.parametrize(
    ("changes", "tensors", "why"),
    [
        ({}, {"layers.9.q_proj.a": (3, 32), "layers.9.q_proj.b": (32, 3)}, "does not have"),
        ({}, {"layers.0.q_proj.a": (3, 16), "layers.0.q_proj.b": (32, 3)}, "of shape"),
        ({}, {"mask_embedding": (16,)}, "does not fit"),
        ({"mask_token_id": 259}, {}, "not one of the model's 259 tokens"),
    ],
)
def test_an_adapter_of_another_model_is_an_error(tmp_path, base, changes, tensors, why):
    values = {name: torch.ones(shape) for name, shape in tensors.items()}
    save_adapter(tmp_path, values, adapter_config(base=str(base.folder), **changes))
    with pytest.raises(UserError, match=why) as error:
        load_diffusion(str(tmp_path), "cpu")
    assert one_sentence(error)


def test_a_model_that_is_no_llama_has_no_denoiser():
    with pytest.raises(UserError, match="a Linear has others") as error:
        adapters.projections(torch.nn.Linear(2, 2))
    assert one_sentence(error)


def test_an_adapter_of_another_embedded_model_is_an_error(tmp_path):
    save_adapter(tmp_path, {}, adapter_config(base=embedded.NAME, base_sha="0" * 64))
    with pytest.raises(UserError, match="made for another"):
        load_diffusion(str(tmp_path), "cpu")


def test_a_denoiser_that_does_not_ship_is_an_error(monkeypatch):
    monkeypatch.setattr(models, "shipped", lambda *_: None)
    with pytest.raises(UserError, match="no denoiser ships") as error:
        load_diffusion(device="cpu")
    assert one_sentence(error)
