"""The documents' examples run, and the programs they name exist."""

import inspect
import re
import sys
import tomllib
import types
from dataclasses import replace

import numpy as np
import pytest

from analysis import frames
from analysis.drafters.mistakes import MISTAKES
from app.cli import Command, module_of
from app.command_line import parse, run
from core.drafting.session import FactorisedSession, PathSession
from core.methods.method import Method
from core.methods.registry import find_method
from core.rounds.draft import Candidates
from core.traces.reader import read_trace
from core.traces.schema import Trace
from tests import ROOT
from tests.helpers import toys
from tests.helpers.documents import EXTENDING, block, run_block

DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_files_and_links_that_a_document_names_exist(path):
    text = path.read_text("utf-8")
    for link in re.findall(r"\[[^]]*\]\((?!http)([^)#]+)[^)]*\)", text):
        assert (path.parent / link).exists(), link
    for name in re.findall(r"`((?:core|app|analysis|assets|tests|docs)/[\w./-]+\w)`", text):
        assert "MODULE" in name or (ROOT / name).exists(), name


def test_the_page_on_wiring_has_a_part_for_each_mistake():
    parts = re.findall(r"^### (.+)$", (ROOT / "docs" / "wiring.md").read_text("utf-8"), re.M)
    assert parts == [*dict.fromkeys(row.mistake for row in MISTAKES)]


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 200


def test_the_builder_in_extending_md_runs():
    names = run_block("def comb")
    ids = np.arange(12).reshape(3, 4)
    session = FactorisedSession(Candidates(ids, -np.ones((3, 4), np.float32)))
    draft = names["comb"](session, [7], 5)
    assert draft.parents.tolist() == [-1, 0, 0, 1, 1, 3]
    assert draft.depths.tolist() == [0, 1, 1, 2, 2, 3]
    assert isinstance(names["METHOD"], Method)


def test_the_drafter_in_extending_md_is_lossless(tmp_path):
    from core.decoding.decode import Decoder
    from core.drafting.builders import best_first

    path = tmp_path / "again.py"
    path.write_text(block("class Again"), "utf-8")
    info = find_method(str(path)).drafter_info
    drafter = info.load(OneLanguage(), None, info.options())
    found = toys.run(Decoder("m", drafter, best_first), 30, toys.GREEDY, budget=4)
    assert found.tokens == toys.plain(30, toys.GREEDY)


def test_the_chart_in_extending_md_draws_its_table():
    from analysis.charts import figures
    from analysis.measures import acceptance
    from analysis.measures.tables import Tables
    from tests.helpers.fakes import make_header, make_run

    runs = {"one": Trace(make_header("why?"), tuple(make_run(4, 16)), {})}
    table = acceptance.per_depth(Tables.of(runs), by="run")
    figure = run_block("def nodes_by_depth", dict(vars(figures)))["nodes_by_depth"](table)
    assert [*figure.data[0].y] == table["nodes"].tolist()


def test_the_command_in_extending_md_says_what_it_should(capsys):
    made = types.ModuleType("rounds")  # where the types of the options' fields are looked up
    sys.modules["rounds"] = made
    names = run_block("def main(args: Options)", made.__dict__)
    golden = ROOT / "assets" / "traces" / "chat-ddtree-64.jsonl.gz"
    assert run(names["Options"], names["main"], "rounds", words=[str(golden)]) == 0
    assert int(capsys.readouterr().out) == len(read_trace(golden).rounds)
    listed = eval("{" + block('Command("say') + "}", {"Command": Command})  # noqa: S307
    for name, command in listed.items():
        for example in command.examples:
            assert example.split()[0] == module_of(name) == made.__name__
            parse(names["Options"], example.split()[1:], name)


def test_the_column_in_extending_md_is_in_the_table_and_can_be_printed(request, monkeypatch):
    from analysis.measures import acceptance
    from analysis.measures.tables import Tables
    from app.report.sections import TAU
    from app.report.shown import parts
    from tests.helpers.fakes import make_header, make_run

    line = block('"alone": int').strip()
    columns = dict(frames._declarations())
    columns["tau"] = columns["tau"] | tomllib.loads(block("alone = {", "toml"))
    monkeypatch.setattr(frames, "_declarations", lambda: columns)
    frames.declared_columns.cache_clear()
    request.addfinalizer(frames.declared_columns.cache_clear)
    source, above = inspect.getsource(acceptance), '"rounds": rounds,\n'
    assert source.count(above) == 1
    names = {"__name__": acceptance.__name__}
    exec(source.replace(above, f"{above}            {line}\n"), names)  # noqa: S102
    rounds = tuple(make_run(4, 16))
    tables = Tables.of({"one": Trace(make_header("why?"), rounds, {})})
    table = names["tau"](tables)
    assert table["alone"].tolist() == [sum(record.accepted == 0 for record in rounds)]
    (part,) = parts([replace(TAU, columns=f"{TAU.columns} alone")], {"tau": table}, tables)
    assert part.body[0].heads[-1] == "none accepted"


def test_the_tab_in_extending_md_names_what_is_there():
    """Its imports, and what it reads of a run. tests/browser/test_extending.py opens it."""
    pytest.importorskip("gradio")
    from app.studio.examples import Examples

    tab = run_block('Tab("shelf"')["TAB"]
    assert f"`{tab.script}`" in EXTENDING
    imports = re.findall(r'import \{ (.*?) \} from "\.\./(.*?)";', block("mount", "js"))
    assert imports
    for names, module in imports:
        text = (ROOT / "app" / "web" / module).read_text("utf-8")
        for name in names.split(", "):
            assert re.search(rf"^export (async )?(function|const|class) {name}\b", text, re.M), name
    (read,) = re.findall(r"runs\.map\(\(\{ (.*?) \}\)", block("mount", "js"))
    runs = [run for group in Examples().groups(False) for run in group["runs"]]
    assert runs and all(set(read.split(", ")) <= set(run) for run in runs)


@pytest.mark.parametrize("name", ["trigram", "prompt_lookup"])
def test_an_example_method_is_declared(name):
    method = find_method(str(ROOT / "assets" / "examples" / f"{name}.py"))
    assert method.drafter_info is not None and method.all_options
    assert len((ROOT / "assets" / "examples" / f"{name}.py").read_text().splitlines()) <= 75


class OneLanguage:
    """The part of a target that the example needs."""

    name, vocabulary = "smollm2-135m", toys.VOCABULARY


@pytest.mark.parametrize("sampling", [toys.GREEDY, toys.HOT], ids=["greedy", "hot"])
def test_the_path_conditional_example_is_lossless(sampling):
    """On a toy target, with the shipped store: its tokens are those of plain decoding."""
    from core.decoding.decode import Decoder
    from core.drafting.builders import best_first

    info = find_method(str(ROOT / "assets" / "examples" / "trigram.py")).drafter_info
    drafter = info.load(OneLanguage(), None, info.options(depths=3))
    assert issubclass(type(drafter.begin(0, 4)), PathSession)
    found = toys.run(Decoder("m", drafter, best_first), 30, sampling, budget=8)
    assert found.tokens == toys.plain(30, sampling)
