"""How numbers are written: one table for the terminal and the page (tests/web/dom.test.js)."""

from __future__ import annotations

import json

import pytest

from analysis import numbers
from tests import GOLDEN

FORMATS = json.loads((GOLDEN / "formats.json").read_text("utf-8"))
CASES = [(name, *case) for name, cases in FORMATS.items() for case in cases]


@pytest.mark.parametrize(("name", "value", "text"), CASES)
def test_numbers_are_written_as_the_page_writes_them(name: str, value: object, text: str):
    given = value if isinstance(value, list) else [value]
    write = getattr(numbers, name)
    assert write(*(float(each) if each is not None else None for each in given)) == text


def test_a_table_and_a_sentence_round_a_share_alike():
    shares = [k / n for n in range(1, 201) for k in range(n + 1)]
    unlike = [
        x for x in shares if numbers.number(x).replace(".", "") != numbers.share(x, 0)[:-1].zfill(3)
    ]
    assert not unlike
