"""Damaged and hostile traces, and everything that is made of a trace that opens.

python -m tests.helpers.mutants [COUNT] [SEED]     runs the whole battery and says what it found
"""

from __future__ import annotations

import gzip
import io
import json
import random
import re
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

from core.errors import UserError
from core.memory import peak, restart_peak
from core.rounds.draft import Draft
from core.rounds.round import Round
from core.traces.reader import TraceReader
from core.traces.schema import Header, Trace, summary
from core.traces.writer import round_to_json, write_trace
from tests import GOLDEN
from tests.helpers.fakes import make_header, rounds_of

# What takes the place of a value: numbers no array holds, other kinds, other depths, other texts.
NASTY: tuple[str, ...] = (
    "null", "true", "-1", "0", "1", "0.5", "-0.0", "2147483647", "2147483648", "9" * 400,
    "-" + "9" * 30, "1" + "0" * 5000, "1e308", "1e400", "-1e300", "1e-320", "NaN", "Infinity",
    '""', '"x"', '"\\ud800"', '"\\udc00\\ud83e"', '"\\u0000"',
    '"</script><script>window.__pwned=1</script>"', '"' + "A" * 5000 + '"',
    "[]", "[[]]", "[[],[1]]", "{}", '{"token":[],"log_q":[]}', '{"__proto__":1}',
    '{"\\ud800":"\\ud800"}', '{"0":[]}', '{"-1":"x"}', '{"\xb2":"x"}',
    "[" * 3000 + "]" * 3000, "[" * 200 + "]" * 200, "[" * 61 + "]" * 61,
    '{"a":' * 100 + "1" + "}" * 100, "[null]", "[-1]", "[0]", "[0,0]", "[1e300]", "[true]",
    '["a"]', "[65536]", "[4294967295]",
)  # fmt: skip
# What reaches no terminal and no page as it is: controls, and marks that turn what follows around.
UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
MEMORY = 1 << 30  # bytes that small files may take
LIMIT = 5.0  # seconds that one trace may take, parsed and used for everything

Place = tuple[Any, ...]  # keys and indices from the outside in


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """An error once this process has computed for longer."""

    def late(*_: object) -> None:
        raise AssertionError(f"it took more than {seconds} s")

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@contextmanager
def in_little_memory() -> Iterator[None]:
    """An error where the process has held ``MEMORY`` more than at the beginning."""
    restart_peak()  # where the system can: what was before hides what is taken
    before = peak() or 0
    yield
    assert (peak() or 0) - before < MEMORY


# ── sound traces to begin with ───────────────────────────────────────────────────────────────────


@cache
def sound() -> tuple[bytes, ...]:
    """Small traces of every kind, as files."""
    made = []
    for seed, method in enumerate(("ddtree", "treeflash", "dart", "ar", "ddtree")):
        rounds = [_small(r) for r, _ in zip(rounds_of(3, seed == 4, seed, method), "ab")]  # noqa: B905
        made.append(Trace(make_header("why?", method), tuple(rounds), {}))
    first = made[0].rounds[0]
    bare = replace(
        first, draft=replace(first.draft, proposal=None), target_probs=None, probe=None, texts={}
    )
    made.append(Trace(Header("ddtree", {}, {}, "", ()), (bare,), None))
    made.append(Trace(made[0].header, denoising(), {}))
    return (*(as_file(trace) for trace in made), by_paths())


def _small(record: Round) -> Round:
    """With short lists: a mutation should hit something that matters."""
    said = {int(t) for t in (*record.draft.tokens, *record.committed, record.verdict.bonus)}
    return record.with_texts({t: text for t, text in record.texts.items() if t in said})


def denoising() -> tuple[Round, ...]:
    """A toy's denoised block, by draft graphs with several parents."""
    from core.diffusion.request import DenoiseSettings
    from tests.helpers.diffusion_toys import ToyTarget, grown, run

    return run(ToyTarget(3), DenoiseSettings(length=8, block=4), grown(random.Random(1), 5))[:3]


