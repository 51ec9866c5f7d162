"""Freed memory goes back to the system, and rounds that were checked are not kept."""

from __future__ import annotations

import subprocess
import sys
from weakref import WeakSet

import pytest

from core import memory
from core.traces import reader

HELD = """
import numpy as np
from core.memory import release, resident
blocks = [np.ones(1 << 17) for _ in range(300)]  # 1 MiB each, and some between them that stay
small = [bytes(3000) for _ in range(1000)]
keep = blocks[::50]
before = resident()
del blocks
release()
print((before - resident()) >> 20)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc and glibc")
def test_freed_blocks_are_handed_back():
    found = subprocess.run([sys.executable, "-c", HELD], capture_output=True, text=True, check=True)
    assert int(found.stdout) > 250


LOGITS = """
import threading, torch
from core.memory import resident, use_one_heap
USE
held = []
def work():
    before, small = resident(), []
    for _ in range(3):
        many = []
        for _ in range(8):
            many.append(torch.ones(90, 50_000))  # 17 MiB
            small.append(torch.ones(3_000))
        del many
    held.append((resident() - before) >> 20)
thread = threading.Thread(target=work)
thread.start(); thread.join()
print(held[0])
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc and glibc")
def test_a_thread_keeps_no_freed_logits():
    """By default the C library keeps them between small blocks that stay."""

    def held(first: str) -> int:
        code = [sys.executable, "-c", LOGITS.replace("USE", first)]
        return int(subprocess.run(code, capture_output=True, text=True, check=True).stdout)

    assert held("use_one_heap()") < 20 < held("")


def test_without_glibc_nothing_happens(monkeypatch: pytest.MonkeyPatch):
    memory._function.cache_clear()
    monkeypatch.setattr(sys, "platform", "darwin")
    memory.release()
    memory.use_one_heap()
    memory._function.cache_clear()


def test_the_process_has_some_memory():
    found = memory.resident()
    assert found is None or 1 << 20 < found < 1 << 45


PEAK = """
from core.memory import peak, resident, restart_peak
block = bytearray(200 << 20)
del block
before = peak(), restart_peak(), peak()
block = bytearray(100 << 20)
print(before[1], (before[0] - before[2]) >> 20, (peak() - before[2]) >> 20)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
def test_a_peak_is_forgotten_and_found_again():
    code = [sys.executable, "-c", PEAK]
    ran = subprocess.run(code, capture_output=True, text=True, check=True).stdout.split()
    if ran[0] == "False":
        pytest.skip("this system keeps a process's peak for good")
    assert int(ran[1]) > 150 and 90 <= int(ran[2]) < 150


def test_check_holds_two_rounds_at_a_time(call, monkeypatch, trace_file):
    alive, most, real = WeakSet(), [], reader.round_from_line

    def made(*args):
        alive.add(record := real(*args))
        most.append(len(alive))
        return record

    monkeypatch.setattr(reader, "round_from_line", made)
    code, out, _ = call("trace", "check", trace_file)
    assert code == 0 and "4 rounds" in out and max(most) == 2
