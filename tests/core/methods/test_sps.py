"""A draft language model: what it says of each node, its cache, and drawing with the target."""

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from analysis.measures.probe import observe
from app.cli import main
from core.decoding.decode import Decoder, decode
from core.decoding.engine import Engine
from core.decoding.request import RunRequest, Settings
from core.drafting.builders import Chain, OptTree, SampledChain, best_first
from core.drafting.session import FactorisedSession
from core.errors import UserError
from core.learning.shards import Document
from core.learning.student import TrainingRun
from core.methods.mtp.config import MtpConfig
from core.methods.registry import choose, find_method
from core.methods.sps import SpsTrainingOptions
from core.methods.sps.model import (
    FORM,
    DraftAdapter,
    DraftConfig,
    first_layers,
    load_adapter,
    save_adapter,
)
from core.methods.sps.training import TRAINING
from core.rounds.causes import Cause
from core.rounds.draft import NOT_ASKED
from core.rounds.round import Sampling
from core.train.fit import Fit
from core.train.options import FitSettings
from core.verification.rules import BlockVerification, SpeculativeSampling, TargetTokens
from tests.helpers import slow_methods, toys
from tests.helpers.toys import HOT, PROMPT, plain, run

COUPLED = SampledChain(coupled=True)
BUILDERS = {"coupled": COUPLED, "chain": Chain(), "best-first": best_first, "opt-tree": OptTree()}


@pytest.mark.parametrize("sampling", [toys.GREEDY, HOT], ids=["greedy", "hot"])
@pytest.mark.parametrize("name", BUILDERS)
def test_every_node_has_the_q_of_a_fresh_forward_along_its_path(name, sampling):
    """In every round, so what the cache keeps of accepted nodes is right, gaps included."""
    settings, text, gaps = Settings(11, 40, sampling), list(PROMPT), 0
    method = Decoder("sps", toys.sps_drafter(), BUILDERS[name])
    for record in decode(toys.target(layers=()), method, PROMPT, settings, observe):
        draft, known = record.draft, text[: record.position]
        for row in range(1, len(draft)):
            path = [*known, *draft.tokens[list(draft.path(row))].tolist()]
            expected = slow_methods.fresh(*path[:-1])[-1, path[-1]]
            assert draft.log_q[row] == pytest.approx(float(expected), abs=1e-4)
        text += [int(draft.tokens[0]), *record.committed] if record.index == 0 else record.committed
        gaps += record.verdict.path != tuple(range(len(record.verdict.path)))
        assert record.probe is not None and len(record.probe.tvd) == min(record.accepted + 1, 5)
    assert gaps or "first" not in name
    assert tuple(text[len(PROMPT) :]) == plain(40, sampling)


def test_the_cache_holds_the_committed_context_and_nothing_else():
    drafter, text = toys.sps_drafter(), [*PROMPT]
    drafter.reset(300)
    drafter.extend(text, None)
    rng = np.random.default_rng(0)
    for turn in range(8):
        root = int(rng.integers(48))
        draft = best_first(drafter.begin(root, 9), [root], 9)
        row = int(rng.integers(len(draft)))
        tokens = draft.tokens[list(draft.path(row))].tolist()
        tokens += [5] * (turn % 2)  # a token that nobody drafted
        drafter.extend(tokens, None)
        text += tokens
    drafter.begin(3, 1)
    assert drafter.cache.length == len(text)
    keys = drafter.cache.layers[1].keys[:, :, : len(text)].clone()
    drafter.reset(300)
    drafter.extend(text, None)
    drafter.begin(3, 1)
    torch.testing.assert_close(drafter.cache.layers[1].keys[:, :, : len(text)], keys)


def test_a_cache_that_is_too_small_grows():
    one, two = toys.sps_drafter(), toys.sps_drafter()
    for drafter, room in ((one, 1), (two, 4000)):
        drafter.reset(room)
        drafter.extend(PROMPT * 30, None)
    drafts = [best_first(d.begin(3, 64), [3], 64) for d in (one, two)]
    assert one.cache.capacity < two.cache.capacity
    np.testing.assert_array_equal(drafts[0].tokens, drafts[1].tokens)


