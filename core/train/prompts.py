"""Prompts that cost no model: tasks about topics, small functions to write, functions of sources.

The target's own prompts cost as much as short answers, and half of them are of a few kinds. Here a
chat prompt is a task about a topic and a code prompt a small documented function.

A function may ask in other words for what a held-out prompt asks for, which no comparison of words
finds: before evaluating on prompts of functions, compare the list with them.
"""

from __future__ import annotations

import ast
import random
import textwrap
import tomllib
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path

from core.samples import Sample

LISTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
TOPICS: list[str] = LISTS["topics"]
TASKS: list[str] = LISTS["tasks"]
CODE_REQUESTS: list[str] = LISTS["code_requests"]
FUNCTIONS: list[str] = LISTS["functions"].split("\n")[:-1]


def topic_prompts(seed: int = 0) -> list[Sample]:
    """Every task with every topic, in random order; a task of two topics draws the second."""
    rng = random.Random(seed)
    made = [
        task.format(topic, rng.choice(TOPICS)) if task.count("{}") == 2 else task.format(topic)
        for task, topic in product(TASKS, TOPICS)
    ]
    rng.shuffle(made)
    return [Sample(text) for text in made]


def function_prompts(seed: int = 0) -> list[Sample]:
    """Every function in every form, as a stub or in words, in random order."""
    rng = random.Random(seed)
    made = []
    for line in FUNCTIONS:
        name, arguments, does, example = line.split("|")
        stub = f'def {name}({arguments}):\n    """{does}{{}}"""\n'
        call, _, value = example.partition(" = ")
        stubs = [stub.format("")]
        if example:
            stubs.append(stub.format(f"\n    >>> {call}\n    {value}\n    "))
            stubs.append(stub.format(f"\n    Example: {call} == {value}\n    "))
        made += [request.format(text) for request, text in product(CODE_REQUESTS, stubs)]
        made.append(f"Write a Python function {name}({arguments}). {does}")
        made.append(f"How can I do this in Python? {does}")
    rng.shuffle(made)
    return [Sample(text) for text in made]


def code_prompts(folders: Iterable[Path], limit: int, seed: int = 0) -> list[Sample]:
    """User turns that ask for a function's body, from documented functions in Python sources."""
    rng = random.Random(seed)
    files = sorted(f for folder in folders for f in folder.rglob("*.py"))
    rng.shuffle(files)
    prompts: list[Sample] = []
    for file in files:
        prompts += [Sample(rng.choice(CODE_REQUESTS).format(stub)) for stub in _stubs(file)]
        if len(prompts) >= limit:
            break
    rng.shuffle(prompts)
    return prompts[:limit]


def _stubs(file: Path) -> Iterator[str]:
    """Signatures with docstrings of the file's top-level and nested functions."""
    try:
        source = file.read_text(encoding="utf-8")
        tree = ast.parse(source)
    except (OSError, ValueError, SyntaxError):
        return
    lines = source.split("\n")  # as the parser counts them: a form feed ends no line
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef) or len(node.body) < 2:
            continue
        doc = ast.get_docstring(node)
        if not doc or not 40 <= len(doc) <= 600 or node.name.startswith("test"):
            continue
        stub = textwrap.dedent("\n".join(lines[node.lineno - 1 : node.body[0].end_lineno]))
        if len(stub) < 900:
            yield stub + "\n"
