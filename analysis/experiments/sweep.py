"""A sweep: what is run (methods × budgets × prompts × seeds), and what came of it. Never torch.

A run is named after what decides it, so it has the same name in a larger sweep. Its line in the
table is read from its trace's header and footer alone. Where all lies: ``sweep_folder``.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import product
from typing import Any

import pandas as pd
import pyarrow as pa

from analysis.experiments.prompts import Prompt
from analysis.experiments.variants import Variant, variants_of
from analysis.frames import Frame, declared
from core.decoding.request import RunRequest
from core.json_input import parse_json
from core.methods.method import Value, file_name
from core.methods.names import PLAIN
from core.methods.registry import split
from core.stats import tau_interval
from core.traces.schema import STAGES, Header, Trace

Row = dict[str, Any]  # a line of the table, by column


@dataclass(frozen=True)
class Terms:
    """The settings that all runs of a sweep share; ``probe``: traces hold p, TVD and coverage."""

    model: str
    drafter: str | None = None
    template: dict[str, Value] = field(default_factory=dict)
    max_new_tokens: int = 128
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    probe: bool = True


@dataclass(frozen=True)
class Job:
    """One run: a variant on a turn of a prompt with a seed.

    number   the prompt's in the plan
    turn     of a conversation, from 1
    opening  the conversation's first turn; None: this is it
    """

    variant: Variant
    prompt: Prompt
    number: int
    seed: int
    turn: int = 1
    opening: str | None = None

    @cached_property
    def name(self) -> str:
        """A file name: method and budget, and hashes of what no file name can hold."""
        one, method = self.variant, str(self.variant.method)
        stem = file_name(method)
        words = re.sub(r"[^A-Za-z0-9+_-]", "_", stem)[:40]
        exact = words == method and not one.options
        own = "" if exact else f"-{_hash([method, one.options])[:6]}"
        return f"{words}{own}-B{one.budget}-p{self.prompt_hash}-s{self.seed}"

    @property
    def file(self) -> str:
        return f"{self.name}.jsonl.gz"

    @property
    def prompt_hash(self) -> str:
        return _hash(self.prompt.text)[:12]

    @property
    def conversation(self) -> str:
        """The hash of the first turn: all turns share it."""
        return _hash(self.opening)[:12] if self.opening is not None else self.prompt_hash

    @property
    def title(self) -> str:
        turn = f" turn {self.turn}" if self.turn > 1 else ""
        return f"{variant_label(self.variant)}, prompt {self.number + 1}{turn}, seed {self.seed}"


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


@dataclass(frozen=True)
class Plan:
    """The runs of a sweep. Variants, prompts and seeds are each there once.

    files  (name, SHA-256) of the user's own files that decide runs: methods, weights, stores
    """

    terms: Terms
    variants: tuple[Variant, ...]
    prompts: tuple[Prompt, ...]
    seeds: tuple[int, ...] = (0,)
    files: tuple[tuple[str, str], ...] = ()

    def jobs(self, answer: Callable[[Job], str | None] = lambda _: None) -> list[Job]:
        """Every run once, of the turns that can be asked. The variants follow each other on every
        prompt: a slow hour of the machine hits all of them, and half a sweep compares as well as a
        whole one.

        answer  the text of a run that is done. The first variant's is what the next turn follows,
                for all: so they are compared on the same text
        """
        found: dict[str, Job] = {}
        for seed in self.seeds:
            for number, prompt in enumerate(self.prompts):
                for turn, asked in enumerate(self._turns(prompt, number, seed, answer), 1):
                    for variant in self.variants:
                        opening = prompt.text if turn > 1 else None
                        job = Job(variant, asked, number, seed, turn, opening)
                        found.setdefault(job.name, job)
        return list(found.values())

    def waiting(self, answer: Callable[[Job], str | None]) -> int:
        """How many runs are of turns that cannot be asked yet."""
        turns = (
            self._turns(prompt, number, seed, answer)
            for seed in self.seeds
            for number, prompt in enumerate(self.prompts)
        )
        return len(self.variants) * sum(len(list(asked)[-1].more) for asked in turns)

    def _turns(
        self, prompt: Prompt, number: int, seed: int, answer: Callable[[Job], str | None]
    ) -> Iterator[Prompt]:
        yield prompt
        while prompt.more:
            text = answer(Job(self.variants[0], prompt, number, seed))
            if text is None:
                return
            yield (prompt := prompt.answered(text))

    def as_json(self) -> dict[str, Any]:
        """Plain data, as a JSON file gives it back."""
        return {
            "terms": asdict(self.terms),
            "field": [
                {"method": v.method, "budget": v.budget, "options": dict(v.options)}
                for v in self.variants
            ],
            "prompts": [
                {name: value for name, value in asdict(prompt).items() if name != "more" or value}
                for prompt in self.prompts
            ],
            "seeds": list(self.seeds),
            "files": dict(self.files),
        }


def grid_variants(
    methods: Sequence[str], budgets: Sequence[int | None], options: Sequence[tuple[str, Value]]
) -> tuple[Variant, ...]:
    """``variants_of`` for every combination of the options' values: one named twice has two.

    Raises UserError as ``variants_of`` does.
    """
    values: dict[str, list[Value]] = {}
    for name, value in options:
        values.setdefault(name.replace("-", "_"), []).append(value)
    combinations = [dict(zip(values, some, strict=True)) for some in product(*values.values())]
    found = [variants_of(methods, budgets, some) for some in combinations]
    return tuple(dict.fromkeys(variant for some in found for variant in some))


def variant_label(variant: Variant) -> str:
    """The variant's name with the options that were set."""
    return " ".join([variant.name, *(f"{key}={value}" for key, value in variant.options)])


