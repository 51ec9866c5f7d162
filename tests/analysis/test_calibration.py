"""Calibration against brute force on toy models: every number by an independent way."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from analysis.collected import collect as collecting
from analysis.collected.calibrate import (
    CalibrationPlan,
    _places,
    anchors,
    averaged,
    calibrate,
    continuations,
    marginal,
)
from analysis.collected.calibration import curves, read_table, write_tables
from analysis.frames import COVERAGE
from core.decoding.engine import Engine
from core.errors import UserError
from core.journal import FILE, Journal
from core.methods.dflash.model import FORM
from tests.helpers import toys
from tests.helpers.collected_toys import source
from tests.helpers.toys_on_disk import BYTES, save_toys

PLAN = CalibrationPlan(anchors=6, continuations=5, seeds=2, new_tokens=12)
PROMPTS = [list(toys.PROMPT), [1, 2, 3]]


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("calibration")
    return calibrate(source(), PROMPTS, folder, PLAN), folder


def branches(depths=4, count=6, stop=(), seed=1, root=7):
    target = toys.target(layers=(), stop=stop)
    target.prefill(list(toys.PROMPT), depths * count + 1)
    return continuations(target, root, depths, count, torch.Generator().manual_seed(seed))


def test_p_of_every_row_is_a_plain_forwards():
    found = branches()
    assert len(found.paths) == 6 and all(len(path) == 4 for path in found.paths)
    for path in found.paths:
        text = [*toys.PROMPT, *found.draft.tokens[list(path)].tolist()]
        expected = toys.full_forward(text).logits.softmax(-1)[-4:]
        np.testing.assert_allclose(found.p[list(path)], expected.float(), atol=1e-5)


def test_continuations_are_drawn_from_p_and_the_marginal_is_their_mean():
    """With many continuations p̃₂ comes near Σ_x p(x) p(· | x), computed in full."""
    found = branches(depths=2, count=4000)
    first = toys.full_forward([*toys.PROMPT, 7]).logits[-1].softmax(-1)
    drawn = np.bincount(
        [found.draft.tokens[path[1]] for path in found.paths], minlength=toys.VOCABULARY
    )
    assert np.abs(drawn / 4000 - first.numpy()).sum() / 2 < 0.05
    after = torch.stack([
        toys.full_forward([*toys.PROMPT, 7, x]).logits[-1].softmax(-1)
        for x in range(toys.VOCABULARY)
    ])  # fmt: skip
    truth = (first[:, None] * (after - first @ after).abs() / 2).sum()
    rows = list(averaged(marginal(found, 2), found, 2))
    assert rows[0]["tvd"] == pytest.approx(0, abs=1e-6)
    assert rows[1]["tvd"] == pytest.approx(float(truth), abs=0.02)


def test_held_out_each_continuation_meets_the_mean_of_the_others():
    """The mean of all knows the continuation itself, and covers more than any q could."""
    found = branches(depths=4, count=6)
    shown, held = (list(averaged(marginal(found, 4, out), found, 4)) for out in (False, True))
    for depth in range(4):
        p = found.p[[path[depth] for path in found.paths]].double().numpy()  # narrower than the cut
        far, covered = [], []
        for j, own in enumerate(p):
            others = np.delete(p, j, 0).mean(0)
            far.append(np.abs(own - others).sum() / 2)
            covered.append(own[np.argsort(-others, kind="stable")[:4]].sum())
        assert held[depth]["tvd"] == pytest.approx(np.mean(far), abs=1e-6)
        assert held[depth]["coverage_4"] == pytest.approx(np.mean(covered), abs=1e-6)
        assert held[depth]["coverage_4"] <= shown[depth]["coverage_4"] + 1e-9
    assert held[3]["coverage_4"] < shown[3]["coverage_4"]
    alone = branches(count=1)
    assert marginal(alone, 4, held_out=True) == [] and len(marginal(alone, 4)) == 4


def test_a_continuation_is_followed_no_further_than_a_stop_token():
    stop = list(range(0, 48, 3))
    found = branches(depths=5, count=12, stop=stop)
    lengths = {len(path) for path in found.paths}
    assert len(lengths) > 1
    for path in found.paths:
        assert not set(found.draft.tokens[list(path[1:])].tolist()) & set(stop)
    rows = list(averaged(marginal(found, 5), found, 5))
    assert [r["continuations"] for r in rows] == sorted(
        (r["continuations"] for r in rows), reverse=True
    )


def test_the_numbers_are_those_of_independent_passes(measured, tmp_path):
    """TVD and coverage of each drafter at one anchor, drafter and target asked afresh."""
    table, folder = measured
    texts = Journal(folder / FILE).get("texts")["texts"]
    line = table[table["number"] == 3].iloc[0]
    text, at = texts[line["prompt"]], int(line["position"])
    target = toys.target(layers=())
    target.prefill(text[:at], 64)
    rng = torch.Generator().manual_seed(int(line["seed"]) * 1_000_003 + 3)
    drawn = continuations(target, text[at], 7, 5, rng)
    for name, drafter in source().drafters.items():
        far, best = np.zeros((5, 7)), np.zeros((5, 7))
        for j, path in enumerate(drawn.paths):
            tokens = drawn.draft.tokens[list(path)].tolist()
            p = toys.full_forward([*text[:at], *tokens]).logits[-7:].softmax(-1).numpy()
            drafter.reset(64)
            features = toys.full_forward(text[:at], layers=drafter.layers).features
            drafter.extend(text[:at], features)
            q = drafter.begin(text[at], 48).log_q(tokens).exp().numpy()
            far[j] = np.abs(q - p).sum(1) / 2
            best[j] = np.take_along_axis(p, np.argsort(-q, 1)[:, :4], 1).sum(1)
        own = table[(table["number"] == 3) & (table["series"] == name)]
        np.testing.assert_allclose(own["tvd"], far.mean(0), atol=1e-4)
        np.testing.assert_allclose(own["coverage_4"], best.mean(0), atol=1e-4)


def test_a_drafter_whose_states_are_paths_is_measured_too(tmp_path):
    """Along continuations that it may never have listed."""
    deep = toys.PathDrafter((*toys.PROMPT, *toys.plain(40)))
    table = calibrate(source({"deep": deep}), PROMPTS[:1], tmp_path, CalibrationPlan(2, 4, 1, 12))
    own = table[table["series"] == "deep"]
    assert own["depth"].max() == deep.max_depth and own["tvd"].between(0, 1).all()
    text = Journal(tmp_path / FILE).get("texts")["texts"][0]
    line = own[own["number"] == 1].iloc[-1]
    target, at = toys.target(layers=()), int(line["position"])
    target.prefill(text[:at], 64)
    drawn = continuations(target, text[at], 5, 4, torch.Generator().manual_seed(1))
    deep.reset(64)
    deep.extend(text[:at], text[:at])
    session, far = deep.begin(text[at], 1), []
    for path in drawn.paths:
        tokens = drawn.draft.tokens[list(path)].tolist()
        p = toys.full_forward([*text[:at], *tokens]).logits[-1].softmax(-1)
        far.append(float((session.after(tuple(tokens)).exp() - p).abs().sum() / 2))
    assert line["tvd"] == pytest.approx(np.mean(far), abs=1e-4)


def test_other_weights_are_another_measurement(tmp_path):
    """Work that is kept is one drafter's, as its weights stand; a file tells which they were."""
    target, drafter = save_toys(tmp_path)
    asked = CalibrationPlan(2, 2, 1, 8)

    def source():
        return collecting.source_of(Engine(str(target), "cpu", drafter), ["dflash"], {})

    first = source()
    calibrate(first, PROMPTS, tmp_path / "measured", asked)
    calibrate(source(), PROMPTS, tmp_path / "measured", asked)  # the same, whoever loaded it
    with pytest.raises(UserError, match="another measurement"):
        calibrate(first, PROMPTS, tmp_path / "measured", CalibrationPlan(2, 2, 1, 9))
    path = tmp_path / "x.safetensors"
    with pytest.raises(KeyboardInterrupt):
        collecting.collect(
            first, PROMPTS[1], path, collecting.CollectionPlan(40, 8), report=interrupted
        )
    assert (tmp_path / "x.safetensors.partial").is_dir()
    FORM.save_model(
        toys.dflash_model(7, torch.float32, mask_token_id=BYTES - 1, vocab_size=BYTES), drafter
    )
    with pytest.raises(UserError, match="another measurement"):
        calibrate(source(), PROMPTS, tmp_path / "measured", asked)
    trained = source()
    made = collecting.collect(trained, PROMPTS[1], path, collecting.CollectionPlan(40, 8))
    alone = collecting.collect(
        trained, PROMPTS[1], tmp_path / "y.safetensors", collecting.CollectionPlan(40, 8)
    )
    np.testing.assert_array_equal(made.arrays["dflash.ids"], alone.arrays["dflash.ids"])
    old, new = (s.about["weights"]["dflash"]["sha256"] for s in (first, trained))
    assert made.header.about["weights"]["dflash"]["sha256"] == new != old


