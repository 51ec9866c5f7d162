"""Traces that lie: two runs in one file, lines lost or repeated, values that cannot be, footers of
other rounds, files without end. None is read as one sound run."""

from __future__ import annotations

import gzip
import io
import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.measures.acceptance import per_depth, tau
from analysis.measures.tables import Tables
from app import cli
from app.report.sections import cautions
from app.studio.run import RUNNING, StudioRun
from app.view.node import node_view
from core import lines
from core.errors import UserError
from core.lines import Limits, open_regular
from core.traces.reader import TraceReader, read_ends, read_trace
from core.traces.schema import Trace
from tests import ROOT
from tests.helpers import raw_numbers
from tests.helpers.fakes import make_header, make_run
from tests.helpers.mutants import HOLE, as_file, denoising, placed

HANDMADE = "trace-v1-paths.jsonl"  # of random numbers: no probabilities
SHIPPED = [
    *sorted((ROOT / "assets").glob("traces/*.gz")),
    *sorted((ROOT / "assets").glob("learn/*.gz")),
    *sorted((ROOT / "tests/golden").glob("*.jsonl")),
]
SOUND = as_file(Trace(make_header(), tuple(make_run(4, 6)), {}))
BLOCKS = as_file(Trace(make_header(method="denoise"), denoising(), {}))
LINES = SOUND.splitlines(keepends=True)


def read(data: bytes, limits: Limits = lines.LIMITS) -> Trace:
    return TraceReader(io.BytesIO(data), "t.jsonl", limits).trace()


def refused(data: bytes) -> str:
    with pytest.raises(UserError, match=r"^t.jsonl[^\n]{5,200}$") as error:
        read(data)
    return str(error.value)


def with_value(place: str, value: Any, line: int = 2) -> bytes:
    """The sound trace with another value; ``a.b.0`` is a key of a key, and a list's first."""
    keys = [int(key) if key.isdigit() else key for key in place.split(".")]
    text = json.dumps(placed(json.loads(LINES[line]), keys, HOLE))
    made = text.replace(json.dumps(HOLE), json.dumps(value)).encode() + b"\n"
    return b"".join([*LINES[:line], made, *LINES[line + 1 :]])


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_what_ships_is_sound(path: Path):
    trace = read_trace(path)
    assert bool(trace.mark) == (path.name == HANDMADE)
    assert not trace.lies and read_ends(path).footer == trace.footer


# ── several runs, lost and repeated lines ────────────────────────────────────────────────────────


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_two_joined_runs_are_refused(whole: bool, zipped: bool):
    first = SOUND if whole else b"".join(LINES[:-1])
    data = b"".join(map(gzip.compress, (first, SOUND))) if zipped else first + SOUND
    assert "a second header" in refused(data)


def test_rounds_after_the_footer_are_refused():
    assert "after the footer" in refused(SOUND + LINES[2])
    assert "after the footer" in refused(SOUND + LINES[-1])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, len(LINES) - 1), min_size=1, max_size=8))
def test_only_the_first_lines_in_their_order_are_a_run(order: list[int]):
    """Of all files that are made of these lines: a cut run opens, and a whole one."""
    data = b"".join(LINES[at] for at in order)
    rounds = [at for at in order if at != len(LINES) - 1]
    ended = order[-1] == len(LINES) - 1
    if rounds == [*range(len(rounds))] and rounds and len(order) - len(rounds) == ended:
        trace = read(data)
        assert len(trace.rounds) == len(rounds) - 1 and trace.complete == ended
        assert bool(trace.lies) == (ended and len(rounds) < len(LINES) - 1)
    else:
        refused(data)


# ── values that cannot be ────────────────────────────────────────────────────────────────────────

WRONG = [
    ("probe.tvd.0", [-5, 1.2], [0, 1, 1.0078, None]),
    ("probe.coverage.0.15", [9, -1, 0.2], [1.0078, None]),
    ("probe.entropy_q.0", [-3, 400], [0, None]),
    ("nodes.log_q.1", [0.5, 3, -9.0], [None]),
    ("nodes.rank.1", [0, 99], [-1]),
    ("nodes.rank_p.1", [0], [9]),
    ("nodes.log_p.1", [0.1], [0, None]),
    ("nodes.entropy.0", [-1], [0]),
    ("target_top.log_p.0.0", [1], [0]),
    ("candidates.log_q.0.0", [1, -9.0], [None]),
    ("candidates.log_q.0.5", [1], [0, 0.0078, -9.0, None]),
    ("notes", [{"log q": [2.0] * 7}], [{"n-gram count": [9.0] * 7}]),
    ("committed", [[30, 30, 30]], []),
    ("position", [0, 99], []),
    ("nodes.token.0", [31], []),
]
CASES = [(place, value, True) for place, wrong, _ in WRONG for value in wrong]
CASES += [(place, value, False) for place, _, fine in WRONG for value in fine]


