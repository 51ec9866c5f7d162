"""The processor time of each test: the slowest are printed, and ``--quick`` leaves slow ones out.

Processor time hardly depends on what else a machine does, so the list in ``slow.txt`` stays true on
other machines. It counts a test, its fixtures, and the processes that it has waited for.

``--thorough`` adds the cases that are marked ``thorough`` and takes the larger ``amount``: longer
texts, more damaged files. The mistakes that `tests.defects` plants are caught without it.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

SLOW_LIST = Path(__file__).with_name("slow.txt")
SLOW = 0.03  # seconds of a test function, the mean over its parameters
SHOWN = 20
BEGAN = pytest.StashKey[float]()
ONLY_THOROUGH = pytest.mark.thorough
T = TypeVar("T")
_thorough = False  # the option, known before a test module is imported
HEAD = """# Test functions that take more than 0.03 s of processor time, fixtures included.
# `make quick` leaves them out. Written by: make test PYTEST=--write-slow
# and then by: make quick PYTEST=--write-slow
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("draftscope")
    group.addoption("--quick", action="store_true", help="leave out slow tests and the browser's")
    group.addoption("--thorough", action="store_true", help="more cases, each with more of it")
    group.addoption("--write-slow", action="store_true", help="write what is slow to slow.txt")


def pytest_configure(config: pytest.Config) -> None:
    global _thorough
    _thorough = config.getoption("thorough")


def amount(usual: int, thorough: int) -> int:
    """How many of something a test tries."""
    return thorough if _thorough else usual


def usually(usual: Collection[T], cases: Iterable[T]) -> list[Any]:
    """All of the cases, those that are not ``usual`` for thorough runs only."""
    return [
        case
        if case in usual
        else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=ONLY_THOROUGH)
        for case in cases
    ]


def function_of(nodeid: str) -> str:
    """A test's id without its parameters."""
    return nodeid.partition("[")[0]


def slow_functions() -> set[str]:
    lines = SLOW_LIST.read_text("utf-8").splitlines()
    return {line for line in lines if line and not line.startswith("#")}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    quick = config.getoption("quick")
    slow = slow_functions() if quick else set()
    out = [
        item
        for item in items
        if (not _thorough and item.get_closest_marker("thorough"))
        or function_of(item.nodeid) in slow
        or (quick and item.get_closest_marker("browser"))
    ]
    config.hook.pytest_deselected(items=out)
    gone = set(out)
    items[:] = [item for item in items if item not in gone]


def _spent() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    now = _spent()
    began = item.stash.get(BEGAN, now)
    item.stash[BEGAN] = now
    report.user_properties = [*report.user_properties, ("cpu", now - began)]
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[BEGAN] = _spent()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the slowest tests; write the list where it was asked for."""
    by_test = defaultdict[str, float](float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name == "cpu":
                    by_test[report.nodeid] += value
    quick, write = map(terminalreporter.config.getoption, ("quick", "write_slow"))
    if write:
        write_slow(by_test, slow_functions() if quick else ())
    if quick:
        return
    slow = [(seconds, nodeid) for nodeid, seconds in by_test.items() if seconds > SLOW]
    terminalreporter.section("slowest, in seconds of processor time")
    for seconds, nodeid in sorted(slow, reverse=True)[:SHOWN]:
        terminalreporter.write_line(f"{seconds:7.1f}  {nodeid}")


def write_slow(by_test: dict[str, float], known: Collection[str] = ()) -> None:
    """Replace the list by the slow functions of a run, and those that are ``known``: a quick run
    finds functions that pay for what slow ones had made."""
    of_function = defaultdict[str, list[float]](list)
    for nodeid, seconds in by_test.items():
        of_function[function_of(nodeid)].append(seconds)
    slow = {name for name, spent in of_function.items() if sum(spent) / len(spent) > SLOW}
    lines = (f"{name}\n" for name in sorted(slow | {*known}))
    SLOW_LIST.write_text(HEAD + "".join(lines), "utf-8")
