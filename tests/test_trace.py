"""The trace: exact round trips, cut files, and hostile ones."""

import gzip
import io
import json
import math
import os
import random
import signal
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from core.errors import UserError
from core.traces.reader import read_ends, read_trace, round_from_json, TraceReader
from core.traces.schema import FORMAT, Header, summary, Trace, VERSION
from core.traces.writer import round_to_json, TraceWriter, write_trace
from core.rounds.draft import Candidates, Draft, Offers
from core.rounds.round import TargetProbs, OUTSIDE, Probe, PRUNED, Round, Times, Verdict

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = Path(__file__).parent / "golden" / "trace-v1.jsonl"
SUFFIXES = [".jsonl", ".jsonl.gz"]
GOLDEN_PATHS = [(0, 1), (0,), (0,), (0, 3), (0,), (0,)]
GOLDEN_COMMITTED = [(2, 10), (7,), (2,), (36, 12), (9,), (34,)]
GOLDEN_REASONS = [OUTSIDE, PRUNED, PRUNED, PRUNED, PRUNED, OUTSIDE]
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "${process.exit()} {{7*7}} <%= 1 %> `x`",
    "\x00\x01\x1b[31m\x7f\r\n\t\u2028\u2029\x85",
    "\ud800 lone \udfff",
    "🤝🏽" * 5 + "\u202e\u200b\ufeff",
    "x" * 10_000,
    "]]}\n{",
    "",
]


def small_round(index=0, texts=None):
    """Three nodes with every optional part, handmade: no torch is needed here."""
    rng = np.random.default_rng(index)

    def f32(*shape):
        return rng.normal(size=shape).astype(np.float32)

    log_p = f32(4)
    log_p[0] = np.nan
    return Round(
        index=index,
        position=5 + 2 * index,
        draft=Draft(
            np.array([9, 1, 2, 3]), np.array([-1, 0, 0, 2], np.int32),
            np.array([0, 1, 1, 2], np.int32), np.array([0, 1, 2, 1], np.int32), f32(4), f32(4),
            notes={"n-gram count": f32(4), "log q (marginal)": f32(4)},
            offers=Offers(
                rng.integers(0, 50, (2, 3)), f32(2, 3), np.array([0, -1, 1, -1], np.int32)
            ),
        ),
        verdict=Verdict((0, 2), np.array([2, 7, 8, -1])),
        committed=(2, 8),
        candidates=Candidates(rng.integers(0, 50, (2, 3)), f32(2, 3), read=2),
        target_probs=TargetProbs(
            log_p, np.array([0, 1, 4, 2], np.int32), rng.integers(0, 50, (4, 2)), f32(4, 2), f32(4)
        ),
        probe=Probe(f32(2), f32(2, 16), f32(2), np.array([1, 30], np.int32)),
        times=Times(0.1, 0.2, 0.3, 0.4),
        texts={9: "nine", 1: "one"} if texts is None else texts,
    )  # fmt: skip


def small_trace(rounds=3, **header):
    fixed = {"method": "ddtree", "settings": {"budget": 3}, "model": {"name": "toy"}}
    whole = Header(**(fixed | {"prompt_text": "hi", "prompt_ids": (1, 2)} | header))
    return Trace(whole, tuple(small_round(i) for i in range(rounds)), {})


def small_bytes(tmp_path, name="t.jsonl", trace=None):
    path = tmp_path / name
    write_trace(path, trace or small_trace())
    return path.read_bytes()


def parse(data, name="t.jsonl"):
    return TraceReader(io.BytesIO(data), name).trace()


def assert_same(one, two):
    """Deep equality of rounds, headers and all they hold; NaN equals NaN."""
    if isinstance(one, np.ndarray):
        assert isinstance(two, np.ndarray) and one.dtype == two.dtype and one.shape == two.shape
        np.testing.assert_array_equal(one, two)
    elif hasattr(one, "__dataclass_fields__"):
        for f in fields(one):
            assert_same(getattr(one, f.name), getattr(two, f.name))
    elif isinstance(one, dict):
        assert one.keys() == two.keys()
        for key in one:
            assert_same(one[key], two[key])
    elif isinstance(one, (tuple, list)):
        assert len(one) == len(two)
        for a, b in zip(one, two, strict=True):
            assert_same(a, b)
    else:
        assert one == two or (one != one and two != two)


