"""Weights in FP8 beside their scales: as transformers dequantises them, in every published form."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM
from transformers.integrations.finegrained_fp8 import Fp8Dequantize

from app.cli import main
from core.decoding.engine import Engine
from core.decoding.request import RunRequest
from core.errors import UserError
from core.methods.dflash.model import FORM
from core.methods.mtp.model import load_head
from core.models import checkpoint
from tests.helpers import toys
from tests.helpers.mtp_published import language, published

BLOCK = 8
E4M3 = torch.float8_e4m3fn
ours = Fp8Dequantize(None)  # transformers' own


def quantised(matrix, block=BLOCK):
    """Numbers in FP8 and the factors of their blocks, as DeepSeek's trainer makes them."""
    rows, columns = (-(-size // block) for size in matrix.shape)
    grid, codes = torch.ones(rows, columns), torch.empty(matrix.shape)
    for i in range(rows):
        for j in range(columns):
            at = slice(i * block, (i + 1) * block), slice(j * block, (j + 1) * block)
            grid[i, j] = matrix[at].abs().max().clamp_min(1e-9) / 448
            codes[at] = matrix[at].float() / grid[i, j]
    return codes.to(E4M3), grid


def as_published(folder, apart=("embed", "lm_head", "norm", "mlp.gate.", "eh_proj", "mtp.fc")):
    """Store a folder's linear layers in FP8. Returns the weights that these are, by transformers'
    own function."""
    state, plain = load_file(folder / "model.safetensors"), {}
    for name, tensor in [*state.items()]:
        plain[name] = tensor
        if tensor.ndim == 2 and not any(part in name for part in apart):
            state[name], state[f"{name}_scale_inv"] = both = quantised(tensor)
            plain[name] = ours._dequantize_one(*both, output_dtype=torch.float32)
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    raw = json.loads((folder / "config.json").read_text())
    raw["quantization_config"] = {
        "quant_method": "fp8", "weight_block_size": [BLOCK, BLOCK], "activation_scheme": "dynamic",
        "modules_to_not_convert": ["lm_head"],
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(raw))
    return plain


@pytest.mark.parametrize("family", ["qwen3", "glm4_moe", "deepseek_v3 2", "mimo_v2_flash 3"])
def test_a_head_in_fp8_is_the_one_that_transformers_would_dequantise(family, tmp_path):
    """Of a folder with those weights written out, bit for bit; nothing is as in eight bits."""
    for name in ("stored", "plain"):
        (tmp_path / name).mkdir()
    target, _ = published(family, tmp_path / "stored")
    published(family, tmp_path / "plain")
    save_file(as_published(tmp_path / "stored"), tmp_path / "plain" / "model.safetensors")
    owner = language(target, None)
    heads = [load_head(owner, tmp_path / name).state_dict() for name in ("stored", "plain")]
    assert heads[0].keys() == heads[1].keys()
    assert all(torch.equal(heads[0][name], heads[1][name]) for name in heads[0])
    published(family, tmp_path / "plain")
    before = load_head(owner, tmp_path / "plain").state_dict()
    changed = [n for n in before if not torch.equal(before[n], heads[0][n])]
    assert len(changed) >= 6 and not any("norm" in name for name in changed)


def test_a_target_in_fp8_drafts_with_its_head_and_doctor_says_so(tmp_path, capsys):
    target, _ = published("qwen3", tmp_path)
    config = target.config
    config.vocab_size = toys.LANGUAGE_SIZE
    state = load_file(tmp_path / "model.safetensors")
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        state[name] = toys.language_model().get_input_embeddings().weight.detach().clone()
    save_file({n: t.float() for n, t in state.items()}, tmp_path / "model.safetensors")
    raw = json.loads((tmp_path / "config.json").read_text())
    raw |= {"vocab_size": toys.LANGUAGE_SIZE, "dtype": "float32", "tie_word_embeddings": False}
    (tmp_path / "config.json").write_text(json.dumps(raw))
    toys.tokenizer().save_pretrained(tmp_path)
    as_published(tmp_path)
    assert main(["model", "doctor", str(tmp_path)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "stored in fp8" in shown and "opens as a drafter: mtp" in shown
    engine, texts = Engine(str(tmp_path), "cpu"), []
    for method in ("ar", "mtp"):
        rounds = engine.start(RunRequest("ab ab ab", method, max_new_tokens=12))
        texts.append([t for done in rounds for t in done.committed])
    assert texts[0] == texts[1] and len(texts[0]) >= 11


def slow(codes, scale, block):
    """One number at a time."""
    made = torch.empty(codes.shape)
    for i in range(codes.shape[0]):
        for j in range(codes.shape[1]):
            at = (i if scale.shape[0] == codes.shape[0] else i // block[0] * (len(scale) > 1),
                  j // block[1] * (scale.shape[1] > 1))  # fmt: skip
            made[i, j] = codes[i, j].float() * scale[at].float()
    return made


SCALES = {  # of a matrix [20, 36], in blocks of 8 × 16: the name's end, and what lies there
    "blocks": ("_scale_inv", torch.rand(3, 3) + 0.1),
    "blocks in bfloat16": ("_scale_inv", (torch.rand(3, 3) + 0.1).bfloat16()),
    "blocks of compressed-tensors": ("_scale", torch.rand(3, 3) + 0.1),
    "rows": ("_scale", torch.rand(20, 1) + 0.1),
    "rows in one line": ("_scale", torch.rand(20) + 0.1),
    "the whole": ("_scale", torch.tensor(0.25)),
    "the whole, in a list": ("_scale", torch.tensor([0.3])),
    "powers of two": ("_scale_inv", torch.rand(3, 3).to(torch.float8_e8m0fnu)),
    "exponents": ("_scale_inv", torch.randint(120, 130, (3, 3), dtype=torch.uint8)),
}


@pytest.mark.parametrize("form", SCALES)
@pytest.mark.parametrize("told", ["weight_block_size", "block_structure"])
def test_every_number_is_times_the_scale_over_it(form, told, tmp_path):
    end, scale = SCALES[form]
    codes = torch.randn(20, 36).to(E4M3)
    save_file({"a.weight": codes, f"a.weight{end}": scale, "a.input_scale": torch.ones(1),
               "b.weight": torch.ones(2)}, tmp_path / "model.safetensors")  # fmt: skip
    groups = {"group_0": {"weights": {told: [8, 16]}}}
    quantised = {told: [8, 16]} if told == "weight_block_size" else {"config_groups": groups}
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": quantised}))
    factors = scale.float().reshape(scale.shape if scale.ndim == 2 else (-1, 1))
    factors = torch.exp2(factors - 127) if scale.dtype == torch.uint8 else factors
    found = checkpoint.read_state(tmp_path)
    assert found.keys() == {"a.weight", "b.weight"} == checkpoint.read_shapes(tmp_path).keys()
    assert torch.equal(found["a.weight"], slow(codes, factors, (8, 16)))


@pytest.mark.parametrize("by", ["blocks", "experts"])
def test_experts_may_lie_in_one_tensor(by, tmp_path):
    """As transformers writes them."""
    name, codes = "experts.gate_up_proj", torch.randn(3, 20, 36).to(E4M3)
    scale = torch.rand(3, 3, 5) if by == "blocks" else torch.rand(3, 1, 1)
    save_file({name: codes, f"{name}_scale_inv": scale}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text('{"quantization_config": {"weight_block_size": [8, 8]}}')
    expected = [slow(one, each, (8, 8)) for one, each in zip(codes, scale, strict=True)]
    assert torch.equal(checkpoint.read_state(tmp_path)[name], torch.stack(expected))


def spoil(state, case):
    name = next(n for n in state if n.startswith("mtp.") and n.endswith("_scale_inv"))
    state[name] = state[name][:-1].clone()
    if case == "missing":
        del state[name]


@pytest.mark.parametrize(
    ("case", "said"), [("missing", "is missing"), ("short", "does not fit its shape")]
)
def test_a_head_without_a_scale_that_fits_is_refused_in_one_sentence(case, said, tmp_path, capsys):
    target, _ = published("qwen3", tmp_path)
    as_published(tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    spoil(state, case)
    save_file(state, tmp_path / "model.safetensors")
    with pytest.raises(UserError, match=f"is in FP8, and its scale.* {said}") as error:
        load_head(language(target, None), tmp_path)
    assert "\n" not in str(error.value)
    main(["model", "doctor", str(tmp_path)])
    assert said in " ".join(capsys.readouterr().out.split())


def test_a_drafter_in_fp8_opens_as_the_one_it_is(tmp_path):
    made = toys.dflash_model(dtype=torch.float32)
    FORM.save_model(made, tmp_path)
    expected = as_published(tmp_path)
    found = FORM.load_model(tmp_path, torch.float32, "cpu").state_dict()
    assert all(torch.equal(found[name], each.float()) for name, each in expected.items())


def test_what_transformers_reads_of_a_target_is_what_is_read_here(tmp_path):
    """Its whole loading, beside ours of the same files."""
    published("qwen3", tmp_path)
    as_published(tmp_path)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).state_dict()
    mine = checkpoint.read_state(tmp_path)
    assert len(theirs) > 20
    assert all(torch.equal(each, mine[n].float()) for n, each in theirs.items() if n in mine)