def by_paths() -> bytes:
    """Rounds of a drafter that conditions on the path, with side rows and drawn tokens."""
    return (GOLDEN / "trace-v1-paths.jsonl").read_bytes()


def as_file(trace: Trace, name: str = "t.jsonl") -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        write_trace(path, trace)
        return path.read_bytes()


def huge(parents: Sequence[int], path: Sequence[int] = (0,)) -> bytes:
    """A trace of one round with this draft."""
    count, depths = len(parents), [0] * len(parents)
    for row, parent in enumerate(parents[1:], 1):
        depths[row] = depths[parent] + 1
    nodes: dict[str, list[Any]] = {"parents": [*parents], "depth": depths}
    nodes |= {name: [1] * count for name in ("token", "rank", "choice")}
    nodes |= {name: [-0.5] * count for name in ("log_q", "score")}
    line = {"kind": "round", "index": 0, "position": 1, "nodes": nodes, "path": [*path]}
    line |= {"committed": [1], "candidates": {"token": [[1]] * 8, "log_q": [[-0.5]] * 8}}
    return sound()[0].split(b"\n")[0] + b"\n" + json.dumps(line).encode() + b"\n"


# ── mutations ────────────────────────────────────────────────────────────────────────────────────


def mutants(count: int, seed: int = 0) -> Iterator[bytes]:
    rng, files = random.Random(seed), sound()
    kinds: tuple[Callable[[bytes, random.Random], bytes], ...] = (
        of_bytes, of_value, of_value, of_value, of_type, of_key, of_lines, of_gzip, of_list,
    )  # fmt: skip
    for _ in range(count):
        data = rng.choice(files)
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            data = rng.choice(kinds)(data, rng)
        yield data


def of_other_makes(each: int, seed: int = 0) -> Iterator[bytes]:
    """Traces that open with settings of ours, each of which then is any other thing."""
    settings = {"budget": 4, "max_new_tokens": 8, "options": {"candidates": 3}}
    settings |= {"sampling": {"temperature": 0.5, "top_k": 0, "top_p": 1.0, "seed": 0}}
    settings |= {"graph": {}, "pace": {}, "block": 4, "length": 8, "ahead": 0.5}
    for data in sound():
        head, rest = data.split(b"\n", 1)
        stated = json.dumps({**json.loads(head), "settings": settings}).encode()
        yield from at_every_place(stated + b"\n" + rest, each, seed, most=1)


def at_every_place(
    data: bytes, each: int, seed: int = 0, most: int | None = None
) -> Iterator[bytes]:
    """Every value of every line, or of the first ones, is missing once, and becomes ``each`` nasty
    values."""
    rng, lines = random.Random(seed), data.splitlines(keepends=True)
    for at, line in enumerate(lines[:most]):
        value = json.loads(line)
        for place in places(value):
            hole = json.dumps(placed(value, place, HOLE))
            changed = [hole.replace(json.dumps(HOLE), v) for v in rng.sample(NASTY, each)]
            if place and isinstance(place[-1], str):
                changed.append(json.dumps(placed(value, place)))
            for text in changed:
                yield b"".join([*lines[:at], text.encode() + b"\n", *lines[at + 1 :]])


def places(value: Any) -> Iterator[Place]:
    """The places inside a JSON value; of longer lists the first two entries."""
    yield ()
    if isinstance(value, dict):
        inside = list(value.items())
    else:
        inside = list(enumerate(value[:2])) if isinstance(value, list) else []
    for key, child in inside:
        yield from ((key, *rest) for rest in places(child))


HOLE, TWICE, MISSING = "\x00hole\x00", "\x00twice\x00", "\x00missing\x00"


def placed(value: Any, place: Sequence[Any], new: Any = MISSING) -> Any:
    """A copy with another value at a place, or with none."""
    if not place:
        return new
    changed = dict(value) if isinstance(value, dict) else list(value)
    if len(place) == 1 and new == MISSING:
        del changed[place[0]]
    else:
        inner = changed[place[0]] if len(place) > 1 else None
        changed[place[0]] = placed(inner, place[1:], new)
    return changed


