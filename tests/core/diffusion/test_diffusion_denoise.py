"""Plain denoising and Spiffy against an independent sampler; the rules of drafts and records."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.diffusion.denoise import denoise
from core.diffusion.draft_graph import make_graph
from core.diffusion.nfe import NfeCounts, count_nfe, denoised_tokens, simulate
from core.diffusion.ranking import TokenRule, rank_positions
from core.diffusion.request import DenoiseSettings, Pace
from core.diffusion.verify import draft_states
from core.errors import UserError
from core.rounds.blocks import MASKED, Ranking
from core.rounds.causes import Cause
from core.rounds.round import ACCEPTED, REJECTED, UNREACHED, Times
from core.traces.schema import summary
from core.traces.writer import round_to_json
from core.verification.walk import until_stop
from tests.helpers.diffusion_toys import (
    MASK,
    PROMPT,
    VOCABULARY,
    ToyTarget,
    chain,
    graphs,
    paces,
    plain_text,
    run,
)

SMALL = DenoiseSettings(length=16, block=8)
all_settings = st.builds(
    DenoiseSettings,
    length=st.sampled_from([8, 16]),
    block=st.sampled_from([8, 4, 2]),
    pace=paces,
    temperature=st.sampled_from([0.0, 0.0, 1.3]),
    seed=st.integers(0, 3),
    ahead=st.sampled_from([0.0, 0.0, 0.3, 0.6, 1.0]),
    go_on=st.booleans(),
).filter(lambda s: s.pace.tokens <= s.block)
targets = st.builds(
    ToyTarget,
    seed=st.integers(0, 50),
    coupling=st.sampled_from([0.0, 0.05, 0.2, 0.6]),
    stop=st.sampled_from([(), (2,), (5, 7)]),
)


@settings(max_examples=200, deadline=None)
@given(targets, all_settings, st.none() | graphs)
def test_the_text_is_the_independent_samplers_with_and_without_a_graph(target, s, graph):
    text, calls = plain_text(target, s)
    rounds = run(target, s, graph)
    assert denoised_tokens(rounds) == text
    assert len(rounds) == target.forwards <= calls
    assert sum(len(r.block.steps) for r in rounds) == calls
    assert sum(r.block.saved for r in rounds) == calls - len(rounds)
    if graph is None:
        assert len(rounds) == calls and all(r.draft.nodes == 0 for r in rounds)


@settings(max_examples=100, deadline=None)
@given(targets, all_settings, graphs)
def test_the_calls_of_any_graph_follow_from_a_plain_runs_record(target, s, graph):
    real = run(target, s, graph)
    simulated = tuple(simulate(run(target, s), graph, s.pace))
    timeless = [round_to_json(replace(r, times=Times())) for r in real]
    assert timeless == [round_to_json(r) for r in simulated]
    again = tuple(simulate(real, None, s.pace))  # and back
    assert [round_to_json(r) for r in again] == [
        round_to_json(replace(r, times=Times())) for r in run(target, s)
    ]


@settings(max_examples=100, deadline=None)
@given(targets, all_settings, graphs)
def test_every_draft_is_a_state_that_a_step_of_its_parents_could_lead_to(target, s, graph):
    for record in run(target, s, graph):
        states, block = draft_states(record.draft, record.block.state), record.block
        masked = (states == MASKED).sum(1)
        assert len({state.tobytes() for state in states}) == len(states), "no state twice"
        assert (masked > 0).all(), "a finished block needs no distribution"
        assert len(record.draft) <= len(graph) + 1
        for row in range(1, len(states)):
            assert record.draft.links[row] and record.draft.parents[row] in record.draft.links[row]
            for parent in record.draft.links[row]:
                before = states[parent] != MASKED
                assert (states[row][before] == states[parent][before]).all()
                step = masked[parent] - masked[row]
                if s.pace.threshold is None:
                    assert step == s.pace.remaining_sizes(int(masked[parent]), s.block)[0]
                assert step >= 1
            edited = block.state.copy()
            for edit in record.draft.edits[row]:
                edited[edit.position] = edit.token
            assert (edited == states[row]).all()
            above, scores = record.draft.parents[row], record.draft.scores
            path_p = scores[above] + record.draft.log_q[row]
            assert scores[row] == pytest.approx(path_p, abs=1e-3)


@settings(max_examples=60, deadline=None)
@given(targets, all_settings, graphs)
def test_a_call_records_where_its_steps_came_from(target, s, graph):
    step = 0
    for number, record in enumerate(run(target, s, graph)):
        block, path = record.block, record.verdict.path
        assert (record.index, block.step) == (number, step)
        assert record.position == len(PROMPT) + block.index * s.block
        assert len(path) == len(block.steps)
        for k, row in enumerate(path):  # step k was decided in the state that row stands for
            before = block.after(k)
            assert (draft_states(record.draft, block.state)[row] == before).all()
            ranking = block.steps[k].ranking
            assert sorted(ranking.positions) == np.flatnonzero(before == MASKED).tolist()
            first, p = ranking.positions.min(), ranking.p[:, 0]
            free = (p >= np.float32(s.pace.ahead(s.ahead))) | (ranking.positions == first)
            assert (np.diff(free.astype(int)) <= 0).all()  # these come before all others,
            assert (np.diff(p[free]) <= 0).all()  # the surest first,
            assert (np.diff(ranking.positions[~free]) > 0).all()  # the others from left to right
            assert record.verdict.target_tokens[row] == block.steps[k].tokens[0]
            assert MASK not in ranking.ids
        assert record.committed == tuple(t for x in block.steps for t in x.tokens.tolist())
        assert record.accepted == block.saved
        for row, status in enumerate(record.status):
            linked = set(record.draft.links[row]) & set(path)
            assert status == (ACCEPTED if row in path else REJECTED if linked else UNREACHED)
            assert record.why(row)
        done = MASKED not in block.after()
        words = (
            Cause.BLOCK_DONE
            if done
            else Cause.NOT_IN_GRAPH
            if record.draft.nodes
            else Cause.NO_DRAFT
        )
        assert record.stop_reason == words
        step += len(block.steps)


def test_the_summary_of_a_run_counts_its_tokens_and_its_nfe_speedup():
    rounds = run(ToyTarget(coupling=0.05), SMALL, chain(5))
    numbers = summary(rounds)
    assert numbers["tokens"] == 16
    assert numbers["tau"] == 16 / len(rounds) > 1.5


def test_more_coupling_accepts_fewer_drafts():
    calls = [
        sum(len(run(ToyTarget(seed, coupling), SMALL, chain(5))) for seed in range(8))
        for coupling in (0.0, 0.2, 1.0)
    ]
    assert calls[0] < calls[1] < calls[2]
    # without coupling the ranking never moves: per block one call alone, then 6 steps a call
    assert calls[0] == 8 * 2 * 3


# ── verification, case by case ───────────────────────────────────────────────────────────────────


class Scripted(ToyTarget):
    """Unmasks the block's positions in ``order``, always with token = position."""

    def __init__(self, order):
        super().__init__()
        self.order = order

    def logits(self, state):
        """The position that is next has the highest confidence, the others by a fixed order that
        the first call already shows: 0, 1, 2 …"""
        out = np.zeros((self.size, self.vocabulary))
        place = int((state != MASK).sum())
        for position in range(self.size):
            out[position, position] = 6 - position / 2
        if place < len(self.order):
            out[self.order[place], self.order[place]] = 20
        return out


