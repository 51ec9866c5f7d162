"""README and RESULTS show what is there."""

from __future__ import annotations

import csv
import json
import re

import pytest

from app.cli import COMMANDS
from core.methods.names import METHODS
from core.methods.registry import find_method
from tests import ROOT

README = (ROOT / "README.md").read_text("utf-8")
RESULTS = (ROOT / "RESULTS.md").read_text("utf-8")


def test_the_documents_name_every_command_and_method():
    documents = README + (ROOT / "docs" / "commands.md").read_text("utf-8")
    for name in (*COMMANDS, *METHODS):
        assert f"`{name}" in documents or f"python -m app {name}" in documents, name


def test_its_short_table_is_part_of_the_long_one():
    (table,) = re.findall(r"\| greedy \|.*?\n\n", README, re.S)
    rows = table.strip().splitlines()[2:]
    assert len(rows) == 4 and all(row.rstrip() in RESULTS for row in rows)


def measured(name):
    """The rows of a measured table; a chain has no budget."""
    rows = json.loads((ROOT / "assets" / "measured" / f"{name}.json").read_text("utf-8"))["rows"]
    for row in rows:
        if row["method"] != "dflash":
            row["method"] += f" {row['budget']}"
    return rows


def test_its_block_efficiencies_are_those_that_were_measured():
    found = [row for name in ("tau-dflash", "tau-treeflash", "tau-dart") for row in measured(name)]
    every = {
        "dflash",
        *(f"{m} {b}" for m in ("ddtree", "treeflash", "dart") for b in (16, 64, 256)),
    }
    everywhere = [row for row in found if row["source"] == "all" and row["method"] in every]
    by_source = [row for row in found if row["method"].endswith(" 64") and row["source"] != "all"]
    shown = everywhere + [row for row in by_source if row["temperature"] == 0]
    assert len(shown) >= 20
    for row in shown:
        assert f"{row['tau']:.2f} [{row['low']:.2f}, {row['high']:.2f}]" in RESULTS, row["method"]


def test_its_curves_are_those_that_were_measured():
    with (ROOT / "assets" / "measured" / "curves.csv").open(encoding="utf-8") as file:
        lines = [row for row in csv.DictReader(file) if int(row["depth"]) <= 7]
    for series in ("marginal", "marginal, held out", "dflash", "treeflash", "dart"):
        for column in ("tvd", "coverage_16"):
            values = [f"{float(row[column]):.2f}" for row in lines if row["series"] == series]
            assert f"| {' | '.join(values)} |" in RESULTS, (series, column)


@pytest.mark.parametrize(
    ("name", "method", "temperature"),
    [(f"tau-{d}", m, t) for d, m in (("dflash", "ddtree"), ("dart", "dart")) for t in (0, 1)],
)
def test_its_budget_curves_are_those_that_were_measured(name, method, temperature):
    taus = [
        f"{row['tau']:.2f}"
        for row in measured(name)
        if (row["source"], row["temperature"]) == ("all", temperature) and row["method"] != "dflash"
    ]
    assert f"| {' | '.join(taus)} |" in RESULTS and len(taus) == 7


@pytest.mark.parametrize(
    ("name", "method"),
    [("tau-dflash", "dflash"), ("tau-dflash", "ddtree 64"), ("tau-treeflash", "treeflash 64"),
     ("tau-dart", "dart 64")],
)  # fmt: skip
def test_its_acceptance_lengths_are_those_that_were_measured(name, method):
    (row,) = (
        r for r in measured(name)
        if (r["source"], r["temperature"], r["method"]) == ("all", 0, method)
    )  # fmt: skip
    shares = [str(round(100 * n / sum(row["lengths"]))) for n in row["lengths"][:8]]
    assert f"| {' | '.join(shares)} |" in RESULTS


def test_its_methods_say_what_their_q_depends_on_as_results_does():
    table = README.partition("| q depends on |")[2].partition("\n\n")[0]
    cells = [line.split("|") for line in table.splitlines() if line.startswith("| `")]
    said = {cell[1].strip(" `"): cell[3].strip().removeprefix("the ") for cell in cells}
    assert {*METHODS, "denoise --spiffy"} == {*said}
    for name in METHODS:
        info = find_method(name).drafter_info
        assert said[name] == ("" if info is None else info.knows), name
