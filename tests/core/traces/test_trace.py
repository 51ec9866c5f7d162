"""The trace: exact round trips, cut files, and what is refused."""

import gzip
import io
import json
import math
import os
import signal
import subprocess
import sys
import weakref
from dataclasses import fields, replace
from functools import cache
from typing import Any, cast

import numpy as np
import pytest

from core.errors import UserError
from core.lines import Limits
from core.rounds.causes import Cause
from core.rounds.draft import Draft
from core.rounds.round import Round, Times, Verdict
from core.traces.reader import TraceReader, read_ends, read_trace
from core.traces.schema import FORMAT, VERSION, Trace, summary
from core.traces.writer import TraceWriter, round_to_json, write_trace
from tests import GOLDEN, ROOT
from tests.helpers.fakes import round_from_json
from tests.helpers.mutants import as_file, opened, placed, read_through
from tests.helpers.processes import running
from tests.helpers.small_rounds import full_round, small_trace

OLD = GOLDEN / "trace-v1.jsonl"
OLD_PATHS = GOLDEN / "trace-v1-paths.jsonl"
SUFFIXES = [".jsonl", ".jsonl.gz"]
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "${process.exit()} {{7*7}} <%= 1 %> `x`",
    "\x00\x01\x1b[31m\x7f\r\n\t\u2028\u2029\x85",
    "🤝🏽" * 5 + "\u202e\u200b\ufeff",
    "x" * 10_000,
    "]]}\n{",
    "",
]


@cache
def small_bytes(name: str = "t.jsonl") -> bytes:
    return as_file(small_trace(), name)


def parse(data: bytes) -> Trace:
    return TraceReader(io.BytesIO(data), "t.jsonl").trace()


def with_line(number: int, line: Any) -> bytes:
    """The small trace with another line; lines 1 and 2 are rounds of the two kinds."""
    lines = small_bytes().splitlines()
    lines[number] = json.dumps(line).encode()
    return b"\n".join(lines) + b"\n"


def edited(number: int, place: str = "", value: Any = None) -> bytes:
    """The small trace with another value at one place of a line, "nodes.parents" for example."""
    line = json.loads(small_bytes().splitlines()[number])
    return with_line(number, placed(line, place.split("."), value))


def as_json(record: Round) -> dict[str, Any]:
    return json.loads(json.dumps(round_to_json(record), allow_nan=False))


def assert_same(one: Any, two: Any) -> None:
    """Deep equality of rounds, headers and all they hold; NaN equals NaN. A reader's
    complaints do not belong to a round."""
    if isinstance(one, np.ndarray):
        assert one.dtype == two.dtype and one.shape == two.shape
        np.testing.assert_array_equal(one, two)
    elif hasattr(one, "__dataclass_fields__"):
        for f in fields(one):
            if f.compare:
                assert_same(getattr(one, f.name), getattr(two, f.name))
    elif isinstance(one, dict):
        assert one.keys() == two.keys()
        assert_same(tuple(one.values()), tuple(two.values()))
    elif isinstance(one, (tuple, list)):
        assert len(one) == len(two)
        for a, b in zip(one, two, strict=True):
            assert_same(a, b)
    else:
        assert one == two or (one != one and two != two)


# ── round trips ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("index", [0, 1])
def test_what_the_builder_reads_and_the_drafter_can_say_reads_back(index):
    record = replace(full_round(index), index=0)  # of both kinds, as the only round
    proposal, probe = cast(Draft, record.draft).proposal, record.probe
    assert proposal is not None and probe is not None
    ranks = np.array([1, 0], np.int32)
    record = replace(
        record,
        draft=replace(record.draft, proposal=replace(proposal, read=1, beam=3, least=-2.5)),
        probe=replace(probe, rank_q=ranks, vocabulary=16384),
    )
    assert_same(
        parse(as_file(replace(small_trace(), rounds=(record,)), "t.jsonl")).rounds, (record,)
    )


