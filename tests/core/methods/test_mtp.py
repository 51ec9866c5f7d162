"""MTP heads against transformers' own, their files and their training."""

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    DynamicCache,
    LlamaConfig,
    LlamaForCausalLM,
)
from transformers.cache_utils import MtpCache

from analysis.drafters.lint import lint
from core.drafting.builders import Chain
from core.errors import UserError
from core.learning.corpus import Blocks
from core.learning.shards import Document
from core.learning.student import TrainingRun
from core.methods.loading import check_checkpoint, load_drafter
from core.methods.mtp import DRAFTER, MtpOptions, MtpTrainingOptions, training
from core.methods.mtp import model as mtp
from core.methods.mtp.drafter import load
from core.methods.mtp.model import FORM, export, load_head
from core.methods.mtp.training import TRAINING, MtpStudent, fit_projection, new_head
from core.models import checkpoint
from core.models.hub import Source
from core.train.fit import Fit
from core.train.options import FitSettings
from tests.helpers.generated import generated, greedy
from tests.helpers.mtp_published import SHAPE, language, published, slow_log_q, states


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("family", ["glm4_moe", "deepseek_v3"])
@torch.no_grad()
def test_what_transformers_drafts_by_a_head_is_recorded(family, sampled, tmp_path, monkeypatch):
    """``generate(use_mtp=True)``: its text, and p and q of forwards that were written out."""
    main, oracle = published(family, tmp_path)
    # transformers knows a head's layer by the numbers of published sizes.
    monkeypatch.setattr(type(main), "_keys_to_ignore_on_load_unexpected", [r"model\.layers\.3\."])
    model = AutoModelForCausalLM.from_pretrained(
        tmp_path, dtype=torch.float64, attn_implementation="eager", experts_implementation="eager"
    ).eval()
    how = {"max_new_tokens": 24, "do_sample": sampled}
    trace, text = generated(model, tmp_path / "a.jsonl", use_mtp=True, **how)
    assert trace.header.method == "transformers MTP"
    if not sampled:
        assert text == greedy(model, 24)
    log_p = model(torch.tensor([text])).logits[0].float().log_softmax(-1)
    for record in trace.rounds:
        (root, token), at = record.draft.tokens.tolist(), record.position
        log_q = slow_log_q(main, oracle, text[:at], [root])
        assert record.draft.log_q[1] == pytest.approx(float(log_q[token]), abs=1e-4)
        assert record.target_probs.log_p[1] == pytest.approx(float(log_p[at, token]), abs=1e-4)
        tvd = (log_p[at].exp() - log_q.exp()).abs().sum() / 2
        assert record.probe.tvd[0] == pytest.approx(float(tvd), abs=1e-4)


@pytest.mark.parametrize("family", ["glm4_moe 3", "deepseek_v3 2"])
@torch.no_grad()
def test_a_chain_of_several_layers_is_what_transformers_drafts(family, tmp_path):
    """``MtpModel.forward``: every layer drafts one token, the one after it reads that."""
    main, oracle = published(family, tmp_path)
    drafter, text = load(language(main, tmp_path), None, MtpOptions(8)), [5, 9, 1, 30, 2, 2]
    drafter.reset(40)
    drafter.extend(text, states(main, text))
    draft = Chain()(drafter.begin(7, 8), [*text, 7], 8)
    assert drafter.max_depth == draft.nodes == len(oracle.layers)
    rows = torch.arange(1, len(text) + 1)[None]
    tokens, logits, _ = oracle(
        torch.tensor([[*text[1:], 7]]), states(main, text)[None], None, rows, MtpCache()
    )
    assert draft.tokens[1:].tolist() == tokens[0].tolist()
    expected = logits[0].log_softmax(-1).max(-1).values
    np.testing.assert_allclose(draft.log_q[1:], expected, atol=2e-5)


@torch.no_grad()
def test_other_layers_at_a_depth_or_other_states_in_them_draft_something_else(tmp_path):
    """The comparisons above would not let these through."""
    main, _ = published("glm4_moe 3", tmp_path)
    drafter = load(language(main, tmp_path), None, MtpOptions(4))
    text = torch.randint(48, (12,), generator=torch.Generator().manual_seed(2))
    own, hidden = drafter.heads, states(main, text.tolist())
    q = lambda: drafter.log_q_at(text, hidden, torch.tensor([5, 8]))  # noqa: E731
    right = q()
    for heads in ([own[0], own[2], own[1]], own[:1] * 3):
        drafter.heads = heads
        mutant = q()
        assert torch.equal(mutant[:, 0], right[:, 0])
        assert ((mutant - right)[:, 1:].abs().amax(-1) > 0.1).all()
    drafter.heads, drafter.chained = own, False
    assert ((q() - right)[:, 1:].abs().amax(-1) > 0.1).all()