def use(trace):
    """What every view does with a trace: it must not stumble over one that was let in."""
    list(summary(trace.rounds).values())
    for record in trace.rounds:
        assert len(record.status) == len(record.draft)
        assert isinstance(record.stop_reason, str) and isinstance(record.verdict.bonus, int)
        for row in range(len(record.draft)):
            assert record.why(row) and record.draft.path(row)[0] == 0
            offered = record.offered(row)
            assert offered is None or offered.ids.shape == offered.log_q.shape
            assert isinstance(record.text(int(record.draft.tokens[row])), str)
        json.dumps(round_to_json(record), allow_nan=False)


def opens_or_says_why(data, name="t.jsonl"):
    """The only two outcomes allowed; True when it opened."""
    try:
        trace = parse(data, name)
    except UserError as error:
        assert "\n" not in str(error) and len(str(error)) < 5000
        return False
    use(trace)
    return True


# ── round trips ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_trace_reads_back_exactly(tmp_path, suffix):
    trace = small_trace(seed=2**70, settings={"budget": 3, "nested": {"a": [1, 2.5, None]}})
    path = tmp_path / f"t{suffix}"
    write_trace(path, trace)
    back = read_trace(path)
    assert_same(back.header, trace.header)
    assert_same(back.rounds, trace.rounds)
    assert back.complete and back.footer["rounds"] == 3


@pytest.mark.parametrize("values", [[1e-45, 3.4e38, -0.0, 0.1], [1 / 3, 1e-8, 16777217.0, np.pi]])
def test_every_float32_reads_back_to_the_bit(values):
    record = small_round()
    numbers = np.array(values, np.float32)
    record = replace(record, draft=replace(record.draft, log_q=numbers))
    back = round_from_json(json.loads(json.dumps(round_to_json(record))))
    np.testing.assert_array_equal(back.draft.log_q.view(np.uint32), numbers.view(np.uint32))


def test_random_float32_bit_patterns_read_back_to_the_bit():
    bits = np.random.default_rng(0).integers(0, 2**32, 4000, dtype=np.uint64).astype(np.uint32)
    numbers = bits.view(np.float32)
    numbers = numbers[np.isfinite(numbers)][:1024].copy()
    record = small_round()
    record = replace(record, draft=replace(record.draft, notes={"x": numbers}))
    line = json.loads(json.dumps(round_to_json(record)))
    back = np.array(line["notes"]["x"], np.float32)
    np.testing.assert_array_equal(back.view(np.uint32), numbers.view(np.uint32))


def test_what_is_not_finite_is_written_as_null_and_reads_as_nan():
    record = small_round()
    odd = np.array([0, np.inf, -np.inf, np.nan], np.float32)
    text = json.dumps(round_to_json(replace(record, draft=replace(record.draft, scores=odd))))
    assert "Infinity" not in text and "NaN" not in text
    assert np.isnan(round_from_json(json.loads(text)).draft.scores[1:]).all()


def test_a_round_without_optional_parts_reads_back():
    bare = Round(0, 4, Draft.root_only(3), Verdict((0,), np.array([5])), (5,))
    assert_same(round_from_json(json.loads(json.dumps(round_to_json(bare)))), bare)


def test_a_text_that_ended_with_its_first_token_reads_back():
    record = Round(0, 4, Draft.root_only(3), Verdict((0,), np.array([-1])), ())
    assert_same(round_from_json(json.loads(json.dumps(round_to_json(record)))), record)
    assert summary([record])["tokens"] == 1 and summary([record])["tau"] == 1.0


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_text(tmp_path, text):
    trace = small_trace(prompt_text=text, model={"name": text})
    trace = replace(trace, rounds=(small_round(texts={9: text, 1: text}),))
    data = small_bytes(tmp_path, trace=trace)
    assert data.isascii() and data.count(b"\n") == 3
    back = parse(data)
    assert back.header.prompt_text == text and back.rounds[0].texts == {9: text, 1: text}
    use(back)


def test_summary_counts_the_first_token_and_every_committed_one():
    found = summary([small_round(i) for i in range(3)])
    assert found["tokens"] == 1 + 3 * 2 and found["rounds"] == 3
    assert found["acceptance_lengths"] == [2, 2, 2] and found["tau"] == 2
    assert found["seconds"]["verify"] == pytest.approx(0.9)
    assert summary([])["tau"] == 1.0


# ── cut files ────────────────────────────────────────────────────────────────────────────────────