def interrupted(done, what):
    if done > 0.5:
        raise KeyboardInterrupt


def test_files_and_figures_are_written_and_read_again(measured, tmp_path):
    table, folder = measured
    pd.testing.assert_frame_equal(read_table(folder), table)
    csv = read_table(folder / "calibration.csv")
    np.testing.assert_allclose(csv["tvd"], table["tvd"])
    for name in ("tvd", "coverage"):
        page = (folder / f"{name}.html").read_text()
        assert "treeflash" in page and "cdn" not in page.split("</head>")[0]
    (tmp_path / "x.parquet").write_bytes(b"no")
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    for name in ("x.parquet", "x.csv", "gone.parquet"):
        with pytest.raises(UserError) as error:
            read_table(tmp_path / name)
        assert "\n" not in str(error.value)


def test_curves_are_means_with_intervals_and_the_deviation_over_seeds(measured):
    table, _ = measured
    drawn = curves(table)
    references = ["marginal", "marginal, held out"]
    assert list(dict.fromkeys(drawn["series"])) == [*references, "dflash", "treeflash", "dart"]
    line = drawn[(drawn["series"] == "dart") & (drawn["depth"] == 3)].iloc[0]
    own = table[(table["series"] == "dart") & (table["depth"] == 3)]
    assert line["observed"] == len(own) and line["tvd"] == pytest.approx(own["tvd"].mean())
    means = [own[own["seed"] == seed]["tvd"].mean() for seed in (0, 1)]
    assert line["tvd_sd"] == pytest.approx(np.std(means, ddof=1))
    half = 1.959964 * own["tvd"].std(ddof=1) / np.sqrt(len(own))
    assert line["tvd_low"] == pytest.approx(line["tvd"] - half)
    assert line["tvd_high"] == pytest.approx(min(1, line["tvd"] + half))
    alone = curves(table[table["seed"] == 0])
    assert alone["tvd_sd"].isna().all() and alone["coverage_1_sd"].isna().all()
    assert (alone["observed"] < 5).all() and alone["tvd_low"].isna().all()
    assert (drawn[list(COVERAGE)].diff(axis=1).iloc[:, 1:] >= -1e-6).all().all()


