"""DSpark and DFlash 2 against the methods recomputed plainly, and their published files."""

import json
import math
from operator import mul

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from core.drafting.builders import Chain, SampledChain, best_first
from core.errors import UserError
from core.methods.dflash import CONFIDENCE
from core.methods.dflash2.model import FORM as DFLASH2
from core.methods.dspark import DSparkOptions
from core.methods.dspark.drafter import load
from core.methods.dspark.model import FORM as DSPARK
from core.models.layers import Rope
from core.rounds.draft import MARGINAL
from core.rounds.round import Sampling
from tests import toys
from tests.test_dflash import assert_close, log_q, numbers, written_out

KINDS = {"dspark": toys.dspark_drafter, "dflash2": toys.dflash2_drafter,
         "xpress": toys.xpress_drafter, "domino": toys.domino_drafter}  # fmt: skip
SOME = list(range(0, 48, 2))


NEIGHBOURS = Rope(500.0, neighbours=True)

# ── the methods, plainly ─────────────────────────────────────────────────────────────────────────


class Slow:
    """One block after a context of features [T, F·h], every number from the weights themselves."""

    def __init__(self, drafter, features, root):
        self.config, self.w = drafter.model.config, drafter.model.state_dict()
        ids = [root, *[47] * (self.config.block_size - 1)]
        owner = toys.model()
        block = owner.get_input_embeddings().weight[torch.tensor(ids)].clone()
        if self.config.mask_embedding:
            block[1:] = self.w["mask_embedding"]
        self.block = rows = written_out(self.config, self.w, features, block)
        self.rows = rows[len(rows) - drafter.max_depth :]
        self.logits = self.rows @ owner.get_output_embeddings().weight.T
        self.embedding = owner.get_input_embeddings().weight
        self.covered = drafter.covered and drafter.covered.ids
        self.temperature = drafter.temperature

    def plain(self, depth):
        return self.scored(self.logits[depth], 0)

    def scored(self, logits, bias):
        """log q [V] of a row's logits over all tokens and a bias over the covered ones."""
        if self.covered is None:
            return ((logits + bias) / self.temperature).log_softmax(-1)
        found = torch.full_like(logits, -math.inf)
        part = (logits[self.covered] + bias) / self.temperature
        found[self.covered] = part.log_softmax(-1)
        return found

    def xpress(self, depth, path):
        """``path`` begins with the token before the root."""
        w = {n.removeprefix("refiner_head."): t for n, t in self.w.items()}
        first = len(self.block) - len(self.rows)  # the row that predicts the first token
        known, row = path if first else path[1:], depth + first
        mean = w["down_g.weight"] @ (sum(self.block) / len(self.block))
        joined = [
            w["in_proj.weight"] @ torch.cat(
                [w["down_h.weight"] @ self.block[j], mean, w["token_embed.weight"][known[j]]]
            )
            for j in range(row + 1)
        ]  # fmt: skip
        x = joined[row] + sum(w["mix_l"][:, row, j] * joined[j] for j in range(row + 1))
        gate = w["mlp_gate.weight"] @ x
        inner = gate / (1 + (-gate).exp()) * (w["mlp_up.weight"] @ x)
        x = x + w["mlp_down.weight"] @ inner
        return self.scored(self.logits[depth], w["readout.weight"] @ x)

    def domino(self, depth, path):
        if depth < self.config.pure_draft_prefix_len:
            return self.plain(depth)
        inputs, own = (self.w[f"prefix_gru.weight_{n}_l0"] for n in ("ih", "hh"))
        state = torch.zeros(own.shape[1], dtype=own.dtype)
        for token in path[1 : depth + 2]:  # from the root on
            a, b = (inputs @ self.embedding[token]).chunk(3), (own @ state).chunk(3)
            reset, keep = (1 / (1 + (-(a[i] + b[i])).exp()) for i in (0, 1))
            state = (1 - keep) * torch.tanh(a[2] + reset * b[2]) + keep * state
        x = self.w["embed_proj.0.weight"] @ torch.cat([self.rows[depth], state])
        own = self.w["embed_proj.2.weight"] @ (x / (1 + (-x).exp()))
        return self.scored(self.logits[depth], own)

    def dspark(self, depth, path):
        before = path[depth + 1]
        known = self.w["markov_head.markov_w1.weight"][before]
        if self.config.markov_head_type == "rnn":
            weight, own = (self.w[f"markov_head.joint_proj.{n}"] for n in ("weight", "bias"))
            state = torch.zeros_like(known)
            for at, token in enumerate(path[1 : depth + 2]):
                one = self.w["markov_head.markov_w1.weight"][token]
                x = weight @ torch.cat([state, one, self.rows[at]]) + own
                keep, new, known = x.chunk(3)
                state = keep.sigmoid() * state + (-keep).sigmoid() * new.tanh()
            known = known.tanh()
        if self.config.markov_head_type == "gated":
            weight, own = (self.w[f"markov_head.gate_proj.{n}"] for n in ("weight", "bias"))
            x = [*self.rows[depth], *known]
            known = torch.stack(
                [
                    k / (1 + (-sum(map(mul, row, x)) - c).exp())
                    for k, row, c in zip(known, weight, own, strict=True)
                ]
            )
        bias = [known @ row for row in self.w["markov_head.markov_w2.weight"]]
        return self.scored(self.logits[depth], torch.stack(bias))

    def confidence(self, depth, before):
        parts = [self.rows[depth]]
        if self.config.confidence_head_with_markov:
            parts.append(self.w["markov_head.markov_w1.weight"][before])
        weight, bias = (self.w[f"confidence_head.proj.{n}"] for n in ("weight", "bias"))
        return 1 / (1 + math.exp(-float(weight[0] @ torch.cat(parts) + bias[0])))

    def dflash2(self, depth, path):
        before = path[depth + 1]
        w = {n.removeprefix("candidate_selector."): t for n, t in self.w.items()}
        best = self.logits[depth].argsort(descending=True)[: self.config.selector_top_k]
        gate = w["predecessor_codebook"][before] * (
            w["hidden_projection.weight"] @ self.rows[depth]
        )
        found = torch.full_like(self.logits[depth], -math.inf)
        scores = [self.logits[depth, b] + gate @ w["successor_codebook"][b] for b in best]
        found[best] = (torch.stack(scores) / self.temperature).log_softmax(-1)
        return found