def test_a_run_without_footer_is_interrupted_and_still_opens(tmp_path):
    path = tmp_path / "t.jsonl"
    write_trace(path, replace(small_trace(), footer=None))
    assert not read_trace(path).complete
    assert_same(read_trace(path).rounds, small_trace().rounds)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_ends_of_a_trace_are_its_header_and_footer_whatever_stands_between(tmp_path, suffix):
    path = tmp_path / f"t{suffix}"
    writer = TraceWriter(path, small_trace().header)
    writer.write(small_round())
    assert read_ends(path) == Trace(read_trace(path).header, (), None)
    writer._line({"kind": "round", "nodes": "none"})
    writer.finish(more=1)
    ends = read_ends(path)
    assert ends.header == small_trace().header and ends.rounds == ()
    assert ends.footer is not None and (ends.footer["rounds"], ends.footer["more"]) == (1, 1)
    with pytest.raises(UserError):
        read_trace(path)
    with pytest.raises(UserError, match="cannot be read"):
        read_ends(tmp_path)


def test_a_cut_at_every_byte_of_the_last_line_loses_that_line_only(tmp_path):
    data = small_bytes(tmp_path, trace=replace(small_trace(), footer=None))
    start = data.rstrip(b"\n").rindex(b"\n") + 1
    whole = small_trace().rounds
    for cut in range(start, len(data) - 1):
        assert_same(parse(data[:cut]).rounds, whole[:2])
    assert_same(parse(data[:-1]).rounds, whole)  # only the newline is missing


def test_a_cut_at_every_byte_of_the_footer_keeps_every_round(tmp_path):
    data = small_bytes(tmp_path)
    start = data.rstrip(b"\n").rindex(b"\n") + 1
    for cut in range(start, len(data) - 1):
        trace = parse(data[:cut])
        assert len(trace.rounds) == 3 and not trace.complete


def test_a_cut_in_the_header_is_a_user_error(tmp_path):
    data = small_bytes(tmp_path)
    end = data.index(b"\n")
    for cut in range(0, end, 7):
        with pytest.raises(UserError):
            parse(data[:cut])


def test_a_gzip_cut_anywhere_opens_with_its_whole_rounds_or_says_why(tmp_path):
    data = small_bytes(tmp_path, "t.jsonl.gz")
    counts = []
    for cut in range(len(data)):
        try:
            trace = parse(data[:cut], "t.jsonl.gz")
        except UserError:
            assert not counts, "what opened with fewer bytes must open with more"
            continue
        counts.append(len(trace.rounds))
    assert counts == sorted(counts)
    assert set(counts) == {0, 1, 2, 3}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_written_round_can_be_read_while_the_run_goes_on(tmp_path, suffix):
    path = tmp_path / f"t{suffix}"
    writer = TraceWriter(path, small_trace().header)
    for index in range(40):
        writer.write(small_round(index))
        trace = read_trace(path)
        assert len(trace.rounds) == index + 1 and not trace.complete
    writer.finish(more=1)
    assert read_trace(path).footer["more"] == 1


WRITE_FOR_EVER = """
import sys
from dataclasses import replace
from pathlib import Path
from core.traces.reader import read_trace
from core.traces.writer import TraceWriter
source = read_trace(Path(sys.argv[1]))
writer = TraceWriter(Path(sys.argv[2]), source.header)
index = 0
while True:
    for record in source.rounds:
        writer.write(replace(record, index=index))
        index += 1
        print(index, flush=True)
"""


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("after", [1, 7, 60])
def test_a_run_killed_with_sigkill_leaves_a_readable_trace(tmp_path, suffix, after):
    path = tmp_path / f"t{suffix}"
    command = [sys.executable, "-c", WRITE_FOR_EVER, str(GOLDEN), str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, text=True) as child:
        for line in child.stdout:
            if int(line) >= after:
                break
        os.kill(child.pid, signal.SIGKILL)
        announced = [int(line) for line in child.stdout if line.endswith("\n")]
    trace = read_trace(path)
    assert len(trace.rounds) >= max([after, *announced]) and not trace.complete
    assert [r.index for r in trace.rounds] == list(range(len(trace.rounds)))
    use(trace)


# ── what is no trace ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "data",
    [b"", b"\n", b"{}", b"[]\n", b"null\n", b"hello\n", b"\x1f\x8b", b"\x1f\x8bnot gzip at all",
     b"\xff\xfe\x00", b"\x89PNG\r\n\x1a\n" + bytes(50), b"[" * 200_000, b'{"a":' * 100_000,
     b'{"format": "draftscope-trace"}\n', b'{"format": "draftscope-trace", "version": 1}\n'],
)  # fmt: skip
def test_other_files_are_user_errors(data):
    with pytest.raises(UserError):
        parse(data)


