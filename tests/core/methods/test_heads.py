"""Medusa's and Hydra's heads: the static tree, the trainings."""

import itertools
import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from core.drafting.builders import grow
from core.errors import UserError
from core.learning.corpus import Blocks, Corpus
from core.learning.shards import write_shard
from core.learning.student import TrainingRun
from core.methods.hydra import model as hydra
from core.methods.hydra import training as hydra_training
from core.methods.medusa import ACCURACIES, HeadsOptions, StaticTreeOptions
from core.methods.medusa import model as medusa
from core.methods.medusa import training as medusa_training
from core.methods.medusa.tree import (
    PUBLISHED,
    StaticTree,
    load,
    measured,
    published,
    read_accuracies,
    write_accuracies,
)
from core.train.fit import Fit
from core.train.options import FitSettings
from tests.helpers import toys
from tests.helpers.drafter_reference import assert_close, numbers
from tests.helpers.training_toys import training_document as document

HOMES = {"medusa": (medusa, medusa_training), "hydra": (hydra, hydra_training)}
DRAFTERS = {"medusa": toys.medusa_drafter, "hydra": toys.hydra_drafter}
FIRST = {"medusa": "0.0.linear.", "hydra": "hydra_mlp.0.0.linear."}
both = pytest.mark.parametrize("kind", HOMES)


def begun(drafter, root=9):
    features = numbers(4, 5, 32)
    drafter.reset(20)
    drafter.extend([1, 2, 3], features[:3])
    drafter.extend([4, 5], features[3:])
    return drafter.begin(root, 16), features[-1]


# ── the static tree ──────────────────────────────────────────────────────────────────────────────


def test_the_published_tree_has_63_nodes_and_any_prefix_of_it_is_a_tree():
    paths = PUBLISHED.split()
    assert len(paths) == len(set(paths)) == 63
    assert np.bincount([len(path) for path in paths]).tolist() == [0, 10, 28, 23, 2]
    tree = published()
    session, _ = begun(toys.medusa_drafter())
    draft = tree(session, [9], 63)
    found = {"".join(str(draft.ranks[r] - 1) for r in draft.path(row)[1:]) for row in range(1, 64)}
    assert found == set(paths)
    small = tree(session, [9], 20)
    assert small.nodes == 20 and (small.tokens == draft.tokens[:21]).all()


def test_a_measured_tree_has_the_highest_products_of_accuracies():
    rng = np.random.default_rng(3)
    accuracies = rng.random((3, 4)) * 0.3  # in no order
    nodes = {
        path: float(np.prod([accuracies[d, r] for d, r in enumerate(path)]))
        for depth in (1, 2, 3)
        for path in itertools.product(range(4), repeat=depth)
    }
    best = set(sorted(nodes, key=lambda path: -nodes[path])[:17])
    session, _ = begun(toys.medusa_drafter())
    draft = measured(accuracies)(session, [9], 17)
    assert {tuple(draft.ranks[r] - 1 for r in draft.path(row)[1:]) for row in range(1, 18)} == best


def test_ranks_that_a_drafter_does_not_list_are_left_out_with_what_follows(tmp_path):
    tree = StaticTree(((0, 0), (1, 0), (2, 30), (3, 0), (0, 1), (5, 0)))
    session, _ = begun(toys.medusa_drafter())
    draft = tree(session, [9], 6)
    assert draft.parents.tolist() == [-1, 0, 1, 0, 3]
    with pytest.raises(ValueError, match="rank 30 is offered after node 2"):
        grow(session, [9], tree.nodes)


def test_the_tree_of_a_target(tmp_path):
    facts = toys.SimpleNamespace(name="other", vocabulary=48, stop_ids=frozenset())
    assert load(facts, StaticTreeOptions()) == published()
    write_accuracies(tmp_path / "a.json", np.array([[0.5, 0.2], [0.25, 0.125]]))
    named = StaticTreeOptions(str(tmp_path / "a.json"))
    tree = load(facts, named)
    assert tree.nodes == ((0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)) and tree.reads == 2
    assert load(facts, StaticTreeOptions(named.accuracies, True)) == published()