# ── the table ────────────────────────────────────────────────────────────────────────────────────

_TEXT, _WHOLE, _NUMBER = pa.string(), pa.int64(), pa.float64()
SCHEMA = pa.schema([
    *((name, _TEXT) for name in ("run", "method", "options")),
    *((name, _WHOLE) for name in ("budget", "seed", "prompt", "turn")),
    *((name, _TEXT) for name in ("source", "conversation", "prompt_hash", "prompt_text")),
    *((name, _WHOLE) for name in ("prompt_tokens", "tokens", "rounds")),
    *((name, _NUMBER) for name in ("tau", "seconds", "tokens_per_second", "prefill")),
    *((name, _NUMBER) for name in STAGES),
    ("same_as_plain", pa.bool_()),
    ("acceptance_lengths", pa.list_(_WHOLE)),
    ("token_ids", pa.list_(_WHOLE)),
    ("text", _TEXT),
    ("temperature", _NUMBER), ("top_k", _WHOLE), ("top_p", _NUMBER), ("max_new_tokens", _WHOLE),
    *((name, _TEXT) for name in ("model", "model_revision", "drafter", "drafter_sha256")),
    *((name, _TEXT) for name in ("dtype", "device", "hardware")),
    ("threads", _WHOLE),
    *((name, _TEXT) for name in ("created", "version", "trace", "error")),
])  # fmt: skip
_DTYPES = {_TEXT: "object", _WHOLE: "Int64", _NUMBER: "float64", pa.bool_(): "boolean"}


@declared("sweep")
def results(rows: Sequence[Row]) -> pd.DataFrame:
    """One line per run of a sweep. A failed run has its sentence in ``error`` and no numbers."""
    frame: Frame = pd.DataFrame(list(rows), columns=pd.Index(SCHEMA.names), dtype=object)
    for name in (f.name for f in SCHEMA if f.type == _TEXT):
        frame[name] = frame[name].map(_storable)
    kinds = {f.name: _DTYPES[f.type] for f in SCHEMA if f.type in _DTYPES}
    return frame.astype(kinds)


def _storable(value: object) -> object:
    """Text as Unicode that files can hold: a path may be of bytes that are none."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def row_of(job: Job, ends: Trace) -> Row | None:
    """The line of a finished run, or None for a trace that is not this run's or not whole."""
    header, footer = ends.header, ends.footer
    found = (header.method, header.prompt_text, header.seed)
    method = split(str(job.variant.method))[0]
    if footer is None or ends.lies or found != (method, job.prompt.text, job.seed):
        return None
    try:
        return {
            **dict.fromkeys(SCHEMA.names), **_request(job), **_measured(footer),
            **_environment(header, footer), "trace": job.file,
            "prompt_tokens": len(header.prompt_ids),
        }  # fmt: skip
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def failed_row(job: Job, terms: Terms, sentence: str) -> Row:
    rule = {k: getattr(terms, k) for k in ("temperature", "top_k", "top_p", "max_new_tokens")}
    return {**dict.fromkeys(SCHEMA.names), **_request(job), **rule, "error": sentence}


def _request(job: Job) -> Row:
    one = job.variant
    return {
        "run": job.name, "method": one.method, "options": json.dumps(dict(one.options)),
        "budget": one.budget, "seed": job.seed, "prompt": job.number, "turn": job.turn,
        "source": job.prompt.source, "conversation": job.conversation,
        "prompt_hash": job.prompt_hash, "prompt_text": job.prompt.text,
    }  # fmt: skip


