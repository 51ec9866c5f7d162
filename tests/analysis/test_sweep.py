"""``grid run``: one table and a trace per run, whatever kills it, whatever fails, or Ray."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.experiments.prompts import Prompt
from analysis.experiments.sweep import (
    SCHEMA,
    Job,
    Plan,
    Terms,
    grid_variants,
    results,
    row_of,
    scores,
    variant_score,
    with_same_as_plain,
)
from analysis.experiments.sweep_folder import Folder
from analysis.experiments.variants import Variant, variant_name, variants_of
from analysis.measures.acceptance import tau
from analysis.measures.tables import Tables
from app import cli, ray_workers, sweep_runner
from app.commands import common
from app.commands.grid import sweep as grid_sweep
from app.ray_workers import Allocation, Cluster, Scheduler, WorkerDied
from core.errors import UserError
from core.traces.reader import read_ends, read_trace
from tests import ROOT
from tests.helpers.processes import start
from tests.helpers.sentences import is_one_sentence
from tests.helpers.toys_on_disk import save_toys

TIMES = ["seconds", "tokens_per_second", "prefill", "draft", "build", "verify", "commit", "created"]
RAISES = """
from pathlib import Path
from core.drafting.session import Drafter
from core.methods.method import DrafterInfo, Method

class Raises(Drafter):
    max_depth = 3
    def reset(self, capacity): self.read = 0
    def extend(self, tokens, features): self.read += len(tokens)
    def begin(self, root, width):
        {what}

