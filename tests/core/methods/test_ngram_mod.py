"""ngram-mod: the table, drafts while it has the last tokens, and forgetting after bad drafts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.collected.collection import check_asked_anywhere, check_listable
from analysis.measures.probe import observe
from core.decoding.decode import Decoder
from core.drafting.builders import Chain, SampledChain
from core.errors import UserError
from core.methods import ngram_mod
from core.methods.ngram_mod import place_of
from core.rounds.causes import Cause
from core.rounds.draft import Draft
from core.rounds.round import Verdict
from core.verification.rules import SpeculativeSampling
from tests.helpers import toys
from tests.helpers.toys import GREEDY, HOT, PROMPT, plain, run

TEXT = st.lists(st.integers(0, 3), min_size=1, max_size=40)  # few tokens: most n-grams repeat
TEXTS = st.lists(TEXT, max_size=3)


def drafted(drafter, text):
    drafter.extend(text[:-1], None)
    return Chain()(drafter.begin(text[-1], 1), text, 64).tokens[1:].tolist()


def slowly(text, earlier, n, least, most):
    """The last token that followed the last n, looked for from the newest place backwards. The
    text's last token is the root, which is looked up and not yet a follower."""
    path = list(text)
    while len(path) - len(text) < most and len(path) >= n:
        after = next(
            (
                some[at + n]
                for some in (text[:-1], *reversed(earlier))
                for at in range(len(some) - n - 1, -1, -1)
                if some[at : at + n] == path[-n:]
            ),
            None,
        )
        if after is None:
            break
        path.append(after)
    found = path[len(text) :]
    return found if len(found) >= least else []


@settings(max_examples=400, deadline=None)
@given(TEXT, TEXT, TEXTS, st.integers(1, 4), st.integers(0, 4), st.integers(1, 9))
def test_it_drafts_what_the_newest_same_n_tokens_were_followed_by(
    first, text, earlier, n, least, most
):
    drafter = toys.ngram_mod_drafter(earlier, n_match=n, n_min=least, n_max=most)
    assert drafted(drafter, first) == slowly(first, earlier, n, least, most)
    drafter.reset(0)
    for token in text[:-1]:  # token by token, with nothing of the text before
        drafter.extend([token], None)
    expected = slowly(text, earlier, n, least, most)
    assert Chain()(drafter.begin(text[-1], 1), text, 64).tokens[1:].tolist() == expected


def test_the_place_is_that_of_llama_cpps_hash():
    """By its definition in 64-bit words, here in numpy's."""
    tokens = np.array([49151, 0, 7, 12000, 3] * 5, np.uint64)
    found = np.zeros(1, np.uint64)
    for token in tokens:
        found = found * np.uint64(6364136223846793005) + token
    assert place_of(tokens.tolist()) == int(found[0] % np.uint64(4 * 1024 * 1024))


def test_two_runs_of_one_place_take_each_others_token(monkeypatch):
    monkeypatch.setattr(ngram_mod, "PLACES", 1)
    drafter = toys.ngram_mod_drafter(n_match=2, n_min=0, n_max=3)
    assert drafted(drafter, [1, 2, 3, 4, 5, 6, 7]) == [6, 6, 6], "the newest one, whatever came"


@pytest.mark.parametrize("streak", [0, 1, 3])
def test_bad_drafts_in_a_row_make_it_forget_earlier_texts(streak):
    earlier = [[t, (t + 1) % toys.VOCABULARY] for t in range(toys.VOCABULARY)]  # none is right
    sizes = {"n_match": 1, "n_min": 1, "n_max": 4}
    drafter = toys.ngram_mod_drafter(earlier, **sizes, streak=streak, low=0.5)
    found = run(Decoder("m", drafter, Chain()), 80, HOT, 4)
    assert found.tokens == plain(80, HOT)
    bad, kept, text = 0, earlier, [*PROMPT, found.tokens[0]]
    silent = 0
    for record in found.rounds:
        tokens = record.draft.tokens[1:].tolist()
        assert tokens == slowly(text, kept, 1, 1, 4)
        silent += not tokens
        if tokens:
            bad = bad + 1 if record.accepted / len(tokens) < 0.5 else 0
        if bad == streak > 0:
            bad, kept = 0, []
        text += record.committed
    assert (kept == []) == (silent > 0) == (streak > 0)


def test_a_good_draft_ends_a_streak_of_bad_ones():
    drafter = toys.ngram_mod_drafter([[1, 2, 3]], n_match=1, n_min=1, n_max=4, streak=3)
    draft = Draft.chain([1, 2, 3, 4, 5])

    def told(accepted):
        drafter.observe(draft, Verdict(tuple(range(accepted + 1)), np.full(5, -1)))
        return drafter.table.follow([1], 4)

    assert [told(n) for n in (0, 0, 1, 0, 0)] == [[2, 3]] * 5, "a quarter is enough"
    drafter.observe(Draft.root_only(1), Verdict((0,), np.array([-1])))  # nothing drafted, no sign
    assert told(0) == []


@pytest.mark.parametrize("sampling", [GREEDY, HOT], ids=["greedy", "hot"])
def test_rounds_say_why_nothing_or_no_more_was_drafted(sampling):
    future = plain(120, sampling)
    drafter = toys.ngram_mod_drafter([future[:60]], n_match=3, n_min=4, n_max=8)
    found = run(Decoder("m", drafter, Chain()), 120, sampling, 64, observe=observe)
    assert found.tokens == future
    causes = set()
    for record in found.rounds:
        causes.add(record.stop_reason)
        assert record.draft.nodes == 0 or 4 <= record.draft.nodes <= 8
        assert (record.draft.nodes == 0) == (record.stop_reason == Cause.NO_DRAFT)
        assert (record.probe is None) == (record.draft.nodes == 0)
        if record.probe is not None:  # q is 1 for the drafted token
            p = np.exp(record.target_probs.log_p[1])
            np.testing.assert_allclose(record.probe.tvd[0], 1 - p, atol=1e-5)
    assert causes >= {Cause.NO_DRAFT, Cause.BEYOND}
    assert max(record.accepted for record in found.rounds) == 8


def test_a_draft_can_be_verified_by_speculative_sampling():
    drafter = toys.ngram_mod_drafter([plain(40, HOT)], n_match=2, n_min=1, n_max=4)
    found = run(Decoder("m", drafter, SampledChain(), SpeculativeSampling), 60, HOT, 5)
    assert len(found.tokens) == 60 and max(r.draft.nodes for r in found.rounds) > 1


def test_why_it_cannot_be_asked_apart_from_its_run_is_one_sentence():
    for check in (check_listable, check_asked_anywhere):
        with pytest.raises(UserError, match="learns from the rounds of its own run"):
            check("ngram-mod")