def test_a_last_depth_without_lists_is_known_and_reads_back():
    """As a program writes it that does not know what its drafter listed."""
    drafted = Draft.chain([5, 6, 7])
    whole = Round(
        0, 9, replace(drafted, last=2), Verdict((0, 1, 2), np.array([6, 7, 8])), (6, 7, 8)
    )
    short = replace(whole, verdict=Verdict((0, 1), np.array([6, 9, -1])), committed=(6, 9))
    assert (whole.stop_reason, short.stop_reason) == (Cause.BEYOND, Cause.UNKNOWN)
    for record in (whole, short):
        (back,) = parse(as_file(replace(small_trace(), rounds=(record,)), "t.jsonl")).rounds
        assert (back.max_depth, back.stop_reason) == (2, record.stop_reason)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_trace_reads_back_exactly(tmp_path, suffix):
    trace = small_trace(seed=2**70, settings={"budget": 3, "nested": {"a": [1, 2.5, None]}})
    path = tmp_path / f"t{suffix}"
    write_trace(path, trace)
    back = read_trace(path)
    assert_same(back.header, trace.header)
    assert_same(back.rounds, trace.rounds)
    assert back.complete and back.footer is not None and back.footer["rounds"] == 3


def test_every_float32_reads_back_to_the_bit():
    bits = np.random.default_rng(0).integers(0, 2**32, 4000, dtype=np.uint64).astype(np.uint32)
    some = [1e-45, 3.4e38, 3.4028235e38, -0.0, 0.1, 1 / 3, 1e-8, 16777217.0, np.pi]
    numbers = np.concatenate([np.array(some, np.float32), bits.view(np.float32)])
    numbers = numbers[np.isfinite(numbers)]
    tokens = np.zeros(len(numbers), np.int64)
    draft = replace(Draft.chain(tokens.tolist()), log_q=numbers)
    back = round_from_json(as_json(Round(0, 0, draft, Verdict((0,), tokens), ()))).draft.log_q
    np.testing.assert_array_equal(back.view(np.uint32), numbers.view(np.uint32))


def test_what_is_not_finite_is_written_as_null_and_reads_as_nan():
    record = full_round()
    odd = np.array([0, np.inf, -np.inf, np.nan], np.float32)
    line = as_json(replace(record, draft=replace(record.draft, scores=odd)))
    assert line["nodes"]["score"] == [0, None, None, None]
    assert np.isnan(round_from_json(line).draft.scores[1:]).all()


def test_a_round_without_optional_parts_reads_back():
    bare = Round(0, 4, Draft.root_only(3), Verdict((0,), np.array([5])), (5,))
    assert_same(round_from_json(as_json(bare)), bare)


@pytest.mark.parametrize("bonus", [None, 0, 6])
def test_a_bonus_token_that_was_drawn_reads_back(bonus):
    record = full_round()
    record = replace(record, verdict=replace(record.verdict, bonus_token=bonus))
    assert round_from_json(as_json(record)).verdict.bonus_token == bonus


@pytest.mark.parametrize(("temperature", "bonus", "read"), [(0.0, 8, None), (0, 6, 6), (0.7, 8, 8)])
def test_a_greedy_run_drew_nothing_though_older_traces_say_so(temperature, bonus, read):
    """Its bonus token is the target's own, 8; what contradicts that stays."""
    record = replace(full_round(), verdict=Verdict((0, 2), np.array([2, 7, 8, -1]), bonus))
    settings = {"sampling": {"temperature": temperature}}
    trace = replace(small_trace(settings=settings), rounds=(record,))
    assert parse(as_file(trace, "t.jsonl")).rounds[0].verdict.bonus_token == read


def test_a_text_that_ended_with_its_first_token_reads_back():
    record = Round(0, 4, Draft.root_only(3), Verdict((0,), np.array([-1])), ())
    assert_same(round_from_json(as_json(record)), record)
    assert summary([record])["tokens"] == 1 and summary([record])["tau"] is None


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_text(text):
    trace = small_trace(prompt_text=text, model={"name": text})
    data = as_file(replace(trace, rounds=(full_round(texts={9: text, 1: text}),)))
    assert data.isascii() and data.count(b"\n") == 3
    back = parse(data)
    assert back.header.prompt_text == text and back.rounds[0].texts == {9: text, 1: text}
    read_through(back)


