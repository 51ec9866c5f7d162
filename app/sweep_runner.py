"""The runs of a sweep, decoded: one engine takes them one by one, here or in workers elsewhere."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.experiments.sweep import Job, Terms
from analysis.experiments.variants import Variant
from app.decoding import Decoding, decode_prompt
from app.ray_workers import Cluster, Note
from core.decoding.request import RunRequest
from core.errors import in_one_line, writing

if TYPE_CHECKING:
    from core.decoding.engine import Engine

WARM_UP = 4  # tokens that a variant decodes before its first run is timed
Place = Callable[[Job], Path]


@dataclass(frozen=True)
class Outcome:
    """A run that ended. Its trace is where it was to be written, or ``error`` says why not."""

    job: Job
    error: str = ""


Outcomes = Generator[Outcome, None, None]


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
                decode_prompt(Decoding(self.engine.start, short), text)
                self._warm.add(job.variant)
            footer = {**machine(self.engine), "source": job.prompt.source}
            decode_prompt(
                Decoding(self.engine.start, request, path, self.terms.probe, footer), text
            )
        except Exception as error:
            return in_one_line(error)
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


def run_here(runner: Runner, jobs: Sequence[Job], place: Place, report: Note) -> Outcomes:
    """Every run in this process, one after the other, into the files that ``place`` names."""
    for job in jobs:
        report(job.title)
        yield Outcome(job, runner.run(job, place(job)))


@dataclass(frozen=True)
class Spec:
    """The engine that a worker loads."""

    model: str
    device: str
    drafter: str | None
    terms: Terms

    def load(self) -> Callable[[Job], bytes | str]:
        """Make, in a worker, the function of a run: its trace as bytes, or why it failed."""
        from core.decoding.engine import Engine

        engine = Engine(self.model, self.device, self.drafter, self.terms.template)
        engine.prepare()
        return partial(_trace, Runner(engine, self.terms))


def _trace(runner: Runner, job: Job) -> bytes | str:
    with tempfile.TemporaryDirectory(prefix="draftscope-") as folder:
        path = Path(folder) / job.file
        return runner.run(job, path) or path.read_bytes()


def run_on_ray(
    cluster: Cluster, spec: Spec, jobs: Sequence[Job], place: Place, report: Note
) -> Outcomes:
    """Every run on a cluster; its trace is written where ``place`` says.

    Raises UserError as ``Cluster.answers`` does, and where a trace cannot be written.
    """
    for job, answer in cluster.answers(spec.load, jobs, report):
        if isinstance(answer, str):
            yield Outcome(job, answer)
            continue
        with writing(place(job)):
            place(job).write_bytes(answer)
        yield Outcome(job)
