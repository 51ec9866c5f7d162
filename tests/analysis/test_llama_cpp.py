"""llama.cpp as a contestant of ``bench``: its text, its clock, and what is said without it."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from analysis.experiments import bench, llama_cpp
from analysis.experiments.llama_cpp import AT_ONCE, Decoded, LlamaCpp
from analysis.experiments.variants import LLAMA_CPP, Variant
from app.cli import main
from app.commands.bench import _parting, _sampled
from core.decoding.engine import Engine
from core.decoding.request import RunRequest
from core.errors import UserError
from core.rounds.round import new_tokens
from tests.helpers import toys
from tests.helpers.toys_on_disk import save_toys

WORDS = ("bench", LLAMA_CPP, "--prompt", "hi")


def test_a_missing_binding_is_one_sentence_that_says_how_to_install_it(monkeypatch, capsys):
    monkeypatch.setattr(llama_cpp, "find_spec", lambda name: None)
    assert main([*WORDS]) == 2
    assert (
        capsys.readouterr().err == "draftscope: llama.cpp is not installed: pip install cyllama\n"
    )


# ── beside our engine ────────────────────────────────────────────────────────────────────────────


class Fake:
    """Writes our text up to a token, with a clock of its own."""

    bytes = 1000

    def __init__(self, text: list[int]):
        self._text = text

    def decode(self, prompt, count, stop):
        tokens = tuple(self._text[:count])
        return Decoded(tokens, prompt_seconds=1.0, seconds=0.5 * (len(tokens) - 1))


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    target, drafter = save_toys(tmp_path_factory.mktemp("toy"))
    return Engine(str(target), "cpu", drafter)


def test_its_clock_stands_beside_ours(engine):
    request = RunRequest("", "ar", max_new_tokens=8, timed=False)
    plan = bench.Workload(("hello",), request, repeats=2)
    field = bench.with_baselines([LLAMA_CPP, "ddtree"], [4])
    assert [v.name for v in field][3:] == ["llama.cpp", "ddtree B=4"]
    text = new_tokens(list(engine.start(RunRequest("hello", "ar", max_new_tokens=8)).rounds))
    other = [*text[:5], text[5] + 1, *text[6:]]
    result = bench.bench(engine, plan, field, llama=Fake(other))
    row = next(r for r in bench.rows(result.timings, field, plan.request) if r.method == LLAMA_CPP)
    assert not row.keeps_text and row.parts == (5,) and row.tau is None
    assert row.seconds == 4.5 and row.decoding == 2.0 and row.tokens_per_second == 8 / 4.5
    assert "after new token 5 (prompt 1):" in _parting(row)
    roof = next(r for r in bench.roofs(result, field) if r.name == LLAMA_CPP)
    assert roof.seconds == 0.5 and roof.rows == 1 and roof.stages == {}
    cache = 2 * 4 * 2 * 8 * 2  # keys and values, 4 layers, 2 heads, 8 wide, 2 bytes
    logits, length = 4 * engine.prepare().vocabulary, len(engine.prepare().encode_chat("hello"))
    assert roof.bytes == 1000 + logits + cache * (length + 1 + np.arange(7)).mean()


# ── the library ──────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """The toy target as a GGUF file in float32, in llama.cpp."""
    if importlib.util.find_spec(llama_cpp.PACKAGE) is None:
        pytest.skip("llama.cpp is optional: pip install cyllama")
    file = tmp_path_factory.mktemp("gguf") / "toy.gguf"
    pytest.importorskip("gguf")
    from tests.helpers.gguf_files import write_llama

    write_llama(toys.reference("llama").float(), file)
    return LlamaCpp.load(file, threads=1, capacity=2 * AT_ONCE)


def test_it_writes_plain_decoding_s_text_from_the_same_numbers(loaded):
    prompt, text = list(toys.PROMPT), list(toys.plain(24))
    assert list(loaded.decode(prompt, 24, ()).tokens) == text
    found = loaded.decode(prompt, 24, {text[9]})
    stop = text.index(text[9])
    assert list(found.tokens) == text[: stop + 1], "a stop token is the last"
    assert found.seconds > 0 and found.prompt_seconds > 0
    assert loaded.decode(prompt, 1, ()).tokens == (text[0],)


def test_a_prompt_longer_than_one_call_is_read_in_parts(loaded):
    prompt = (list(toys.PROMPT) * AT_ONCE)[: AT_ONCE + 7]
    ids = torch.tensor([prompt])
    with torch.inference_mode():
        first = int(toys.reference("llama")(ids).logits[0, -1].argmax())
    assert loaded.decode(prompt, 1, ()).tokens == (first,)


def test_a_file_that_it_cannot_read_is_one_sentence(loaded, tmp_path):
    file = tmp_path / "broken.gguf"
    file.write_bytes(b"GGUF, not")
    with pytest.raises(UserError, match=r"^llama\.cpp cannot load broken\.gguf: "):
        LlamaCpp.load(file, 1, 64)
    assert loaded.version.startswith("cyllama ")


def test_what_its_cpu_uses_is_told_where_it_tells(monkeypatch):
    monkeypatch.setattr(llama_cpp.metadata, "version", lambda name: "9.9")
    parts = (None, None, None, 1, "Q4_1", 8)
    told = SimpleNamespace(
        llama_print_system_info=lambda: "CPU : SSE3 = 1 | AVX2 = 1 | LLAMAFILE = 1 | "
    )
    assert LlamaCpp(told, *parts).version == "cyllama 9.9, AVX2"
    assert LlamaCpp(SimpleNamespace(), *parts).version == "cyllama 9.9"
    assert Variant(LLAMA_CPP, None, engine=LLAMA_CPP) != Variant(LLAMA_CPP, None)


def test_the_table_s_head_says_how_the_target_chose():
    request = RunRequest("hi")
    assert _sampled(request) == "greedy"
    drawn = replace(request, temperature=0.7, top_k=5, top_p=0.9, seed=3)
    assert _sampled(drawn) == "T = 0.7, top-k 5, top-p 0.9, seed 3"
