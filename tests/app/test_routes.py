"""The routes: links stay links, letters stay letters, files have bounds."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import fields, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("gradio")

from gradio.utils import get_upload_folder
from msgspec import structs

from analysis.collected.collection import Collection
from analysis.collected.whatif import Simulation
from analysis.experiments.cost import Cost, ForwardTime, Stage, fit
from app.commands.collect import Options
from app.commands.studio import temporary_files
from app.studio import background, files
from app.studio.background import Collecting, Diagnosing
from app.studio.components import for_upload
from app.studio.engine import CollectRequest, _collect
from app.studio.examples import Examples
from app.studio.files import remove_leftovers
from app.studio.methods import Methods
from app.studio.placing import place
from app.studio.questions import Route
from app.studio.routes import GONE, Routes, named
from app.studio.runs import Runs
from app.studio.server import build
from app.studio.tabs import calibration, whatif
from app.studio.tabs.run import of_runs
from app.studio.tabs.whatif import Simulations
from app.studio.tabs.whatif_answers import example_cost
from core.decoding.engine import other_target
from core.errors import UserError
from core.lines import Limits
from core.memory import Recent
from core.progress import silent
from core.traces.reader import read_trace
from core.traces.schema import Header, Trace
from core.traces.writer import write_trace
from tests.helpers.fakes import FakeEngine, diagnosis, make_header, make_run
from tests.helpers.mutants import of_other_makes, opened
from tests.helpers.processes import running

Asks = dict[str, Callable[[object], Any]]


@pytest.fixture
def runs() -> Runs:
    return Runs(FakeEngine())


def with_runs(collecting: Collecting) -> dict[str, Route[Any]]:
    """The routes of a view that collects: also those about runs, by which it hears of the work."""
    return Routes(collecting._runs, Examples()).of_runs() | collecting.routes()


@pytest.fixture
def ask(runs: Runs) -> Asks:
    """As a page asks them: a failure is a sentence."""
    routes = Routes(runs, Examples()).of_runs()
    return {name: named(name, route) for name, route in routes.items()}


def trace(method: str = "ddtree", count: int = 4) -> Trace:
    return Trace(make_header("why?", method), tuple(make_run(count)), {})


# ── who may do what ──────────────────────────────────────────────────────────────────────────────


def test_no_answer_to_a_link_holds_the_run_s_own_ticket(runs: Runs, ask: Asks):
    ticket = runs.open(trace())
    link = ask["share"]({"ticket": ticket})["link"]
    assert ask["runs"]({"tickets": [link]})["runs"][0]["ticket"] == link
    one = {"ticket": link, "tickets": [link, link], "round": 0, "row": 1, "form": "dot",
               "places": [{"ticket": link, "round": 0, "row": 1}], "token": 1}  # fmt: skip
    for name in set(ask) - {"examples", "example", "parquet"}:
        answer = ask[name](one)
        assert "error" not in answer and ticket not in str(answer), name
    run = runs.get(ticket)
    assert run is not None and not run.stop.is_set()  # `stop` was asked, too
    ask["stop"]({"ticket": ticket})
    assert run.stop.is_set()


@pytest.mark.parametrize("ticket", [None, "", "no such ticket"])
def test_answers_need_a_ticket(ask: Asks, ticket: object):
    assert ask["updates"]({"ticket": ticket})["run"] is None
    assert ask["inspect"]({"ticket": ticket, "round": 0, "row": 0}) == GONE


def test_numbers_never_move_to_another_letter(runs: Runs, ask: Asks):
    first, second = runs.open(trace()), runs.open(trace("dart", 6))
    rows = ask["measure"]({"tickets": [first, second]})["tau"]
    assert [row["run"] for row in rows] == ["A", "B"]
    assert ask["measure"]({"tickets": ["gone", second]}) == GONE
    assert ask["compare"]({"tickets": [first, "gone"]}) == GONE
    listed = ask["runs"]({"tickets": ["gone", second]})["runs"]
    assert [run["ticket"] for run in listed] == [second]  # each says which it is


def test_calibration_gives_each_run_the_numbers_that_it_has_alone():
    traces, names = {"A": trace(count=8), "B": trace("dart", 6)}, {"A": "A one", "B": "B two"}
    together = calibration.calibration_records(traces, names)
    assert [each["label"] for each in together["findings"]] == sorted(
        each["label"] for each in together["findings"]
    )
    for letter, own in traces.items():
        alone = calibration.calibration_records({letter: own}, {letter: names[letter]})
        for name in ("tau", "depths", "errors", "surrogate", "siblings"):
            rows = [row for row in together[name] if row["run"] == letter]
            assert rows == alone[name] != [], name
    assert together["tau"][0]["rounds"] == 8


def test_an_example_of_a_cause_is_a_round_of_that_cause():
    run = trace(count=30)
    for stop in {record.stop_reason for record in run.rounds}:
        found = calibration.cause_examples(run, stop.value, "stops", {})
        assert [each["index"] for each in found] == [
            at for at, record in enumerate(run.rounds) if record.stop_reason == stop
        ][: calibration.MAX_EXAMPLES]
        assert all(each["round"] == each["index"] + 1 for each in found)
        depth = found[0]["depth"]
        narrow = calibration.cause_examples(run, stop.value, "stops", {"depth": depth})
        assert narrow == [each for each in found if each["depth"] == depth]
    for cause, unit in (("pruned", "rounds"), ("pruned", None), ("nonsense", "stops")):
        with pytest.raises(UserError, match="no such cause"):
            calibration.cause_examples(run, cause, unit, {})


def test_a_method_file_is_named_without_its_folders(runs: Runs, ask: Asks):
    ticket = runs.open(trace("/home/ada/secret/mine.py"))
    assert ask["runs"]({"tickets": [ticket]})["runs"][0]["method"] == "mine"
    asked = {"ticket": ticket, "round": 0}
    for answer in (ask["draw"](asked), ask["save"](asked), ask["export"](asked | {"form": "dot"})):
        assert answer["name"].startswith("draftscope-mine-")


# ── sizes ────────────────────────────────────────────────────────────────────────────────────────


def test_no_file_is_larger_than_a_page_takes(
    runs: Runs, ask: Asks, monkeypatch: pytest.MonkeyPatch
):
    asked = {"ticket": runs.open(trace()), "round": 0}
    monkeypatch.setattr(files, "MAX_NODES", 10)
    assert ask["export"](asked | {"form": "nodes.csv"}) == {"error": files.TOO_LARGE}
    assert "data" in ask["export"](asked | {"form": "trace"})
    monkeypatch.setattr(files, "MAX_UPLOAD", 1000)
    for answer in (ask["save"](asked), ask["export"](asked | {"form": "trace"})):
        assert "run --trace" in answer["error"]


def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "bomb.jsonl.gz"
    write_trace(path, trace(count=3))
    assert len(files.open_upload(path).trace().rounds) == 3
    monkeypatch.setattr(files, "LIMITS", Limits(unpacked=2000))
    with pytest.raises(UserError, match="unpacks to more"):
        files.open_upload(path).trace()


def test_two_tabs_may_upload_the_same_file_at_once(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Gradio gives both the same path."""
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path))
    path = tmp_path / "t.jsonl.gz"
    write_trace(path, trace())
    opens = named("place", for_upload(partial(place, runs)))
    tickets = {opens({"path": str(path)})["ticket"] for _ in range(2)}
    assert len(tickets) == 2 and path.exists()
    page = build(runs, Methods.of())
    assert page.delete_cache == (files.UPLOAD_SECONDS,) * 2  # Gradio takes it away


