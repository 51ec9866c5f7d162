"""``run``: decode prompts with one method.

One prompt streams its text and ends with a table; several print a line each and a total; with
``--json`` stdout carries one JSON object per prompt and nothing else.

``seconds`` is the decoding alone, from the prompt's first forward to the last round: observing,
logging and printing are left out.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from app.commands import common
from app.terminal import GrowingText, Progress, bar, console, one_line, say, table
from core.errors import UserError
from core.rounds.round import Round
from core.traces.reader import TraceReader
from core.traces.schema import ENDINGS, summary
from core.traces.writer import TraceWriter

if TYPE_CHECKING:
    from core.decoding.decode import Observation, Seen
    from core.decoding.engine import Engine, Run, RunRequest

Watch = Callable[[str, int], None]  # (the text so far, its tokens)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    common.add_method_options(parser)
    common.add_prompt_options(parser, required=True)
    group = parser.add_argument_group("decoding")
    group.add_argument(
        "--budget", type=common.whole, metavar="N", help="drafted nodes a round, 1 to 1024"
    )
    group.add_argument(
        "--max-new-tokens", type=common.whole, default=128, metavar="N", help="default 128"
    )
    common.add_sampling_options(parser, temperature=0.0)
    common.add_model_options(parser)
    group = parser.add_argument_group("output")
    group.add_argument(
        "--trace",
        type=Path,
        metavar="FILE",
        help="log every round (.jsonl or .jsonl.gz); several prompts: FILE-1, FILE-2, …",
    )
    group.add_argument("--json", action="store_true", help="one JSON object per prompt on stdout")
    group.add_argument(
        "--no-probe", action="store_true", help="log without the target's beliefs, TVD, coverage"
    )


@dataclass(frozen=True)
class Job:
    """What all prompts of one command have in common."""

    engine: Engine
    request: RunRequest
    trace: Path | None
    probe: bool
    told: Mapping[str, Any] = field(default_factory=dict)  # more for the trace's footer


@dataclass(frozen=True, eq=False)
class Done:
    """One decoded prompt. ``seconds`` and ``prefill`` leave observing and logging out."""

    request: RunRequest
    budget: int
    rounds: tuple[Round, ...]
    tokens: tuple[int, ...]
    text: str
    seconds: float
    prefill: float

    @property
    def tokens_per_second(self) -> float:
        return len(self.tokens) / self.seconds if self.seconds > 0 else 0.0

    @property
    def stages(self) -> dict[str, float]:
        """Seconds by stage, in the order they happen."""
        return {"prefill": self.prefill, **summary(self.rounds)["seconds"]}

    def as_json(self) -> dict[str, Any]:
        numbers = summary(self.rounds)
        asked = asdict(self.request)
        keys = ("prompt", "method", "max_new_tokens", "temperature", "top_k", "top_p", "seed")
        return {
            **{key: asked[key] for key in keys},
            "options": dict(self.request.options),
            "budget": self.budget,
            "token_ids": list(self.tokens),
            "text": self.text,
            "tokens": len(self.tokens),
            "rounds": numbers["rounds"],
            "tau": numbers["tau"],
            "acceptance_lengths": numbers["acceptance_lengths"],
            "seconds": self.seconds,
            "stage_seconds": self.stages,
            "tokens_per_second": self.tokens_per_second,
        }


def main(args: argparse.Namespace) -> int:
    prompts = common.chosen_prompts(args)
    check_trace(args.trace, len(prompts))
    job = _job(args)
    if len(prompts) > 1:
        return _many(job, prompts, args.json)
    if args.json:
        with Progress("decoding", args.max_new_tokens) as progress:
            done = decode(job, prompts[0], lambda _, count: progress.at(count))
        print_json(done.as_json())
        return 0
    text = GrowingText(sys.stdout)
    try:
        done = decode(job, prompts[0], lambda so_far, _: text.show(so_far))
    except KeyboardInterrupt:
        print(flush=True)  # the shell's prompt does not continue the model's line
        raise
    text.show(done.text, final=True)
    print("\n")
    _print_report(done)
    if args.trace is not None:
        say(f"trace written to {args.trace}")
    return 0


def _job(args: argparse.Namespace) -> Job:
    """Check the settings, then load the models: a typo must not cost half a minute."""
    request = common.asked(args, common.chosen_method(args), args.budget)
    request.settings()
    engine = common.load_engine(args, [request.method])
    target = engine.target(engine.method(request.method, dict(request.options)))
    if target.device.type == "cuda" and target.obstacle is not None:
        say(f"{args.model} is read without CUDA graphs: {target.obstacle}")
    return Job(engine, request, args.trace, probe=not args.no_probe)


def decode(job: Job, prompt: str, watch: Watch = lambda *_: None) -> Done:
    """Decode one prompt, logging it if the job says so; an interrupted log keeps what it has.

    Raises UserError when the prompt does not fit or the log cannot be written.
    """
    from core.decoding.decode import new_tokens

    request = replace(job.request, prompt=prompt)
    observer = _Observer() if job.trace is not None and job.probe else None
    run = job.engine.start(request, observer)
    clock, rounds, text = Clock(run.rounds, observer), list[Round](), ""
    with Log(job.trace, run) as log:
        for record in clock:
            rounds.append(record)
            log.write(record)
            tokens = new_tokens(rounds)
            text = run.text(tokens)
            watch(text, len(tokens))
        tokens = tuple(new_tokens(rounds))
        told = {"prefill_seconds": clock.prefill, "token_ids": list(tokens), **job.told}
        log.finish(text, clock.seconds, told)
    budget = run.header.settings["budget"]
    return Done(request, budget, tuple(rounds), tokens, text, clock.seconds, clock.prefill)


@dataclass(eq=False)
class _Observer:
    """The probe with a stopwatch: what looking costs is not decoding time."""

    seconds: float = 0.0

    def __call__(self, seen: Seen) -> Observation:
        from analysis.probe import observe

        start = time.perf_counter()
        seen_by_probe = observe(seen)
        self.seconds += time.perf_counter() - start
        return seen_by_probe


@dataclass(eq=False)
class Clock:
    """Iterates rounds and counts only the time spent waiting for them, the observer's taken off."""

    rounds: Iterator[Round]
    observer: _Observer | None
    _waited: float = field(default=0.0, init=False)
    prefill: float = field(default=0.0, init=False)
    _prefilled: bool = field(default=False, init=False)

    def __iter__(self) -> Iterator[Round]:
        while True:
            start = time.perf_counter()
            record = next(self.rounds, None)
            self._waited += time.perf_counter() - start
            if record is None:
                return
            if not self._prefilled:
                self._prefilled = True
                self.prefill = max(0.0, self.seconds - record.times.total)
            yield record

    @property
    def seconds(self) -> float:
        return self._waited - (self.observer.seconds if self.observer else 0.0)