def test_summary_counts_the_first_token_and_every_committed_one():
    found = summary([full_round(i) for i in range(3)])
    assert found["tokens"] == 1 + 3 * 2 and found["rounds"] == 3
    assert found["acceptance_lengths"] == [2, 2, 2] and found["tau"] == 2
    assert found["seconds"]["verify"] == pytest.approx(0.9)
    assert summary([])["tau"] is None


def test_a_footer_without_rounds_from_before_tau_was_null_is_sound():
    footer = {**summary([]), "tau": 1.0}
    data = as_file(replace(small_trace(), rounds=(), footer=footer))
    read = parse(data.replace(b'"tau":null', b'"tau":1.0'))
    assert b'"tau":null' in data and not read.lies and read.footer["tau"] is None


# ── cut files ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_ends_of_a_trace_are_its_header_and_footer_whatever_is_between(tmp_path, suffix):
    path = tmp_path / f"t{suffix}"
    writer = TraceWriter(path, small_trace().header)
    writer.write(full_round())
    assert read_ends(path) == Trace(read_trace(path).header, (), None)
    writer._line({"kind": "round", "index": 1, "nodes": "none"})
    writer.finish(more=1)
    ends = read_ends(path)
    assert ends.header == small_trace().header and ends.rounds == ()
    assert ends.footer is not None and (ends.footer["rounds"], ends.footer["more"]) == (1, 1)
    with pytest.raises(UserError):
        read_trace(path)


def test_the_ends_of_a_trace_say_what_is_wrong_as_its_rounds_do(tmp_path):
    path, said = tmp_path / "t.jsonl", r"line 2: times\.draft must be .* at least 0, not -0\.5"
    writer = TraceWriter(path, small_trace().header)
    writer.write(replace(full_round(), times=Times(draft=-0.5)))
    writer.close()
    for read in (read_trace, read_ends):
        with pytest.raises(UserError, match=said):
            read(path)


def test_a_cut_at_every_byte_loses_the_cut_line_only():
    """A run without a footer was interrupted, and still opens."""
    data, whole = small_bytes(), small_trace().rounds
    ends = [at + 1 for at, byte in enumerate(data) if byte == 10]
    for cut in (*range(0, ends[0] - 1, 7), ends[0] - 2):
        with pytest.raises(UserError):
            parse(data[:cut])
    for cut in range(ends[1], len(data) - 1):
        trace = parse(data[:cut])
        # A line is whole without its newline.
        assert len(trace.rounds) == min(3, sum(cut >= end - 1 for end in ends[1:]))
        assert not trace.complete
    assert_same(parse(data[: ends[3]]).rounds, whole)
    assert parse(data[:-1]).complete


@pytest.mark.parametrize("empty", [b"\n", b" \t\r\n"])
def test_empty_lines_behind_the_header_say_nothing(empty: bytes):
    lines = small_bytes().splitlines(keepends=True)
    trace = parse(empty.join(lines) + empty)
    assert trace.complete and not trace.lies
    assert_same(trace.rounds, small_trace().rounds)
    with pytest.raises(UserError, match="lines are neither rounds nor ends"):
        parse(lines[0] + empty * 10**5)


def test_a_gzip_cut_anywhere_opens_with_its_whole_rounds_or_says_why():
    data, counts = small_bytes("t.jsonl.gz"), []
    for cut in range(len(data)):
        try:
            trace = parse(data[:cut])
        except UserError:
            assert not counts, "what opened with fewer bytes must open with more"
            continue
        counts.append(len(trace.rounds))
    assert counts == sorted(counts) and set(counts) == {0, 1, 2, 3}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_written_round_can_be_read_while_the_run_goes_on(tmp_path, suffix):
    path = tmp_path / f"t{suffix}"
    writer = TraceWriter(path, small_trace().header)
    for index in range(40):
        writer.write(full_round(index))
        trace = read_trace(path)
        assert len(trace.rounds) == index + 1 and not trace.complete
    writer.finish(more=1)
    assert (read_trace(path).footer or {})["more"] == 1


def test_a_writer_lets_go_of_rounds_that_are_written(tmp_path):
    """A server writes long texts of many requests at once; the footer needs sums alone."""
    writer, records = TraceWriter(tmp_path / "t.jsonl", small_trace().header), [full_round()]
    kept = weakref.ref(records[0])
    writer.write(records.pop())
    assert kept() is None
    writer.write(full_round(1))
    writer.finish()
    trace = read_trace(tmp_path / "t.jsonl")
    assert trace.footer == summary(trace.rounds)


