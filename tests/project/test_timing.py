"""The list of slow tests names tests that are there, and keeps to those."""

from __future__ import annotations

import ast

from tests import ROOT
from tests.helpers import timing

CATCHING = timing.catching()


def test_every_slow_test_is_still_there():
    functions: dict[str, set[str]] = {}
    for name in timing.slow_functions():
        path, _, function = name.partition("::")
        if path not in functions:
            tree = ast.parse((ROOT / path).read_text("utf-8"))
            functions[path] = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
        assert function.rpartition("::")[2] in functions[path], name


def test_a_function_is_slow_by_the_mean_over_its_parameters(tmp_path, monkeypatch):
    monkeypatch.setattr(timing, "SLOW_LIST", tmp_path / "slow.txt")
    spent = {"a.py::test_x[1]": 0.09, "a.py::test_x[2]": 0.0, "a.py::test_y[1]": 0.04}
    timing.write_slow(spent | {"a.py::test_y[2]": 0.01}, {"a.py::test_x[1]": 4}, {})
    assert timing.slow_functions() == {"a.py::test_x": True}


def test_a_quick_run_adds_to_the_list_and_keeps_what_is_long(tmp_path, monkeypatch):
    monkeypatch.setattr(timing, "SLOW_LIST", tmp_path / "slow.txt")
    timing.write_slow({"a.py::test_y": 1.0}, {}, {"a.py::test_x": True, "a.py::test_y": False})
    assert timing.slow_functions() == {"a.py::test_x": True, "a.py::test_y": False}


def test_no_test_that_catches_a_planted_mistake_is_long(tmp_path, monkeypatch):
    assert not [name for name, long in timing.slow_functions().items() if long & (name in CATCHING)]
    monkeypatch.setattr(timing, "SLOW_LIST", tmp_path / "slow.txt")
    name = min(CATCHING)
    timing.write_slow({}, {name: 9.0, "a.py::test_x": 9.0}, {})
    assert timing.slow_functions() == {"a.py::test_x": True}