METHOD = Method("Raises", DrafterInfo("raises", "", lambda *_: Raises()), "best-first", budget=4)
"""


@pytest.fixture(scope="module")
def toys(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("toys")
    save_toys(folder)
    (folder / "prompts.jsonl").write_text(
        '{"prompt": "one", "source": "chat"}\n{"prompt": "two \\u2028"}\n{"prompt": "one"}\n'
    )
    return folder


OTHERS = ("ar", "dflash", "ddtree")
TOKENS = 12


@pytest.fixture(scope="module")
def words(toys):
    """The words of a sweep of 16 runs into a folder: 4 variants × 2 prompts × 2 seeds. Lists that
    are named in ``more`` stand there alone: a command line adds up what it names twice."""

    def made(out: Path, *more: object) -> list[str]:
        lists = {"--methods": OTHERS, "--budget": (4, 9), "--seed": (0, 1)}
        basic = [
            "grid", "run", "--out", out,
            *(word for name, some in lists.items() if name not in more for word in (name, *some)),
            "--temperature", 1, "--max-new-tokens", TOKENS, "--prompts", toys / "prompts.jsonl",
            "--model", toys / "target", "--drafter", toys / "drafter", "--device", "cpu",
        ]  # fmt: skip
        return [str(word) for word in (*basic, *more)]

    return made


def table_of(out: Path) -> pd.DataFrame:
    return pd.read_parquet(out / "results.parquet")


def traces_of(out: Path) -> dict[str, int]:
    return {path.name: path.stat().st_ino for path in (out / "traces").iterdir()}


def assert_same(one: pd.DataFrame, other: pd.DataFrame) -> None:
    """Row by row, all but the seconds."""
    left, right = one.drop(columns=TIMES), other.drop(columns=TIMES)
    for name in ("acceptance_lengths", "token_ids"):
        left[name] = [None if x is None else list(x) for x in left[name]]
        right[name] = [None if x is None else list(x) for x in right[name]]
    pd.testing.assert_frame_equal(left, right)


@pytest.fixture(scope="module")
def whole(words, tmp_path_factory) -> Path:
    """An uninterrupted sweep."""
    out = tmp_path_factory.mktemp("whole") / "new" / "folder"
    assert cli.main(words(out)) == 0
    return out


# ── the table ────────────────────────────────────────────────────────────────────────────────────


def test_a_line_and_a_trace_per_run(whole):
    table = table_of(whole)
    assert list(table.columns) == SCHEMA.names
    about = table.attrs["about"]["columns"]
    assert set(about) == set(SCHEMA.names) and all(about.values())
    assert len(table) == 16 and table["run"].is_unique and table["error"].isna().all()
    assert traces_of(whole).keys() == set(table["trace"])
    budgets = table.groupby("method")["budget"].unique().map(sorted).to_dict()
    assert budgets == {"ar": [1], "dflash": [64], "ddtree": [4, 9]}  # a chain runs once
    assert table["same_as_plain"].all()
    assert sorted(table["prompt_text"].unique()) == ["one", "two \u2028"]  # the double is one run
    assert table.groupby("prompt_text")["source"].unique().map(list).to_dict() == {
        "one": ["chat"], "two \u2028": [""],
    }  # fmt: skip
    assert sorted(p.name for p in whole.iterdir()) == [
        "results.parquet", "sweep.json", "traces",
    ]  # fmt: skip


def test_every_line_is_its_trace(whole):
    for row in table_of(whole).to_dict("records"):
        trace = read_trace(whole / "traces" / row["trace"])
        assert trace.footer is not None
        ids = [
            int(trace.rounds[0].draft.tokens[0]),
            *(t for r in trace.rounds for t in r.committed),
        ]
        assert list(row["token_ids"]) == ids and row["tokens"] == TOKENS
        lengths = [r.accepted + 1 for r in trace.rounds]
        assert list(row["acceptance_lengths"]) == lengths
        assert row["tau"] == sum(lengths) / len(lengths) and row["rounds"] == len(lengths)
        assert row["verify"] == pytest.approx(sum(r.times.verify for r in trace.rounds))
        stages = row["draft"] + row["build"] + row["verify"] + row["commit"]
        assert row["prefill"] > 0 and row["prefill"] + stages <= row["seconds"] * 1.01
        assert row["tokens_per_second"] == pytest.approx(TOKENS / row["seconds"])
        header = trace.header
        assert (row["method"], row["seed"]) == (header.method, header.seed)
        assert row["prompt_tokens"] == len(header.prompt_ids)
        assert (row["dtype"], row["device"], row["hardware"]) == ("float32", "cpu", "CPU")
        assert trace.rounds[0].target_probs is not None


def test_it_says_what_report_says(call, words, whole):
    code, out, err = call(*words(whole))
    assert code == 0 and "16 of 16 runs are done" in err and "sweeping" not in err
    found = tau(Tables.of({p.name: read_trace(p) for p in (whole / "traces").iterdir()}))
    for row in found.itertuples():
        (line,) = [x for x in out.splitlines() if x.startswith(row.method)]
        assert f" {row.tau:.2f} " in line and f" {row.tokens_per_second:.1f} " in line
        assert "[" not in line, "two texts give no interval"
        assert line.endswith("4 of 4")
    assert "no interval" in err
    assert call("report", whole / "traces")[0] == 0


@pytest.mark.parametrize("junk", [None, "x", [], {}, -1, 1e400, True, [1.5], "\ud800", 10**400])
def test_a_foreign_footer_is_no_line_or_one_that_can_be_written(whole, tmp_path, junk):
    plan = Plan(Terms("m"), (Variant("plain", "ar"),), (Prompt("one"),))
    (job,) = plan.jobs()
    ends = read_ends(whole / "traces" / job.file)
    assert ends.footer is not None and row_of(job, ends) is not None
    assert row_of(job, replace(ends, footer=None)) is None
    assert row_of(replace(job, seed=1), ends) is None
    lines = [row_of(job, replace(ends, footer={**ends.footer, key: junk})) for key in ends.footer]
    sampling = {**ends.header.settings, "sampling": junk}
    lines.append(row_of(job, replace(ends, header=replace(ends.header, settings=sampling))))
    model = replace(ends.header, model={"name": junk}, drafter={"kind": junk})
    lines.append(row_of(job, replace(ends, header=model)))
    good = with_same_as_plain([line for line in lines if line is not None])
    assert lines[-2] is None and good
    results(good).to_parquet(tmp_path / "x.parquet", schema=SCHEMA)


def test_scores_draw_texts_anew_and_count_repeats_as_one_text():
    field = (Variant("plain", "ar"), Variant("ddtree B=4", "ddtree", 4))
    plan = Plan(Terms("m"), field, (Prompt("a"), Prompt("b")), (0, 1))
    rows = [
        {
            "method": job.variant.method, "budget": job.variant.budget, "options": "{}",
            "prompt_hash": job.prompt_hash, "seed": job.seed, "tokens": 4, "seconds": 2.0,
            "acceptance_lengths": [1, 3] if job.number else [2, 2], "error": None,
            "same_as_plain": job.seed == 0, "temperature": 0.0,
        }
        for job in plan.jobs()
    ]  # fmt: skip
    rows[0] |= {"error": "no"}
    first, second = scores(plan, rows)
    assert (first.runs, first.failed, second.runs, second.failed) == (3, 1, 4, 0)
    assert second.texts == 2 and second.tau == 2 and second.low != second.low  # too few texts
    assert second.tokens_per_second == 2 and (second.same, second.judged) == (2, 4)
    (alone, _) = scores(replace(plan, prompts=plan.prompts[1:]), rows[2:4])
    assert alone.texts == 1 and alone.low != alone.low  # too few rounds
    (nothing, _) = scores(plan, [])
    assert nothing.tau is None and nothing.low != nothing.low
    sampled = replace(plan, terms=replace(plan.terms, temperature=1.0))
    assert scores(sampled, [row | {"temperature": 1.0} for row in rows])[1].texts == 4
    rows[7] |= {"method": "dflash+sampled-chain", "options": '{"classic": true}'}
    written = [row | {"token_ids": [row["seed"]], "temperature": 1.0} for row in rows]
    told = [row["same_as_plain"] for row in with_same_as_plain(written)]
    assert told == [None, None, *[True] * 5, None]


# ── the plan ─────────────────────────────────────────────────────────────────────────────────────


def test_an_option_set_twice_has_both_values_run():
    options = [("candidates", "4"), ("candidates", "8"), ("siblings", "2")]
    found = grid_variants(["ar", "ddtree", "treeflash"], [8], options)
    assert [(c.method, c.options) for c in found] == [
        ("ar", ()),
        ("ddtree", ()),
        ("treeflash", (("candidates", 4), ("siblings", 2))),
        ("treeflash", (("candidates", 8), ("siblings", 2))),
    ]
    assert len({Job(c, Prompt("a"), 0, 0).name for c in found}) == 4
    with pytest.raises(UserError):
        grid_variants(["ddtree"], [8], [("candidates", "4")])


def test_who_cannot_use_a_budget_runs_once():
    found = variants_of(["ar", "dflash", "dart+chain", "ddtree", "ddtree"], [4, 8, 4])
    assert [c.name for c in found] == [
        "plain",
        "dflash",
        "dart+chain",
        "ddtree B=4",
        "ddtree B=8",
    ]


def test_a_chain_of_a_method_file_has_no_budget_in_its_name(tmp_path):
    own = tmp_path / "own.py"
    own.write_text(
        'from core.methods.method import Method\nMETHOD = Method("", "dflash", "chain", 8)\n'
    )
    (only,) = variants_of([str(own)], [4, 16, None])
    assert (only.name, only.budget) == ("own", 8)
    assert variant_name(str(own), 8) == "own"  # as a row of ``grid table`` is called


def test_a_run_s_name_is_a_file_name_and_holds_what_decides_it():
    evil = Job(Variant("x", "/a/../b/\u202e <m>.py", 4), Prompt("../\x00"), 0, -3)
    assert re.fullmatch(r"[A-Za-z0-9+_-]+", evil.name)
    base = Job(Variant("x", "ddtree", 4), Prompt("a"), 0, 0)
    others = [
        replace(base, seed=1),
        replace(base, prompt=Prompt("b")),
        replace(base, variant=Variant("x", "ddtree", 5)),
        replace(base, variant=Variant("x", "dflash", 4)),
        replace(base, variant=Variant("x", "ddtree", 4, options=(("temperature", 0.5),))),
        replace(base, variant=Variant("x", "a/ddtree.py", 4)),
        replace(base, variant=Variant("x", "b/ddtree.py", 4)),
    ]
    assert len({base.name, *(job.name for job in others)}) == 8
    assert replace(base, number=7, prompt=Prompt("a", "chat")).name == base.name


def test_a_larger_plan_runs_what_is_new(call, words, whole, toys, tmp_path):
    out = tmp_path / "s"
    shutil.copytree(whole, out)
    before = traces_of(out)
    more = ("--seed", 1, 2, 0, "--budget", 9, 4, "--set", "temperature=1.0")
    code, _, err = call(*words(out, *more))  # an option: another variant in place of ddtree
    assert code == 2 and "of its methods are not in this one" in err
    code, _, err = call(*words(out, "--seed", 1, 2, 0, "--budget", 9, 4, 5))
    assert code == 0 and "16 of 30 runs are there already" in err
    assert before.items() <= traces_of(out).items()
    table = table_of(out)
    assert len(table) == 30 and list(table["seed"].unique()) == [1, 2, 0]
    code, _, err = call(*words(out))
    assert code == 2 and "holds another sweep (" in err and is_one_sentence(err)
    assert len(table_of(out)) == 30


REFUSED = {
    "tokens": (("--max-new-tokens", 9), f"its max-new-tokens is {TOKENS}, not 9"),
    "temperature": (("--temperature", 0), "its temperature is 1.0, not 0.0"),
    "fewer seeds": (("--seed", 1), "1 of its seeds are not in this one"),
    "fewer budgets": (("--budget", 4), "1 of its methods are not in this one"),
    "other prompts": (("--prompts", "{other}"), "1 of its prompts are not in this one"),
    "another model": (("--model", "{drafter}"), "its model is"),
    "no probe": (("--no-probe",), "its probe is true, not false"),
}


@pytest.mark.parametrize(("more", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_another_plan_is_refused_before_anything_is_loaded(
    call, words, whole, toys, tmp_path, monkeypatch, more, why
):
    monkeypatch.setattr(common, "load_engine", lambda args: pytest.fail("loaded"))
    (tmp_path / "other.jsonl").write_text('{"prompt": "one", "source": "chat"}\n')
    places = {"{other}": tmp_path / "other.jsonl", "{drafter}": toys / "drafter"}
    before = (whole / "sweep.json").read_bytes()
    code, out, err = call(*words(whole, *(places.get(str(word), word) for word in more)))
    assert code == 2 and out == "" and is_one_sentence(err) and why in err
    assert (whole / "sweep.json").read_bytes() == before


def test_weights_that_changed_are_another_sweep(call, words, whole, toys, tmp_path):
    config = toys / "drafter" / "config.json"
    text = config.read_text()
    try:
        config.write_text(text + "\n")
        code, _, err = call(*words(whole))
    finally:
        config.write_text(text)
    assert code == 2 and "drafter: config.json has changed since" in err


def test_a_presets_file_that_changed_is_another_sweep(call, toys, tmp_path):
    presets = tmp_path / "own.toml"
    line = ["grid", "run", "ar", "--out", tmp_path / "out", "--model", presets, "--device", "cpu",
            "--prompt", "x", "--max-new-tokens", 3]  # fmt: skip
    presets.write_text(f"[mine]\ntarget = '{toys / 'target'}'\n")
    assert call(*line)[0] == 0
    presets.write_text(f"[mine]\ntarget = '{toys / 'target'}'\nabout = 'another'\n")
    code, _, err = call(*line)
    assert code == 2 and "own.toml has changed since" in err


def test_a_plan_without_a_run_may_change(call, words, toys, tmp_path):
    code, _, err = call(*words(tmp_path / "s", "--model", tmp_path / "typo"))
    assert code == 2 and is_one_sentence(err)
    assert call(*words(tmp_path / "s", "--max-new-tokens", 3))[0] == 0


def test_folders_that_are_no_sweep_s(call, words, whole, tmp_path):
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "results.parquet").write_text("precious")
    code, _, err = call(*words(taken))
    assert code == 2 and "holds other things" in err
    assert [p.name for p in taken.iterdir()] == ["results.parquet"]
    (tmp_path / "file").write_text("")
    assert call(*words(tmp_path / "file"))[0] == 2
    assert call(*words(tmp_path / "file" / "below"))[0] == 2
    broken = tmp_path / "broken"
    shutil.copytree(whole, broken)
    (broken / "sweep.json").write_text('{"format": "draftscope-sweep", "version": 1, "terms": 3}')
    code, _, err = call(*words(broken))
    assert code == 2 and "its plan cannot be read" in err


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are Unicode")
def test_a_sweep_lies_in_a_folder_whose_name_is_not_utf8(call, words, whole, tmp_path):
    out = tmp_path / os.fsdecode(b"a\xff")
    shutil.copytree(whole, out)
    (out / "results.parquet").unlink()
    assert call(*words(out))[0] == 0
    assert (out / "results.parquet").read_bytes() == (whole / "results.parquet").read_bytes()


# ── killed, stopped, broken ──────────────────────────────────────────────────────────────────────


STRUCK = """
import signal, sys
from pathlib import Path
from app import cli