def of_bytes(data: bytes, rng: random.Random) -> bytes:
    """Bytes flipped, removed, repeated, inserted."""
    if not data:
        return data
    out, at = bytearray(data), rng.randrange(len(data))
    piece = out[at : at + rng.randrange(1, 40)]
    match rng.randrange(4):
        case 0:
            out[at] = rng.randrange(256)
        case 1:
            del out[at : at + len(piece)]
        case 2:
            out[at:at] = piece
        case _:
            out[at:at] = rng.choice(
                (b"9" * 25, b"-", b"[", b"]", b"\xff", b'"', b"\n", b"{", b"\x00", b"\xed\xa0\x80")
            )
    return bytes(out)


def of_gzip(data: bytes, rng: random.Random) -> bytes:
    """Zipped, and cut, damaged or followed by something else."""
    zipped = gzip.compress(data, 1, mtime=0)
    match rng.randrange(4):
        case 0:
            return zipped[: rng.randrange(1, len(zipped))]
        case 1:
            return of_bytes(zipped, rng)
        case 2:
            return zipped + rng.choice((b"tail", zipped, b"\x1f\x8b"))
        case _:
            return zipped


def of_lines(data: bytes, rng: random.Random) -> bytes:
    """Lines dropped, repeated, exchanged."""
    lines = data.split(b"\n")
    one, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    match rng.randrange(3):
        case 0:
            del lines[one]
        case 1:
            lines.insert(other, lines[one])
        case _:
            lines[one], lines[other] = lines[other], lines[one]
    return b"\n".join(lines)


def of_value(data: bytes, rng: random.Random) -> bytes:
    """One value of one line becomes something else, or another value of the file."""
    return _with_line(data, rng, _exchange)


def of_type(data: bytes, rng: random.Random) -> bytes:
    """One value keeps what it says, in another kind of value."""
    return _with_line(data, rng, _retype)


def of_key(data: bytes, rng: random.Random) -> bytes:
    """A key dropped, renamed, or there twice (the later one counts, as JSON readers have it)."""
    return _with_line(data, rng, _rekey)


def of_list(data: bytes, rng: random.Random) -> bytes:
    """A list shorter, longer or in another order."""
    return _with_line(data, rng, _relist)


def of_json(data: bytes, rng: random.Random) -> bytes:
    """One of these changes, to a JSON value or to one of several lines."""
    return _with_line(data, rng, rng.choice((_exchange, _exchange, _retype, _rekey, _relist)))


def _with_line(data: bytes, rng: random.Random, edit: Callable[[Any, random.Random], str]) -> bytes:
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    try:
        value = json.loads(lines[at])
    except (ValueError, RecursionError):
        return data
    if isinstance(value, (dict, list)) and value:
        lines[at] = edit(value, rng).encode("utf-8", "surrogatepass")
    return b"\n".join(lines)


def _inside(value: Any, most: int = 4000) -> list[tuple[Any, Any]]:
    """(container, key) of everything inside."""
    found, left = [], [value]
    while left and len(found) < most:
        inner = left.pop()
        keys = inner if isinstance(inner, dict) else range(len(inner))
        for key in list(keys):
            found.append((inner, key))
            if isinstance(inner[key], (dict, list)):
                left.append(inner[key])
    return found


def _chosen(value: Any, rng: random.Random) -> tuple[Any, Any]:
    """Containers and scalars alike: half of the time something near the top."""
    found = _inside(value)
    return rng.choice(found if rng.random() < 0.5 else found[:40])


def _exchange(value: Any, rng: random.Random) -> str:
    inner, key = _chosen(value, rng)
    if rng.random() < 0.15:
        other, name = rng.choice(_inside(value))
        inner[key] = json.loads(json.dumps(other[name]))
        return json.dumps(value)
    inner[key] = HOLE
    return json.dumps(value).replace(json.dumps(HOLE), rng.choice(NASTY))


