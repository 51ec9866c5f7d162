"""A studio as people leave it standing: hours of runs, reloads, dropped streams, and a verdict.

    python -m tests.bench.soak              # two hours
    python -m tests.bench.soak --minutes 10 --runs 60 --requests 1500

Starts a real studio on a free port and visits it as pages do, spread evenly over the time. Each
visit loads the page, starts a run, watches it, and asks what a page asks; every third one drops its
stream in mid-run, every fourth reloads, every fifth sends an upload, and each sends something that
no page sends. The server's memory (with its processes), open files, threads and temporary files are
written down every ten seconds. Before the clock starts every method runs once, so that what is
loaded once is there; the first mark is after ten minutes or a third of the time.

Exit code 1 where memory grew by more than a tenth from the first mark to the last minute, where
the log has a traceback, an answer a wrong status, or where files, threads or folders stay.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from core.methods.names import METHODS
from core.methods.registry import runnable
from core.models.embedded import NAME
from tests import GOLDEN

API = "/gradio_api"
PROMPTS = ("Name three fruits.", "Write a haiku.", "Why is the sky blue?", "Count to ten.")
BUDGETS = (256, 16, 64)
TRACE = GOLDEN / "trace-v1-paths.jsonl"
LOOK = 10.0  # seconds between two looks at the process
MARK = 600.0  # seconds after which memory is taken to have settled
SPARE = 12  # more files or threads than at the mark: connections that happen to be open
GROWTH = 0.1


# ── the process ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Look:
    """A process at one moment: seconds since the start, bytes of memory, and counts."""

    at: float
    memory: int
    files: int
    threads: int
    left: int  # files and folders below its TMPDIR

    def __str__(self) -> str:
        return (
            f"{self.at / 60:6.1f} min  {self.memory / 2**20:6.0f} MiB  {self.files:3d} files  "
            f"{self.threads:3d} threads  {self.left:3d} temporary"
        )


def looked(pid: int, temporary: Path, at: float) -> Look:
    own = Path("/proc") / str(pid)
    memory = sum(map(_resident, [pid, *_children(pid)]))
    files, threads = (len(list((own / each).iterdir())) for each in ("fd", "task"))
    return Look(at, memory, files, threads, sum(1 for _ in temporary.rglob("*")))


def _resident(pid: int) -> int:
    with suppress(OSError):
        pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
        return pages * resource.getpagesize()
    return 0


def _children(pid: int) -> Iterator[int]:
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text("ascii").split()):
                yield from (child, *_children(child))


# ── a page ───────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Tally:
    """The requests and runs that were sent, and answers that should not be."""

    requests: int = 0
    started: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)


class PageLeft(Exception):
    """The script of a page that is closed meanwhile."""


class Visitor:
    """One browser's tab: its session, its heartbeat, and the questions of its script."""

    def __init__(self, home: str, tally: Tally, draw: random.Random):
        self.client = httpx.Client(base_url=home, timeout=600)
        self.tally, self.draw = tally, draw
        self.session = ""
        self.config: dict[str, Any] = {}
        self._streams: list[httpx.Response] = []

    def get(self, path: str, expected: Sequence[int] = (200,), **more: Any) -> httpx.Response:
        return self.sent("GET", path, expected, **more)

    def sent(
        self, verb: str, path: str, expected: Sequence[int] = (200,), **more: Any
    ) -> httpx.Response:
        self.tally.requests += 1
        found = self.client.request(verb, path, **more)
        if found.status_code not in expected:
            self.tally.wrong[f"{verb} {path.partition('?')[0]}: {found.status_code}"] += 1
        return found

    def load(self) -> None:
        """Load the page, as after a reload: a new session."""
        self.close_streams()
        self.session = f"{self.draw.getrandbits(64):x}"
        html = self.get("/").text
        for path in dict.fromkeys(
            re.findall(r'(?:src|href)="(?:\./)?((?:web|assets)/[^"]+)"', html)
        ):
            self.get(f"/{path}")
        self.config = self.get("/config").json()
        self._open(f"{API}/heartbeat/{self.session}")

    def _open(self, path: str) -> httpx.Response:
        """A stream that stays open until the page is left."""
        self.tally.requests += 1
        found = self.client.send(self.client.build_request("GET", path), stream=True)
        self._streams.append(found)
        return found

    def close_streams(self) -> None:
        for stream in self._streams:
            stream.close()
        self._streams.clear()

    def leave(self) -> None:
        self.close_streams()
        self.client.close()

    def ask(self, view: str, name: str, question: object, expected: Sequence[int] = (200,)) -> Any:
        """A question of a view's script."""
        (number,) = (
            part["id"]
            for part in self.config["components"]
            if part.get("props", {}).get("elem_id") == view
        )
        body = {
            "data": question, "fn_name": name, "component_id": number, "session_hash": self.session,
        }  # fmt: skip
        return self.sent("POST", f"{API}/component_server", expected, json=body).json()

    def start(self, request: dict[str, Any]) -> str:
        self.tally.started += 1
        answer = self.ask("ds-scope", "start", {"asked": [request]})
        if "tickets" not in answer:
            self.tally.wrong[f"start: {answer}"] += 1
            raise PageLeft
        return answer["tickets"][0]

    def watch(self, ticket: str, since: int, most: float) -> tuple[str, int]:
        """Follow a run until it has ended, or has ``most`` messages, and then drop the stream.
        Returns its last state and the next round to ask for."""
        state, seen = "waiting", 0
        stream = self._open(f"/events?of=rounds&run={ticket}.{since}")
        try:
            for line in stream.iter_lines():
                if not line.startswith("data: "):
                    continue
                run = json.loads(line[6:])["news"]["run"]
                if run is None:
                    return "gone", since
                state, since, seen = run["state"], since + len(run["rounds"]), seen + 1
                if seen >= most:
                    break
        finally:
            stream.close()
            self._streams.remove(stream)
        return state, since

    def upload(self) -> None:
        """Send a trace and have it opened."""
        name = f"soak-{self.draw.getrandbits(20)}.jsonl"
        data = TRACE.read_bytes() + b"\n" * self.draw.randrange(1, 99)
        sent = self.sent("POST", f"{API}/upload", files={"files": (name, data)}).json()
        answer = self.ask("ds-scope", "place", {"path": sent[0]})
        if "ticket" not in answer:
            self.tally.wrong[f"upload: {answer}"] += 1

    # ── a visit ──────────────────────────────────────────────────────────────────────────────────

    def questions(
        self, ticket: str, rounds: int
    ) -> Iterator[tuple[str, str, object, Sequence[int]]]:
        """The questions of a page about its run and in its other views, again and again."""
        draw, run = self.draw, "ds-scope"
        files = sorted(
            file["name"] for file in self.ask("ds-w-scope", "files", {}).get("files", [])
        )
        forms = ("dot", "graphml", "trace", "nodes.csv", "rounds.csv")
        while True:
            at = {"ticket": ticket, "round": draw.randrange(max(rounds, 1))}
            yield run, "updates", {"ticket": ticket, "since": 0}, (200,)
            yield run, "inspect", at | {"row": 0}, (200,)
            yield run, "why", at, (200,)
            yield run, "fold", at | {"open": [1, 2]}, (200,)
            yield run, "draw", at | {"legend": draw.random() < 0.5}, (200,)
            yield run, "export", at | {"form": draw.choice(forms)}, (200,)
            yield run, "runs", {"tickets": [ticket]}, (200,)
            yield "ds-c-scope", "measure", {"tickets": [ticket, ticket]}, (200,)
            yield "ds-c-scope", "compare", {"tickets": [ticket, ticket]}, (200,)
            yield "ds-k-scope", "calibrate", {"tickets": [ticket]}, (200,)
            yield "ds-results", "table", {}, (200,)
            yield run, "save", {"ticket": ticket}, (200,)
            if files:
                asked = {"file": draw.choice(files), "method": "ddtree", "options": {}}
                yield "ds-w-scope", "about", asked, (200,)
                yield "ds-w-scope", "simulate", asked | {"budget": 16, "place": 0}, (200,)
                yield "ds-w-scope", "curve", asked, (200,)
            yield run, "inspect", {"ticket": [], "round": "x" * 99}, (400,)
            yield run, "nobody", {}, (404,)
            yield run, "inspect", {"ticket": "gone", "round": -1, "row": 10**9}, (200, 400)


