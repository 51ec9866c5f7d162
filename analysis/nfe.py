"""What Spiffy saves: model calls and seconds over many prompts, graphs and paces (paper §5).

One plain run of a prompt records its rankings; what every graph would have needed follows from
them exactly (``core.diffusion.nfe.simulate``). Real runs stand beside it: their seconds, whether
they wrote the same text, and whether they needed the calls that the record predicted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from core.diffusion.denoise import DiffusionTarget, denoise
from core.diffusion.draft_graph import DraftGraph
from core.diffusion.nfe import NfeCounts, by_block, count_nfe, denoised_tokens, simulate
from core.diffusion.request import DenoiseSettings, Pace
from core.rounds.round import Round


@dataclass(frozen=True)
class Divergence:
    """Where a run left plain denoising: the first block whose tokens differ, and how many do."""

    block: int
    tokens: int  # positions of the whole text that differ


@dataclass(frozen=True)
class PromptRun:
    """One prompt with one graph: predicted calls, and the real run if there was one."""

    saved: NfeCounts
    seconds: float | None = None  # of the real run
    plain_seconds: float | None = None  # of plain denoising, the same text
    identical: bool | None = None  # the real run wrote what plain denoising wrote
    predicted: bool | None = None  # and needed the calls that the simulation says
    divergence: Divergence | None = None  # where it left what plain denoising wrote


@dataclass(frozen=True)
class Cell:
    """A graph at a pace over all prompts: calls up to the first end-of-text, seconds, checks."""

    pace: Pace
    graph: DraftGraph
    runs: tuple[PromptRun, ...]

    @property
    def saved(self) -> NfeCounts:
        return NfeCounts.total([run.saved for run in self.runs])

    @property
    def real(self) -> tuple[PromptRun, ...]:
        return tuple(run for run in self.runs if run.identical is not None)

    @property
    def seconds(self) -> tuple[float, float]:
        """(Spiffy's, plain denoising's) over the prompts that were really run."""
        return sum(r.seconds or 0 for r in self.real), sum(r.plain_seconds or 0 for r in self.real)

    @property
    def divergences(self) -> tuple[Divergence, ...]:
        return tuple(run.divergence for run in self.runs if run.divergence is not None)

    @property
    def speedup(self) -> float:
        """Of the wall time; 0 when nothing was really run."""
        spiffy, plain = self.seconds
        return plain / spiffy if spiffy else 0.0


def timed(
    target: DiffusionTarget, prompt: Sequence[int], settings: DenoiseSettings, graph: DraftGraph | None
) -> tuple[tuple[Round, ...], float]:
    """A run's rounds and its seconds, the prompt's encoding included."""
    start = time.perf_counter()
    rounds = tuple(denoise(target, prompt, settings, graph))
    return rounds, time.perf_counter() - start


def measure(
    target: DiffusionTarget,
    prompts: Sequence[Sequence[int]],
    settings: DenoiseSettings,
    graphs: Sequence[DraftGraph],
    real: int | None = None,
    report: Callable[[int, str], None] = lambda *_: None,
) -> Iterator[Cell]:
    """All graphs at one pace. ``real``: how many prompts are really run with each (None: all).

    Graphs take turns in another order for every prompt, so no one always has the warmest caches.
    ``report`` is told (prompts done, what runs now).
    """
    settings = replace(settings, width=max([settings.width, *(g.width for g in graphs)]))
    runs: list[list[PromptRun]] = [[] for _ in graphs]
    for number, prompt in enumerate(prompts):
        report(number, "plain")
        plain, plain_seconds = timed(target, prompt, settings, None)
        for turn in range(len(graphs)):
            which = (turn + number) % len(graphs)
            graph = graphs[which]
            told = count_nfe(simulate(plain, graph, settings.pace), target.stop_ids)
            ran = PromptRun(told)
            if real is None or number < real:
                report(number, graph.name)
                rounds, seconds = timed(target, prompt, settings, graph)
                left = divergence(plain, rounds)
                calls = count_nfe(rounds, target.stop_ids) == told
                ran = PromptRun(told, seconds, plain_seconds, left is None, calls, left)
            runs[which].append(ran)
    for graph, own in zip(graphs, runs, strict=True):
        yield Cell(settings.pace, graph, tuple(own))


def divergence(plain: Sequence[Round], other: Sequence[Round]) -> Divergence | None:
    """None when both wrote the same text: for a target that is not exact, counted and shown."""
    both = denoised_tokens(plain), denoised_tokens(other)
    if both[0] == both[1]:
        return None
    longest, shared = max(map(len, both)), min(map(len, both))
    differing = sum(a != b for a, b in zip(*both, strict=False)) + longest - shared
    for mine, theirs in zip(by_block(plain), by_block(other), strict=False):
        a, b = mine[-1].block, theirs[-1].block
        if a is not None and b is not None and (a.after() != b.after()).any():
            return Divergence(a.index, differing)
    return Divergence(min(plain[-1].block.index, other[-1].block.index) + 1, differing)  # type: ignore[union-attr]