def _measured(footer: Mapping[str, Any]) -> Row:
    """Raises KeyError, TypeError or ValueError for a footer that lacks something."""
    lengths, tokens = _wholes(footer["acceptance_lengths"]), _wholes(footer["token_ids"])
    seconds = float(footer["wall_seconds"])
    stages = {stage: float(footer["seconds"][stage]) for stage in STAGES}
    return {
        "tokens": len(tokens), "rounds": len(lengths),
        "tau": sum(lengths) / len(lengths) if lengths else None,
        "seconds": seconds, "tokens_per_second": len(tokens) / seconds if seconds > 0 else None,
        "prefill": float(footer["prefill_seconds"]), **stages,
        "acceptance_lengths": lengths, "token_ids": tokens, "text": str(footer["text"]),
    }  # fmt: skip


def _wholes(values: Any) -> list[int]:
    if not isinstance(values, list) or not all(type(v) is int and 0 <= v < 1 << 63 for v in values):
        raise ValueError
    return values


def _environment(header: Header, footer: Mapping[str, Any]) -> Row:
    settings, rule = header.settings, header.settings["sampling"]
    texts = {
        "model": header.model.get("name"), "model_revision": header.model.get("revision"),
        "drafter": header.drafter.get("kind"), "drafter_sha256": header.drafter.get("sha256"),
        "dtype": header.dtype, "device": header.device, "hardware": footer.get("hardware"),
        "created": header.created, "version": header.creator.get("version"),
    }  # fmt: skip
    numbers = [footer.get("threads", 0), rule["top_k"], settings["max_new_tokens"]]
    return {
        **{k: None if v is None else str(v) for k, v in texts.items()},
        **dict(zip(("threads", "top_k", "max_new_tokens"), _wholes(numbers), strict=True)),
        "temperature": float(rule["temperature"]), "top_p": float(rule["top_p"]),
    }  # fmt: skip


def with_same_as_plain(rows: Sequence[Row]) -> list[Row]:
    """The lines with ``same_as_plain``: token for token, on the same prompt with the same seed;
    None where there is no such plain run, or the method need not write its text."""
    plain = {
        (row["prompt_hash"], row["seed"]): row["token_ids"]
        for row in rows if row["method"] == PLAIN and row["error"] is None
    }  # fmt: skip
    return [row | {"same_as_plain": _same(row, plain)} for row in rows]


def _same(row: Row, plain: Mapping[tuple[str, int], list[int]]) -> bool | None:
    expected = plain.get((row["prompt_hash"], row["seed"]))
    if expected is None or row["error"] is not None or not _keeps_text(row):
        return None
    return row["token_ids"] == expected


def _keeps_text(row: Row) -> bool:
    options = tuple(parse_json(row["options"], "options").items())
    temperature = float(row["temperature"])
    return RunRequest("", row["method"], temperature=temperature, options=options).keeps_text


# ── scores ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class VariantScore:
    """A variant over all of its runs.

    texts        different ones: prompts, or prompts × seeds where the seed decides
    tau          Σ acceptance lengths ÷ rounds, with its 95 % bootstrap interval ``low``, ``high``:
                 whole prompts with their turns are resampled, or single rounds when there is one
    same         runs with plain decoding's tokens, of ``judged`` that could be with_same_as_plain
    """

    name: str
    runs: int
    failed: int
    texts: int
    tau: float | None
    low: float
    high: float
    tokens_per_second: float | None
    same: int
    judged: int


def scores(plan: Plan, rows: Sequence[Row]) -> list[VariantScore]:
    """A score per variant of the plan, in its order, from the rows of ``with_same_as_plain``."""
    by: dict[tuple[str, int, str], list[Row]] = {}
    for row in rows:
        by.setdefault((row["method"], row["budget"], row["options"]), []).append(row)

    def own(one: Variant) -> list[Row]:
        return by.get((str(one.method), one.budget, json.dumps(dict(one.options))), [])

    return [variant_score(variant_label(one), own(one)) for one in plan.variants]


def variant_score(name: str, rows: Sequence[Row]) -> VariantScore:
    good = [row for row in rows if row["error"] is None]
    texts: set[tuple[str, int]] = set()
    prompts: dict[str, list[int]] = {}
    for row in good:
        texts.add((row["prompt_hash"], row["seed"] if row["temperature"] > 0 else 0))
        unit = row.get("conversation") or row["prompt_hash"]
        prompts.setdefault(unit, []).extend(row["acceptance_lengths"])
    tokens, seconds = sum(row["tokens"] for row in good), sum(row["seconds"] for row in good)
    judged = [row["same_as_plain"] for row in good if row["same_as_plain"] is not None]
    return VariantScore(
        name, len(good), len(rows) - len(good), len(texts), *tau_interval(list(prompts.values())),
        tokens / seconds if seconds > 0 else None, sum(judged), len(judged),
    )  # fmt: skip
