"""The runs of a sweep, decoded: one engine takes them one by one, here or in a worker elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.experiments.sweep import Job, Terms
from analysis.experiments.variants import Variant
from app.decoding import Decoding, decode
from core.decoding.request import RunRequest
from core.errors import UserError

if TYPE_CHECKING:
    from core.decoding.engine import Engine

WARM_UP = 4  # tokens that a variant decodes before its first run is timed
LONGEST = 300  # characters of a failure's sentence
Report = Callable[[str], None]  # what is being done


@dataclass(frozen=True)
class Outcome:
    """A run that ended. Its trace is where it was to be written, or ``error`` says why not."""

    job: Job
    error: str = ""


class Runner:
    """An engine and what all runs share."""

    def __init__(self, engine: Engine, terms: Terms):
        self.engine, self.terms = engine, terms
        self._warm: set[Variant] = set()

    def run(self, job: Job, path: Path) -> str:
        """Decode the run into a trace at ``path``; returns why it failed, or nothing.

        Whatever a run raises is its own failure: the next one may succeed.
        """
        request, text = request_of(self.terms, job), job.prompt.text
        try:
            if job.variant not in self._warm:
                short = replace(request, max_new_tokens=min(WARM_UP, request.max_new_tokens))
                decode(Decoding(self.engine.start, short), text)
                self._warm.add(job.variant)
            footer = {**machine(self.engine), "source": job.prompt.source}
            decode(Decoding(self.engine.start, request, path, self.terms.probe, footer), text)
        except Exception as error:
            return sentence(error)
        return ""


def request_of(terms: Terms, job: Job) -> RunRequest:
    """The run as the engine takes it."""
    return RunRequest(
        prompt=job.prompt.text,
        method=str(job.variant.method),
        budget=job.variant.budget,
        max_new_tokens=terms.max_new_tokens,
        temperature=terms.temperature,
        top_k=terms.top_k,
        top_p=terms.top_p,
        seed=job.seed,
        options=job.variant.options,
    )


def machine(engine: Engine) -> dict[str, Any]:
    """Return a footer's fields on the machine: speeds compare only on the same one."""
    import torch

    device = engine.prepare().device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type.upper()
    return {"hardware": name, "threads": torch.get_num_threads()}


def sentence(error: Exception) -> str:
    """Why a run failed, in one line."""
    text = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())[:LONGEST] or type(error).__name__


def run_here(
    runner: Runner, jobs: Sequence[Job], place: Callable[[Job], Path], report: Report
) -> Generator[Outcome, None, None]:
    """Every run in this process, one after the other, into the files that ``place`` names."""
    for job in jobs:
        report(job.title)
        yield Outcome(job, runner.run(job, place(job)))