WRITE_WITHOUT_END = """
import sys
from dataclasses import replace
from itertools import count
from pathlib import Path
from core.traces.reader import read_trace
from core.traces.writer import TraceWriter
source = read_trace(Path(sys.argv[1]))
writer = TraceWriter(Path(sys.argv[2]), source.header)
for index in count():
    writer.write(replace(source.rounds[index % len(source.rounds)], index=index))
    print(index + 1, flush=True)
"""


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("after", [1, 60])
def test_a_run_killed_with_sigkill_leaves_a_readable_trace(tmp_path, suffix, after):
    path = tmp_path / f"t{suffix}"
    command = [sys.executable, "-c", WRITE_WITHOUT_END, str(OLD), str(path)]
    with running(command, stdout=subprocess.PIPE, cwd=ROOT) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if int(line) >= after:
                break
        os.kill(child.pid, signal.SIGKILL)
        announced = [int(line) for line in child.stdout if line.endswith("\n")]
    trace = read_trace(path)
    assert len(trace.rounds) >= max([after, *announced]) and not trace.complete
    assert [r.index for r in trace.rounds] == list(range(len(trace.rounds)))
    read_through(trace)


# ── what is refused ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\n", b"{}", b"[]\n", b"null\n", b"hello\n", b"\xff\xfe\x00", b"[" * 200_000,
        b"\x89PNG\r\n\x1a\n" + bytes(50), b'{"a":' * 100_000,
        b'{"format": "draftscope-trace"}\n', b'{"format": "draftscope-trace", "version": 1}\n',
        b"\x1f\x8b", b"\x1f\x8bnot gzip at all",
        *(gzip.compress(text, mtime=0) for text in (b"", bytes(5000), b"hello\n", b"{}\n")),
    ],
    ids=lambda data: repr(data[:24]),
)  # fmt: skip
def test_other_files_are_user_errors(data):
    with pytest.raises(UserError, match=r"^t.jsonl[^\n]+$"):
        parse(data)


def test_files_that_cannot_be_opened_are_user_errors(tmp_path):
    for path in (tmp_path / "nowhere.jsonl", tmp_path):
        for read in (read_trace, read_ends):
            with pytest.raises(UserError, match="cannot be read"):
                read(path)
    with pytest.raises(UserError, match="cannot be written"):
        TraceWriter(tmp_path, small_trace().header)


def test_a_limit_bounds_what_a_file_unpacks_to():
    size = len(small_bytes())
    reader = TraceReader(io.BytesIO(small_bytes("t.jsonl.gz")), "t", Limits(unpacked=size))
    assert len(reader.trace().rounds) == 3
    reader = TraceReader(io.BytesIO(small_bytes("t.jsonl.gz")), "t", Limits(unpacked=size - 1))
    with pytest.raises(UserError, match="unpacks to more than"):
        reader.trace()


@pytest.mark.parametrize("version", [0, -1, 2, 10**30, "1", None, True, 1.0, [1]])
def test_unknown_versions_are_user_errors(version):
    with pytest.raises(UserError, match="version"):
        parse(edited(0, "version", version))


def test_unknown_fields_and_lines_are_ignored():
    for number in range(5):
        trace = parse(edited(number, "later", {"x": [1]}))
        assert_same((trace.header, trace.rounds), (small_trace().header, small_trace().rounds))
    assert_same(parse(edited(1, "nodes.brand_new", [3])).rounds, small_trace().rounds)
    more = small_bytes().replace(b'{"kind":"footer"', b'{"kind":"later"}\n{"kind":"footer"')
    assert_same(parse(more).rounds, small_trace().rounds)


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "1e400", "-1e999", "1e39"])
def test_numbers_that_are_none_are_refused(literal):
    data = edited(1, "nodes.score", ["here", 0, 0, 0]).replace(b'"here"', literal.encode())
    with pytest.raises(UserError, match="line 2"):
        parse(data)


