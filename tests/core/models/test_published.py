"""Every check of a checkpoint is tried on the values of real published configs.

``published.json`` holds them by name, each with its kind and where it was read. Those from memory
were not compared with a file.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from core.decoding.engine import Engine
from core.decoding.request import RunRequest
from core.errors import UserError
from core.methods.hydra import model as hydra
from core.methods.loading import check_checkpoint, form_of
from core.methods.opening import opening
from core.methods.registry import choose, find_drafter
from core.models import presets
from core.models.configs import check_config, plain
from core.models.hub import Source
from core.models.language import target_config
from core.models.layers import Rope, Rotary
from core.rounds.round import new_tokens
from tests.helpers import toys
from tests.helpers.toys_on_disk import BYTES, save_toys
from tests.helpers.users_files import PUBLISHED

WITH_ROPE = {
    n: row for n, row in PUBLISHED.items() if row["kind"] not in ("medusa", "hydra", "mtp")
}
TARGETS = {n: row for n, row in PUBLISHED.items() if row["kind"] == "mtp"}  # with a head inside
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip
YARN = {"type": "yarn", "factor": 4, "original_max_position_embeddings": 32768}
WIDTH = 8
SCALINGS = {
    "llama3": LLAMA3,
    "yarn": YARN,
    "yarn of the config's length": {"type": "yarn", "factor": 4.0},
    "yarn without a factor": YARN | {"factor": None, "original_max_position_embeddings": 1024},
    "DeepSeek's yarn": YARN | {"factor": 40, "mscale": 1.0, "mscale_all_dim": 0.5},
    "gpt-oss": YARN | {"factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False},
    "an attention factor": YARN | {"attention_factor": 1.25},
    "linear": {"type": "linear", "factor": 2},
    "dynamic": {"type": "dynamic", "factor": 4.0},
    "longrope": {
        "rope_type": "longrope", "original_max_position_embeddings": 1024,
        "short_factor": [1.0, 1.1, 1.5, 2.0], "long_factor": [1, 4, 8, 16],
    },
}  # fmt: skip


def read(folder: Path, kind: str, raw: dict):
    (folder / "config.json").write_text(json.dumps(raw))
    return form_of(find_drafter(kind)).load_config(folder)


def assert_turns_as_in_transformers(rope: Rope, raw: dict, width: int) -> None:
    """cos and sin, with their factor, of its own layer for the config as it was published."""
    positions = torch.tensor([0, 1, 7, 500, 1000])
    names = ("rope_scaling", "rope_parameters", "rope_theta", "max_position_embeddings")
    told = {name: raw[name] for name in names if raw.get(name) is not None}
    config = LlamaConfig(**told, hidden_size=width, num_attention_heads=1, head_dim=width)
    cos, sin = LlamaRotaryEmbedding(config)(torch.zeros(1), positions[None])
    found = Rotary.at(positions, width, rope, torch.float32)
    # float32 rounds an angle of 1,000 by up to 6e-5, and plain ones are not computed in its order
    torch.testing.assert_close(found.cos, cos[0], rtol=0, atol=1e-4)
    torch.testing.assert_close(found.sin, sin[0], rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", sorted(PUBLISHED.keys() - TARGETS.keys()))
def test_a_published_config_is_read(name, tmp_path):
    row = PUBLISHED[name]
    config = read(tmp_path, row["kind"], row["config"])
    again = read(tmp_path, row["kind"], config.to_json())
    assert again == config
    if name not in WITH_ROPE:
        return
    raw = row["config"] | row["config"].get("transformer_layer_config", {})
    for field in ("hidden_size", "intermediate_size", "vocab_size", "num_attention_heads"):
        assert getattr(config, field) == raw[field]
    groups = raw.get("num_key_value_heads", raw["num_attention_heads"])
    assert config.num_key_value_heads == groups
    if (raw.get("rope_scaling") or {}).get("type") == "mrope":  # of text, as if it said nothing
        raw = raw | {"rope_scaling": None}
    assert_turns_as_in_transformers(config.rope, raw, config.head_dim)


@pytest.mark.parametrize("name", TARGETS)
def test_a_published_target_and_its_head_open(name, tmp_path):
    raw = TARGETS[name]["config"]
    text = raw.get("text_config", raw)
    (tmp_path / "config.json").write_text(json.dumps(raw))
    found = opening(str(tmp_path), torch.bfloat16)
    assert found.target is not None and not found.refused and not found.head
    kinds = text.get("layer_types") or ["full_attention"] * text["num_hidden_layers"]
    attending = kinds.count("full_attention")
    keys = 2 * text["num_key_value_heads"] * text["head_dim"] * attending
    assert found.target.memory[torch.bfloat16].token == 2 * keys
    assert found.target.carrying == kinds.count("linear_attention")
    (head,) = found.drafters
    assert head.of_target == {
        "hidden size": text["hidden_size"],
        "vocabulary size": text["vocab_size"],
        "layer count": text["num_hidden_layers"],
    }
    assert head.layers == (text["num_hidden_layers"] - 1,)


@pytest.mark.parametrize(
    ("drafter", "fits"),
    [("qwen3.6-27b dflash", True), ("qwen3.8-27b dflash2", True), ("qwen3.5-9b dflash", False)],
)
def test_published_drafters_fit_their_published_target(drafter, fits, tmp_path):
    for place, row in (("target", TARGETS["qwen3.5-27b mtp"]), ("drafter", PUBLISHED[drafter])):
        (tmp_path / place).mkdir()
        (tmp_path / place / "config.json").write_text(json.dumps(row["config"]))
    target = str(tmp_path / "target")
    words = (PUBLISHED[drafter]["kind"], Source(str(tmp_path / "drafter")), target)
    if fits:
        return check_checkpoint(*words, target_config(target))
    with pytest.raises(UserError, match="hidden size 4096"):
        check_checkpoint(*words, target_config(target))


def test_every_preset_has_a_published_config():
    """So that no check can refuse what a preset fetches. Gemma 4's is in test_gemma4_assistant."""
    kinds = {
        kind for name in presets.shipped_presets() for kind in presets.preset_of(name).drafters
    }
    assert kinds - {"gemma4-assistant"} <= {row["kind"] for row in PUBLISHED.values()}