def test_a_view_opens_its_uploads_and_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    sent, other = tmp_path / "uploads" / "sha" / "t.txt", tmp_path / "other.txt"
    sent.parent.mkdir(parents=True)
    for file in (sent, other):
        file.write_text(file.name)
    link = sent.with_name("link.txt")
    link.symlink_to(other)
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path / "uploads"))
    opens = named("open", for_upload(Path.read_text))
    assert opens({"path": str(sent)}) == "t.txt"
    outside = [str(other), str(link), f"{sent.parent}/../../other.txt", str(sent.parent)]
    for where in [*outside, "", None, "a\0b", "x" * 9000]:
        assert "no longer on the server" in opens({"path": where})["error"]


def test_what_uploads_leave_is_tidied(tmp_path: Path):
    for name in ("sha-old", "sha-new", "sha-used"):
        (tmp_path / name).mkdir()
    kept, left, fresh = tmp_path / "sha-used" / "t.jsonl", tmp_path / "tmpa", tmp_path / "tmpb"
    kept.write_text("x")
    left.touch()
    fresh.touch()
    for path in (left, tmp_path / "sha-old", tmp_path / "sha-used"):
        long_ago = time.time() - 2 * files.UPLOAD_SECONDS  # noqa: TID251 (as files have it)
        os.utime(path, (long_ago, long_ago))
    remove_leftovers(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {"sha-new", "sha-used", "tmpb"}
    assert kept.exists()


def test_a_studio_s_temporary_files_go_when_it_stops_and_when_the_next_one_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Those of one that was killed, not those of one that stands."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (killed := tmp_path / "draftscope-studio-old").mkdir()
    for name in ("lock", "upload.jsonl"):
        (killed / name).write_text("x")
    with temporary_files():
        assert not killed.exists() and get_upload_folder().startswith(str(tmp_path / "draftscope"))
        (one := Path(tempfile.gettempdir()) / "upload.jsonl").write_text("x")
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        with temporary_files():
            assert one.is_file()
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="SIGTERM is of POSIX")
def test_a_studio_that_is_told_to_end_takes_its_temporary_files_along(tmp_path: Path):
    """By SIGTERM, as a service manager or a shell's kill sends it."""
    command = [sys.executable, "-m", "app", "studio", "--port", "0"]
    environment = os.environ | {"TMPDIR": str(tmp_path), "DRAFTSCOPE_CACHE": str(tmp_path / "none")}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with running(command, **pipes, env=environment) as studio:
        assert studio.stdout is not None and "http://" in studio.stdout.readline()
        assert list(tmp_path.glob("draftscope-studio-*"))
        studio.terminate()
        _, err = studio.communicate(timeout=60)
        assert studio.returncode == 143 and err.splitlines()[-1] == "draftscope: stopped"
    assert not list(tmp_path.iterdir())