@pytest.mark.parametrize(("place", "value", "wrong"), CASES)
def test_what_cannot_be_is_marked_and_counts_nowhere(place: str, value: Any, wrong: bool):
    trace = read(with_value(place, value))
    assert (1 in [r.index for r in trace.rounds if r.faults]) == wrong == bool(trace.mark)
    if wrong:
        tables = Tables.of(trace)
        assert 2 not in tables.rounds["round"].tolist()
        assert any(trace.mark in note for note in cautions(tables))
        rebuilt = Tables.of(Trace(trace.header, trace.sound, trace.footer))
        assert tau(tables)["tau"].tolist() == tau(rebuilt)["tau"].tolist()
        assert per_depth(tables).equals(per_depth(rebuilt))
        assert math.isnan(tables.runs["wall_seconds"][0])
        run = StudioRun("t", header=trace.header, state=RUNNING)
        assert run.read(trace, iter(trace.rounds), math.inf)
        assert trace.mark in run.message
        assert [bool(line.get("faults")) for line in run.lines(0)[0][:2]] == [False, True]


@pytest.mark.parametrize(("apart", "wrong"), [(0.05, False), (0.2, True)])
def test_half_precision_moves_a_q_by_less_than_a_tenth_of_a_nat(apart: float, wrong: bool):
    own = json.loads(LINES[2])["nodes"]["log_q"][1]
    assert bool(read(with_value("nodes.log_q.1", own - apart)).mark) == wrong


def test_a_node_says_that_its_list_contradicts_it():
    for value, said in ((-9.0, [["q in its list", "probability"]]), (None, [])):
        record = read(with_value("nodes.log_q.1", value)).rounds[1]
        assert [note[::2] for note in node_view(record, 1)["notes"]] == said


def test_a_node_below_the_drafters_last_depth_is_marked():
    line = json.loads(LINES[2])
    deepest = max(line["nodes"]["depth"])
    del line["candidates"]
    for last in (deepest - 1, deepest):
        made = json.dumps(line | {"max_depth": last}).encode() + b"\n"
        mark = read(b"".join([*LINES[:2], made, *LINES[3:]])).mark
        assert deepest > 1 and bool(mark) == (last < deepest) == ("last depth" in mark)


@pytest.mark.parametrize(("place", "value"), [("times.draft", -1), ("index", 0), ("index", 5)])
def test_what_no_round_can_be_read_with_is_refused(place: str, value: Any):
    refused(with_value(place, value))


def test_a_denoised_block_that_contradicts_itself_is_marked():
    assert not read(BLOCKS).mark
    head, first, *rest = BLOCKS.splitlines(keepends=True)
    line = json.loads(first)
    for key, value in (("committed", [0] * len(line["committed"])), ("position", 99)):
        made = json.dumps(line | {key: value}).encode() + b"\n"
        assert read(b"".join([head, made, *rest])).mark


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["tokens", "rounds", "tau"]), st.one_of(st.integers(), st.floats(-9, 99)))
def test_a_footer_says_what_its_rounds_say_or_is_marked(name: str, value: float):
    """Truth comes from the raw lines."""
    raw = [json.loads(line) for line in LINES[1:-1]]
    true = {
        "tokens": 1 + sum(len(line["committed"]) for line in raw),
        "rounds": len(raw),
        "tau": raw_numbers.tau(raw),
    }
    data = with_value(name, value, len(LINES) - 1)
    trace = read(data)
    close = 0.011 * abs(true[name]) if name == "tau" and isinstance(value, float) else 0
    if abs(value - true[name]) > close:
        assert trace.lies == (name,) and name in trace.mark
    assert trace.footer is not None and trace.footer[name] == pytest.approx(true[name])


@pytest.mark.parametrize("claim", ["<b>", [1], True, 10**400])
def test_a_footer_of_other_kinds_of_values_is_marked(claim: Any):
    for name in ("tokens", "tau", "acceptance_lengths", "seconds"):
        assert read(with_value(name, claim, len(LINES) - 1)).lies == (name,)


def test_validate_lists_all_and_replay_and_export_say_it(tmp_path: Path, capsys: Any):
    path = tmp_path / "t.jsonl"
    path.write_bytes(with_value("probe.tvd.0", -5).replace(b'"rounds":4', b'"rounds":999'))
    assert cli.main(["trace", "check", str(path)]) == 1
    out = capsys.readouterr().out
    assert "2 faults" in out and "round 2 holds a TVD" in out and "footer's rounds" in out
    assert cli.main(["trace", "show", str(path)]) == 0
    assert "1 of 4 rounds have faults" in capsys.readouterr().out
    assert cli.main(["trace", "export", str(path), "--to", "csv"]) == 0
    assert "1 of 4 rounds" in capsys.readouterr().err
    assert cli.main(["report", str(path)]) == 0
    assert capsys.readouterr().out.startswith("t.jsonl: 1 of 4 rounds have faults")


