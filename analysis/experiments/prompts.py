"""The prompts of an experiment, and a few for those that name none: math, code and chat."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from core.chat import ASSISTANT, chat_of


@dataclass(frozen=True)
class Prompt:
    """A prompt, and the source that its file names ("maths", "code").

    more  what the user asks in further turns, each after the answer to the one before
    """

    text: str
    source: str = ""
    more: tuple[str, ...] = ()

    def answered(self, answer: str) -> Prompt:
        """The next turn: the chat so far with its answer, and what the user asks then."""
        chat, (asked, *more) = chat_of(self.text), self.more
        said = [
            *chat.messages,
            {"role": ASSISTANT, "content": answer},
            {"role": "user", "content": asked},
        ]
        return Prompt(replace(chat, messages=said).prompt, self.source, tuple(more))


def count_turns(prompts: Iterable[Prompt]) -> int:
    """How many texts are asked for."""
    return sum(1 + len(prompt.more) for prompt in prompts)


PROMPTS = (
    "Darrell has 7 apples and gives 3 of them to Ann. How many apples does he have left? Explain.",
    "Write a Python function that returns the n-th Fibonacci number.",
    "Why is the sky blue? Answer in three sentences.",
    "List five things to pack for a weekend in the mountains, with one reason each.",
)
