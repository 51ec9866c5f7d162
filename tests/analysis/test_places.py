"""By place and by kind: planted cliffs and weak kinds are found, noise is not; numbers by hand."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

from analysis.measures.acceptance import stages, tau
from analysis.measures.causes import cause_shares
from analysis.measures.findings import table, trust
from analysis.measures.outstanding import OUTSTANDING
from analysis.measures.places import BINS, by_kind, by_place, step
from analysis.measures.reliability import reliability
from analysis.measures.tables import Tables
from analysis.measures.tokens import script, token_class
from core.rounds.draft import Candidates, Draft, Proposal
from core.rounds.round import ACCEPTED, UNREACHED, Probe, Round, Times, Verdict
from core.stats import wilson
from core.traces.schema import Header, Trace

TEXTS = {1: " the", 2: "ing", 3: " 42", 4: "слово", 5: "。", 6: " a", 7: "ed"}


def chain(index, position, length, bonus, tvd=0.5, token=1):
    """A chain of three nodes, of one or of three tokens, of which ``length`` are accepted."""
    tokens = (token,) * 3 if isinstance(token, int) else token
    draft = Draft.chain([9, *tokens], [-0.1] * 3)
    answers = np.array([*tokens, bonus])
    answers[length] = bonus
    seen = min(length + 1, 3)
    nothing = np.zeros(seen, np.float32)
    probe = Probe(
        np.full(seen, tvd, np.float32), np.zeros((seen, 16), np.float32), nothing,
        np.ones(seen, np.int32),
    )  # fmt: skip
    verdict = Verdict(tuple(range(length + 1)), answers)
    committed = (*tokens[:length], bonus)
    return Round(index, position, draft, verdict, committed, probe=probe, texts=TEXTS)


def trace(rounds, source="", name="mine"):
    header = Header(name, {"budget": 3}, {"name": "toy"}, "hi", (1, 2))
    return Trace(header, tuple(rounds), {"source": source} if source else {})


def run(length_at, count=200, seed=0, apart=5, **more):
    rng, rounds = np.random.default_rng(seed), []
    for n in range(count):
        at = n * apart
        rounds.append(chain(n, at, int(rng.binomial(3, length_at(at))), 6, **more))
    return trace(rounds)


def findings(tables):
    """List the findings that stand out."""
    found = table(tables)
    return found[found["finding"].isin(OUTSTANDING)].reset_index(drop=True)


@pytest.mark.parametrize("texts", [1, 6])
def test_a_planted_cliff_is_named_with_its_place(texts):
    """In one text, or in several beside two that lie before the cliff or behind it alone."""
    runs = {f"run {n}": run(lambda at: 0.9 if at < 500 else 0.2, seed=n) for n in range(texts)}
    apart = {"before": run(lambda _: 0.9, 50),
             "behind": trace(chain(n, 600 + 5 * n, 1, 6) for n in range(50))}  # fmt: skip
    found = findings(Tables.of({**(apart if texts > 1 else {}), **runs}))
    (row,) = found.to_dict("records")
    assert row["finding"] == "cliff" and "falls" in row["sentence"]
    inside = f", in the {texts} texts that go on from there" * (texts > 1)
    assert row["sentence"].endswith(f"{inside}, over {row['n']} rounds.")
    assert ("texts" in row["sentence"]) == (texts > 1)
    place = int(row["sentence"].split("at token ")[1].split(":")[0])
    assert abs(place - 500) <= 15
    assert row["run"] == "run 0" and abs(row["round"] - place / 5 - 1) < 1


def test_a_slope_is_no_cliff():
    found = findings(Tables.of(run(lambda at: 0.95 - at / 1100)))
    assert [row["finding"] for row in found.to_dict("records")] == ["slope"]
    assert "slowly" in found["sentence"][0]


@pytest.mark.parametrize("seed", range(40))
def test_noise_has_no_cliff(seed):
    rng = np.random.default_rng(seed)
    places = np.sort(rng.integers(0, 4000, 300))
    texts = rng.integers(0, 1 + seed % 9, 300)
    assert step(places, 1 + rng.binomial(7, 0.3, 300), texts) is None
    assert step(places[:40], 1 + rng.binomial(7, 0.3, 40), texts[:40]) is None


def of_texts(rng, *texts):
    """Places, lengths and texts of rounds: for each text its end and p of a node at a place."""
    rows = [
        (at, 1 + rng.binomial(3, chance(at)), number)
        for number, (end, chance) in enumerate(texts)
        for at in range(20, end, 4)
    ]
    return np.array(rows).T


@pytest.mark.parametrize("seed", range(10))
def test_texts_of_other_lengths_make_no_cliff(seed):
    """Short texts are accepted more than long ones, and no place inside a text matters."""
    rng = np.random.default_rng(seed)
    short, long = (120, lambda at: 0.9), (500, lambda at: 0.3)
    assert step(*of_texts(rng, *[short] * 20, *[long] * 20)) is None
    assert step(*of_texts(rng, *[short] * 20, long)) is None


def test_a_step_counts_the_rounds_of_the_texts_that_go_across_it():
    across, before = (400, lambda at: 0.9 if at < 200 else 0.1), (100, lambda at: 0.9)
    rows = of_texts(np.random.default_rng(0), *[across] * 6, *[before] * 6)
    found = step(*rows)
    assert (found.texts, found.rounds) == (6, (rows[2] < 6).sum())


@pytest.mark.parametrize("seed", range(5))
def test_a_cliff_inside_texts_is_found_whatever_their_levels(seed):
    rng = np.random.default_rng(seed)
    texts = [
        (200 + 40 * n, lambda at, high=high: high * (0.3 if at >= 140 else 1.0))
        for n, high in enumerate(rng.uniform(0.5, 0.95, 12))
    ]
    found = step(*of_texts(rng, *texts))
    assert found is not None and found.cliff and abs(found.place - 140) <= 20
    assert found.texts == 12 and found.before > 2.5 > 2 > found.after


def test_the_step_is_that_of_a_regression_with_a_constant_for_each_text():
    rng = np.random.default_rng(3)
    places, lengths, texts = of_texts(
        rng, *[(160 + 30 * n, lambda at: 0.8 if at < 120 else 0.2) for n in range(6)]
    )
    found = step(places, lengths, texts)
    columns = [places >= found.place, *(texts == n for n in range(6))]
    (change, *_), (rest,), *_ = np.linalg.lstsq(
        np.column_stack(columns).astype(float), lengths, rcond=None
    )
    assert found.after - found.before == pytest.approx(change)
    for other in np.unique(places)[10:-10]:  # no other place fits better
        columns[0] = places >= other
        matrix = np.column_stack(columns).astype(float)
        assert np.linalg.lstsq(matrix, lengths, rcond=None)[1][0] >= rest - 1e-9


def test_rounds_at_one_place_stay_on_one_side():
    """Forty texts, all of whose second rounds fail: the change is at the second place."""
    places = np.repeat([10, 20], 40)
    found = step(places, np.repeat([4, 1], 40) + np.tile([0, 1], 40), np.tile(np.arange(40), 2))
    assert found.place == 20 and found.before > found.after
    # the first place's own rounds fall too, but nothing lies between them
    texts = np.tile(np.arange(60), 2)
    found = step(np.repeat([10, 20], 60), np.repeat([4, 1, 1, 1], 30), texts)
    assert (found.place, found.before, found.after) == (20, 2.5, 1)


def test_the_bins_hold_what_counting_by_hand_gives():
    rounds = run(lambda at: 0.6, 120).rounds
    table = by_place(Tables.of(trace(rounds)))
    for row in table.to_dict("records"):
        high = BINS[BINS.index(row["place"]) + 1]
        mine = [r for r in rounds if row["place"] <= r.position < high]
        assert row["rounds"] == len(mine)
        assert row["tau"] == pytest.approx(np.mean([r.accepted + 1 for r in mine]))
        assert row["low"] <= row["tau"] <= row["high"]
        seen = sum(min(r.accepted + 1, 3) for r in mine)
        assert row["observed"] == row["probed"] == seen
        assert row["acceptance"] == pytest.approx(sum(r.accepted for r in mine) / seen)
        assert row["tvd"] == pytest.approx(0.5)
    assert table["rounds"].sum() == len(rounds)


def test_each_kind_counts_the_targets_own_tokens():
    """Accepted nodes carry token 1, the bonus token ends the walk: it counts as not accepted."""
    rng, rounds = np.random.default_rng(1), []
    for n in range(80):
        rounds.append(chain(n, 4 * n, int(rng.integers(0, 3)), int(rng.integers(2, 6))))
    tables = Tables.of(trace(rounds))
    counts, hits = defaultdict(int), defaultdict(int)
    for r in rounds:
        for depth in range(min(r.accepted + 1, 3)):
            token = r.committed[depth]
            counts[token_class(TEXTS[token])] += 1
            hits[token_class(TEXTS[token])] += depth < r.accepted
    table = by_kind(tables).set_index("token_class")
    assert table["observed"].to_dict() == dict(counts)
    for kind, row in table.iterrows():
        assert row["acceptance"] == pytest.approx(hits[kind] / counts[kind])
        low, high = map(float, wilson(hits[kind], counts[kind]))
        assert (row["acceptance_low"], row["acceptance_high"]) == pytest.approx((low, high))
    scripts = set(by_kind(tables, "script")["script"])
    assert scripts == {"latin", "cyrillic"}


def test_a_weak_kind_and_a_weak_tag_are_found():
    good = [chain(n, n, 3, 1) for n in range(80)]
    bad = [chain(n, n, 0, 4) for n in range(60)]
    traces = {"a": trace(good, "maths"), "b": trace(bad, "chat", "mine")}
    found = findings(Tables.of(traces)).set_index("finding")
    assert "Prompts tagged chat are accepted at 0.00" in found["sentence"]["tag"]
    assert (
        "of 60 positions; at the same depths all others are at 1.00, over "
        in found["sentence"]["tag"]
    )
    assert found["run"]["tag"] == "b" and found["round"]["tag"] == 1
    assert "cyrillic" in found["sentence"]["script"]
    tags = by_kind(Tables.of(traces), "tag").set_index("tag")["acceptance"].to_dict()
    assert tags == {"maths": 1.0, "chat": 0.0}
    header = replace(traces["b"].header, settings={"tag": "chat"})  # as a recorder writes it
    served = traces | {"b": replace(traces["b"], header=header, footer={})}
    assert set(by_kind(Tables.of(served), "tag")["tag"]) == {"maths", "chat"}


@pytest.mark.parametrize(("good", "bad"), [(30, 30), (60, 29), (29, 60)])
def test_nothing_is_said_of_a_sort_or_of_others_of_which_there_are_few(good, bad):
    traces = {
        "a": trace([chain(n, n, 3, 1) for n in range(good)], "maths"),
        "b": trace([chain(n, n, 0, 1) for n in range(bad)], "chat"),
    }
    assert ("tag" in set(findings(Tables.of(traces))["finding"])) == (min(good, bad) >= 30)


def test_a_sort_that_only_stands_deep_is_not_worse_for_that():
    """Depth 1 is always right, depth 2 in two of five, whatever the sort; *ing* is never first."""
    rounds = [
        chain(n, n, 2 if n % 5 < 2 else 1, bonus, token=(1, token, token))
        for n in range(200)
        for token, bonus in [((1, 6), (2, 7))[n % 2]]
    ]
    tables = Tables.of(trace(rounds))
    shares = by_kind(tables).set_index("token_class")["acceptance"]
    assert shares["word continuation"] < 0.5 * shares["word start"] and findings(tables).empty
    worse = [chain(n, n, 1, 7, token=(1, 2, 2)) if n % 2 else r for n, r in enumerate(rounds)]
    (said,) = findings(Tables.of(trace(worse)))["sentence"]
    assert said.endswith(
        "word continuation are accepted at 0.00 of 100 positions; "
        "at the same depths all others are at 0.40, over 100."
    )


def test_a_sort_that_is_a_little_worse_is_not_named():
    """0.9 against 1: beyond chance, but not a quarter less."""
    good = [chain(n, n, 3, 1) for n in range(200)]
    less = [chain(n, n, 3 if n % 4 else 2, 1) for n in range(200)]
    traces = {"a": trace(good, "maths"), "b": trace(less, "chat", "mine")}
    shares = by_kind(Tables.of(traces), "tag").set_index("tag")
    assert shares["acceptance_high"]["chat"] < 0.95 and findings(Tables.of(traces)).empty
    few = [chain(n, n, 3 if n % 5 > 1 else 0, 1) for n in range(60)]  # 0.74 to 0.87
    assert findings(Tables.of(traces | {"b": trace(few, "chat", "mine")})).empty


def test_a_calibration_curve_tells_how_far_and_which_way_q_is_off():
    """Chains whose q is exp(−0.1) at each step, of which half are accepted."""
    tables = Tables.of(trace([chain(n, n, 3 if n % 2 else 0, 2) for n in range(40)]))
    for row in reliability(tables).to_dict("records"):
        assert row["share"] == 0.5 and row["mean_q"] > 0.7
        assert row["gap"] == pytest.approx(0.5 - row["mean_q"])
    # a round's text holds its bonus token, unless the end cut it off
    assert (tables.rounds["cut"] == 0).all()


@pytest.mark.parametrize(("log_q", "word"), [(-0.1, "too much"), (-2.0, "too little")])
def test_what_chains_of_three_come_to(log_q, word):
    """Eight walks use all three depths and four use two, counted by hand."""
    rounds = [chain(n, n, length, 2) for n, length in enumerate([3] * 8 + [2] * 4 + [0] * 8)]
    rounds = [replace(r, draft=Draft.chain(r.draft.tokens.tolist(), [log_q] * 3)) for r in rounds]
    found = table(Tables.of(trace(rounds))).set_index("finding")["sentence"]
    assert found["depth"].startswith("8 of 20 walks used the whole drafted depth")
    lists = Candidates(np.full((3, 2), [1, 7]), np.full((3, 2), [log_q, -3], np.float32))
    known = [
        replace(r, draft=replace(r.draft, proposal=Proposal.factorised(lists, r.draft.depths)))
        for r in rounds
    ]
    found = table(Tables.of(trace(known))).set_index("finding")["sentence"]
    assert found["depth"].startswith("8 of 20 walks used the whole depth")
    some = table(Tables.of(trace(known[:10] + rounds[10:]))).set_index("finding")["sentence"]
    assert some["depth"].startswith("8 of 10 walks used the whole depth, 0 of 10 walks")
    assert f"they promise {word}" in found["trust"]
    assert "and 1.60 were accepted" in found["trust"] and "over 20 rounds" in found["trust"]


@pytest.mark.parametrize("q", [0.5, 0.9])
def test_calibrated_chains_are_seldom_told_to_be_off(q):
    """Each node is accepted with its q after an accepted one: 5 % are told so by chance."""
    rng, runs = np.random.default_rng(4), []
    drafted = Draft.chain([9, 1, 1, 1], [math.log(q)] * 3)
    for _ in range(60):
        lengths = np.minimum(rng.geometric(1 - q, 40) - 1, 3)
        made = (chain(n, 5 * n, int(length), 6) for n, length in enumerate(lengths))
        runs.append(trace(replace(r, draft=drafted) for r in made))
    found = [each.words for each in trust(Tables.of(runs), by="run")]
    assert len(found) == 60 and sum("promise" in words for words in found) <= 8


def test_few_prompts_do_not_tell_whether_path_probabilities_come_true():
    rounds = [chain(n, n, 1, 6) for n in range(20)]
    other = replace(trace(rounds), header=replace(trace(rounds).header, prompt_text="other"))
    (found,) = trust(Tables.of([trace(rounds), other]))
    assert "whether they come true is not known from fewer than 5 prompts" in found.words
    assert re.search(r"were accepted: [+−][\d.]+, over \d+ rounds\.$", found.words)


def test_only_observed_nodes_share_a_depths_causes():
    """Chains of three: twelve of twenty reach the second depth, and all of these are accepted."""
    rounds = [chain(n, n, length, 2) for n, length in enumerate([3] * 8 + [2] * 4 + [0] * 8)]
    shares = cause_shares(Tables.of(trace(rounds))).set_index(["depth", "cause"])
    assert shares["observed_share"][1, ACCEPTED] == 12 / 20
    assert shares["observed_share"][2, ACCEPTED] == 1 and shares["share"][2, ACCEPTED] == 12 / 20
    assert np.isnan(shares["observed_share"][2, UNREACHED])
    assert shares["observed_share"][3, ACCEPTED] == 8 / 12
    ends = cause_shares(Tables.of(trace(rounds)), "stops").groupby("depth")["count"].sum()
    assert ends.to_dict() == {1: 8, 3: 4, 4: 8}


def test_speed_is_of_the_runs_that_were_timed():
    some = [chain(0, 2, 3, 2), chain(1, 6, 1, 2)]
    timed = replace(trace(some), footer={"wall_seconds": 2.0})
    found = tau(Tables.of({"a": timed, "b": trace(some)}))
    assert found["tokens_per_second"].tolist() == [(1 + 4 + 2) / 2.0]


def test_the_pace_of_rounds_is_of_those_that_were_timed():
    rounds = [chain(0, 2, 3, 2), replace(chain(1, 6, 1, 2), times=Times())]
    rounds[0] = replace(rounds[0], times=Times(0.5, 0, 1.5, 0))
    tables = Tables.of({"a": trace(rounds), "b": trace(rounds[1:])})
    for frame in (tables.runs[:1], tau(tables)):
        assert frame["round_pace"].tolist() == [4 / 2.0] and frame["timed"].tolist() == [1]
    assert np.isnan(tables.runs["round_pace"][1]) and tables.runs["timed"][1] == 0
    assert stages(tables)["ms_per_round"].tolist() == [500, 0, 1500, 0]


def test_only_the_token_at_the_walks_end_can_be_outside_the_candidates():
    lists = Candidates(np.full((3, 2), [1, 7]), np.full((3, 2), [-0.1, -3], np.float32))
    rounds = [chain(n, n, n % 3, 7 if n % 2 else 5) for n in range(12)]
    rounds = [
        replace(r, draft=replace(r.draft, proposal=Proposal.factorised(lists, r.draft.depths)))
        for r in rounds
    ]
    positions = Tables.of(trace(rounds)).positions
    told = list(zip(positions["round"], positions["depth"], positions["outside"], strict=True))
    assert told == [
        (n + 1, depth, depth == n % 3 + 1 and not n % 2)
        for n in range(12)
        for depth in range(1, n % 3 + 2)
    ]


def test_nothing_is_said_of_little():
    assert findings(Tables.of(run(lambda at: 0.5, 20))).empty
    assert findings(Tables.of({})).empty and by_place(Tables.of({})).empty
    ended = Verdict((0,), np.array([2]))
    plain = replace(chain(0, 3, 0, 2), draft=Draft.root_only(9), verdict=ended)
    assert by_place(Tables.of(trace([plain]))).empty
    assert by_kind(Tables.of(trace([plain]))).empty


def test_scripts_go_by_most_letters():
    assert script(" слово") == "cyrillic" and script("ab где") == "cyrillic"
    assert script("中文") == "cjk" and script(" the") == "latin" and script("ひ") == "hiragana"
    assert script("12 +") == script(None) == ""