def test_files_that_cannot_be_opened_are_user_errors(tmp_path):
    for path in (tmp_path / "nowhere.jsonl", tmp_path):
        with pytest.raises(UserError, match="cannot be read"):
            read_trace(path)
    with pytest.raises(UserError, match="cannot be written"):
        TraceWriter(tmp_path, small_trace().header)


@pytest.mark.parametrize("version", [0, -1, 2, 10**30, "1", None, True, 1.0, [1]])
def test_unknown_versions_are_user_errors(tmp_path, version):
    lines = edited(tmp_path, 0, version=version)
    with pytest.raises(UserError, match="version"):
        parse(lines)


def edited(tmp_path, number, **changes):
    """The small trace with some fields of one line replaced."""
    lines = [json.loads(line) for line in small_bytes(tmp_path).splitlines()]
    lines[number] |= changes
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def test_fields_nobody_knows_are_ignored(tmp_path):
    data = edited(tmp_path, 0, later={"x": [1]}, kind="header")
    assert_same(parse(data).header, small_trace().header)
    data = edited(
        tmp_path, 1, later=[1, 2], nodes=json.loads(edited_nodes(tmp_path, brand_new=[3]))
    )
    assert_same(parse(data).rounds, small_trace().rounds)
    extra = small_bytes(tmp_path).replace(
        b'{"kind":"footer"', b'{"kind":"later","x":1}\n{"kind":"footer"'
    )
    assert_same(parse(extra).rounds, small_trace().rounds)


def edited_nodes(tmp_path, **changes):
    line = json.loads(small_bytes(tmp_path).splitlines()[1])
    return json.dumps(line["nodes"] | changes)


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "1e400", "-1e999"])
def test_numbers_that_are_none_are_refused(tmp_path, literal):
    text = small_bytes(tmp_path).decode()
    line = text.splitlines()[1]
    value = json.loads(line)["nodes"]["score"][0]
    broken = line.replace(f'"score":[{json.dumps(value)}', f'"score":[{literal}')
    assert broken != line
    with pytest.raises(UserError):
        parse(text.replace(line, broken).encode())


@pytest.mark.parametrize(
    "parents",
    [[-1, 2, 1, 0], [-1, 1, 0, 2], [-1, -1, 0, 0], [0, 0, 0, 2], [-1, 3, 0, 2], [-1, 0, 0, 3], [],
     [-1, 0, 0], [-1, 0, 0, 2, 3], [-1, 0, 0, 10**20], [-1, 0, 0, True],
     [-1, 0, 0, 2.0], None, "-1002"],
)  # fmt: skip
def test_parents_that_make_no_tree_are_refused(tmp_path, parents):
    nodes = json.loads(edited_nodes(tmp_path, parents=parents))
    with pytest.raises(UserError, match="line 2"):
        parse(edited(tmp_path, 1, nodes=nodes))


@pytest.mark.parametrize(
    "path", [[], [1], [0, 3], [0, 0], [0, 2, 2], [0, 1, 3], [0, 9], [0, -1], "0"]
)
def test_accepted_paths_that_are_none_are_refused(tmp_path, path):
    with pytest.raises(UserError, match="line 2"):
        parse(edited(tmp_path, 1, path=path))


@pytest.mark.parametrize("depth", [[0, 1, 1, 1], [1, 2, 2, 3], [0, 1, 1], [0, 1, 1, 10**12]])
def test_depths_that_do_not_follow_the_parents_are_refused(tmp_path, depth):
    nodes = json.loads(edited_nodes(tmp_path, depth=depth))
    with pytest.raises(UserError, match="line 2"):
        parse(edited(tmp_path, 1, nodes=nodes))


def test_absurdly_deep_or_large_values_are_refused(tmp_path):
    for value in (json.loads("[" * 400 + "]" * 400), 10**4000, [[0] * 5] * 5, "x" * 10**6):
        for field in (
            "nodes",
            "path",
            "texts",
            "times",
            "committed",
            "candidates",
            "probe",
            "index",
        ):
            assert not opens_or_says_why(edited(tmp_path, 1, **{field: value}))