def test_a_draft_model_that_is_the_target_has_all_accepted():
    found = run(Decoder("m", toys.sps_drafter(noise=0), COUPLED), 61, HOT, 5)
    assert [r.accepted for r in found.rounds] == [5] * 10
    assert found.rounds[0].draft.proposal.after.tolist()[-1] < 0


def test_acceptance_counts_what_was_committed():
    found = run(Decoder("m", toys.sps_drafter(), COUPLED), 150, HOT, 5)
    lengths = [r.accepted + 1 for r in found.rounds]
    assert sum(lengths[:-1]) + len(found.rounds[-1].committed) == 149
    uncoupled = run(Decoder("m", toys.sps_drafter(), Chain()), 150, HOT, 5)
    assert len(found.rounds) < len(uncoupled.rounds), "drawing with the target's noise pays"


# ── drawing with the target's noise ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize("sharpness", [0.3, 1.0, 3.0])
def test_coupled_draws_agree_as_often_as_promised(sharpness):
    """With probability (1 − TV)/(1 + TV) at least, and oftener than independent draws, Σ p·q."""
    rng, sampling = torch.Generator().manual_seed(0), Sampling(1.0, seed=4)
    p = torch.randn(12, generator=rng) * 2
    q = p + sharpness * torch.randn(12, generator=rng)
    far = float((p.softmax(-1) - q.softmax(-1)).abs().sum() / 2)
    session = FactorisedSession.of(q.log_softmax(-1)[None], 12)
    builder, rule, count, agreed = COUPLED.for_run(sampling), TargetTokens(sampling), 4000, 0
    for position in range(count):
        draft = builder(session, [0] * position + [1], 1)
        agreed += rule.verify(draft, p.expand(2, -1), position).accepted
    assert agreed / count > (1 - far) / (1 + far) - 2 / count**0.5
    assert agreed / count > float(p.softmax(-1) @ q.softmax(-1)) + 0.02


def test_a_drawn_chain_says_what_it_drew_from():
    found = run(Decoder("m", toys.sps_drafter(), COUPLED), 60, HOT, 3)
    for record in found.rounds:
        if record.ends_inside:
            continue
        proposal = record.proposal
        assert proposal.after.tolist() == [0, 1, 2, NOT_ASKED] and proposal.max_depth == 5
        assert proposal.lists.ids[:, 0].tolist() == record.draft.tokens[1:].tolist()
        np.testing.assert_allclose(proposal.lists.log_q[:, 0], record.draft.log_q[1:], atol=1e-6)
        drawn = proposal.lists.ids[record.accepted] if record.accepted < 3 else ()
        unread = record.verdict.bonus in drawn
        expected = Cause.NOT_READ if unread else Cause.OUTSIDE
        assert record.stop_reason is (Cause.PRUNED if record.accepted == 3 else expected)


@pytest.mark.parametrize("rule", [SpeculativeSampling, BlockVerification])
@pytest.mark.parametrize("sampling", [toys.GREEDY, HOT])
def test_a_bonus_token_is_drawn_in_place_of_a_refused_one_where_it_is(rule, sampling):
    """Greedy rounds draw nothing, and where all is accepted nothing was refused."""
    builder, seen = SampledChain(block=rule is BlockVerification), set()
    for record in run(Decoder("m", toys.sps_drafter(), builder, rule), 60, sampling, 3).rounds:
        if record.ends_inside:
            continue
        refused = record.accepted < record.draft.nodes
        assert (record.verdict.bonus_token is None) == sampling.greedy
        again = refused and record.verdict.bonus == record.draft.tokens[record.accepted + 1]
        drawn = refused and not sampling.greedy and not again
        assert (record.stop_reason is Cause.REFUSED) == drawn
        seen.add(refused)
    assert seen == {True, False}


