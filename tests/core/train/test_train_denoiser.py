"""The denoiser as trained is the denoiser that decodes, and the states it learns are sound."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from app import cli
from core.diffusion.models import load_diffusion
from core.diffusion.target import BlockCausalTarget, BlockLayout
from core.errors import UserError
from core.learning.corpus import Blocks
from core.learning.shards import Document
from core.learning.student import Labels, TrainingRun
from core.models.adapter import Adapter, AdapterConfig, GatedAdapter, load_adapter
from core.train.denoiser import (
    AFTER_END,
    STATES,
    BlockStates,
    DenoiserStudent,
    DenoiserTraining,
)
from core.train.denoiser_report import judge
from core.train.options import DenoiserOptions
from tests.helpers import toys
from tests.helpers.training_toys import train_words

MASK, STOP = 5, 2
CONFIG = AdapterConfig("toy", MASK, 8, rank=3, alpha=3.0)
LAYOUT = BlockLayout(shift=True, clean="causal", left=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("train")


@pytest.fixture(scope="module")
def words(folder):
    return train_words(folder)


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


def block_states(made: DenoiserStudent, text: Document) -> BlockStates:
    """States of every kind after three anchors."""
    anchors = torch.tensor([22, 30, 41]).repeat_interleave(40)
    known = torch.rand(120, 8, generator=torch.Generator().manual_seed(4)).argsort(-1)
    masked = known >= torch.arange(120)[:, None] % 8
    masked[::5] = torch.arange(8) >= torch.arange(24)[:, None] % 8  # a left part is known
    tokens = text.tokens[anchors[:, None] + 1 + torch.arange(8)].long()
    return BlockStates(text, anchors, tokens, masked, masked.clone(), made._read(text))


def test_a_training_row_is_what_the_denoiser_scores():
    text, made = document(), student()
    states = block_states(made, text)
    places = learnt_places(states)
    states = replace(states, learnt=places)
    with torch.inference_mode():
        learnt = made.rows(states)[:, 0] @ made.head_rows.T
    model = deepcopy(toys.model())
    gated = GatedAdapter(model, made.model.tensors(), CONFIG.scale, MASK)
    target, found = BlockCausalTarget(model, MASK, LAYOUT, gated), []
    for anchor, known, hidden, rows in zip(
        states.anchors.tolist(), states.tokens, states.masked, places, strict=True
    ):
        target.begin(text.tokens[: anchor + 1].tolist(), 8, 8)
        state = torch.where(hidden, MASK, known).numpy()[None]
        found.append(target.score(state, [rows.nonzero()[:, 0].numpy()])[0])
    torch.testing.assert_close(learnt.to(found[0]), torch.cat(found), rtol=1e-4, atol=1e-4)


def learnt_places(states: BlockStates) -> torch.Tensor:
    """The masked positions but the target's own: first ones with nothing known behind."""
    places = states.masked.clone()
    for row, masked in zip(places, states.masked.tolist(), strict=True):
        first = masked.index(True)
        if all(masked[first:]):
            row[first] = False
    return places


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


def labels_of(text: Document, anchors: torch.Tensor, top_k: int = 16) -> Labels:
    return student().labels(Blocks(text, anchors), top_k, torch.Generator().manual_seed(7), 4.0)


@pytest.mark.parametrize("ahead", [0.0, 0.4, 1.0])
def test_states_are_unmasked_in_the_denoisers_own_order(ahead):
    """A state knows what the one before knew, and what that one would have unmasked first."""
    text, made = document(), student()
    made.config = replace(CONFIG, ahead=ahead)
    start = made._start(Blocks(text, torch.arange(20, 50)), 8, torch.Generator().manual_seed(5))
    found = made._unmask(start, torch.Generator().manual_seed(8))
    count = len(start.anchors)
    assert found.masked.any(-1).all() and len(found.masked) == STATES * count
    for which in range(count):
        for before, after in pairwise(found.masked[which::count]):
            assert not (after & ~before).any()
            masked = start.masked.clone()
            masked[which] = before
            sure = made._confidence(replace(start, masked=masked, learnt=masked))[which]
            fresh, left = (before & ~after).nonzero()[:, 0], after.nonzero()[:, 0]
            first = int(before.nonzero()[0])
            rank = [(p < ahead and at != first, -p) for at, p in enumerate(sure.tolist())]
            for at in fresh.tolist():
                for other in left.tolist():
                    assert rank[at] <= rank[other] or (rank[other][0] and at < other)


