"""The writer's process: messages from the serving process become traces, one for each request.

It has its own time and memory, so that neither JSON nor the disk costs the serving process a step.
A request that lost a step ends there, without a footer: a trace never has a hole.

Shapes: a message holds R rows of all its requests, one request after another, roots first. Parents
are rows of the message; a row that is not the root and has none is not part of its tree. Arrays
named in ``BY_REQUEST`` have an entry a request.
"""

# pyright: reportMissingImports=false
# The wheel packs a part of ``core`` beside this file.

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from .channel import read
from .core.errors import UserError
from .core.rounds.draft import NOT_ASKED, Candidates, Proposal
from .core.rounds.round import Probe, Round, TargetProbs, Times
from .core.traces.record import Recorder, with_proposal

BY_REQUEST = ("out", "position")
SAID = 60.0  # seconds between two sentences about a disk

Arrays = Mapping[str, np.ndarray]
Limits = dict[str, int | None]  # of ``Proposal``


@dataclass(eq=False)
class Request:
    """A request that is being written.

    last       the last token of its text: the next round's root; None: the prompt's pass is awaited
    new, most  new tokens so far; where its text ends at the latest
    stops      tokens that end it
    """

    prompt: list[int]
    sampling: dict[str, Any]
    settings: dict[str, Any]
    path: Path
    most: int
    stops: frozenset[int]
    last: int | None = None
    new: int = 0
    recorder: Recorder | None = None
    ended: bool = False


@dataclass(eq=False)
class Totals:
    """The sums of a recording, counted as engines count: ``drafts`` are rounds that drafted."""

    requests: int = 0
    rounds: int = 0
    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    lost_steps: int = 0
    broken_requests: int = 0


