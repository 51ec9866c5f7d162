"""Folders in layouts that are not read: a sentence says what they look like and what is read."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import save_file

from app import cli
from core.decoding.engine import Engine
from core.errors import UserError
from core.methods.registry import choose
from tests.helpers.sentences import is_one_sentence
from tests.helpers.users_files import PUBLISHED

QWEN = PUBLISHED["qwen3-4b dflash"]["config"]
EAGLE = PUBLISHED["llama-3.1-8b eagle3"]["config"]
SPECULATORS = {
    "architectures": ["DFlashSpeculator"],
    "speculators_model_type": "dflash",
    "draft_vocab_size": 32000,
    "block_size": 8,
    "transformer_layer_config": {"model_type": "qwen3", "hidden_size": 2560},
}
# Names as the packages of these publishers write them: method, config, tensors, what it looks like.
FOREIGN = {
    "speculators' dflash": ("ddtree", SPECULATORS, ["layers.0.mlp.up_proj.weight", "fc.weight"]),
    "speculators' mystery": ("ddtree", SPECULATORS | {"speculators_model_type": "mystery"}, []),
    "an EAGLE-4 drafter": ("eagle3", EAGLE, ["fc.weight", "efficient_lm_head.weight"]),
    "a native MTP head in Qwen's layout": (
        "eagle3", {"model_type": "qwen3_next"}, ["mtp.fc.weight"],
    ),
    "a native MTP head in DeepSeek's layout": (
        "eagle3", {"model_type": "glm4_moe"}, ["model.layers.46.eh_proj.weight"],
    ),
    "a drafter with latent attention (MLA)": (
        "eagle3", EAGLE | {"architectures": ["DeepseekV3ForCausalLMEagle3"]},
        ["midlayer.self_attn.kv_a_proj_with_mqa.weight"],
    ),
    "a drafter with a mixture of experts": ("eagle3", EAGLE, ["midlayer.mlp.experts.0.up.weight"]),
    "a PEFT adapter": ("ddtree", {}, ["base_model.model.layers.0.q_proj.lora_A.weight"]),
    "Mystery\ufffdForCausalLM, unheard": (
        "ddtree", {"architectures": ["Mystery\ufffd\x1b\nForCausalLM"], "model_type": "unheard"},
        [],
    ),
}  # fmt: skip


def complaint(toys_folder, method, folder) -> str:
    """Return the sentence of the look at the small files; loading says the same."""
    engine = Engine(str(toys_folder / "target"), "cpu", str(folder))
    with pytest.raises(UserError) as found:
        engine.check(method)
    with pytest.raises(UserError) as loading:
        engine.load_drafter(choose(method))
    assert str(loading.value) == str(found.value)
    return str(found.value)


@pytest.mark.parametrize("what", FOREIGN)
def test_a_foreign_layout_is_called_by_its_name(what, toys_folder, tmp_path):
    method, config, tensors = FOREIGN[what]
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file({name: torch.zeros(2, 2) for name in tensors}, tmp_path / "model.safetensors")
    said = complaint(toys_folder, method, tmp_path)
    assert f"; it looks like {what}, and " in said and "is read in " in said
    assert said.startswith(str(tmp_path)) and said.isprintable()


@pytest.mark.parametrize(
    ("folder", "method", "kind"),
    [
        ("drafter", "dart", "dflash"),
        ("drafter", "treeflash", "dflash"),
        ("eagle3", "ddtree", "eagle3"),
        ("eagle2", "eagle3", "eagle2"),
        ("peagle", "eagle3", "peagle"),
        ("eagle3", "peagle", "eagle3"),
        ("dspark", "ddtree", "dspark"),
        ("dflash2", "ddtree", "dflash2"),
        ("xpress", "ddtree", "xpress"),
        ("domino", "dspark", "domino"),
        ("medusa", "hydra", "medusa"),
        ("hydra", "medusa", "hydra"),
        ("sps", "eagle3", "sps"),
    ],
)
def test_a_drafter_of_another_kind_is_called_by_its_name(folder, method, kind, toys_folder):
    said = complaint(toys_folder, method, toys_folder / folder)
    assert f"; it looks like a checkpoint of {kind}, and " in said


def test_a_folder_of_gguf_and_one_of_nothing(toys_folder, tmp_path):
    assert "it looks like" not in complaint(toys_folder, "ddtree", tmp_path)
    (tmp_path / "draft-Q8_0.gguf").write_bytes(b"GGUF")
    assert "it looks like GGUF" in complaint(toys_folder, "ddtree", tmp_path)


def test_a_wrong_value_in_the_right_layout_is_not_called_another_layout(toys_folder, tmp_path):
    raw = json.loads((toys_folder / "drafter" / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(raw | {"block_size": "x"}))
    assert "looks like" not in complaint(toys_folder, "ddtree", tmp_path)


def test_the_command_ends_with_one_sentence(toys_folder, tmp_path, capsys):
    (tmp_path / "config.json").write_text(json.dumps(SPECULATORS))
    words = ["--model", str(toys_folder / "target"), "--drafter", str(tmp_path)]
    assert cli.main(["run", "ddtree", *words, "--prompt", "hi", "--device", "cpu"]) == 2
    assert is_one_sentence(capsys.readouterr().err)
