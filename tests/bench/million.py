"""Packing and reporting very many rounds: time, CPU and memory, with n.

    .venv/bin/python -m tests.bench.million --rounds 20000 --folder /tmp/rounds

It writes a folder of traces of ``--each`` rounds, which are recorded rounds of the shipped
traces of 16 nodes in other places of other texts, packs it and makes a report of the pack, each in
a process of its own. ``--folder`` keeps what is there: a second call goes on with it. Where time is
short, ``--times 10`` reports a pack in which each part stands 10 times, as runs of other texts.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from analysis.measures.packed import RUNS, PackedPart, parts_of
from analysis.measures.parts import Name
from tests import ROOT

ASSETS = ROOT / "assets" / "traces"
SHIPPED = ("chat-ddtree-16", "code-ddtree-16", "story-ddtree-16")
VARIANTS = 50  # of each recorded round


class Recorded:
    """A recorded run whose rounds are written again at other places, with other probabilities.

    rounds  of each some variants: the line around the first token, after index and position, and
            what it committed. The last round is left out, which the text's end may have cut
    """

    def __init__(self, name: str):
        with gzip.open(ASSETS / f"{name}.jsonl.gz") as file:
            head, *lines = map(json.loads, file.read().splitlines())
        self.header: dict[str, Any] = head
        rounds = [line for line in lines if line["kind"] == "round"][:-1]
        self.rounds = [[_parts(line, seed) for seed in range(VARIANTS)] for line in rounds]

    def lines(self, number: int, count: int) -> Iterator[bytes]:
        ids = [*self.header["prompt_ids"], number]
        header = self.header | {"prompt_ids": ids, "prompt_text": f"text {number}"}
        yield json.dumps(header, separators=(",", ":")).encode()
        position, root = len(ids), 1
        for index in range(count):
            variants = self.rounds[(index + number) % len(self.rounds)]
            before, after, committed = variants[(index * 31 + number) % VARIANTS]
            place = f'{{"kind":"round","index":{index},"position":{position},'.encode()
            yield place + before + f'"token":[{root},'.encode() + after
            position, root = position + len(committed), committed[-1]
        yield b'{"kind":"footer","wall_seconds":10.0}'


def _parts(line: dict[str, Any], seed: int) -> tuple[bytes, bytes, list[int]]:
    """A line in two parts, with q, p and TVD a little smaller or larger by the seed."""
    by, nodes, probe = random.Random(seed).uniform, line["nodes"], line["probe"]
    q, p, tvd = by(0.9, 1.1), by(0.9, 1.1), by(0.9, 1.0)
    changed = {
        name: _times(nodes[name], f) for name, f in (("log_q", q), ("score", q), ("log_p", p))
    }
    lists = line["candidates"] | {"log_q": [_times(x, q) for x in line["candidates"]["log_q"]]}
    rest = {
        name: value for name, value in line.items() if name not in ("kind", "index", "position")
    }
    rest |= {"nodes": nodes | changed, "candidates": lists}
    rest |= {"probe": probe | {"tvd": _times(probe["tvd"], tvd)}}
    text = json.dumps(rest, separators=(",", ":")).encode()
    before, after = text[1:].split(f'"token":[{nodes["token"][0]},'.encode(), 1)
    return before, after, line["committed"]


def _times(values: list[float | None], factor: float) -> list[float | None]:
    return [None if x is None else float(str(np.float32(x * factor))) for x in values]


def write(folder: Path, rounds: int, each: int) -> int:
    """Write traces of so many rounds, those that lack; returns the size of all, in bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    runs, size = [Recorded(name) for name in SHIPPED], 0
    for number in range(-(-rounds // each)):
        file = folder / f"{number:06}.jsonl"
        if not file.exists():
            count = min(each, rounds - number * each)
            lines = runs[number % len(runs)].lines(number, count)
            file.write_bytes(b"\n".join(lines) + b"\n")
        size += file.stat().st_size
    return size


def multiplied(pack: Path, into: Path, times: int) -> Path:
    """A pack with each part of another several times: its runs named apart, of other texts."""
    parts = parts_of(pack)
    into.mkdir(exist_ok=True)
    for number in range(times * len(parts)):
        part, own = parts[number % len(parts)], PackedPart(into, number + 1)
        for table in get_args(Name):
            own.path(table).unlink(missing_ok=True)
            own.path(table).hardlink_to(part.path(table))
        runs = parquet.read_table(part.path(RUNS))
        files = [f"{number // len(parts)}-{file}" for file in runs["file"].to_pylist()]
        headers = [
            json.dumps(json.loads(text) | {"prompt_text": file})
            for text, file in zip(runs["header"].to_pylist(), files, strict=True)
        ]
        for name, values in (("file", files), ("header", headers)):
            at = runs.schema.get_field_index(name)
            runs = runs.set_column(at, runs.schema.field(at), pa.array(values))
        parquet.write_table(runs, own.path(RUNS))
    return into


def measured(*words: str, out: Path) -> tuple[float, float, float]:
    """Seconds, CPU seconds and the most memory in GB of a command, whose output goes to a file."""
    start = time.perf_counter()
    with out.open("wb") as file:
        actions = [(os.POSIX_SPAWN_DUP2, file.fileno(), 1)]
        command = (sys.executable, "-m", "app", *words)
        child = os.posix_spawn(sys.executable, command, os.environ, file_actions=actions)
        _, status, used = os.wait4(child, 0)
    if status:
        sys.exit(f"{' '.join(words)} failed: {status}")
    seconds = time.perf_counter() - start
    return seconds, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / 1e9


def said(name: str, rounds: int, used: tuple[float, float, float]) -> None:
    seconds, cpu, most = used
    print(f"{name}: {seconds:.0f} s, {cpu:.1f} s of CPU ({1e6 * cpu / rounds:.0f} us a round), "
          f"{most:.2f} GB at most; load {os.getloadavg()[0]:.0f}", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20_000, help="that are written and packed")
    parser.add_argument("--each", type=int, default=500, help="rounds of a trace")
    parser.add_argument("--times", type=int, default=1, help="how often a report counts each part")
    parser.add_argument("--folder", type=Path, required=True)
    args = parser.parse_args()
    traces, packed, out = (args.folder / name for name in ("traces", "pack", "output"))
    size = write(traces, args.rounds, args.each)
    count = len(list(traces.iterdir()))
    print(
        f"n = {args.rounds:,} rounds of 16 nodes in {count:,} traces, {size / 1e9:.2f} GB of JSON"
    )
    used = measured("trace", "pack", str(traces), "--out", str(packed), out=out)
    said("trace pack", args.rounds, used)
    print(f"{args.rounds / used[1]:,.0f} rounds and {size / used[1] / 1e6:.0f} MB a CPU second")
    rounds = args.rounds * args.times
    if args.times > 1:
        packed = multiplied(packed, args.folder / f"pack-{args.times}", args.times)
    total = sum(file.stat().st_size for file in packed.iterdir())
    print(
        f"n = {rounds:,} rounds in a pack of {total / 1e6:,.0f} MB, {len(parts_of(packed))} parts"
    )
    said("report", rounds, measured("report", str(packed), out=out))


if __name__ == "__main__":
    main()
