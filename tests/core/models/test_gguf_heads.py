"""MTP heads behind the layers of a GGUF target: the same q as from the safetensors."""

from __future__ import annotations

import json
import shutil

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM
from transformers.modeling_layers import MtpModel

from app.cli import main
from core.decoding.engine import Engine
from core.decoding.request import RunRequest
from core.models.gguf import WITH_HEAD
from core.models.hub import Source
from tests.helpers import toys
from tests.helpers.gguf_files import tokenizer, write_qwen

pytestmark = pytest.mark.usefixtures("models_cache")


def published(family, folder):
    """A target with a head in Qwen's layout. Its gains and decays keep every bit on llama.cpp's
    way, which adds 1 to the former and takes exp of the latter."""
    rng, own = torch.Generator().manual_seed(3), tokenizer()
    config = toys.config(family, len(own))
    target = AutoModelForCausalLM.from_config(config).float().eval()
    config.num_mtp_layers, config.mtp_layer_types = 1, ["full_attention"]
    head = MtpModel(target, 1).float()
    places = {"enorm": "pre_fc_norm_embedding", "hnorm": "pre_fc_norm_hidden", "eh_proj": "fc",
              "post_norm": "norm", "mtp_block": "layers.0"}  # fmt: skip
    state = dict(target.state_dict())
    for name, tensor in head.state_dict().items():
        if name.startswith("layers."):
            part, rest = name.removeprefix("layers.0.").split(".", 1)
            state[f"mtp.{places[part]}.{rest}"] = tensor
    for name, tensor in state.items():
        made = torch.randn(tensor.shape, generator=rng)
        whole = (made * 64).round().clamp(-200, 200) / 256
        state[name] = torch.zeros_like(made) if "A_log" in name else (
            whole if tensor.ndim == 1 else 0.2 * made)  # fmt: skip
    target.save_pretrained(folder)
    own.save_pretrained(folder)
    save_file({n: t.contiguous() for n, t in state.items()}, folder / "model.safetensors")
    raw = json.loads((folder / "config.json").read_text())
    for name in ("num_mtp_layers", "mtp_layer_types"):
        raw.pop(name, None)
    (folder / "config.json").write_text(json.dumps(raw | {"mtp_num_hidden_layers": 1}))
    return folder


def rounds(target, drafter=None):
    engine = Engine(str(target), "cpu", drafter)
    request = RunRequest(prompt="abab", method="mtp", budget=8, max_new_tokens=16)
    run = engine.start(request)
    return run.header.prompt_ids, [record.draft for record in run.rounds]