def visit(page: Visitor, number: int, request: dict[str, Any], requests: int, until: float) -> None:
    """One life of a page: ``requests`` of them, spread until a moment of the monotonic clock."""
    before = page.tally.requests
    page.load()
    page.get("/", (403,), headers={"host": "evil.example"})
    ticket = page.start(request)
    drop = number % 3 == 0
    state, since = page.watch(ticket, 0, 2 if drop else float("inf"))
    if number % 4 == 0:
        page.load()
    if state in ("waiting", "running"):
        if number % 6 == 0:
            page.ask("ds-scope", "stop", {"ticket": ticket})
        state, since = page.watch(ticket, since, float("inf"))
    page.tally.ended[state] += 1
    if number % 5 == 0:
        page.upload()
    for view, name, question, expected in page.questions(ticket, since):
        rest = requests - (page.tally.requests - before)
        if rest <= 0:
            break
        time.sleep(max(until - time.monotonic(), 0) / rest)
        page.ask(view, name, question, expected)


# ── the whole ────────────────────────────────────────────────────────────────────────────────────


def served(temporary: Path, log: Path) -> tuple[subprocess.Popen[str], str]:
    """A studio of its own, with a folder for what it keeps for a while, and its address."""
    command = [sys.executable, "-m", "app", "studio", "--port", "0"]
    server = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=log.open("w"), text=True,
        env=os.environ | {"TMPDIR": str(temporary)},
    )  # fmt: skip
    assert server.stdout is not None
    found = re.search(r"http://[^/\s]+", server.stdout.readline())
    if found is None:
        raise SystemExit(f"the studio did not start: {log.read_text('utf-8')[-2000:]}")
    return server, found[0]