@pytest.mark.parametrize("bound", ["inf", "-inf", "nan", "1e999"])
def test_a_gate_that_nothing_or_everything_passes_is_refused(bound: str, capsys: Any):
    assert cli.main(["report", str(SHIPPED[0]), "--gate", f"tau>={bound}"]) == 2
    assert "not a finite number" in capsys.readouterr().err


# ── files without end ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("body", [b"{}\n", b'{"kind":"later"}\n', b" ", b'{"kind":"round"}\n'])
def test_a_small_file_that_unpacks_without_end_is_refused_soon(body: bytes, tmp_path: Path):
    path = tmp_path / "t.jsonl.gz"
    path.write_bytes(gzip.compress(LINES[0] + body * (20_000_000 // len(body)), 6))
    for each in (read_trace, read_ends):
        with pytest.raises(UserError, match=r"^t.jsonl.gz[^\n]{5,200}$"):
            each(path)


def test_unknown_lines_are_skipped_as_far_as_there_are_rounds_and_some():
    data = b"".join([LINES[0], b"{}\n" * 7, *LINES[1:]])
    assert read(data, Limits(skipped=7)).complete
    with pytest.raises(UserError, match="7 lines are neither rounds nor ends"):
        read(data, Limits(skipped=6))


def test_a_gzip_file_beyond_its_ratio_is_read_as_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
):
    monkeypatch.setattr(lines, "FREE", 1000)
    path = tmp_path / "t.jsonl.gz"
    padded = LINES[0].replace(b'"prompt_text":"', b'"prompt_text":"' + b" " * 3_000_000)
    path.write_bytes(gzip.compress(padded + b"".join(LINES[1:]), 9))
    assert cli.main(["trace", "check", str(path)]) == 2
    assert "100 times its size" in capsys.readouterr().err
    assert cli.main(["trace", "check", "--large", str(path)]) == 0


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=6), st.integers(0, 9), st.booleans())
def test_lines_are_those_of_gzip(parts: list[bytes], cut: int, zeros: bool):
    """Members one after the other, zeros at the end; a cut gives a beginning of it."""
    packed = b"".join(map(gzip.compress, parts)) + bytes(5 * zeros)
    if not packed.startswith(b"\x1f\x8b"):
        return
    whole = b"".join(parts)
    assert b"".join(lines.lines(io.BytesIO(packed), "t")) == whole == gzip.decompress(packed)
    some = b"".join(lines.lines(io.BytesIO(packed[: len(packed) - cut]), "t"))
    assert whole.startswith(some)


# ── not a file ───────────────────────────────────────────────────────────────────────────────────


def test_a_pipe_or_a_device_is_never_waited_for(tmp_path: Path, capsys: Any):
    os.mkfifo(tmp_path / "x.jsonl")
    for path in (tmp_path / "x.jsonl", Path("/dev/zero"), tmp_path):
        with pytest.raises(OSError):
            open_regular(path)
    for words in (
        ["report", tmp_path], ["report", tmp_path / "x.jsonl"],
        ["trace", "check", tmp_path / "x.jsonl"],
        ["run", "ar", "--prompts", tmp_path / "x.jsonl"], ["studio", tmp_path / "x.jsonl"],
        ["trace", "import", tmp_path / "x.jsonl"],
        ["report", SHIPPED[0], "--trained", tmp_path / "x.jsonl"],
        ["trace", "compare", tmp_path / "x.jsonl", SHIPPED[0]],
        ["model", "ngram", tmp_path / "x.jsonl", "--out", tmp_path / "n.safetensors"],
    ):  # fmt: skip
        assert cli.main(list(map(str, words))) == 2
        assert capsys.readouterr().err.count("\n") == 1
    (tmp_path / "sound.jsonl").write_bytes(SOUND)
    assert cli.main(["report", str(tmp_path)]) == 0


def test_no_command_says_of_rounds_that_none_counts_what_was_drafted(tmp_path, call):
    """Every round of one trace is marked, the other has none: no τ, no token, no draft follows."""
    marked, empty = tmp_path / "marked.jsonl", tmp_path / "empty.jsonl"
    footer = b'{"kind": "footer"}\n'
    marked.write_bytes(b"".join([LINES[0], with_value("nodes.log_q.1", 0.5, 1).splitlines()[1],
                                 b"\n", footer]))  # fmt: skip
    empty.write_bytes(LINES[0] + footer)
    for path, count in ((marked, 1), (empty, 0)):
        code, said, _ = call("trace", "show", path)
        assert code == 0 and f"rounds    {count} · complete" in said and "τ" not in said
    assert "target    " in said and "unknown" not in said
    code, _, error = call("trace", "show", empty, "--round", 1)
    assert code == 2 and "holds no round" in error and "stopped" not in error
    (tmp_path / "t.csv").write_text("tokens,ms\n1,10\n6,12\n", "utf-8")
    for words in (("advise", marked, "--cost", tmp_path / "t.csv"),
                  ("trace", "export", marked, "--to", "profile")):  # fmt: skip
        code, _, error = call(*words)
        assert code == 2 and "no round of these" in error and "a q above 1" in error