# ── what-if ──────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def simulate() -> Asks:
    return dict(Simulations(Examples()).routes())


def test_the_estimate_never_takes_the_place_of_a_result_that_is_gone(simulate: Asks):
    question = {"file": "fibonacci", "method": "ddtree", "options": {}}
    assert simulate["curve"](question)["cost"]["points"]
    for name in ("gone", ""):
        with pytest.raises(UserError, match="no longer on the server"):
            simulate["curve"](question | {"cost": name})
    for name in (7, []):
        with pytest.raises(UserError, match="the question: cost must be a text"):
            simulate["curve"](question | {"cost": name})


def test_an_opened_result_of_cost_takes_the_estimate_s_place(tmp_path: Path):
    simulations = Simulations(Examples())
    law = fit([ForwardTime(n, *[0.05 + 0.25 * n] * 3) for n in (1, 2, 3, 5, 9, 17)])
    stages = (Stage(1, 0.01, 0.01, 0.01, 2), Stage(16, 0.01, 0.01, 0.01, 17))
    (file := tmp_path / "cost.json").write_text(
        json.dumps(Cost("here", "ddtree", law, stages).to_json())
    )
    question = {"file": "fibonacci", "method": "ddtree", "options": {}}
    ask = dict(simulations.routes())
    estimate = ask["curve"](question)
    assert "An estimate" in (says := estimate["figures"]["speed"]["layout"]["meta"]["says"]), says
    opened = simulations.add_cost(file)
    found = ask["curve"](question | {"cost": opened["cost"]})
    cost, meta = found["cost"], found["figures"]["speed"]["layout"]["meta"]
    assert opened["of"] in meta["says"] and "that cost measured" in meta["says"]
    speeds = {point["budget"]: point["speed"] for point in cost["points"]}
    assert max(speeds) == 16 and cost["best"] == max(speeds, key=speeds.__getitem__) == 1
    assert cost["plain"] == pytest.approx(1 / 0.3) and estimate["cost"]["plain"] > 10
    _, plain = (each for each in found["figures"]["speed"]["data"] if "hovertext" in each)
    assert plain["y"] == [cost["plain"]] * len(speeds)
    other = json.loads(file.read_text()) | {"method": "mine.py"}
    file.write_text(json.dumps(other))
    with pytest.raises(UserError, match="does not come with Draftscope"):
        simulations.add_cost(file)
    file.write_text(json.dumps(other | {"more": "x" * (4 << 20)}))
    with pytest.raises(UserError, match="too large for a result of `cost`"):
        simulations.add_cost(file)