def test_the_first_masked_position_is_as_sure_as_the_target():
    text, made = document(), student()
    states = block_states(made, text)
    sure = made._confidence(replace(states, learnt=states.masked))
    for row, masked in enumerate(states.masked.tolist()):
        first = masked.index(True)
        if all(masked[first:]):
            expected = text.top_logp[states.anchors[row] + first, 0].float().exp()
            assert sure[row, first] == expected
    assert (sure[~states.masked] == -1).all() and (sure[states.masked] >= 0).all()


def test_labels_are_the_target_before_unknowns_and_the_token_before_knowns():
    text = document()
    found = labels_of(text, torch.arange(20, 50))
    states = found.blocks
    assert isinstance(states, BlockStates)
    assert torch.equal(states.learnt & ~states.masked, torch.zeros_like(states.masked))
    places = learnt_places(states)
    assert not (states.learnt & ~places).any()  # the target's own is not learnt
    for number, (row, place) in enumerate(states.learnt.nonzero().tolist()):
        at = int(states.anchors[row]) + 1 + place
        ids, p = found.ids[number, 0], found.p[number, 0]
        known_right = bool((~states.masked[row, place:]).any())
        if at < len(text) and not known_right:
            assert ids.tolist() == text.top_ids[at - 1].tolist()
        else:
            assert int(ids[0]) == (int(text.tokens[at]) if at < len(text) else STOP)
            assert p.tolist() == [1.0] + [0.0] * 15
        gap = int(states.masked[row, :place].sum())
        filler = AFTER_END if at >= len(text) else 1.0
        assert float(found.weight[number, 0]) == pytest.approx(np.exp(-gap / 4) * filler)


def test_after_a_text_that_was_cut_nothing_is_learnt():
    found = labels_of(document(last=9), torch.tensor([55]), 4)
    assert isinstance(found.blocks, BlockStates)
    assert found.blocks.learnt[:, :4].any() and not found.blocks.learnt[:, 4:].any()


def test_only_the_adapter_learns():
    made, text = student(), document()
    found = made.labels(Blocks(text, torch.tensor([25, 33])), 4, torch.Generator(), 4.0)
    made.rows(found.blocks).square().sum().backward()
    grads = [name for name, p in made.trained().items() if p.grad is None]
    assert not [name for name in grads if name.endswith("b")]
    assert all(p.grad is None for p in made.language_model.parameters())


def test_half_runs_the_target_in_bf16_and_keeps_the_adapter_and_the_language():
    language = SimpleNamespace(name="toy", model=toys.model(), stop_ids={STOP})
    language.tokenizer, language.encode_chat = SimpleNamespace(added_tokens_decoder={}), list
    run = TrainingRun(language, Path())
    made = DenoiserTraining().student(run, DenoiserOptions(half=True), None)
    assert made.language_model.dtype == torch.bfloat16 and language.model.dtype == torch.float64
    assert all(p.dtype == torch.float32 for p in made.trained().values())
    found = made.labels(Blocks(document(), torch.tensor([25, 33])), 4, torch.Generator(), 4.0)
    rows = made.rows(found.blocks)
    assert rows.isfinite().all()


def test_judged_perplexity_is_the_models_own():
    model = toys.model()
    prompt, answer = [3, 4, 5], [6, 7, 6, 7, 6, 7, STOP]
    found = judge("x", model, [(prompt, answer), (prompt, [])], frozenset([STOP]))
    logits = model(torch.tensor([prompt + answer])).logits[0].float().log_softmax(-1)
    nll = [-float(logits[len(prompt) - 1 + i, t]) for i, t in enumerate(answer)]
    assert found.perplexity == pytest.approx(np.exp(np.mean(nll)), rel=1e-5)
    assert (found.texts, found.tokens, found.ended) == (2, 7, 0.5)
    assert found.fresh == pytest.approx(3 / 4)  # 6767 7676 6767 767·stop


def test_the_command_trains_a_denoiser_that_loads(words, folder, capsys):
    assert cli.main([words[0], "denoiser", *words[1:], "--rank", "2"]) == 0
    out = folder / "run" / "denoiser"
    assert load_adapter(out / "checkpoint").config.block_size == 4
    scores = json.loads((out / "report.json").read_text())["scores"]
    assert [row["name"] for row in scores] == ["target, greedy", "target, T=1", "denoiser"]
    language = load_diffusion(str(out / "checkpoint"), "cpu")
    assert language.block == 4 and language.target.exact
