"""What the README shows is what is there."""

from __future__ import annotations

import re
from pathlib import Path

from app.cli import COMMANDS
from core.methods import RECIPES

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text("utf-8")


def test_the_method_it_shows_is_the_file_it_names():
    source = (ROOT / "assets" / "examples" / "prompt_lookup.py").read_text("utf-8")
    body = source[source.index("from collections") :]
    assert f"```python\n{body}```" in README
    assert len(body.splitlines()) < 45


def test_it_names_every_command_and_method():
    for name in (*COMMANDS, *RECIPES):
        assert f"`{name}" in README or f"python -m app {name}" in README, name


def test_its_files_and_links_exist():
    for path in re.findall(r"!\[[^]]*\]\(([^)]+)\)", README):
        assert (ROOT / path).is_file(), path
    for path in re.findall(r"`((?:core|app|analysis|assets|tests)/[\w./-]+)`", README):
        assert (ROOT / path).exists(), path
