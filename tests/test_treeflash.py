"""TreeFlash against its formula evaluated pair by pair, against DDTree, and its checkpoints."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from analysis.probe import observe
from core.drafting.builders import best_first
from core.methods.dflash import drafter as dflash
from core.methods.treeflash import drafter as treeflash
from core.methods.loading import digest
from core.methods.treeflash.drafter import (
    ArApproximation,
    Conditioner,
    initial_model,
    load_model,
    save_model,
    top,
    TreeFlashModel,
    TreeFlashOptions,
)
from core.errors import UserError
from tests import toys
from tests.test_dflash import norm, numbers, residual_rows
from tests.toys import PROMPT, run, tree

CLOSE = {"rtol": 2e-5, "atol": 2e-5}  # norms are computed in float32
VOCABULARY = toys.VOCABULARY


# ── the method, one pair at a time ───────────────────────────────────────────────────────────────


def slow_rows(drafter, features, root):
    """The backbone's residual stream at the L drafted depths, from the whole context."""
    config = drafter.model.config
    embedding = toys.model().get_input_embeddings().weight
    block = embedding[[root] + [config.mask_token_id] * (config.block_size - 1)]
    return residual_rows(config, drafter.model.state_dict(), features, block)[1:]


def slow_q(drafter, h, before=None, temperature=1.0):
    """log q [V] from one residual row, or log q′ given the token before it, in float64.

    h′ = h + d(silu(g)·u), [u, g] = ug([norm(embedding, ε = 1e-6) ; final norm of h]).
    """
    owner, config = toys.model(), drafter.model.config
    w, final = whole_state(drafter), drafter.model.norm.weight
    normed = norm(h, final, config.rms_norm_eps)
    if before is not None:
        embedded = owner.get_input_embeddings().weight[before]
        embedded = norm(embedded, w["norm.weight"], 1e-6)
        both = w["ug.weight"] @ torch.cat([embedded, normed]) + w["ug.bias"]
        half = len(both) // 2
        u, g = both[:half], both[half:]
        changed = h + w["d.weight"] @ (g * g.sigmoid() * u)
        normed = norm(changed, final, config.rms_norm_eps)
    logits = owner.get_output_embeddings().weight @ normed
    return (logits / temperature).log_softmax(-1)


def whole_state(drafter):
    return drafter.conditioner.model.ar_approximation.state_dict()


def a_proposal(width=16, changes=None, **options):
    """(drafter, residual rows by the slow way, a proposal behind 9 context tokens and root 7)."""
    owner = toys.model()
    drafter = toys.TreeFlashDrafter(
        toys.treeflash_model(1, **(changes or {})),
        owner.get_input_embeddings(),
        owner.get_output_embeddings(),
        TreeFlashOptions(**options),
    )
    features = numbers(4, 9, 64)
    drafter.reset(40)
    drafter.extend([0] * 9, features)
    proposal = drafter.propose(7, width)
    return SimpleNamespace(
        drafter=drafter, proposal=proposal, h=slow_rows(drafter, features, 7),
        candidates=proposal.candidates, t=proposal.candidates.transitions,
        temperature=options.get("temperature", 1.0),
    )  # fmt: skip


def slow_tables(a, candidates, siblings):
    plain = torch.stack([slow_q(a.drafter, h, None, a.temperature) for h in a.h])
    return toys.transitions_of(
        plain,
        lambda depth, token: slow_q(a.drafter, a.h[depth], token, a.temperature),
        7,
        candidates,
        siblings,
    )


def tied(log_q):
    """Places whose value is that of a neighbour."""
    steps = -np.diff(log_q, prepend=np.inf, append=-np.inf)
    return np.minimum(steps[..., 1:], steps[..., :-1]) < 1e-5


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ({}, {}),
        ({"candidates": 4, "siblings": 9}, {}),
        ({"candidates": 9, "siblings": 3}, {}),
        ({"candidates": 1, "siblings": 1}, {}),
        ({"candidates": 48, "siblings": 48}, {}),
        ({"candidates": 1024, "siblings": 1024}, {}),
        ({"temperature": 0.4}, {}),
        ({"temperature": 3.0}, {}),
        ({}, {"rms_norm_eps": 1e-1}),  # the embedding's norm keeps its own ε
        ({}, {"block_size": 2}),
    ],
)
def test_the_tables_equal_a_slow_evaluation_pair_by_pair(options, changes):
    a = a_proposal(changes=changes, **options)
    a.t.need_all()
    whole = TreeFlashOptions(**options)
    expected = slow_tables(a, whole.candidates, whole.siblings)
    np.testing.assert_allclose(a.t.log_q, expected.log_q, **CLOSE)
    same = a.t.ids == expected.ids  # but for tokens that tie in float32
    assert same.mean() > 0.999 and (same | tied(expected.log_q)).all()
    np.testing.assert_array_equal(a.t.follow[same], expected.follow[same])
    np.testing.assert_allclose(a.t.marginal[same], expected.marginal[same], **CLOSE)
    assert a.t.ids.dtype == np.int64 and a.t.follow.dtype == np.int32
    assert a.t.log_q.dtype == a.t.marginal.dtype == np.float32
    assert (a.t.log_q <= 0).all()


