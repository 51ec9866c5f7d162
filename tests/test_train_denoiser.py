"""The denoiser as trained is the denoiser that decodes, and the states it learns are sound."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch

from app import cli
from core.diffusion.adapter import Adapter, AdapterConfig, load_adapter, merge
from core.diffusion.models import load_diffusion
from core.diffusion.target import BlockCausalTarget, Layout
from core.errors import UserError
from core.train.corpus import Blocks
from core.train.denoiser import BLOCK_SIZES, DenoiserStudent, MaskedBlocks, draw_states
from core.train.denoiser_report import judge
from core.train.shards import Document
from tests import toys
from tests.test_train_command import folder, words  # noqa: F401 (fixtures)

MASK, STOP = 5, 2
CONFIG = AdapterConfig("toy", MASK, True, "causal", 8, rank=3, alpha=3.0)


def document(last: int = STOP) -> Document:
    tokens = torch.randint(6, toys.VOCABULARY, (60,), generator=torch.Generator().manual_seed(1))
    tokens[-1] = last
    tops = torch.randint(0, toys.VOCABULARY, (60, 16), generator=torch.Generator().manual_seed(2))
    top_logp = torch.full((60, 16), -2.8)
    return Document(tokens.int(), 20, torch.empty(60, 0), tops.int(), top_logp, ())


def student() -> DenoiserStudent:
    made = DenoiserStudent(deepcopy(toys.model()), CONFIG, STOP)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in made.trained().values():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return made


def test_a_training_row_is_what_the_merged_denoiser_scores():
    text, made = document(), student()
    anchors = torch.tensor([22, 30, 41])
    masked = draw_states(3, 8, torch.Generator().manual_seed(4))
    tokens = text.tokens[anchors[:, None] + 1 + torch.arange(8)].long()
    with torch.inference_mode():
        learnt = made.rows(MaskedBlocks(text, anchors, tokens, masked)) @ made.head_rows.T
    model = deepcopy(toys.model())
    merge(model, Adapter(CONFIG, made.model.tensors()))
    target = BlockCausalTarget(model, MASK, Layout(shift=True, clean="causal"))
    for anchor, known, hidden, rows in zip(anchors.tolist(), tokens, masked, learnt, strict=True):
        target.begin(text.tokens[: anchor + 1].tolist(), 8, 8)
        state = torch.where(hidden, MASK, known).numpy()[None]
        scores = target.score(state, [np.arange(8)])[0]
        torch.testing.assert_close(rows.to(scores), scores, rtol=1e-4, atol=1e-4)


def test_training_goes_on_from_a_saved_adapter():
    made, fresh = student(), DenoiserStudent(deepcopy(toys.model()), CONFIG, STOP)
    config = replace(CONFIG, alpha=6.0)  # b counts twice
    fresh.model.load(Adapter(config, made.model.tensors()))
    for name, tensor in fresh.model.tensors().items():
        scale = 2.0 if name.endswith(".b") else 1.0
        assert torch.equal(tensor, made.model.tensors()[name] * scale), name
    missing = dict(list(made.model.tensors().items())[1:])
    with pytest.raises(UserError, match="another target"):
        fresh.model.load(Adapter(config, missing))


def test_outside_training_the_target_is_itself():
    plain, made = toys.model(), student()
    ids = document().tokens[None].long()
    torch.testing.assert_close(made.language_model(ids).logits, plain(ids).logits)


@pytest.mark.parametrize("size", BLOCK_SIZES)
def test_states_mask_something_and_are_of_every_kind(size):
    masked = draw_states(400, size, torch.Generator().manual_seed(size))
    assert masked.any(-1).all()
    left = (~masked).long().cumprod(-1).sum(-1)
    prefix = masked.sum(-1) == size - left
    assert 150 < prefix.sum() < 350  # a known left part and nothing else
    assert left.unique().numel() == size


def test_labels_are_the_target_before_unknowns_and_the_token_before_knowns():
    made, text = student(), document()
    whole = Blocks(text, torch.arange(20, 50))
    found = made.labels(whole, 16, torch.Generator().manual_seed(7), 4.0)
    blocks = found.blocks
    assert isinstance(blocks, MaskedBlocks)
    size = blocks.masked.shape[1]
    for row, anchor in enumerate(blocks.anchors.tolist()):
        for place in range(size):
            at, weight = anchor + 1 + place, float(found.weight[row, place])
            if not blocks.masked[row, place]:
                assert weight == 0
                continue
            assert weight > 0
            known_right = bool((~blocks.masked[row, place:]).any())
            if at < len(text) and not known_right:
                assert found.ids[row, place].tolist() == text.top_ids[at - 1].tolist()
            else:
                expected = int(text.tokens[at]) if at < len(text) else STOP
                assert int(found.ids[row, place, 0]) == expected
                assert found.p[row, place].tolist() == [1.0] + [0.0] * 15


def test_after_a_text_that_was_cut_nothing_is_learnt():
    made, text = student(), document(last=9)
    found = made.labels(Blocks(text, torch.tensor([55])), 4, torch.Generator().manual_seed(1), 4.0)
    assert (found.weight[0, 4:] == 0).all()


def test_only_the_adapter_learns():
    made, text = student(), document()
    found = made.labels(Blocks(text, torch.tensor([25, 33])), 4, torch.Generator(), 4.0)
    made.rows(found.blocks).square().sum().backward()
    grads = [name for name, p in made.trained().items() if p.grad is None]
    assert not [name for name in grads if name.endswith("b")]
    assert all(p.grad is None for p in made.language_model.parameters())


def test_judged_perplexity_is_the_models_own():
    model = toys.model()
    prompt, answer = [3, 4, 5], [6, 7, 6, 7, 6, 7, STOP]
    found = judge("x", model, [(prompt, answer), (prompt, [])], frozenset([STOP]))
    logits = model(torch.tensor([prompt + answer])).logits[0].float().log_softmax(-1)
    nll = [-float(logits[len(prompt) - 1 + i, t]) for i, t in enumerate(answer)]
    assert found.perplexity == pytest.approx(np.exp(np.mean(nll)), rel=1e-5)
    assert (found.texts, found.tokens, found.ended) == (2, 7, 0.5)
    assert found.fresh == pytest.approx(3 / 4)  # 6767 7676 6767 767·stop


def test_the_command_trains_a_denoiser_that_loads(words, folder, capsys):  # noqa: F811
    assert cli.main([words[0], "denoiser", *words[1:], "--rank", "2"]) == 0
    out = folder / "run" / "denoiser"
    assert load_adapter(out / "checkpoint").config.block_size == 4
    scores = json.loads((out / "report.json").read_text())["scores"]
    assert [row["name"] for row in scores] == ["target, greedy", "target, T=1", "denoiser"]
    language = load_diffusion(str(out / "checkpoint"), "cpu")
    assert language.block == 4 and language.target.exact