@pytest.mark.parametrize("name", SCALINGS)
def test_scaled_positions_turn_as_in_transformers(name, tmp_path):
    """In either spelling, and once more as written here."""
    raw = PUBLISHED["llama-3.1-8b eagle3"]["config"] | {"head_dim": WIDTH, "rope_theta": 5e5}
    older = raw | {"rope_scaling": SCALINGS[name]}
    kind = SCALINGS[name].get("rope_type") or SCALINGS[name].get("type")
    own = SCALINGS[name] | {"rope_type": kind, "rope_theta": 5e5}
    newer = raw | {"rope_parameters": own}
    for config in (older, newer, newer | {"rope_parameters": {"full_attention": own}}):
        found = read(tmp_path, "eagle3", config)
        assert found.rope.scaling and Rope.of(found.rope.to_json() | {"x": 1}) == Rope(5e5)
        assert_turns_as_in_transformers(found.rope, older, WIDTH)
        assert Rope.of({"rope_parameters": found.rope.to_json()}) == found.rope
        assert Rope.of(found.rope.to_older_json()) == found.rope
    assert found.rope.limit == (1024 if name == "longrope" else None)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"rope_scaling": {"type": "fourier"}}, "type 'fourier' is not supported"),
        ({"rope_scaling": {"type": "llama3", "factor": 8}}, "no field 'low_freq_factor'"),
        ({"rope_scaling": {"type": "linear", "factor": "x"}}, "rotary positions are not valid"),
        ({"rope_scaling": {"type": "linear", "factor": 0}}, "impossible angles"),
        ({"rope_scaling": {"type": "linear", "factor": {}}}, "no field 'factor'"),
        ({"rope_scaling": {"type": "dynamic", "alpha": 1000.0, "factor": 1.0}}, "by alpha"),
        ({"rope_scaling": SCALINGS["longrope"] | {"short_factor": [1] * 3}}, "are not valid"),
        ({"rope_theta": -1}, "impossible angles"),
        ({"partial_rotary_factor": 0.5}, "a part of its heads"),
        (
            {"rope_parameters": {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {}}},
            "different rotary positions",
        ),
    ],
)
def test_positions_that_cannot_be_are_one_sentence(fields, says, tmp_path):
    raw = PUBLISHED["llama-3.1-8b eagle3"]["config"] | {"head_dim": WIDTH} | fields
    with pytest.raises(UserError, match=says) as error:
        read(tmp_path, "eagle3", raw)
    assert str(tmp_path) in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("name", WITH_ROPE)
