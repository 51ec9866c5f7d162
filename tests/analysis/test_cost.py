"""The arithmetic of cost, and its measurement on a toy target."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.collected.collect import CollectionPlan, collect
from analysis.collected.whatif import SimulatedRun, Simulation
from analysis.experiments.cost import (
    PIECEWISE,
    QUADRATIC,
    Estimate,
    ForwardTime,
    Stage,
    best_budget,
    bushy,
    check_simulated,
    cost_from_json,
    fit,
    sizes_up_to,
    speed_estimates,
    stages,
    verify_times,
)
from app.commands.cost import _conclude
from core.decoding.decode import Decoder
from core.errors import UserError
from core.models.target import Target
from core.rounds.round import Sampling
from tests.helpers import toys
from tests.helpers.collected_toys import KEPT, collection_in, points, source


@pytest.fixture(scope="module")
def collected(tmp_path_factory):
    return collection_in(tmp_path_factory.mktemp("collected"))


@settings(max_examples=20)
@given(
    st.floats(1e-3, 0.1), st.floats(0, 1e-2), st.floats(0, 1e-5)
)  # what a forward costs anywhere
def test_a_quadratic_law_is_found_again(a, b, c):
    found = fit(points(lambda n: a + b * n + c * n**2))
    if found.form == QUADRATIC:
        assert found.residual < 1e-6
    for n in (4, 20, 200):
        assert found.seconds(n) == pytest.approx(a + b * n + c * n**2, rel=0.01)


def test_no_term_is_negative_and_steps_are_followed():
    found = fit(points(lambda n: 0.01 if n <= 16 else 0.05))
    assert found.form == PIECEWISE and found.seconds(9) == 0.01 and found.seconds(65) == 0.05
    falling = fit(points(lambda n: 0.1 - 1e-4 * n))
    if falling.form == QUADRATIC:
        assert min(falling.terms) >= 0
    with pytest.raises(UserError, match="three sizes"):
        fit(points(lambda n: n)[:2])


def what(budget, lengths):
    return SimulatedRun("m", budget, {}, lengths, (), sum(lengths) + 1, True, "")


def test_expected_speed_is_tokens_over_seconds_and_the_best_is_named():
    law = fit(points(lambda n: 0.1 + 0.01 * n))
    staged = [Stage(b, 0.02, 0.001, 0.0, rows=b + 1) for b in (1, 4, 16)]
    runs = [what(1, (2, 1, 2)), what(4, (3, 3)), what(16, (3, 3)), what(64, (6,))]
    found = speed_estimates(law, staged, runs)
    assert [e.budget for e in found] == [1, 4, 16]
    assert found[1].tokens_per_round == 3.0
    assert found[1].seconds == pytest.approx(0.021 + 0.15, rel=1e-3)
    assert found[1].tokens_per_second == pytest.approx(3 / 0.171, rel=1e-3)
    assert best_budget(found).budget == 4
    assert best_budget([replace(found[1], budget=16), found[1]]).budget == 4  # of equal ones
    with pytest.raises(UserError, match="no budget"):
        best_budget([])


def test_sizes_and_drafts_are_as_asked():
    assert sizes_up_to(2) == sizes_up_to(3) == [1, 2, 3]
    assert fit([ForwardTime(n, n, n, n) for n in sizes_up_to(2)]).sizes == (1, 2, 3)
    assert sizes_up_to(40) == [1, 2, 3, 5, 9, 13, 17, 25, 33, 40]
    for rows in (1, 2, 40, 300):
        draft = bushy(rows, 48)
        assert len(draft) == rows and draft.depths.max() <= 8
        assert draft.tokens.max() < 48


def test_measuring_a_toy(collected):
    simulation = Simulation(collected, "ddtree")
    drafter = toys.dflash_drafter()
    target = toys.target(layers=drafter.layers)
    found = verify_times(
        target, collected.tokens.tolist()[:20], [1, 2, 5, 9], 3, lambda done, what: None
    )
    assert [p.size for p in found] == [1, 2, 5, 9]
    assert all(0 < p.low <= p.seconds <= p.high for p in found)
    method = Decoder("ddtree", drafter, simulation.builder)
    staged = list(stages(simulation, method, target, [2, 8], 2))
    assert [s.budget for s in staged] == [2, 8] and [s.rows for s in staged] == [3, 9]
    assert all(min(s.draft, s.build, s.commit) > 0 for s in staged)
    runs = simulation.curve([2, 8])
    rates = [e.tokens_per_second for e in speed_estimates(fit(found), staged, runs)]
    assert np.isfinite(rates).all() and best_budget(
        speed_estimates(fit(found), staged, runs)
    ).budget in (2, 8)


@pytest.mark.parametrize("kind", ["dflash", "treeflash"])
def test_the_stages_that_are_timed_are_a_real_rounds(kind, collected, monkeypatch):
    """With padded forwards too: the drafter replays its pass on what the round before committed."""
    simulation = Simulation(collected, kind, {"candidates": 4} if kind == "treeflash" else {})
    drafter = {"dflash": toys.dflash_drafter, "treeflash": toys.treeflash_drafter}[kind]()
    drafter._padded = True
    replayed, committed = [], []
    draft, commit = drafter._padded_hidden, Target.commit
    monkeypatch.setattr(
        drafter, "_padded_hidden", lambda root: replayed.append(draft(root)) or replayed[-1]
    )
    monkeypatch.setattr(
        Target, "commit", lambda self, verdict: committed.append(verdict) or commit(self, verdict)
    )
    method = Decoder(kind, drafter, simulation.builder)
    (staged,) = stages(simulation, method, toys.target(layers=drafter.layers), [8], 20)
    decodings = sum(rows is None for rows in replayed)
    assert len(replayed) - 2 * decodings == 20 and len(committed) == len(replayed)
    assert 1 <= decodings <= 5 and min(staged.draft, staged.build, staged.commit) > 0


def test_a_real_run_of_one_round_has_no_speed_and_is_not_the_fastest(capsys, monkeypatch):
    seconds = count()
    clock = SimpleNamespace(perf_counter=lambda: next(seconds))
    monkeypatch.setattr("analysis.experiments.cost.time", clock)

    def checked(*committed):
        records = [SimpleNamespace(accepted=n - 1, committed=range(n)) for n in committed]
        engine = SimpleNamespace(start=lambda request: SimpleNamespace(rounds=records))
        header = SimpleNamespace(prompt_text="why?", sampling=Sampling())
        simulation = SimpleNamespace(
            collection=SimpleNamespace(header=header), method="ddtree", options={},
            run=lambda budget: what(budget, committed),
        )  # fmt: skip
        return check_simulated(engine, simulation, len(committed))

    short, long = checked(4), checked(3, 1)
    assert (short.tokens_per_second, short.rounds_equal) == (None, True)
    assert long.tokens_per_second == 1  # of the second round alone, a second after the first
    assert json.dumps(asdict(short), allow_nan=False)
    for chosen, said in ((1, "at 1 took a single round"), (2, "fastest of 2: 2")):
        _conclude(Estimate(chosen, 3.0, 1.0, 0.1, 0.1, 0.8, True), 1.0, [short, long])
        assert said in " ".join(capsys.readouterr().err.split())


def test_a_text_of_one_round_can_be_timed(tmp_path):
    made = collect(source(), toys.PROMPT, tmp_path / "x.safetensors", CollectionPlan(2, 48))
    simulation, drafter = Simulation(made, "ddtree"), toys.dflash_drafter()
    method = Decoder("ddtree", drafter, simulation.builder)
    (staged,) = stages(simulation, method, toys.target(layers=drafter.layers), [64], 3)
    assert min(staged.draft, staged.build, staged.commit) > 0


@pytest.mark.parametrize("rows", [10, 66])
def test_verifying_is_timed_in_the_forward_that_a_run_takes(rows):
    """A padded one, where forwards are padded: the cache has room for it."""
    target = Target(toys.model(), padded=True)
    text = [token % 48 for token in range(255 - rows)]
    target.prefill(text, rows + 1)
    assert not target._padded_forward(rows).fits  # what the size alone leaves room for
    target = Target(toys.model(), padded=True)
    verify_times(target, text, [rows], 1, lambda done, what: None)
    assert target._padded_forward(rows).fits


# ── kept in a file ───────────────────────────────────────────────────────────────────────────────


def test_a_cost_is_read_as_it_was_written_whatever_stands_beside_it():
    written = json.loads(json.dumps({**KEPT.to_json(), "best": 4, "plain": 1.0}))
    assert cost_from_json(written) == KEPT
    assert cost_from_json(written | {"stages": written["stages"][::-1]}) == KEPT
    assert KEPT.most == 256
    assert KEPT.stage(10, 11) == Stage(10, 0.01, pytest.approx(0.002), 0.002, 11)
    assert KEPT.stage(64, 65).build == 0.003


def broken():
    for path, value in [
        (("format",), "other"), (("version",), 2), (("verify",), None), (("stages",), []),
        (("stages",), "abc"), (("stages", 0, "budget"), -1), (("stages", 0, "draft"), "1"),
        (("stages", 0, "build"), float("nan")), (("verify", "sizes"), [3, 2]),
        (("verify", "terms"), [1.0]), (("verify", "form"), "x"), (("verify", "form"), []),
        (("verify", "residual"), True), (("verify", "terms"), [0, 0, 0]),
    ]:  # fmt: skip
        made = json.loads(json.dumps(KEPT.to_json()))
        at = made
        for step in path[:-1]:
            at = at[step]
        at[path[-1]] = value
        yield made
    yield from (None, [], 3, "x", {})


@pytest.mark.parametrize("value", list(broken()))
def test_what_is_no_cost_is_refused_in_a_sentence(value):
    with pytest.raises(UserError, match="not a result of"):
        cost_from_json(value)
