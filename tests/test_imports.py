"""Imports go one way: app → analysis → core; reading a log never imports torch."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
UI = {"gradio", "plotly", "pandas", "networkx", "graphviz", "matplotlib"}
FORBIDDEN = {
    "core": UI | {"app", "analysis", "tests"},
    "analysis": {"app", "gradio", "tests"},
    "app": {"tests"},
}
FILES = [(house, file) for house in FORBIDDEN for file in sorted((ROOT / house).rglob("*.py"))]


def imported(source):
    """Top-level names of every import, lazy ones inside functions too; '.' for relative ones."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." if node.level else (node.module or "").split(".")[0]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "import_module":
            yield from (a.value.split(".")[0] for a in node.args if isinstance(a, ast.Constant))


@pytest.mark.parametrize(("house", "file"), FILES, ids=[str(f.relative_to(ROOT)) for _, f in FILES])
def test_a_file_imports_nothing_from_above_its_house(house, file):
    assert not set(imported(file.read_text())) & FORBIDDEN[house]


def test_the_rule_itself_can_fail():
    assert set(imported("def f():\n    from gradio.x import y\n    import app.z as q")) == {
        "gradio",
        "app",
    }
    assert len(FILES) > 15


def modules_after(statement):
    code = f"{statement}\nimport sys\nprint(' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return {name.split(".")[0] for name in done.stdout.split()}


HEAVY = {"torch", "transformers", "numba", "safetensors"}


def test_reading_a_trace_does_not_import_torch():
    reading = (
        "import core.types\nfrom pathlib import Path\nfrom core.traces.reader import read_trace\n"
        "t = read_trace(Path('tests/golden/trace-v1.jsonl'))\n"
        "[r.why(i) for r in t.rounds for i in range(len(r.draft))]"
    )
    assert not modules_after(reading) & (HEAVY | UI | {"app", "analysis"})


def test_the_decoding_core_loads_without_the_user_interface():
    everything = "import core.decoding.engine, core.methods, core.models.embedded, analysis.probe"
    assert not modules_after(everything) & (UI | {"app"})


@pytest.mark.parametrize("house", ["core", "analysis", "app"])
def test_nothing_in_the_house_executes_what_it_reads(house):
    """No pickle, eval or exec, and remote code is never trusted."""
    for file in sorted((ROOT / house).rglob("*.py")):
        tree = ast.parse(file.read_text())
        assert not set(imported(file.read_text())) & {"pickle", "dill", "shelve", "marshal"}, file
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in {"eval", "exec"}, file
            if isinstance(node, ast.keyword) and node.arg == "trust_remote_code":
                assert isinstance(node.value, ast.Constant) and node.value.value is False, file
