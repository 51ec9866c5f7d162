"""Findings against plain counts on the raw JSON lines: no number in a sentence is another's."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.charts import figures
from analysis.measures import causes, reliability
from analysis.measures.finding import Finding
from analysis.measures.findings import (
    FLAT,
    _kept_promise,
    findings,
    flat_from,
)
from analysis.measures.outstanding import FLY, LOSSY, SIMULATED
from analysis.measures.tables import Tables
from analysis.numbers import number, percent
from core.rounds.causes import Cause
from core.rounds.draft import NOT_ASKED
from core.rounds.round import Probe
from core.stats import FEW_SEEN, ratio_interval
from core.traces.reader import read_trace
from core.traces.record import Recorder
from core.traces.schema import Trace
from core.traces.writer import write_trace
from tests.helpers import raw_numbers
from tests.helpers.small_traces import METHODS, fake_trace

ENDED = {
    Cause.PRUNED: "ended by budget",
    Cause.OUTSIDE: "ended at a token outside the drafter's candidates",
    Cause.BEYOND: "ended at the last depth",
}


@pytest.fixture(scope="module", params=METHODS)
def told(request, tmp_path_factory) -> tuple[dict[str, Finding], list[dict]]:
    """A run's findings by what they are about, and its raw rounds."""
    path: Path = tmp_path_factory.mktemp("traces") / "run.jsonl"
    write_trace(path, fake_trace(request.param, 7, 40))
    made = findings(Tables.of({"A": read_trace(path)}), by="run")
    assert {finding.label for finding in made} == {"A"}
    return {finding.about: finding for finding in made}, raw_numbers.raw_rounds(path)


def why(r: dict) -> str:
    """Why a round's walk ended, read off the lists again."""
    depth = len(r["path"])
    if depth > len(r["candidates"]["token"]):
        return Cause.BEYOND
    if "offers" in r and r["offers"]["after"][r["path"][-1]] == NOT_ASKED:
        return Cause.PRUNED
    return (
        Cause.PRUNED
        if r["bonus"] in (raw_numbers.offered_after(r, r["path"][-1]) or ())
        else Cause.OUTSIDE
    )


def test_walks_are_counted_by_what_ended_them(told):
    found, rounds = told
    counts = Counter(map(why, rounds))
    said = found["ends"].words
    assert found["ends"].n == len(rounds)
    for cause, count in counts.items():
        assert (
            f"{count} {ENDED[cause]}" in said
            or f"{count} of {len(rounds)} walks {ENDED[cause]}" in said
        )
    most = max(counts.values())
    assert said.startswith(f"{most} of {len(rounds)} walks ")