def first_drafted(order, graph, block=6):
    """The first call of a run that drafted: its record. The step before it took position 0."""
    target = Scripted(order)
    rounds = tuple(denoise(target, PROMPT, DenoiseSettings(length=block, block=block), graph))
    assert denoised_tokens(rounds) == list(range(block))
    return rounds[1]


@pytest.mark.parametrize(
    ("formulas", "order", "path", "status"),
    [
        # Both parents lead to the node. The ranking is 1, 2, 3, …: c11 is position 1.
        ([[(1, 1)], [(2, 1)], [(1, 1), (2, 1)]], [1, 2], (0, 1, 3), "aara"),
        ([[(1, 1)], [(2, 1)], [(1, 1), (2, 1)]], [2, 1], (0, 2, 3), "araa"),
        # A node whose parents were all missed is unreached.
        ([[(1, 1)], [(1, 1), (2, 1)]], [3, 1, 2], (0,), "aru"),
    ],
)
def test_a_node_is_reached_through_any_of_its_parents(formulas, order, path, status):
    names = {"a": ACCEPTED, "r": REJECTED, "u": UNREACHED}
    rest = [p for p in range(1, 6) if p not in order]
    record = first_drafted([0, *order, *rest], make_graph(formulas))
    last = len(record.draft) - 1
    assert record.draft.parents[last] == 1 and 1 in record.draft.links[last]
    assert record.verdict.path == path and record.block.saved == len(path) - 1
    assert record.status == tuple(names[mark] for mark in status)
    if len(path) == 1:
        assert record.stop_reason == Cause.NOT_IN_GRAPH and record.why(last) == UNREACHED