@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_the_plain_candidates_are_dflashs(temperature):
    a = a_proposal(temperature=temperature)
    for depth, h in enumerate(a.h):
        best = slow_q(a.drafter, h, None, temperature).topk(16)
        assert a.candidates.ids[depth].tolist() == best.indices.tolist()
        np.testing.assert_allclose(a.candidates.log_q[depth], best.values, **CLOSE)


def test_depth_one_is_conditioned_on_the_root_and_all_its_rows_are_the_same():
    a = a_proposal()
    expected = slow_q(a.drafter, a.h[0], 7).topk(16)
    for row in range(16):
        assert a.t.ids[0, row].tolist() == expected.indices.tolist()
        np.testing.assert_allclose(a.t.log_q[0, row], expected.values, **CLOSE)
    assert a.t.known[0].all()
    assert a.t.ids[0, 0].tolist() != a.candidates.ids[0].tolist(), "the head must matter"


def test_q_along_a_path_is_the_formula_and_the_tables_rows():
    a = a_proposal()
    a.t.need_all()
    path = [7, *(int(a.candidates.ids[d, (3 * d) % 16]) for d in range(6))]
    for length in (1, 2, 7):
        along = a.proposal.along(path[:length])
        assert along.shape == (length, VOCABULARY)
        for depth in range(length):
            expected = slow_q(a.drafter, a.h[depth], path[depth])
            torch.testing.assert_close(along[depth].double(), expected, **CLOSE)
            row = (3 * (depth - 1)) % 16 if depth else 0
            table = along[depth][torch.from_numpy(a.t.ids[depth, row])]
            np.testing.assert_allclose(table, a.t.log_q[depth, row], rtol=1e-5, atol=1e-5)


def test_q_along_a_path_may_pass_a_token_that_is_no_candidate():
    a = a_proposal(candidates=2)
    outside = int(a.t.ids[0, 0, 5])
    assert outside not in a.candidates.ids[0, :2]
    along = a.proposal.along([7, outside])
    torch.testing.assert_close(along[1].double(), slow_q(a.drafter, a.h[1], outside), **CLOSE)