@dataclass(eq=False)
class Writer:
    """Turns messages into files in ``folder``.

    header    what the engine said of itself, as ``listening.first_message`` makes it
    finished  the bytes of each finished trace that was not removed, oldest first; ``held``: of all
    """

    folder: Path
    header: dict[str, Any]
    max_bytes: int
    name: str
    text: Callable[[list[int]], str] | None = None
    requests: dict[str, Request] = field(default_factory=dict)
    totals: Totals = field(default_factory=Totals)
    finished: dict[Path, int] = field(default_factory=dict)
    held: int = 0
    count: int = 0
    said: float = -SAID

    def step(self, facts: dict[str, Any], arrays: Arrays) -> None:
        """One step of the engine: requests that began, their rounds, requests that ended."""
        self.totals.lost_steps = facts.get("lost", 0)
        if facts.get("gap"):
            for name in list(self.requests):
                self._end(name, whole=False)
        for name in facts.get("finished", ()):
            self._end(name, whole=True)
        for name, about in facts.get("new", {}).items():
            self._begin(name, about)
        row = 0
        for at, (name, count) in enumerate(facts.get("rows", ())):
            request = self.requests.get(name)
            if request is not None and not request.ended:
                self._guarded(name, request, facts, arrays, at, slice(row, row + count))
            row += count

    def close(self) -> None:
        """The serving process is gone: what is open was interrupted."""
        for name in list(self.requests):
            self._end(name, whole=False)
        self.sum_up()

    def _begin(self, name: str, about: dict[str, Any]) -> None:
        self._end(name, whole=False)  # an id that is used again
        self.count += 1
        settings = {
            **self.header.get("settings", {}),
            "request": name,
            "sampling": about["sampling"],
            **{name: about[name] for name in ("tag", "processors") if about.get(name)},
        }
        self.requests[name] = Request(
            prompt=about["prompt"],
            sampling=about["sampling"],
            settings=settings,
            path=self.folder / f"{self.name}-{self.count:06d}.jsonl.gz",
            most=about["most"],
            stops=frozenset(about["stops"]),
        )

    def _guarded(
        self,
        name: str,
        request: Request,
        facts: dict[str, Any],
        arrays: Arrays,
        at: int,
        rows: slice,
    ) -> None:
        try:
            self._round(request, facts, arrays, at, rows)
        except (UserError, OSError) as error:
            request.ended = True
            self.totals.broken_requests += 1
            with suppress(OSError):  # the disk is full: closing the file says so once more
                self._close(request, whole=False)
            if time.monotonic() - self.said > SAID:
                self.said = time.monotonic()
                print(f"draftscope: the trace of request {name} ends: {error}", file=sys.stderr)

    def _round(
        self, request: Request, facts: dict[str, Any], arrays: Arrays, at: int, rows: slice
    ) -> None:
        out = [int(token) for token in arrays["out"][at] if token >= 0]
        if not out:  # a part of a long prompt
            return
        here = {name: x[rows] for name, x in arrays.items() if name not in BY_REQUEST}
        if request.last is None and facts.get("roots"):  # of an engine whose prefill is not heard
            request.last, request.new = int(here["tokens"][0]), 1
        elif request.last is None:
            request.last, request.new = out[-1], 1
            return
        place = len(request.prompt) + request.new - 1
        if "position" in arrays and arrays["position"][at] != place:
            raise UserError(
                f"the engine is at position {arrays['position'][at]} and the trace at {place}: it "
                "computed some of the text where the recorder does not listen"
            )
        here, parents = _tree(here, rows.start)
        tokens = [request.last, *here["tokens"][1:].tolist()]
        path = _walk(tokens, parents, out)
        recorder = request.recorder
        if recorder is None:
            recorder = request.recorder = self._recorder(request)
            self.totals.requests += 1
        keep = _cut(out, request)
        recorder.round(
            tokens,
            parents,
            path,
            out[-1],
            here["log_q"].tolist() if "log_q" in here else None,
            times=Times(draft=facts.get("draft", 0.0), verify=facts.get("verify", 0.0)),
            committed=out[:keep],
            more=lambda record: _seen(
                record, here, request.sampling, facts.get("deepest", 0), self._limits
            ),
        )
        request.last, request.new = out[-1], request.new + keep
        # An engine that schedules ahead verifies once more after a text's end.
        request.ended = keep < len(out) or request.new >= request.most or out[-1] in request.stops
        drafted = len(tokens) - 1
        self.totals.rounds += 1
        self.totals.drafts += drafted > 0
        self.totals.draft_tokens += drafted
        self.totals.accepted_tokens += len(path) - 1
        if request.ended:  # an engine that has nothing left to do says so with no step
            self._close(request, whole=True)

    @property
    def _limits(self) -> Limits:
        return {name: self.header.get(name) for name in ("read", "beam")}

    def _recorder(self, request: Request) -> Recorder:
        own = ("engine", "settings", "read", "beam")
        header = {name: value for name, value in self.header.items() if name not in own}
        text = self.text
        return Recorder(
            request.path,
            f"{self.header['engine']} {self.header.get('drafter', {}).get('kind', '')}".strip(),
            request.prompt,
            text=None if text is None else lambda token: text([token]),
            settings=request.settings,
            prompt_text="" if text is None else text(request.prompt),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            **header,
        )

    def _end(self, name: str, whole: bool) -> None:
        request = self.requests.pop(name, None)
        if request is not None:
            self.totals.broken_requests += not whole and not request.ended
            try:
                self._close(request, whole)
            except OSError as error:
                print(f"draftscope: {request.path} is cut: {error}", file=sys.stderr)

    def _close(self, request: Request, whole: bool) -> None:
        recorder, request.recorder = request.recorder, None
        if recorder is None:
            return
        try:
            recorder.__exit__(None if whole else RuntimeError, None, None)
        finally:  # a trace that is cut takes room, too
            self._finish(request.path)
            self.sum_up()

    def _finish(self, path: Path) -> None:
        """Remove the oldest traces where there are too many bytes."""
        with suppress(OSError):  # somebody took it away
            self.finished[path] = path.stat().st_size
            self.held += self.finished[path]
        while self.held > self.max_bytes:
            oldest = next(iter(self.finished))
            self.held -= self.finished.pop(oldest)
            oldest.unlink(missing_ok=True)

    def sum_up(self) -> None:
        """Write what was counted so far, beside the traces."""
        target = self.folder / f"{self.name}.json"
        unfinished = target.with_suffix(".tmp")
        try:
            unfinished.write_text(json.dumps(vars(self.totals)) + "\n")
            unfinished.replace(target)
        except OSError:  # the disk is full: the traces say so already
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)


def _tree(here: Arrays, begin: int) -> tuple[Arrays, list[int]]:
    """The rows of a request that its root leads to, and the row above each of them."""
    above = (here["parents"] - begin).tolist()
    kept = [0]
    for row, parent in enumerate(above[1:], 1):
        if parent in kept:
            kept.append(row)
    at = {row: n for n, row in enumerate(kept)}
    parents = [-1, *(at[above[row]] for row in kept[1:])]
    return (here if len(kept) == len(above) else {n: x[kept] for n, x in here.items()}), parents


