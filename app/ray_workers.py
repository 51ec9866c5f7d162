"""Work on a Ray cluster: workers that get one job after the other, and a driver that collects.

A worker is an actor. It loads what its jobs share, gets one job at a time, and returns plain data,
or the sentence of its failure. Only the driver writes files, so the nodes need no common folder,
but every path that the command names (a model's folder, a method's file, a trace) must exist on
every node. A cluster elsewhere is sent Draftscope's own code and assets and nothing else; what
requirements.txt names must be installed there.

A worker that dies loses only its job: another worker tries that job once more, and a new worker
takes the place.
"""

from __future__ import annotations

import math
import os
import re
import signal
import socket
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.interrupts import handled
from core import ASSETS
from core.errors import UserError, in_one_line

PIN = "2.60.0"
LOCAL = "local"  # the address that starts a cluster of one's own
ATTEMPTS = 2  # of a job whose worker dies
STORE_BYTES = 128 << 20  # of a local cluster's object store: what does not fit goes to disk
CONNECT_SECONDS = 5.0  # seconds for a cluster's address to answer
POLL_SECONDS = 1.0  # seconds between looks at Ctrl-C and the progress
ROOT = ASSETS.parent
_CODE = ("core", "analysis", "app", "assets")


Assignment = Any  # a job: plain data and hashable, with a ``title`` for the progress
Load = Callable[[], Callable[[Any], Any]]  # makes, in a worker, what it does with each job
Note = Callable[[str], None]  # what is being done


class Worker:
    """A process of its own. It answers with plain data and never raises.

    load  makes what it does with a job; a string as the answer says why the job failed
    here  the driver's folder, for relative paths
    """

    def __init__(self, load: Load, here: str):
        self._load, self._here, self._do = load, here, None

    def prepare(self) -> str:
        """Get ready; returns why that failed, or nothing."""
        try:
            if os.path.isdir(self._here):
                os.chdir(self._here)
            from app.terminal import quiet_libraries

            quiet_libraries()
            self._do = self._load()
        except Exception as error:
            return in_one_line(error)
        return ""

    def run(self, job: Any) -> Any:
        assert self._do is not None
        try:
            return self._do(job)
        except Exception as error:
            return in_one_line(error)


# ── scheduling ───────────────────────────────────────────────────────────────────────────────────


class WorkerDied(Exception):
    """A worker is gone, and its job with it."""


@dataclass(frozen=True, eq=False)
class Task:
    """The work of a worker now: a job, or (``job`` None) getting ready."""

    worker: Any
    job: Assignment | None = None


