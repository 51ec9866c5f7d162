"""How a command hears Ctrl-C and SIGTERM: each raises KeyboardInterrupt."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
SAME = 1.0  # seconds after a SIGTERM in which another is the same one: `timeout` sends two

Handler = Callable[[int, FrameType | None], Any]


class Sigterm:
    """A handler of SIGTERM. ``came``: when it raised last, in monotonic seconds."""

    came: float | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.came is None or now - self.came > SAME:
            self.came = now
            raise KeyboardInterrupt


@contextmanager
def handled(handlers: Mapping[int, Handler | int | None]) -> Iterator[None]:
    """Have these handlers of signals in the block, and after it those before. Only the main thread
    hears of signals; None, a handler that is not Python's, stays."""
    before = {number: signal.getsignal(number) for number in handlers}
    if threading.current_thread() is not threading.main_thread():
        before = {}
    ours = [number for number, handler in before.items() if handler is not None]
    for number in ours:
        signal.signal(number, handlers[number])
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, before[number])


@contextmanager
def sigterm_heard() -> Iterator[Sigterm]:
    with handled({signal.SIGTERM: (sigterm := Sigterm())}):
        yield sigterm


@contextmanager
def noted_interrupt() -> Iterator[list[int]]:
    """A signal raises as ever and is noted in the list. One that comes while an object of a library
    is deleted would be lost: Python drops what ``__del__`` raises."""
    pressed: list[int] = []
    raising: dict[int, Handler] = {}
    for number in SIGNALS:
        handler = signal.getsignal(number)
        ours = handler is signal.default_int_handler or isinstance(handler, Sigterm)
        if ours and callable(handler):
            raising[number] = handler

    def press(number: int, frame: FrameType | None) -> None:
        pressed.append(number)
        raising[number](number, frame)

    with handled(dict.fromkeys(raising, press)):
        yield pressed


@contextmanager
def delayed_interrupt() -> Iterator[None]:
    """A signal waits until the block is done: half a gzip write would spoil what is before it."""
    pressed: list[int] = []
    with handled(dict.fromkeys(SIGNALS, lambda number, _: pressed.append(number))):
        yield
    for number in pressed[:1]:
        signal.raise_signal(number)
