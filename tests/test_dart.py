"""The DART drafter against the method recomputed from scratch every round, and its checkpoints."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from analysis.probe import observe
from core.models import checkpoint
from core.methods.dart.drafter import (
    DartConfig,
    DartDrafter,
    DartModel,
    feature_layers,
    Head,
    load_checkpoint,
    save_model,
    save_official,
)
from core.models.layers import Rope
from core.errors import UserError
from tests import toys
from tests.test_dflash import norm, numbers, rotate
from tests.toys import PROMPT, run, tree

CLOSE = {"rtol": 2e-5, "atol": 2e-5}  # norms and rotary angles are computed in float32
TARGET_LAYERS = feature_layers(4)


# ── the method, plainly ──────────────────────────────────────────────────────────────────────────


def slow_rows(config, w, features, next_embeddings):
    """methods.md word by word: rows for the head from a whole prefix, one head and row at a time.

    features [n, 3h] of the prefix's tokens, next_embeddings [n, h] of the tokens behind them.
    """
    eps, width, masks = config.rms_norm_eps, config.head_dim, config.draft_length
    hidden, count = config.hidden_size, len(features)
    share = config.num_attention_heads // config.num_key_value_heads
    layer = {k.removeprefix("midlayer."): v for k, v in w.items()}
    x = features @ w["fc.weight"].T
    embedded = norm(next_embeddings, layer["input_layernorm.weight"], eps)
    prefix = torch.cat([embedded, norm(x, layer["hidden_norm.weight"], eps)], 1)
    inputs = torch.cat([prefix, layer["mask_rep"].repeat(masks, 1)])
    residual = torch.cat([x, layer["mask_rep"][:hidden].repeat(masks, 1)])
    rows = count + masks
    out = torch.zeros(rows, config.num_attention_heads, width, dtype=x.dtype)
    for head in range(config.num_attention_heads):
        at = slice(head * width, (head + 1) * width)
        kv = slice(head // share * width, (head // share + 1) * width)
        query = inputs @ layer["self_attn.q_proj.weight"][at].T
        key = inputs @ layer["self_attn.k_proj.weight"][kv].T
        value = inputs @ layer["self_attn.v_proj.weight"][kv].T
        query = torch.stack([rotate(q, i, config.rope) for i, q in enumerate(query)])
        key = torch.stack([rotate(k, i, config.rope) for i, k in enumerate(key)])
        for row in range(rows):  # strictly causal: a row sees itself and what stands before
            seen = slice(0, row + 1)
            weights = (query[row] @ key[seen].T / math.sqrt(width)).softmax(-1)
            out[row, head] = weights @ value[seen]
    x = residual + out.flatten(1) @ layer["self_attn.o_proj.weight"].T
    x = x[count - 1 :]
    normed = norm(x, layer["post_attention_layernorm.weight"], eps)
    gate = normed @ layer["mlp.gate_proj.weight"].T
    up = normed @ layer["mlp.up_proj.weight"].T
    x = x + (gate * gate.sigmoid() * up) @ layer["mlp.down_proj.weight"].T
    return norm(norm(x, w["norm.weight"], eps), w["norm.weight"], eps)  # twice, as released


def slow_log_q(drafter, tokens, root, features):
    """log q [L, V] in float64; what the head does not cover is impossible."""
    owner, head = toys.model(), drafter.head
    behind = torch.tensor([*tokens[1:], root])
    embedded = owner.get_input_embeddings().weight[behind]
    rows = slow_rows(drafter.model.config, drafter.model.state_dict(), features, embedded)
    log_q = (rows @ head.module.weight.T / drafter.temperature).log_softmax(-1)
    if head.ids is None:
        return log_q
    whole = torch.full((len(rows), toys.VOCABULARY), -torch.inf, dtype=log_q.dtype)
    whole[:, head.ids] = log_q
    return whole


def drafter_with(temperature=1.0, head=None, **changes):
    owner = toys.model()
    return DartDrafter(
        toys.dart_model(1, **changes),
        owner.get_input_embeddings(),
        head or Head(owner.get_output_embeddings()),
        TARGET_LAYERS,
        temperature,
    )


def log_q(proposal, depths):
    return proposal.along([0] * depths).double()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_key_value_heads": 4},
        {"num_key_value_heads": 1, "head_dim": 16},
        {"draft_length": 1},
        {"rope": Rope(500.0), "rms_norm_eps": 1e-1},
    ],
)
@pytest.mark.parametrize("count", [1, 2, 13])
def test_the_network_equals_the_method_written_out(changes, count):
    drafter = drafter_with(**changes)
    tokens, features = list(range(3, 3 + count)), numbers(2, count, 96)
    drafter.reset(30)
    drafter.extend(tokens, features)
    expected = slow_log_q(drafter, tokens, 7, features)
    found = log_q(drafter.propose(7, 16), drafter.depths)
    assert found.shape == (changes.get("draft_length", 6) + 1, toys.VOCABULARY)
    torch.testing.assert_close(found, expected, **CLOSE)


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_the_temperature_divides_the_logits(temperature):
    drafter = drafter_with(temperature)
    drafter.reset(9)
    drafter.extend([3, 4], features := numbers(2, 2, 96))
    expected = slow_log_q(drafter, [3, 4], 7, features)
    torch.testing.assert_close(log_q(drafter.propose(7, 16), 7), expected, **CLOSE)


@pytest.mark.parametrize("seed", range(3))
def test_rounds_of_any_commits_equal_a_fresh_computation(seed):
    """Only new rows are projected, masks leave nothing behind, the last row waits for its root."""
    rng = np.random.default_rng(seed)
    head = toys.dart_head(range(5, 40), seed) if seed == 2 else None
    drafter, context, features = drafter_with(head=head), [], numbers(0, 0, 96)
    drafter.reset(80)
    root = 9
    for size in (int(rng.integers(1, 20)), *rng.integers(1, 8, 8).tolist()):
        fresh = [root, *rng.integers(0, 48, size - 1).tolist()]
        own = numbers(len(context) + 1, size, 96)
        cut = size // 2  # in one extension or two
        if cut:
            drafter.extend(fresh[:cut], own[:cut])
        drafter.extend(fresh[cut:], own[cut:])
        context, features = context + fresh, torch.cat([features, own])
        root = int(rng.integers(0, 48))
        expected = slow_log_q(drafter, context, root, features)
        torch.testing.assert_close(log_q(drafter.propose(root, 16), 7), expected, **CLOSE)


@pytest.mark.parametrize("head", [None, "reduced"])
@pytest.mark.parametrize("sampling", [toys.GREEDY, toys.HOT])
def test_in_the_loop_every_rounds_q_is_that_of_the_text_so_far(head, sampling):
    covered = sorted({*toys.plain(60, sampling)})
    assert len(covered) < 48
    drafter, seen = toys.dart_drafter(head=toys.dart_head(covered) if head else None), []

    def watch(x):
        seen.append(log_q(x.proposal, 7))
        return observe(x)

    found = run(tree(drafter), 50, sampling, 24, observe=watch)
    text = PROMPT + found.tokens
    assert any(r.accepted for r in found.rounds)
    for record, ours in list(zip(found.rounds, seen, strict=True))[:25]:
        tokens, root = text[: record.position], text[record.position]
        features = toys.full_forward(tokens, layers=TARGET_LAYERS).features
        expected = slow_log_q(drafter, tokens, root, features)
        torch.testing.assert_close(ours, expected, **CLOSE)
        if head:
            assert set(record.draft.tokens[1:].tolist()) <= set(covered)


def test_the_final_norm_twice_is_not_the_norm_once():
    """What a checkpoint loaded without it would disagree by."""
    model = toys.dart_model()
    rows = numbers(1, 4, 32)
    once, twice = model.norm(rows), model.norm(model.norm(rows))
    assert (once - twice).abs().max() > 0.05


def test_blocks_side_by_side_equal_blocks_alone():
    """Training runs every position of a text as an instance, in one pass."""
    model, features, embedded = toys.dart_model(1), numbers(3, 20, 96), numbers(4, 20, 32)
    ends = torch.tensor([0, 5, 6, 19])
    prefix = model.prefix(features, embedded)
    context = model.project(prefix, torch.arange(20))
    own = type(prefix)(prefix.inputs[ends], prefix.residual[ends])
    visible = torch.arange(20)[None] < ends[:, None]
    together = model(own, ends, context, visible)
    for index, end in enumerate(ends.tolist()):
        w = model.state_dict()
        alone = slow_rows(model.config, w, features[: end + 1], embedded[: end + 1])
        torch.testing.assert_close(together[index], alone, **CLOSE)


def test_a_mask_sees_no_later_mask():
    """Shifted prediction hangs on the masks before: the first depths do not know how many come."""
    features = numbers(2, 5, 96)
    found = []
    for length in (2, 6):
        drafter = drafter_with(draft_length=length)
        drafter.reset(9)
        drafter.extend([1, 2, 3, 4, 5], features)
        found.append(log_q(drafter.propose(7, 16), length + 1))
    torch.testing.assert_close(found[0], found[1][:3], **CLOSE)


@pytest.mark.parametrize(("width", "kept"), [(1, 25), (25, 25), (30, 30), (1024, 48)])
def test_candidates_are_sorted_and_as_many_as_the_search_reads(width, kept):
    drafter = drafter_with()
    drafter.reset(9)
    drafter.extend([1, 2], numbers(2, 2, 96))
    proposal = drafter.propose(3, width)
    ids, odds = proposal.candidates.ids, proposal.candidates.log_q
    assert ids.shape == odds.shape == (7, kept) and proposal.candidates.transitions is None
    assert (np.diff(odds) <= 0).all()
    picked = proposal.along([0] * 7).gather(1, torch.from_numpy(ids))
    np.testing.assert_array_equal(picked, odds)


def test_a_reduced_heads_candidates_are_the_targets_tokens():
    ids = [40, 3, 17, 44, 9]
    drafter = drafter_with(head=toys.dart_head(ids))
    drafter.reset(9)
    drafter.extend([1, 2], features := numbers(2, 2, 96))
    proposal = drafter.propose(3, 64)
    whole = proposal.along([0] * 7)
    assert proposal.candidates.ids.shape == (7, 5) and whole.shape == (7, toys.VOCABULARY)
    assert {tuple(sorted(row)) for row in proposal.candidates.ids.tolist()} == {(3, 9, 17, 40, 44)}
    torch.testing.assert_close(whole.exp().sum(-1), torch.ones(7))
    expected = slow_log_q(drafter, [1, 2], 3, features)
    for depth in range(7):
        odds = expected[depth, torch.from_numpy(proposal.candidates.ids[depth])]
        np.testing.assert_allclose(proposal.candidates.log_q[depth], odds, **CLOSE)


def test_reset_forgets_the_text_and_what_was_waiting():
    one, two = drafter_with(), drafter_with()
    one.reset(30)
    one.extend([1] * 9, numbers(8, 9, 96))
    one.propose(1, 16)
    one.extend([2] * 4, numbers(9, 4, 96))
    for drafter in (one, two):
        drafter.reset(30)
        drafter.extend([3, 4, 5], numbers(10, 3, 96))
    assert torch.equal(log_q(one.propose(2, 16), 7), log_q(two.propose(2, 16), 7))


@pytest.mark.parametrize(("layers", "expected"), [(36, (1, 17, 32)), (30, (1, 14, 26))])
def test_features_enter_layers_2_the_middle_and_the_third_last(layers, expected):
    """The state entering layer k is the one after layer k − 1, and index k of Hugging Face's."""
    assert feature_layers(layers) == expected
    assert [i + 1 for i in feature_layers(layers)] == [2, layers // 2, layers - 3]


# ── configs ──────────────────────────────────────────────────────────────────────────────────────

PUBLISHED = {
    "architectures": ["LlamaForCausalLMDart"], "model_type": "llama", "hidden_size": 2560,
    "intermediate_size": 9728, "num_attention_heads": 32, "num_key_value_heads": 8,
    "head_dim": 128, "num_hidden_layers": 1, "vocab_size": 151936, "draft_vocab_size": 32000,
    "draft_length": 7, "rms_norm_eps": 1e-06, "rope_theta": 1000000, "rope_scaling": None,
}  # fmt: skip


def test_a_published_config_is_read():
    config = DartConfig.from_json(PUBLISHED)
    assert config.depths == 8 and config.head_dim == 128 and config.rope == Rope(1e6)
    assert config.draft_vocab_size == 32000 and config.target_hidden_size == 2560
    assert DartModel(replace(config, hidden_size=32, intermediate_size=8)).fc.in_features == 7680


def test_a_config_survives_its_own_json():
    config = toys.dart_config(rope=Rope(123.0), draft_vocab_size=20)
    assert DartConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


@pytest.mark.parametrize("kind", [{"type": "dynamic", "factor": 2}, {"rope_type": "longrope"}])
def test_rotary_positions_that_hang_on_the_length_are_refused(kind):
    with pytest.raises(UserError, match="rotary"):
        DartConfig.from_json(PUBLISHED | {"rope_scaling": kind})
    assert DartConfig.from_json(PUBLISHED | {"rope_scaling": {"rope_type": "default"}}).depths == 8


@pytest.mark.parametrize(
    "kind", [{"type": "linear", "factor": 2}, {"rope_type": "linear", "factor": 2}]
)
def test_scaled_rotary_positions_are_read_and_survive(kind):
    config = DartConfig.from_json(PUBLISHED | {"rope_scaling": kind})
    assert dict(config.rope.scaling) == {"rope_type": "linear", "factor": 2}
    assert DartConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


# ── checkpoints ──────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def model():
    return toys.dart_model(5, dtype=torch.bfloat16)


def state_of(folder):
    return load_file(folder / "model.safetensors")


def rewrite(folder, change):
    state = state_of(folder)
    change(state)
    save_file(state, folder / "model.safetensors")


def load(folder):
    return load_checkpoint(folder, torch.bfloat16, "cpu")


def one_sentence(folder, words="."):
    with pytest.raises(UserError, match=words) as error:
        load(folder)
    text = str(error.value)
    assert "\n" not in text and 10 < len(text) < 500


def assert_same_weights(one, two):
    assert one.state_dict().keys() == two.state_dict().keys()
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, two.state_dict()[name]), name


