"""Rules that import-linter cannot say (its own are in pyproject.toml): light modules load no torch,
and nothing executes what it reads."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from app.cli import COMMANDS, module_of
from tests import ROOT

FILES = [f for house in ("core", "analysis", "app") for f in sorted((ROOT / house).rglob("*.py"))]
HEAVY = {"torch", "transformers", "numba", "accelerate"}
VIEWS = {
    "gradio", "plotly", "pandas", "pyarrow", "networkx", "graphviz", "rich", "ray",
    "cachetools", "platformdirs",
}  # fmt: skip
READING = """
from pathlib import Path
from core.traces.reader import read_trace
for record in read_trace(Path("tests/golden/trace-v1.jsonl")).rounds:
    [record.why(row) for row in range(len(record.draft))]
"""
OPTIONS = """
from core.methods.registry import find_method, listed
for name in listed():
    find_method(name).resolve({}), find_method(name).explain
"""


def loaded_by(code: str) -> set[str]:
    code += "\nimport sys\nprint(*{name.split('.')[0] for name in sys.modules})"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(run.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    "code",
    [
        "import core.rounds.round, core.rounds.blocks, core.json_input",
        "import core.traces.writer" + READING,
        "import core.methods.method, core.methods.registry" + OPTIONS,
        "import core.decoding.request",
        "import core.models.presets",
    ],
    ids=["rounds", "traces", "methods", "requests", "presets"],
)
def test_light_modules_load_no_torch(code):
    assert not loaded_by(code) & (HEAVY | VIEWS | {"app", "analysis", "safetensors"})


GOLDEN = "tests/golden/trace-v1.jsonl"
WHAT_IF = """
import analysis.collected.calibration, analysis.experiments.cost
from pathlib import Path
from analysis.collected.collection import Collection
from analysis.collected.whatif import Simulation
c = Collection.load(Path("assets/collected/fibonacci.safetensors"))
for method in ("ddtree", "treeflash"):
    s = Simulation(c, method, {})
    s.curve([4, 16]), s.round(c.answer, 9)
"""
REPORT = f"""
import tempfile
from app.cli import main
with tempfile.TemporaryDirectory() as folder:
    main(["report", {GOLDEN!r}, "--out", folder, "--html"])
"""
EXPORTS = """
import app.notebook, analysis.measures.rows, analysis.table_files, app.commands.trace.export
import app.export.offline, app.export.graphs, app.export.timeline, app.export.report_page
from tests import ROOT
"""
LIGHT = {
    "trace show": f"from app.cli import main; main(['trace', 'show', {GOLDEN!r}])",
    "report": REPORT,
    "what-if": WHAT_IF,
    "exports": EXPORTS,
    "course": "from app.learn.course import course; course()",
    "presets": "from core.models.presets import preset_of; preset_of('qwen3-4b'), preset_of('a/b')",
}


@pytest.mark.parametrize("name", LIGHT)
def test_no_model_is_needed(name):
    compiled = {"numba"} if name == "what-if" else set()  # a builder's search
    assert not loaded_by(LIGHT[name]) & (HEAVY | {"gradio", "huggingface_hub"}) - compiled


def test_no_help_waits_for_a_heavy_package():
    """One process asks all: a package is charged to the first command that loads it."""
    code = (
        "import sys\n"
        "from app.cli import COMMANDS, main\n"
        "known = set()\n"
        "for name in COMMANDS:\n"
        "    main([*name.split(), '--help'])\n"
        "    print('\\n::', name, *{m.split('.')[0] for m in sys.modules} - known)\n"
        "    known = {m.split('.')[0] for m in sys.modules}\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    told = [line.split() for line in run.stdout.splitlines() if line.startswith("::")]
    assert len(told) == len(COMMANDS)
    heavy = HEAVY | VIEWS - {"rich"}
    assert not [(line[1:3], found) for line in told if (found := heavy.intersection(line))]


def test_the_overview_needs_no_reader_of_options():
    loaded = loaded_by("from app.cli import main; main(['--help'])")
    assert not loaded & (HEAVY | {"cyclopts"})


def test_decoding_loads_nothing_of_the_views():
    code = (
        "import core.decoding.engine, core.methods.registry, core.models.embedded\n"
        "import analysis.measures.probe"
    )
    assert not loaded_by(code) & (VIEWS | {"app"})


def imported(tree: ast.AST) -> Iterator[str]:
    """Top-level names of every import, of those inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").split(".")[0]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "import_module":
            yield from (
                str(a.value).split(".")[0] for a in node.args if isinstance(a, ast.Constant)
            )