def test_experts_may_lie_together_in_the_file(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
    main, _ = published("glm4_moe", tmp_path / "a")
    published("glm4_moe", tmp_path / "b", single_experts=False)
    heads = [load_head(language(main, None), tmp_path / n).state_dict() for n in "ab"]
    assert heads[0].keys() == heads[1].keys()
    assert all(torch.equal(heads[0][name], heads[1][name]) for name in heads[0])


WRONG = {
    "a count of zero": lambda raw, state: raw.update(mtp_num_hidden_layers=0),
    "two layers": lambda raw, state: raw.update(mtp_num_hidden_layers=2),
    "a tensor that is missing": lambda raw, state: state.pop("mtp.layers.0.mlp.up_proj.weight"),
    "a tensor of another layer": lambda raw, state: state.update(
        {"mtp.layers.0.mlp.extra.weight": torch.zeros(2)}
    ),
    "no head": lambda raw, state: [state.pop(n) for n in list(state) if n.startswith("mtp.")],
    "another width": lambda raw, state: state.update({"mtp.fc.weight": torch.zeros(32, 32)}),
}


@pytest.mark.parametrize("change", WRONG)
def test_a_wrong_file_is_refused_in_one_sentence(change, tmp_path):
    main, _ = published("qwen3", tmp_path)
    raw = json.loads((tmp_path / "config.json").read_text())
    state = load_file(tmp_path / "model.safetensors")
    WRONG[change](raw, state)
    (tmp_path / "config.json").write_text(json.dumps(raw))
    save_file(state, tmp_path / "model.safetensors")
    for action in (
        lambda: load(language(main, tmp_path), None, MtpOptions()),
        lambda: check_checkpoint("mtp", Source(str(tmp_path)), "toy", main.config),
    ):
        with pytest.raises(UserError) as error:
            action()
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("family", ["qwen3", "qwen3_5_text"])
def test_lint_looks_at_the_head_alone_and_reads_gains_as_the_target_s_class_does(family, tmp_path):
    main, _ = published(family, tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    small = torch.randn(32, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    state["mtp.norm.weight"] = 0.2 * small
    state["model.layers.0.mlp.up_proj.weight"][:2] = 0
    save_file(state, tmp_path / "model.safetensors")
    target: Any = language(main, tmp_path)
    target.vocabulary = 48

    def wrong():
        return [each.text for each in lint(mtp.FORM, tmp_path, target).remarks if each.wrong]

    gain = [text for text in wrong() if text.startswith("many gains of mtp.norm.weight are neg")]
    assert wrong() == gain and bool(gain) == (family == "qwen3")
    state["mtp.fc.weight"][:2] = 0
    save_file(state, tmp_path / "model.safetensors")
    assert wrong()[0].startswith("2 of 32 rows (0, 1) of mtp.fc.weight are near zero")


# ── training ─────────────────────────────────────────────────────────────────────────────────────

SEED = torch.Generator()


def trainable():
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**SHAPE)).eval()
    made = language(model, None)
    made.encode_chat = lambda text: [3, 4, 5, 6]
    return made


def student(owner, change, steps=4):
    head, rng = new_head(owner, change), torch.Generator().manual_seed(1)
    made = MtpStudent(head, owner.model, steps)
    with torch.no_grad():
        for parameter in made.trained().values():
            parameter += 0.05 * torch.randn(parameter.shape, generator=rng)
    return made


def test_a_new_heads_projection_is_the_least_squares_of_what_enters_the_last_layer(monkeypatch):
    """Against an independent solution: rows of weight 1 / their length, and rows for the ridge."""
    owner = trainable()
    head, tokens = new_head(owner, 3), torch.randint(0, 48, (4, 60), generator=SEED.manual_seed(5))
    with torch.no_grad():
        states = owner.model(tokens, output_hidden_states=True).hidden_states
    both = torch.cat([states[2], states[3]], -1)  # after the layers 1 and 2
    whole = [Document(t.int(), 4, f, None, None, (1, 2)) for t, f in zip(tokens, both, strict=True)]  # type: ignore[arg-type]
    start, embedding = head.eh_proj.weight.detach().clone(), owner.model.get_input_embeddings()
    monkeypatch.setattr(training, "RIDGE", 0.5)
    fit_projection(head, embedding.weight.detach(), whole, 2)
    with torch.no_grad():
        read = [head.enorm(embedding(tokens[:, 1:])), head.hnorm(states[3][:, :-1])]
    rows, wanted = torch.cat(read, -1).flatten(0, 1), states[2][:, 1:].flatten(0, 1)
    each = 1 / wanted.square().mean(-1, keepdim=True).sqrt()
    rows, wanted = (rows * each).double().numpy(), (wanted * each).double().numpy()
    ridge = np.sqrt(0.5 * np.square(rows).sum(0).mean() / len(rows)) * np.eye(rows.shape[1])
    expected = np.linalg.lstsq(
        np.concatenate([rows, ridge]), np.concatenate([wanted, ridge @ start.T.numpy()]), rcond=None
    )[0]
    np.testing.assert_allclose(head.eh_proj.weight.detach().T.numpy(), expected, atol=2e-4)
    apart = lambda weight: np.square(rows @ weight - wanted).sum()  # noqa: E731
    assert apart(expected) < 0.5 * apart(start.T.numpy())


@pytest.mark.parametrize("change", [0, 3])
def test_a_student_sees_what_the_drafter_computes(change, tmp_path):
    owner = trainable()
    learner = student(owner, change)
    learner.save(tmp_path)
    drafter = load_drafter(DRAFTER, owner, tmp_path, MtpOptions(4))
    tokens = torch.randint(0, 48, (20,), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        hidden = owner.model(tokens[None], output_hidden_states=True).hidden_states[-1][0]
    whole = Document(tokens.int(), 4, hidden, None, None, (2,))  # type: ignore[arg-type]
    anchors = torch.tensor([5, 9, 12])
    rows = learner.rows(Blocks(whole, anchors)).detach()
    expected = drafter.log_q_at(tokens, hidden, anchors)
    assert rows.shape == (3, 4, 32)
    torch.testing.assert_close(
        (rows @ learner.head_rows.T).log_softmax(-1), expected, atol=0.05, rtol=0
    )
    assert (
        set(learner.trained())
        == set(FORM.read_shapes(tmp_path))
        == set(checkpoint.shapes(FORM.outline(tmp_path)))
    )
    assert len(FORM.load_config(tmp_path).parts) == (7 if change else 0)


@pytest.mark.parametrize("again", [False, True])
def test_a_target_in_bfloat16_stays_as_it_is_in_training(again, tmp_path):
    """As on a GPU: the head learns in float32, on a copy of the last layer."""
    owner = trainable()
    owner.model.bfloat16()
    before = {name: each.clone() for name, each in owner.model.state_dict().items()}
    layers, count = (1, 2), 20
    rng = torch.Generator().manual_seed(2)
    tokens = torch.randint(0, 48, (count,), generator=rng)
    with torch.no_grad():
        states = owner.model(tokens[None], output_hidden_states=True).hidden_states
        top = owner.model(tokens[None]).logits[0].float().log_softmax(-1).topk(4)
    features = torch.cat([states[2][0], states[3][0]], -1).half()
    text = Document(tokens.int(), 4, features, top.indices.int(), top.values.half(), layers)
    corpus: Any = SimpleNamespace(train=[text], refresh=lambda: None)
    options = MtpTrainingOptions(steps=3, change=2)
    learner = TRAINING.student(TrainingRun(owner, tmp_path), options, corpus)
    if again:
        learner.save(tmp_path / "start")
        run = TrainingRun(owner, tmp_path, tmp_path / "start")
        learner = TRAINING.student(run, options, corpus)
    fit = Fit(learner, corpus, FitSettings(1.0, sequences=1, anchors=3, top_k=4), tmp_path / "fit")
    weights = {name: each.detach().clone() for name, each in learner.trained().items()}
    assert next(fit.steps()).loss > 0
    assert {p.dtype for p in learner.model.parameters()} == {torch.float32}
    assert any(not torch.equal(each, weights[n]) for n, each in learner.trained().items())
    after = owner.model.state_dict()
    assert all(after[n].dtype == each.dtype for n, each in before.items())
    assert all(torch.equal(after[n], each) for n, each in before.items())


@pytest.mark.parametrize("change", [0, 3])
def test_what_is_exported_in_qwens_layout_drafts_the_same(change, tmp_path):
    owner = trainable()
    student(owner, change).save(tmp_path / "ours")
    TRAINING.ship(tmp_path / "ours", tmp_path / "small")
    export(tmp_path / "small", tmp_path / "qwen", lambda: owner)
    state = load_file(tmp_path / "qwen" / "model.safetensors")
    assert {"mtp.fc.weight", "mtp.norm.weight", "mtp.layers.0.mlp.up_proj.weight"} <= set(state)
    heads = [load_head(owner, tmp_path / name) for name in ("small", "qwen")]
    rows, mask = torch.randn(4, 32), torch.zeros(4, 4)
    positions = torch.arange(4)
    with torch.no_grad():
        one, other = (h(rows, positions, mask, DynamicCache())[0] for h in heads)
    torch.testing.assert_close(one, other, atol=0.05, rtol=0)