@pytest.mark.parametrize("small", [False, True])
def test_the_network_alone_round_trips(model, tmp_path, small):
    save_model(model, tmp_path / "one", small)
    found = load(tmp_path / "one")
    assert found.head is None and found.ids is None
    assert found.model.config == model.config and not found.model.training
    save_model(found.model, tmp_path / "two")
    assert_same_weights(load(tmp_path / "two").model, found.model)
    if not small:
        assert_same_weights(found.model, model)


def test_the_official_form_has_the_published_names_and_loads(model, tmp_path):
    head, embedding = numbers(1, 48, 32).bfloat16(), numbers(2, 48, 32).bfloat16()
    save_official(model, head, embedding, tmp_path)
    state = state_of(tmp_path)
    layer = {
        "mask_rep", *(f"self_attn.{p}_proj.weight" for p in "qkvo"),
        *(f"mlp.{p}_proj.weight" for p in ("gate", "up", "down")),
        "hidden_norm.weight", "input_layernorm.weight", "post_attention_layernorm.weight",
    }  # fmt: skip
    own = {"fc.weight", "norm.weight", "lm_head.weight", "embed_tokens.weight", "d2t", "t2d"}
    assert set(state) == own | {f"midlayer.{name}" for name in layer}
    assert state["d2t"].dtype == torch.int64 and not state["d2t"].any()
    assert state["t2d"].dtype == torch.bool and state["t2d"].all()
    assert torch.equal(state["embed_tokens.weight"], embedding)
    assert state["midlayer.self_attn.q_proj.weight"].shape == (32, 64)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLMDart"] and config["draft_length"] == 6
    found = load(tmp_path)
    assert torch.equal(found.head, head) and found.ids is None
    assert_same_weights(found.model, model)


