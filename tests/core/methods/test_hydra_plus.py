"""Hydra++ against the method recomputed for every token, and its published files."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaModel

from analysis.drafters.lint import lint
from app.cli import main
from core.errors import UserError
from core.learning.student import TrainingRun
from core.methods.hydra.drafter import HydraDrafter, load
from core.methods.hydra.model import FORM, form_for
from core.methods.hydra.training import TRAINING
from core.methods.medusa import HeadsOptions
from core.methods.method import QOptions
from core.models.language import Language
from core.models.layers import Rope
from tests.helpers import toys
from tests.helpers.drafter_reference import assert_close, numbers
from tests.helpers.hydra_plus_published import (
    CONFIG,
    HEADS,
    WIDTH,
    P,
    heads_on,
    loaded,
    published,
    tensors,
    toy_language,
)
from tests.helpers.toys_on_disk import BYTES, save_toys

# ── q ────────────────────────────────────────────────────────────────────────────────────────────


def test_the_layer_is_a_llama_model_of_one_layer_on_hidden_states(tmp_path):
    """As the reference makes it: transformers' own, of the target's config."""
    drafter, w = loaded(tmp_path)
    shape = toys.model().config.to_dict() | {"num_hidden_layers": 1}
    theirs = LlamaModel(LlamaConfig(**shape | {"attn_implementation": "eager"})).double()
    own = {n.removeprefix(P): t for n, t in w.items() if n.startswith(P) and "inv_freq" not in n}
    theirs.load_state_dict(own)
    features = numbers(3, 11, WIDTH)
    expected = theirs(inputs_embeds=features[None], use_cache=False).last_hidden_state[0]
    context = drafter.model.project(features, torch.arange(11))
    rows = torch.tensor([0, 10, 1])
    assert_close(drafter.model.attend(features[rows], rows, context), expected[rows])


def test_packed_linears_draft_the_same(tmp_path):
    """A CPU's float32 target packs the drafter's linears."""
    drafter, _ = loaded(tmp_path)
    single = load(toy_language(target=toys.model(dtype=torch.float32)), tmp_path, QOptions())
    features = numbers(4, 6, WIDTH)
    for each in (drafter, single):
        each.reset(20)
        each.extend([1] * 6, features.to(each.model.like.dtype))
    path = [9, 3, 7]
    assert_close(single.begin(9, 16).log_q(path), drafter.begin(9, 16).log_q(path), 1e-4)


# ── files ────────────────────────────────────────────────────────────────────────────────────────


def test_the_published_layout_is_read_and_written_again(tmp_path):
    state = published(tmp_path, toys.model())
    config = FORM.load_config(tmp_path)
    assert (config.heads, config.layers, config.vocab_size, config.head_bias) == (4, 4, 48, True)
    assert config.of_target == {
        "hidden size": 32,
        "vocabulary size": 48,
        "width of all query heads": 32,
        "width of all key heads": 16,
    }
    found = FORM.load_model(tmp_path, torch.float32, "cpu")
    for name, tensor in found.state_dict().items():
        assert torch.equal(tensor, state[name]), name
    assert state.keys() - found.state_dict().keys() == set(FORM.unread)
    FORM.save_model(found, tmp_path / "again")
    assert FORM.load_config(tmp_path / "again") == config
    made = form_for(toys.model().config).load_config(tmp_path / "again")
    assert made.rope == Rope() and made.prefix.head_dim == 8
    assert made.prefix.rms_norm_eps == toys.model().config.rms_norm_eps
    written = json.loads((tmp_path / "again/config.json").read_text())
    assert {n: v for n, v in CONFIG.items() if n in written}.items() <= written.items()


def test_the_reference_layout_of_plain_hydra_is_read(tmp_path):
    """Without dropouts, so parts are counted one by one."""
    w, state = tensors(48, toys.model()), {}
    for name, tensor in w.items():
        kind, head, *rest = name.split(".")
        if kind == "hydra_lm_head":
            state[".".join([kind, head, *rest[1:]])] = tensor
        elif kind == "hydra_mlp":
            state[".".join([kind, head, str(int(rest[0]) // 2), *rest[1:]])] = tensor
    embedding = w["input_embed_fn.weight"]
    save_file(state | {"input_embed_fn.weight": embedding}, tmp_path / "a.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"hydra_head_arch": "mlp"}))
    drafter = load(toy_language(), tmp_path, QOptions())
    assert type(drafter) is HydraDrafter
    features = numbers(4, 3, WIDTH)
    drafter.reset(9)
    drafter.extend([1, 2, 3], features)
    w = {name: tensor.double() for name, tensor in w.items()}
    for depth, row in enumerate(drafter.begin(9, 16).log_q([9, 3, 7, 7])):
        expected = heads_on(w, features[-1], [9, 3, 7, 7][: depth + 1])
        assert_close(row, expected.log_softmax(-1))


def test_our_earlier_files_are_read(tmp_path):
    model = toys.hydra_drafter(own=True).model.to(torch.bfloat16)
    FORM.save_model(model, tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    earlier = {}
    for name, tensor in state.items():
        kind, head, rest = name.split(".", 2)
        earlier[f"{head}.{rest if kind == 'hydra_mlp' else '1.' + rest}"] = tensor
    assert {"0.0.linear.weight", "3.1.weight"} <= earlier.keys()
    save_file(earlier, tmp_path / "model.safetensors")
    found = FORM.load_model(tmp_path, torch.bfloat16, "cpu")
    for name, tensor in state.items():
        assert torch.equal(found.state_dict()[name], tensor), name


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"hydra_head_arch": "eagle-attn"}, "'eagle-attn' are not supported"),
        ({"grounded_heads": False}, "do not read the drafted tokens"),
        ({"hidden_state_offset": 1}, "1 layers before the last"),
    ],
)
def test_another_kind_is_refused_before_its_weights_are_fetched(fields, words, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | fields))
    with pytest.raises(UserError, match=words) as error:
        FORM.load_config(tmp_path)
    assert "\n" not in str(error.value)


def test_sizes_are_unknown_before_the_weights_are_fetched(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    assert FORM.load_config(tmp_path).of_target == {}
    with pytest.raises(UserError, match="safetensors"):
        load(toy_language(), tmp_path, QOptions())
    (tmp_path / "hydra_lm_head.pt").write_bytes(b"")
    with pytest.raises(UserError, match=r"hydra_lm_head.pt is a pickle.*clone\(\)"):
        load(toy_language(), tmp_path, QOptions())


BROKEN = [
    ({f"{P}norm.weight": None}, {}, r"norm\.weight is missing"),
    ({f"{P}layers.0.self_attn.q_proj.weight": None}, {}, "no matrix .*q_proj"),
    ({f"{P}layers.0.self_attn.v_proj.weight": torch.zeros(3, 32)}, {}, r"v_proj.*\(3, 32\)"),
    ({"hydra_mlp.0.1.linear.weight": None}, {}, r"no matrix hydra_mlp\.0\.1"),
    ({"hydra_mlp.0.1.linear.weight": torch.zeros(32, 32)}, {}, "a hidden state and one token"),
    ({"hydra_mlp.2.1.res_connection.bias": None}, {}, r"2\.1\.res_connection\.bias.*missing"),
    ({"hydra_lm_head.3.1.weight": torch.zeros(47, 32)}, {}, r"\(47, 32\)"),
    ({"x": torch.zeros(3)}, {}, "x has shape"),
    ({}, {"hydra_num_layers": 2}, "hydra_num_layers 2, and its file has 4"),
    ({}, {"hydra_head_arch": "mlp"}, f"its file has {P}.*hydra_head_arch mlp"),
]


@pytest.mark.parametrize(("changes", "fields", "words"), BROKEN)
def test_what_is_wrong_in_a_checkpoint_is_one_sentence(changes, fields, words, tmp_path):
    published(tmp_path, toys.model(), changes, fields)
    with pytest.raises(UserError, match=words) as error:
        load(toy_language(), tmp_path, QOptions())
    assert "\n" not in str(error.value)


def test_a_block_that_was_stored_once_is_refused(tmp_path):
    """safetensors' ``save_model`` drops copies."""
    dropped = {
        f"hydra_mlp.{i}.{n}.linear.{part}": None
        for i in range(HEADS)
        for n in (5, 7)
        for part in ("weight", "bias")
    }
    published(tmp_path, toys.model(), dropped)
    with pytest.raises(UserError, match="applied again is stored again"):
        load(toy_language(), tmp_path, QOptions())


