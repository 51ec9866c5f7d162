"""The contract of every command: its help, and one sentence with exit code 2 for bad words."""

from __future__ import annotations

import importlib
import re
import shlex
from dataclasses import MISSING
from functools import cache
from pathlib import Path

import pydantic  # noqa: F401 – cyclopts checks more when it is there
import pytest

from app import cli, object_stores
from app.command_line import RENAMED, REQUIRED, CommandOptions, option, parse, words
from tests import ROOT

DOCUMENTS = ("README.md", "RESULTS.md", "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md"))
SCRIPTS = ("ablate", "overfit", "picture", "recording", "ship")


def options_of(name: str) -> type[CommandOptions]:
    return importlib.import_module(f"app.commands.{cli.module_of(name)}").Options


def said(capsys: pytest.CaptureFixture, *line: str) -> str:
    """The one sentence of a command line that cannot be."""
    assert cli.main(line) == 2, line
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("draftscope: ") and err.count("\n") == 1, err
    assert "Traceback" not in err and "usage:" not in err.lower()
    return err


def fields_of(name: str):
    return [(field, hint) for _, own in options_of(name).groups() for field, hint in own]


def shared(field) -> tuple[str, str]:
    """Name and help: by these an option is the same in every command."""
    return field.name, field.metadata["help"]


@cache
def first_with() -> dict[tuple[str, str], str]:
    """The first command that has an option: the others read it alike."""
    return {shared(f): name for name in reversed(cli.COMMANDS) for f, _ in fields_of(name)}


def flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def needed_by(name: str) -> dict[str, list[str]]:
    """Words for each option that must be given."""
    return {
        field.name: [flag(field.name), "html" if field.name == "to" else "ar"]
        for field, _ in fields_of(name)
        if field.default is MISSING
    }


def test_the_overview_is_one_screen_that_names_every_noun(capsys):
    assert cli.main(["--help"]) == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) <= 40 and max(map(len, out.splitlines())) <= 100
    assert {n.split()[0] for n in cli.COMMANDS} == set(re.findall(r"^  ([a-z]+)  ", out, re.M))
    for noun in cli.NOUNS:
        assert cli.main([noun, "--help"]) == 0
        verbs = re.findall(r"^  ([a-z]+)  ", capsys.readouterr().out, re.M)
        assert [f"{noun} {verb}" for verb in verbs] == [c for c in cli.COMMANDS if noun in c[:6]]


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command(name, capsys):
    """Help with its options and examples; unknown, misspelt, missing and wrong words."""
    line = name.split()
    assert cli.main([*line, "--help"]) == 0
    out, err = capsys.readouterr()
    assert err == "" and max(map(len, out.splitlines())) <= 100
    for field, hint in fields_of(name):
        assert flag(field.name) in out and field.metadata["help"].split()[0] in out
        assert hint is bool or field.default is not False
    for example in cli.COMMANDS[name].examples:
        assert parsed(example)[0] == name
    needed = needed_by(name)
    whole = [*line, *(word for given in needed.values() for word in given)]
    assert "no option --nonsense" in said(capsys, *whole, "--nonsense")
    if needed:
        names = "|".join(needed)
        assert re.search(rf"\b(?i:{names})\b.* is missing: \w", said(capsys, *line))
    own = [(field, hint) for field, hint in fields_of(name) if first_with()[shared(field)] == name]
    for field, hint in own:
        others = [word for each, given in needed.items() if each != field.name for word in given]
        if hint is not bool:
            assert flag(field.name) in said(capsys, *line, *others, flag(field.name))
        if hint in (int, float, int | None, float | None):
            for bad in ("x", "nan", "1" * 5000 if hint is int else "inf"):
                assert flag(field.name) in said(capsys, *line, *others, flag(field.name), bad)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("report", "TRACES is missing: traces (.jsonl or .jsonl.gz), folders of them, or packs; "
         "also in an object store (s3://…, hf://…) (see python -m app report --help)"),
        ("advise run.jsonl", "--cost PATH is missing: step times (.csv, .json, or a result of "
         "`cost --json`) (see python -m app advise --help)"),
        ("trace export run.jsonl", "--to FORMAT is missing: what to write: html, site, svg, pdf, "
         "dot, graphml, csv, parquet, perfetto, profile (see python -m app trace export --help)"),
        ("trace export run.jsonl --to", "--to needs a value (see python -m app trace export "
         "--help)"),
    ],
)  # fmt: skip
def test_a_missing_option_is_named_with_what_it_is_for(line, sentence, capsys):
    assert said(capsys, *line.split()) == f"draftscope: {sentence}\n"