def test_coverage_is_the_mean_over_all_observed_positions(told):
    found, rounds = told
    seen = [r["probe"]["coverage"][d] for r in rounds
            for d in range(min(len(r["path"]), len(r["candidates"]["token"])))]  # fmt: skip
    k = int(re.search(r"K = (\d+)", found["width"].words)[1])
    mean = [sum(each[i] for each in seen) / len(seen) for i in range(len(seen[0]))]
    assert found["width"].n == len(seen)
    assert f" {percent(mean[k - 1])} of p" in found["width"].words
    assert f"the {len(mean)} best {percent(mean[-1])}" in found["width"].words
    assert ("flat" in found["width"].words) == (mean[-1] - mean[len(mean) // 2 - 1] < FLAT)


def test_coverage_of_a_drafter_that_knows_nothing_is_not_called_flat(tmp_path):
    vocabulary = 200
    p, q = np.zeros((2, vocabulary)), np.full((1, vocabulary), 1 / vocabulary)
    p[:, 150] = 1.0
    with Recorder(path := tmp_path / "a.jsonl", "mine", [1], budget=1) as record:
        for root in [5] + [150] * 24:
            record.round([root, 3], [-1, 0], [0], 150, p=p, q=q)
    (words,) = (
        each.words for each in findings(Tables.of(read_trace(path))) if each.about == "width"
    )
    assert words.startswith(
        "Coverage is next to nothing: the 16 best tokens hold 0% of p, over 25 "
    )


def test_depth_counts_walks_to_the_end_and_accepted_positions(told):
    found, rounds = told
    whole = sum(len(r["path"]) - 1 == len(r["candidates"]["token"]) for r in rounds)
    depths = raw_numbers.by_depth(rounds)
    deepest = max(d for d, c in depths.items() if c["observed"] >= FEW_SEEN)
    said = found["depth"].words
    assert said.startswith(f"{whole} of {len(rounds)} walks ") and "0 of 0" not in said
    for depth in (1, deepest):
        c = depths[depth]
        share = percent(c["accepted"] / c["observed"])
        assert f"depth {depth} in {share} ({c['accepted']} of {c['observed']})" in said


def test_trust_compares_path_q_with_what_was_accepted(told):
    found, rounds = told
    chances = [
        sum(raw_numbers.path_q(r["nodes"], row) for row in range(1, len(r["nodes"]["depth"])))
        for r in rounds
    ]
    accepted = [len(r["path"]) - 1 for r in rounds]
    said, n = found["trust"].words, len(rounds)
    assert found["trust"].n == n
    assert f"add up to {number(np.mean(chances))} tokens" in said
    assert f"and {number(np.mean(accepted))} were accepted" in said
    gaps = np.subtract(chances, accepted)
    furthest = gaps.max() if gaps.mean() > 0 else gaps.min()  # the round that one is sent to
    assert gaps[found["trust"].round - 1] == pytest.approx(furthest)
    low, high = ratio_interval(gaps, np.ones(n))
    verdict = "much" if low > 0 else "little"
    off = f"they promise too {verdict}" if low > 0 or high < 0 else "not shown to be off"
    assert off in said


@pytest.mark.parametrize(("bias", "said"), [(0.3, "too much"), (-0.3, "too little"),
                                            (0.002, "less than 0.01 tokens")])  # fmt: skip
def test_what_is_off_by_next_to_nothing_promises_neither_too_much_nor_too_little(bias, said):
    row = {"bias": bias, "bias_low": bias - 0.001, "bias_high": bias + 0.001, "over": "rounds"}
    assert said in _kept_promise(row)


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [(0.002, 0.02, "[+0.002, +0.020]"), (-0.03, -0.004, "[−0.030, −0.004]"),
     (0.01, 0.02, "[+0.01, +0.02]")],
)  # fmt: skip
def test_a_bound_beside_zero_is_not_written_as_zero(low, high, said, monkeypatch):
    tables = Tables.of({"A": fake_trace(rounds=20)})
    frame = reliability.surrogate(tables, by="run").assign(bias_low=low, bias_high=high)
    monkeypatch.setattr(reliability, "surrogate", lambda *_, **more: frame)
    (trust,) = (each for each in findings(tables, by="run") if each.about == "trust")
    assert f" {said}, over 20 rounds" in trust.words


def test_siblings_are_the_first_mismatches(told):
    found, rounds = told
    missed = [m for m in map(raw_numbers.first_mismatch, rounds) if m is not None]
    second = sum(rank == 2 for rank, _ in missed) / len(missed)
    held = sum(drafted for _, drafted in missed) / len(missed)
    assert found["sibling"].n == len(missed)
    assert f"the second-best in {percent(second)};" in found["sibling"].words
    assert found["sibling"].words.endswith(f"{percent(held)}.")


def test_a_share_of_at_least_none_is_not_told(tmp_path):
    """Ranks are known of drafted tokens alone: at least 0 % says nothing."""
    path, odds = tmp_path / "a.jsonl", [0.0, -1.0, -2.0, -3.0]
    with Recorder(path, "mine", [1], 3) as record:
        for _ in range(6):
            record.round([9, 4, 5, 6], [-1, 0, 0, 0], [0, 3], 9, odds)
            record.round([9, 4, 5, 6], [-1, 0, 0, 0], [0], 9, odds)
    every = findings(Tables.of(read_trace(path)))
    (said,) = (each.words for each in every if each.about == "sibling")
    assert "the second" not in said and "drafted all the same in 50%" in said


def test_a_chain_is_said_to_have_no_sibling(tmp_path):
    with Recorder(path := tmp_path / "a.jsonl", "mine", [1], budget=2) as record:
        for root in (9, *[3] * 8):
            lists = (np.array([[5, 7], [5, 7]]), np.log([[0.6, 0.4], [0.6, 0.4]]))
            odds = [0.0, *np.log([0.4, 0.6])]
            record.round([root, 7, 5], [-1, 0, 1], [0, 1, 2], 3, odds, lists)
    tables = Tables.of({"A": read_trace(path)})
    (said,) = (each.words for each in findings(tables) if each.about == "sibling")
    assert "sibling" not in said and "the token taken was drafted all the same in 100%" in said
    assert set(causes.after_sibling(tables)["context"]) == {"after another token"}


def test_the_round_to_look_at_shows_what_the_sentence_says(told):
    found, rounds = told
    numbered = dict(enumerate(rounds, 1))
    at = {about: numbered[finding.round] for about, finding in found.items()}
    assert {finding.run for finding in found.values()} == {"A"}
    most = Counter(map(why, rounds)).most_common(1)[0][0]
    assert ENDED[why(at["ends"])] in found["ends"].words.split("walks ")[1]
    assert Counter(map(why, rounds))[why(at["ends"])] == Counter(map(why, rounds))[most]
    assert len(at["depth"]["path"]) == max(len(r["path"]) for r in rounds)
    assert raw_numbers.first_mismatch(at["sibling"]) is not None

    def gain(r):
        seen = range(min(len(r["path"]), len(r["candidates"]["token"])))
        return max(r["probe"]["coverage"][d][-1] - r["probe"]["coverage"][d][0] for d in seen)

    assert gain(at["width"]) == pytest.approx(max(map(gain, rounds)))


@given(st.lists(st.floats(0, 0.2), min_size=1, max_size=16))
def test_a_curve_is_flat_where_the_rest_adds_little(steps):
    curve = np.minimum(1, np.cumsum(steps))
    flat, half = flat_from(curve), max(1, len(curve) // 2)
    gains = [curve[-1] - curve[k - 1] for k in range(1, half + 1)]
    assert flat == next((k for k, gain in enumerate(gains, 1) if gain < FLAT), None)


def test_few_rounds_conclude_nothing():
    made = findings(Tables.of({"A": fake_trace(rounds=FEW_SEEN - 1)}), by="run")
    ends = next(finding for finding in made if finding.about == "ends")
    assert ends.words.startswith(f"Only {FEW_SEEN - 1} walks and {FEW_SEEN - 1} rounds: too few")
    assert ends.n == FEW_SEEN - 1
    width = next(finding for finding in made if finding.about == "width")
    assert width.n >= FEW_SEEN and not width.claims and "would help" not in width.words


def test_that_a_single_round_is_too_few_is_said_once():
    (only,) = findings(Tables.of({"A": fake_trace(rounds=1)}), by="run")
    assert only.n == 1 and only.about == "ends" and not only.claims
    assert re.match(r"Only 1 walk, \d observed positions? and 1 round: too few to", only.words)
    assert only.words.endswith("why walks end, width, depth, path probabilities or siblings.")


def test_runs_keep_their_order_and_a_run_without_drafts_has_none():
    plain = Trace(fake_trace(method="ar").header, (), {})
    tables = Tables.of({"B": fake_trace(seed=3), "A": fake_trace(seed=5), "C": plain})
    labels = [finding.label for finding in findings(tables, by="run")]
    assert list(dict.fromkeys(labels)) == ["B", "A"]


@pytest.mark.parametrize(
    ("coupled", "rule"), [(True, {"temperature": 1.0}), (False, {"temperature": 1.0}), (True, {})]
)
def test_a_q_that_tokens_were_drawn_from_is_not_judged(tmp_path, coupled, rule):
    """q is p and all is accepted, which Σq does not promise; the drawn token is not the best. A
    text whose temperature is not told is not taken for a greedy one."""
    header = {"settings": {"sampling": rule}}
    with Recorder(path := tmp_path / "a.jsonl", "mine", [1], budget=2, **header) as record:
        root = 9
        for _ in range(2 * FEW_SEEN):
            lists = (np.array([[5, 7], [5, 7]]), np.log([[0.6, 0.4], [0.6, 0.4]]))
            if coupled:
                odds = [0.0, *np.log([0.4, 0.4])]
                record.round([root, 7, 7], [-1, 0, 1], [0, 1, 2], 9, odds, lists)
            else:

                def drawn(made):
                    return replace(made, verdict=replace(made.verdict, bonus_token=9))

                odds = [0.0, *np.log([0.6, 0.6])]
                record.round([root, 5, 5], [-1, 0, 1], [0, 1], 9, odds, lists, more=drawn)
    for by in ("method", "run"):
        tables = Tables.of({"A": read_trace(path)})
        (trust,) = (each for each in findings(tables, by=by) if each.about == "trust")
        assert trust.words == (
            "Path probabilities are not judged, over 10 rounds: drafted tokens seem to be drawn "
            "from q or accepted by p ÷ q, and q does not say how often such tokens are accepted."
        )
        for table in (
            reliability.surrogate,
            reliability.calibration_error,
            reliability.reliability,
        ):
            assert table(tables, by=by).empty, table
        assert figures.FIGURES["expected-accepted"](tables, figures.AUTO)
        assert figures.FIGURES["reliability-step"](tables, figures.AUTO)


@pytest.mark.parametrize(("word", "others"), [(SIMULATED, False), (FLY, True), ("standard", True)])
def test_a_rule_that_is_not_lossless_is_said(word, others):
    """Of simulated acceptance nothing else is said. Two runs, of which one has the rule."""
    trace = fake_trace("dflash", 3, 40)
    header = replace(trace.header, settings={**trace.header.settings, "rule": word})
    tables = Tables.of({"ruled": replace(trace, header=header), "plain": trace})
    told = findings(tables, by="run")
    ruled, plain = ([f for f in told if f.label == label] for label in ("ruled", "plain"))
    assert [f.n for f in ruled if f.about == "rule"] == [40] * (word in LOSSY)
    assert any(f.about != "rule" for f in ruled) == others
    assert {f.about for f in plain} >= {"ends", "depth"} and "rule" not in {f.about for f in plain}


def of_drafts(folder, rounds, **more):
    """The sentences of a recorded greedy run by what they are about; ``rounds``: the arguments of
    each, with 9 as root and as bonus token."""
    rule = {"settings": {"temperature": 0.0}}
    with Recorder(path := folder / "a.jsonl", "mine", [1], budget=2, **rule) as record:
        for tokens, parents, walked in rounds:
            record.round([9, *tokens], [-1, *parents], walked, 9, **more)
    return {each.about: each.words for each in findings(Tables.of({"A": read_trace(path)}))}


def test_a_chain_is_not_told_what_its_siblings_did(tmp_path):
    """Without lists nothing is known of the second token, and a chain drafts no other."""
    chains = [([4, 5], [0, 1], [0, 1])] * 2 * FEW_SEEN
    assert "sibling" not in of_drafts(tmp_path, chains)
    odds = {"log_q": [0.0, -0.5, -1.0]}
    trees = of_drafts(tmp_path, [([4, 5], [0, 0], [0, 2])] * 2 * FEW_SEEN, **odds)
    assert "drafted all the same in 100%" in trees["sibling"]
    none = of_drafts(tmp_path, [([4, 5], [0, 0], [0])] * 2 * FEW_SEEN, **odds)
    assert "drafted all the same in 0%." in none["sibling"]
    third = {"lists": (np.array([[4, 5, 9]] * 2), np.log([[0.5, 0.3, 0.2]] * 2))}
    said = of_drafts(tmp_path, [([4], [0], [0])] * 2 * FEW_SEEN, **third)["sibling"]
    assert "the target took the second-best in 0%." in said


def test_acceptance_by_depth_is_not_said_over_rounds_without_a_draft(tmp_path):
    """Where rounds that drafted nothing count among the places of depth 1, it is held back."""
    whole = [([4, 5], [0, 1], [0, 1])] * 2 * FEW_SEEN
    assert "was accepted at depth 1" in of_drafts(tmp_path, whole)["depth"]
    some = of_drafts(tmp_path, [*whole, ([], [], [0])])["depth"]
    assert "was accepted" not in some and "10 walks with a draft used the whole" in some


def test_the_coverage_of_a_q_of_one_token_is_not_called_flat(tmp_path):
    q = np.zeros((2, 12))
    q[:, 4] = 1.0
    p = np.full((2, 12), 1 / 12)
    said = of_drafts(tmp_path, [([4], [0], [0])] * 2 * FEW_SEEN, p=p, q=q)["width"]
    assert "all on one token, which holds 8.3% of p, over" in said
    assert "flat" not in said and "best" not in said


def test_a_curve_that_begins_next_to_nothing_may_still_rise(tmp_path):
    """And the round to look at is one in which it rises."""
    q, p = np.zeros((2, 32)), np.zeros((2, 32))
    q[:, :16] = np.arange(16, 0, -1) / 136
    p[:, 0], p[:, 10], p[:, 30] = 0.01, 0.9, 0.09
    with Recorder(path := tmp_path / "a.jsonl", "mine", [1], budget=2) as record:
        for known in (np.eye(32)[[0, 0]], *[p] * 99):
            record.round([9, 0], [-1, 0], [0], 9, p=known, q=q)
    (found,) = (f for f in findings(Tables.of(read_trace(path))) if f.about == "width")
    words = "still rises after K = 8: the 8 best tokens hold 2.0% of p, the 16 best 91%"
    assert words in found.words and found.round > 1


def test_walks_of_which_it_is_not_known_are_told_beside_those_that_would_be_helped(tmp_path):
    lists = np.array([[4, 9], [5, 9]]), np.log([[0.6, 0.4], [0.6, 0.4]])
    probed = {"p": np.full((2, 12), 1 / 12), "q": np.full((2, 12), 1 / 12)}
    with Recorder(path := tmp_path / "a.jsonl", "mine", [1], budget=1) as record:
        for _ in range(FEW_SEEN):
            record.round([9, 4], [-1, 0], [0], 9, [0.0, -0.5], lists, **probed)
            record.round([9, 4], [-1, 0], [0], 9)
    (said,) = (f.words for f in findings(Tables.of(read_trace(path))) if f.about == "width")
    assert said.endswith(
        f"would help {FEW_SEEN} of {2 * FEW_SEEN} walks. For {FEW_SEEN} this is not known."
    )


@pytest.mark.parametrize("rounds, width", [(30, 16), (10, 4)])
def test_a_curve_of_coverage_is_of_the_same_positions_everywhere(rounds, width):
    """Of one label, 20 rounds list coverage of 0.05 a token to K = 4, and others of 0.02 to 16."""

    def listing(trace: Trace, wide: int, each: float) -> Trace:
        def of(probe: Probe) -> Probe:
            row = np.arange(1, wide + 1, dtype=np.float32) * np.float32(each)
            return replace(probe, coverage=np.tile(row, (len(probe.tvd), 1)))

        made = [replace(r, probe=of(r.probe)) if r.probe else r for r in trace.rounds]
        return replace(trace, rounds=tuple(made))

    few, many = fake_trace("ddtree", 8, 20), fake_trace("ddtree", 7, rounds)
    tables = Tables.of({"A": listing(many, 16, 0.02), "B": listing(few, 4, 0.05)})
    (found,) = (each for each in findings(tables) if each.about == "width")
    own = tables.positions
    told = own[f"coverage_{width}"].dropna()
    first = float(own[f"coverage_{width // 2}"][told.index].mean())
    assert found.n == len(told)
    best = f"the {width // 2} best tokens hold {percent(first)} of p, the {width} best"
    assert f"{best} {percent(told.mean())}, over {found.n} " in found.words