def test_the_classic_rule_is_an_option_of_the_builder():
    method = find_method("sps")
    assert method.rule_for(method.resolve({})) == ""
    assert method.rule_for(method.resolve({"classic": True})).endswith("SpeculativeSampling")
    assert method.rule_for(method.resolve({"block": True})).endswith("BlockVerification")
    other = find_method("dflash+sampled-chain")
    assert other.rule_for(other.resolve({"classic": True, "temperature": 1.0}))


# ── folders ──────────────────────────────────────────────────────────────────────────────────────


def engine(toys_folder, draft):
    return Engine(str(toys_folder / "target"), "cpu", draft)


def text_of(made, method, **more):
    return [
        t
        for r in made.start(RunRequest("hi", method, max_new_tokens=16, **more))
        for t in r.committed
    ]


def test_a_model_of_its_own_drafts_and_either_rule_is_used(toys_folder):
    made = engine(toys_folder, toys_folder / "sps")
    made.check("sps")
    assert text_of(made, "sps", temperature=1.0) == text_of(made, "ar", temperature=1.0)
    assert made.method("sps", {"classic": "yes"}).rule is SpeculativeSampling
    assert len(text_of(made, "sps", temperature=1.0, options=(("classic", True),))) == 15
    assert len(made.identity(choose("sps"), made.method("sps").drafter)["sha256"]) == 16


@pytest.mark.parametrize("rank", [0, 2])
def test_the_targets_first_layers_draft_with_what_was_trained(toys_folder, tmp_path, rank):
    parts = {"q_proj": (32, 32), "down_proj": (32, 48)}
    adapter = DraftAdapter(DraftConfig(2, rank, parts if rank else {}))
    for parameter in adapter.parameters():
        parameter.data = torch.randn(parameter.shape).bfloat16().float() * 0.25
    save_adapter(adapter, tmp_path)
    if not rank:
        (tmp_path / "model.safetensors").unlink(missing_ok=True)
    made = engine(toys_folder, tmp_path)
    made.check("sps")
    assert text_of(made, "sps") == text_of(made, "ar")
    target = toys._make("llama", 0, 257, "eager").float()
    target.model.layers = target.model.layers[:2]
    for layer, pairs in zip(target.model.layers, adapter.layers, strict=False):
        for part, pair in pairs.items():
            linear = getattr(layer.self_attn if part == "q_proj" else layer.mlp, part)
            linear.weight.data += (pair.b @ pair.a).detach()
    target.config.num_hidden_layers = 2
    torch.testing.assert_close(log_q(made), log_q_of(target), rtol=1e-3, atol=1e-3)

    out = tmp_path / "out"
    words = ["--model", str(toys_folder / "target"), "--drafter", str(tmp_path)]
    assert main(["model", "export", "--kind", "sps", "--out", str(out), *words]) == 0
    whole = engine(toys_folder, out)
    whole.check("sps")
    torch.testing.assert_close(
        log_q(whole), log_q_of(target.bfloat16().float()), rtol=1e-3, atol=1e-3
    )
    assert "_name_or_path" not in json.loads((out / "config.json").read_text())


def log_q_of(model):
    with torch.inference_mode():
        return model(torch.tensor([[1, 2, 3, 4, 9]])).logits[0, -2:].log_softmax(-1)


def log_q(made):
    drafter = made.method("sps").drafter
    drafter.reset(99)
    drafter.extend([1, 2, 3], None)
    return drafter.begin(4, 1).log_q([4, 9])


def test_a_whole_model_is_not_exported_again(toys_folder, tmp_path, capsys):
    words = ["--model", str(toys_folder / "target"), "--drafter", str(toys_folder / "sps")]
    assert main(["model", "export", "--kind", "sps", "--out", str(tmp_path / "out"), *words]) == 2
    assert "holds a whole model" in capsys.readouterr().err