CHANGES = [
    ("dspark", {}),
    ("dspark", {"sample_from_anchor": False, "confidence_head_with_markov": False}),
    ("dspark", {"sliding": (True, False), "window": 5}),
    ("dspark", {"markov_head_type": "gated"}),
    ("dspark", {"markov_head_type": "rnn"}),
    ("dspark", {"of_root": True, "window": 3, "sliding": (True, False), "causal": False}),
    ("xpress", {}),
    ("xpress", {"sample_from_anchor": True, "ids": SOME, "logit_scale": 0.25}),
    ("domino", {"pure_draft_prefix_len": 1, "attention_sink_bias": True, "rope": NEIGHBOURS}),
    ("domino", {"sample_from_anchor": True, "attention_value_scale": 0.5, "mask_embedding": True}),
    ("dflash2", {}),
    ("dflash2", {"temperature": 0.5, "conv_kernel_size": 3, "conv_group_size": 16}),
    ("dflash2", {"sliding": (False, True), "window": 2048, "causal": None, "selector_top_k": 48}),
]


@pytest.mark.parametrize(("kind", "changes"), CHANGES)
@pytest.mark.parametrize("builder", [Chain(), best_first])
def test_every_drafted_nodes_notes_are_the_methods(kind, changes, builder):
    drafter, features, root = KINDS[kind](**changes), numbers(1, 15, 64), 7
    root_predicts = changes.get("sample_from_anchor", kind == "dspark")
    assert drafter.max_depth == (8 if root_predicts else 7)
    drafter.reset(40)
    drafter.extend([3] * 15, features)
    slow, draft = Slow(drafter, features, root), builder(drafter.begin(root, 16), [root], 20)
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
        drafts.append(builder(drafter.begin(root, 16), [*text, root], 8))
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


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
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


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_confidence_head_the_note_is_empty(kind):
    more = {"enable_confidence_head": False} if kind == "dspark" else {}
    found = toys.run(toys.tree(KINDS[kind](**more)), 12)
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
