"""Freed memory goes back to the system."""

from __future__ import annotations

import subprocess
import sys

import pytest

from core import memory

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


def test_without_glibc_nothing_happens(monkeypatch: pytest.MonkeyPatch):
    memory._trim.cache_clear()
    monkeypatch.setattr(sys, "platform", "darwin")
    memory.release()
    memory._trim.cache_clear()


def test_the_process_has_some_memory():
    found = memory.resident()
    assert found is None or 1 << 20 < found < 1 << 45