@pytest.mark.parametrize("budget", [1, 3, 16, 64, 300])
def test_a_draft_needs_few_rows_and_equals_that_from_all_of_them(budget):
    some, all_of_them = a_proposal(budget), a_proposal(budget)
    before = some.t.known.sum()
    all_of_them.t.need_all()
    one = best_first(some.candidates, [7], budget)
    two = best_first(all_of_them.candidates, [7], budget)
    for name in ("tokens", "parents", "depths", "ranks"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    np.testing.assert_allclose(one.log_q, two.log_q, rtol=1e-5, atol=1e-6)
    assert some.t.known.sum() == before, "proposing has evaluated what best-first reaches"
    assert budget > 16 or before < all_of_them.t.known.size
    last = some.t.ids.shape[0]
    for row in range(len(one)):
        assert (one.offers.after[row] >= 0) == (
            one.depths[row] < last
            and (row == 0 or one.tokens[row] in some.candidates.ids[one.depths[row] - 1, :16])
        )


def test_every_drafted_nodes_numbers_are_the_formulas():
    a = a_proposal(40)
    draft = best_first(a.candidates, [7], 40)
    leaves = 0
    for row in range(1, len(draft)):
        depth, parent = int(draft.depths[row]), int(draft.parents[row])
        token, before = int(draft.tokens[row]), int(draft.tokens[parent])
        q = slow_q(a.drafter, a.h[depth - 1], before)
        assert draft.log_q[row] == pytest.approx(float(q[token]), abs=2e-5)
        assert draft.ranks[row] == 1 + int((q > q[token]).sum())
        plain = slow_q(a.drafter, a.h[depth - 1])
        assert draft.notes["log q (marginal)"][row] == pytest.approx(float(plain[token]), abs=2e-5)
        behind = draft.notes["behind candidate"][row]
        if depth == 1:
            assert np.isnan(behind)
        else:
            assert a.candidates.ids[depth - 2, int(behind) - 1] == before
        leaves += token not in a.candidates.ids[depth - 1, :16]
    assert leaves > 0, "some leaves must fall outside the candidates"


# ── beside DDTree ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("sampling", [toys.GREEDY, toys.HOT])
@pytest.mark.parametrize("budget", [1, 5, 16, 40])
def test_a_zero_head_drafts_ddtrees_trees_round_by_round(budget, sampling):
    flash = toys.treeflash_drafter(zero=True, candidates=budget, siblings=budget)
    ours = run(tree(flash), 110, sampling, budget, observe=observe)
    theirs = run(tree(toys.dflash_drafter()), 110, sampling, budget, observe=observe)
    assert len(ours.rounds) == len(theirs.rounds) and ours.tokens == theirs.tokens
    for one, two in zip(ours.rounds, theirs.rounds, strict=True):
        for name in ("tokens", "parents", "depths", "ranks"):
            np.testing.assert_array_equal(getattr(one.draft, name), getattr(two.draft, name))
        np.testing.assert_allclose(one.draft.log_q, two.draft.log_q, rtol=1e-5, atol=2e-6)
        np.testing.assert_allclose(one.draft.scores, two.draft.scores, rtol=1e-5, atol=1e-5)
        marginal = one.draft.notes["log q (marginal)"][1:]
        np.testing.assert_allclose(marginal, two.draft.log_q[1:], rtol=1e-5, atol=2e-6)
        np.testing.assert_array_equal(
            one.candidates.ids[:, :budget], two.candidates.ids[:, :budget]
        )
        np.testing.assert_allclose(one.probe.tvd, two.probe.tvd, atol=1e-5)
        np.testing.assert_allclose(one.probe.coverage, two.probe.coverage, atol=1e-5)


def test_a_head_that_is_not_zero_drafts_other_trees():
    ours = run(tree(toys.treeflash_drafter()), 20, budget=16).rounds[0].draft
    theirs = run(tree(toys.dflash_drafter()), 20, budget=16).rounds[0].draft
    assert set(ours.tokens.tolist()) != set(theirs.tokens.tolist())


def test_the_initial_model_is_its_backbone():
    backbone = toys.dflash_model(3)
    made = initial_model(backbone)
    assert isinstance(made, TreeFlashModel) and not made.ar_approximation.d.weight.any()
    for name, tensor in backbone.state_dict().items():
        assert torch.equal(made.model.state_dict()[name], tensor)
    h, before = numbers(1, 5, 32), numbers(2, 5, 32)
    assert torch.equal(made.conditioned(h, before), made.model.norm(h))


@pytest.mark.parametrize("candidates", [2, 16])
def test_the_probe_compares_q_given_the_accepted_path(candidates):
    drafter, seen = toys.treeflash_drafter(candidates=candidates), []

    def watch(x):
        seen.append(x)
        return observe(x)

    found = run(tree(drafter), 40, toys.HOT, 40, observe=watch)
    text, several = PROMPT + found.tokens, 0
    for record, what in zip(found.rounds[:20], seen, strict=False):
        whole = toys.full_forward(text[: record.position])
        h = slow_rows(drafter, whole.features, text[record.position])
        path = record.draft.tokens[list(record.verdict.path)].tolist()
        for depth in range(min(len(path), 7)):
            q = slow_q(drafter, h[depth], path[depth]).exp()
            p = what.logits[record.verdict.path[depth]].softmax(-1)
            assert record.probe.tvd[depth] == pytest.approx(
                float((p - q).abs().sum() / 2), abs=1e-4
            )
            covered = p[q.topk(16).indices].cumsum(0)
            np.testing.assert_allclose(record.probe.coverage[depth], covered, atol=1e-4)
        several += len(path) > 1
    assert several > 2, "paths of length 0 prove little"


def test_a_rounds_record_carries_no_tables():
    """They are short-lived tensors: a round keeps candidates, notes and offers only."""
    record = run(tree(toys.treeflash_drafter()), 6, budget=8).rounds[0]
    assert record.candidates.transitions is None
    assert record.draft.notes.keys() == {"log q (marginal)", "behind candidate"}
    assert record.draft.offers is not None


def test_the_conditioner_alone_says_what_the_drafter_says():
    """What simulations call: embeddings and head as functions, any residual rows."""
    a, owner = a_proposal(), toys.model()
    conditioner = Conditioner(
        a.drafter.conditioner.model,
        lambda ids: owner.get_input_embeddings().weight[ids],
        lambda x: x @ owner.get_output_embeddings().weight.T,
    )
    t = conditioner.proposal(a.h, 7, 16).candidates.transitions
    for x in (t, a.t):
        x.need_all()
    np.testing.assert_array_equal(t.ids, a.t.ids)
    np.testing.assert_allclose(t.log_q, a.t.log_q, **CLOSE)


class Watched:
    """A conditioner of the toy that reads the head's columns, or not; ``batches``: rows of the
    head in each of its calls."""

    def __init__(self, a, columns, **options):
        owner, self.batches = toys.model(), []
        head = owner.get_output_embeddings().weight

        def project(x):
            self.batches.append(len(x))
            return x @ head.T

        self.conditioner = Conditioner(
            a.drafter.conditioner.model,
            lambda ids: owner.get_input_embeddings().weight[ids],
            project,
            TreeFlashOptions(**options),
            (lambda ids: head[ids]) if columns else None,
        )

    def __call__(self, h, root, width):
        self.batches.clear()
        return self.conditioner.proposal(h, root, width).candidates


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_a_guess_over_the_whole_vocabulary_is_q_prime(temperature):
    options = {"candidates": 9, "siblings": 7, "temperature": temperature}
    a = a_proposal(VOCABULARY)
    watched = Watched(a, True, **options)
    guessed = watched(a.h, 7, VOCABULARY).transitions
    assert len(watched.batches) <= 2 and not guessed.known.all()  # its rows are foreseen
    before = guessed.log_q.copy(), guessed.marginal.copy(), guessed.follow.copy()
    guessed.need_all()
    sure = ~tied(guessed.log_q)
    for was, now in zip(before, (guessed.log_q, guessed.marginal, guessed.follow), strict=True):
        np.testing.assert_allclose(was[sure], now[sure], **CLOSE)


@pytest.mark.parametrize("near", [1e-9, 1, 64, 1e9])
def test_a_guess_changes_no_tree_and_saves_readings_of_the_head(near, monkeypatch):
    """Few columns, so that the guess is wrong in places; and made at one depth, some or all."""
    monkeypatch.setattr(treeflash, "GUESSED", 16)
    monkeypatch.setattr(treeflash, "NEAR", near)
    a, calls = a_proposal(), {True: 0, False: 0}
    for seed in range(12):
        h, drafts = numbers(seed, *a.h.shape), {}
        for columns in calls:
            watched = Watched(a, columns, candidates=5, siblings=8)
            drafts[columns] = best_first(watched(h, 7, 12), [7], 12)
            calls[columns] += len(watched.batches)
        for name in ("tokens", "parents", "depths", "ranks"):
            np.testing.assert_array_equal(
                getattr(drafts[True], name), getattr(drafts[False], name), name
            )
        np.testing.assert_allclose(drafts[True].log_q, drafts[False].log_q, **CLOSE)
    assert calls[True] < calls[False] + (near < 1)  # one depth foreseen may save nothing


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_a_guess_is_right_where_all_that_it_does_not_look_at_has_gained_alike(temperature):
    """From 16 of 48 tokens: their lesser half and the rest gained 1.5 nats; the best differ."""
    plain, changed = numbers(5, 3, VOCABULARY), numbers(6, 3, 4, VOCABULARY)
    log_q = (plain / temperature).log_softmax(-1)
    best = log_q.topk(16)
    kept = torch.ones(3, VOCABULARY, dtype=torch.bool).scatter(-1, best.indices[:, :8], False)
    logits = torch.where(kept[:, None], plain[:, None] + 1.5, changed)
    tables = treeflash._Tables(TreeFlashOptions(4, 8, temperature), log_q, best, 10**9)
    tables.guess(logits.gather(-1, best.indices[:, None].expand(-1, 4, -1)), plain)
    exact = (logits / temperature).log_softmax(-1)
    looked_at = exact.gather(-1, best.indices[:, None].expand(-1, 4, -1)).topk(8).values
    np.testing.assert_allclose(tables.log_q, looked_at, **CLOSE)


@pytest.mark.parametrize(("size", "count"), [(64, 5), (640, 4), (6400, 16), (1000, 16), (64, 99)])
def test_top_is_topk(size, count):
    rows = numbers(size, 7, size)
    rows[3, :100] = rows[3, 0]  # ties: the values are topk's, and each id carries its value
    found, expected = top(rows, count), rows.topk(min(count, size))
    assert torch.equal(found.values, expected.values)
    assert torch.equal(rows.gather(1, found.indices), found.values)
    for row in found.indices.tolist():
        assert len(set(row)) == len(row)
    assert torch.equal(found.indices[0], expected.indices[0])


# ── checkpoints ──────────────────────────────────────────────────────────────────────────────────


def saved_state(folder):
    return load_file(folder / "model.safetensors")


@pytest.fixture
def model():
    return toys.treeflash_model(5, dtype=torch.bfloat16)


def assert_same_weights(one, two):
    assert one.state_dict().keys() == two.state_dict().keys()
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, two.state_dict()[name]), name


