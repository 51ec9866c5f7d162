"""The DART drafter against the method recomputed from scratch every round."""

import numpy as np
import pytest
import torch

from analysis.measures.probe import observe
from core.methods.dart.model import DartConfig, PrefixRows
from tests import slow_methods, toys
from tests.drafter_reference import assert_close, listed, log_q, numbers
from tests.toys import PROMPT, run, tree

TARGET_LAYERS = DartConfig.feature_layers(4)


def after(tokens, root, width=16, features=None, **how):
    """(a drafter's session after this context and root, the slow log q of the same)"""
    drafter = toys.dart_drafter(seed=1, **how)
    features = numbers(2, len(tokens), 96) if features is None else features
    drafter.reset(30)
    drafter.extend(tokens, features)
    return drafter.begin(root, width), slow_methods.dart(drafter, tokens, features, root)


@pytest.mark.parametrize("head", [None, "reduced"])
@pytest.mark.parametrize("sampling", [toys.GREEDY, toys.HOT])
def test_in_the_loop_every_rounds_q_is_that_of_the_text_so_far(head, sampling):
    covered = sorted({*toys.plain(60, sampling)})
    assert len(covered) < 48
    drafter, seen = toys.dart_drafter(ids=covered if head else None), []

    def watch(scene):
        seen.append(log_q(scene.session))
        return observe(scene)

    found = run(tree(drafter), 50, sampling, 24, observe=watch)
    text = PROMPT + found.tokens
    assert found.tokens == toys.plain(50, sampling) and any(r.accepted for r in found.rounds)
    for record, ours in list(zip(found.rounds, seen, strict=True))[:25]:
        tokens, root = text[: record.position], text[record.position]
        features = toys.full_forward(tokens, layers=TARGET_LAYERS).features
        assert_close(ours, slow_methods.dart(drafter, tokens, features, root), 2e-5)
        assert np.isfinite(record.probe.tvd).all()
        if head:
            assert set(record.draft.tokens[1:].tolist()) <= set(covered)


def test_the_final_norm_twice_is_not_the_norm_once():
    """A checkpoint that is loaded without it would disagree by as much."""
    model, rows = toys.dart_model(), numbers(1, 4, 32)
    once, twice = model.norm(rows), model.norm(model.norm(rows))
    assert (once - twice).abs().max() > 0.05


def test_blocks_side_by_side_equal_blocks_alone():
    """Training runs every position of a text as an instance, in one pass."""
    model, features, embedded = toys.dart_model(1), numbers(3, 20, 96), numbers(4, 20, 32)
    ends = torch.tensor([0, 5, 6, 19])
    prefix = model.prefix(features, embedded)
    context = model.project(prefix, torch.arange(20))
    own = PrefixRows(prefix.inputs[ends], prefix.residual[ends])
    together = model(own, ends, context, torch.arange(20)[None] < ends[:, None])
    for index, end in enumerate(ends.tolist()):
        w = model.state_dict()
        alone = slow_methods.dart_rows(model.config, w, features[: end + 1], embedded[: end + 1])
        assert_close(together[index], alone, 2e-5)


def test_a_mask_sees_no_later_mask():
    """The first depths do not depend on how many masks come after them."""
    few, many = (log_q(after([1, 2, 3, 4, 5], 7, draft_length=n)[0]) for n in (2, 6))
    assert_close(few, many[:3], 2e-5)


@pytest.mark.parametrize(
    ("width", "head", "length"),
    [(1, None, 16), (25, None, 25), (30, None, 30), (1024, None, 48), (64, [40, 3, 17, 44, 9], 5)],
)
def test_lists_are_sorted_and_as_long_as_asked_for(width, head, length):
    """A head that covers a part of the vocabulary lists the target's tokens, and those alone."""
    session, expected = after([1, 2], 3, width, ids=head)
    lists, whole = listed(session), log_q(session)
    assert lists.ids.shape == lists.log_q.shape == (7, length) and session.factorised
    assert (np.diff(lists.log_q) <= 0).all()
    assert set(lists.ids.flatten().tolist()) <= set(head or range(toys.VOCABULARY))
    assert_close(whole.gather(1, torch.from_numpy(lists.ids)), lists.log_q, 0.0)
    assert_close(whole.exp().sum(-1), torch.ones(7))
    assert_close(whole, expected, 2e-5)


def test_reset_forgets_the_text_and_what_was_waiting():
    one, two = toys.dart_drafter(seed=1), toys.dart_drafter(seed=1)
    one.reset(30)
    one.extend([1] * 9, numbers(8, 9, 96))
    one.begin(1, 16)
    one.extend([2] * 4, numbers(9, 4, 96))
    for drafter in (one, two):
        drafter.reset(30)
        drafter.extend([3, 4, 5], numbers(10, 3, 96))
    assert torch.equal(log_q(one.begin(2, 16)), log_q(two.begin(2, 16)))


def test_a_session_leaves_nothing_behind():
    """A root is not committed by a session that begins there: another may begin next."""
    once, often = toys.dart_drafter(seed=1), toys.dart_drafter(seed=1)
    for drafter in (once, often):
        drafter.reset(30)
        drafter.extend([3, 1, 4, 1, 5], numbers(2, 5, 96))
    others = [log_q(often.begin(root, 8)) for root in (7, 2, 9)]
    expected = log_q(once.begin(6, 8))
    assert_close(log_q(often.begin(6, 8)), expected)
    assert all((other - expected).abs().max() > 1e-3 for other in others)