@pytest.mark.parametrize(
    "offers",
    [
        {"after": [0, -1, 2, -1]}, {"after": [0, -1, 1]}, {"after": [0, -1, 1, -1, 0]},
        {"after": [0, -2, 1, -1]}, {"after": [0, -1, 1.0, -1]}, {"after": None},
        {"token": [[1, 2, 3]]}, {"token": [[1, 2, 3], [1, 2]]}, {"token": [[1, 2, -3]] * 2},
        {"token": []}, {"token": 3}, {"token": [[1, 2], [3, 4]]}, {"token": [[1.5] * 3] * 2},
        {"log_q": [[0.0] * 3]}, {"log_q": [[0.0] * 2] * 2}, {"log_q": None},
        {"log_q": [["x"] * 3] * 2},
    ],
    ids=str,
)  # fmt: skip
def test_offers_that_do_not_fit_the_nodes_are_refused(tmp_path, offers):
    whole = json.loads(small_bytes(tmp_path).splitlines()[1])["offers"]
    assert opens_or_says_why(edited(tmp_path, 1, offers=whole))
    with pytest.raises(UserError, match="line 2") as error:
        parse(edited(tmp_path, 1, offers=whole | offers))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("offers", [3, [1], "x", {"token": [[1]]}, {"after": [0, 0, 0, 0]}])
def test_offers_that_are_none_are_refused(tmp_path, offers):
    with pytest.raises(UserError, match="line 2"):
        parse(edited(tmp_path, 1, offers=offers))


@pytest.mark.parametrize(
    "notes",
    [3, [1.0] * 4, "x", {"x": 3}, {"x": None}, {"x": [1.0] * 3}, {"x": [1.0] * 5},
     {"x": ["y"] * 4}, {"x": [[1.0]] * 4}, {"x": [True] * 4}, {"x": {}}],
    ids=str,
)  # fmt: skip
def test_notes_that_do_not_fit_the_nodes_are_refused(tmp_path, notes):
    with pytest.raises(UserError, match="line 2") as error:
        parse(edited(tmp_path, 1, notes=notes))
    assert "\n" not in str(error.value)


def test_notes_of_any_name_are_kept(tmp_path):
    notes = {text: [1.0, None, 2.5, 0.0] for text in HOSTILE}
    draft = parse(edited(tmp_path, 1, notes=notes)).rounds[0].draft
    assert list(draft.notes) == HOSTILE
    np.testing.assert_array_equal(draft.notes[""], np.array([1, np.nan, 2.5, 0], np.float32))


def test_rounds_without_notes_and_offers_have_none(tmp_path):
    for empty in ({"notes": {}, "offers": None}, {"notes": None, "offers": {}}):
        draft = parse(edited(tmp_path, 1, **empty)).rounds[0].draft
        assert draft.notes == {} and draft.offers is None


EVIL = [None, True, -1, 1, 2**31, 2**63, 10**400, 0.5, -0.0, 1e308, "", "x", [], [[]], [None],
        [-1], [2**70], ["0"], {}, {"0": []}, {"-1": "x"}, {"9" * 12: "x"}, {"²": "x"},
        [[1], [1, 2]]]  # fmt: skip


def places(value, path=()):
    """Every place inside a JSON value."""
    yield path
    inside = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, child in inside:
        if not (isinstance(value, list) and len(value) > 4 and key > 1):
            yield from places(child, (*path, key))


def replaced(value, path, new):
    if not path:
        return new
    changed = dict(value) if isinstance(value, dict) else list(value)
    changed[path[0]] = replaced(changed[path[0]], path[1:], new)
    return changed


@pytest.mark.parametrize("number", [0, 1, 3])
def test_any_field_may_hold_anything(tmp_path, number):
    """Every place of the header, a round and the footer times every evil value."""
    lines = small_bytes(tmp_path).splitlines()
    number = number if number < 3 else len(lines) - 1
    value, opened, tried = json.loads(lines[number]), 0, 0
    for path in places(value):
        for evil in EVIL:
            changed = json.dumps(replaced(value, path, evil)).encode()
            data = b"\n".join([*lines[:number], changed, *lines[number + 1 :]]) + b"\n"
            tried += 1
            opened += opens_or_says_why(data)
    assert 0 < opened < tried


@pytest.mark.parametrize("number", [0, 1])
def test_any_field_may_be_missing(tmp_path, number):
    lines = small_bytes(tmp_path).splitlines()
    value = json.loads(lines[number])
    for path in places(value):
        if not path or isinstance(path[-1], int):
            continue
        changed = json.loads(json.dumps(value))
        parent = changed
        for key in path[:-1]:
            parent = parent[key]
        del parent[path[-1]]
        data = b"\n".join([*lines[:number], json.dumps(changed).encode(), *lines[number + 1 :]])
        opens_or_says_why(data + b"\n")