def test_a_checkpoint_round_trips_in_the_official_form(model, tmp_path):
    save_model(model, tmp_path)
    names = set(saved_state(tmp_path))
    head = {"ug.weight", "ug.bias", "d.weight", "norm.weight"}
    assert {n for n in names if not n.startswith("model.")} == {
        f"ar_approximation.{name}" for name in head
    }
    assert {n.removeprefix("model.") for n in names if n.startswith("model.")} == set(
        toys.dflash_model().state_dict()
    )
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["treeflash_config"] == {"ar_approximation": "swiglu", "candidate_tokens": 16}
    assert config["dflash_config"] == {"target_layer_ids": [0, 2], "mask_token_id": 47}
    loaded = load_model(tmp_path, torch.bfloat16, "cpu")
    assert loaded.config == model.config and not loaded.training
    assert_same_weights(loaded, model)


def test_the_small_form_saved_again_is_the_same_bf16_checkpoint(model, tmp_path):
    save_model(model, tmp_path / "small", small=True)
    once = load_model(tmp_path / "small", torch.bfloat16, "cpu")
    save_model(once, tmp_path / "official")
    assert_same_weights(load_model(tmp_path / "official", torch.bfloat16, "cpu"), once)
    assert any(t.dtype == torch.int8 for t in saved_state(tmp_path / "small").values())
    for name, tensor in once.state_dict().items():
        exact = model.state_dict()[name].float()
        assert (tensor.float() - exact).abs().max() <= 0.01 * exact.abs().max(), name