def _retype(value: Any, rng: random.Random) -> str:
    inner, key = _chosen(value, rng)
    old = inner[key]
    forms: list[Any] = [[old], {"0": old}, str(old)[:99], [old] * 3, bool(old), [[old], old]]
    if isinstance(old, dict) and old:
        forms += [list(old.values()), list(old.items())]
    elif isinstance(old, list) and old:
        forms += [old[0], dict(enumerate(old[:99])), [[each] for each in old[:99]]]
    elif isinstance(old, int):
        forms += [float(min(old, 2**60)), -old, old + 2**31]
    inner[key] = rng.choice(forms)
    return json.dumps(value)


def _rekey(value: Any, rng: random.Random) -> str:
    inner, key = rng.choice([p for p in _inside(value) if isinstance(p[0], dict)] or [({0: 0}, 0)])
    old = inner[key]
    match rng.randrange(3):
        case 0:
            del inner[key]
        case 1:
            name = rng.choice(
                ("", "__proto__", "log p", "note: x", "-1", "007", "٣", "\ud800", key * 2)
            )
            inner[name] = inner.pop(key)
        case _:
            inner[TWICE] = old
            again = f"{json.dumps(key)}:{rng.choice(NASTY)},{json.dumps(key)}"
            return json.dumps(value).replace(json.dumps(TWICE), again)
    return json.dumps(value)


def _relist(value: Any, rng: random.Random) -> str:
    lists = [inner[key] for inner, key in _inside(value) if isinstance(inner[key], list)]
    if lists:
        chosen = rng.choice(lists)
        match rng.randrange(5):
            case 0:
                chosen[:] = chosen[:-1]
            case 1:
                chosen.append(rng.choice(chosen) if chosen else 0)
            case 2:
                chosen[:] = chosen * 2
            case 3:
                chosen.clear()
            case _:
                rng.shuffle(chosen)
    return json.dumps(value)


# ── what is made of a trace ──────────────────────────────────────────────────────────────────────


def opened(data: bytes) -> Trace | None:
    """The trace, or None where it was refused with one sentence. Anything else is a fault."""
    try:
        return TraceReader(io.BytesIO(data), "t.jsonl").trace()
    except UserError as error:
        sentence = str(error)
        assert sentence and "\n" not in sentence and len(sentence) < 300, sentence[:600]
        return None


def read_through(trace: Trace) -> None:
    """Read a trace as every view does first. All of it can be written again, to any terminal."""
    _writable([asdict(trace.header), trace.footer, summary(trace.rounds)])
    for record in trace.rounds:
        rows = range(len(record.draft))
        assert len(record.status) == len(rows) == sum(map(bool, map(record.why, rows)))
        assert isinstance(record.stop_reason, str) and isinstance(record.verdict.bonus, int)
        for row in rows[-50:]:
            after = record.candidates_after(row)
            assert after is None or after.ids.shape == after.log_q.shape
            assert record.draft.path(row)[0] == 0
            assert isinstance(record.text(int(record.draft.tokens[row])), str)
        if isinstance(record.draft, Draft):
            assert record.draft.side.isdisjoint(record.verdict.path)
        _writable(round_to_json(record))


def _writable(value: Any) -> None:
    json.dumps(value, allow_nan=False, ensure_ascii=False).encode()


def everything(trace: Trace) -> None:
    """Every view and export of it; nothing may raise but a UserError where there is no round, or no
    time of one."""
    shown(trace)
    exported(trace)


