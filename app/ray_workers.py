"""The runs of a sweep on a Ray cluster: workers with an engine each, and a driver that collects.

A worker is an actor. It gets one run at a time and returns the trace's bytes or the sentence of its
failure: plain data. Only the driver writes files, so the nodes need no common folder, but every
path that the command names (a model's folder, a drafter's, a method's file) must exist on every
node. A cluster elsewhere is sent Draftscope's own code and assets and nothing else; what
requirements.txt names must be installed there.

A worker that dies loses only its run: another worker tries that run once more, and a new worker
takes the place.
"""

from __future__ import annotations

import math
import os
import re
import socket
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from analysis.experiments.sweep import Job, Terms
from app.sweep_runner import Outcome, Report, Runner, sentence
from core import ASSETS
from core.errors import UserError

PIN = "2.60.0"
LOCAL = "local"  # the address that starts a cluster of one's own
ATTEMPTS = 2  # of a run whose worker dies
STORE_BYTES = (
    128 << 20
)  # bytes of a local cluster's object store: results pass through it one by one
CONNECT_SECONDS = 5.0  # seconds for a cluster's address to answer
POLL_SECONDS = 1.0  # seconds between looks at Ctrl-C and the progress
ROOT = ASSETS.parent
_CODE = ("core", "analysis", "app", "assets")

Answer = bytes | str  # a trace, or the sentence of a failure
Place = Callable[[Job], Path]


@dataclass(frozen=True)
class Spec:
    """The engine that a worker loads. ``here``: the driver's folder, for relative paths."""

    model: str
    device: str
    drafter: str | None
    terms: Terms
    here: str


class Worker:
    """An engine in a process of its own. It answers with plain data and never raises."""

    def __init__(self, spec: Spec):
        self._spec, self._runner = spec, None

    def prepare(self) -> str:
        """Load the target; returns why that failed, or nothing."""
        spec = self._spec
        try:
            if os.path.isdir(spec.here):
                os.chdir(spec.here)
            from app.terminal import quiet_libraries

            quiet_libraries()
            from core.decoding.engine import Engine

            engine = Engine(spec.model, spec.device, spec.drafter, spec.terms.template)
            engine.prepare()
            self._runner = Runner(engine, spec.terms)
        except Exception as error:
            return sentence(error)
        return ""

    def run(self, job: Job) -> Answer:
        assert self._runner is not None
        with tempfile.TemporaryDirectory(prefix="draftscope-") as folder:
            path = Path(folder) / job.file
            return self._runner.run(job, path) or path.read_bytes()


# ── scheduling ───────────────────────────────────────────────────────────────────────────────────


class WorkerDied(Exception):
    """A worker is gone, and its run with it."""


class Pool(Protocol):
    """Workers, as the scheduler sees them. What they do is a ticket until it is done."""

    def start(self) -> Any:
        """A new worker, still without an engine."""
        ...

    def prepare(self, worker: Any) -> Any:
        """Ticket: the worker loads its engine."""
        ...

    def submit(self, worker: Any, job: Job) -> Any:
        """Ticket: the worker runs the job."""
        ...

    def wait(self, tickets: Sequence[Any]) -> Any | None:
        """A ticket that is done, or None after a while without one."""
        ...

    def result(self, ticket: Any) -> Answer:
        """Return the answer of a ticket. Raises WorkerDied."""
        ...

    def stop(self, worker: Any) -> None:
        """End a worker that is not needed any more, or is dead."""
        ...


@dataclass(frozen=True, eq=False)
class Task:
    """The work that a worker does now: a run, or (``job`` None) getting ready."""

    worker: Any
    job: Job | None = None


class Scheduler:
    """Gives runs to at most ``size`` workers, each the next one when it is free."""

    def __init__(self, pool: Pool, jobs: Sequence[Job], size: int):
        self.pool, self.waiting = pool, deque(jobs)
        self.size = min(size, len(jobs))
        self.doing: dict[Any, Task] = {}
        self._failures: Counter[Job] = Counter()
        self._unready, self._why = 0, ""

    @property
    def note(self) -> str:
        """The state of the workers in words, for the progress."""
        busy = [task.job.title for task in self.doing.values() if task.job is not None]
        loading = len(self.doing) - len(busy)
        found = [
            f"{len(busy)} of {self.size} workers",
            *([f"{loading} loading"] if loading else []),
        ]
        return ", ".join([*found, *busy[:1]])

    def answers(self, report: Report) -> Iterator[tuple[Job, Answer]]:
        """Every run with its trace or its sentence, in the order they end.

        Raises UserError when no worker can be made ready.
        """
        for _ in range(self.size):
            self._start()
        while self.waiting or any(task.job for task in self.doing.values()):
            if not self.doing:
                raise UserError(f"no Ray worker could be made ready: {self._why}")
            report(self.note)
            ticket = self.pool.wait(list(self.doing))
            if ticket is None:
                continue
            task = self.doing.pop(ticket)
            try:
                answer = self.pool.result(ticket)
            except WorkerDied as death:
                yield from self._replace(task, str(death))
            else:
                yield from self._next(task, answer)

    def _start(self) -> None:
        worker = self.pool.start()
        self.doing[self.pool.prepare(worker)] = Task(worker)

    def _next(self, task: Task, answer: Answer) -> Iterator[tuple[Job, Answer]]:
        """The worker is free: it gets the next run, if it is ready and there is one."""
        if task.job is None and answer:
            self._why = str(answer)
            self.pool.stop(task.worker)
            return
        if self.waiting:
            job = self.waiting.popleft()
            self.doing[self.pool.submit(task.worker, job)] = Task(task.worker, job)
        else:
            self.pool.stop(task.worker)
        if task.job is not None:
            yield task.job, answer

    def _replace(self, task: Task, why: str) -> Iterator[tuple[Job, Answer]]:
        """Its run goes to another worker, or fails; a new worker takes the place, unless as many
        as there are places died before their first run."""
        self.pool.stop(task.worker)
        if task.job is None:
            self._why, self._unready = f"it died while it loaded ({why})", self._unready + 1
        else:
            self._failures[task.job] += 1
            if self._failures[task.job] < ATTEMPTS:
                self.waiting.appendleft(task.job)
            else:
                yield task.job, f"the workers that ran it died, {ATTEMPTS} of them ({why})"
        if self.waiting and self._unready <= self.size:
            self._start()


