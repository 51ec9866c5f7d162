"""Targets in GGUF files: the same numbers, made once, and one sentence for what is not a model."""

from __future__ import annotations

import os
import struct
from types import SimpleNamespace

import gguf
import pytest
import torch

from app.cli import main
from core.errors import UserError
from core.models import gguf as ours
from core.models.hub import Source
from core.models.language import load_language, target_config
from tests.helpers import toys
from tests.helpers.gguf_files import matrices, tokenizer, write_llama
from tests.helpers.mutants import at_most

FLOAT, Q8 = gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.Q8_0
IDS = torch.tensor([[5, 80, 33, 7, 140, 200]])


def made_in(folder, name="toy.gguf", kind=FLOAT):
    file = folder / name
    write_llama(toys.language_model().float(), file, tokenizer(), kind)
    return file


def test_a_file_in_float32_has_the_model_s_numbers_tokens_and_template(models_cache, tmp_path):
    file = made_in(tmp_path)
    language = load_language(str(file), "cpu", fast=False)
    with torch.inference_mode():
        mine, its = toys.language_model().float()(IDS).logits, language.model(IDS).logits
    assert language.model.dtype == torch.float32 and torch.allclose(mine, its, atol=1e-6)
    own = tokenizer()
    known = language.tokenizer.get_vocab()  # transformers may add an unknown token behind them
    assert {token: known[token] for token in own.get_vocab()} == own.get_vocab()
    assert list(language.stop_ids) == [own.eos_token_id]
    turn = own.apply_chat_template(
        [{"role": "user", "content": "abbä"}], add_generation_prompt=True, tokenize=False
    )
    assert language.encode_chat("abbä") == own(turn, add_special_tokens=False).input_ids
    assert language.text(language.encode("ab b")) == "ab b"


def test_a_quantised_file_is_rounded_to_bfloat16_once(models_cache, tmp_path):
    model = load_language(str(made_in(tmp_path, kind=Q8)), "cpu", fast=False).model
    whole = toys.language_model().float()
    name = "model.layers.0.mlp.gate_proj.weight"
    blocks = gguf.quantize(matrices(whole)[name], Q8)
    wanted = torch.from_numpy(gguf.dequantize(blocks, Q8)).bfloat16().float()
    kept = dict(model.named_parameters())[name]
    assert torch.equal(kept, wanted) and not torch.equal(kept, whole.state_dict()[name])


def test_a_file_is_converted_once_and_again_when_it_changes(models_cache, tmp_path, monkeypatch):
    file = made_in(tmp_path)
    assert target_config(str(file)).hidden_size == toys.config("llama").hidden_size
    assert not models_cache.exists(), "a config needs no weights"
    folder = Source.checked(str(file)).full_folder()
    monkeypatch.setattr(ours, "convert", lambda *_: pytest.fail("made twice"))
    assert Source.checked(str(file)).full_folder() == folder == ours.folder_of(file)
    monkeypatch.undo()
    monkeypatch.setenv("DRAFTSCOPE_CACHE", str(models_cache.parent))
    made_in(tmp_path, kind=Q8)
    assert (changed := Source.checked(str(file)).full_folder()) != folder
    os.utime(file)
    assert ours.folder_of(file) != changed, "it may have other numbers in the same room"


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_an_interruption_leaves_no_folder(models_cache, tmp_path, monkeypatch, error):
    file, whole = made_in(tmp_path), ours.convert

    def interrupted(*args):
        whole(*args)
        raise error("stopped")

    monkeypatch.setattr(ours, "convert", interrupted)
    with pytest.raises((error, UserError)):
        Source.checked(str(file)).full_folder()
    assert list(models_cache.iterdir()) == []