NAMES = [name for name in METHODS if name in runnable(NAME)]


def requests_in_turn() -> Iterator[dict[str, Any]]:
    for at, (name, prompt) in enumerate(zip(itertools.cycle(NAMES), itertools.cycle(PROMPTS))):
        budget = BUDGETS[at // len(NAMES) % len(BUDGETS)]
        yield {"prompt": prompt, "method": name, "budget": budget, "max_new_tokens": 24}


def warm_up(home: str) -> None:
    """Run every method once."""
    page = Visitor(home, Tally(), random.Random(0))
    page.load()
    for request in itertools.islice(requests_in_turn(), len(NAMES)):
        with suppress(PageLeft):
            page.watch(page.start(request), 0, float("inf"))
    page.leave()


def soak(args: argparse.Namespace, temporary: Path, log: Path) -> int:
    seconds, tally, looks = 60 * args.minutes, Tally(), list[Look]()
    server, home = served(temporary, log)
    warm_up(home)
    began, over = time.monotonic(), threading.Event()

    def look_on() -> None:
        while not over.wait(LOOK) and server.poll() is None:
            with suppress(OSError):
                looks.append(looked(server.pid, temporary, time.monotonic() - began))
            if len(looks) % 30 == 1:
                print(f"{looks[-1]}  {tally.started} runs, {tally.requests} requests", flush=True)

    threading.Thread(target=look_on, daemon=True).start()
    before: Visitor | None = None
    try:
        for number, request in zip(range(args.runs), requests_in_turn()):  # noqa: B905
            page = Visitor(home, tally, random.Random(number))
            rest = args.requests - tally.requests
            until = began + seconds * (number + 1) / args.runs
            with suppress(PageLeft):
                visit(page, number, request, rest // (args.runs - number), until)
            if before is not None:
                before.leave()  # the tab before is open beside this one
            before = page
            time.sleep(max(until - time.monotonic(), 0))
        if before is not None:
            before.leave()
        time.sleep(0 if args.minutes < 10 else 150)  # uploads and connections end
    finally:
        over.set()
        server.send_signal(signal.SIGINT)
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:
            server.kill()
            tally.wrong["the server did not stop within a minute"] += 1
    return judged(args, tally, looks, temporary, log)


def judged(
    args: argparse.Namespace, tally: Tally, looks: list[Look], temporary: Path, log: Path
) -> int:
    if len(looks) < 10:
        print("too short to judge: give it more --minutes")
        return 1
    first = min(MARK, 20 * args.minutes)
    marked = [look for look in looks if first <= look.at < first + 60] or looks[-1:]
    last = looks[-6:]
    grown = median(x.memory for x in last) / median(x.memory for x in marked) - 1
    said = log.read_text("utf-8", "replace")
    left = [str(path.relative_to(temporary)) for path in temporary.rglob("*") if path.is_file()]
    left = [
        name for name in left if (temporary / name).stat().st_size
    ]  # Gradio leaves an empty one
    print(f"first mark  {marked[0]}\nend         {last[-1]}")
    print(f"most        {max(looks, key=lambda look: look.memory)}")
    print(f"{tally.started} runs ({dict(tally.ended)}), {tally.requests} requests")
    print(
        f"memory {grown:+.1%}; {said.count('Traceback')} tracebacks; left behind: {left or 'none'}"
    )
    faults = [f"{count} × {what}" for what, count in tally.wrong.items()]
    if grown > GROWTH:
        faults.append(f"memory grew by {grown:.1%}")
    if "Traceback" in said:
        faults.append(f"tracebacks in the log ({log})")
    for name in ("files", "threads"):
        more = min(getattr(x, name) for x in last) - max(getattr(x, name) for x in marked)
        if more > SPARE:
            faults.append(f"{more} more {name} than at the first mark")
    if left:
        faults.append(f"temporary files stay: {left[:5]}")
    print("\n".join(faults) or "held", flush=True)
    return 1 if faults else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--runs", type=int, default=240)
    parser.add_argument("--requests", type=int, default=10_800, help="in all")
    args = parser.parse_args()
    # A shell starts what runs in its background with SIGINT ignored, and the server inherits that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="draftscope-soak-") as folder:
        temporary = Path(folder) / "tmp"
        temporary.mkdir()
        log = Path(tempfile.gettempdir()) / f"draftscope-soak-{os.getpid()}.log"
        return soak(args, temporary, log)


if __name__ == "__main__":
    sys.exit(main())
