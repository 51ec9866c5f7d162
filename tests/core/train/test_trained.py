"""Trained against served: a trainer's accuracy by depth, its file, and the overfit gate."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from analysis.drafters.trained import (
    AFTER,
    ALL,
    COUNTED,
    Curve,
    read_accuracy,
    sentences,
    trained_and_served,
)
from analysis.engines.served import read_served
from analysis.measures.counts import Counts
from analysis.measures.tables import Tables
from app import cli
from app.maintainers.overfit import Bound, OverfitResult, overfit
from core import ASSETS
from core.errors import UserError
from core.methods.dflash.training import DFlashStudent
from core.methods.registry import drafter_trainings
from core.models.language import load_language
from core.stats import wilson
from core.traces.reader import read_trace
from core.traces.record import Recorder
from core.traces.schema import Trace
from core.traces.writer import TraceWriter
from core.train.accuracy import Accuracy, write_accuracy
from core.train.options import FitSettings
from tests.helpers.fakes import make_header, make_round
from tests.helpers.sentences import is_one_sentence


def served(rounds=120, ahead=True) -> Trace:
    """A drafter whose best token is right about half the time."""
    tokens = np.random.default_rng(1).integers(0, 32, 2000).tolist()
    made, position = [], 10
    while len(made) < rounds:
        known = tokens[position + 1 : position + 14] if ahead else ()
        made.append(make_round(position, 40, len(made), position, tokens[position], ahead=known))
        position += made[-1].accepted + 1
    return Trace(make_header("why?"), tuple(made), {})


def written(path, value):
    path.write_text(value if isinstance(value, str) else json.dumps(value), "utf-8")
    return path


# ── the file ─────────────────────────────────────────────────────────────────────────────────────


def test_a_prefix_is_right_when_all_of_it_is():
    """Counted once more, place by place."""
    rng = np.random.default_rng(0)
    right, there = rng.random((50, 5)) < 0.6, np.arange(5) < rng.integers(1, 6, (50, 1))
    found = Accuracy.of("train", right, there)
    for depth in range(5):
        places = [a for a in range(50) if there[a, depth]]
        after = [a for a in places if right[a, :depth].all()]
        assert (found.seen[depth], found.seen_after[depth]) == (len(places), len(after))
        assert found.right[depth] == sum(right[a, depth] for a in places)
        assert found.right_after[depth] == sum(right[a, depth] for a in after)


def test_our_own_file_is_read_again(tmp_path):
    made = Accuracy("held out", (8, 3), (10, 10), (8, 3), (10, 8))
    write_accuracy(tmp_path / "accuracy.json", "dflash", 7, [made])
    assert read_accuracy(tmp_path / "accuracy.json") == [
        Curve("held out", ALL, (0.8, 0.3), (10, 10)),
        Curve("held out", AFTER, (0.8, 0.375), (10, 8)),
    ]


LOG = [
    {"train/acc_0": 0.1, "train/acc_1": 0.2, "train/lr": 1e-4, "train/epoch": 0.5},
    {"train/acc_0": 0.9, "eval/acc_0": 0.7, "val/cond_acc_1": 0.6, "note": "x"},
]


def test_logs_of_other_trainers_are_read_and_their_last_value_counts(tmp_path):
    lines = "\n".join(map(json.dumps, LOG))
    table = "step,train/acc_0,train/acc_1,eval/acc_0,val/cond_acc_1\n1,0.1,0.2,,\n2,0.9,,0.7,0.6\n"
    for name, value in (("a.jsonl", lines), ("a.json", LOG), ("a.csv", table)):
        found = {(c.text, c.kind): c.values for c in read_accuracy(written(tmp_path / name, value))}
        assert found.pop(("train", ALL)) == (0.9, 0.2)
        assert found.pop(("eval", ALL)) == (0.7,)
        conditional = found.pop(("val", AFTER))
        assert np.isnan(conditional[0]) and conditional[1] == 0.6 and not found
    assert read_accuracy(written(tmp_path / "b.json", {"full_acc_0": "0.5"}))[0].text == "train"
    cut, file = list[str](), written(tmp_path / "c.jsonl", lines[:-1])
    assert read_accuracy(file, cut.append)[0].values[0] == 0.1 and len(cut) == 1


@pytest.mark.parametrize(
    "value",
    [
        "{", "[]", "{}", "[1]", {"acc_0": 7}, {"acc_0": "x"}, {"acc_0": True}, {"acc_0": [1]},
        {"acc_999": 0.5}, {"acc_0": 0.5, "acc_999": 0.5}, {"acc_0": "nan"},
        {f"t{n}/acc_0": 0.5 for n in range(99)},
        {"format": "draftscope-accuracy"}, {"format": "draftscope-accuracy", "texts": [3]},
        {"format": "draftscope-accuracy", "texts": [{"text": "a", "right": [2], "seen": [1],
         "right_after": [], "seen_after": []}]},
    ],
)  # fmt: skip
def test_a_hostile_file_is_one_sentence(value, tmp_path, capsys):
    for ending in ("json", "jsonl", "csv"):
        path = written(tmp_path / f"a.{ending}", value)
        with pytest.raises(UserError) as error:
            read_accuracy(path)
        assert "\n" not in str(error.value)
    assert cli.main(["report", str(tmp_path), "--trained", str(path)]) == 2
    assert is_one_sentence(capsys.readouterr().err)
    with pytest.raises(UserError, match="read"):
        read_accuracy(tmp_path / "none.json")


# ── beside what is served ────────────────────────────────────────────────────────────────────────


def test_the_served_numbers_are_those_of_the_rounds():
    trace = served()
    found = trained_and_served([], Tables.of(trace)).set_index(["measure", "depth"])["value"]
    for depth in (1, 2):
        seen = [r for r in trace.rounds if r.accepted >= depth - 1]
        hit = [r for r in seen if r.accepted >= depth]
        assert found[AFTER, depth] == pytest.approx(np.mean(best_right(trace, depth)))
        assert found["accepted", depth] == pytest.approx(len(hit) / len(seen))
        assert found["survival", depth] == pytest.approx(len(hit) / len(trace.rounds))


def best_right(trace: Trace, depth: int) -> list[bool]:
    """Whether the best token was right, behind paths of best tokens, counted round by round."""
    found = []
    for r in trace.rounds:
        path = r.verdict.path
        if len(path) >= depth and all(r.draft.ranks[row] == 1 for row in path[1:depth]):
            wanted = r.verdict.target_tokens[path[depth - 1]]
            found.append(bool(r.by_depth.ids[depth - 1, 0] == wanted))
    return found


def test_after_a_right_prefix_leaves_out_what_stands_behind_a_sibling():
    """The drafter is right after its own tokens and wrong after siblings, in training too."""
    trace = read_trace(ASSETS / "traces" / "chat-ddtree-16.jsonl.gz")
    found = trained_and_served([], Tables.of(trace))
    rows = found[found["measure"] == AFTER].set_index("depth")
    for depth in (1, 2, 3):
        hits = best_right(trace, depth)
        assert rows["value"][depth] == pytest.approx(np.mean(hits))
        assert rows["over"][depth] == len(hits)


@pytest.mark.parametrize("seed", range(3))
def test_a_drafter_as_trained_is_not_said_to_be_below(seed):
    """8 depths, 100 times each: 8 intervals of 95 % by themselves would accuse 30 % of them."""
    rng, accused = np.random.default_rng(seed), 0
    for _ in range(100):
        share = rng.uniform(0.3, 0.9, 8)
        places = rng.integers(40, 400, 8)
        curve = Curve("val", AFTER, tuple(share))  # as if exact
        rows = [
            {"source": "a", "text": "served", "measure": AFTER, "depth": d, "over": n,
             "value": rng.binomial(n, p) / n, "temperature": 0.0}
            for d, (n, p) in enumerate(zip(places, share, strict=True), 1)
        ]  # fmt: skip
        found = pd.concat([trained_and_served([curve]), pd.DataFrame(rows)], ignore_index=True)
        found["low"], found["high"] = wilson(found["value"] * found["over"], found["over"])
        accused += "served is below" in " ".join(sentences(found))
    assert accused <= 8


def test_few_trained_places_prove_nothing():
    """Trained 6 of 10 says as little of 36 of 100 as served 6 of 10 would."""
    curve = Curve("val", AFTER, (0.99,), (10,))
    assert "too little" in said(curve)
    assert "served is below" in said(replace(curve, seen=(1000,)))


def test_the_first_depth_of_all_places_begins_the_curve_after_a_right_prefix():
    """At depth 1 both are one: a log may hold the second kind from depth 2 on."""
    after = Curve("val", AFTER, (np.nan, 0.6))
    assert "below trained at depth 1: trained 0.95" in said(Curve("val", ALL, (0.95, 0.5)), after)
    assert "too little in common" in said(after)  # nobody knows whether depth 1 is below already


def test_the_wiring_is_not_accused_of_what_sampling_does():
    warm = replace(served(), header=replace(served().header, settings={"temperature": 1.0}))
    curve = Curve("held out", AFTER, (0.99,))
    assert "the temperature 1 lowers it, too" in said(curve, trace=warm)
    assert "or it was sampled: its temperature is not told" in said(curve)
    greedy = replace(served(), header=replace(served().header, settings={"temperature": 0.0}))
    assert "temperature" not in said(curve, trace=greedy)


def said(*curves: Curve, trace: Trace | None = None) -> str:
    return " ".join(sentences(trained_and_served(curves, Tables.of(trace or served()))))


def test_what_the_difference_means_is_said():
    tables = Tables.of(served())
    rows = trained_and_served([], tables)
    true = rows[rows["measure"] == AFTER].sort_values("depth")["value"].tolist()[:4]
    good = Curve("held out", AFTER, tuple(true))
    assert "served is not shown to be below trained up to depth" in said(good)
    assert "already the first token is worse" in said(replace(good, values=(0.99,)))
    later = replace(good, values=(true[0], min(1.0, true[1] * 2.5)))
    assert "at depth 2" in said(later) and "up to depth 1 served is not shown to be below" in said(
        later
    )
    # at all places a deeper number is not comparable with what serving sees
    assert "depth 2" not in said(replace(later, kind=ALL))
    heart = Curve("train", AFTER, (0.99,))
    assert "by heart" in said(heart, replace(good, values=(true[0],)))
    assert "already the first token" in said(heart)
    assert "too little" in said(good, trace=served(rounds=9))


def from_log(tmp_path, text: str) -> Counts:
    path = tmp_path / "vllm.log"
    path.write_text(text)
    return read_served(path)


LINE = (
    "SpecDecoding metrics: Mean acceptance length: {}, Accepted: {} tokens, Drafted: {} tokens, "
    "Per-position acceptance rate: {}"
)


def test_an_engines_counts_are_the_served_side(tmp_path):
    """Trained 70 %, served 39 %, answered from a line of vLLM's log: 78, 39, 13 of 200 drafts."""
    trained = Curve("val", AFTER, (0.7, 0.55, 0.5))
    line = LINE.format("1.65", 130, 600, "0.390, 0.195, 0.065")
    found = trained_and_served([trained], None, {"a.log": from_log(tmp_path, line)})
    (words,) = sentences(found)
    assert (
        "a.log: served is below trained at depth 1: trained 0.70 (val), served 0.39 [0.33, 0.46]"
        in words
    )
    assert "`diagnose`" in words and "temperature" in words
    rows = found[found["measure"] == COUNTED].set_index("depth")
    assert rows["value"].tolist() == pytest.approx([78 / 200, 39 / 78, 13 / 39])
    assert rows["over"].tolist() == [200, 78, 39]