def test_only_a_whole_head_can_be_written_officially(model, tmp_path):
    with pytest.raises(UserError, match="vocabulary"):
        save_official(model, numbers(1, 20, 32), numbers(2, 48, 32), tmp_path)


def reduced(folder, ids, **maps):
    """An official checkpoint whose head covers some tokens only."""
    model = toys.dart_model(5, torch.bfloat16, draft_vocab_size=len(ids))
    ids = torch.tensor(ids)
    covered = torch.zeros(48, dtype=torch.bool)
    covered[ids] = True
    extra = {
        "lm_head.weight": numbers(1, len(ids), 32), "embed_tokens.weight": numbers(2, 48, 32),
        "d2t": ids - torch.arange(len(ids)), "t2d": covered,
    }  # fmt: skip
    state = {**model.state_dict(), **{k: v for k, v in (extra | maps).items() if v is not None}}
    checkpoint.write(folder, model.config.to_json(), state, False)


@pytest.mark.parametrize("ids", [[3, 5, 6, 30, 47], [40, 3, 17], list(range(20))])
def test_a_reduced_heads_rows_are_told_by_d2t(tmp_path, ids):
    reduced(tmp_path, ids)
    found = load(tmp_path)
    assert found.head.shape == (len(ids), 32) and found.ids.tolist() == ids


