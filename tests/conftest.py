"""Shared fixtures. Every test runs on one thread: beside other work two are many times slower."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test asks the hub for anything
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # and so on the processes that tests start

import pytest  # noqa: E402
import torch  # noqa: E402
from hypothesis import settings  # noqa: E402

settings.register_profile("draftscope", derandomize=True, deadline=None, database=None)
settings.load_profile("draftscope")

MARKERS = {
    "embedded": "runs the embedded model (minutes of CPU)",
    "browser": "drives a real browser",
}


def pytest_configure(config: pytest.Config) -> None:
    known = " ".join(config.getini("markers"))
    for name, about in MARKERS.items():
        if f"{name}:" not in known:
            config.addinivalue_line("markers", f"{name}: {about}")


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
