"""Where training text comes from: prompt files, finished answers, Python code, the target itself.

Everything here yields plain strings or token ids; the target reads or continues them in
``core.train.collect``.
"""

from __future__ import annotations

import ast
import hashlib
import json
import math
import random
import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass
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


def read_lines(path: Path, most: float = math.inf) -> list[tuple[int, str]]:
    """The lines of a text file that are not blank, each with its number from 1 on.

    Only a newline ends one: a prompt may hold U+2028 and its like. A byte-order mark is no text.
    Raises UserError for a file that is not there, not readable, not UTF-8 or of more than ``most``
    bytes.
    """
    try:
        if path.stat().st_size > most:
            raise UserError(f"{path} is larger than {most / 2**20:.0f} MiB")
        text = path.read_text("utf-8-sig")
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8 text") from None
    lines = ((number, line.strip()) for number, line in enumerate(text.split("\n"), 1))
    return [(number, line) for number, line in lines if line]


def read_samples(path: Path) -> list[Sample]:
    """Samples from a ``.jsonl`` file: {user|prompt|question…, assistant|answer…?} a line.

    Raises UserError for a file that cannot be read or is empty, and naming the first line that
    has no user turn.
    """
    samples = []
    for number, line in read_lines(path):
        try:
            row = json.loads(line)
            user = next(row[f] for f in QUESTION_FIELDS if isinstance(row.get(f), str))
        except (ValueError, AttributeError, StopIteration, RecursionError):
            raise UserError(f"{path}:{number} is not a JSON object with a prompt") from None
        answer = next((row[f] for f in ANSWER_FIELDS if isinstance(row.get(f), str)), None)
        if answer is not None:
            answer = without_marks(answer)
        samples.append(Sample(user, answer, str(row.get("source", ""))))
    if not samples:
        raise UserError(f"{path} holds no prompt")
    return samples


def digest(samples: Iterable[Sample]) -> str:
    """Tells some samples from any others, wherever the file of them lies."""
    said = json.dumps([astuple(sample) for sample in samples])
    return hashlib.blake2b(said.encode(), digest_size=16).hexdigest()


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


def is_loop(tokens: list[int], period: int = 24, repeats: int = 4) -> bool:
    """Whether the text ends in a short cycle: such answers teach a drafter only to repeat."""
    for size in range(1, period + 1):
        tail = tokens[-size * repeats :]
        if len(tail) == size * repeats and tail == tail[:size] * repeats:
            return True
    return False


class Overlap:
    """Whether a text shares words with a held-out set.

    Of a long held-out text any 13 words in a row are looked for, as is customary; of one with
    fewer all its words in a row, wherever they stand in the text. Fewer than 5 are no more than a
    phrase that any text may hold: so short a held-out text is only found as a whole text.
    """

    SIZE, PHRASE = 13, 5

    def __init__(self, held_out: Iterable[str]):
        self._grams: dict[int, set[bytes]] = {}  # by how many words they have
        for words in filter(None, map(_words, held_out)):
            size = min(self.SIZE, len(words))
            self._grams.setdefault(size, set()).update(_word_grams(words, size))

    def __contains__(self, text: str) -> bool:
        words = _words(text)
        return any(
            gram in grams
            for size, grams in self._grams.items()
            if size >= self.PHRASE or size == len(words)
            for gram in _word_grams(words, size)
        )


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _word_grams(words: list[str], size: int) -> Iterator[bytes]:
    for start in range(len(words) - size + 1):
        gram = " ".join(words[start : start + size])
        yield hashlib.blake2b(gram.encode(), digest_size=8).digest()