@pytest.mark.parametrize("small", [False, True])
def test_a_head_alone_takes_its_backbone_from_the_folder_beside_it(model, tmp_path, small):
    dflash.save_model(model.model, tmp_path / "dflash", small)
    save_model(model, tmp_path / "treeflash", small, backbone="dflash")
    assert all(n.startswith("ar_approximation.") for n in saved_state(tmp_path / "treeflash"))
    loaded = load_model(tmp_path / "treeflash", torch.bfloat16, "cpu")
    beside = dflash.load_model(tmp_path / "dflash", torch.bfloat16, "cpu")
    assert_same_weights(loaded.model, beside)
    save_model(loaded, tmp_path / "joined")
    assert_same_weights(load_model(tmp_path / "joined", torch.bfloat16, "cpu"), loaded)


def test_the_hash_of_a_head_alone_tells_backbones_apart(model, tmp_path):
    save_model(model, tmp_path / "treeflash", backbone="dflash")
    found = set()
    for seed in range(2):
        backbone = toys.dflash_model(seed, torch.float32)
        dflash.save_model(backbone, tmp_path / "dflash")
        found.add(digest("treeflash", tmp_path / "treeflash"))
        assert digest("dflash", tmp_path / "dflash") not in found
    assert len(found) == 2


@pytest.mark.parametrize("damage", ["lost", "misshapen"])
def test_int8_weights_without_their_exponents_are_one_sentence(model, tmp_path, damage):
    save_model(model, tmp_path, small=True)
    file = tmp_path / "model.safetensors"
    state = load_file(file)
    name = next(n for n in state if n.endswith(".exponent"))
    if damage == "lost":
        del state[name]
    else:
        state[name] = state[name][:1].repeat(7, 1)
    save_file(state, file, {"format": "pt"})
    one_sentence(tmp_path, "int8 weights and exponents")