class Log:
    """The trace of one run, or none. Its file is made when the first round is there, so a run that
    fails before leaves an older file alone."""

    def __init__(self, path: Path | None, run: Run):
        self._path, self._run = path, run
        self._writer: TraceWriter | None = None

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._guarded(self._writer.close)

    def write(self, record: Round) -> None:
        if self._path is None:
            return
        path, texted = self._path, self._run.with_texts(record)

        def append() -> None:
            if self._writer is None:
                self._writer = TraceWriter(path, self._run.header)
            self._writer.write(texted)

        self._guarded(append)

    def finish(self, text: str, seconds: float, more: Mapping[str, Any] | None = None) -> None:
        """Write the footer: the text, its seconds, and ``more``."""
        if self._writer is not None:
            writer = self._writer
            told = {"text": text, "wall_seconds": seconds, **(more or {})}
            self._guarded(lambda: writer.finish(**told))

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            with unbroken():
                action()
        except OSError as error:
            why = error.strerror or error
            raise UserError(f"the trace {self._path} cannot be written: {why}") from None


@contextmanager
def unbroken() -> Iterator[None]:
    """Ctrl-C waits until the block is done: half a gzip write would spoil what stands before it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt


def check_trace(path: Path | None, prompts: int) -> None:
    """Raises UserError for a trace, or a trace for each of several prompts, that cannot be written,
    or would replace a file that is none: a slip costs no text."""
    if path is None:
        return
    if not path.name.endswith(ENDINGS):
        raise UserError(f"the trace {path} must be named NAME{' or NAME'.join(ENDINGS)}")
    _check_place(path)
    for number in range(1, prompts + 1):
        _check_replaced(path if prompts == 1 else numbered(path, number))


def _check_replaced(path: Path) -> None:
    """Only its header is read. An empty file is what a run leaves that is killed before it."""
    if path.is_dir():
        raise UserError(f"the trace {path} cannot be written: it is a folder")
    if not path.is_file() or not path.stat().st_size:
        return
    try:
        with path.open("rb") as file:
            TraceReader(file, path.name)
    except (OSError, UserError):
        raise UserError(f"{path} exists and is no trace") from None


def _check_place(path: Path) -> None:
    above = path.absolute().parent
    while not above.exists():
        above = above.parent
    if not above.is_dir():
        raise UserError(f"the trace {path} cannot be written: {above} is no folder")


# ── output ───────────────────────────────────────────────────────────────────────────────────────


def print_json(value: dict[str, Any]) -> None:
    print(json.dumps(value), flush=True)


def _print_report(done: Done) -> None:
    out = console()
    numbers = summary(done.rounds)
    pace = f"{done.tokens_per_second:.1f}  ({done.seconds:.2f} s, prefill {done.prefill:.2f} s)"
    facts = [
        ("method", f"{done.request.method}, budget {done.budget}"),
        ("tokens", str(len(done.tokens))),
        ("rounds", str(numbers["rounds"])),
        ("τ", f"{numbers['tau']:.2f}"),
        ("tokens/s", pace),
    ]
    out.print(table(("", ""), facts, left=("",)))
    if not numbers["rounds"]:
        return
    out.print()
    out.print(table(("stage", "s", "ms/round", "share"), list(_stage_rows(done)), left=("stage",)))
    out.print()
    columns = ("acceptance length", "rounds", "")
    out.print(table(columns, list(_histogram(numbers["acceptance_lengths"])), left=("",)))


def _stage_rows(done: Done) -> Iterator[tuple[str, ...]]:
    """Each stage's seconds in all, per round, and share of the rounds (prefill is in none)."""
    stages = done.stages
    rounds, total = len(done.rounds), sum(stages.values()) - stages["prefill"]
    for name, seconds in stages.items():
        if name == "prefill":
            yield name, f"{seconds:.3f}", "–", "–"
        else:
            share = seconds / total if total else 0.0
            yield name, f"{seconds:.3f}", f"{seconds / rounds * 1e3:.2f}", f"{share:.1%}"