class Scheduler:
    """Gives jobs to at most ``size`` workers, each the next one when it is free."""

    def __init__(self, pool: RayPool, jobs: Sequence[Assignment], size: int):
        self.pool, self.waiting = pool, deque(jobs)
        self.size = min(size, len(jobs))
        self.doing: dict[Any, Task] = {}
        self._failures: Counter[Assignment] = Counter()
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

    def answers(self, report: Note) -> Iterator[tuple[Assignment, Any]]:
        """Every job with its answer or its sentence, in the order they end.

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

    def _next(self, task: Task, answer: Any) -> Iterator[tuple[Assignment, Any]]:
        """The worker is free: it gets the next job, if it is ready and there is one."""
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

    def _replace(self, task: Task, why: str) -> Iterator[tuple[Assignment, str]]:
        """Its job goes to another worker, or fails; a new worker takes the place, unless as many
        as there are places died before their first job."""
        self.pool.stop(task.worker)
        if task.job is None:
            self._why, self._unready = f"it died while it loaded ({why})", self._unready + 1
        else:
            self._failures[task.job] += 1
            if self._failures[task.job] < ATTEMPTS:
                self.waiting.appendleft(task.job)
            else:
                yield task.job, f"the workers that did it died, {ATTEMPTS} of them ({why})"
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
    """Workers as Ray actors. What they do is a ticket until it is done."""

    def __init__(self, ray: Any, load: Load, share: Allocation):
        self._ray, self._load = ray, load
        self._actor = ray.remote(Worker).options(
            num_cpus=share.cpus, num_gpus=share.gpus, max_restarts=0, max_task_retries=0,
            scheduling_strategy="SPREAD",
        )  # fmt: skip

    def start(self) -> Any:
        """A new worker, not ready yet."""
        return self._actor.remote(self._load, os.getcwd())

    def prepare(self, worker: Any) -> Any:
        return worker.prepare.remote()

    def submit(self, worker: Any, job: Assignment) -> Any:
        return worker.run.remote(job)

    def wait(self, tickets: Sequence[Any]) -> Any | None:
        """A ticket that is done, or None after a while without one."""
        ready, _ = self._ray.wait(list(tickets), num_returns=1, timeout=POLL_SECONDS)
        return ready[0] if ready else None

    def result(self, ticket: Any) -> Any:
        """The answer of a ticket. Raises WorkerDied."""
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


@dataclass(frozen=True)
class Cluster:
    """A cluster to work on.

    address  auto (the one this machine is in), HOST:PORT, or local (one started here)
    workers  how many; None: one a GPU, else one a node, or with ``each_core`` one a core
    device   auto, cpu or cuda: with a GPU, each worker has one of its own
    """

    address: str
    workers: int | None
    device: str = "cpu"
    each_core: bool = False

    def check(self) -> None:
        """Raises UserError when Ray is not installed, or cannot give a worker this device."""
        _ray()
        if self.device not in ("auto", "cpu", "cuda"):
            raise UserError(
                "with --ray every worker gets a GPU of its own: --device is auto, cpu or cuda, not "
                f"{self.device}"
            )

    def answers(
        self, load: Load, jobs: Sequence[Assignment], report: Note
    ) -> Generator[tuple[Any, Any], None, None]:
        """Every job with its answer, or the sentence of its failure, in the order they end.

        Raises UserError when there is no Ray, no such cluster, or no worker can be made ready.
        """
        with _connected(self.address, self.workers) as ray:
            share = _allocate(ray, self)
            yield from Scheduler(RayPool(ray, load, share), jobs, share.workers).answers(report)


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise UserError(f"--ray needs Ray, which is optional: pip install ray=={PIN}") from None
    return ray


@contextmanager
def _connected(address: str, workers: int | None) -> Iterator[Any]:
    ray = _ray()
    # Ray prints a page on stdout when a worker dies; we report what that means for a job.
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        try:
            _check_reachable(address)
            with handled({signal.SIGTERM: signal.getsignal(signal.SIGTERM)}):  # Ray sets its own
                ray.init(**_options(address, workers))
        except SystemExit as ended:
            if ended.code == signal.SIGTERM:  # by Ray's own handler
                signal.raise_signal(signal.SIGTERM)
            raise
        except Exception as error:  # it raises anything, from ConnectionError to ValueError
            raise UserError(f"no Ray cluster at {address!r}: {in_one_line(error)}") from None
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


def _allocate(ray: Any, cluster: Cluster) -> Allocation:
    """A GPU a worker where there are any; else a worker a core, or a node with all of its cores."""
    nodes = [n["Resources"] for n in ray.nodes() if n["Alive"] and n["Resources"].get("CPU")]
    device, workers = cluster.device, cluster.workers
    gpus = int(sum(node.get("GPU", 0) for node in nodes)) if device != "cpu" else 0
    if not nodes or (device == "cuda" and not gpus):
        raise UserError(f"the Ray cluster has no {'GPU' if nodes else 'CPU'} to give")
    if gpus:
        return Allocation(workers or gpus, 1, 1)
    cores = [int(node["CPU"]) for node in nodes]
    if cluster.each_core:
        return Allocation(workers or sum(cores), 1, 0)
    size = workers or len(nodes)
    return Allocation(size, max(1, min(cores) // math.ceil(size / len(nodes))), 0)
