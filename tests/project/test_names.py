"""A method has one home, and a class name one owner. Docstrings begin with the thing or the act."""

import ast
from collections import Counter, defaultdict

import pytest

from core.methods.names import BUILDERS, DRAFTERS, METHODS, PLAIN
from tests import ROOT

COMMON = {
    PLAIN,
    "chain",
    "best-first",
    "opt-tree",
    "sampled-chain",
}  # builders that belong to no method
NAMES = (METHODS.keys() | DRAFTERS.keys() | BUILDERS.keys()) - COMMON
# The list itself, the shipped examples (documents) and their recording, and the course (text).
ELSEWHERE = ("core/methods/", "app/studio/shipped.py", "app/maintainers/recording.py", "app/learn/")
BUILDS_ON = {
    "eagle2": "eagle3",
    "peagle": "eagle3",
    "hydra": "medusa",
    "mtp": "sps",
    "uno": "sps",
}  # others on the one that most do
SPIFFYS = ("draft_graph_search", "graph")  # where it is how far Spiffy looks ahead
OF_FILES = {"suffix"}  # as an identifier the ending of a file's name
FILES = [
    file
    for folder in ("core", "analysis", "app")
    for file in sorted((ROOT / folder).rglob("*.py"))
    if not str(file.relative_to(ROOT)).startswith(ELSEWHERE)
]
SEVERAL_OWNERS = {
    "Options": "each command has its own, and the command line finds it by this name",
    "Attention": "core.models.llama mirrors the published model; only its file uses the name",
    "Layer": "core.models.llama and DFlash mirror published models, each in one file",
}


SHARED = {  # functions of one name that several modules import from different ones
    "option": "a field of options: of a method, or of a command, which has words and a reader too",
    "tau": "as text in analysis.numbers; the table of that name in analysis.measures",
    "loader": "of each family of drafters",
    "sentences": "of each kind of result",
}
MANY = 5  # modules: fewer know the one that they import from


def names_in(source):
    """Method names in code: string constants, identifiers and modules; not in documentation."""
    for node in ast.walk(ast.parse(source)):
        own = []
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.Name):
            own = [node.id]
        elif isinstance(node, ast.Attribute):
            own = [node.attr]
        elif isinstance(node, ast.ImportFrom):
            yield from (node.module or "").split(".")
            own = [alias.name for alias in node.names]
        yield from (name for name in own if name.lower() not in OF_FILES)


@pytest.mark.parametrize("file", FILES, ids=[str(f.relative_to(ROOT)) for f in FILES])
def test_no_method_is_named_outside_its_home(file):
    found = {name.lower() for name in names_in(file.read_text("utf-8"))} & NAMES
    assert not found or (file.stem in SPIFFYS and found == {"lookahead"})


def test_a_home_names_only_its_own_and_what_it_builds_on():
    """A drafter that extends another may import it; nothing else of a home knows another."""
    for home in sorted((ROOT / "core" / "methods").iterdir()):
        if home.is_dir() and home.name in NAMES:
            known = {
                name.lower()
                for file in home.glob("*.py")
                for name in names_in(file.read_text("utf-8"))
                if name.lower() in DRAFTERS.keys() - BUILDERS.keys()
            }
            assert known <= {home.name, BUILDS_ON.get(home.name, "dflash")}, home


def test_the_rule_itself_can_fail():
    assert {"dart", "treeflash"} <= set(
        names_in("x = 'dart'\nfrom core.methods.treeflash import y")
    )
    assert len(FILES) > 100


def owners_of(sources):
    """The files of each name of a class at module level, of (file, source)."""
    owners = defaultdict(list)
    for file, source in sources:
        for node in ast.parse(source).body:
            if isinstance(node, ast.ClassDef):
                owners[node.name].append(file)
    return owners


def odd_docstrings(source):
    """The docstrings that begin with "What": a question instead of a thing or an act."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            words = (ast.get_docstring(node) or "").split()
            if words[:1] == ["What"]:
                yield " ".join(words)


def sources(*folders):
    for folder in folders:
        for file in sorted((ROOT / folder).rglob("*.py")):
            yield str(file.relative_to(ROOT)), file.read_text("utf-8")


def test_a_class_name_has_one_owner():
    owners = owners_of(sources("core", "analysis", "app"))
    shared = {name: files for name, files in owners.items() if len(files) > 1}
    assert shared.keys() == SEVERAL_OWNERS.keys(), shared


def importers_of(sources):
    """{name: {module: importers}} of the functions at module level that others import by name."""
    defined, imports = set(), defaultdict(Counter)
    trees = {file.removesuffix(".py").replace("/", "."): ast.parse(text) for file, text in sources}
    for module, tree in trees.items():
        defined |= {(module, n.name) for n in tree.body if isinstance(n, ast.FunctionDef)}
        for node in ast.walk(tree):
            for alias in node.names if isinstance(node, ast.ImportFrom) else ():
                imports[alias.name][node.module] += 1
    return {
        name: {module: n for module, n in found.items() if (module, name) in defined}
        for name, found in imports.items()
    }


def test_a_function_that_many_import_has_its_name_alone():
    owners = importers_of(sources("core", "analysis", "app"))
    shared = {
        name: found
        for name, found in owners.items()
        if len(found) > 1 and sum(found.values()) >= MANY
    }
    assert shared.keys() == SHARED.keys(), shared


def test_no_docstring_begins_with_what():
    everything = sources("core", "analysis", "app", "recorders", "tests", "assets/examples")
    found = {file: list(odd_docstrings(source)) for file, source in everything}
    assert len(found) > 400 and not {file: odd for file, odd in found.items() if odd}


def test_the_rules_on_classes_and_docstrings_can_fail():
    one, two = "class A:\n    class C: ...\nclass B: ...", "class A: ...\nclass C: ..."
    owners = owners_of([("one", one), ("two", two)])
    assert owners == {"A": ["one", "two"], "B": ["one"], "C": ["two"]}
    one, two = "def f(): ...", "from a.one import f"
    assert importers_of([("a/one.py", one), ("b.py", two), ("c.py", two)]) == {"f": {"a.one": 2}}
    module, function = '"""What it is."""', 'def f():\n    """Say what it is."""'
    source = f'{module}\n{function}\nclass A:\n    """What\n    B is."""'
    assert list(odd_docstrings(source)) == ["What it is.", "What B is."]