def test_the_estimate_is_of_the_timed_examples_that_draft_trees():
    examples = Examples()
    text = Collection.load(whatif.SHIPPED / "fibonacci.safetensors")
    cost = example_cost(examples, Simulation(text, "ddtree"))
    runs = [read_trace(examples.path(f"chat-{n}")).rounds for n in ("ddtree-16", "ddtree-64")]
    assert cost is not None
    stages = {stage.rows: stage for stage in cost.stages}
    assert len(cost.stages) == 3 and list(stages) == sorted(stages)  # and CaDDTree's; no chain
    for rounds in runs:
        stage, times = stages[len(rounds[0].draft)], [record.times for record in rounds]
        assert (stage.budget, stage.draft, stage.build) == (
            len(rounds[0].draft) - 1,
            median(each.draft for each in times),
            median(each.build for each in times),
        )
        verify = median(each.verify for each in times)
        assert cost.verify.seconds(stage.rows) == pytest.approx(verify, rel=2e-3)


def test_a_setting_s_answer_is_that_of_its_own_options(simulate: Asks):
    text = Collection.load(whatif.SHIPPED / "fibonacci.safetensors")
    for options in ({}, {"candidates": 1}, {"candidates": 4}):
        question = {"file": "fibonacci", "method": "treeflash", "options": options, "budget": 16}
        found, run = simulate["simulate"](question), Simulation(text, "treeflash", options).run(16)
        told = [found[name] for name in ("lengths", "tau", "rounds", "tokens", "exact", "budget")]
        assert told == [list(run.lengths), run.tau, run.rounds, run.new_tokens, run.exact, 16]
    for at, tokens in ((0, 1 + run.lengths[0]), (run.lengths[0], run.lengths[1])):
        shown = simulate["simulate"](question | {"place": at})["round"]
        assert len(shown["text"]) == tokens  # the first round's begins with its root
    narrow = {"method": "dart", "options": {"beam": 1, "width": 2}, "budget": 64}
    shown = simulate["simulate"](question | narrow)["round"]
    assert "it follows 1 nodes of a depth and reads 2" in json.dumps(shown)


def test_so_many_curves_and_texts_and_no_more(simulate: Asks, monkeypatch: pytest.MonkeyPatch):
    question = {"file": "fibonacci", "method": "ddtree", "options": {}}
    kept = [question | {"name": f"kept {at}"} for at in range(9)]
    figure = simulate["curve"](question | {"kept": kept})["figures"]["tau"]
    assert sum("hovertext" in line for line in figure["data"]) == 1 + whatif.KEPT
    monkeypatch.setattr(whatif, "TEXTS", 2)
    more = ["train-journey", "walk-in-the-rain"]
    figure = simulate["curve"](question | {"more": more})["figures"]["tau"]
    assert "over 2 texts" in figure["layout"]["meta"]["says"]