def test_null_and_whole_floats_mean_what_they_mean_elsewhere(name, tmp_path):
    """A field that is null is not there, a count may be spelt 4096.0, others do not matter."""
    row = PUBLISHED[name]
    config = read(tmp_path, row["kind"], row["config"])

    def spelt(value):
        if isinstance(value, dict):
            return {n: spelt(v) for n, v in value.items()} | {"of_a_later_version": {"x": None}}
        if isinstance(value, list):
            return [spelt(v) for v in value]
        return float(value) if type(value) is int else value

    raw = spelt(row["config"]) | {"attention_bias": row["config"].get("attention_bias") or None}
    assert read(tmp_path, row["kind"], raw | {"num_anchors": 3072, "num_experts": 896}) == config


def test_plain_keeps_what_is_no_whole_number():
    found = plain({"a": [1.5, 2.0, True, None, "3.0"], "b": None})
    assert found == {"a": [1.5, 2, True, None, "3.0"]} and type(found["a"][1]) is int


def test_a_pair_is_checked_member_by_member():
    """It was once checked as if all members had the first one's type."""
    check_config(Rope(1e6, (("factor", 4.0), ("rope_type", "yarn"))))
    for wrong in ((("factor",),), ((4.0, "factor"),), ("factor",)):
        with pytest.raises(ValueError, match="scaling cannot be"):
            check_config(Rope(1e6, wrong))  # type: ignore[arg-type]


# ── a real run of every kind ─────────────────────────────────────────────────────────────────────

# Folders with scaled positions, and their kind where it is another word.
KINDS = {"drafter": "dflash", "hydra_plus": "hydra"}
RUN = ("drafter", "treeflash", "dspark", "dflash2", "dart", "eagle2", "eagle3", "peagle", "sps",
       "hydra_plus")  # fmt: skip
SPELT = {
    "older": {"rope_scaling": LLAMA3, "rope_theta": 500000.0, "rope_parameters": None},
    "newer": {"rope_parameters": YARN | {"rope_type": "yarn", "rope_theta": 1e6}},
}


@pytest.fixture(scope="module", params=SPELT)
def scaled(request, tmp_path_factory):
    """A target and drafters, all with scaled positions, and the target's plain text."""
    folder = tmp_path_factory.mktemp(request.param)
    save_toys(folder)
    heads = toys.hydra_plus_drafter(dtype=torch.float32, vocabulary=BYTES).model
    hydra.FORM.save_model(heads, folder / "hydra_plus")
    for file in folder.glob("*/config.json"):
        raw = json.loads(file.read_text())
        file.write_text(json.dumps(raw | SPELT[request.param]))
    engine = Engine(str(folder / "target"), "cpu")
    return folder, new_tokens(list(engine.start(RunRequest("hi", method="ar", max_new_tokens=12))))


@pytest.mark.parametrize("name", RUN)
def test_a_drafter_with_scaled_positions_runs(name, scaled):
    (folder, text), kind = scaled, KINDS.get(name, name)
    engine = Engine(str(folder / "target"), "cpu", str(folder / name))
    method = f"{kind}+chain" if kind == "dart" else kind
    engine.check(method)
    run = engine.start(RunRequest("hi", method=method, budget=9, max_new_tokens=12))
    assert new_tokens(list(run)) == text
    if kind != "sps":  # transformers' own
        model = engine.load_drafter(choose(method)).model
        assert model.config.rope.scaling
