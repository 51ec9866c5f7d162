"""Whether a text follows the recorded p: bounds against whole distributions, texts drawn from p."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.measures.findings import findings
from analysis.measures.strays import Judge, Strays
from analysis.measures.tables import Tables
from core.rounds.round import Round
from core.traces.reader import read_trace
from core.traces.record import Recorder
from core.traces.schema import Header, Trace
from tests.helpers.fakes import make_header

VOCABULARY = 64


def header(**settings) -> Header:
    return replace(make_header("why?", "ddtree"), settings=settings)


@pytest.mark.parametrize(
    "settings", [{}, {"temperature": 1.2}, {"temperature": 1.0, "processors": "min_p 0.1"}]
)
def test_a_run_whose_settings_do_not_tell_is_not_judged(settings):
    assert Judge.of(header(**settings)) is None


def test_the_precision_says_how_near_a_greedy_token_is():
    found = [
        Judge.of(replace(header(temperature=0.0), dtype=d)) for d in ("float32", "bfloat16", "")
    ]
    assert [judge and judge.tie for judge in found] == [0.1, 0.5, 0.5]


@given(st.integers(0, 999), st.integers(1, VOCABULARY), st.sampled_from([0.1, 0.3, 0.7, 1.0]))
def test_the_best_token_s_share_is_never_less_than_the_bound(seed, listed, heat):
    p = np.sort(np.random.default_rng(seed).dirichlet(np.full(VOCABULARY, 0.2)) + 1e-9)[::-1]
    p /= p.sum()
    (bound,) = Judge(heat, 0.1)._share(np.log(p[None, :listed]))
    share = p[0] ** (1 / heat) / (p ** (1 / heat)).sum()
    assert bound <= share * (1 + 1e-9)
    if listed == VOCABULARY or heat == 1.0:
        assert bound == pytest.approx(share)


def test_sums_are_unlikely_where_neither_chance_nor_precision_explains_them():
    assert not Strays(100, 50, 30.0).unlikely and Strays(100, 54, 30.0).unlikely  # σ 4.6
    assert not Strays(10**6, 310_000, 300_000.0).unlikely and Strays(10**6, 316_000, 3e5).unlikely
    assert Strays(9, 1).unlikely and not Strays().unlikely


def written(folder, heat: float, choose, rounds=200) -> Trace:
    """A run whose rounds refuse the one token drafted and write ``choose(p, draw)``."""
    draw = np.random.default_rng(5)
    settings = {"temperature": heat}
    with Recorder(path := folder / "a.jsonl", "mine", [1], budget=1, settings=settings) as record:
        root = 1
        for _ in range(rounds):
            p = draw.dirichlet(np.full(VOCABULARY, 0.1), 2)
            token = choose(p[0], draw)
            drafted = (token + 1) % VOCABULARY
            record.round([root, drafted], [-1, 0], [0], token, p=p)
            root = token
    return read_trace(path)


def tempered(heat: float):
    def choose(p, draw):
        odds = p ** (1 / heat)
        return int(draw.choice(VOCABULARY, p=odds / odds.sum()))

    return choose


def text_of(trace: Trace) -> list[str]:
    return [each.words for each in findings(Tables.of({"A": trace})) if each.about == "text"]


def best(p, _):
    return int(p.argmax())


def second(p, _):
    return int(np.argsort(p)[-2])


@pytest.mark.parametrize(
    ("heat", "choose"), [(0.0, best), (1.0, tempered(1.0)), (0.6, tempered(0.6)), (1.0, best)]
)
def test_nothing_is_said_of_a_text_that_follows_p(tmp_path, heat, choose):
    assert not text_of(written(tmp_path, heat, choose))


def test_a_greedy_text_of_other_tokens_is_said(tmp_path):
    (words,) = text_of(written(tmp_path, 0.0, second, 20))
    assert "of 20 greedy tokens are neither the best of p nor near it." in words
    apart = sum(
        bool(np.diff(record.target_probs.top_log_p[0, :2])[0] < -0.5)
        for record in written(tmp_path, 0.0, second, 20).rounds
    )
    assert f"follow p: {apart} of 20 " in words


def test_a_sampled_text_that_p_hardly_allows_is_said(tmp_path):
    trace = written(tmp_path, 1.0, lambda p, draw: int(draw.integers(VOCABULARY)))
    (words,) = text_of(trace)
    lost = sum(r.verdict.bonus != r.target_probs.top_ids[0, 0] for r in trace.rounds)
    most = sum(1 - np.exp(r.target_probs.top_log_p[0, 0]) for r in trace.rounds)
    assert f"follow p: {lost} of 200 sampled tokens are not the best of p, " in words
    assert f" where {most:.0f} at most may be expected." in words


@pytest.mark.parametrize(
    ("token", "log_p", "found"),
    [
        (3, [-0.7, -1.2], Strays(1, 0)),
        (4, [-0.7, -0.75], Strays(1, 0)),
        (4, [-0.7, -1.2], Strays(1, 1)),
        (7, [-0.7, -1.2], Strays(1, 1)),
        (7, [-0.7, -0.75], Strays()),  # behind the list it may be as near
        (3, [np.nan, np.nan], Strays()),
    ],
)
def test_a_greedy_token_is_judged_where_the_list_tells(tmp_path, token, log_p, found):
    record = written(tmp_path, 0.0, best, 1).rounds[0]
    probs = replace(
        record.target_probs, top_ids=np.array([[3, 4]] * 2), top_log_p=np.array([log_p] * 2)
    )
    verdict = replace(record.verdict, bonus_token=token)
    assert Judge(0.0, 0.1).strays(replace(record, verdict=verdict, target_probs=probs)) == found


@pytest.mark.parametrize(("rule", "said"), [("standard", 1), ("block", 0), (None, 0)])
def test_a_refused_token_that_was_written_is_a_fault_of_the_standard_rule(tmp_path, rule, said):
    trace = written(tmp_path, 0.0, best, 9)

    def refused(record: Round) -> Round:
        drafted = int(record.draft.tokens[1])
        verdict = replace(record.verdict, bonus_token=drafted)
        return replace(record, verdict=verdict, committed=(drafted,))

    rounds = tuple(refused(r) if n < 2 else r for n, r in enumerate(trace.rounds))
    named = replace(
        trace.header, settings={**trace.header.settings, **({"rule": rule} if rule else {})}
    )
    tables = Tables.of({"A": replace(trace, header=named, rounds=rounds)})
    found = [each for each in findings(tables) if each.about == "rule"]
    assert len(found) == said
    if said:
        assert "has just refused, and did in 2 of 9 rounds: " in found[0].words
        assert (found[0].n, found[0].round) == (2, 1)
