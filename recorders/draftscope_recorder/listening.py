"""The part of listening that all engines share: which requests are recorded, the rows of a step,
and what is sent to the writer.

An engine's module says where its steps are. An error in here ends the recording and never a step.
"""

# pyright: reportMissingImports=false
# torch is only where this runs.

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any

from . import options
from .channel import Channel


def chosen_options(log: logging.Logger) -> options.Options | None:
    """Return the options of the environment. None: nothing is to be recorded, or they are wrong,
    which a sentence says."""
    try:
        return options.from_environment()
    except ValueError as error:
        log.warning("%s: nothing is recorded", error)
        return None


def missing(log: logging.Logger, where: str, name: str, need: str, vital: bool) -> None:
    """Say in one sentence that this version of an engine lacks a name."""
    what = "nothing is recorded" if vital else f"{need} is not recorded"
    log.warning("draftscope: this %s has no %s: %s", where, name, what)


# Fields of a request's sampling that change p after what is recorded, and the value that is off.
PROCESSORS = {
    "min_p": 0.0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0,
    "min_tokens": 0, "min_new_tokens": 0, "logit_bias": None, "bad_words": None,
    "allowed_token_ids": None, "structured_outputs": None, "json_schema": None, "regex": None,
    "ebnf": None, "structural_tag": None,
}  # fmt: skip


def processors(sampling: Any) -> str:
    """Name what is on, numbers with their value: "min_p 0.1, logit_bias"; "" for nothing."""
    given = {name: getattr(sampling, name, off) for name, off in PROCESSORS.items()}
    on = {name: value for name, value in given.items() if value and value != PROCESSORS[name]}
    return ", ".join(
        f"{name} {value:g}" if isinstance(value, int | float) else name
        for name, value in on.items()
    )


@dataclass(eq=False, kw_only=True)
class Listener:
    """Joins what an engine says in a step, and sends it.

    live          requests that are recorded
    passed        requests that are not
    began, ended  since the last step
    """

    chosen: options.Options
    log: logging.Logger
    live: set[str] = field(default_factory=set)
    passed: set[str] = field(default_factory=set)
    began: dict[str, dict[str, Any]] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)
    channel: Channel | None = None
    on: bool = True

    def header(self) -> dict[str, Any]:
        """Make the first message, with ``first_message``."""
        raise NotImplementedError

    def guarded(self, work: Callable[..., Any], *args: Any) -> Any:
        """Return what ``work`` returns; where it fails return None and end the recording."""
        try:
            return work(*args)
        except Exception as error:
            self.on = False
            self.log.warning(
                "draftscope: recording ended: %s in %s",
                str(error).partition("\n")[0] or type(error).__name__, work.__name__,
            )  # fmt: skip
            return None

    def known(self, name: str) -> bool:
        """Whether a request has begun here, recorded or not."""
        return name in self.live or name in self.passed

    def begin(
        self,
        name: str,
        asked: Any,
        prompt: Sequence[int] | None,
        most: int,
        stops: Collection[int],
        sampling: dict[str, float],
        changed: str,
    ) -> None:
        """Begin a request. ``asked``: its own word on being recorded; ``prompt``: None where it is
        not of tokens alone; ``most``: new tokens at most; ``stops``: tokens that end it;
        ``changed``: by which processors it samples from another p than is recorded."""
        if prompt is None or not self.chosen.wants(name, asked):
            self.passed.add(name)
            return
        self.live.add(name)
        self.began[name] = {
            "prompt": list(map(int, prompt)),
            "most": most,
            "stops": sorted(stops),
            "tag": asked if isinstance(asked, str) else "",
            "sampling": sampling,
            "processors": changed,
        }

    def end(self, name: str) -> None:
        self.passed.discard(name)
        if name in self.live:
            self.live.discard(name)
            self.ended.append(name)

    def rows(self, names: Sequence[str], drafts: Sequence[int]) -> Rows | None:
        """Find the rows of a step's logits that belong to requests that are recorded."""
        chosen = [n for n, name in enumerate(names) if name in self.live]
        return Rows(names, drafts, chosen) if chosen else None

    def measured(self, rows: Rows, logits: Any, parents: Any, tokens: Any) -> dict[str, Any]:
        """Measure p of a step. ``logits``: of all rows; ``parents`` and ``tokens`` [R]: of the
        chosen ones. A root's token is not read."""
        arrays = {"tokens": tokens, "parents": parents}
        if self.chosen.p:
            from .core.drafting.probabilities import target

            arrays |= target(rows.of(logits), parents, tokens, self.chosen.p)
        return arrays

    def send(self, facts: dict[str, Any], arrays: dict[str, Any]) -> None:
        if self.channel is None:
            self.channel = Channel(self.header(), self.chosen.queue, _on_host)
        facts |= {"new": self.began, "finished": self.ended}
        self.began, self.ended = {}, []
        if self.channel.send(facts, {name: _leaving(x) for name, x in arrays.items()}):
            return
        # The writer ends the requests of a lost step, so nothing more is measured for them.
        self.passed |= self.live
        self.live.clear()
        self.on = not self.channel.ended

    def close(self) -> None:
        if self.channel is not None:
            self.channel.close()