def _histogram(lengths: list[int]) -> Iterator[tuple[str, ...]]:
    """Rounds by acceptance length (accepted nodes + 1), gaps included."""
    counts = Counter(lengths)
    for length in range(1, max(lengths) + 1):
        yield str(length), str(counts[length]), bar(counts[length], max(counts.values()))


@dataclass(frozen=True)
class _Total:
    """Several prompts together."""

    prompts: int
    tokens: int
    rounds: int
    committing: int  # Σ acceptance lengths
    seconds: float

    def plus(self, done: Done) -> _Total:
        numbers = summary(done.rounds)
        return _Total(
            self.prompts + 1,
            self.tokens + len(done.tokens),
            self.rounds + numbers["rounds"],
            self.committing + sum(numbers["acceptance_lengths"]),
            self.seconds + done.seconds,
        )

    @property
    def line(self) -> str:
        tau = self.committing / self.rounds if self.rounds else 1.0
        pace = self.tokens / self.seconds if self.seconds > 0 else 0.0
        return (
            f"{self.prompts} prompts · {self.tokens} tokens · {self.rounds} rounds · τ {tau:.2f} · "
            f"{self.seconds:.1f} s · {pace:.1f} tokens/s"
        )


def _many(job: Job, prompts: list[str], as_json: bool) -> int:
    """One prompt after the other. One that fails is reported and the rest goes on; then exit 2."""
    total, failed = _Total(0, 0, 0, 0, 0.0), 0
    if not as_json:
        print(f"{'prompt':>8} {'tokens':>7} {'rounds':>7} {'τ':>6} {'s':>7} {'tokens/s':>9}  text")
    with Progress("decoding", len(prompts)) as progress:
        for index, prompt in enumerate(prompts, 1):
            progress.at(index - 1, f"prompt {index} of {len(prompts)}")
            own = replace(job, trace=numbered(job.trace, index))
            try:
                done = decode(own, prompt)
            except UserError as error:
                failed += 1
                say(f"prompt {index}: {error}")
                if as_json:
                    print_json({"prompt": prompt, "error": str(error)})
                continue
            total = total.plus(done)
            if as_json:
                print_json(done.as_json())
            else:
                print(_line(index, done), flush=True)
    print(total.line, file=sys.stderr if as_json else sys.stdout, flush=True)
    if failed:
        raise UserError(f"{failed} of {len(prompts)} prompts could not be decoded")
    return 0


def _line(index: int, done: Done) -> str:
    numbers = summary(done.rounds)
    return (
        f"{index:>8} {len(done.tokens):>7} {numbers['rounds']:>7} {numbers['tau']:>6.2f} "
        f"{done.seconds:>7.2f} {done.tokens_per_second:>9.1f}  {one_line(done.text, 60)}"
    )


@overload
def numbered(path: None, index: int) -> None: ...
@overload
def numbered(path: Path, index: int) -> Path: ...
def numbered(path: Path | None, index: int) -> Path | None:
    """run.jsonl.gz → run-3.jsonl.gz"""
    if path is None:
        return None
    stem, dot, suffixes = path.name.partition(".")
    return path.with_name(f"{stem}-{index}{dot}{suffixes}")
