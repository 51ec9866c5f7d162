"""Several texts in What-if and calibration: intervals across them, and the one that departs."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from analysis.charts.chart import as_json
from analysis.charts.figures import PAGE
from analysis.collected import calibration
from analysis.collected.budget_figures import tau_by_budget, tau_over_texts
from analysis.collected.collection import Collection
from analysis.collected.many_texts import calibration_texts, departs, whatif_texts
from analysis.collected.whatif import SimulatedRun
from analysis.frames import COVERAGE
from app import cli
from core.decoding.engine import Engine
from core.decoding.request import RunRequest
from core.stats import difference_interval, ratio_interval
from tests.helpers.sentences import is_one_sentence
from tests.helpers.toys_on_disk import save_toys


def run(lengths, method="ddtree", budget=8, exact=True) -> SimulatedRun:
    return SimulatedRun(method, budget, {}, tuple(lengths), (), sum(lengths), exact, "")


def made():
    rng = np.random.default_rng(0)
    return {
        f"text {n}": [
            run(rng.integers(1, 4, 20 + n)), run(rng.integers(2, 6, 15 + n), budget=64),
        ]
        for n in range(5)
    }  # fmt: skip


def test_every_number_over_texts_is_that_of_a_slow_reading():
    runs = made()
    found = whatif_texts(runs).set_index("budget")
    small, large = ([some[k].lengths for some in runs.values()] for k in (0, 1))
    rng = np.random.default_rng(0)
    picks = rng.integers(0, 5, (2000, 5))

    def tau(lengths, chosen=range(5)):
        return sum(sum(lengths[i]) for i in chosen) / sum(len(lengths[i]) for i in chosen)

    drawn = [[tau(lengths, row) for row in picks] for lengths in (small, large)]
    assert found.loc[8, "tau"] == pytest.approx(tau(small))
    low, high = np.quantile(drawn[0], [0.025, 0.975])
    assert (found.loc[8, "low"], found.loc[8, "high"]) == pytest.approx((low, high))
    assert found.loc[8, "difference"] == pytest.approx(tau(small) - tau(large))
    low, high = np.quantile(np.subtract(*drawn), [0.025, 0.975])
    assert (found.loc[8, "difference_low"], found.loc[8, "difference_high"]) == pytest.approx(
        (low, high)
    )
    assert found.loc[64, "difference"] == found.loc[64, "difference_high"] == 0
    far = [abs(tau(small, [i]) - tau(small, [j for j in range(5) if j != i])) for i in range(5)]
    assert found.loc[8, "apart"] == f"text {int(np.argmax(far))}"


@pytest.mark.parametrize("units", [8, 40])
def test_an_interval_does_not_depend_on_the_order_of_its_units(units):
    """The same runs by report, grid and what-if, which list them each in an order of their own."""
    rng = np.random.default_rng(0)
    counts, others = rng.integers(5, 30, (2, units))
    sums, more = counts + rng.poisson(counts), others + rng.poisson(others)
    order = rng.permutation(units)
    assert ratio_interval(sums, counts) == ratio_interval(sums[order], counts[order])
    columns = (sums, counts, more, others)
    assert difference_interval(*columns) == difference_interval(
        *(column[order] for column in columns)
    )
    low, high = difference_interval(*columns[2:], *columns[:2])
    assert difference_interval(*columns) == pytest.approx((-high, -low), abs=0.05)


def test_one_text_has_no_interval_and_the_odd_one_is_named():
    found = whatif_texts({"a": [run([1, 2])]}).iloc[0]
    assert found["texts"] == 1 and np.isnan(found["low"]) and np.isnan(found["others_tau"])
    runs = {f"t{n}": [run([2, 2, 2])] for n in range(4)} | {"odd": [run([1, 1, 1], exact=False)]}
    found = whatif_texts(runs).iloc[0]
    assert (found["apart"], found["apart_tau"], found["others_tau"]) == ("odd", 1.0, 2.0)
    assert not found["exact"]


def test_calibration_is_paired_by_prompt():
    rng = np.random.default_rng(1)
    rows = [
        {"series": name, "depth": depth, "prompt": prompt, "tvd": base + prompt * 0.01 + noise}
        for prompt in range(5)
        for anchor in range(5)
        for depth in (1, 2)
        for noise in [rng.uniform(0, 0.1)]
        for name, base in (
            ("marginal", 0.1),
            ("marginal, held out", 0.2),
            ("dflash@a", 0.3),
            ("dflash@b", 0.35),
        )
    ]
    table = pd.DataFrame(rows)
    found = calibration_texts(table).set_index(["series", "depth"])
    row = found.loc[("dflash@b", 1)]
    # noise is shared: the paired difference is sharp although each series is not
    assert row["against"] == "dflash@a" and row["texts"] == 5
    assert row["difference"] == pytest.approx(0.05) and row["difference_low"] == pytest.approx(0.05)
    assert row["high"] - row["low"] > 0.001
    some = table[(table["series"] == "dflash@b") & (table["depth"] == 1)]
    assert row["tvd"] == pytest.approx(some["tvd"].mean())
    means = some.groupby("prompt")["tvd"].mean()
    others = [some[some["prompt"] != p]["tvd"].mean() for p in range(5)]
    assert row["apart"] == 1 + int(np.abs(means.to_numpy() - others).argmax())
    assert calibration_texts(table.drop(columns="prompt")).empty


def bands(figure):
    """Of each band, (x, low, high) from the left."""
    for trace in as_json(figure)["data"]:
        if trace.get("fill") == "toself":
            half = len(trace["x"]) // 2
            x, high, low = trace["x"][:half], trace["y"][:half], trace["y"][half:][::-1]
            yield np.array([x, low, high]).T


def test_the_curve_over_texts_has_a_band_across_them_and_names_who_departs():
    table = whatif_texts(made())
    figure = tau_over_texts({"one": table, "other": table}, PAGE)
    for band in bands(figure):
        np.testing.assert_allclose(band, table[["budget", "low", "high"]].to_numpy())
    assert len(list(bands(figure))) == 2
    line = next(trace for trace in as_json(figure)["data"] if "hovertext" in trace)
    for said, apart in zip(line["hovertext"], table["apart"], strict=True):
        assert f"{apart} differs most" in said
    alone = tau_over_texts({"one": whatif_texts({"a": [run([1, 2])]})})
    assert "differs most" not in json.dumps(as_json(alone)["data"])


@pytest.mark.parametrize("texts", [0, 1, 4, 5])
def test_a_curve_and_its_axis_hold_what_its_runs_told(texts):
    """Of one text alone (0), or of several, which have an interval from five on."""
    one = [run([1, 2, 6], budget=1), run([4], budget=8)]
    table = whatif_texts(dict([*made().items()][: texts or 1]))
    if not texts:
        figure, top = as_json(tau_by_budget({"one": one}, PAGE)), 4.0
        line = next(trace for trace in figure["data"] if "hovertext" in trace)
        assert (line["x"], line["y"]) == ([1, 8], [3.0, 4.0])
    else:
        figure, top = (
            as_json(tau_over_texts({"one": table}, PAGE)),
            table[["tau", "high"]].max().max(),
        )
        says = figure["layout"]["meta"]["says"]
        assert ("The band is" in says) == table["low"].notna().all() == (texts >= 5)
    many = "1 text" if texts in (0, 1) else f"{texts} texts"
    assert figure["layout"]["title"]["subtitle"]["text"].startswith(f"{many}, simulated")
    assert figure["layout"]["yaxis"]["range"][0] <= 1 < top
    assert top <= figure["layout"]["yaxis"]["range"][1] < 1.2 * top


def calibrated(prompts):
    rng = np.random.default_rng(2)
    return pd.DataFrame([
        {"number": anchor, "seed": 0, "prompt": prompt, "position": anchor, "series": name,
         "depth": depth, "continuations": 4, "tvd": rng.uniform(0.1, 0.2 + prompt / 9)}
        | dict.fromkeys(COVERAGE, 0.5)
        for prompt in range(prompts) for anchor in range(6) for name in ("a", "b")
        for depth in (1, 2)
    ])  # fmt: skip


def check(figure, table, columns):
    for band, (_, part) in zip(bands(figure), table.groupby("series"), strict=True):
        np.testing.assert_allclose(band, part[columns].to_numpy())


def test_the_band_of_a_calibration_is_over_texts_where_there_are_several(monkeypatch):
    table = calibrated(prompts=5)
    over = calibration_texts(table)
    figure = calibration.figures(table, PAGE)["tvd-by-depth"]
    check(figure, over, ["depth", "low", "high"])
    assert "across 5 texts" in json.dumps(as_json(figure)["layout"])
    one, large = calibrated(prompts=1), table
    for some, most in ((one, calibration.MAX_DRAWN), (large, 19)):  # 20 groups are too many
        monkeypatch.setattr(calibration, "MAX_DRAWN", most)
        figure = calibration.figures(some, PAGE)["tvd-by-depth"]
        check(figure, calibration.curves(some), ["depth", "tvd_low", "tvd_high"])


def test_a_text_without_rounds_departs_from_nothing():
    frame = pd.DataFrame({"sum": [0, 4], "count": [0, 2]}, index=["none", "some"])
    assert departs(frame)[0] in ("none", "some")


def test_several_prompts_fill_a_folder_and_finished_texts_stay(tmp_path, capsys):
    save_toys(tmp_path)
    place = ["--model", str(tmp_path / "target"), "--drafter", str(tmp_path / "drafter")]
    rest = ["--max-new-tokens", "12", "--methods", "ddtree", "--device", "cpu", *place]
    folder, prompts = tmp_path / "texts", tmp_path / "prompts.jsonl"

    def collected(*texts: str) -> int:
        prompts.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
        return cli.main(["collect", "--out", str(folder), "--prompts", str(prompts), *rest])

    assert collected("one", "two") == 0
    assert "2 texts, 24 new tokens" in capsys.readouterr().err
    files = sorted(folder.glob("*.safetensors"))
    held = [Collection.load(file).header.prompt_text for file in files]
    assert held == ["one", "two"]
    single = tmp_path / "one.safetensors"
    assert cli.main(["collect", "--out", str(single), "--prompt", "one", *rest]) == 0
    one, same = Collection.load(files[0]), Collection.load(single)
    assert one.arrays.keys() == same.arrays.keys()
    for name, values in same.arrays.items():
        np.testing.assert_array_equal(one.arrays[name], values)
    before = [file.stat().st_mtime_ns for file in files]
    files[1].unlink()
    assert collected("one", "two", "three") == 0  # only what is missing
    now = sorted(folder.glob("*.safetensors"))
    assert [file.name for file in now] == [f"000{n}.safetensors" for n in (1, 2, 3)]
    assert now[0].stat().st_mtime_ns == before[0]
    capsys.readouterr()
    assert collected("two", "one") == 2
    assert "another prompt" in capsys.readouterr().err
    folder = single
    assert collected("one", "two") == 2
    assert is_one_sentence(capsys.readouterr().err)


def test_the_command_over_a_folder_of_texts(tmp_path, capsys):
    save_toys(tmp_path)
    place = ["--model", str(tmp_path / "target"), "--drafter", str(tmp_path / "drafter")]
    (tmp_path / "texts").mkdir()
    prompts = ("one", "two")
    for prompt in prompts:
        words = [
            "collect",
            "--out",
            str(tmp_path / "texts" / f"{prompt}.safetensors"),
            "--prompt",
            prompt,
        ]
        words += ["--max-new-tokens", "12", "--methods", "ddtree", "--device", "cpu", *place]
        assert cli.main(words) == 0
    capsys.readouterr()
    words = ["whatif", str(tmp_path / "texts"), "--methods", "ddtree", "--budget", "4", "9"]
    assert cli.main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    engine = Engine(str(tmp_path / "target"), "cpu", str(tmp_path / "drafter"))
    lengths = [
        r.accepted + 1
        for prompt in prompts
        for r in engine.start(RunRequest(prompt, method="ddtree", budget=9, max_new_tokens=12))
    ]
    assert found[1]["budget"] == 9 and found[1]["texts"] == 2
    assert found[1]["tau"] == pytest.approx(sum(lengths) / len(lengths))
    assert cli.main(words) == 0
    said = capsys.readouterr().out
    assert "differs most" in said and said.count(" none ") == 1  # the best, from itself
    assert "Fewer than 5 texts give no interval." in said
    one, other = (str(tmp_path / "texts" / f"{prompt}.safetensors") for prompt in prompts)
    assert cli.main(["whatif", one, other]) == 0
    (tmp_path / "empty").mkdir()
    assert cli.main(["whatif", str(tmp_path / "empty")]) == 2
    assert is_one_sentence(capsys.readouterr().err)