def test_a_reduced_head_of_the_first_tokens_needs_no_map(tmp_path):
    """All shifts are zero then, but the head still covers a part of the vocabulary only."""
    reduced(tmp_path, list(range(20)), d2t=None)
    assert load(tmp_path).ids.tolist() == list(range(20))


def test_a_reduced_checkpoint_drafts_and_is_probed(tmp_path):
    for ids in ([3, 5, 6, 30, 47, 11, 22], list(range(20))):
        reduced(tmp_path, ids)
        found = load_checkpoint(tmp_path, torch.float64, "cpu")
        module = torch.nn.Linear(32, len(ids), bias=False)
        module.weight = torch.nn.Parameter(found.head, requires_grad=False)
        drafter = DartDrafter(
            found.model, toys.model().get_input_embeddings(), Head(module, found.ids), TARGET_LAYERS
        )
        rounds = run(tree(drafter), 20, budget=9, observe=observe)
        assert rounds.tokens == toys.plain(20)
        assert all(set(r.draft.tokens[1:].tolist()) <= set(ids) for r in rounds.rounds)
        assert all(np.isfinite(r.probe.tvd).all() for r in rounds.rounds)


@pytest.mark.parametrize(
    ("d2t", "words"),
    [
        (torch.tensor([0, 50, 0]), "vocabulary"),
        (torch.tensor([-1, 0, 0]), "vocabulary"),
        (torch.tensor([0, 3]), "d2t"),
        (torch.zeros(3, 1, dtype=torch.int64), "d2t"),
        (torch.tensor([0.5, 1.0, 2.0]), "d2t"),
        (torch.tensor(4), "d2t"),
    ],
)
def test_a_map_that_does_not_fit_is_one_sentence(tmp_path, d2t, words):
    reduced(tmp_path, [3, 5, 6], d2t=d2t)
    one_sentence(tmp_path, words)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: s.pop("midlayer.mask_rep"), r"midlayer\.mask_rep.*missing"),
        (lambda s: s.pop("fc.weight"), r"fc\.weight.*missing"),
        (lambda s: s.update({"midlayer.mask_rep": torch.zeros(32)}), r"\(32,\).*\(64,\)"),
        (lambda s: s.update({"midlayer.self_attn.q_norm.weight": torch.zeros(8)}), r"q_norm"),
        (lambda s: s.update({"lm_head.weight": torch.zeros(48, 31)}), r"lm_head\.weight"),
        (lambda s: s.update({"lm_head.weight": torch.zeros(47, 32)}), r"lm_head\.weight"),
    ],
)
def test_a_tensor_that_is_missing_surplus_or_misshapen_is_named(model, tmp_path, change, words):
    save_model(model, tmp_path)
    rewrite(tmp_path, change)
    one_sentence(tmp_path, words)