def test_a_target_of_other_attention_is_refused_by_the_files_headers(tmp_path):
    published(tmp_path, toys.model("qwen3"))
    with pytest.raises(UserError, match="of width of all query heads 64, but 'toy' has 32"):
        load(toy_language(), tmp_path, QOptions())


def test_a_layer_before_the_heads_is_not_trained(tmp_path):
    shared = {f"hydra_lm_head.{i}.1.{part}": None for i in range(4) for part in ("weight", "bias")}
    published(tmp_path, toys.model(), shared)
    run = TrainingRun(toy_language(), tmp_path, start=tmp_path)
    with pytest.raises(UserError, match="not trained here"):
        TRAINING.student(run, HeadsOptions(), None)


def test_lint_reads_what_the_drafter_reads(tmp_path):
    """The embedding that nothing uses has a row of zeros, and no remark on it."""
    target = toys.language_model()
    published(tmp_path, target, vocabulary=toys.LANGUAGE_SIZE)
    language = Language("toy", target, toys.tokenizer(), None)
    assert [r.text for r in lint(FORM, tmp_path, language).remarks if r.wrong] == []
    zero = {"hydra_mlp.1.3.linear.weight": torch.zeros(32, 32)}
    published(tmp_path, target, zero, vocabulary=toys.LANGUAGE_SIZE)
    (found,) = [r.text for r in lint(FORM, tmp_path, language).remarks if r.wrong]
    assert found.startswith("hydra_mlp.1.3.linear.weight is all zero")


def test_the_commands_run_examine_and_write_it(tmp_path, capsys):
    target, _ = save_toys(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(target)
    state = published(tmp_path / "heads", model, vocabulary=BYTES)
    words = ["--model", str(target), "--drafter", str(tmp_path / "heads"), "--device", "cpu"]
    for method in ("hydra", "hydra+static"):
        assert main(["audit", method, *words, "--prompt", "hi", "--max-new-tokens", "24"]) == 0
    talk = ["--prompt", "hi", "--max-new-tokens", "80"]
    assert main(["diagnose", "hydra", *words, *talk]) == 3  # its heads are random
    shown = capsys.readouterr().out
    assert "wrong:" not in shown and "rope_theta 500000" in shown
    out = tmp_path / "out"
    assert main(["model", "export", "--out", str(out), "--kind", "hydra", *words[:4]]) == 0
    written = load_file(out / "model.safetensors")
    assert written.keys() == state.keys() - set(FORM.unread)
    assert torch.equal(written[f"{P}norm.weight"], state[f"{P}norm.weight"].bfloat16())
