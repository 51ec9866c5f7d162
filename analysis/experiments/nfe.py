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
class GraphResult:
    """A graph at a pace over all prompts: the simulated calls up to the first end-of-text, and the
    real runs of those prompts that have one."""

    pace: Pace
    graph: DraftGraph
    saved: NfeCounts
    real: tuple[GraphRun, ...]

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
    saved: list[list[NfeCounts]] = [[] for _ in graphs]
    runs: list[list[GraphRun]] = [[] for _ in graphs]
    for number, prompt in enumerate(prompts):
        report(number, "plain")
        plain, plain_seconds = run_timed(target, prompt, settings, None)
        for turn in range(len(graphs)):
            which = (turn + number) % len(graphs)
            expected = count_nfe(simulate(plain, graphs[which], settings.pace), target.stop_ids)
            saved[which].append(expected)
            if real is None or number < real:
                report(number, graphs[which].name)
                rounds, seconds = run_timed(target, prompt, settings, graphs[which])
                predicted = count_nfe(rounds, target.stop_ids) == expected
                left = divergence(plain, rounds)
                runs[which].append(GraphRun(seconds, plain_seconds, predicted, left))
    for graph, calls, own in zip(graphs, saved, runs, strict=True):
        yield GraphResult(settings.pace, graph, NfeCounts.total(calls), tuple(own))


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