def test_anchors_are_spread_over_seeds_and_prompts():
    places = [range(8, 19), range(3, 8)]
    found = anchors(CalibrationPlan(9, 4, 3), places)
    assert [a.number for a in found] == list(range(9))
    assert [a.seed for a in found] == [0, 1, 2] * 3
    assert {a.prompt for a in found} == {0, 1}
    assert all((8, 3)[a.prompt] <= a.position < (19, 8)[a.prompt] for a in found)
    assert found == anchors(CalibrationPlan(9, 4, 3), places)
    assert len({tuple(a.position for a in found if a.seed == seed) for seed in range(3)}) == 3
    new = [_places(answer, np.arange(8), frozenset()) for answer in (3, 7)]
    assert new == [range(3, 7), range(7, 8)]


def test_a_text_that_ends_at_once_has_no_anchor(tmp_path):
    """Behind a stop token the target says nothing that anybody would decode."""
    texts = [calibrated(prompt, tmp_path / str(n)) for n, prompt in enumerate(PROMPTS)]
    stop = texts[1][len(PROMPTS[1])]
    assert stop not in texts[0][len(PROMPTS[0]) :]
    table = calibrate(source(stop=[stop]), PROMPTS, tmp_path / "both", PLAN)
    assert set(table["prompt"]) == {0} and set(table["number"]) == set(range(6))
    with pytest.raises(UserError, match="ends with its first token"):
        calibrate(source(stop=[stop]), PROMPTS[1:], tmp_path / "one", PLAN)


def calibrated(prompt, folder):
    """The target's own text on a prompt."""
    calibrate(source(), [prompt], folder, CalibrationPlan(1, 1, 1, 12))
    return Journal(folder / FILE).get("texts")["texts"][0]


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (CalibrationPlan(0), "anchors"),
        (CalibrationPlan(4, 0), "continuations"),
        (CalibrationPlan(4, 4, 0), "seeds"),
        (CalibrationPlan(2, 4, 3), "3 seeds"),
        (CalibrationPlan(4, 4, 1, 0), "new tokens"),
        (CalibrationPlan(4, 4, 1, 9, 0), "depths"),
    ],
)
def test_a_plan_out_of_range_is_one_sentence(plan, words, tmp_path):
    with pytest.raises(UserError, match=words):
        calibrate(source(), PROMPTS, tmp_path, plan)


def test_a_name_that_a_spreadsheet_would_compute_is_text_in_the_csv(measured, tmp_path):
    table = measured[0].assign(series="=HYPERLINK(1)")
    write_tables(table, tmp_path)
    lines = (tmp_path / "calibration.csv").read_text().splitlines()
    assert len(lines) == len(table) + 1
    assert all("'=HYPERLINK(1)" in line for line in lines[1:])
    assert set(pd.read_parquet(tmp_path / "calibration.parquet")["series"]) == {"=HYPERLINK(1)"}
    assert len(read_table(tmp_path / "calibration.csv")) == len(table)