number, *words = sys.argv[1:]
left, real = int(number), Path.replace

def replaced(self, target):
    global left
    if self.parent.name == "unfinished" and (left := left - 1) < 0:
        signal.raise_signal(signal.SIGINT)  # it strikes here, not some instructions later
    return real(self, target)

Path.replace = replaced
sys.exit(cli.main(words))
"""


def struck(number: int, words: list[str]) -> tuple[int, str]:
    """The command in a process that Ctrl-C strikes when it has kept `number` traces and is about
    to keep the next: its exit code and what it said. No clock decides when."""
    ended = subprocess.run(
        [sys.executable, "-c", STRUCK, str(number), *words],
        cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
        timeout=300, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    return ended.returncode, ended.stderr


class Killed(BaseException):
    """As a kill would: no handler of ours runs it down."""


@pytest.mark.parametrize("moment", range(1, 8))
def test_a_kill_between_any_two_steps_loses_nothing(
    call, words, whole, tmp_path, monkeypatch, moment
):
    """Killed at the n-th renaming: of the plan, of traces, of the table."""
    out, calls, real = tmp_path / "s", Counter[str](), Path.replace

    def replaced(self, target):
        calls["replace"] += 1
        if calls["replace"] >= moment:
            raise Killed
        return real(self, target)

    small = ("--seed", 0, "--budget", 4)
    monkeypatch.setattr(Path, "replace", replaced)
    with pytest.raises(Killed):
        cli.main(words(out, *small))
    monkeypatch.undo()
    if moment > 1:  # the plan is there, and so is this folder after a real kill
        (out / "unfinished").mkdir(exist_ok=True)
        (out / "unfinished" / "leftover.jsonl.gz").write_bytes(b"half a")
    assert call(*words(out, *small))[0] == 0
    expected = table_of(whole)
    expected = expected[(expected["seed"] == 0) & (expected["budget"] != 9)]
    assert_same(table_of(out), expected.reset_index(drop=True))
    assert sorted(p.name for p in out.iterdir() if not p.name.endswith(".tmp")) == [
        "results.parquet", "sweep.json", "traces",
    ]  # fmt: skip


def test_a_trace_that_is_broken_or_another_s_is_made_again(call, words, whole, tmp_path):
    out = tmp_path / "s"
    shutil.copytree(whole, out)
    names = sorted(traces_of(out))
    damaged = [out / "traces" / name for name in names[:4]]
    damaged[0].write_bytes(damaged[0].read_bytes()[:-200])  # no footer
    damaged[1].write_bytes(b"")
    damaged[2].write_bytes((out / "traces" / names[3]).read_bytes())
    damaged[3].unlink()
    (out / "results.parquet").unlink()
    code, _, err = call(*words(out))
    assert code == 0 and "12 of 16 runs are there already" in err
    assert_same(table_of(out), table_of(whole))


def test_ctrl_c_keeps_what_is_done_and_a_second_call_goes_on(call, words, whole, tmp_path):
    out = tmp_path / "s"
    code, err = struck(2, words(out))
    assert code == 130
    said = f"draftscope: stopped; 3 of 16 runs are done: {out}; the same command continues"
    assert err.splitlines()[-1] == said
    done = table_of(out)
    assert len(done) == len(traces_of(out)) == 3  # Ctrl-C waits for the one being kept
    assert not (out / "unfinished").exists()
    assert call(*words(out))[0] == 0
    assert_same(table_of(out), table_of(whole))


# ── failures ─────────────────────────────────────────────────────────────────────────────────────


def test_failures_are_listed_the_others_go_on_and_a_rerun_retries(call, words, whole, tmp_path):
    out, mark = tmp_path / "s", tmp_path / "repaired"
    raises = tmp_path / "raises.py"
    what = f"assert Path({str(mark)!r}).exists(), 'no\\n\\x1b[31mluck'; return None"
    raises.write_text(RAISES.format(what=what))
    prompts = tmp_path / "p.jsonl"
    prompts.write_text('{"prompt": "one", "source": "chat"}\n' + json.dumps({"prompt": "x" * 5000}))
    more = ("--methods", *OTHERS, raises, "--budget", 4, "--prompts", prompts, "--seed", 0)
    code, shown, err = call(*words(out, *more))
    assert code == 1 and "\x1b" not in err + shown
    assert "3 of 8 runs are done, 5 failed" in err
    assert "raises B=4: AssertionError: no" in err and "do not fit the model's context" in err
    failures = json.loads((out / "failures.json").read_text())
    table = table_of(out).set_index("run")
    assert len(table) == 8 and failures == table["error"].dropna().to_dict() and len(failures) == 5
    bad = table[table["error"].notna()]
    assert bad["tokens"].isna().all() and bad["trace"].isna().all()
    assert bad["same_as_plain"].isna().all() and (bad["max_new_tokens"] == TOKENS).all()
    assert len(traces_of(out)) == 3
    before = traces_of(out)
    mark.touch()  # its assertion holds now; it fails in another way
    code, _, err = call(*words(out, *more))
    assert code == 1 and "3 of 8 runs are there already" in err
    again = json.loads((out / "failures.json").read_text())
    assert again.keys() == failures.keys() and again != failures
    assert traces_of(out) == before


def test_a_failure_that_is_mended_is_gone(call, words, whole, tmp_path, monkeypatch):
    out, broken, tables = tmp_path / "s", tmp_path / "broken", []
    real = sweep_runner.Runner.run

    def sometimes(self, job, path):
        tables.append(len(table_of(out)) if (out / "results.parquet").exists() else 0)
        if job.variant.budget == 9 and broken.exists():
            return "out of luck"
        return real(self, job, path)

    monkeypatch.setattr(sweep_runner.Runner, "run", sometimes)
    monkeypatch.setattr(grid_sweep, "TABLE_EVERY", 0.0)
    broken.touch()
    assert call(*words(out))[0] == 1
    assert tables == list(range(16))  # the table keeps pace, failures included
    assert len(json.loads((out / "failures.json").read_text())) == 4
    broken.unlink()
    assert call(*words(out))[0] == 0
    assert not (out / "failures.json").exists()
    assert_same(table_of(out), table_of(whole))


def test_failures_of_a_plan_that_is_gone_are_gone(call, words, tmp_path):
    long = ("--prompt", "x" * 5000, "--seed", 0)
    some = [word for word in words(tmp_path / "s", *long) if "prompts" not in word]
    assert call(*some)[0] == 1
    assert (tmp_path / "s" / "failures.json").exists()
    assert call(*words(tmp_path / "s", "--max-new-tokens", 3))[0] == 0
    assert not (tmp_path / "s" / "failures.json").exists()


# ── Ray: scheduling, without Ray ─────────────────────────────────────────────────────────────────


class FakePool:
    """Workers that answer at once; who dies or cannot load is said by functions of what they do."""

    def __init__(self, dies=lambda worker, job: False, loads=lambda worker: "", stuck=()):
        self.dies, self.loads, self.stuck = dies, loads, stuck
        self.started, self.stopped, self.ran = 0, [], []
        self.tickets: dict[int, tuple[int, Job | None]] = {}
        self.numbers = count(1)

    def start(self):
        self.started += 1
        return self.started

    def prepare(self, worker):
        return self._ticket(worker, None)

    def submit(self, worker, job):
        assert worker not in self.stopped
        assert all(busy != worker for busy, _ in self.tickets.values())
        return self._ticket(worker, job)

    def _ticket(self, worker, job):
        number = next(self.numbers)
        self.tickets[number] = (worker, job)
        return number

    def wait(self, tickets):
        free = [t for t in tickets if self.tickets[t][0] not in self.stuck]
        assert free, "waits for ever"
        return free[-1]

    def result(self, ticket):
        worker, job = self.tickets.pop(ticket)
        if job is None:
            answer = self.loads(worker)
            if answer == "dies":
                raise WorkerDied("while loading")
            return answer
        self.ran.append((worker, job))
        if self.dies(worker, job):
            raise WorkerDied("killed")
        return f"trace of {job.name}".encode()

    def stop(self, worker):
        self.stopped.append(worker)


def jobs_of(number: int) -> list[Job]:
    field = (Variant("plain", "ar"),)
    return Plan(Terms("m"), field, tuple(Prompt(str(n)) for n in range(number))).jobs()


def answered(pool: FakePool, jobs: list[Job], size: int) -> dict[Any, bytes | str]:
    told = list(Scheduler(pool, jobs, size).answers(lambda note: None))
    found = dict(told)
    assert len(told) == len(found) == len(jobs)  # each exactly once
    return found


def test_every_run_is_given_out_once():
    jobs, pool = jobs_of(7), FakePool()
    found = answered(pool, jobs, 3)
    assert all(answer == f"trace of {job.name}".encode() for job, answer in found.items())
    assert pool.started == 3 and len(pool.ran) == 7
    assert FakePool().started == 0 and answered(FakePool(), jobs[:1], 9)


def test_a_run_whose_worker_died_is_tried_once_more_by_another():
    jobs = jobs_of(4)
    pool = FakePool(dies=lambda worker, job: job == jobs[2] and worker <= 2)
    found = answered(pool, jobs, 2)
    tried = [worker for worker, job in pool.ran if job == jobs[2]]
    assert len(tried) == len(set(tried)) == 2
    assert sum(isinstance(answer, str) for answer in found.values()) == all(w <= 2 for w in tried)
    pool = FakePool(dies=lambda worker, job: job == jobs[2])
    found = answered(pool, jobs, 2)
    assert "died" in str(found[jobs[2]]) and pool.started == 4
    assert [type(found[job]) for job in jobs] == [bytes, bytes, str, bytes]


def test_workers_that_never_get_ready_hold_nothing_up():
    jobs = jobs_of(3)
    assert answered(FakePool(stuck=(1,)), jobs, 2)
    assert answered(FakePool(loads=lambda worker: "no such model" if worker == 1 else ""), jobs, 2)
    with pytest.raises(UserError, match="no such model"):
        answered(FakePool(loads=lambda worker: "no such model"), jobs, 2)
    pool = FakePool(loads=lambda worker: "dies")
    with pytest.raises(UserError, match="while it loaded"):
        answered(pool, jobs, 2)
    assert pool.started < 8


@given(st.lists(st.sets(st.integers(0, 5), max_size=2), min_size=1, max_size=12),
       st.integers(1, 4))  # fmt: skip
def test_whoever_dies_every_run_ends_once(deaths, size):
    jobs = jobs_of(len(deaths))
    tries: Counter[Job] = Counter()

    def dies(worker, job):
        tries[job] += 1
        return tries[job] - 1 in deaths[jobs.index(job)]

    found = answered(FakePool(dies=dies), jobs, size)
    for job, own in zip(jobs, deaths, strict=True):
        assert isinstance(found[job], str) == ({0, 1} <= own)


# ── Ray itself ───────────────────────────────────────────────────────────────────────────────────


def test_without_ray_one_sentence_says_how_to_get_it(call, words, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    code, _, err = call(*words(tmp_path / "s", "--ray", "local"))
    assert code == 2 and f"pip install ray=={ray_workers.PIN}" in err and is_one_sentence(err)
    assert not (tmp_path / "s").exists()
    assert f"\nray=={ray_workers.PIN}" in (ROOT / "requirements.txt").read_text()


def test_workers_share_gpus_else_cores():
    class Nodes:
        def __init__(self, *nodes):
            self._nodes = [{"Alive": True, "Resources": node} for node in nodes]

        def nodes(self):
            return [*self._nodes, {"Alive": False, "Resources": {"CPU": 99.0, "GPU": 9.0}}]

    def share(nodes, *wanted):
        return ray_workers._allocate(nodes, Cluster("auto", *wanted))

    gpus = Nodes({"CPU": 8.0, "GPU": 2.0}, {"CPU": 4.0, "GPU": 1.0}, {"memory": 1.0})
    assert share(gpus, None, "auto") == Allocation(3, 1, 1)
    assert share(gpus, 2, "cuda") == Allocation(2, 1, 1)
    assert share(gpus, None, "cpu") == Allocation(2, 4, 0)
    assert share(gpus, 4, "cpu") == Allocation(4, 2, 0)
    assert share(gpus, None, "cpu", True) == Allocation(12, 1, 0)
    assert share(Nodes({"CPU": 2.0}), 9, "auto") == Allocation(9, 1, 0)
    for nodes, device in ((Nodes({"CPU": 2.0}), "cuda"), (Nodes(), "auto")):
        with pytest.raises(UserError):
            share(nodes, None, device)


def test_only_code_and_assets_are_sent(tmp_path):
    for name in ("core", "app", "runs", ".git", "odd[1]*"):
        (tmp_path / name).mkdir()
    assert ray_workers._not_sent(tmp_path) == ["/.git", r"/odd\[1]\*", "/runs"]


def test_two_ray_workers_do_what_one_process_does(words, whole, tmp_path, ray_home):
    """A method kills its worker on one prompt and fails on the other: only those runs are lost,
    the first after a second try."""
    out, dies = tmp_path / "s", tmp_path / "dies.py"
    dies.write_text(RAISES.format(what="import os; os._exit(3) if self.read == 3 else 1 / 0"))
    one = tmp_path / "p.jsonl"
    one.write_text('{"prompt": "one", "source": "chat"}\n{"prompt": "two \\u2028"}\n')
    more = ("--methods", *OTHERS, dies, "--budget", 4, "--prompts", one, "--seed", 0)
    process = start(*words(out, *more, "--ray", "local", "--workers", 2), env=ray_home)
    shown, err = process.communicate(timeout=540)
    assert process.returncode == 1, err
    assert "Traceback" not in err and "raylet" not in shown and shown.splitlines()[0].split()
    table = table_of(out)
    lost = table[table["error"].notna()]
    assert set(lost["method"]) == {str(dies)} and len(lost) == 2
    first, second = lost["error"]
    assert "the workers that did it died, 2 of them" in first
    assert second == "ZeroDivisionError: division by zero"
    kept = table[table["error"].isna()].reset_index(drop=True)
    expected = table_of(whole)
    expected = expected[(expected["seed"] == 0) & (expected["budget"] != 9)]
    assert_same(kept, expected.reset_index(drop=True))
    assert traces_of(out).keys() == set(kept["trace"])
    for name in traces_of(out):
        assert read_trace(out / "traces" / name).complete


def test_no_cluster_is_one_sentence(call, words, tmp_path):
    pytest.importorskip("ray", reason="Ray is not installed (or this Python has no wheel of it)")
    code, _, err = call(*words(tmp_path / "s", "--ray", "127.0.0.1:1"))
    assert code == 2 and "no Ray cluster at '127.0.0.1:1'" in err and is_one_sentence(err)


def test_a_folder_asked_twice_of_one_job():
    plan = Plan(Terms("m"), (Variant("plain", "ar"),), (Prompt("a"),))
    folder = Folder(Path("nowhere"), plan)
    assert [job.name for job in folder.remaining()] == [job.name for job in folder.jobs]
    assert folder.rows() == [] and folder.failures == {}
    assert os.path.dirname(folder.unfinished(plan.jobs()[0])).endswith("unfinished")


def test_seeds_of_one_prompt_are_drawn_together():
    """Three seeds that accept alike tell no more than one does."""

    def row(prompt: int, seed: int) -> dict:
        lengths = [1 + (prompt * 7 + n) % 5 for n in range(6)]
        return {
            "error": None, "prompt_hash": str(prompt), "seed": seed, "temperature": 1.0,
            "acceptance_lengths": lengths, "tokens": 9, "seconds": 1.0, "same_as_plain": None,
        }  # fmt: skip

    one = variant_score("a", [row(p, 0) for p in range(8)])
    three = variant_score("a", [row(p, seed) for p in range(8) for seed in range(3)])
    assert (three.texts, three.low, three.high) == (24, one.low, one.high)
