"""A few prompts for checks and comparisons that name none: math, code and chat."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Prompt:
    """A prompt, and the source that its file names ("maths", "code")."""

    text: str
    source: str = ""


PROMPTS = (
    "Darrell has 7 apples and gives 3 of them to Ann. How many apples does he have left? Explain.",
    "Write a Python function that returns the n-th Fibonacci number.",
    "Why is the sky blue? Answer in three sentences.",
    "List five things to pack for a weekend in the mountains, with one reason each.",
)
