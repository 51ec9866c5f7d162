"""Targets and drafters by their config alone, compared with what is loaded and run."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.llama.modeling_llama import LlamaModel

from app.cli import main
from core.decoding.engine import Engine
from core.decoding.request import RunRequest
from core.errors import UserError
from core.methods.loading import form_of
from core.methods.names import DRAFTERS
from core.methods.opening import opening
from core.methods.registry import find_drafter
from core.models import configs, recurrent
from core.models.hub import CONFIG, Source
from core.models.language import load_language
from core.models.outline import outline
from core.models.target import Target
from tests import ROOT
from tests.helpers import toys
from tests.helpers.sentences import is_one_sentence
from tests.helpers.toys_on_disk import save_toys
from tests.helpers.users_files import PUBLISHED

FAMILIES = ("llama", "qwen3", "qwen3_moe", *toys.HYBRIDS)


def folder_of(path: Path, config: dict) -> str:
    """A folder that holds a config alone."""
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    return str(path)


@pytest.fixture
def doctor(capsys):
    """Call ``model doctor NAME``: the exit code, and what it prints."""

    def ask(name):
        code = main(["model", "doctor", str(name)])
        return code, capsys.readouterr()

    return ask


# ── targets ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("family", FAMILIES)
def test_the_memory_of_a_target_is_what_a_loaded_one_takes(family, tmp_path):
    made = toys.language_model(family)
    found = outline(folder_of(tmp_path / "bare", made.config.to_dict()), torch.float32)
    assert found is not None
    made.save_pretrained(tmp_path / "whole")
    toys.tokenizer().save_pretrained(tmp_path / "whole")
    model = load_language(str(tmp_path / "whole"), "cpu", fast=False).model
    where, memory = Target(model), found.memory[torch.float32]
    where.prefill([5, 7, 9], 4)
    assert memory.weights == sum(p.nbytes for p in model.parameters())
    assert found.parameters == sum(p.numel() for p in model.parameters())
    assert memory.token == where._kv._memory.nbytes // where._kv.capacity > 0
    carried = [each.bytes_per_row for each in getattr(where._kv, "_states", {}).values()]
    assert memory.state == sum(carried) and found.carrying == len(carried)
    assert (found.layers, found.vocabulary) == (4, toys.LANGUAGE_SIZE)


def test_half_the_bytes_in_bfloat16_but_not_of_states(tmp_path):
    """The recurrence stays in float32."""
    name = folder_of(tmp_path, toys.config("qwen3_5_text").to_dict())
    found = outline(name, torch.float32, torch.bfloat16)
    assert found is not None
    whole, half = found.memory[torch.float32], found.memory[torch.bfloat16]
    assert (whole.weights, whole.token) == (2 * half.weights, 2 * half.token)
    assert whole.state > half.state > whole.state / 2


REFUSED = {
    "layers of an unknown kind": ({"model_type": "glm_moe_dsa"}, "'indexed_attention'"),
    "layers of an unknown make": ({"model_type": "jamba", "num_hidden_layers": 2}, "not known"),
    "no language model": ({"model_type": "vit"}, "makes no language model of a ViTConfig"),
    "a part of one with pictures": (
        {"model_type": "step3p5"},
        "makes no language model of a Step3p7TextConfig",
    ),
    "an unknown model": ({"model_type": "unheard"}, "unheard"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_target_is_refused_with_the_sentence_of_loading(what, tmp_path, doctor):
    raw, words = REFUSED[what]
    name = folder_of(tmp_path, raw)
    toys.tokenizer().save_pretrained(tmp_path)
    with pytest.raises(UserError, match=words) as bare:
        outline(name, torch.float32)
    code, printed = doctor(name)
    assert code == 1 and f"does not open: {bare.value}" in printed.out
    if what != "layers of an unknown make":  # seen in the loaded model
        with pytest.raises(UserError) as loading:
            load_language(name, "cpu")
        assert str(loading.value) == str(bare.value)


def test_a_target_of_an_unknown_make_is_refused_when_it_is_loaded(tmp_path):
    small = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 259,
             "num_attention_heads": 4, "num_key_value_heads": 2}  # fmt: skip
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model("jamba", **small)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    toys.tokenizer().save_pretrained(tmp_path)
    sentences = []
    for load in (
        lambda: outline(str(tmp_path), torch.float32),
        lambda: load_language(str(tmp_path), "cpu"),
    ):
        with pytest.raises(UserError, match="not known here") as error:
            load()
        sentences.append(str(error.value))
    assert sentences[0] == sentences[1]


def test_quantised_experts_of_gpt_oss_open_and_write_what_plain_decoding_writes(tmp_path, doctor):
    """Its experts are published as MXFP4: four bits a number and a scale for every 32 of them."""
    config = toys.config("gpt_oss", toys.LANGUAGE_SIZE)
    config.hidden_size = config.intermediate_size = 64
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    toys.tokenizer().save_pretrained(tmp_path)
    weights, made = tmp_path / "model.safetensors", torch.Generator().manual_seed(0)
    state = load_file(weights)
    for name in [name for name in state if name.endswith(("gate_up_proj", "down_proj"))]:
        count, into, out = state.pop(name).shape
        shape = count, out, into // 32
        state[name + "_blocks"] = torch.randint(256, (*shape, 16), generator=made).byte()
        state[name + "_scales"] = torch.randint(118, 124, shape, generator=made).byte()
    save_file(state, weights, {"format": "pt"})
    raw = json.loads((tmp_path / "config.json").read_text())
    raw["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    (tmp_path / "config.json").write_text(json.dumps(raw))
    engine, texts = Engine(str(tmp_path), "cpu"), []
    for method in ("ar", "pld"):
        request = RunRequest("ab ab ab ab ab ab", method, max_new_tokens=24)
        texts.append([t for done in engine.start(request) for t in done.committed])
    assert texts[0] == texts[1] and len(texts[0]) >= 23
    code, printed = doctor(tmp_path)
    assert code == 0 and "stored in mxfp4" in printed.out


def saved(family: str, path: Path) -> Path:
    toys.language_model(family).save_pretrained(path)
    toys.tokenizer().save_pretrained(path)
    return path


def quantised(path: Path, method: str | None, *names: str) -> None:
    """A model whose first projection is stored in eight bits, as ModelOpt and others store it."""
    saved("llama", path)
    state = load_file(path / "model.safetensors")
    first = "model.layers.0.self_attn.q_proj.weight"
    state[first] = state[first].to(torch.float8_e4m3fn)
    state |= {f"{first}{name}": torch.ones(1) for name in names}
    save_file(state, path / "model.safetensors", {"format": "pt"})
    raw = json.loads((path / "config.json").read_text())
    if method is not None:
        raw["quantization_config"] = {"quant_method": method}
    (path / "config.json").write_text(json.dumps(raw))


def of_family(path: Path, family: str, **fields: object) -> None:
    config = AutoConfig.for_model(family, vocab_size=259, **fields)
    AutoModelForCausalLM.from_config(config).save_pretrained(path)
    toys.tokenizer().save_pretrained(path)


def no_positions(path: Path) -> None:
    of_family(path, "mpt", d_model=32, n_heads=2, n_layers=2)


SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}


def no_causal(path: Path) -> None:
    of_family(path, "bert", **SMALL)


def no_shard(path: Path) -> None:
    toys.language_model("llama").save_pretrained(path, max_shard_size="20KB")
    toys.tokenizer().save_pretrained(path)
    sorted(path.glob("*-of-*.safetensors"))[1].unlink()


UNSOUND = {
    "an unknown quantisation": (lambda path: quantised(path, "modelopt", "_scale"), "'modelopt'"),
    "scales without a method": (lambda path: quantised(path, None, "_scale"), "weight_scale'"),
    "a package that is missing": (lambda path: quantised(path, "awq"), "gptqmodel"),
    "positions of its own": (no_positions, "counts positions by itself"),
    "an encoder": (no_causal, "reads the tokens behind a place too"),
    "a shard that is missing": (no_shard, "lacks 'model-00002"),
}


@pytest.mark.parametrize("what", UNSOUND)
def test_a_target_that_would_write_another_text_is_refused_alike_by_doctor_and_run(
    what, tmp_path, doctor
):
    make, words = UNSOUND[what]
    make(tmp_path)
    code, printed = doctor(tmp_path)
    assert code == 1 and "does not open: " in printed.out
    with pytest.raises(UserError) as loading:
        load_language(str(tmp_path), "cpu")
    assert words in str(loading.value) and str(loading.value) in printed.out


@pytest.mark.parametrize(("family", "decoder"), [("rembert", False), ("roberta", True)])
def test_a_model_that_reads_a_tree_otherwise_than_its_paths_is_refused(family, decoder, tmp_path):
    """One attends both ways, and nothing of its code says so; one counts positions from two on."""
    of_family(tmp_path, family, **SMALL, initializer_range=0.5, is_decoder=decoder)
    with pytest.raises(UserError, match="reads a drafted tree otherwise than the same tokens"):
        load_language(str(tmp_path), "cpu")


def test_the_same_family_opens_as_a_decoder(tmp_path):
    of_family(tmp_path, "rembert", **SMALL, is_decoder=True)
    assert load_language(str(tmp_path), "cpu").vocabulary == 259


def test_a_model_whose_forward_fails_is_refused_when_it_is_loaded(tmp_path, monkeypatch):
    path = saved("llama", tmp_path)
    monkeypatch.setattr(
        LlamaModel, "forward", lambda *_, **__: (_ for _ in ()).throw(ValueError("odd"))
    )
    for ask in (lambda: outline(str(path), torch.float32), lambda: load_language(str(path), "cpu")):
        with pytest.raises(UserError, match="LlamaForCausalLM does not run on"):
            ask()


def test_a_draft_model_whose_tensors_transformers_renames_is_read(tmp_path):
    """Experts are stored one by one, and held as one tensor."""
    folder = saved("qwen3_moe", tmp_path / "draft")
    (found,) = opening(str(folder), torch.float32).drafters or (None,)
    engine = Engine(str(saved("llama", tmp_path / "target")), "cpu", str(folder))
    rounds = list(engine.start(RunRequest("ab", "sps", max_new_tokens=6)))
    assert rounds and sum(len(each.committed) for each in rounds) >= 5
    assert found is None or found.kind == "sps"


# The table of docs/models.md: transformers' default config of each family, and why it is refused.
FAMILIES_TOLD = {
    "qwen3_5": "", "qwen3_5_moe": "", "qwen3_next": "", "kimi_linear": "", "glm4_moe": "",
    "deepseek_v3": "", "gemma4": "", "llama": "", "qwen3": "", "qwen3_moe": "",
    "gpt_oss": "", "gemma3": "", "mistral": "", "olmo3": "", "exaone4": "", "cohere2": "",
    "granite_swa": "", "mimo_v2_flash": "", "llama4": "", "exaone": "", "sarvam_moe": "",
    "sarvam_mla": "", "apertus": "", "dory": "runs a layer more than once",
    "openai-gpt": "takes no cache",
    "glm_moe_dsa": "'indexed_attention'", "deepseek_v4": "'compressed_sparse_attention'",
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES_TOLD)
def test_a_family_opens_or_not_as_the_documents_say(family, tmp_path):
    from transformers import AutoConfig

    name, refusal = folder_of(tmp_path, {"model_type": family}), FAMILIES_TOLD[family]
    AutoConfig.for_model(family).save_pretrained(tmp_path)
    documents = ROOT / "docs" / "models.md"
    lines = documents.read_text("utf-8").splitlines()
    (row,) = (
        line for line in lines if f"`{family}`" in line and ("| yes" in line or "| no" in line)
    )
    found = opening(name, torch.bfloat16)
    assert ("| no: " in row) == bool(refusal) == bool(found.refused)
    if refusal:
        assert refusal in found.refused[0]
        return
    assert found.target is not None
    memory = found.target.memory[torch.bfloat16]
    assert memory.token and ("carries a state" in row) == bool(memory.state)


# ── drafters ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_config_opens_as_its_kind(name, tmp_path, doctor):
    row = PUBLISHED[name]
    where = folder_of(tmp_path, row["config"])
    config = form_of(find_drafter(row["kind"])).load_config(tmp_path)
    code, printed = doctor(where)
    line = next(each for each in printed.out.splitlines() if "opens as a drafter" in each)
    assert code == 0 and f"opens as a drafter: {row['kind']}, for a target of " in line
    for what, wanted in config.of_target.items():
        assert f"{what} {wanted:,}" in line
    count = config.of_target.get("layer count", 48)
    read = config.feature_layers(count)
    layers = ", ".join(map(str, read))
    told = f"; reads after layer{'s' * (len(read) > 1)} {layers}"
    assert told in line or (read == (47,) and "; reads after the target's last layer" in line)
    assert "weights are not here" in printed.out


@pytest.mark.parametrize("kind", [k for k in DRAFTERS if find_drafter(k).checkpoint])
def test_a_folder_with_weights_opens_as_what_it_is(kind, toys_folder):
    folder = toys_folder / {"dflash": "drafter"}.get(kind, kind)
    found = opening(str(folder), torch.float32)
    assert not found.refused
    if kind == "sps":  # a draft model is a language model
        assert found.target is not None and not found.drafters
        return
    (drafter,) = found.drafters
    assert found.target is None and drafter.kind == kind
    own = form_of(find_drafter(kind)).read_shapes(folder)
    assert drafter.parameters == sum(map(prod, own.values()))


@pytest.mark.parametrize("kind", ["dflash", "eagle3", "medusa", "mtp"])
def test_a_drafter_with_a_wrong_tensor_is_refused_as_loading_refuses_it(
    kind, toys_folder, tmp_path
):
    from safetensors.torch import load_file, save_file

    source = toys_folder / {"dflash": "drafter"}.get(kind, kind)
    state = load_file(source / "model.safetensors")
    state.pop(max(state))
    save_file(state, tmp_path / "model.safetensors")
    folder_of(tmp_path, json.loads((source / "config.json").read_text()))
    engine = Engine(str(toys_folder / "target"), "cpu", str(tmp_path))
    with pytest.raises(UserError) as error:
        engine.check(kind)
    found = opening(str(tmp_path), torch.float32)
    assert str(error.value) in (*found.refused, found.head) and not found.drafters


def test_the_targets_first_layers_have_its_tokens(tmp_path):
    """With and without trained changes; a model of its own may have others."""
    raw = {"format": "draftscope-first-layers", "layers": 3}
    parts = {"rank": 2, "parts": {"q_proj": [32, 32]}}
    for name, config in (("plain", raw), ("trained", raw | parts)):
        (found,) = opening(folder_of(tmp_path / name, config)).drafters
        assert found.kind == "sps" and not found.apart


def test_a_target_with_a_head_opens_as_both(tmp_path, doctor):
    raw = toys.config("qwen3_5_text").to_dict() | {"mtp_num_hidden_layers": 1}
    code, printed = doctor(folder_of(tmp_path, raw))
    assert code == 0 and "opens as a target: Qwen3_5ForCausalLM" in printed.out
    assert "opens as a drafter: mtp, for a target of hidden size 32" in printed.out
    code, printed = doctor(folder_of(tmp_path, raw | {"mtp_num_hidden_layers": 3}))
    assert code == 0 and "an MTP head of 3 layers is not supported" in printed.out
    assert "opens as a target" in printed.out and "opens as a drafter" not in printed.out


@pytest.mark.parametrize(
    ("family", "name", "more"),
    [("glm4_moe", "Glm4MoeForCausalLM", {"num_nextn_predict_layers": 3}),
     ("mimo_v2_flash", "MiMoV2FlashForCausalLM", {})],
)  # fmt: skip
def test_layers_of_their_own_for_depths_are_told(family, name, more, tmp_path, doctor):
    """GLM's config counts them; MiMo V2 Flash's files alone do."""
    raw = toys.config(family).to_dict() | more
    code, printed = doctor(folder_of(tmp_path, raw | {"architectures": [name]}))
    assert code == 0 and "opens as a target" in printed.out
    assert "opens as a drafter: mtp, for a target of hidden size 32" in printed.out
    assert ("drafts 3 tokens at most" in printed.out) == bool(more)


@pytest.mark.parametrize("layers", [1, 3])
def test_a_head_that_lies_alone_is_no_target_by_its_config(layers, tmp_path, doctor):
    """Its config has the target's fields; its architecture is a drafter's."""
    raw = toys.config("qwen3_5_text").to_dict() | {"mtp_num_hidden_layers": layers}
    code, printed = doctor(folder_of(tmp_path, raw | {"architectures": ["Qwen3_5MTP"]}))
    assert "opens as a target" not in printed.out and code == (layers > 1)
    words = "opens as a drafter: mtp" if layers == 1 else "does not open: "
    assert words in printed.out
    code, printed = doctor(folder_of(tmp_path, raw | {"architectures": "MTP"}))
    assert code == 0 and "opens as a target" in printed.out


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({"model_type": "gemma4_assistant"}, "no Gemma 4 assistant checkpoint: the config has no"),
        ({"speculators_model_type": "peagle"}, "no P-EAGLE checkpoint: the config has no field"),
        ({"architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 0}, "of 0 layers"),
    ],
)
def test_what_opens_as_nothing_is_called_by_its_name(raw, words, tmp_path, doctor):
    code, printed = doctor(folder_of(tmp_path, raw))
    assert code == 1 and words in printed.out and "opens as" not in printed.out


def test_a_config_that_is_none_is_one_sentence(tmp_path, doctor):
    (tmp_path / "config.json").write_text("{")
    code, printed = doctor(tmp_path)
    assert code == 2 and is_one_sentence(printed.err) and not printed.out


# ── the hub ──────────────────────────────────────────────────────────────────────────────────────


def test_of_the_hub_the_config_alone_is_fetched(tmp_path, doctor, monkeypatch):
    asked = []
    folder_of(tmp_path, PUBLISHED["qwen3.6-27b dflash2"]["config"])

    def fetch(source, patterns):
        asked.append((source.name, patterns))
        return tmp_path

    monkeypatch.setattr(Source, "fetch", fetch)
    code, printed = doctor("some/drafter")
    assert code == 0 and "opens as a drafter: dflash2" in printed.out
    assert asked == [("some/drafter", CONFIG)]


def test_without_the_hub_an_id_is_one_sentence(doctor):
    code, printed = doctor("some/drafter")
    assert code == 2 and is_one_sentence(printed.err) and not printed.out


def test_a_preset_whose_drafter_is_for_another_target_is_refused(toys_folder, tmp_path, doctor):
    config = json.loads((toys_folder / "drafter" / "config.json").read_text()) | {"hidden_size": 64}
    folder_of(tmp_path / "other", config)
    (tmp_path / "own.toml").write_text(
        f"[own]\ntarget = '{toys_folder / 'target'}'\n"
        f"drafters = {{ dflash = './other', eagle3 = '{toys_folder / 'eagle3'}' }}\n"
    )
    code, printed = doctor(tmp_path / "own.toml")
    assert code == 1 and "is for a target of hidden size 64" in printed.out
    assert printed.out.count("opens as a drafter") == 1


# ── states ───────────────────────────────────────────────────────────────────────────────────────


def test_doctor_says_what_a_state_costs(tmp_path, doctor, monkeypatch):
    name = folder_of(tmp_path, toys.config("qwen3_5_text").to_dict())
    found = outline(name, torch.float32)
    assert found is not None
    one = found.memory[torch.float32].state
    monkeypatch.setattr(recurrent, "KEPT", 17 * one)
    code, printed = doctor(name)
    slow, states, most = (line.strip() for line in printed.out.splitlines()[3:6])
    assert code == 0 and slow.startswith("slow: a tree forks the states of 2 layers depth by depth")
    kb = [f"{one * rows / of / 1000:.1f} KB" for rows, of in ((9, 1), (17, 1), (65, 2))]
    expected = f"{kb[0]} for 8 nodes, {kb[1]} for 16 nodes, at most {kb[2]} for 64 nodes"
    assert states.endswith(expected) and most.startswith("at most: past ")


def test_doctor_says_nothing_of_states_where_there_are_none(tmp_path, doctor):
    _, printed = doctor(folder_of(tmp_path, toys.config("llama").to_dict()))
    assert "opens as a target" in printed.out and "state" not in printed.out
    assert configs.read_config(tmp_path, "x")["model_type"] == "llama"


def test_a_target_whose_weights_are_cut_does_not_open(tmp_path, capsys):
    """Doctor says what loading says, before anything is loaded."""
    target, _ = save_toys(tmp_path)
    assert main(["model", "doctor", str(target)]) == 0
    weights = target / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    capsys.readouterr()
    assert main(["model", "doctor", str(target)]) == 1
    said = capsys.readouterr().out
    assert f"does not open: {weights} is not a safetensors file, or is damaged" in said
    assert "opens as a target" not in said
    assert main(["run", "ar", "--model", str(target), "--prompt", "hi", "--device", "cpu"]) == 2