def faults(tree: ast.AST) -> Iterator[str]:
    """Name code that would execute what is read, or run only where the tests are."""
    yield from set(imported(tree)) & {"pickle", "dill", "shelve", "marshal", "tests"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield from {node.func.id} & {"eval", "exec"}
        if isinstance(node, ast.keyword) and node.arg == "trust_remote_code":
            yield from [] if ast.unparse(node.value) == "False" else [node.arg]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_file_executes_nothing_it_reads(file):
    assert not list(faults(ast.parse(file.read_text("utf-8"))))


def test_no_command_imports_another():
    commands = {"app.commands." + module_of(name) for name in COMMANDS}
    for command in commands:
        tree = ast.parse((ROOT / f"{command.replace('.', '/')}.py").read_text("utf-8"))
        froms = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        named = {f"{node.module}.{alias.name}" for node in froms for alias in node.names}
        assert not commands & (named | {node.module for node in froms}), command


def test_no_module_of_tests_is_imported_by_another():
    """Several tests share a module of helpers."""
    statement = re.compile(r"^ *(?:from|import) tests\b(?:[^\n(]*\([^)]*\)|.*)", re.MULTILINE)
    for file in sorted((ROOT / "tests").rglob("*.py")):
        for found in statement.findall(file.read_text("utf-8")):
            assert not re.search(r"\btest_", found), f"{file.relative_to(ROOT)}: {found}"


def parses(tree: ast.AST) -> bool:
    """Whether JSON is parsed, other than what was written on the spot."""
    calls = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    found = [c for c in calls if c.startswith(("json.load", "orjson.load", "msgspec.json.dec"))]
    return any(not c.startswith("json.loads(json.dumps(") for c in found)


def test_json_from_outside_is_parsed_in_one_place():
    """Within its limits. All others read what the program itself wrote."""
    found = {str(f.relative_to(ROOT)) for f in FILES if parses(ast.parse(f.read_text("utf-8")))}
    assert found == {
        "core/json_input.py", "core/learning/shards.py", "core/train/sources.py",
        "app/learn/measured.py",
        "app/maintainers/recording.py", "core/models/chat_template.py", "app/learn/drawn.py",
        "core/models/render_template.py",
    }  # fmt: skip


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "def f():\n    from tests.x import y",
        "a.import_module('dill')",
        "eval('1')",
        "f(trust_remote_code=True)",
        "f(trust_remote_code=x)",
    ],
)
def test_the_rule_itself_can_fail(code):
    assert list(faults(ast.parse(code)))
    assert not list(faults(ast.parse("import json\nf(trust_remote_code=False)")))


@pytest.mark.parametrize(
    ("module", "words", "spins"),
    [
        ("app.maintainers.ship", [], "5000"),
        ("app.maintainers.recording", [], "5000"),
        ("app.__main__", ["run"], "5000"),
        ("app.__main__", [], "1000"),
        ("app.__main__", ["bench"], "20000"),
    ],
)
def test_every_program_says_how_often_workers_spin_before_torch_is_loaded(module, words, spins):
    code = (
        "import os, sys\n"
        f"sys.argv[1:] = {words!r}\n"
        "class Watch:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'torch':\n"
        "            print(os.environ.get('GOMP_SPINCOUNT'), flush=True)\n"
        "            os._exit(0)\n"
        "sys.meta_path.insert(0, Watch())\n"
        f"import {module}\n"
        "import torch"
    )
    env = {k: v for k, v in os.environ.items() if k != "GOMP_SPINCOUNT"}
    run = [sys.executable, "-c", code]
    found = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=True, env=env)
    assert found.stdout.split() == [spins]
