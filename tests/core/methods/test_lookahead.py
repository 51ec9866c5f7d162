"""Lookahead: the window, the pool, and a text that stays plain decoding's."""

import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.collected.collection import check_asked_anywhere, check_listable
from analysis.measures.probe import observe
from core.decoding.decode import Decoder, decode
from core.decoding.request import Settings
from core.drafting.builders import Chain, SampledChain, best_first
from core.errors import UserError
from core.methods.lookahead import NEWEST, SHARED, GramPool, PoolSession
from core.rounds.round import SIDE
from core.traces.writer import round_to_json
from core.verification.rules import SpeculativeSampling
from tests.helpers import toys
from tests.helpers.fakes import round_from_json
from tests.helpers.toys import GREEDY, HOT, PROMPT, plain, run

SIZES = [(5, 7, 7), (2, 3, 2), (3, 1, 4), (4, 5, 1)]


def rounds_of(sampling, sizes, count=60, prompt=PROMPT, **more):
    """Rounds of a run, with a copy of window and pool before each."""
    drafter = toys.lookahead_drafter(**dict(zip(("gram", "window", "guesses"), sizes, strict=True)))
    before, begin = [], drafter.begin

    def noted(root, width):
        session = begin(root, width)
        before.append((drafter.window.copy(), copy.deepcopy(drafter.pool._grams)))
        return session

    drafter.begin = noted
    target, method = toys.target(layers=()), Decoder("lookahead", drafter, best_first)
    found = list(decode(target, method, prompt, Settings(64, count, sampling), **more))
    before.append((drafter.window, drafter.pool._grams))
    return found, before


@pytest.mark.parametrize("sampling", [GREEDY, HOT], ids=["greedy", "hot"])
@pytest.mark.parametrize("sizes", SIZES)
def test_window_and_pool_are_those_of_a_slow_simulation(sizes, sampling):
    """Every token of the window is checked with a forward of the reference over just what its
    place may see, at the places it should stand at; the pool is kept by hand."""
    n, w, g = sizes
    found, states = rounds_of(sampling, sizes, 24, observe=observe)
    text, pool = [*PROMPT, int(found[0].draft.tokens[0])], {}
    for turn, record in enumerate(found):
        window, held = states[turn]
        assert {k: v for k, v in held.items() if v} == pool
        known, said = text[: record.position], []
        for column in range(w):
            above = [text[record.position], *window[0, 1 : column + 1].tolist()]
            path = [*above, *window[1:, column].tolist()]
            assert len(path) == n - 1 + column
            logits = toys.full_forward([*known, *path]).logits[-1].numpy()
            said.append(toys.own_choice(logits, sampling, record.position + len(path)))
        after, _ = states[turn + 1]
        assert after[-1].tolist()[1:] == said[1:] or n == 2
        if n > 2:
            assert after[-1].tolist() == said
            np.testing.assert_array_equal(after[:-1].ravel()[1:], window[1:].ravel()[1:])
        for column in range(w) if turn >= n - 2 else ():
            key = text[record.position] if column == 0 else int(window[0, column])
            gram = (*window[1:, column].tolist(), said[column])
            pool[key] = (
                [old for old in pool.get(key, []) if old != gram][-(g - 1) :] if g > 1 else []
            )
            pool[key].append(gram)
        text += record.committed


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4)), max_size=60), st.integers(1, 4))
def test_the_pool_forgets_what_was_seen_longest_ago(adds, size):
    pool, log = GramPool(size), list[tuple[int, int]]()
    for key, value in adds:
        pool.add(key, (value,))
        log.append((key, value))
        for token in range(3):
            newest = dict.fromkeys(v for k, v in reversed(log) if k == token)
            kept = pool.after(token)
            assert set(kept) <= {(v,) for v in newest} and len(kept) == min(size, len(set(kept)))
    for token in range(3):  # the list by hand: what is dropped never comes back by itself
        held = []
        for key, value in adds:
            if key == token:
                held = [*[v for v in held if v != value], value][-size:]
        assert pool.after(token) == [(v,) for v in reversed(held)]


GRAMS = st.lists(st.tuples(*[st.integers(0, 2)] * 3), max_size=6, unique=True)


@settings(deadline=None)
@given(GRAMS)
def test_q_is_the_share_of_the_pools_n_grams(grams):
    draft = best_first(PoolSession(grams, 3, toys.VOCABULARY), [7], 64)
    paths = {tuple(draft.tokens[list(draft.path(r))[1:]].tolist()): r for r in range(1, len(draft))}
    assert paths.keys() == {g[:n] for g in grams for n in (1, 2, 3)}
    session = PoolSession(grams, 3, toys.VOCABULARY)
    for path, row in paths.items():
        through = [age for age, g in enumerate(grams, 1) if g[: len(path)] == path]
        parents = [g for g in grams if g[: len(path) - 1] == path[:-1]]
        assert draft.log_q[row] == pytest.approx(np.log(len(through) / len(parents)), abs=1e-6)
        assert draft.notes[SHARED][row] == len(through) and draft.notes[NEWEST][row] == through[0]
        told = session.log_q([7, *path[:-1]])[-1].exp()
        assert float(told.sum()) == pytest.approx(1)
        assert float(told[path[-1]]) == pytest.approx(len(through) / len(parents))
    assert not session.log_q([7, 40])[-1].exp().any()


@pytest.mark.parametrize("sampling", [GREEDY, HOT], ids=["greedy", "hot"])
@pytest.mark.parametrize("sizes", SIZES)
def test_the_text_is_plain_decodings_and_side_rows_are_shown_as_such(sizes, sampling):
    found, _ = rounds_of(sampling, sizes, 40, observe=observe)
    text = [int(found[0].draft.tokens[0]), *(t for r in found for t in r.committed)]
    assert tuple(text) == plain(40, sampling)
    for record in found:
        side = record.draft.side
        assert len(side) == (sizes[0] - 1) * sizes[1] - 1
        assert {record.status[row] for row in side} == {SIDE}
        again = round_from_json(round_to_json(record))
        assert again.draft.side == side and again.stop_reason == record.stop_reason


def test_a_whole_n_gram_may_be_accepted_with_the_token_after_it():
    """The published code takes N − 1 tokens a step at most."""
    drafter = toys.lookahead_drafter(gram=4)
    text = [*PROMPT, *plain(40)]
    for at, first in enumerate(text[:-3]):
        drafter.pool.add(first, tuple(text[at + 1 : at + 4]))
    drafter.reset = lambda capacity: None
    found = run(Decoder("m", drafter, best_first), 30, budget=64)
    assert found.tokens == plain(30)
    assert max(len(record.committed) for record in found.rounds) == 4


@pytest.mark.parametrize("builder", [Chain(), SampledChain(), SampledChain(coupled=True)])
def test_it_goes_with_other_builders_and_rules(builder):
    assert run(Decoder("m", toys.lookahead_drafter(), builder), 60, HOT, 9).tokens == plain(60, HOT)
    classic = Decoder("m", toys.lookahead_drafter(), SampledChain(), SpeculativeSampling)
    found = run(classic, 60, HOT, 9)
    assert len(found.tokens) == 60
    assert all((r.verdict.target_tokens[sorted(r.draft.side)] >= 0).all() for r in found.rounds)


def test_why_it_cannot_be_asked_apart_from_its_run_is_one_sentence():
    for check in (check_listable, check_asked_anywhere):
        with pytest.raises(UserError, match="learns from the rounds of its own run") as error:
            check("lookahead")
        assert "\n" not in str(error.value)
    check_asked_anywhere("sps")
