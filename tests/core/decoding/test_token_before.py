"""DSpark and DFlash 2 against the methods recomputed plainly, and their published files."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from core.drafting.builders import Chain, SampledChain, best_first
from core.drafting.session import WrappedSession
from core.errors import UserError
from core.methods.dflash import CONFIDENCE
from core.methods.dflash2.model import FORM as DFLASH2
from core.methods.dspark import DSparkOptions
from core.methods.dspark.drafter import load
from core.methods.dspark.model import FORM as DSPARK
from core.rounds.draft import MARGINAL
from core.rounds.round import Sampling
from tests.helpers import slow_methods, toys
from tests.helpers.drafter_reference import assert_close, log_q, numbers
from tests.helpers.slow_methods import BEFORE


@pytest.mark.parametrize(("kind", "changes"), slow_methods.CHANGES)
@pytest.mark.parametrize("builder", [Chain(), best_first])
def test_every_drafted_nodes_notes_are_the_methods(kind, changes, builder):
    drafter, features, root = BEFORE[kind](**changes), numbers(1, 15, 64), 7
    root_predicts = changes.get("sample_from_anchor", kind == "dspark")
    assert drafter.max_depth == (8 if root_predicts else 7)
    drafter.reset(40)
    drafter.extend([3] * 15, features)
    slow, draft = (
        slow_methods.BlockBefore(drafter, features, root),
        builder(drafter.begin(root, 16), [root], 20),
    )
    for row in range(1, len(draft)):
        depth, before = int(draft.depths[row]) - 1, int(draft.tokens[draft.parents[row]])
        plain = slow.plain(depth)[int(draft.tokens[row])]
        assert_close(draft.notes[MARGINAL][row], plain, 2e-5)
        if kind == "dspark":
            sure = slow.confidence(depth, before)
            assert_close(np.exp(draft.notes[CONFIDENCE][row]), sure, 2e-5)


def test_nothing_is_drafted_where_the_confidence_is_too_small():
    features, root = numbers(1, 6, 64), 9
    whole, cut = toys.dspark_drafter(), toys.dspark_drafter(confidence=0.68)
    drafts = []
    for drafter in (whole, cut):
        drafter.reset(40)
        drafter.extend([0] * 6, features)
        drafts.append(Chain()(drafter.begin(root, 16), [root], 8))
    sure = np.exp(drafts[0].notes[CONFIDENCE][1:])
    assert sure[0] > 0.68 > sure.min(), "or the test says nothing"
    assert drafts[1].nodes == int((sure < 0.68).argmax()) < drafts[0].nodes
    assert drafts[1].tokens.tolist() == drafts[0].tokens.tolist()[: len(drafts[1])]


@pytest.mark.parametrize("least", [0.68, 0.9999])
def test_a_drawn_chain_ends_where_the_confidence_is_too_small(least):
    """It ends by what was drawn before alone, so that the text stays the target's."""
    features, root, text = numbers(1, 6, 64), 9, [0] * 6
    builder = SampledChain(Sampling(1.0, seed=3))
    drafts = []
    for drafter in (whole := toys.dspark_drafter(), toys.dspark_drafter(confidence=least)):
        drafter.reset(40)
        drafter.extend(text, features)
        drafts.append(builder(WrappedSession(drafter.begin(root, 16)), [*text, root], 8))
    session = whole.begin(root, 16)
    path, cut = drafts[0].tokens.tolist(), drafts[1].tokens.tolist()
    sure = [
        float(session._block.confidence(*session._places_of([path[: n + 1]])).exp())
        for n in range(drafts[0].nodes)
    ]
    low = [n for n, each in enumerate(sure) if each < least]
    assert low and cut == path[: low[0] + 1]
    assert (drafts[1].nodes == 0) == (least > 0.99)


def test_a_confidence_that_nothing_tells_is_refused(tmp_path):
    model = toys.dspark_model(dtype=torch.float32, enable_confidence_head=False)
    DSPARK.save_model(model, tmp_path)
    owner = toys.model(dtype=torch.float32)
    language = toys.SimpleNamespace(
        name="toy", model=owner, device=torch.device("cpu"),
        embedding=owner.get_input_embeddings(), head=owner.get_output_embeddings(),
    )  # fmt: skip
    assert load(language, tmp_path, DSparkOptions()).max_depth == 8
    with pytest.raises(UserError, match="no confidence head"):
        load(language, tmp_path, DSparkOptions(0.1))


@pytest.mark.parametrize("make", BEFORE.values(), ids=BEFORE)
def test_a_padded_pass_drafts_as_the_plain_one(make):
    plain, padded = make(), make()
    padded._padded = True
    for drafter in (plain, padded):
        drafter.reset(100)
    for count in (4, 1, 7):
        features = numbers(count, count, 64)
        for drafter in (plain, padded):
            drafter.extend([0] * count, features)
        one, two = (log_q(drafter.begin(5, 16), [5, 4, 3]) for drafter in (plain, padded))
        assert padded._pass is not None
        assert_close(one.exp(), two.exp(), 2e-5)


@pytest.mark.parametrize("kind", BEFORE)
def test_without_a_confidence_head_the_note_is_empty(kind):
    more = {"enable_confidence_head": False} if kind == "dspark" else {}
    found = toys.run(toys.tree(BEFORE[kind](**more)), 12)
    assert found.tokens == toys.plain(12)
    assert all(
        np.isnan(r.draft.notes.get(CONFIDENCE, np.full(1, np.nan))).all() for r in found.rounds
    )