REFUSED: dict[str, list[Any]] = {
    "nodes": [None, 3, []],
    "nodes.parents": [
        [-1, 2, 1, 0], [-1, 1, 0, 2], [-1, -1, 0, 0], [0, 0, 0, 2], [-1, 3, 0, 2], [-1, 0, 0, 3],
        [], [-1, 0, 0], [-1, 0, 0, 2, 3], [-1, 0, 0, 10**20], [-1, 0, 0, True], [-1, 0, 0, 2.0],
        None, "-1002",
    ],
    "nodes.depth": [[0, 1, 1, 1], [0, 2, 2, 3], [1, 2, 2, 3], [0, 1, 1], [0, 1, 1, 10**12]],
    "nodes.token": [[9, 1, 2, -1], [9, 1, 2, 2**31]],
    "nodes.log_p": [None, [0.0] * 3],
    "path": [[], [1], [0, 3], [0, 0], [0, 2, 2], [0, 1, 3], [0, 9], [0, -1], "0"],
    "committed": [None, [-1], [[1]]],
    "index": [None, -1, 2**31, 1.0, True],
    "drawn_bonus": [-1, True, "6", 2.0, [6]],
    "side": [[0], [4], [1, 2], [2], [-1], "3", [True], {"3": 3}],
    "times": [3, {"draft": -1}, {"draft": None}, {"draft": "1"}],
    "texts": [[], {"-1": "x"}, {"9" * 10: "x"}, {"²": "x"}, {"": "x"}, {"1": 1}],
    "notes": [
        3, [1.0] * 4, "x", {"x": 3}, {"x": None}, {"x": [1.0] * 3}, {"x": [1.0] * 5},
        {"x": ["y"] * 4}, {"x": [[1.0]] * 4}, {"x": [True] * 4}, {"x": {}}, {"x" * 9000: 3},
        {"two\nlines": 3},
    ],
    "target_top.token": [[[1]] * 3, [[1], [1, 2], [1], [1]], [[-1]] * 4],
    "candidates": [3, [1], "x", {"token": [[1]]}],
    "candidates.read": [0, -1, True, 1.0, "2", [1]],
    "max_depth": [-1, "2", True, [2]],
    "offers": [3, [1], "x", {"token": [[1]]}, {"after": [0, 0, 0, 0]}],
    "offers.after": [
        [0, -1, 2, -1], [0, -1, 1], [0, -1, 1, -1, 0], [0, -3, 1, -1], [0, -1, 1.0, -1], None,
    ],
    "offers.token": [
        [[1, 2, 3]], [[1, 2, 3], [1, 2]], [[1, 2, -3]] * 2, [], 3, [[1, 2], [3, 4]],
        [[1.5] * 3] * 2,
    ],
    "offers.log_q": [[[0.0] * 3], [[0.0] * 2] * 2, None, [["x"] * 3] * 2],
    "probe.coverage": [None, [[0.5] * 16], [[0.5] * 16, [0.5]]],
}  # fmt: skip
CASES = [(place, value) for place, values in REFUSED.items() for value in values]


@pytest.mark.parametrize(("place", "value"), CASES, ids=lambda v: str(v)[:40])
def test_values_that_do_not_fit_are_refused_in_one_short_sentence(place, value):
    with pytest.raises(UserError, match=r"^t.jsonl, line 2: [^\n]{5,120}$"):
        parse(edited(1, place, value))


def test_a_node_that_is_its_own_parent_is_told_as_such():
    with pytest.raises(UserError, match="parent does not stand before it"):
        parse(edited(1, "nodes.parents", [-1, 1, 0, 2]))


def test_the_same_holds_for_a_round_by_paths():
    for place, value in (("max_depth", -1), ("offers.after", [0, -3, 1, -1]), ("path", [0, 2, 3])):
        with pytest.raises(UserError, match="line 3"):
            parse(edited(2, place, value))


@pytest.mark.parametrize(
    "value", [json.loads("[" * 60 + "]" * 60), 10**4000, [[0] * 5] * 5, "x" * 10**6]
)
def test_absurd_values_are_refused(value):
    for place in ("nodes", "path", "texts", "times", "committed", "candidates", "probe", "index"):
        assert opened(edited(1, place, value)) is None


