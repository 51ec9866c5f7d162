"""Where training text comes from: prompt files, lists, Python sources, the target itself."""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from core.chat import last_message
from core.errors import UserError
from core.files import replacing
from core.journal import alone
from core.learning.shards import check_record, read_record, write_record
from core.models.language import Language
from core.progress import Progress, silent
from core.samples import Sample, digest, read_samples
from core.train.collect import (
    COLLECTING,
    Collector,
    CollectSettings,
    collect_all,
    synthesis_settings,
)
from core.train.options import TextOptions
from core.train.prompts import code_prompts, function_prompts, topic_prompts

PLAN = "prompts.json"
KEYS = {"temperature": "temperatures"}  # of a record, where it is not the field's name


@dataclass(frozen=True)
class Sources(TextOptions):
    """The sources of training text, at work."""

    @staticmethod
    def chosen(named: Mapping[str, Any], model: str, shards: Path) -> Sources:
        """The sources of the fields that are ``named``; the others are as the folder's text was
        made.

        Raises UserError for a file that cannot be read, and for other text than the folder holds.
        """
        sources = Sources(**named)
        record = sources.record(model)
        if not (shards / PLAN).exists():
            return sources
        check_record(shards, {n: record[n] for n in ("model", *(KEYS.get(n, n) for n in named))})
        made_of = read_record(shards)
        kept = {name: KEYS.get(name, name) for name in ("temperature", "batch", "seed")}
        return replace(sources, **{n: made_of[key] for n, key in kept.items() if key in made_of})

    def record(self, model: str) -> dict[str, Any]:
        """The source as the shards' record holds it: a file by its contents, wherever it lies.

        Raises UserError for a file that cannot be read.
        """
        return {KEYS.get(name, name): value for name, value in asdict(self).items()} | {
            "model": model,
            "prompts": [digest(read_samples(path)) for path in self.prompts],
            "code": [str(folder.resolve()) for folder in self.code],
            "held_out": self.held_out and digest(read_samples(self.held_out)),
        }

    def held_out_samples(self) -> list[Sample]:
        return read_samples(self.held_out) if self.held_out else []

    def settings(self, layers: tuple[int, ...]) -> CollectSettings:
        return CollectSettings(layers, tuple(self.temperature), batch=self.batch, seed=self.seed)

    def samples(self, language: Language, report: Progress = silent) -> list[Sample]:
        """Prompts of every kind, interleaved, each once, none overlapping the held-out ones."""
        kinds = [read_samples(path) for path in self.prompts]
        if self.code:
            kinds.append(code_prompts(self.code, self.code_limit, self.seed))
        if self.tasks:
            kinds += [make(self.seed)[: self.tasks] for make in (topic_prompts, function_prompts)]
        if self.synthesise:
            report(None, f"the target writes {self.synthesise} prompts")
            author = Collector(language, synthesis_settings(self.settings(())))
            kinds.append([Sample(t) for t in author.synthesise(self.synthesise, self.seed)])
        held_out = Overlap(last_message(sample.user) for sample in self.held_out_samples())
        rng = random.Random(self.seed)
        chosen, known = [], set[Sample]()
        for kind in kinds:
            rng.shuffle(kind)
            plain = dict.fromkeys(Sample(s.user, s.answer) for s in kind)
            apart = (
                s
                for s in plain
                if last_message(s.user) not in held_out and (s.answer or "") not in held_out
            )
            chosen.append([s for s in apart if s not in known][: self.per_file])
            known.update(chosen[-1])
        longest = max(map(len, chosen), default=0)
        return [kind[i] for i in range(longest) for kind in chosen if i < len(kind)]


def make_shards(
    language: Language,
    settings: CollectSettings,
    sources: Sources,
    folder: Path,
    report: Progress = silent,
) -> None:
    """The collecting stage. The list of prompts is written first, so that a resumed run continues
    it. Raises UserError where there is no prompt, and where another process makes shards there."""
    plan = folder / PLAN
    if not plan.exists():
        with alone(folder, COLLECTING):
            _write_plan(language, sources, folder, report)
    samples = [Sample(*pair) for pair in json.loads(plan.read_text())]
    collector = Collector(language, settings)
    with_answer = [s for s in samples if s.answer is not None]
    without = [s for s in samples if s.answer is None]
    for name, some in (("read", with_answer), ("answered", without)):
        collect_all(collector, some, folder, name, name, report)


def _write_plan(language: Language, sources: Sources, folder: Path, report: Progress) -> None:
    """Raises UserError where there is no prompt, and where another process wrote a plan since this
    one looked: it may be of other text."""
    if (folder / PLAN).exists():
        raise UserError(f"another process chose the text of {folder} meanwhile: try again")
    samples = sources.samples(language, report)
    if not samples:
        raise UserError("no training text: give --prompts, --code, --tasks or --synthesise")
    write_record(folder, sources.record(language.name))
    with replacing(folder / PLAN) as path:
        path.write_text(json.dumps([(s.user, s.answer) for s in samples]))


class Overlap:
    """Whether a text shares words with some held-out texts.

    Of a long held-out text any 13 words in a row are looked for, as is customary; of a shorter one
    all its words in a row, anywhere in the text. Fewer than 5 words are a phrase that any text may
    hold: so short a held-out text is only found as a whole text.
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
