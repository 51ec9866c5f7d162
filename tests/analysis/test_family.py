"""The one table: every number again, from real runs and from its own lines, in another way."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.experiments import bench, tabulate
from analysis.experiments.family import Accepted, Cell, TemperatureResults, Timed, entries
from analysis.experiments.prompts import Prompt
from analysis.experiments.variants import Variant
from analysis.measures.probe import observe
from app import cli
from app.studio.tabs.results_answers import method_table
from core.decoding.engine import Engine
from core.decoding.request import RunRequest
from core.errors import UserError
from core.journal import Journal
from core.rounds.round import Round
from tests.helpers.timing import amount, usually
from tests.helpers.toys_on_disk import save_toys

PROMPTS = (("one", "chat"), ("two", "code"), ("3", "chat"))
METHODS = ("dflash", "ddtree", "eagle3", "treeflash", "hydra", "lookahead", "sps", "pld", "suffix",
           "ngram-mod")  # fmt: skip
LEARNING = ("ngram-mod", "lookahead")
TOKENS = amount(8, 12)


def words(folder: Path, *more: object) -> list[str]:
    named = [f"{m}@{folder / m}" for m in ("eagle3", "treeflash", "hydra", "sps")]
    drafter = str(folder / "drafter")
    found = ["grid", "table", "--out", folder / "out", "--methods", f"dflash@{drafter}",
             f"ddtree@{drafter}", *named, "pld", "suffix", "ngram-mod", "lookahead", "--budget", 5,
             "--max-new-tokens", TOKENS, "--prompts", folder / "p.jsonl",
             "--model", folder / "target", "--device", "cpu", "--time-every", 3, *more]  # fmt: skip
    return [str(word) for word in found]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Toys, with the table of all on three prompts of two sources."""
    folder = tmp_path_factory.mktemp("table")
    save_toys(folder)
    lines = [json.dumps({"prompt": p, "source": s}) + "\n" for p, s in PROMPTS]
    (folder / "p.jsonl").write_text("".join(lines))
    assert cli.main(words(folder)) == 0
    return folder


@pytest.fixture(scope="module")
def engine(folder: Path) -> Engine:
    return Engine(str(folder / "target"), "cpu")


def table(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "out" / "table.json").read_text())


def rows(folder: Path, **wanted: Any) -> list[dict[str, Any]]:
    found = table(folder)["rows"]
    return [r for r in found if all(r[name] == value for name, value in wanted.items())]


def test_there_is_a_row_for_every_variant_temperature_and_source(folder: Path):
    found = {
        (r["method"].partition("@")[0], r["budget"], r["temperature"], r["source"])
        for r in rows(folder)
    }
    own = {"eagle3": 59, "hydra": 63, "lookahead": 28, "ddtree": 64, "treeflash": 64, "suffix": 24}
    variants = {("ar", 1), ("dflash", 64), ("sps", 64), ("pld", 64), ("ngram-mod", 64)}
    variants |= {(m, b) for m, size in own.items() for b in (5, size)}
    sources = ("all", "chat", "code")
    assert found == {(*v, t, s) for v in variants for t in (0.0, 1.0) for s in sources}
    for row in rows(folder):
        assert row["texts"] == {"all": 3, "chat": 2, "code": 1}[row["source"]]
        assert row["timed"] == row["same"] == {"all": 1, "chat": 1, "code": 0}[row["source"]]
        assert row["ran"] == (row["method"] in LEARNING)
        assert row["agree"] == (None if row["ran"] else row["timed"])
        assert row["own"] == (row["budget"] != 5)
    assert table(folder)["ran"] == dict.fromkeys(LEARNING, "learns from its own run")


@pytest.mark.parametrize("temperature", usually((1.0,), (0.0, 1.0)))
@pytest.mark.parametrize("name", METHODS)
def test_accepted_tvd_and_coverage_are_those_of_real_runs(
    folder: Path, engine: Engine, name: str, temperature: float
):
    method = name
    if name not in ("pld", "suffix", *LEARNING):
        method += f"@{folder / ('drafter' if name in ('dflash', 'ddtree') else name)}"
    for row in rows(folder, method=method, temperature=temperature, source="all"):
        real = list[Round]()
        for prompt, _ in PROMPTS:
            request = RunRequest(prompt, method, row["budget"], TOKENS, temperature)
            real += [r for r in engine.start(request, observe).rounds if r.committed]
        assert row["tau"] == pytest.approx(np.mean([r.accepted + 1 for r in real]), rel=1e-3)
        lengths = [r.accepted + 1 for r in real]
        assert row["lengths"] == [lengths.count(n) for n in range(1, max(lengths) + 1)]
        for depth in range(1, len(row["tvd"]) + 1):
            seen = [each for r in real if (each := probed(r, depth)) is not None]
            tvd, coverage = np.mean(seen, 0)
            assert row["probed"][depth - 1] == len(seen)
            assert row["tvd"][depth - 1] == pytest.approx(tvd, rel=2e-3, abs=1e-5)
            assert row["coverage"][depth - 1] == pytest.approx(coverage, rel=2e-3, abs=1e-5)
        assert not any(probed(r, len(row["tvd"]) + 1) for r in real)