def _walk(tokens: list[int], parents: list[int], out: list[int]) -> list[int]:
    """The accepted rows: those whose tokens are what came out, without the last one."""
    path = [0]
    for token in out[:-1]:
        below = (row for row, above in enumerate(parents) if row and above == path[-1])
        row = next((row for row in below if tokens[row] == token), None)
        if row is None:
            raise UserError("what the engine put out is not a path of its draft")
        path.append(row)
    return path


def _cut(out: list[int], request: Request) -> int:
    """How many of the tokens stand in the text: it ends at a stop token or at its longest."""
    room = max(0, request.most - request.new)
    stop = next((n for n, token in enumerate(out, 1) if token in request.stops), len(out))
    return min(len(out), room, stop)


def _seen(
    record: Round, here: Arrays, sampling: dict[str, Any], deepest: int, limits: Limits
) -> Round:
    """The round with p, q, and what the target said where it is known.

    deepest  the drafter's last depth in this step; 0: not known
    limits   ``read`` and ``beam``
    """
    verdict, count = record.verdict, len(record.draft)
    answers = verdict.target_tokens
    if "top" in here and not sampling.get("temperature"):
        greedy = here["top"][:, 0]
        answers = np.where(answers < 0, greedy, answers)
    record = replace(record, verdict=replace(verdict, target_tokens=answers))
    if "top" in here:
        probs = TargetProbs(
            here["log_p"], here["rank_p"], here["top"].astype(np.int64), here["top_log_p"],
            here["entropy"],
        )  # fmt: skip
        record = replace(record, target_probs=probs)
    if count == 1:
        return record
    if "q_top" not in here:  # the engine's length of a draft is known without q
        last = deepest and max(deepest, int(record.draft.depths.max()))
        return replace(record, draft=replace(record.draft, last=last))
    return _with_q(record, here, deepest, limits)


def _with_q(record: Round, here: Arrays, deepest: int, limits: Limits) -> Round:
    """q stands at the rows after which the drafter was asked."""
    asked = np.flatnonzero(here["asked"])
    after = np.full(len(record.draft), NOT_ASKED, np.int32)
    after[asked] = np.arange(len(asked))
    lists = Candidates(here["q_top"][asked].astype(np.int64), here["q_top_log"][asked])
    last = max(deepest, int(record.draft.depths.max()))
    draft = with_proposal(record.draft, Proposal(lists, after, last, **limits))
    path = [row for row in record.verdict.path if here["asked"][row]]
    probe = None
    if "tvd" in here and path:
        probe = Probe(*(here[n][path] for n in ("tvd", "coverage", "entropy_q", "rank_q")))
    return replace(record, draft=draft, probe=probe)


def reader_of(tokenizer: str) -> Callable[[list[int]], str] | None:
    """Ids → text, where the tokenizer is a file on this machine; else None."""
    try:
        from tokenizers import Tokenizer

        path = Path(tokenizer) / "tokenizer.json"
        if not path.is_file():
            from huggingface_hub import try_to_load_from_cache

            path = Path(str(try_to_load_from_cache(tokenizer, "tokenizer.json")))
        made = Tokenizer.from_file(str(path))
    except Exception:  # no such package or file, or one of another kind: ids are shown
        return None
    return lambda ids: made.decode(ids, skip_special_tokens=False)


def _claimed(folder: Path, name: str) -> str:
    """The name for this recording's files: no other recording in the folder has it.

    Servers in containers may share a folder, a process id and the second they begin in.
    """
    with suppress(OSError):  # each trace says so
        folder.mkdir(parents=True, exist_ok=True)
        for free in (name, *(f"{name}-{n}" for n in range(2, 1000))):
            with suppress(FileExistsError):
                (folder / f"{free}.json").touch(exist_ok=False)
                return free
    return name


def main() -> None:
    """Read messages from standard input until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, whose pipe then ends
    pipe = sys.stdin.buffer
    if (first := read(pipe)) is None:
        return
    facts, _ = first
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    folder = Path(facts["folder"])
    name = _claimed(folder, f"{facts['header']['engine'].lower()}-{stamp}-{facts['name']}")
    text = reader_of(facts["tokenizer"]) if facts.get("tokenizer") else None
    writer = Writer(folder, facts["header"], facts["max_mb"] << 20, name, text)
    writer.sum_up()
    while (step := read(pipe)) is not None:
        writer.step(*step)
    writer.close()
