"""The text of a run as it grows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.decoding import BEHIND, SoFar


def shown(tokens: list[int]) -> str:
    """Tokens that are bytes; as SentencePiece decodes them, without a blank at the start."""
    return bytes(tokens).decode(errors="replace").removeprefix(" ")


@given(st.lists(st.text("a é€🔬", max_size=9), max_size=9), st.data())
def test_the_text_after_each_round_is_that_of_all_its_tokens(words, data):
    tokens = list("".join(words).encode())
    ends = sorted(data.draw(st.lists(st.integers(0, len(tokens)), max_size=9)))
    run: Any = SimpleNamespace(tokens=sum_of, text=shown)
    so_far = SoFar(run, rounds := [])
    for start, end in zip([0, *ends], ends, strict=False):
        rounds.append(tokens[start:end])
        assert so_far.text == shown(tokens[:end])


def sum_of(rounds: list[list[int]]) -> list[int]:
    return [token for each in rounds for token in each]


def test_a_long_text_is_not_decoded_anew():
    decoded = list[int]()

    def text(tokens: list[int]) -> str:
        decoded.append(len(tokens))
        return shown(tokens)

    run: Any = SimpleNamespace(tokens=sum_of, text=text)
    so_far = SoFar(run, rounds := [])
    for _ in range(50):
        rounds.append(list(b"four"))
        so_far.text  # noqa: B018
    assert max(decoded) == BEHIND + 4