def test_the_targets_own_layers_stay_as_they_are():
    adapter = DraftAdapter(DraftConfig(2, 2, {"q_proj": (32, 32)})).double()
    adapter.layers[0]["q_proj"].b.data += 1
    made = first_layers(toys.model(), adapter)
    assert len(made.model.layers) == 2 and len(toys.model().model.layers) == 4
    assert made.model.embed_tokens is toys.model().model.embed_tokens
    assert type(toys.model().model.layers[0].self_attn.q_proj) is torch.nn.Linear


def test_a_target_in_bfloat16_stays_as_it_is_in_training(tmp_path):
    """As on a GPU: what is learnt is float32 beside it."""
    target = toys._make("llama", 0, 257, "eager").bfloat16()
    before = {name: each.clone() for name, each in target.state_dict().items()}
    tokens = torch.randint(0, 257, (20,), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        top = target(tokens[None]).logits[0].float().log_softmax(-1).topk(4)
    text = Document(tokens.int(), 4, torch.zeros(20, 0), top.indices.int(), top.values.half(), ())
    corpus: Any = SimpleNamespace(train=[text], refresh=lambda: None)
    owner: Any = SimpleNamespace(model=target)
    options = SpsTrainingOptions(first=2, change=2)
    learner = TRAINING.student(TrainingRun(owner, tmp_path), options, corpus)
    fit = Fit(learner, corpus, FitSettings(1.0, sequences=1, anchors=3, top_k=4), tmp_path / "fit")
    assert next(fit.steps()).loss > 0
    learnt = learner.trained()
    assert {each.dtype for each in learnt.values()} == {torch.float32}
    assert any(each.any() for name, each in learnt.items() if name.endswith(".b"))
    after = target.state_dict()
    assert all(after[n].dtype == each.dtype for n, each in before.items())
    assert all(torch.equal(after[n], each) for n, each in before.items())


def test_what_ships_is_small_and_loads(tmp_path):
    adapter = DraftAdapter(DraftConfig(1, 4, {"q_proj": (32, 32)}))
    adapter.layers[0]["q_proj"].b.data.normal_()
    save_adapter(adapter, tmp_path, small=True)
    assert {t.dtype for t in load_file(tmp_path / "model.safetensors").values()} == {torch.int8}
    again = load_adapter(tmp_path, FORM.load_config(tmp_path))
    assert again.layers[0]["q_proj"].b.shape == (32, 4)


def bad_config(folder, **raw):
    (folder / "config.json").write_text(json.dumps({"format": "draftscope-first-layers"} | raw))


@pytest.mark.parametrize(
    "raw",
    [{}, {"layers": "x"}, {"layers": 3, "rank": -1}, {"layers": 1, "parts": {"head": [1, 2]}},
     {"layers": 1, "parts": 3}, {"layers": 1, "parts": {"q_proj": [1]}}],
)  # fmt: skip
def test_a_broken_note_is_one_sentence(raw, tmp_path):
    bad_config(tmp_path, **raw)
    with pytest.raises(UserError, match="sps checkpoint") as error:
        FORM.load_config(tmp_path)
    assert "\n" not in str(error.value)


def test_other_sizes_are_refused(toys_folder, tmp_path):
    bad_config(tmp_path, layers=9)
    with pytest.raises(UserError, match="4 layers, not 9"):
        engine(toys_folder, tmp_path).method("sps")
    with pytest.raises(UserError, match="no sps drafter ships"):
        engine(toys_folder, None).method("sps")


WRONG_SIZES = (
    {"rank": -1}, {"rank": True}, {"parts": {"x": (1, 1)}}, {"parts": {"q_proj": (32, -1)}},
)  # fmt: skip


@pytest.mark.parametrize("fields", [*WRONG_SIZES, {"layers": -1}, {"layers": 1.5}])
def test_the_sizes_of_a_change_are_whole_numbers_of_known_parts(fields):
    with pytest.raises(ValueError, match="whole numbers of known parts"):
        DraftConfig(**fields)
    if fields in WRONG_SIZES:  # an MTP head's change is told alike
        with pytest.raises(ValueError, match="whole numbers of known parts"):
            MtpConfig(8, 8, 1e-6, **fields)