def test_texts_of_several_targets_have_no_curve_together():
    simulations = Simulations(Examples())
    text = Collection.load(whatif.SHIPPED / "fibonacci.safetensors")
    other = replace(text, header=structs.replace(text.header, name="another"))
    simulations._files.get("another", lambda: other)
    question = {"file": "fibonacci", "method": "ddtree", "options": {}, "more": ["another"]}
    curve = dict(simulations.routes())["curve"]
    with pytest.raises(UserError, match="of several targets"):
        curve(question)
    alike = [simulations.add(whatif.SHIPPED / "fibonacci.safetensors") for _ in range(2)]
    figure = curve(question | {"file": alike[0], "more": alike[1:]})["figures"]["tau"]
    assert "over 2 texts" in figure["layout"]["meta"]["says"]  # of one prompt
    some = {name: limits for name, limits in text.header.drafters.items() if name == "dflash"}
    few = replace(text, header=structs.replace(text.header, drafters=some))
    simulations._files.get("few", lambda: few)
    with pytest.raises(UserError, match=r"the text “.+” was not collected for this method"):
        curve(question | {"method": "dart", "more": ["few"]})


def test_a_curve_over_several_texts_is_that_of_each_text_together(simulate: Asks):
    question = {"file": "fibonacci", "method": "ddtree", "options": {}}
    own = {}
    for name in ("fibonacci", "train-journey"):
        found = [simulate["simulate"](question | {"file": name, "budget": b}) for b in (1, 64)]
        own[name] = {run["budget"]: run for run in found}
        assert len(simulate["about"]({"file": name})["text"]) == found[0]["tokens"]
    starts = own["fibonacci"][64]["starts"]
    assert starts == [0, *accumulate(own["fibonacci"][64]["lengths"])][:-1]
    for at, index in ((-1, 0), (starts[2] - 1, 1), (starts[2], 2)):
        found = simulate["simulate"](question | {"budget": 64, "place": at})
        assert found["round"]["index"] == index
    more = ["train-journey", "fibonacci", "train-journey"]  # each counts once
    figure = simulate["curve"](question | {"more": more})["figures"]["tau"]
    line = next(trace for trace in figure["data"] if "hovertext" in trace)
    taus = dict(zip(line["x"], line["y"], strict=True))
    for budget in (1, 64):
        runs = [own[name][budget] for name in own]
        expected = sum(sum(r["lengths"]) for r in runs) / sum(r["rounds"] for r in runs)
        assert taus[budget] == pytest.approx(expected)
    assert sum(trace.get("fill") == "toself" for trace in figure["data"]) == 1
    for alone in (None, [], ["fibonacci"]):
        figure = simulate["curve"](question | {"more": alone})["figures"]["tau"]
        assert not any(trace.get("fill") for trace in figure["data"])
    for bad in (["gone"], [7], [None], "train-journey"):
        with pytest.raises(UserError, match=r"collected text|the question: more"):
            simulate["curve"](question | {"more": bad})


def test_each_setting_that_is_kept_has_its_curve_named_or_not(simulate: Asks):
    question = {"file": "fibonacci", "method": "ddtree", "options": {}, "name": "mine"}
    static = {"method": "dflash+static"}
    kept = [
        question,
        static,
        {"method": "dart", "options": {"decay": 2}},
        static | {"name": "mine"},
    ]
    for asked, own in ((question, "mine"), (question | {"name": None}, "ddtree")):
        figure = simulate["curve"](asked | {"kept": [asked, *kept[1:]]})["figures"]["tau"]
        drawn = {line["name"] for line in figure["data"] if "hovertext" in line}
        assert drawn >= {own, "dflash+static", "dart, decay 2"} and len(drawn) == 4, drawn
        assert ("mine (2)" in drawn) == (own == "mine")
    narrow = {"file": "fibonacci", "method": "treeflash", "options": {"candidates": 1}}
    found = simulate["curve"](narrow | {"kept": [{"options": {}}]})
    assert found["cost"] == simulate["curve"](narrow)["cost"]  # the speed is of the one on view
    lines = [line["name"] for line in found["figures"]["speed"]["data"] if "hovertext" in line]
    assert lines == ["treeflash, candidates 1", "plain decoding"]
    figure = found["figures"]["tau"]
    own, usual = (line["y"] for line in figure["data"] if "hovertext" in line)
    assert own != usual  # no options are its usual ones, and not those of the other setting


