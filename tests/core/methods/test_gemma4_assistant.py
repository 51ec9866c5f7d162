"""Gemma 4's assistant against transformers' own, on small random checkpoints that it wrote."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    Gemma4ForCausalLM,
    Gemma4TextConfig,
)

from analysis.drafters.mistakes import MISTAKES
from analysis.drafters.trials import Subject
from app.cli import main
from core.decoding.decode import Decoder
from core.drafting.builders import Chain, DynamicTree, SampledChain, best_first
from core.errors import UserError
from core.methods.gemma4_assistant.drafter import load
from core.methods.gemma4_assistant.model import AssistantConfig, load_assistant
from core.methods.method import DepthOptions
from core.models.target import Target
from tests.helpers import toys
from tests.helpers.gemma_assistants import (  # noqa: F401
    KINDS,
    SHAPE,
    TARGETS,
    assistant_of,
    language,
    layers_without_keys,
    randomised,
    shared_states,
    slow_log_q,
    target_of,
)
from tests.helpers.generated import generated, greedy
from tests.helpers.timing import amount
from tests.helpers.toys import GREEDY, HOT, PROMPT


@pytest.mark.parametrize(
    ("builder", "sampling"),
    [(best_first, GREEDY), (Chain(), HOT), (DynamicTree(4), HOT),
     (SampledChain(coupled=True), HOT)],
    ids=["best", "chain", "eagle2", "sampled"],
)  # fmt: skip
def test_the_text_is_that_of_plain_decoding(builder, sampling, tmp_path):
    owner = target_of("shared")
    assistant_of("clusters").save_pretrained(tmp_path)
    words = language(owner)
    drafter = load(words, tmp_path, DepthOptions(5))
    runs = [
        toys.run(Decoder("m", each, builder), amount(24, 40), sampling, 9,
                 target=Target(words.model, each.layers if each else ()))
        for each in (drafter, None)
    ]  # fmt: skip
    assert runs[0].tokens == runs[1].tokens


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("kind", ["all tokens", "a head of its own"])
@torch.no_grad()
def test_what_transformers_generator_drafts_is_recorded(kind, sampled, tmp_path):
    """Ours drafts the same, but where transformers 5.23 hands over one key too many: that of the
    first rejected candidate, which stands at the place of the new root."""
    owner, oracle = target_of("shared"), assistant_of(kind)
    oracle.save_pretrained(tmp_path)
    oracle.generation_config.num_assistant_tokens = 4
    count = amount(12, 20)
    how = {"max_new_tokens": count, "do_sample": sampled, "assistant_model": oracle}
    trace, text = generated(owner, tmp_path / "a.jsonl", **how)
    assert trace.header.method == "transformers SinglePositionMultiToken"
    assert sampled or text == greedy(owner, count)
    drafter = load(language(owner), tmp_path, DepthOptions(4))
    features = Target(language(owner).model, drafter.layers).prefill(text, 200).features
    alike = 0
    for before, record in pairwise([None, *trace.rounds]):
        at, tokens = record.position, record.draft.tokens.tolist()
        rejected = before.draft.tokens[before.accepted + 1 :][:1].tolist() if before else []
        for row in range(1, len(tokens)):
            log_q = slow_log_q(owner, oracle, text[:at], tokens[:row], rejected)
            assert record.draft.log_q[row] == pytest.approx(float(log_q[tokens[row]]), abs=1e-4)
            assert int(log_q.argmax()) == tokens[row]
        if not rejected and len(tokens) > 1:
            drafter.reset(200)
            drafter.extend(text[:at], features[:at])
            own = Chain()(drafter.begin(text[at], len(tokens) - 1), text[: at + 1], len(tokens) - 1)
            assert own.tokens.tolist() == tokens
            assert own.log_q == pytest.approx(record.draft.log_q, abs=2e-4)
            alike += 1
    assert alike


def test_only_the_keys_in_its_own_window_are_read(tmp_path):
    owner, text = target_of("shared"), [*PROMPT, 1, 2, 3, 4, 5, 6, 7]
    oracle = assistant_of("all tokens", sliding_window=4)
    oracle.save_pretrained(tmp_path)
    drafter = load(language(owner), tmp_path, DepthOptions(3))
    drafter.reset(100)
    drafter.extend(text, Target(language(owner).model, drafter.layers).prefill(text, 9).features)
    found = drafter.begin(7, 4).log_q([7, 9])
    with torch.no_grad():
        for depth, path in enumerate(([7], [7, 9])):
            expected = slow_log_q(owner, oracle, text, path)
            torch.testing.assert_close(found[depth], expected, rtol=1e-4, atol=1e-4)


REFUSED = {
    "a target of another family": (
        "llama", {}, "reads keys of a Gemma 4 target, and 'toy' is llama"),
    "other heads": ("shared", {"head_dim": 4}, "2 keys of width 4 .*but 'toy' has 2 of width 8"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_a_target_whose_keys_do_not_fit_is_refused(what, tmp_path):
    kind, changes, words = REFUSED[what]
    assistant_of("all tokens", **changes).save_pretrained(tmp_path)
    owner = toys.model() if kind == "llama" else target_of(kind)
    with pytest.raises(UserError, match=words):
        load(language(owner), tmp_path, DepthOptions())


VARIANTS = {
    "experts": ({"enable_moe_block": True}, "with experts"),
    "embeddings": ({"hidden_size_per_layer_input": 8}, "embeddings of its own in every layer"),
    "keys": ({"num_kv_shared_layers": 2}, "with keys of its own"),
}


@pytest.mark.parametrize("what", [*VARIANTS, "unified", "clusters", "tensor"])
def test_other_variants_are_refused(what, tmp_path, capsys):
    assistant_of("clusters").save_pretrained(tmp_path)
    raw, state = json.loads((tmp_path / "config.json").read_text()), None
    words = "do not fit the vocabulary"
    if what in VARIANTS:
        raw["text_config"] |= VARIANTS[what][0]
        words = VARIANTS[what][1]
    elif what == "unified":
        raw["model_type"] = "gemma4_unified_assistant"
        words = "of the type 'gemma4_unified_assistant' is not supported"
    elif what == "clusters":
        raw["num_centroids"] = 7
    else:
        state = load_file(tmp_path / "model.safetensors")
        state.pop("post_projection.weight")
        save_file(state, tmp_path / "model.safetensors", {"format": "pt"})
        words = "tensor post_projection.weight is missing"
    (tmp_path / "config.json").write_text(json.dumps(raw))
    with pytest.raises(UserError, match=words) as error:
        load(language(target_of("shared")), tmp_path, DepthOptions())
    assert "\n" not in str(error.value)
    assert main(["model", "doctor", str(tmp_path)]) == 1
    assert words in capsys.readouterr().out


@pytest.mark.parametrize("weights", [True, False])
def test_doctor_knows_it_by_its_config(weights, tmp_path, capsys):
    assistant_of("clusters").save_pretrained(tmp_path)
    if not weights:
        (tmp_path / "model.safetensors").unlink()
    assert main(["model", "doctor", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "opens as a drafter: gemma4-assistant, for a target of hidden size 32, vocab" in printed
    assert "opens as a target" not in printed and "memory of gemma4-assistant" in printed


def test_in_bfloat16_the_angles_are_exact(tmp_path):
    """Rounded to bfloat16, a frequency is half a radian off at the position 500."""
    assistant_of("all tokens").save_pretrained(tmp_path)
    made = load_assistant(tmp_path, torch.bfloat16, torch.device("cpu"))
    assert {p.dtype for p in made.parameters()} == {torch.bfloat16}
    rotary, width = made.model.rotary_emb, SHAPE["head_dim"]
    exact = 10000.0 ** -(torch.arange(0, width, 2, dtype=torch.float64) / width)
    assert rotary.sliding_attention_inv_freq.dtype == torch.float32
    torch.testing.assert_close(rotary.sliding_attention_inv_freq.double(), exact, rtol=1e-6, atol=0)
    assert rotary.full_attention_inv_freq.dtype == torch.float32
    rounded = rotary.full_attention_inv_freq.bfloat16().float()
    assert not torch.equal(rotary.full_attention_inv_freq, rounded)


def test_diagnose_tries_what_it_reads(tmp_path):
    assistant_of("all tokens").save_pretrained(tmp_path)
    words = language(target_of("shared"))
    drafter = load(words, tmp_path, DepthOptions())
    trials = [t.name for m in MISTAKES for t in m.trials(Subject(drafter, words, 40))]
    assert "features all zero" in trials and any("+ 1" in name for name in trials)


def test_folders_run_and_audit_finds_no_difference(tmp_path, capsys):
    """From disk, in float32, with the layers that are faster there; by its own heads, too."""
    more = {"vocab_size": toys.LANGUAGE_SIZE, "vocab_size_per_layer_input": toys.LANGUAGE_SIZE}
    config = Gemma4TextConfig(
        hidden_size=32, num_hidden_layers=6, layer_types=KINDS * 3,
        **SHAPE | TARGETS["shared"] | more,
    )  # fmt: skip
    randomised(Gemma4ForCausalLM(config), 1).float().save_pretrained(tmp_path / "target")
    toys.tokenizer().save_pretrained(tmp_path / "target")
    for kind in ("all tokens", "a head of its own"):
        made = assistant_of(kind, vocab_size=toys.LANGUAGE_SIZE).float()
        made.save_pretrained(tmp_path / kind)
        words = ["--model", str(tmp_path / "target"), "--drafter", str(tmp_path / kind)]
        words += ["--prompt", "The fox", "--max-new-tokens", "12"]
        assert main(["audit", "gemma4-assistant", *words]) == 0, capsys.readouterr().out


def test_the_fields_of_the_published_assistant_of_31b_are_read():
    """Those that engines' code holds of it."""
    text = {
        "model_type": "gemma4_text", "hidden_size": 1024, "num_hidden_layers": 4,
        "intermediate_size": 8192, "num_attention_heads": 32, "head_dim": 256,
        "global_head_dim": 512, "num_key_value_heads": 16, "num_global_key_value_heads": 4,
        "num_kv_shared_layers": 4, "hidden_size_per_layer_input": 0, "attention_k_eq_v": True,
        "vocab_size": 262144, "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
        "vocab_size_per_layer_input": 0,
    }  # fmt: skip
    raw = {"model_type": "gemma4_assistant", "backbone_hidden_size": 5376, "text_config": text}
    config = AssistantConfig.of(raw)
    assert config.of_target == {"hidden size": 5376, "vocabulary size": 262144}
    assert config.feature_layers(60) == (59,) and not config.clusters
    assert config.layers().layer_types[-1] == "full_attention"
