"""Checkpoints with values that cannot be: one sentence that names the folder, and no traceback."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from core.decoding.engine import Engine
from core.decoding.request import RunRequest
from core.errors import UserError
from tests.helpers.toys_on_disk import BYTES, save_toys


def spoilt(tmp_path, kind, change=lambda state: state, **config):
    """A toy drafter's folder with other values in its config, or other tensors."""
    save_toys(tmp_path)
    folder = tmp_path / kind
    raw = json.loads((folder / "config.json").read_text())
    own = raw.get("dflash_config", {})
    for name, value in config.items():
        (own if name in own else raw)[name] = value
    (folder / "config.json").write_text(json.dumps(raw))
    file = folder / "model.safetensors"
    save_file(change(load_file(file)), file)
    return folder


def complaint(tmp_path, folder, method) -> str:
    """Return the sentence that a run and the look through the file both say of a checkpoint."""
    engine = Engine(str(tmp_path / "target"), "cpu", str(folder))
    with pytest.raises(UserError) as found:
        list(engine.start(RunRequest("hi", method=method, budget=4, max_new_tokens=4)))
    assert "\n" not in str(found.value) and str(folder) in str(found.value)
    return str(found.value)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"block_size": None}, "the config has no field 'block_size'"),
        ({"block_size": "x"}, "block_size cannot be 'x'"),
        ({"block_size": True}, "block_size cannot be True"),
        ({"block_size": "9" * 90}, f"block_size cannot be '{'9' * 39}…"),
        ({"block_size": 10**30}, "block_size cannot be"),
        ({"block_size": 0}, "it drafts -1 tokens"),
        ({"block_size": 1}, "it drafts 0 tokens"),
        ({"block_size": 10**9}, "1 to 512 are possible"),
        ({"mask_token_id": -1}, "mask token -1 is outside"),
        ({"mask_token_id": BYTES}, f"mask token {BYTES} is outside"),
        ({"rms_norm_eps": "x"}, "rms_norm_eps cannot be 'x'"),
        ({"rms_norm_eps": -1}, "rms_norm_eps cannot be -1"),
        ({"target_layer_ids": ["x"]}, "cannot be"),
    ],
)
def test_a_config_that_cannot_be_is_one_sentence(config, says, tmp_path):
    assert says in complaint(tmp_path, spoilt(tmp_path, "drafter", **config), "ddtree")


@pytest.mark.parametrize("dtype", [torch.int32, torch.bool, torch.complex64])
@pytest.mark.parametrize(("kind", "method"), [("drafter", "ddtree"), ("medusa", "medusa")])
def test_tensors_that_are_no_weights_are_one_sentence(dtype, kind, method, tmp_path):
    def change(state):
        name = sorted(state)[0]
        return state | {name: state[name].to(dtype)}

    said = complaint(tmp_path, spoilt(tmp_path, kind, change), method)
    assert f"numbers of the type {str(dtype).removeprefix('torch.')}" in said


LAYERS = [
    ("drafter", "ddtree", {"target_layer_ids": [0, 4]}, "0, 4"),
    ("drafter", "ddtree", {"target_layer_ids": [-1, 4]}, "-1, 4"),
    ("dspark", "dspark", {"target_layer_ids": [40, 2]}, "40, 2"),
    ("dflash2", "dflash2", {"target_layer_ids": [0, 99]}, "0, 99"),
    ("treeflash", "treeflash", {"target_layer_ids": [0, 99]}, "0, 99"),
    ("eagle3", "eagle3", {"eagle_aux_hidden_state_layer_ids": [2, 3, 9]}, "1, 2, 8"),
]


@pytest.mark.parametrize(("kind", "method", "config", "read"), LAYERS)
def test_layers_that_the_target_lacks_are_one_sentence(kind, method, config, read, tmp_path):
    folder = spoilt(tmp_path, kind, **config)
    said = complaint(tmp_path, folder, method)
    with pytest.raises(
        UserError
    ) as found:  # the look at the small files, before any weight is read
        Engine(str(tmp_path / "target"), "cpu", str(folder)).check(method)
    for sentence in (said, str(found.value)):
        assert f"reads what comes out of the target's layers {read}, but" in sentence
        assert sentence.endswith("has the layers 0 to 3")


@pytest.mark.parametrize("method", ["dart", "eagle3"])
def test_a_target_of_too_few_layers_for_the_papers_three_is_refused(method, tmp_path):
    folder, small = spoilt(tmp_path, method), tmp_path / "small"
    raw = json.loads((tmp_path / "target" / "config.json").read_text())
    small.mkdir()
    (small / "config.json").write_text(json.dumps(raw | {"num_hidden_layers": 2}))
    with pytest.raises(UserError, match=r"layers 1, 0, -2, but .* has the layers 0 to 1"):
        Engine(str(small), "cpu", str(folder)).check(method)


def run_target(folder, prompt="hi") -> str:
    """The sentence with which a target's folder is refused."""
    with pytest.raises(UserError) as found:
        list(Engine(str(folder), "cpu").start(RunRequest(prompt, method="ar")).rounds)
    assert "\n" not in str(found.value)
    return str(found.value)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"num_hidden_layers": 10**6}, "num_hidden_layers is above 512"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is above 512"),
        ({"vocab_size": 10**12}, "vocab_size is above"),
        ({"max_position_embeddings": 10**15}, "max_position_embeddings is above"),
        ({"hidden_size": 10**9}, "has tensors of other shapes than its config says"),
        ({"layer_types": ["full_attention"] * 10**5}, "must be equal to the number of"),
        ({"text_config": {"num_hidden_layers": 10**9}}, "num_hidden_layers is above 512"),
    ],
)
def test_a_target_s_config_that_cannot_be_is_refused_before_a_model_is_made(config, says, tmp_path):
    assert says in run_target(spoilt(tmp_path, "target", **config))


def test_no_config_is_nested_without_end(tmp_path):
    folder = spoilt(tmp_path, "target")
    (folder / "config.json").write_text('{"a":' * 10**5 + "1" + "}" * 10**5)
    assert run_target(folder).endswith("its config is nested too deep")


def test_a_drafter_of_other_layers_than_it_counts_is_one_sentence(tmp_path):
    folder = spoilt(tmp_path, "drafter", layer_types=["full_attention"] * 10**5)
    assert complaint(tmp_path, folder, "ddtree")


@pytest.mark.parametrize("place", ["../secret.safetensors", "{}/secret.safetensors", "a/../../b"])
def test_no_file_outside_of_a_folder_is_read(place, tmp_path):
    folder = spoilt(tmp_path, "target")
    secret = (folder / "model.safetensors").rename(tmp_path / "secret.safetensors")
    index = {"weight_map": dict.fromkeys(load_file(secret), place.format(tmp_path))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "names a file outside of its folder" in run_target(folder)


def test_an_index_that_does_not_say_where_its_tensors_are_is_refused(tmp_path):
    folder = spoilt(tmp_path, "target")
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": 1}}')
    assert "does not say where the tensors are" in run_target(folder)


def test_a_tokenizer_s_expression_that_takes_too_many_steps_is_one_sentence(tmp_path):
    folder = spoilt(tmp_path, "target")
    raw = json.loads((folder / "tokenizer.json").read_text())
    split = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated"}
    raw["pre_tokenizer"] = split | {"invert": False}
    (folder / "tokenizer.json").write_text(json.dumps(raw))
    assert "the tokenizer cannot read this text" in run_target(folder, "a" * 40 + "!")