def broken(how, file):
    raw = file.read_bytes()
    if how == "cut":
        return raw[: len(raw) // 2]
    if how == "header":
        return raw[:300]
    if how == "other":
        return raw.replace(b"llama", b"lxxma")
    tensors, fields = {"tensors": (1 << 60, 20), "fields": (20, 1 << 60)}.get(how, (1, 1))
    if how == "version":
        return b"GGUF" + struct.pack("<IQQ", 9, tensors, fields) + raw[24:]
    if how in ("tensors", "fields"):
        return b"GGUF" + struct.pack("<IQQ", 3, tensors, fields) + raw[24:]
    return b"not a model" if how == "text" else b""


@pytest.mark.parametrize(
    "how, said",
    [
        ("text", "is not a GGUF file"),
        ("empty", "is not a GGUF file"),
        ("version", "has GGUF's version 9"),
        ("tensors", "at most 65536 and 16384 are read"),
        ("fields", "at most 65536 and 16384 are read"),
        ("cut", "cannot be loaded"),
        ("header", "is cut off, or its header counts more than it holds"),
        ("other", "cannot be loaded"),
    ],
)
def test_what_is_not_a_model_is_one_sentence(models_cache, tmp_path, capsys, how, said):
    file = made_in(tmp_path)
    file.write_bytes(broken(how, file))
    assert main(["run", "ar", "--model", str(file), "--prompt", "hi"]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert said in error and str(file) in error and "Traceback" not in error
    assert not models_cache.exists() or list(models_cache.iterdir()) == []


COUNTS = {  # what stands before a count in the file, and how many bytes it has
    "numbers": (b"tokenizer.ggml.token_type" + struct.pack("<II", 9, 5), 8),
    "texts": (b"tokenizer.ggml.tokens" + struct.pack("<II", 9, 8), 8),
    "a text": (b"tokenizer.ggml.model" + struct.pack("<I", 8), 8),
    "a name": (b"", 8),
    "axes": (b"token_embd.weight", 4),
    "a type": (b"tokenizer.ggml.token_type" + struct.pack("<I", 9), 4),
}


@pytest.mark.parametrize("most", [10**9, 2**31, 2**60])
@pytest.mark.parametrize("what", COUNTS)
def test_a_header_that_counts_more_than_its_file_holds_is_one_sentence(
    models_cache, tmp_path, capsys, what, most
):
    """The library's reader would go on behind the end, for minutes and in gigabytes."""
    (before, size), file = COUNTS[what], tmp_path / "t.gguf"
    write_llama(toys.language_model("llama").float(), file, tokenizer=tokenizer())
    raw = file.read_bytes()
    at = raw.index(before) + len(before) if before else 24
    count = min(most, 2 ** (8 * size) - 1).to_bytes(size, "little")
    file.write_bytes(raw[:at] + count + raw[at + size :])
    with at_most(10):
        assert main(["run", "ar", "--model", str(file), "--prompt", "hi"]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert f"{file} is cut off, or its header counts more than it holds" in error
    assert main(["model", "doctor", str(file)]) in (1, 2)


def test_a_file_that_is_not_there_is_said(models_cache, tmp_path, capsys):
    missing = tmp_path / "none.gguf"
    assert main(["run", "ar", "--model", str(missing), "--prompt", "hi"]) == 2
    assert f"there is no file {missing}" in capsys.readouterr().err


def test_a_target_and_its_draft_model_run_from_files(models_cache, tmp_path, capsys):
    target, drafter = made_in(tmp_path), made_in(tmp_path, "draft.gguf", Q8)
    words = ["--model", str(target), "--prompt", "hi", "--max-new-tokens", "12", "--device", "cpu"]
    assert main(["run", "ar", *words]) == 0
    plain = capsys.readouterr().out.partition("method")[0]
    assert main(["run", "sps", "--drafter", str(drafter), *words]) == 0
    assert capsys.readouterr().out.partition("method")[0] == plain


def test_doctor_opens_a_file_by_its_header(models_cache, tmp_path, capsys):
    file = made_in(tmp_path)
    assert main(["model", "doctor", str(file)]) == 0
    printed = capsys.readouterr().out
    assert "opens as a target: LlamaForCausalLM, 4 layers, hidden size 32" in printed
    assert "1,000 tokens of text" in printed and not models_cache.exists()


def test_numbers_are_kept_in_float32_where_every_matrix_is_of_floats():
    def holds(*stored):
        tensors = [SimpleNamespace(tensor_type=kind, shape=shape) for kind, shape in stored]
        return ours.holds_floats(tensors)

    kind, matrix = gguf.GGMLQuantizationType, (4, 32)
    assert holds((kind.F16, matrix), (kind.F32, matrix), (kind.Q8_0, (32,)))
    assert not holds((kind.F16, matrix), (kind.Q8_0, matrix))