def test_shares_without_counts_have_no_interval_and_say_so(tmp_path):
    trained = Curve("val", AFTER, (0.7, 0.65, 0.6))
    counts = from_log(tmp_path, "Per-position acceptance rate: 0.600, 0.300, 0.100")
    found = trained_and_served([trained], None, {"a.log": counts})
    assert found["low"].isna().all() and found["over"].isna().all()
    (words,) = sentences(found)
    assert "at depth 3" in words and "served 0.33 (over how many is not told)" in words
    assert "or drafts were shorter, which is not told" in words
    (words,) = sentences(trained_and_served([replace(trained, values=(0.7,))], None, {"a": counts}))
    assert "not shown to be below trained up to depth 1 (over how many is not told)" in words


def test_a_lower_bound_is_not_compared(tmp_path):
    """Drafts of 1 and of 3 places: how many came to place 2 is not told."""
    counts = from_log(tmp_path, LINE.format("1.80", 80, 200, "0.600, 0.150, 0.050"))
    found = trained_and_served([Curve("val", AFTER, (0.6, 0.6, 0.6))], None, {"a.log": counts})
    counted = found[found["source"] == "a.log"]
    assert sorted(counted["measure"] + counted["depth"].astype(str)) == [
        f"{COUNTED}1", "survival1", "survival2", "survival3",
    ]  # fmt: skip
    (words,) = sentences(found)
    assert "not shown to be below trained up to depth 1" in words