def parsed(example: str) -> tuple[str, CommandOptions]:
    """The command and options of an example's words."""
    name, rest = cli.named(shlex.split(example.split(" > ")[0].split(" #")[0]))
    found = parse(options_of(name), rest, name)
    assert found is not None
    return name, found


def test_an_option_that_is_named_twice_loses_no_word_and_of_one_value_the_last_counts():
    line = "run ddtree --budget 4 --json --seed 1 --set a=1 --budget=8 --json --set b=2 --seed 3"
    _, found = parsed(f"{line} --prompt --hello --prompt bye")
    assert (found.methods, found.budget, found.seed, found.json) == (("ddtree",), 8, 3, True)
    assert dict(found.set) == {"a": "1", "b": "2"} and found.prompt == "bye"
    _, found = parsed("report --json a.jsonl --json --to csv --gate tau>=1 --to json parquet")
    assert (found.traces, found.to) == ((Path("a.jsonl"),), ("csv", "json", "parquet"))
    _, found = parsed("grid run --methods ddtree --methods dart --budget 8 --budget 16 --out x")
    assert found.methods == ("ddtree", "dart") and found.budget == (8, 16)


@pytest.mark.parametrize("old", cli.RENAMED)
def test_an_old_command_is_answered_with_the_new_one(old, capsys):
    sentence = said(capsys, old, "run.jsonl", "--json")
    new = cli.RENAMED[old]
    assert f"`{old}` is `{new}` now" in sentence and new.split(" --")[0] in cli.COMMANDS


@pytest.mark.parametrize("old", dict.fromkeys(old for old, _ in RENAMED))
def test_an_old_option_is_answered_with_the_one_that_the_command_has(old, capsys):
    named = [new for was, new in RENAMED if was == old]
    answers = set()
    for name in cli.COMMANDS:
        flags = [flag(field.name) for field, _ in fields_of(name)]
        new = next((each for each in named if each in flags), None)
        whole = [word for given in needed_by(name).values() for word in given]
        expected = f"{old} is {new} now" if new else f"no option {old}"
        assert old not in flags and expected in said(capsys, *name.split(), *whole, old, "1")
        answers.add(new)
    assert answers >= set(named)


@pytest.mark.parametrize("line", ["frobnicate", "trace", "grid frobnicate", "model -x"])
def test_no_command_is_one_sentence_with_those_there_are(line, capsys):
    assert re.search(r"choose one of \w+, \w+", said(capsys, *line.split()))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: Path(path).name)
def test_every_command_line_in_a_document_parses(document, monkeypatch):
    monkeypatch.setattr(object_stores, "copied", Path)  # no store is asked
    text = (ROOT / document).read_text("utf-8").replace("\\\n", " ")
    lines = re.findall(r"python -m app +((?!\.)[a-z][^`\n]*)", text)
    for line in lines:
        if not re.search(r"[…\[]|\b[A-Z]{4,}\b|--help", line):
            parsed(re.sub(r"\b\w+\.py\b", "ddtree", line))  # a method file of the reader's own


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: Path(path).name)
def test_no_document_names_an_option_as_it_was_called(document):
    named = set(re.findall(r"(?<![\w-])--[a-z-]+", (ROOT / document).read_text("utf-8")))
    assert not named & {old for old, _ in RENAMED}


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_of_maintainers_has_a_help(name, capsys):
    module = importlib.import_module(f"app.maintainers.{name}")
    assert parse(module.Options, ["--help"], name) is None
    assert (module.Options.__doc__ or "").split()[0] in capsys.readouterr().out


def test_a_declaration_is_read_as_its_type(tmp_path):
    from dataclasses import dataclass

    @dataclass(frozen=True, kw_only=True)
    class Options(CommandOptions):
        """Try the types."""

        files: tuple[Path, ...] = words("some")
        much: float = option(REQUIRED, "how much")
        many: tuple[int, ...] = option((1, 2), "how many")
        name: str | None = option(None, "a name")
        dark: bool = option(False, "dark")

    globals()["Options"] = Options  # where type hints are looked up
    line = ["a", "b", "--much", "-2", "--many", "3", "-4", "--dark", "--name", "-"]
    found = parse(Options, line, "try")
    assert found == Options(
        files=(Path("a"), Path("b")), much=-2.0, many=(3, -4), dark=True, name="-"
    )
    assert parse(Options, ["--files", "a", "--much=1"], "try").many == (1, 2)