def shown(trace: Trace) -> None:
    """Make what the page, the terminal and a comparison show."""
    from app.view.comparison import cautions
    from app.view.drawing import tree_drawing
    from app.view.explanation import Explainer
    from app.view.node import node_view
    from app.view.rounds import GHOST, has_stop, header_view, round_view
    from app.view.shapes import Paper
    from app.view.svg import svg
    from app.view.tree import text_tree

    cautions(trace.header, make_header())
    explainer = Explainer.of(trace.header)
    strict = [header_view(trace.header), summary(trace.rounds)]
    for at, record in enumerate(trace.rounds):
        strict += [round_view(record, explainer, first=at == 0), round_to_json(record)]
        rows = [*range(len(record.draft)), *([GHOST] if has_stop(record) else [])]
        strict += [node_view(record, row, explainer) for row in rows[:12]]
        paper = Paper(at % 2 == 1, width=238.0)
        drawing = tree_drawing(record, explainer, legend=True, paper=paper)
        assert text_tree(record, explainer) and svg(drawing, paper)
    for value in strict:
        json.dumps(value, allow_nan=False)


def exported(trace: Trace) -> None:
    """Make every file that is exported."""
    from analysis.measures.rows import nodes_table, rounds_table
    from analysis.table_files import table_csv, table_parquet
    from app.export.graphs import dot, graphml
    from app.export.offline import offline_page
    from app.export.timeline import perfetto

    for table in (rounds_table(trace), nodes_table(trace.rounds)):
        assert table_csv(table) and table_parquet(table)
    for record in trace.rounds[:2]:
        assert dot(record) and graphml(record)
    try:
        json.loads(perfetto(trace))
    except UserError:
        assert all(record.times.recorded is None for record in trace.rounds)
    try:
        assert offline_page([trace])
        assert offline_page([trace, trace], plain=True)
    except UserError:
        assert not trace.rounds
    TraceReader(io.BytesIO(as_file(trace)), "t.jsonl").trace()


def measured(trace: Trace) -> None:
    """The tables every measure is computed from."""
    from analysis.measures.tables import Tables

    tables = Tables.of(trace)
    for name in ("runs", "rounds", "positions", "nodes"):
        getattr(tables, name)


# ── the battery ──────────────────────────────────────────────────────────────────────────────────


def main(count: int = 10_000, seed: int = 0) -> int:
    """Exit code 1 when a trace raised anything but a UserError, or took longer than LIMIT."""
    found: Counter[str] = Counter()
    refused, slowest, began = 0, 0.0, time.monotonic()
    for number, data in enumerate(mutants(count, seed), 1):
        start = time.process_time()  # of this process: a busy machine is nobody's fault
        try:
            trace = opened(data)
            refused += trace is None
            if trace is not None:
                everything(trace)
                if number % 5 == 0:
                    measured(trace)
        except Exception as error:
            found[_place_of(error)] += 1
            _keep(data, f"mutant {seed}/{number}: {_place_of(error)}: {str(error)[:200]}")
        took = time.process_time() - start
        slowest = max(slowest, took) if number > 20 else 0.0  # the first ones import everything
        if took > LIMIT and number > 20:
            found["slow"] += 1
            _keep(data, f"mutant {seed}/{number}: {took:.1f} s")
        if number % 500 == 0:
            _say(number, refused, found, slowest, time.monotonic() - began)
    _say(count, refused, found, slowest, time.monotonic() - began)
    return 1 if found else 0


def _place_of(error: Exception) -> str:
    """The error's class, and the line it came from."""
    at = error.__traceback__
    while at and at.tb_next:
        at = at.tb_next
    where = f"{Path(at.tb_frame.f_code.co_filename).name}:{at.tb_lineno}" if at else "?"
    return f"{type(error).__name__} at {where}"


def _keep(data: bytes, words: str) -> None:
    path = Path(gettempdir()) / f"mutant-{abs(hash(data)):x}.jsonl"
    path.write_bytes(data)
    print(f"{words} ({path})", flush=True)


def _say(count: int, refused: int, found: Counter[str], slowest: float, seconds: float) -> None:
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{count} mutated traces: {refused} refused with a sentence, {count - refused} opened and "
        f"used, {sum(found.values())} faults; slowest {slowest:.2f} CPU s, peak {memory:.0f} MB, "
        f"{seconds:.0f} s in all",
        flush=True,
    )
    for what, times in found.most_common():
        print(f"  {times} × {what}", flush=True)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:3])))
