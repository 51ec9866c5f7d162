"""How bad input is refused: with one sentence."""

from __future__ import annotations


def is_one_sentence(err: str) -> bool:
    last = err.splitlines()[-1]
    return last.startswith("draftscope: ") and "Traceback" not in err and "usage:" not in err


def one_sentence(error):
    text = str(error.value)
    return "\n" not in text and 10 < len(text) < 500