def test_notes_of_any_name_are_read():
    draft = (
        parse(edited(1, "notes", {text: [1.0, None, 2.5, 0.0] for text in HOSTILE})).rounds[0].draft
    )
    assert isinstance(draft, Draft) and list(draft.notes) == HOSTILE
    np.testing.assert_array_equal(draft.notes[""], np.array([1, np.nan, 2.5, 0], np.float32))


@pytest.mark.parametrize("nothing", [None, {}])
def test_null_and_an_empty_object_say_what_a_missing_field_says(nothing):
    line = json.loads(small_bytes().splitlines()[1])
    names = ("candidates", "offers", "notes", "target_top", "probe", "times", "texts")
    bare = parse(with_line(1, {k: v for k, v in line.items() if k not in names})).rounds[0]
    assert bare.proposal is None and bare.probe is None
    assert_same(parse(with_line(1, line | dict.fromkeys(names, nothing))).rounds[0], bare)


def test_lists_after_rows_without_any_number_of_depths_explain_no_stop():
    """As Draftscope 0.2 read them: rounds of a foreign writer, without candidates."""
    line = json.loads(small_bytes().splitlines()[2])
    record = parse(with_line(2, {k: v for k, v in line.items() if k != "max_depth"})).rounds[1]
    assert record.max_depth == 0 and record.candidates_after(0) is not None


def test_the_name_of_a_file_does_not_decide_how_it_is_read(tmp_path):
    (tmp_path / "t.jsonl").write_bytes(small_bytes("t.jsonl.gz"))
    assert_same(read_trace(tmp_path / "t.jsonl").rounds, small_trace().rounds)


# ── golden ───────────────────────────────────────────────────────────────────────────────────────


def test_the_golden_version_1_trace_still_opens_and_says_the_same():
    trace = read_trace(OLD)
    assert trace.complete and trace.header.method == "ddtree" and trace.header.seed == 11
    assert trace.header.prompt_ids == (5, 17, 3, 44, 9, 28, 3, 11)
    assert trace.header.libraries == {"torch": "2.13.0"}
    assert [r.verdict.path for r in trace.rounds] == [(0, 1), (0,), (0,), (0, 3), (0,), (0,)]
    assert [r.committed for r in trace.rounds] == [(2, 10), (7,), (2,), (36, 12), (9,), (34,)]
    assert [r.stop_reason for r in trace.rounds] == [
        Cause.SHORT_LIST,
        *[Cause.PRUNED] * 4,
        Cause.SHORT_LIST,
    ]
    first = trace.rounds[0]
    assert first.draft.tokens.tolist() == [42, 2, 17, 39, 29, 22, 42]
    assert first.probe is not None and first.probe.coverage.shape == (len(first.probe.tvd), 16)
    assert first.text(int(first.draft.tokens[0])) == " t42"
    assert first.target_probs is not None and math.isnan(first.target_probs.log_p[0])
    for record in trace.rounds:
        assert isinstance(record.draft, Draft) and not record.draft.notes
        assert record.proposal is not None and record.proposal.factorised_lists
    read_through(trace)


def test_the_golden_trace_of_later_fields_is_the_small_trace():
    assert_same(read_trace(OLD_PATHS), replace(small_trace(), footer=summary(small_trace().rounds)))


@pytest.mark.parametrize("golden", [OLD, OLD_PATHS])
def test_writing_a_golden_trace_again_gives_the_same_bytes(tmp_path, golden):
    assert VERSION == 1 and FORMAT == "draftscope-trace"
    path = tmp_path / "again.jsonl"
    write_trace(path, read_trace(golden))
    assert path.read_bytes() == golden.read_bytes()


def test_a_trace_written_anew_keeps_what_its_footer_said(tmp_path):
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl.gz"
    writer = TraceWriter(first, small_trace().header)
    for record in small_trace().rounds:
        writer.write(record)
    writer.finish(wall_seconds=2.5, text="so", self="a field may have any name", tau=99.0)
    trace = read_trace(first)
    assert trace.footer is not None
    assert trace.footer["wall_seconds"] == 2.5 and trace.footer["tau"] != 99.0
    write_trace(second, trace)
    assert read_trace(second).footer == trace.footer
