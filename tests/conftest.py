"""Shared fixtures. Every test runs on one thread: beside other work two are many times slower."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test asks the hub for anything
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # and so on the processes that tests start

import pytest
import torch
from hypothesis import settings

from tests.helpers import needs

pytest_plugins = ["tests.helpers.timing"]

# Modules are compiled once, not again by each worker and by each program that a test starts.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

settings.register_profile("draftscope", derandomize=True, deadline=None, database=None)
settings.load_profile("draftscope")


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True, scope="session")
def _folder_of_pytest(tmp_path_factory):
    """Where toys are kept that several tests share (``toys_on_disk``)."""
    os.environ["PYTEST_FOLDER"] = str(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="session")
def dot() -> str:
    """Graphviz's program; a test that asks for it is skipped where it is missing."""
    return needs.dot()


@pytest.fixture(scope="session")
def librsvg() -> None:
    """The library that draws PDF; a test that asks for it is skipped where it is missing."""
    needs.librsvg()


@pytest.fixture
def ray_home():
    """Ray's folder, which goes with the test; a short path, for its sockets' sake."""
    pytest.importorskip("ray", reason="Ray is not installed (or this Python has no wheel of it)")
    folder = Path(tempfile.mkdtemp(prefix="ray-"))
    try:
        yield {"RAY_TMPDIR": str(folder), "RAY_AUTH_TOKEN": "0" * 64, "RAY_AUTH_MODE": "token"}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True, scope="session")
def quiet_progress():
    """However slow the machine is, reading and computing say nothing of their progress."""
    from app import terminal

    terminal.SOON = 3600.0


@pytest.fixture
def call(capsys):
    """Run a command in this process: (exit code, stdout, stderr)."""
    from app import cli

    def run(*words: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = cli.main([str(word) for word in words])
        return (code, *capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def toys_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A module's own copy of the toys on disk: a target, a drafter of every kind, n-grams."""
    from tests.helpers.toys_on_disk import save_toys

    return save_toys(tmp_path_factory.mktemp("toys"))[0].parent


@pytest.fixture(scope="module")
def toy(toys_folder: Path) -> list[str]:
    """The options that name the toys' target and its drafter."""
    target, drafter = (str(toys_folder / name) for name in ("target", "drafter"))
    return ["--model", target, "--drafter", drafter, "--device", "cpu"]


@pytest.fixture
def trace_file(tmp_path: Path) -> Path:
    """A trace of four rounds."""
    from core.traces.writer import write_trace
    from tests.helpers.small_traces import made

    write_trace(path := tmp_path / "run.jsonl.gz", made(4, 16))
    return path


@pytest.fixture
def models_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of models that were fetched or made."""
    monkeypatch.setenv("DRAFTSCOPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


def pytest_collection_finish() -> None:
    """Garbage is looked for among what tests make, not among all that was imported for them."""
    gc.freeze()


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One process more than there are cores: the browser's tests wait half of the time."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (0 if config.getoption("quick") else 1) + (cores or 1)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say every reason for a skip once, with the number of tests."""
    skipped = terminalreporter.stats.get("skipped", ())
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped)
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count} skipped: {reason}")