def mutated(data, rng):
    """A few random edits: bytes flipped, removed, repeated, exchanged, or digits changed."""
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        at, kind = rng.randrange(len(data)), rng.randrange(5)
        if kind == 0:
            data[at] = rng.randrange(256)
        elif kind == 1:
            del data[at : at + rng.randrange(1, 30)]
        elif kind == 2:
            data[at:at] = data[at : at + rng.randrange(1, 30)]
        elif kind == 3:
            data[at:at] = rng.choice(
                [b"9" * 25, b"-", b"[", b"]", b"null", b"1e9", b'"', b"\n", b"{"]
            )
        else:
            digits = [i for i in range(at, min(at + 200, len(data))) if 48 <= data[i] <= 57]
            if digits:
                data[rng.choice(digits)] = rng.randrange(48, 58)
        if not data:
            return b""
    return bytes(data)


@pytest.mark.parametrize("seed", range(4))
def test_random_mutations_open_or_say_why(tmp_path, seed):
    rng, data = random.Random(seed), small_bytes(tmp_path, trace=small_trace(2))
    results = [opens_or_says_why(mutated(data, rng)) for _ in range(800)]
    assert 20 < sum(results) < 780


@pytest.mark.parametrize("seed", range(2))
def test_random_mutations_of_a_gzip_open_or_say_why(tmp_path, seed):
    rng, data = random.Random(seed), small_bytes(tmp_path, "t.jsonl.gz", small_trace(2))
    for _ in range(400):
        opens_or_says_why(mutated(data, rng), "t.jsonl.gz")


def test_a_gzip_of_something_else_is_a_user_error():
    for inner in (b"hello\n", b"", b"{}\n", bytes(5000)):
        with pytest.raises(UserError):
            parse(gzip.compress(inner), "t.jsonl.gz")


def test_the_name_of_a_file_does_not_decide_how_it_is_read(tmp_path):
    plain, zipped = small_bytes(tmp_path), small_bytes(tmp_path, "t.jsonl.gz")
    assert_same(parse(zipped, "t.jsonl").rounds, parse(plain, "t.jsonl.gz").rounds)


# ── golden ───────────────────────────────────────────────────────────────────────────────────────


def test_the_golden_version_1_trace_still_opens_and_says_the_same():
    trace = read_trace(GOLDEN)
    assert trace.complete and trace.header.method == "ddtree" and trace.header.seed == 11
    assert trace.header.prompt_ids == (5, 17, 3, 44, 9, 28, 3, 11)
    assert trace.header.libraries == {"torch": "2.13.0"}
    assert [r.verdict.path for r in trace.rounds] == GOLDEN_PATHS
    assert [r.committed for r in trace.rounds] == GOLDEN_COMMITTED
    assert [r.stop_reason for r in trace.rounds] == GOLDEN_REASONS
    first = trace.rounds[0]
    assert first.draft.tokens.tolist() == [42, 2, 17, 39, 29, 22, 42]
    assert first.probe.coverage.shape == (len(first.probe.tvd), 16)
    assert first.text(int(first.draft.tokens[0])) == " t42"
    assert math.isnan(first.target_probs.log_p[0])
    assert all(not r.draft.notes and r.draft.offers is None for r in trace.rounds)
    use(trace)


def test_writing_the_golden_trace_again_gives_the_same_bytes(tmp_path):
    assert VERSION == 1 and FORMAT == "draftscope-trace"
    path = tmp_path / "again.jsonl"
    write_trace(path, read_trace(GOLDEN))
    assert path.read_bytes() == GOLDEN.read_bytes()


def test_a_trace_written_anew_keeps_what_its_footer_said(tmp_path):
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl.gz"
    writer = TraceWriter(first, small_trace().header)
    for record in small_trace().rounds:
        writer.write(record)
    writer.finish(wall_seconds=2.5, text="so", self="a field may have any name", tau=99.0)
    trace = read_trace(first)
    assert trace.footer["wall_seconds"] == 2.5 and trace.footer["tau"] != 99.0
    write_trace(second, trace)
    assert read_trace(second).footer == trace.footer


@pytest.mark.parametrize("read", [0, -1, True, 1.0, "2", [1]])
def test_a_number_of_candidates_looked_at_that_is_none_is_refused(tmp_path, read):
    whole = json.loads(small_bytes(tmp_path).splitlines()[1])["candidates"]
    assert opens_or_says_why(edited(tmp_path, 1, candidates=whole))
    with pytest.raises(UserError, match="line 2"):
        parse(edited(tmp_path, 1, candidates=whole | {"read": read}))