@pytest.mark.parametrize("text", ["", "[]", "3", "{}", "[[2]]", "[[0.1], [0.1, 0.2]]", '[["x"]]'])
def test_accuracies_that_are_none_are_one_sentence(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(UserError):
        read_accuracies(tmp_path / "a.json")


# ── files ────────────────────────────────────────────────────────────────────────────────────────


@both
@pytest.mark.parametrize("own", [False, True])
def test_heads_are_loaded_as_they_were_saved(kind, own, tmp_path):
    model = DRAFTERS[kind](own=own).model.to(torch.bfloat16)
    home, _ = HOMES[kind]
    home.FORM.save_model(model, tmp_path)
    found = home.FORM.load_model(tmp_path, torch.bfloat16, "cpu")
    assert found.config == model.config
    for name, tensor in model.state_dict().items():
        assert torch.equal(found.state_dict()[name], tensor), name
    assert FIRST[kind] + "weight" in found.state_dict()


@pytest.mark.parametrize("config", [{}, {"medusa_num_heads": 9, "base_model_name_or_path": "x"}])
def test_a_published_config_need_not_know_the_sizes(config, tmp_path):
    model = toys.medusa_drafter(own=True).model
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file(dict(model.state_dict()), tmp_path / "medusa_lm_head.safetensors")
    found = medusa.FORM.load_model(tmp_path, torch.float64, "cpu")
    assert found.config.heads == 5 and found.config.of_target["vocabulary size"] == 48


def test_vllm_is_told_of_medusas_biases(tmp_path):
    """Without the field it builds the blocks without them."""
    medusa.FORM.save_model(toys.medusa_drafter(own=True).model, tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["medusa_fc_bias"] is True


@both
def test_sizes_are_what_the_config_says_before_the_weights_are_fetched(kind, tmp_path):
    home, _ = HOMES[kind]
    (tmp_path / "config.json").write_text("{}")
    assert home.FORM.load_config(tmp_path).of_target == {}
    (tmp_path / "config.json").write_text('{"hidden_size": 32}')
    assert home.FORM.load_config(tmp_path).of_target == {"hidden size": 32}
    with pytest.raises(UserError, match="safetensors"):
        home.FORM.load_model(tmp_path, torch.float32, "cpu")


@both
def test_what_is_wrong_in_heads_is_one_sentence(kind, tmp_path):
    model, (home, _), first = DRAFTERS[kind]().model, HOMES[kind], FIRST[kind]
    second = first.replace("0.0.", "1.0.")
    for change, words in (
        ({f"{first}weight": None}, r"0\.0\.linear"),
        ({f"{second}bias": None}, r"1\.0\.linear\.bias.*missing"),
        ({f"{second}bias": torch.zeros(3)}, r"\(3,\)"),
        ({"x": torch.zeros(3)}, "x has shape"),
    ):
        home.FORM.save_model(model, tmp_path)
        state = {n: t for n, t in (model.state_dict() | change).items() if t is not None}
        save_file(state, tmp_path / "model.safetensors")
        with pytest.raises(UserError, match=words):
            home.FORM.load_model(tmp_path, torch.float32, "cpu")


# ── training ─────────────────────────────────────────────────────────────────────────────────────

SETTINGS = FitSettings(
    minutes=1e9, sequences=2, anchors=9, warmup=1, lr=0.02, frequent=48, sampled=0, held_out=1
)


@pytest.fixture
def shards(tmp_path):
    made = [document(seed) for seed in range(14)]
    made = [toys.replace(d, layers=(3,), features=d.features[:, :32].contiguous()) for d in made]
    write_shard(tmp_path / "shards" / "a.safetensors", made)
    return tmp_path / "shards"


def a_fit(kind, shards, folder):
    language = toys.SimpleNamespace(model=toys.model(dtype=torch.float32), device="cpu")
    training = HOMES[kind][1].TRAINING
    run, options = TrainingRun(language, folder), HeadsOptions(heads=3)
    assert training.layers(run, options) == (3,)
    corpus = Corpus(shards, 1)
    return Fit(training.student(run, options, corpus), corpus, SETTINGS, folder / kind)


@both
def test_a_fit_lowers_the_loss_and_goes_on_where_it_was_killed(kind, shards, tmp_path):
    fit = a_fit(kind, shards, tmp_path)
    losses = [status.loss for _, status in zip(range(30), fit.steps(), strict=False)]
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])
    fit.save()
    again = a_fit(kind, shards, tmp_path)
    assert again.step == 30
    for name, tensor in fit.student.model.state_dict().items():
        assert torch.equal(again.student.model.state_dict()[name], tensor), name


@both
def test_the_rows_trained_on_are_those_the_drafter_decodes_with(kind):
    drafter = DRAFTERS[kind]()
    student_of = {"medusa": medusa_training.MedusaStudent, "hydra": hydra_training.HydraStudent}
    student = student_of[kind](drafter.model, toys.model(dtype=torch.float32))
    drafter = DRAFTERS[kind]()
    made = document(1)
    made = toys.replace(made, layers=(3,), features=made.features[:, :32])
    tokens, features = made.tokens.tolist(), made.features.double()
    rows = student.rows(Blocks(made, torch.tensor([4, 9])))
    for anchor, mine in zip((4, 9), student.head(torch.arange(48))(rows), strict=True):
        drafter.reset(30)
        drafter.extend(tokens[:anchor], features[:anchor])
        theirs = drafter.begin(tokens[anchor], 16).log_q(tokens[anchor : anchor + len(mine)])
        assert_close(mine.log_softmax(-1).double(), theirs, 1e-4)


def test_a_medusa_checkpoint_holds_the_accuracies_on_held_out_texts(shards, tmp_path):
    fit = a_fit("medusa", shards, tmp_path)
    fit.save()
    found = read_accuracies(fit.checkpoint / ACCURACIES)
    [held] = fit.corpus.test
    head = toys.model(dtype=torch.float32).lm_head.weight  # heads that are zero change nothing
    best = (held.features.float() @ head.T).topk(10).indices
    right = [(best[at - 1] == int(held.tokens[at + 2])) for at in range(held.answer, len(held) - 2)]
    assert found.shape == (3, 10)
    assert found[1] == pytest.approx(torch.stack(right).float().mean(0).numpy(), abs=1e-4)
    medusa_training.TRAINING.ship(fit.checkpoint, tmp_path / "small")
    assert (tmp_path / "small" / ACCURACIES).is_file()
