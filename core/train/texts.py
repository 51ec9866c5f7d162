"""Where training text comes from: prompt files, finished answers, Python code, the target itself.

Everything here yields plain strings or token ids; the target reads or continues them in
``core.train.collect``.
"""

from __future__ import annotations

import ast
import hashlib
import json
import random
import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from core.errors import UserError

QUESTION_FIELDS = ("user", "prompt", "question", "instruction")
ANSWER_FIELDS = ("assistant", "answer", "response", "output")
CODE_ASKS = (
    "Complete the code I provided.\n\n{}",
    "Complete the code I provided.\n{}",
    "Write the body of this Python function.\n\n{}",
    "Finish this function:\n\n{}",
    "{}",
)


@dataclass(frozen=True)
class Sample:
    """A user turn, the answer to it where the file has one, and where the file says it is from."""

    user: str
    answer: str | None = None
    source: str = ""


def read_samples(path: Path) -> list[Sample]:
    """Samples from a ``.jsonl`` file: {user|prompt|question…, assistant|answer…?} a line.

    Raises UserError naming the first line that has no user turn.
    """
    samples = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            user = next(row[f] for f in QUESTION_FIELDS if isinstance(row.get(f), str))
        except (ValueError, AttributeError, StopIteration):
            raise UserError(f"{path}:{number} is not a JSON object with a prompt") from None
        answer = next((row[f] for f in ANSWER_FIELDS if isinstance(row.get(f), str)), None)
        if answer is not None:
            answer = without_marks(answer)
        samples.append(Sample(user, answer, str(row.get("source", ""))))
    return samples


def without_marks(answer: str) -> str:
    """An answer without GSM8K's calculator marks, <<1+1=2>>."""
    return re.sub(r"<<[^>]*>>", "", answer)


def code_prompts(folders: Iterable[Path], limit: int, seed: int = 0) -> list[Sample]:
    """User turns asking for a function's body, from documented functions in Python sources."""
    rng = random.Random(seed)
    files = sorted(f for folder in folders for f in folder.rglob("*.py"))
    rng.shuffle(files)
    prompts: list[Sample] = []
    for file in files:
        for stub in _stubs(file):
            prompts.append(Sample(rng.choice(CODE_ASKS).format(stub)))
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
    lines = source.splitlines()
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef) or len(node.body) < 2:
            continue
        doc = ast.get_docstring(node)
        if not doc or not 40 <= len(doc) <= 600 or node.name.startswith("test"):
            continue
        stub = textwrap.dedent("\n".join(lines[node.lineno - 1 : node.body[0].end_lineno]))
        if len(stub) < 900:
            yield stub + "\n"


def is_loop(tokens: list[int], period: int = 24, repeats: int = 4) -> bool:
    """Whether the text ends in a short cycle: such answers teach a drafter only to repeat."""
    for size in range(1, period + 1):
        tail = tokens[-size * repeats :]
        if len(tail) == size * repeats and tail == tail[:size] * repeats:
            return True
    return False


class Overlap:
    """Whether a text shares an n-gram of words with a held-out set (n = 13, as is customary)."""

    def __init__(self, held_out: Iterable[str], size: int = 13):
        self.size = size
        self.grams = {gram for text in held_out for gram in self._grams(text)}

    def _grams(self, text: str) -> Iterator[bytes]:
        words = re.findall(r"\w+", text.lower())
        for start in range(max(1, len(words) - self.size + 1)):
            gram = " ".join(words[start : start + self.size])
            yield hashlib.blake2b(gram.encode(), digest_size=8).digest()

    def __contains__(self, text: str) -> bool:
        return any(gram in self.grams for gram in self._grams(text))
