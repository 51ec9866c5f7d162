"""Damaged and hostile traces through commands: an exit code, at most one sentence, and not one
character on the terminal that does something there."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.traces.schema import Trace
from tests.helpers.fakes import make_header, make_run
from tests.helpers.mutants import UNSEEN, as_file, at_most, in_little_memory, mutants

SECONDS = 10.0
EVIL = "\x1b]0;owned\x07\u202e\x9b31m\u2066=cmd()\r\x08"
COMMANDS = {  # words, and how many traces go through them
    "trace show": ("trace show {}", 120),
    "trace show --round": ("trace show {} --round 1", 60),
    "trace check": ("trace check {}", 150),
    "trace compare": ("trace compare {} {}", 40),
    "csv": ("trace export {} --to csv --out {out}", 40),
    "report": ("report {}", 6),
}


def hostile() -> bytes:
    """A trace whose every text is an attack on a terminal."""
    rounds = [
        record.with_texts({token: EVIL + text for token, text in record.texts.items()})
        for record in make_run(3, 4)
    ]
    header = make_header(EVIL, EVIL, model={"name": EVIL}, drafter={"kind": EVIL, "path": EVIL})
    return as_file(Trace(header, tuple(rounds), {"text": EVIL}))


@pytest.mark.parametrize("name", COMMANDS)
@in_little_memory()
def test_a_damaged_trace_is_shown_or_refused_with_one_sentence(name: str, call, tmp_path: Path):
    words, count = COMMANDS[name]
    path, codes = tmp_path / "t.jsonl", set()
    for number, data in enumerate([hostile(), *mutants(count, seed=len(name))]):
        path.write_bytes(data)
        named = words.format(path, path, out=tmp_path / f"{number}.csv").split()
        with at_most(SECONDS):
            code, out, said = call(*named)
        codes.add(code)
        assert code in (0, 1, 2), (number, said)
        assert "Traceback" not in out + said
        assert not UNSEEN.search(out + said), (number, UNSEEN.search(out + said))
        if code == 2:
            assert 0 < len(said.splitlines()) <= 2 and len(said) < 1000, said
        if (table := tmp_path / f"{number}.csv").exists():
            cells = [c for line in table.read_text("utf-8").splitlines() for c in line.split(",")]
            assert not any(c.strip('"')[:1] in "=@\t\r" for c in cells if c.strip('"'))
    assert {0, 2} <= codes
