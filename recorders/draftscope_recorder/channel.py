"""From the serving process to the writer's process, over a pipe.

``send`` returns at once: a thread packs what it is given and writes to the pipe, and a step for
which the queue has no room is lost and counted. So a disk that is slow or full costs records and
never holds a step. When the serving process dies, however it dies, the pipe ends and the writer
closes its files.
"""

from __future__ import annotations

import json
import logging
import queue
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

log = logging.getLogger("draftscope")
LONGEST = 1 << 30  # bytes of a message

Step = tuple[dict[str, Any], Mapping[str, Any]]  # facts, and arrays by name


class Channel:
    """The writer's process and the queue before it.

    lost     steps for which the queue had no room
    ended    whether the writer is gone: nothing is written any more
    collect  turns what ``send`` was given into arrays, in the thread: waiting for a device's copy
             belongs there
    """

    def __init__(self, header: dict[str, Any], size: int, collect: Callable[[Any], Any]):
        self.lost, self.ended = 0, False
        self._queue: queue.Queue[Step | None] = queue.Queue(size)
        self._gap, self._collect = False, collect
        path = str(Path(__file__).resolve().parent.parent)
        code = (
            f"import sys; sys.path.append({path!r}); from {__package__}.writing import main; main()"
        )
        command = [sys.executable, "-c", code]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
        self._queue.put_nowait((header, {}))
        self._thread = threading.Thread(target=self._run, name="draftscope", daemon=True)
        self._thread.start()

    def send(self, facts: dict[str, Any], arrays: Mapping[str, Any]) -> bool:
        """Give a step to the writer; False: it is lost, which the next one then says."""
        if self.ended:
            return False
        if self._gap:
            facts["gap"] = True
        try:
            self._queue.put_nowait((facts, arrays))
            self._gap = False
        except queue.Full:
            self._gap = True
            self.lost += 1
        return not self._gap

    def close(self, seconds: float = 5.0) -> None:
        """Let the writer finish what was sent, for at most so long."""
        until = time.monotonic() + seconds
        try:
            self._queue.put(None, timeout=seconds)
            self._thread.join(_left(until))
            self._process.wait(_left(until))
        except (queue.Full, subprocess.TimeoutExpired):
            log.warning("draftscope: the writer of traces does not end; the last ones are cut")

    def _run(self) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        try:
            while (step := self._queue.get()) is not None:
                facts, arrays = step
                facts["lost"] = self.lost
                write(pipe, facts, {name: self._collect(x) for name, x in arrays.items()})
            pipe.close()
        except Exception as error:
            self.ended = True
            log.warning("draftscope: recording ended: %s", error or type(error).__name__)
            with suppress(queue.Empty):  # what waits may lie on a device
                while True:
                    self._queue.get_nowait()


def _left(until: float) -> float:
    """Seconds until then."""
    return max(0.0, until - time.monotonic())


def write(pipe: IO[bytes], facts: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """One message: its length, a JSON head, and the arrays' bytes."""
    shapes = [[name, x.dtype.str, list(x.shape)] for name, x in arrays.items()]
    head = json.dumps([facts, shapes]).encode()
    body = b"".join([struct.pack("<I", len(head)), head, *(x.tobytes() for x in arrays.values())])
    pipe.write(struct.pack("<I", len(body)) + body)
    pipe.flush()


def read(pipe: IO[bytes]) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
    """The next message; None where the pipe ends, in the midst of one too."""
    size = pipe.read(4)
    if len(size) < 4 or (length := struct.unpack("<I", size)[0]) > LONGEST:
        return None
    body = pipe.read(length)
    if len(body) < length:
        return None
    at = 4 + struct.unpack("<I", body[:4])[0]
    facts, shapes = json.loads(body[4:at])
    arrays = {}
    for name, kind, shape in shapes:
        x = np.frombuffer(body, kind, int(np.prod(shape)), at).reshape(shape)
        arrays[name], at = x, at + x.nbytes
    return facts, arrays
