"""The one table: every number again from the runs' own traces, in another way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app import cli
from core.rounds.round import Round
from core.traces.reader import read_trace
from tests.toys_on_disk import save_toys


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The table of plain decoding, a chain and a tree on three prompts of two sources."""
    folder = tmp_path_factory.mktemp("table")
    save_toys(folder)
    lines = [
        {"prompt": p, "source": s} for p, s in (("one", "chat"), ("two", "code"), ("3", "chat"))
    ]
    (folder / "p.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = ["table", folder / "out", "ar", "dflash", "ddtree", "--budget", 5, "--max-new-tokens",
             20, "--prompts", folder / "p.jsonl", "--model", folder / "target", "--drafter",
             folder / "drafter", "--device", "cpu"]  # fmt: skip
    assert cli.main([str(word) for word in words]) == 0
    assert cli.main([str(word) for word in words]) == 0  # nothing is run again
    return folder / "out"


def rows(made: Path) -> list[dict[str, Any]]:
    return json.loads((made / "table.json").read_text())["rows"]


def test_there_is_a_row_for_every_variant_temperature_and_source(made: Path):
    found = {(r["method"], r["budget"], r["temperature"], r["source"]) for r in rows(made)}
    variants = (("ar", 1), ("dflash", 64), ("ddtree", 5))
    sources = ("all", "chat", "code")
    assert found == {(*v, t, s) for v in variants for t in (0.0, 1.0) for s in sources}
    assert all(r["texts"] == {"all": 3, "chat": 2, "code": 1}[r["source"]] for r in rows(made))
    assert all(r["same"] == r["judged"] == r["texts"] for r in rows(made))


@pytest.mark.parametrize("temperature", [0, 1])
def test_numbers_are_those_of_the_traces(made: Path, temperature: int):
    traces = [read_trace(p) for p in (made / f"T{temperature}" / "traces").iterdir()]
    own = [t for t in traces if t.header.method == "ddtree"]
    plain = {t.header.prompt_text: t for t in traces if t.header.method == "ar"}
    row = next(r for r in rows(made) if (r["method"], r["temperature"], r["source"]) ==
               ("ddtree", temperature, "all"))  # fmt: skip
    all_rounds = [record for trace in own for record in trace.rounds]
    lengths = [record.accepted + 1 for record in all_rounds]
    assert row["tau"] == pytest.approx(np.mean(lengths), rel=1e-3)
    assert row["low"] <= row["tau"] <= row["high"]
    times = [record.times for record in all_rounds]
    assert row["draft_ms"] == pytest.approx(
        1e3 * np.mean([t.draft + t.build for t in times]), rel=1e-3
    )
    assert row["round_ms"] == pytest.approx(1e3 * np.mean([t.total for t in times]), rel=1e-3)
    paces = [pace(trace) / pace(plain[trace.header.prompt_text]) for trace in own]
    assert row["speed"] == pytest.approx(np.median(paces), rel=1e-3)
    for depth in range(1, len(row["tvd"]) + 1):
        seen = [probed(record, depth) for record in all_rounds]
        seen = [each for each in seen if each is not None]
        assert row["tvd"][depth - 1] == pytest.approx(np.mean([s[0] for s in seen]), rel=1e-3)
        assert row["coverage"][depth - 1] == pytest.approx(np.mean([s[1] for s in seen]), rel=1e-3)
    assert row["tvd"]


def pace(trace: Any) -> float:
    return len(trace.footer["token_ids"]) / trace.footer["wall_seconds"]


def probed(record: Round, depth: int) -> tuple[float, float] | None:
    """TVD and top-16 coverage at a depth of a round, where the accepted path comes by."""
    probe = record.probe
    if probe is None or depth > len(probe.tvd) or depth > record.accepted + 1:
        return None
    return float(probe.tvd[depth - 1]), float(probe.coverage[depth - 1][15])
