"""A process that starts commands and stops them where they keep what they have finished.

``python -m tests.helpers.stopped`` reads lines of JSON: [words of a command, n]. The command stands
still when it has kept n things and is about to keep the next; no clock decides when. The answer is
whether it stands still. After the line null it is killed. Libraries are imported once, so that
each command is a cheap fork.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from itertools import count
from types import SimpleNamespace
from typing import Any, NoReturn


def toys() -> list[tuple[Any, str, Any]]:
    """List what stands in for models and clocks: (module, name, value)."""
    from core.diffusion import models
    from core.train import fit
    from tests.helpers.diffusion_toys import toy_language

    clock = SimpleNamespace(perf_counter=map(float, count()).__next__, monotonic=lambda: 0.0)
    language = toy_language()
    return [(models, "load_diffusion", lambda *_, **__: language), (fit, "time", clock)]


def _run(words: list[str], after: int) -> NoReturn:
    from app import cli

    kept, real = count(), os.fsync

    def fsync(file: int) -> None:
        if next(kept) >= after:
            os.kill(os.getpid(), signal.SIGSTOP)
        real(file)

    os.fsync = fsync
    for module, name, value in toys():
        setattr(module, name, value)
    os.dup2(2, 1)
    os._exit(cli.main(words))


def main() -> None:
    import torch

    import tests.helpers.toys_on_disk  # noqa: F401 (its imports)

    torch.set_num_threads(1)
    child = None
    for line in sys.stdin:
        if (asked := json.loads(line)) is not None:
            child = os.fork() or _run(*asked)
            _, status = os.waitpid(child, os.WUNTRACED)
            child = child if os.WIFSTOPPED(status) else None
        elif child is not None:
            child = _killed(child)
        print(json.dumps(child is not None), flush=True)
    if child is not None:
        _killed(child)


def _killed(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


if __name__ == "__main__":
    main()
