"""JSON from outside: limits, lone surrogates, and one sentence for what is refused."""

import json
import time
from contextlib import suppress

import pytest

from core import json_input
from core.errors import UserError
from core.json_input import MAX_DEPTH, parse_json, read_json


@pytest.mark.parametrize("value", [None, True, 0, -1.5, "x", "🤝 \u2028", [], {"a": [1, {"b": 2}]}])
def test_what_json_can_say_is_read(value):
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
        assert parse_json(text, "x") == parse_json(text.encode(), "x") == value


@pytest.mark.parametrize("shape", ["[{}]", '{{"a":{}}}', '[{{"a":{}}}]'])
def test_nesting_is_limited(shape):
    def nested(levels: int) -> str:
        text = "1"
        for _ in range(levels // (shape.count("[") + shape.count("{{"))):
            text = shape.format(text)
        return text

    assert parse_json(nested(MAX_DEPTH), "x")
    with pytest.raises(UserError, match="nested deeper than 64 levels"):
        parse_json(nested(MAX_DEPTH + 2), "x")


@pytest.mark.parametrize("unit", ["[", '{"a":', '[{"a":'])
@pytest.mark.parametrize("closed", [False, True])
def test_a_hundred_thousand_levels_are_one_sentence(unit, closed):
    end = unit[::-1].translate(str.maketrans("[{", "]}", '"a:')) if closed else ""
    with pytest.raises(UserError, match=r"^x is nested deeper"):
        parse_json(unit * 100_000 + "1" * closed + end * 100_000, "x")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "nonsense",
        "[1,]",
        "'a'",
        '"\\x"',
        b"\xff",
        b'{"a": "\xe9"}',
        "[1" + "0" * 9999 + "]",
    ],
)
def test_what_is_no_json_is_one_sentence(text):
    with pytest.raises(UserError, match=r"^my file is not JSON$"):
        parse_json(text, "my file")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400", "-1e999"])
def test_numbers_beyond_all_range_are_refused(number):
    with pytest.raises(UserError, match="a number beyond all range"):
        parse_json(f'{{"a": [{number}]}}', "x")


def test_whole_numbers_are_exact():
    assert parse_json(str(2**70), "x") == 2**70


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (r'"\ud800"', "\ufffd"),
        (r'"a\udc00\ud800b"', "a\ufffd\ufffdb"),
        (r'"\ud83e\udd1d"', "🤝"),
        (r'"\ud800\ud83e\udd1d"', "\ufffd🤝"),
        (r'"\\ud800"', r"\ud800"),
        ('"\ud800"', "\ufffd"),
        (b'"\xed\xa0\x80"', "\ufffd"),
        (r'{"\ud800": ["\udfff", {"x": "\uDABC"}]}', {"\ufffd": ["\ufffd", {"x": "\ufffd"}]}),
    ],
)
def test_lone_surrogates_become_replacement_characters(text, read):
    found = parse_json(text, "x")
    assert found == read
    json.dumps(found, ensure_ascii=False).encode()


def test_size_and_number_of_values_are_limited(monkeypatch):
    assert len(parse_json("[" + "1," * 1000 + "1]", "x")) == 1001
    monkeypatch.setattr(json_input, "MAX_VALUES", 1000)
    for text in ("[" + "1," * 1000 + "1]", "[" * 600 + "{}," * 600, "[" + "{}," * 1000 + "1]"):
        with pytest.raises(UserError, match="more than 1,000 values"):
            parse_json(text, "x")
    assert parse_json(json.dumps("x" * 9000), "x")
    monkeypatch.setattr(json_input, "MAX_BYTES", 1 << 20)
    with pytest.raises(UserError, match="larger than 1 MB"):
        parse_json(json.dumps("x" * (1 << 20)), "x")


@pytest.mark.parametrize("unit", ["[],", '{"":0},', '"\\u0041",', '""', "\\", "1" * 4000 + ","])
def test_time_grows_with_size_alone(unit):
    """One that grows with its square would take an hour."""
    text = "[" + unit * (4_000_000 // len(unit)) + "1]"
    began = time.process_time()
    with suppress(UserError):
        parse_json(text, "x")
    assert time.process_time() - began < 60


def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path):
    (tmp_path / "a.json").write_text('\ufeff{"a": 1}', "utf-8")
    assert read_json(tmp_path / "a.json") == {"a": 1}
    for path in (tmp_path, tmp_path / "nowhere.json"):
        with pytest.raises(UserError, match="cannot be read"):
            read_json(path)