def first_message(
    chosen: options.Options,
    engine: str,
    rank: int,
    tokenizer: str,
    packages: Sequence[str],
    **header: Any,
) -> dict[str, Any]:
    """Make the writer's first message: where traces go, and what the engine is.

    rank      which of the model's copies this is
    packages  whose versions are kept, as far as they are installed
    header    fields of a trace's header, and ``read``: how many tokens of a list the engine looks
              at; None: as many as its budget lets it; ``beam``: how many nodes of a depth it goes
              on from
    """
    from importlib.metadata import version

    libraries = {}
    for name in (*packages, "torch", "transformers", "draftscope-recorder"):
        try:
            libraries[name] = version(name)
        except Exception:  # not installed under this name
            continue
    return {
        "folder": str(chosen.folder),
        "max_mb": chosen.max_mb,
        "name": f"{rank}-{os.getpid()}",
        "tokenizer": tokenizer if chosen.text else "",
        "header": {
            "engine": engine,
            "libraries": libraries,
            "creator": {"name": "draftscope-recorder"},
            **header,
        },
    }


@dataclass(eq=False)
class Rows:
    """Rows of a step's logits: each request's root and drafts, one request after another.

    names, drafts  of all requests of the step; ``chosen``: which of them are recorded
    """

    names: Sequence[str]
    drafts: Sequence[int]
    chosen: Sequence[int]

    def __post_init__(self) -> None:
        self.chosen_names = [self.names[n] for n in self.chosen]
        self.counts = [self.drafts[n] + 1 for n in self.chosen]
        self.begins = list(accumulate(self.counts, initial=0))[:-1]
        self.all = len(self.chosen) == len(self.names)

    @cached_property
    def index(self) -> list[int]:
        """[R]: the chosen rows among all."""
        starts = list(accumulate((count + 1 for count in self.drafts), initial=0))
        return [row for n in self.chosen for row in range(starts[n], starts[n + 1])]

    @property
    def chains(self) -> list[int]:
        """[R]: the row above each chosen row where every draft is a chain; −1: a root."""
        return [
            at - 1 if at > begin else -1
            for begin, count in zip(self.begins, self.counts, strict=True)
            for at in range(begin, begin + count)
        ]

    @property
    def facts(self) -> list[tuple[str, int]]:
        """Requests and their numbers of rows, as a message names them."""
        return list(zip(self.chosen_names, self.counts, strict=True))

    def of(self, values: Any) -> Any:
        """The chosen rows of a tensor with all of them."""
        return values if self.all else values.index_select(0, indices(self.index, values))

    def requests(self, values: Any) -> Any:
        """The chosen requests of a tensor [requests, …]."""
        return values if self.all else values.index_select(0, indices(self.chosen, values))


def indices(some: Sequence[Any], values: Any) -> Any:
    """Whole numbers of the host as a tensor on the device of ``values``."""
    import torch

    made = torch.tensor(some)
    if values.device.type != "cuda":
        return made.to(values.device)
    # From pinned memory, so that nobody waits for the forward before it.
    return made.pin_memory().to(values.device, non_blocking=True)


def _leaving(values: Any) -> Any:
    """A tensor on its way to the host, and the event after which it is there."""
    if values.device.type != "cuda":
        return values
    import torch

    there = values.to("cpu", non_blocking=True)
    event = torch.cuda.Event()
    event.record()
    return there, event


def _on_host(values: Any) -> Any:
    """In the writer's thread: the array of what ``_leaving`` sent."""
    if isinstance(values, tuple):
        values, event = values
        event.synchronize()
    return values.numpy()