def test_every_drafter_of_the_examples_has_an_estimate_and_every_method_its_knobs(simulate: Asks):
    about = simulate["about"]({"file": "fibonacci"})
    for method in about["methods"]:
        found = simulate["curve"]({"file": "fibonacci", "method": method["name"], "options": {}})
        assert found["cost"]["best"] >= 1 and found["cost"]["plain"] > 0
        assert "temperature" not in {knob["name"] for knob in method["knobs"]}  # the file fixes it
    largest = {knob["name"]: knob.get("max") for m in about["methods"] for knob in m["knobs"]}
    assert largest["candidates"] < 1024 and largest["logit_decay"] == 100


def test_a_value_out_of_range_is_a_sentence(simulate: Asks):
    question = {"file": "fibonacci", "method": "dart", "budget": 8, "place": 0}
    with pytest.raises(UserError, match="must be 0 to 100"):
        simulate["simulate"](question | {"options": {"logit_decay": 101}})
    found = simulate["simulate"](question | {"options": {"logit_decay": 0, "ngram": "/etc/passwd"}})
    assert found["exact"] and found["round"]["signs"]
    texts = {"logit_decay": "0", "beam": [1]}  # neither is a number, which a page sends
    told, usual = (simulate["simulate"](question | more) for more in ({"options": texts}, {}))
    assert told["round"] == usual["round"]


def test_the_least_recently_used_goes_first():
    recent, made = Recent[int](2), list[str]()

    def get(key: str) -> int:
        return recent.get(key, lambda: made.append(key) or ord(key))

    assert [get(key) for key in "abaca"] == [97, 98, 97, 99, 97]
    assert made == ["a", "b", "c"]
    assert get("b") == 98 and made == ["a", "b", "c", "b"]


def test_stop_is_switched_within_the_page():
    """Of two requests to the server the second might be answered first."""
    page = build(Runs(FakeEngine()), Methods.of())
    switches = ("running", "settled")
    events = [fn for fn in page.fns.values() if fn.targets and fn.targets[0][1] in switches]
    assert len(events) == 6 and all(fn.fn is None and fn.js for fn in events)


# ── texts that are collected ─────────────────────────────────────────────────────────────────────


def test_a_run_s_text_is_collected_once_and_only_from_a_finished_ticket(runs: Runs):
    opened: list[Path] = []
    collecting = Collecting(runs, Methods.of(), lambda path, name: opened.append(path))
    ask = {name: named(name, route) for name, route in with_runs(collecting).items()}
    ticket = runs.open(trace("dart"))
    begun = [ask["collect"]({"ticket": ticket}) for _ in range(2)]
    assert begun[0]["setting"] == {"method": "dart", "budget": 64}
    assert begun[0]["method"] == "DART" and begun[0]["prompt"]
    rounds = trace("dart").rounds
    first = rounds[0].text(int(rounds[0].draft.tokens[0]))  # of the prompt's own pass
    assert begun[0]["text"] == first + "".join(r.text(t) for r in rounds for t in r.committed)
    requests = [run.request for each in begun if (run := runs.get(each["ticket"])) is not None]
    assert requests[0] == requests[1] and isinstance(requests[0], CollectRequest)
    assert requests[0].methods == ("dart", "ddtree", "treeflash")
    assert requests[0].prompt == "why?"
    for early in (ticket, begun[0]["ticket"], "nobody", None):
        assert "not collected" in ask["collected"]({"ticket": early})["error"]
    runs.start()
    for each in begun:
        while ask["updates"]({"ticket": each["ticket"], "since": 0})["run"]["state"] != "done":
            time.sleep(0.01)
        answer = ask["collected"]({"ticket": each["ticket"]})
        assert (answer["file"], answer["title"]) == (requests[0].path.stem, "why?")
        assert "leaves the run's at new token 1." in answer["apart"]  # a fake writes another text
    made = Collection.load(requests[0].path)
    mine = tuple(made.tokens[made.answer : made.end].tolist())
    assert background._apart(replace(requests[0], text=mine)) == ""
    said = background._apart(replace(requests[0], text=(*mine, 5)))
    assert f"the first {len(mine)} of the run's {len(mine) + 1} new tokens" in said
    assert opened == [requests[0].path] * 2 and requests[0].path.is_file()
    assert ask["collect"]({"ticket": "nobody"}) == GONE
    runs.close()