def one_sentence(folder, words):
    with pytest.raises(UserError, match=words) as error:
        load_model(folder, torch.float32, "cpu")
    text = str(error.value)
    assert "\n" not in text and 10 < len(text) < 500


@pytest.mark.parametrize("name", ["../dflash", "/etc", "a/b", "..", ""])
def test_a_backbone_elsewhere_is_refused(model, tmp_path, name):
    (tmp_path / "x").mkdir()
    dflash.save_model(model.model, tmp_path / "dflash")
    save_model(model, tmp_path / "x" / "treeflash", backbone=name)
    one_sentence(tmp_path / "x" / "treeflash", "backbone|safetensors")


def test_a_backbone_that_is_not_there_is_one_sentence(model, tmp_path):
    save_model(model, tmp_path / "treeflash", backbone="gone")
    one_sentence(tmp_path / "treeflash", "gone")


def test_a_backbone_of_another_shape_is_one_sentence(model, tmp_path):
    dflash.save_model(toys.dflash_model(num_hidden_layers=1), tmp_path / "dflash")
    save_model(model, tmp_path / "treeflash", backbone="dflash")
    one_sentence(tmp_path / "treeflash", r"model\.layers\.1\..*missing")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: s.pop("ar_approximation.ug.bias"), r"ar_approximation\.ug\.bias.*missing"),
        (lambda s: s.pop("ar_approximation.ug.weight"), r"ug\.weight is missing"),
        (lambda s: s.pop("model.norm.weight"), r"model\.norm\.weight.*missing"),
        (lambda s: s.update({"lm_head.weight": torch.zeros(2)}), r"lm_head\.weight"),
        (lambda s: s.update({"ar_approximation.d.bias": torch.zeros(32)}), r"d\.bias"),
        (lambda s: s.update({"ar_approximation.ug.weight": torch.zeros(48)}), r"ug\.weight"),
        (lambda s: s.update({"ar_approximation.ug.weight": torch.zeros(48, 63)}), r"\(48, 63\)"),
        (lambda s: s.update({"ar_approximation.ug.weight": torch.zeros(49, 64)}), r"ug\.weight"),
        (lambda s: s.update({"ar_approximation.d.weight": torch.zeros(32, 25)}), r"\(32, 25\)"),
        (lambda s: s.update({"model.fc.weight": torch.zeros(32, 96)}), r"\(32, 96\).*\(32, 64\)"),
    ],
)
def test_a_tensor_that_is_missing_surplus_or_misshapen_is_named(model, tmp_path, change, words):
    save_model(model, tmp_path)
    state = saved_state(tmp_path)
    change(state)
    save_file(state, tmp_path / "model.safetensors")
    one_sentence(tmp_path, words)


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize(
    "changes",
    [
        {"treeflash_config": {"ar_approximation": None}},
        {"treeflash_config": {"ar_approximation": "gru"}},
        {"treeflash_config": 3},
        {"treeflash_config": ["swiglu"]},
        {"dflash_config": 3},
        {"hidden_size": None},
        {"hidden_size": "x"},
        {"num_attention_heads": 0},
        {"num_hidden_layers": -1},
    ],
)
def test_a_config_that_cannot_be_is_one_sentence(model, tmp_path, changes):
    save_model(model, tmp_path)
    raw = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(raw | changes))
    one_sentence(tmp_path, ".")


@pytest.mark.parametrize("text", ["", "[]", "null", "{}"])
def test_a_file_that_is_no_config_is_one_sentence(model, tmp_path, text):
    save_model(model, tmp_path)
    (tmp_path / "config.json").write_text(text)
    one_sentence(tmp_path, ".")


def test_halving_the_first_layer_and_broadcasting_change_nothing():
    torch.manual_seed(3)
    head = ArApproximation(32, 24).double()
    torch.nn.init.normal_(head.d.weight)
    rows, before = torch.randn(5, 1, 32).double(), torch.randn(5, 7, 32).double()
    whole = head.ug.weight @ torch.cat([head.norm(before), rows.expand(-1, 7, -1)], -1).mT
    u, g = (whole.mT + head.ug.bias).chunk(2, -1)
    slow = head.d(g * g.sigmoid() * u)
    assert torch.allclose(head(before, rows), slow, atol=1e-12)
    head.halve()
    head.halve()  # once is enough
    assert torch.allclose(head(before, rows), slow, atol=1e-12)