def assert_alike(family, one, other):
    """The same prompt and drafts of two ``rounds``."""
    (prompt, mine), (theirs, its) = one, other
    assert prompt == theirs and len(mine) == len(its) > 2
    for a, b in zip(mine, its, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert np.array_equal(a.tokens, b.tokens)
            # Experts are read where they lie in the files, and where this is decides the last bit.
            assert np.allclose(a.log_q, b.log_q, rtol=0, atol=1e-6 * ("moe" in family))


@pytest.mark.parametrize("family", ["qwen3_5_text", "qwen3_5_moe_text"])
def test_a_file_s_head_drafts_as_the_same_head_in_safetensors(family, tmp_path):
    folder, file = published(family, tmp_path / "published"), tmp_path / "target.gguf"
    write_qwen(folder, file, tokenizer())
    made = Source(str(file)).full_folder()
    stored = {**load_file(made / "model.safetensors"), **load_file(made / "mtp.safetensors")}
    own = load_file(folder / "model.safetensors")
    assert all("experts" in name for name in own.keys() - stored.keys())  # they lie apart
    assert not [n for n in own.keys() & stored.keys() if not torch.equal(own[n], stored[n])]
    assert_alike(family, rounds(folder), rounds(file))


def test_the_doctor_says_that_a_head_lies_in_it(tmp_path, capsys, models_cache):
    folder = published("qwen3_5_text", tmp_path / "published")
    for heads, words in ((1, "opens as a drafter: mtp, for a target of hidden size 32"),
                         (2, "an MTP head of 2 layers is not supported"), (0, "")):  # fmt: skip
        file = tmp_path / f"{heads}.gguf"
        write_qwen(folder, file, tokenizer(), heads)
        assert main(["model", "doctor", str(file)]) == 0
        printed = capsys.readouterr().out
        assert "opens as a target: Qwen3_5ForCausalLM, 4 layers" in printed and words in printed
        assert ("as a drafter" in printed) == bool(words) and not models_cache.exists()


def without(part, tmp_path):
    """A file that counts a head, of a model without the tensors that have ``part`` in their
    names."""
    folder, file = published("qwen3_5_text", tmp_path / "published"), tmp_path / "part.gguf"
    own = load_file(folder / "model.safetensors")
    save_file({n: t for n, t in own.items() if part not in n}, folder / "model.safetensors")
    write_qwen(folder, file, tokenizer())
    return file, ["--model", str(file), "--prompt", "hi", "--max-new-tokens", "4"]


def test_a_part_of_a_file_is_no_target(tmp_path, capsys):
    """llama.cpp's converter writes a head with the ends alone, too (``--mtp``)."""
    _, words = without("model.layers", tmp_path)
    assert main(["run", "mtp", *words, "--device", "cpu"]) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert "holds no whole model: it lacks" in said


@pytest.mark.parametrize("part", ["mtp.", "mtp.fc.weight"])
def test_a_file_that_counts_a_head_and_lacks_it_is_a_target_alone(part, tmp_path, capsys):
    """Fine-tunes that are saved again keep the count, and often not the head."""
    file, words = without(part, tmp_path)
    assert main(["model", "doctor", str(file)]) == 0
    assert "as a drafter" not in capsys.readouterr().out
    assert main(["run", "ar", *words, "--device", "cpu"]) == 0
    capsys.readouterr()
    assert main(["run", "mtp", *words, "--device", "cpu"]) == 2
    assert "no mtp drafter ships for" in capsys.readouterr().err


@pytest.mark.parametrize("family", ["qwen3_5_text", "qwen3_5_moe_text"])
def test_a_file_of_a_head_alone_drafts_for_the_target_in_another_file(family, tmp_path, capsys):
    """As llama.cpp publishes them (``mtp-….gguf``); of the whole file the head alone is read."""
    folder, rest = published(family, tmp_path / "published"), tmp_path / "rest"
    whole, alone, trunk = (tmp_path / f"{n}.gguf" for n in ("whole", "alone", "trunk"))
    write_qwen(folder, whole, tokenizer())
    shutil.copytree(folder, rest)
    own = load_file(folder / "model.safetensors")
    for file, part, heads in ((alone, "model.layers", 1), (trunk, "mtp.", 0)):
        save_file({n: t for n, t in own.items() if part not in n}, rest / "model.safetensors")
        write_qwen(rest, file, tokenizer(), heads)
    assert main(["model", "doctor", str(alone)]) == 0
    said = capsys.readouterr().out
    assert "opens as a drafter: mtp" in said and "opens as a target" not in said
    wanted = rounds(whole)
    for drafter in (alone, whole):
        assert_alike(family, wanted, rounds(trunk, str(drafter)))


def test_a_head_in_a_file_that_is_not_read_is_refused_in_one_sentence(tmp_path, capsys):
    """Of every architecture that has heads in gguf-py, and of those that llama.cpp writes more. No
    target of these opens; where one did, its head would have to be read."""
    folder, file = published("qwen3_5_text", tmp_path / "published"), tmp_path / "a.gguf"
    target = ["run", "mtp", "--model", str(folder), "--prompt", "hi", "--device", "cpu"]
    nextn = {getattr(gguf.MODEL_TENSOR, name) for name in vars(gguf.MODEL_TENSOR)
             if name.startswith("NEXTN")}  # fmt: skip
    known = {gguf.MODEL_ARCH_NAMES[arch] for arch, tensors in gguf.MODEL_TENSORS.items()
             if nextn & set(tensors)} - {*WITH_HEAD}  # fmt: skip
    assert len(known) > 4
    for arch in sorted(known | {"deepseek2", "mimo2", "qwen3next", "step35"}):
        made = gguf.GGUFWriter(file, arch)
        made.add_block_count(2)
        made.add_uint32(f"{arch}.nextn_predict_layers", 1)
        made.add_tensor("blk.1.nextn.eh_proj.weight", np.zeros((32, 64), np.float32))
        made.write_header_to_file()
        made.write_kv_data_to_file()
        made.write_tensors_to_file()
        made.close()
        for words in (["run", "mtp", "--model", str(file), "--prompt", "hi"],
                      [*target, "--drafter", str(file)]):  # fmt: skip
            assert main(words) == 2
            said = capsys.readouterr().err.strip().splitlines()[-1]
            assert said.startswith("draftscope: ") and arch in said


def test_a_head_with_a_tensor_that_is_not_known_is_refused_and_its_target_opens(tmp_path, capsys):
    folder, file = published("qwen3_5_text", tmp_path / "published"), tmp_path / "a.gguf"
    state = load_file(folder / "model.safetensors")
    state["mtp.layers.0.mlp.extra.weight"] = torch.zeros(4, 4)
    save_file(state, folder / "model.safetensors")
    write_qwen(folder, file, tokenizer())
    words = ["--model", str(file), "--prompt", "hi", "--max-new-tokens", "4", "--device", "cpu"]
    assert main(["run", "ar", *words]) == 0
    for more in ([], ["--drafter", str(file)]):
        capsys.readouterr()
        assert main(["run", "mtp", *words, *more]) == 2
        assert "mlp.extra" in capsys.readouterr().err.strip().splitlines()[-1]


def test_the_command_line_finds_a_head_in_the_target(tmp_path, capsys):
    folder, file = published("qwen3_5_text", tmp_path / "published"), tmp_path / "target.gguf"
    write_qwen(folder, file, tokenizer())
    printed = []
    for name in (folder, file):
        words = ["--model", str(name), "--prompt", "abab", "--max-new-tokens", "8"]
        assert main(["run", "mtp", *words, "--device", "cpu"]) == 0
        printed.append(capsys.readouterr().out)
    assert len({out.partition("method")[0] for out in printed}) == 1
    write_qwen(folder, file, tokenizer(), heads=0)
    assert main(["run", "mtp", "--model", str(file), "--prompt", "hi", "--device", "cpu"]) == 2
    assert "no mtp drafter ships for" in capsys.readouterr().err
