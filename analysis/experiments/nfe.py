"""The savings of Spiffy: model calls and seconds over many prompts, graphs and paces (paper §5).

One plain run of a prompt records its rankings; what every graph would have needed follows from
them exactly (``core.diffusion.nfe.simulate``). Real runs stand beside it: their seconds, whether
they wrote the same text, and whether they needed the calls that the record predicted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from core.diffusion.denoise import DiffusionTarget, denoise
from core.diffusion.draft_graph import DraftGraph
from core.diffusion.nfe import NfeCounts, by_block, count_nfe, denoised_tokens, simulate
from core.diffusion.pace import Pace
from core.diffusion.request import DenoiseSettings
from core.progress import Steps, silent
from core.rounds.round import Round


@dataclass(frozen=True)
class Divergence:
    """Where a run left plain denoising: the first block whose tokens differ, and how many positions
    of the whole text differ."""

    block: int
    tokens: int


@dataclass(frozen=True)
class GraphRun:
    """A real run of one prompt with one graph.

    seconds, plain_seconds  the run's, and those of plain denoising
    predicted   whether it needed the calls that the simulation found
    divergence  None: it wrote what plain denoising wrote
    """

    seconds: float
    plain_seconds: float
    predicted: bool
    divergence: Divergence | None = None

    @property
    def identical(self) -> bool:
        return self.divergence is None


@dataclass(frozen=True)
class PromptRun:
    """One prompt with one graph: the simulated calls, and the real run if there was one."""

    saved: NfeCounts
    real: GraphRun | None = None


@dataclass(frozen=True)
class GraphResult:
    """A graph at a pace over all prompts: calls up to the first end-of-text, seconds, checks."""

    pace: Pace
    graph: DraftGraph
    runs: tuple[PromptRun, ...]

    @property
    def saved(self) -> NfeCounts:
        return NfeCounts.total([run.saved for run in self.runs])

    @property
    def real(self) -> tuple[GraphRun, ...]:
        return tuple(run.real for run in self.runs if run.real is not None)

    @property
    def seconds(self) -> tuple[float, float]:
        """(Spiffy's, plain denoising's) over the prompts that were really run."""
        return sum(r.seconds for r in self.real), sum(r.plain_seconds for r in self.real)

    @property
    def divergences(self) -> tuple[Divergence, ...]:
        return tuple(run.divergence for run in self.real if run.divergence is not None)

    @property
    def speedup(self) -> float:
        """Of the wall time; 0 when nothing was really run."""
        spiffy, plain = self.seconds
        return plain / spiffy if spiffy else 0.0


def run_timed(
    target: DiffusionTarget,
    prompt: Sequence[int],
    settings: DenoiseSettings,
    graph: DraftGraph | None,
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
    report: Steps = silent,
) -> Iterator[GraphResult]:
    """All graphs at one pace. ``real``: how many prompts are really run with each (None: all).

    Graphs take turns in another order for every prompt, so none always has the warmest caches.
    ``report`` receives (prompts done, what runs now).
    """
    settings = replace(settings, width=max([settings.width, *(g.width for g in graphs)]))
    runs: list[list[PromptRun]] = [[] for _ in graphs]
    for number, prompt in enumerate(prompts):
        report(number, "plain")
        plain, plain_seconds = run_timed(target, prompt, settings, None)
        for turn in range(len(graphs)):
            which = (turn + number) % len(graphs)
            saved = count_nfe(simulate(plain, graphs[which], settings.pace), target.stop_ids)
            found = None
            if real is None or number < real:
                report(number, graphs[which].name)
                rounds, seconds = run_timed(target, prompt, settings, graphs[which])
                predicted = count_nfe(rounds, target.stop_ids) == saved
                found = GraphRun(seconds, plain_seconds, predicted, divergence(plain, rounds))
            runs[which].append(PromptRun(saved, found))
    for graph, own in zip(graphs, runs, strict=True):
        yield GraphResult(settings.pace, graph, tuple(own))


def divergence(plain: Sequence[Round], other: Sequence[Round]) -> Divergence | None:
    """None when both wrote the same text: for a target that is not exact, counted and shown."""
    mine, theirs = denoised_tokens(plain), denoised_tokens(other)
    if mine == theirs:
        return None
    differing = sum(a != b for a, b in zip(mine, theirs, strict=False))
    differing += abs(len(mine) - len(theirs))
    for number, calls in enumerate(zip(by_block(plain), by_block(other), strict=False)):
        if denoised_tokens(calls[0]) != denoised_tokens(calls[1]):
            return Divergence(number, differing)
    return Divergence(min(len(list(by_block(rounds))) for rounds in (plain, other)), differing)
