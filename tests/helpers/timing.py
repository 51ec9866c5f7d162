"""The cost of each test: the slowest are printed, and ``--quick`` and ``--short`` leave some out.

``slow.txt`` lists the functions that are left out. ``--quick`` goes by processor time, which hardly
depends on what else a machine does; it counts a test, its fixtures, and the processes that it has
waited for: a session's browser, with all that it did, is among those of the last test. ``--short``
goes by the clock, since browsers and servers are seldom among those. It keeps every test that
catches a mistake which `tests.defects` plants.

``--thorough`` adds the cases that are marked ``thorough`` and takes the larger ``amount``: longer
texts, more damaged files.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import pytest

from tests import TESTS

SLOW_LIST = TESTS / "slow.txt"
CAUGHT = TESTS / "defects" / "caught.tsv"
SLOW = 0.03  # seconds of processor time of a test function, the mean over its parameters
LONG = 1.5  # seconds by the clock, likewise
SHOWN = 20
BEGAN = pytest.StashKey[float]()
ONLY_THOROUGH = pytest.mark.thorough
T = TypeVar("T")
_thorough = False  # the option, known before a test module is imported
HEAD = """# Test functions that take more than 0.03 s of processor time, fixtures included.
# `make quick` leaves them out; `make test` those marked long: more than 1.5 s by the clock.
# Written by: make test PYTEST=--write-slow
# and then by: make quick PYTEST=--write-slow
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("draftscope")
    group.addoption("--quick", action="store_true", help="leave out slow tests and the browser's")
    group.addoption("--short", action="store_true", help="leave out long tests")
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


def slow_functions() -> dict[str, bool]:
    """Every function of the list, and whether it is long."""
    lines = SLOW_LIST.read_text("utf-8").splitlines()
    words = [line.split() for line in lines if line and not line.startswith("#")]
    return {name: rest == ["long"] for name, *rest in words}


def catching() -> set[str]:
    """The functions that were the first to catch one of the planted mistakes."""
    lines = CAUGHT.read_text("utf-8").splitlines()
    return {function_of(line.rpartition("\t")[2]) for line in lines}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    quick, short = map(config.getoption, ("quick", "short"))
    gone = {name for name, long in slow_functions().items() if quick or (short and long)}
    out = [
        item
        for item in items
        if (not _thorough and item.get_closest_marker("thorough"))
        or function_of(item.nodeid) in gone
        or (quick and item.get_closest_marker("browser"))
    ]
    config.hook.pytest_deselected(items=out)
    left = set(items) - set(out)
    items[:] = [item for item in items if item in left]


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
    spent = defaultdict[str, float](float)
    by_clock = defaultdict[str, float](float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if properties := getattr(report, "user_properties", ()):
                spent[report.nodeid] += dict(properties).get("cpu", 0.0)
                by_clock[report.nodeid] += report.duration
    quick, write = map(terminalreporter.config.getoption, ("quick", "write_slow"))
    if write:
        write_slow(spent, {} if quick else by_clock, slow_functions() if quick else {})
    if quick:
        return
    slow = [(seconds, nodeid) for nodeid, seconds in spent.items() if seconds > SLOW]
    terminalreporter.section("slowest, in seconds of processor time")
    for seconds, nodeid in sorted(slow, reverse=True)[:SHOWN]:
        terminalreporter.write_line(f"{seconds:7.1f}  {nodeid}")


def write_slow(
    spent: Mapping[str, float], by_clock: Mapping[str, float], known: Mapping[str, bool]
) -> None:
    """Replace the list by the functions of a run that are slow or long, and those that are
    ``known``: a quick run finds functions that pay for what slow ones had made."""
    long = _above(LONG, by_clock) - catching()
    found = dict.fromkeys(_above(SLOW, spent) | long, False) | dict.fromkeys(long, True) | {**known}
    lines = (f"{name}{' long' * found[name]}\n" for name in sorted(found))
    SLOW_LIST.write_text(HEAD + "".join(lines), "utf-8")


def _above(limit: float, seconds: Mapping[str, float]) -> set[str]:
    """The functions whose mean over their parameters is above a limit."""
    of_function = defaultdict[str, list[float]](list)
    for nodeid, value in seconds.items():
        of_function[function_of(nodeid)].append(value)
    return {name for name, values in of_function.items() if sum(values) / len(values) > limit}