def test_a_collected_text_is_there_again_after_many_others(runs: Runs):
    simulations = Simulations(Examples())
    collecting = with_runs(Collecting(runs, Methods.of(), simulations.add))
    ask = collecting | simulations.routes()
    runs.start()
    done = finished(ask, ask["collect"]({"ticket": runs.open(trace("dart"))})["ticket"])
    found = [ask["collected"](done)["file"] for _ in range(2)]
    assert found[0] == found[1] and ask["about"]({"file": found[0]})["text"]
    for file in [next(whatif.SHIPPED.glob("*.safetensors"))] * whatif.OPEN_FILES:
        simulations.add(file)
    with pytest.raises(UserError, match="no longer on the server"):
        ask["about"]({"file": found[0]})
    assert ask["about"]({"file": ask["collected"](done)["file"]})["text"]
    runs.close()


def test_the_last_used_collected_texts_stay_on_disk(runs: Runs, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(background, "KEPT", 2)
    simulations = Simulations(Examples())
    ask = with_runs(Collecting(runs, Methods.of(), simulations.add))
    runs.start()
    done = list[dict[str, str]]()
    for number, prompt in enumerate(("one", "two", "three", "four")):
        other = replace(trace(), header=make_header(prompt, "dart"))
        ticket = ask["collect"]({"ticket": runs.open(other)})["ticket"]
        done.append(finished(ask, ticket))
        run = runs.get(ticket)
        assert run is not None and isinstance(run.request, CollectRequest)
        os.utime(run.request.path, (number, number))
        if prompt == "three":
            ask["collected"](done[0])  # it is used: the second is the oldest
    for number, ticket in enumerate(done):
        with pytest.raises(UserError, match="ask for it") if number == 1 else nullcontext():
            ask["collected"](ticket)
    runs.close()


def finished(ask: Asks, ticket: str) -> dict[str, str]:
    """The question about work, which has ended well."""
    while ask["updates"]({"ticket": ticket, "since": 0})["run"]["state"] != "done":
        time.sleep(0.01)
    return {"ticket": ticket}


@pytest.mark.parametrize(
    ("known", "said"),
    [
        (
            {"model": {}, "prompt_text": "why?", "prompt_ids": (1,)},
            "which target wrote it.*--answer",
        ),
        ({"model": {"name": "fake"}, "prompt_text": "", "prompt_ids": ()}, "its prompt.*--answer"),
    ],
)
def test_a_run_that_nobody_can_write_again_is_refused(runs: Runs, known: dict, said: str):
    """As a loop of one's own records it: without the target's name, or without the prompt."""
    ask = Collecting(runs, Methods.of(), str).routes()["collect"]
    ticket = runs.open(replace(trace(), header=Header("my method", {}, **known)))
    with pytest.raises(UserError, match=said):
        ask({"ticket": ticket})


def test_only_the_run_s_own_target_writes_its_text():
    """Found by the name, the version and the tokenizer; what a trace leaves out is not compared."""
    config = SimpleNamespace(_commit_hash="abc")
    model: Any = SimpleNamespace(name="own", template={}, tokenizer_hash="12")
    model.model = SimpleNamespace(config=config)
    own = make_header()
    for more, says in (
        ({"model": {"name": "own"}}, ""),
        ({"model": {"name": "own", "revision": "abc"}, "tokenizer_hash": "12"}, ""),
        ({"model": {}}, "does not tell"),
        ({"model": {"name": "other"}}, "the run's target is other, and here own is loaded"),
        ({"model": {"name": "own", "revision": "def"}}, "another version of own"),
        ({"model": {"name": "own"}, "tokenizer_hash": "34"}, "another tokenizer"),
    ):
        found = other_target(replace(own, **more), model)
        assert says in found and bool(found) == bool(says)


def test_a_run_of_another_target_is_refused_with_what_would_answer_it(tmp_path: Path):
    """Whose command is one that there is."""
    target = SimpleNamespace(name="own", template={}, tokenizer_hash="12", model=None)
    target.model = SimpleNamespace(config=SimpleNamespace())
    engine: Any = SimpleNamespace(prepare=lambda: target)
    of = replace(make_header(), model={"name": "org/large"})
    asked = CollectRequest(of, tmp_path / "f.safetensors", ("ddtree",), 8)
    with pytest.raises(UserError, match="target is org/large, and here own is loaded") as told:
        _collect(engine, asked, silent)
    (words,) = re.findall(r"`python -m app collect (.*)`", str(told.value))
    assert {f"--{field.name}" for field in fields(Options)} >= {*words.split()[::2]}


def test_a_method_whose_drafter_cannot_be_listed_leaves_the_others(runs: Runs):
    collecting = Collecting(runs, Methods.of(), str).routes()
    for method in ("eagle3", "lookahead", "ar", "/home/ada/mine.py"):
        answer = collecting["collect"]({"ticket": runs.open(trace(method))})
        run = runs.get(answer["ticket"])
        assert run is not None and isinstance(run.request, CollectRequest)
        assert run.request.methods == ("ddtree", "treeflash", "dart")


def test_a_drafter_is_diagnosed_and_only_one_that_is_offered(runs: Runs):
    routes = calibration.routes(Routes(runs, Examples())) | Diagnosing(runs, Methods.of()).routes()
    ask = {name: named(name, route) for name, route in routes.items()}
    offered = [name for name, _ in ask["drafters"]({})["methods"]]
    assert "ddtree" in offered and "eagle3" in offered
    assert not {"ar", "pld", "lookahead"} & set(offered)  # no network, or no drafter
    for bad in ("ar", "/home/ada/mine.py", None):
        assert "does not offer" in ask["diagnose"]({"method": bad})["error"]
    ticket = ask["diagnose"]({"method": "dart"})["ticket"]
    for early in (ticket, "nobody", None, runs.open(trace())):
        assert "not there" in ask["diagnosed"]({"ticket": early})["error"]
    runs.start()
    while ask["updates"]({"ticket": ticket, "since": 0})["run"]["state"] != "done":
        time.sleep(0.01)
    assert ask["diagnosed"]({"ticket": ticket}) == diagnosis("dart")
    runs.close()


def test_headers_of_another_make_break_no_question(runs: Runs):
    """Each setting missing once, and of any other type: a page asks about such a run as usual."""
    methods, tried = Methods.of(), 0
    table = Routes(runs, Examples()).of_runs() | Collecting(runs, methods, str).routes()
    cheap = ("updates", "runs", "compare", "fold", "why", "collect", "inspect")
    ask = {n: named(n, table[n]) for n in (*cheap, "draw", "export", "measure", "beside", "save")}
    for data in of_other_makes(each=1):
        if (found := opened(data)) is None:
            continue
        ticket, tried = runs.open(found), tried + 1
        asked = {"ticket": ticket, "tickets": [ticket] * 2, "round": 0, "open": [1], "row": 0}
        for name, route in ask.items():
            if name not in cheap and tried % 32:
                continue
            answer = route(asked | {"form": ("dot", "nodes.csv", "graphml")[tried // 32 % 3]})
            assert "could not work" not in answer.get("error", ""), (name, data[:2000])
            json.dumps(answer, allow_nan=False)
        with suppress(UserError):  # its method is not offered
            assert of_runs(methods, [found.header])["prompt"] == found.header.prompt_text
    assert tried > 100