# ── files ────────────────────────────────────────────────────────────────────────────────────────

QWEN3 = {
    "attention_bias": False,
    "head_dim": 8,
    "hidden_act": "silu",
    "hidden_size": 32,
    "intermediate_size": 40,
    "model_type": "qwen3",
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "num_target_layers": 4,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
    "tie_word_embeddings": False,
    "vocab_size": 48,
}
PUBLISHED = {  # by DeepSpec's and z-lab's reference code
    "dspark": QWEN3
    | {
        "architectures": ["Qwen3DSparkModel"],
        "block_size": 8,
        "confidence_head_with_markov": True,
        "enable_confidence_head": True,
        "layer_types": ["full_attention"] * 2,
        "markov_head_type": "vanilla",
        "markov_rank": 6,
        "mask_token_id": 47,
        "num_anchors": 512,
        "target_layer_ids": [0, 2],
    },
    "dflash2": QWEN3
    | {
        "architectures": ["DFlash2DraftModel"],
        "is_causal": False,
        "dflash_config": {
            "block_size": 8,
            "conv_group_size": 8,
            "conv_kernel_size": 2,
            "mask_token_id": 47,
            "selector_rank": 6,
            "selector_top_k": 5,
            "target_layer_ids": [0, 2],
        },
        "layer_types": ["sliding_attention"] * 2,
        "max_window_layers": 2,
        "sliding_window": 6,
        "use_sliding_window": True,
    },
}
WIDER = PUBLISHED["dflash2"]["dflash_config"] | {"conv_kernel_size": 3}
FORMS = {"dspark": DSPARK, "dflash2": DFLASH2}
MODELS = {"dspark": toys.dspark_model, "dflash2": toys.dflash2_model}
OWN = {
    "dspark": {"markov_head.markov_w1.weight": (48, 6), "markov_head.markov_w2.weight": (48, 6),
               "confidence_head.proj.weight": (1, 38), "confidence_head.proj.bias": (1,)},
    "dflash2": {"candidate_selector.predecessor_codebook": (48, 6),
                "candidate_selector.successor_codebook": (48, 6),
                "candidate_selector.hidden_projection.weight": (6, 32),
                "layers.1.attention_conv.base_kernel": (2, 2, 32),
                "layers.1.attention_conv.kernel_projection.weight": (16, 32),
                "layers.0.mlp_conv.base_kernel": (2, 2, 32)},
}  # fmt: skip


def published(folder, kind, fields=None):
    """A checkpoint in the published layout; its network."""
    model = MODELS[kind](dtype=torch.float32)
    state = dict(model.state_dict())
    if kind == "dspark":
        state |= {"embed_tokens.weight": numbers(1, 48, 32), "lm_head.weight": numbers(2, 48, 32)}
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(PUBLISHED[kind] | (fields or {})))
    save_file({n: t.contiguous() for n, t in state.items()}, folder / "model.safetensors")
    return model


@pytest.mark.parametrize("kind", FORMS)
def test_the_published_layout_is_read(tmp_path, kind):
    model = published(tmp_path, kind)
    stored = load_file(tmp_path / "model.safetensors")
    assert all(tuple(stored[name].shape) == shape for name, shape in OWN[kind].items())
    found = FORMS[kind].load_checkpoint(tmp_path, torch.float32, "cpu")
    assert found.model.config == model.config and found.head is None
    for name, tensor in model.state_dict().items():
        assert torch.equal(found.model.state_dict()[name], tensor), name
    FORMS[kind].save_model(found.model, tmp_path / "again")
    assert FORMS[kind].load_config(tmp_path / "again") == model.config


def test_the_published_layout_of_a_gated_head_is_read(tmp_path):
    model = toys.dspark_model(dtype=torch.float32, markov_head_type="gated")
    state = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    assert state["markov_head.gate_proj.weight"].shape == (6, 32 + 6)
    assert state["markov_head.gate_proj.bias"].shape == (6,)
    fields = PUBLISHED["dspark"] | {"markov_head_type": "gated"}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    save_file(state, tmp_path / "model.safetensors")
    found = DSPARK.load_model(tmp_path, torch.float32, "cpu")
    assert found.config == model.config
    assert all(torch.equal(found.state_dict()[name], state[name]) for name in state)


@pytest.mark.parametrize(
    ("kind", "fields", "words"),
    [
        ("dspark", {"markov_head_type": "gated"}, "gate_proj"),
        ("dspark", {"markov_head_type": "rnn"}, "joint_proj"),
        ("dspark", {"markov_head_type": "lstm"}, "lstm Markov head"),
        ("dspark", {"markov_rank": 0}, "rank 0"),
        ("dspark", {"enable_confidence_head": False}, "confidence_head"),
        ("dspark", {"hidden_size": None}, "DSpark"),
        ("dflash2", {"dflash_config": {"mask_token_id": 47}}, "no field 'selector_rank'"),
        ("dflash2", {"hidden_size": 36}, "conv_group_size"),
        ("dflash2", {"dflash_config": WIDER}, "base_kernel"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_checkpoint_is_one_sentence(tmp_path, kind, fields, words):
    published(tmp_path, kind, fields)
    with pytest.raises(UserError, match=words) as error:
        FORMS[kind].load_model(tmp_path, torch.float32, "cpu")
    assert "\n" not in str(error.value)
