"""MTP heads behind the layers of a GGUF target: the same q as from the safetensors."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM
from transformers.modeling_layers import MtpModel

from app.cli import main
from core.decoding.engine import Engine
from core.decoding.request import RunRequest
from core.models.hub import Source
from tests import toys
from tests.gguf_files import tokenizer, write_qwen


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DRAFTSCOPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


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


def rounds(target):
    engine = Engine(str(target), "cpu")
    request = RunRequest(prompt="abab", method="mtp", budget=8, max_new_tokens=16)
    run = engine.start(request)
    return run.header.prompt_ids, [record.draft for record in run.rounds]


@pytest.mark.parametrize("family", ["qwen3_5_text", "qwen3_5_moe_text"])
def test_a_file_s_head_drafts_as_the_same_head_in_safetensors(family, tmp_path):
    folder, file = published(family, tmp_path / "published"), tmp_path / "target.gguf"
    write_qwen(folder, file, tokenizer())
    made = Source(str(file)).full_folder()
    stored = {**load_file(made / "model.safetensors"), **load_file(made / "mtp.safetensors")}
    own = load_file(folder / "model.safetensors")
    assert all("experts" in name for name in own.keys() - stored.keys())  # they lie apart
    assert not [n for n in own.keys() & stored.keys() if not torch.equal(own[n], stored[n])]
    (prompt, mine), (other, its) = rounds(folder), rounds(file)
    assert prompt == other and len(mine) == len(its) > 2
    for one, two in zip(mine, its, strict=True):
        assert (one is None) == (two is None)
        if one is not None:
            assert np.array_equal(one.tokens, two.tokens)
            # Experts are read where they lie in the files, and where this is decides the last bit.
            assert np.allclose(one.log_q, two.log_q, rtol=0, atol=1e-6 * ("moe" in family))


def test_the_doctor_says_that_a_head_lies_in_it(tmp_path, capsys, cache):
    folder = published("qwen3_5_text", tmp_path / "published")
    for heads, words in ((1, "opens as a drafter: mtp, for a target of hidden size 32"),
                         (2, "an MTP head of 2 layers is not supported"), (0, "")):  # fmt: skip
        file = tmp_path / f"{heads}.gguf"
        write_qwen(folder, file, tokenizer(), heads)
        assert main(["model", "doctor", str(file)]) == 0
        printed = capsys.readouterr().out
        assert "opens as a target: Qwen3_5ForCausalLM, 4 layers" in printed and words in printed
        assert ("as a drafter" in printed) == bool(words) and not cache.exists()


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