def probed(record: Round, depth: int) -> tuple[float, float] | None:
    """TVD and top-16 coverage at a depth of a round, where the accepted path comes by."""
    probe = record.probe
    if probe is None or depth > len(probe.tvd) or depth > record.accepted + 1:
        return None
    return float(probe.tvd[depth - 1]), float(probe.coverage[depth - 1][15])


def test_few_prompts_have_no_interval_and_their_table_opens(folder: Path):
    opened = method_table(folder / "out" / "table.json")["rows"]
    assert [row["tau"] for row in opened] == [row["tau"] for row in rows(folder)]
    for row in opened:
        spans = row["source"] == "code" and row["low"] is not None  # of one prompt's rounds
        assert spans or (row["low"], row["high"]) == (None, None)


def test_times_are_ratios_on_the_same_prompt():
    """Two timed prompts of three, by hand."""

    def timed(seconds: float, tokens: int, rounds: int, draft: float) -> Timed:
        stages = {"draft": draft, "build": 0.1, "verify": 0.6, "commit": 0.1}
        return Timed(seconds, list(range(tokens)), [tokens] * rounds, stages)

    plain, tree = Variant("plain", "ar"), Variant("ddtree B=8", "ddtree", 8)
    prompts = [Prompt("a"), Prompt("b"), Prompt("c")]
    lengths = [[2, 1], [3], [1, 1, 1]]
    cells = {
        plain: {n: Cell(Accepted([1]), timed(10.0, 10, 10, 0.2) if n < 2 else None)
                for n in range(3)},
        tree: {0: Cell(Accepted(lengths[0], [2], [1.0], [0.5]), timed(2.0, 10, 2, 0.4)),
               1: Cell(Accepted(lengths[1], [1], [0.1], [0.9]), timed(5.0, 10, 3, 1.4)),
               2: Cell(Accepted(lengths[2], [1, 1], [0.3, 0.7], [0.2, 0.1]))},
    }  # fmt: skip
    generate = {0: timed(4.0, 10, 1, 0), 1: timed(10.0, 10, 1, 0)}
    _, row = entries(TemperatureResults(0.0, prompts, cells, generate))
    assert (row.texts, row.timed, row.same, row.agree) == (3, 2, 2, 0)
    assert row.tau == pytest.approx(9 / 6)
    assert row.tvd == pytest.approx([1.4 / 4, 0.7]) and row.coverage == pytest.approx([0.4, 0.1])
    assert row.draft_ms == pytest.approx(1e3 * (0.4 + 1.4 + 0.2) / 5)
    assert row.round_ms == pytest.approx(1e3 * (1.2 + 2.2) / 5)
    assert row.forward_ms == pytest.approx(1e3 * 2.0 / 20)
    assert row.speed == pytest.approx((5 + 2) / 2) and row.generate == pytest.approx((2 + 2) / 2)


def test_what_is_done_is_not_done_again(folder: Path, monkeypatch: pytest.MonkeyPatch):
    def never(*_: object) -> None:
        raise AssertionError("this was done already")

    before = table(folder)
    for module, name in ((tabulate.Text, "written"), (tabulate, "read_along"), (bench, "_decode")):
        monkeypatch.setattr(module, name, never)
    assert cli.main(words(folder)) == 0
    assert table(folder) == before


def test_a_line_that_was_cut_short_and_new_weights_are_made_anew(folder: Path, tmp_path: Path):
    shutil.copytree(folder, tmp_path / "copy")
    copy = tmp_path / "copy"
    shutil.rmtree(copy / "out")
    few = ("--methods", f"hydra@{copy / 'hydra'}", "suffix", "--temperature", 0, "--time-every", 0)
    assert cli.main(words(copy, *few)) == 0
    kept = copy / "out" / "accepted.jsonl"
    lines = kept.read_bytes().split(b"\n")[:-1]
    kept.write_bytes(b"\n".join(lines[:-1]) + b"\n" + lines[-1][:40])
    assert cli.main(words(copy, *few)) == 0
    assert sorted(kept.read_bytes().split(b"\n")[:-1]) == sorted(lines)
    weights = copy / "hydra" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1  # the last weight's sign or exponent
    weights.write_bytes(data)
    assert cli.main(words(copy, *few)) == 0
    again = kept.read_bytes().split(b"\n")[:-1]
    assert len(again) == len(lines) + 2 * len(PROMPTS)  # Hydra's two budgets
    assert rows(copy, method=f"hydra@{copy / 'hydra'}", source="all")[0]["texts"] == 3


def test_a_file_of_other_lines_is_refused(tmp_path: Path):
    (tmp_path / "x.jsonl").write_text('{"prompt": "no key"}\n')
    with pytest.raises(UserError, match="line 1 holds no key"):
        Journal(tmp_path / "x.jsonl")


@pytest.mark.parametrize(
    "option", [("--every", "0"), ("--time-every", "-1"), ("--temperature", "-1")]
)
def test_bad_numbers_are_refused(folder: Path, option: tuple[str, str]):
    assert cli.main([*words(folder), *option]) == 2