def test_a_graph_that_asks_for_more_positions_than_remain_loses_those_nodes():
    graph = chain(9)
    sizes = [r.draft.nodes for r in run(ToyTarget(coupling=1.5), DenoiseSettings(8, 8), graph)]
    # 8 − s masked after s steps; a draft that finishes the block is not run
    left = [8 - r.block.step for r in run(ToyTarget(coupling=1.5), DenoiseSettings(8, 8), graph)]
    assert sizes == [0, *(max(0, n - 1) for n in left[1:])]


def test_ranks_that_are_not_there_lose_their_nodes():
    graph = make_graph([[(1, 1)], [(1, VOCABULARY)], [(7, 1)]])
    rounds = run(ToyTarget(), DenoiseSettings(8, 8), graph)
    assert rounds[1].draft.nodes == 2  # 7 positions are masked; 12 tokens are not the mask
    assert all(r.draft.nodes <= 1 for r in rounds[2:])


def test_a_position_is_scored_only_where_it_can_still_be_unmasked():
    target, graph = ToyTarget(), chain(3)
    rounds = run(target, DenoiseSettings(8, 8), graph)
    states = [draft_states(r.draft, r.block.state) for r in rounds]
    assert target.scored == sum(int((s == MASKED).sum()) for s in states)


def test_end_of_text_inside_a_block_ends_after_that_block():
    plain = denoised_tokens(run(ToyTarget(4), replace(SMALL, length=32)))
    stop = plain[9]  # in the middle of the second block
    first = plain.index(stop)
    cut = run(ToyTarget(4, stop=(stop,)), replace(SMALL, length=32), chain(4))
    assert denoised_tokens(cut) == plain[: (first // 8 + 1) * 8]
    assert until_stop(denoised_tokens(cut), frozenset({stop})) == plain[: first + 1]
    on = run(ToyTarget(4, stop=(stop,)), replace(SMALL, length=32, go_on=True), chain(4))
    assert denoised_tokens(on) == plain
    assert count_nfe(on, frozenset({stop})) == count_nfe(cut, frozenset({stop}))
    assert count_nfe(on, frozenset()).plain == 32 > count_nfe(cut, frozenset({stop})).plain


def test_the_counts_of_a_run_add_up_per_block_and_per_level():
    rounds = run(ToyTarget(coupling=0.1), SMALL, chain(5))
    found = count_nfe(rounds, frozenset())
    assert found.calls == len(rounds) and found.plain == 16
    assert found.speedup == 16 / len(rounds)
    one = count_nfe(run(ToyTarget(), replace(SMALL, length=8), chain(5)), frozenset())
    both = NfeCounts.total([found, one])
    assert both.plain == 16 + 8 and both.calls == found.calls + one.calls
    assert [plain for _, plain in found.blocks] == [8, 8]
    assert sum(level.accepted for level in found.levels) == 16 - len(rounds)
    for above, below in itertools.pairwise(found.levels):
        assert above.accepted >= below.accepted and above.drafted >= below.drafted
    assert found.levels[0].drafted == sum(r.draft.nodes > 0 for r in rounds)


def test_a_target_that_is_not_exact_may_write_another_text_and_the_record_stays_true():
    differing = 0
    for seed in range(12):
        exact = denoised_tokens(run(ToyTarget(seed), SMALL, chain(5)))
        rounds = run(ToyTarget(seed, drift=1.0), SMALL, chain(5))
        differing += denoised_tokens(rounds) != exact
        assert len(denoised_tokens(rounds)) == 16
    assert differing > 0


# ── paces ────────────────────────────────────────────────────────────────────────────────────────


@given(st.integers(1, 40), st.integers(1, 40))
def test_transfer_counts_fill_the_block_and_give_the_remainder_to_the_first_steps(block, tokens):
    counts = Pace(tokens).step_sizes(block)
    assert sum(counts) == block and len(counts) == -(-block // tokens)
    assert list(counts) == sorted(counts, reverse=True)
    assert max(counts) - min(counts) <= 1 and max(counts) <= tokens
    masked = block
    for count in counts:
        assert Pace(tokens).remaining_sizes(masked, block)[0] == count
        masked -= count
    assert masked == 0


def test_a_threshold_takes_all_positions_above_it_and_at_least_one():
    pace = Pace(threshold=0.5)
    assert pace.next_size(np.array([0.9, 0.5, 0.49], np.float32), 8) == 2
    assert pace.next_size(np.array([0.4, 0.3], np.float32), 8) == 1


def test_with_a_threshold_one_step_may_skip_levels():
    target, pace = ToyTarget(coupling=0.02), Pace(threshold=0.4)
    rounds = run(target, DenoiseSettings(16, 16, pace), chain(10))
    accepted = [
        later - earlier for r in rounds for earlier, later in itertools.pairwise(r.verdict.path)
    ]
    assert denoised_tokens(rounds) == plain_text(target, DenoiseSettings(16, 16, pace))[0]
    assert accepted, "some draft was accepted"


def test_with_a_threshold_every_subset_is_a_parent_and_a_level_is_the_longest_way():
    pairs = (1, 1), (2, 1), (3, 1)
    draft = make_graph([pairs[:1], pairs[:2], pairs], Pace(threshold=0.4)).outline()
    assert draft.depths.tolist() == [0, 1, 2, 3] and draft.parents.tolist() == [-1, 0, 1, 2]
    assert [*map(tuple, draft.sources)] == [(), (0,), (0, 1), (0, 1, 2)]


# ── ranking ──────────────────────────────────────────────────────────────────────────────────────


def ranked(logits, places=None, rule=None, width=3) -> Ranking:
    logits = torch.tensor(logits, dtype=torch.float64)
    places = np.arange(len(logits)) if places is None else np.array(places)
    return rank_positions(logits, places, 0, rule or TokenRule(mask_id=99), width)


def test_equal_confidence_goes_to_the_lowest_position_and_equal_odds_to_the_lowest_token():
    rows = [[0.0, 1, 1, 0], [0.0, 0, 0, 3], [0.0, 1, 1, 0], [0.0, 0, 0, 3]]
    found = ranked(rows, [7, 5, 3, 6], width=4)
    assert found.positions.tolist() == [5, 6, 3, 7]
    assert found.ids.tolist() == [[3, 0, 1, 2]] * 2 + [[1, 2, 0, 3]] * 2


def test_the_mask_token_is_never_chosen_but_keeps_its_odds():
    found = ranked([[0.0, 5.0, 1.0]], rule=TokenRule(mask_id=1), width=3)
    assert found.ids.tolist() == [[2, 0]]
    odds = np.exp([0.0, 5.0, 1.0])
    assert np.allclose(found.p[0], [odds[2] / odds.sum(), odds[0] / odds.sum()])


@given(st.lists(st.lists(st.integers(0, 3), min_size=6, max_size=6), min_size=1, max_size=5))
def test_ties_anywhere_are_broken_as_a_stable_sort_breaks_them(rows):
    found = ranked([[float(v) for v in row] for row in rows], width=4)
    for position, ids in zip(found.positions, found.ids, strict=True):
        assert ids.tolist() == np.argsort(-np.array(rows[position]), kind="stable")[:4].tolist()


def test_noise_depends_on_seed_and_position_alone():
    flat = np.zeros((3, 40)).tolist()
    rule = TokenRule(99, temperature=1.0, seed=5)
    once = ranked(flat, [0, 1, 2], rule)
    tokens = dict(zip(once.positions.tolist(), once.ids[:, 0].tolist(), strict=True))
    again = ranked(flat[:1], [2], TokenRule(99, temperature=1.0, seed=5))
    assert again.ids[0, 0] == tokens[2]
    other = ranked(flat, [0, 1, 2], TokenRule(99, temperature=1.0, seed=6))
    assert other.ids.tolist() != once.ids.tolist()


def test_half_precision_is_widened_before_the_softmax():
    logits = torch.randn(4, 50).to(torch.bfloat16)
    found = rank_positions(logits, np.arange(4), 0, TokenRule(99), 2)
    assert found.p.dtype == np.float32
    best = logits.float().softmax(-1).max(-1).values.numpy()
    assert np.array_equal(found.p[:, 0], np.sort(best)[::-1])


# ── bad input ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "wrong",
    [
        {"block": 0},
        {"length": 0},
        {"length": 20},
        {"length": 1 << 20},
        {"pace": Pace(0)},
        {"pace": Pace(9)},
        {"pace": Pace(threshold=0.0)},
        {"pace": Pace(threshold=1.5)},
        {"pace": Pace(threshold=float("nan"))},
        {"temperature": -1.0},
        {"temperature": float("nan")},
    ],
)
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(UserError):
        next(denoise(ToyTarget(), PROMPT, replace(SMALL, **wrong)))


@pytest.mark.parametrize("prompt", [(), (1, -1), (1, VOCABULARY)])
def test_a_prompt_without_tokens_or_with_strange_ones_is_refused(prompt):
    with pytest.raises(UserError):
        next(denoise(ToyTarget(), prompt, SMALL))