@pytest.mark.parametrize(
    "changes",
    [
        {"rope_scaling": 3}, {"rope_parameters": [1]}, {"hidden_size": "x"},
        {"hidden_size": None}, {"draft_length": "many"}, {"num_attention_heads": 0, "head_dim": 0},
    ],
)  # fmt: skip
def test_a_config_that_cannot_be_is_one_sentence(model, tmp_path, changes):
    save_model(model, tmp_path)
    raw = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(raw | changes))
    one_sentence(tmp_path)


@pytest.mark.parametrize("field", ["hidden_size", "draft_length", "vocab_size"])
def test_a_missing_config_field_is_named(model, tmp_path, field):
    save_model(model, tmp_path)
    raw = json.loads((tmp_path / "config.json").read_text())
    del raw[field]
    (tmp_path / "config.json").write_text(json.dumps(raw))
    one_sentence(tmp_path, field)


def test_asking_twice_changes_nothing():
    """A root is not committed by being asked about: another may be asked about next."""
    once, often = toys.dart_drafter(), toys.dart_drafter()
    target = toys.target(layers=once.layers)
    prefilled = target.prefill([3, 1, 4, 1, 5], 40)
    for drafter in (once, often):
        drafter.reset(60)
        drafter.extend([3, 1, 4, 1, 5], prefilled.features)
    for other in (7, 2, 9):
        often.propose(other, 8)
    expected, found = once.propose(6, 8), often.propose(6, 8)
    np.testing.assert_allclose(expected.along([6, 1]), found.along([6, 1]), atol=1e-6)
    with pytest.raises(AssertionError):
        wrong = often.propose(2, 8)
        np.testing.assert_allclose(expected.along([6, 1]), wrong.along([6, 1]), atol=1e-3)