# ── Ray ──────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Allocation:
    """The share of a cluster: how many workers, and the CPUs and GPUs of each."""

    workers: int
    cpus: int
    gpus: int


class RayPool:
    """Workers as Ray actors."""

    def __init__(self, ray: Any, spec: Spec, share: Allocation):
        self._ray, self._spec = ray, spec
        self._actor = ray.remote(Worker).options(
            num_cpus=share.cpus, num_gpus=share.gpus, max_restarts=0, max_task_retries=0,
            scheduling_strategy="SPREAD",
        )  # fmt: skip

    def start(self) -> Any:
        return self._actor.remote(self._spec)

    def prepare(self, worker: Any) -> Any:
        return worker.prepare.remote()

    def submit(self, worker: Any, job: Job) -> Any:
        return worker.run.remote(job)

    def wait(self, tickets: Sequence[Any]) -> Any | None:
        ready, _ = self._ray.wait(list(tickets), num_returns=1, timeout=POLL_SECONDS)
        return ready[0] if ready else None

    def result(self, ticket: Any) -> Answer:
        try:
            return self._ray.get(ticket)
        except self._ray.exceptions.RayError as error:
            raise WorkerDied(_reason(error)) from None

    def stop(self, worker: Any) -> None:
        self._ray.kill(worker)


def _reason(error: Exception) -> str:
    """Ray's name for it; of an exception in the worker's own start, that one's last line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    own = [line for line in lines if line.split(":")[0].endswith(("Error", "Exception"))]
    return " ".join([type(error).__name__, *own[-1:]])[:200]


def run_on_ray(
    address: str, workers: int | None, spec: Spec, jobs: Sequence[Job], place: Place, report: Report
) -> Generator[Outcome, None, None]:
    """Every run on the cluster at ``address``; its trace is written where ``place`` says.

    Raises UserError when there is no Ray, no such cluster, or no worker can be made ready.
    """
    with _connected(address, workers) as ray:
        share = _allocate(ray, workers, spec.device)
        scheduler = Scheduler(RayPool(ray, spec, share), jobs, share.workers)
        for job, answer in scheduler.answers(report):
            if isinstance(answer, str):
                yield Outcome(job, answer)
                continue
            try:
                place(job).write_bytes(answer)
            except OSError as error:
                why = error.strerror or error
                raise UserError(f"{place(job)} cannot be written: {why}") from None
            yield Outcome(job)


def check(device: str) -> None:
    """Raises UserError when Ray is not installed, or cannot give a worker this device."""
    _ray()
    if device not in ("auto", "cpu", "cuda"):
        raise UserError(
            f"with --ray every worker gets a GPU of its own: --device is auto, cpu or cuda, not "
            f"{device}"
        )


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise UserError(f"--ray needs Ray, which is optional: pip install ray=={PIN}") from None
    return ray


@contextmanager
def _connected(address: str, workers: int | None) -> Iterator[Any]:
    ray = _ray()
    # Ray prints a page on stdout when a worker dies; we report what that means for a run.
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        try:
            _check_reachable(address)
            ray.init(**_options(address, workers))
        except Exception as error:  # it raises anything, from ConnectionError to ValueError
            raise UserError(f"no Ray cluster at {address!r}: {sentence(error)}") from None
        try:
            yield ray
        finally:
            ray.shutdown()


def _check_reachable(address: str) -> None:
    """Raises OSError where nothing answers: Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()


def _options(address: str, workers: int | None) -> dict[str, Any]:
    quiet = {"address": address, "log_to_driver": False, "logging_level": "ERROR"}
    if address != LOCAL:
        return {**quiet, "runtime_env": {"working_dir": str(ROOT), "excludes": _not_sent(ROOT)}}
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {
        **quiet, "include_dashboard": False, "object_store_memory": STORE_BYTES,
        "num_cpus": max(workers or 1, os.cpu_count() or 1),
        "runtime_env": {"env_vars": {"PYTHONPATH": path}},
    }  # fmt: skip


def _not_sent(root: Path) -> list[str]:
    """Everything beside the code, as lines of a .gitignore."""
    others = sorted({entry.name for entry in root.iterdir()} - {*_CODE})
    return ["/" + re.sub(r"([\\*?\[])", r"\\\1", name) for name in others]


def _allocate(ray: Any, workers: int | None, device: str) -> Allocation:
    """A GPU a worker where there are any; else a worker a node, with all of its cores."""
    nodes = [n["Resources"] for n in ray.nodes() if n["Alive"] and n["Resources"].get("CPU")]
    gpus = int(sum(node.get("GPU", 0) for node in nodes)) if device != "cpu" else 0
    if not nodes or (device == "cuda" and not gpus):
        raise UserError(f"the Ray cluster has no {'GPU' if nodes else 'CPU'} to give")
    if gpus:
        return Allocation(workers or gpus, 1, 1)
    size = workers or len(nodes)
    smallest = min(int(node["CPU"]) for node in nodes)
    return Allocation(size, max(1, smallest // math.ceil(size / len(nodes))), 0)