@pytest.mark.parametrize(("share", "below"), [(0.39, True), (0.7, False)])
def test_a_chain_without_lists_is_compared_at_all_its_places(tmp_path, share, below):
    """The drafter's token is right at 28 of 40 places in training; here as often as ``share``."""
    greedy = {"temperature": 0.0}
    with Recorder(tmp_path / "a.jsonl", "chain", [1], budget=3, settings=greedy) as record:
        root = 0
        for n in range(100):
            right = n < 100 * share
            record.round([root, 5, 6, 7], [-1, 0, 1, 2], [0, 1] if right else [0], 8)
            root = 8
    trace = read_trace(tmp_path / "a.jsonl")
    found = trained_and_served([], Tables.of(trace))
    (first,) = found[(found["measure"] == AFTER) & (found["depth"] == 1)].to_dict("records")
    assert first["value"] == pytest.approx(share) and first["over"] == 100
    words = said(Curve("train", AFTER, (0.7,), (40,)), trace=trace)
    assert ("served is below trained at depth 1" in words) == below
    assert ("already the first token is worse" in words) == below


def test_the_command(tmp_path, capsys):
    trace = served()
    writer = TraceWriter(tmp_path / "run.jsonl", trace.header)
    for record in trace.rounds:
        writer.write(record)
    writer.finish()
    file = written(tmp_path / "log.json", LOG)
    assert cli.main(["report", str(tmp_path / "run.jsonl"), "--trained", str(file)]) == 0
    assert "after a right prefix" in capsys.readouterr().out
    assert cli.main(["report", str(tmp_path / "run.jsonl"), "--trained", str(file), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["sentences"] and {r["text"] for r in found["table"]} >= {"train", "served"}
    log = tmp_path / "vllm.log"
    log.write_text(LINE.format("1.65", 130, 600, "0.390, 0.195, 0.065"))
    both = [str(log), str(tmp_path / "run.jsonl"), "--trained", str(file)]
    assert cli.main(["report", *both, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len({r["source"] for r in found["table"]}) == 3
    assert any(line.startswith("vllm.log: ") for line in found["sentences"])
    log.write_text("Decode batch, accept len: 2.40")
    assert cli.main(["report", *both]) == 2
    assert "no acceptance by place" in capsys.readouterr().err


# ── the overfit gate ─────────────────────────────────────────────────────────────────────────────


FIT = FitSettings(1e6, sequences=1, anchors=20, lr=5e-3, warmup=5, average=0.8, save_every=1 << 30)
PLAN = Bound(steps=90, expect=0.5, prompt="hi", new_tokens=24)


def gated(toys_folder, out) -> OverfitResult:
    language = load_language(str(toys_folder / "target"), "cpu", fast=False)
    return overfit(drafter_trainings()["dflash"], language, out, FIT, PLAN)


def test_a_sound_training_learns_one_sample_and_its_drafter_decodes_it(toys_folder, tmp_path):
    gate = gated(toys_folder, tmp_path / "gate")
    assert list(gate.missed) == [] and gate.student.mean > 0.5
    assert gate.drafter.mean == pytest.approx(gate.student.mean, abs=0.05)
    with pytest.raises(UserError, match="not empty"):
        gated(toys_folder, tmp_path / "gate")


def test_labels_shifted_by_one_are_seen_although_training_is_content(
    toys_folder, tmp_path, monkeypatch
):
    right = DFlashStudent.labels

    def shifted(self, blocks, *more):
        found = right(self, blocks, *more)
        late = torch.cat([found.ids[:, 1:], found.ids[:, -1:]], 1)
        return replace(found, ids=late)

    monkeypatch.setattr(DFlashStudent, "labels", shifted)
    gate = gated(toys_folder, tmp_path)
    (sentence,) = gate.missed
    assert "fed otherwise" in sentence and gate.student.mean > 0.5


def test_too_few_steps_miss_the_gate(toys_folder, tmp_path):
    words = ["dflash", "--model", str(toys_folder / "target"), "--device", "cpu", "--prompt", "hi"]
    words += ["--out", str(tmp_path / "gate"), "--steps", "1", "--max-new-tokens", "24"]
    command = [sys.executable, "-m", "app.maintainers.overfit", *words]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 1 and "has learnt" in found.stderr
    assert "Traceback" not in found.stderr and "as it decodes" in found.stdout
