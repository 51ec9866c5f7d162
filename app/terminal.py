"""The printing of commands: tables, a growing text, progress. Colours only on a terminal.

Text of a model or a file goes through ``flowing`` before it is printed, so no escape sequence
reaches a terminal.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from analysis.numbers import plural, share
from app.table_texts import FORMS, TableForm
from core.visible import JOINERS, flowing

BAR = 24  # characters of the longest bar
EIGHTHS = " ▏▎▍▌▋▊▉█"
GAP, LEAST, SHORT = 2, 12, 8  # cells between columns, of one of words, of a head of one line
WHOLE = 1_000_000  # cells of a line that nothing cuts
SPARSE_SECONDS = 10.0
LEFT_OUT = 5  # files that are left out, named
SOON = 2.0  # seconds of reading or computing of which nothing is said
LIBRARIES = {"huggingface_hub": "HF_HUB_VERBOSITY", "transformers": "TRANSFORMERS_VERBOSITY"}

Row = Sequence[str]


class _Console(Console):
    """Rich ends the process itself when the reader has gone; here ``main`` decides that."""

    tables: TableForm | None = None

    def print(self, *objects: Any, **options: Any) -> None:
        """Print; beside LaTeX's tables text is a comment, so that LaTeX reads all of it."""
        if self.tables == "latex":
            objects = tuple(_commented(o) if isinstance(o, str) else o for o in objects)
        super().print(*objects, **options)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def _commented(text: str) -> str:
    return "\n".join(f"% {line}" if line else "" for line in text.split("\n"))


def console(stream: IO[str] | None = None, tables: TableForm | None = None) -> Console:
    """A console on stdout (or ``stream``) that reads nothing as markup. It writes tables in the
    form ``tables``; None: to be read."""
    # A pipe has no width: long rows stay one line there, as programs like them.
    width = None if (stream or sys.stdout).isatty() else 400
    made = _Console(
        file=stream or sys.stdout, markup=False, highlight=False, emoji=False,
        width=WHOLE if tables else width,
    )  # fmt: skip
    made.tables = tables
    return made


def say(sentence: str) -> None:
    """One line on stderr, for people."""
    print(flowing(sentence), file=sys.stderr, flush=True)


def say_left_out(whys: Sequence[str]) -> int:
    """Say why each file is left out, of the first few; returns the exit code: 1 where one is."""
    for why in whys[:LEFT_OUT]:
        say(f"left out: {one_line(why, 400)}")
    if more := len(whys[LEFT_OUT:]):
        say(f"and {plural(more, 'more file')}")
    return 1 if whys else 0


def print_lines(out: Console, sentences: Iterable[str], limit: int = 400) -> None:
    """Print sentences, a line each of at most so many characters, which the terminal breaks."""
    for sentence in sentences:
        out.print(one_line(sentence, limit), soft_wrap=True)


def one_line(text: str, limit: int | None) -> str:
    """Text as one safe line of at most ``limit`` characters; None: whole."""
    flat = flowing(text).replace("\n", "⏎").replace("\t", "⇥")
    return flat if limit is None or len(flat) <= limit else flat[: limit - 1] + "…"


@dataclass(frozen=True)
class FittingTable:
    """A table that fits the terminal: columns for which there is no room stand below, beside the
    first ones, which tell the rows apart. Words and heads go on in the next line; no number is cut.

    left  heads of the columns that hold words, which stand to the left; numbers to the right
    """

    heads: Sequence[str]
    rows: Sequence[Row]
    left: Sequence[str] = ()

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[Table | str | Segment]:
        if isinstance(console, _Console) and console.tables:
            yield Segment(FORMS[console.tables](self.heads, self.rows, self.left))
            return
        columns, room = range(len(self.heads)), options.max_width + GAP
        wide = [GAP + max(map(cell_len, self._column(at))) for at in columns]
        if sum(wide) <= room:
            yield from self._plain(wide, console.get_style("bold"))
            return
        first = columns[: self._first]
        wide = [GAP + self._least(at) for at in columns]
        words = [at for at in first if self.heads[at] in self.left]
        most = max((room * 2 // 5) // max(len(words), 1), LEAST)  # of what stands again
        for at in words:
            wide[at] = min(wide[at], most)
        left = room - sum(wide[at] for at in first)
        wide = [w if at in first else max(min(w, left), GAP + 1) for at, w in enumerate(wide)]
        part = list[int]()
        for at in columns[len(first) :]:
            if part and sum(wide[n] for n in part) + wide[at] > left:
                yield self._part([*first, *part], wide)
                yield ""
                part = []
            part.append(at)
        yield self._part([*first, *part], wide)

    def _plain(self, wide: Sequence[int], bold: Style) -> Iterator[Segment]:
        """The table where all of it fits, as rich draws it: that takes a millisecond a row."""
        places = [(at, wide[at] - GAP, head in self.left) for at, head in enumerate(self.heads)]
        for number, row in enumerate([self.heads, *self.rows]):
            if number or any(self.heads):
                cells = (_padded(row[at], width, left) for at, width, left in places)
                yield Segment((" " * GAP).join(cells) + "\n", None if number else bold)

    @property
    def _first(self) -> int:
        """How many columns tell the rows apart; 1 where all do not."""
        for count in range(1, len(self.heads)):
            if len({tuple(row[:count]) for row in self.rows}) == len(self.rows):
                return count
        return 1

    def _column(self, at: int) -> list[str]:
        return [self.heads[at], *(row[at] for row in self.rows)]

    def _least(self, at: int) -> int:
        """Cells of a column whose head goes on in the next line."""
        head, *cells = self._column(at)
        words = head.split() if cell_len(head) > SHORT else [head]
        return max(map(cell_len, [*words, *cells]))

    def _part(self, columns: Sequence[int], wide: Sequence[int]) -> Table:
        shown = any(self.heads[at] for at in columns)
        made = Table(box=None, pad_edge=False, header_style="bold", show_header=shown)
        for at in columns:
            left = self.heads[at] in self.left
            justify, overflow = "left" if left else "right", "fold"
            made.add_column(
                self.heads[at], justify=justify, overflow=overflow, width=wide[at] - GAP
            )
        for row in self.rows:
            made.add_row(*(Text(row[at]) for at in columns))
        return made


def _padded(cell: str, width: int, left: bool) -> str:
    space = " " * (width - cell_len(cell))
    return cell + space if left else space + cell


def bar(value: float, largest: float, width: int = BAR) -> str:
    """A horizontal bar, exact to an eighth of a character; anything above 0 can be seen."""
    eighths = round(8 * width * value / largest) if largest > 0 else 0
    eighths = max(eighths, 1 if value > 0 else 0)
    return "█" * (eighths // 8) + (EIGHTHS[eighths % 8] if eighths % 8 else "")


class GrowingText:
    """Prints what is new of a text that grows.

    A character whose bytes are not all there yet decodes as U+FFFD; it waits for the rest, and a
    joiner for what it joins.
    """

    def __init__(self, stream: IO[str]):
        self._stream, self._shown = stream, 0

    def show(self, text: str, final: bool = False) -> None:
        end = len(text if final else text.rstrip("\ufffd" + JOINERS))
        if end > self._shown:
            last = max(self._shown - 1, 0)  # how a character is shown depends on the one before
            self._stream.write(flowing(text[last:end])[len(flowing(text[last : self._shown])) :])
            self._stream.flush()
            self._shown = end


class ProgressBar:
    """Long work on stderr: a bar on a terminal, otherwise a line now and then.

    ``total`` counts the steps; ``at(done)`` moves it, ``None``: how far it is is not known.
    ``late``: nothing is said for ``SOON`` seconds, of what is mostly done by then.
    """

    def __init__(self, title: str, total: float = 1.0, late: bool = False):
        self._title, self._total = title, total
        self._bar, self._task = None, None
        self._last, self._from = -float("inf"), time.monotonic() + SOON * late
        self._soon: threading.Timer | None = None
        self._now: tuple[float | None, str] = (None, "")

    def __enter__(self) -> ProgressBar:
        if sys.stderr.isatty():
            from rich import progress

            self._bar = progress.Progress(
                progress.TextColumn("{task.description}", markup=False),
                progress.BarColumn(),
                progress.TaskProgressColumn(),
                progress.TimeElapsedColumn(),
                progress.TimeRemainingColumn(),
                console=console(sys.stderr),
                transient=True,
                # What is printed meanwhile is above the bar on a terminal, and stays unchanged
                # on its way into a file.
                redirect_stdout=sys.stdout.isatty(),
            )
            self._task = self._bar.add_task(self._title, total=None)
            if self._from <= time.monotonic():
                self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._soon is not None:
            self._soon.cancel()
        if self._bar is not None:
            self._bar.stop()

    def at(self, done: float | None, note: str = "") -> None:
        title, now = f"{self._title}: {note}" if note else self._title, time.monotonic()
        self._now = done, note
        if now < self._from:
            if self._soon is None:  # one step may take all of the time
                self._soon = threading.Timer(self._from - now, lambda: self.at(*self._now))
                self._soon.daemon = True
                self._soon.start()
            return
        if self._bar is not None and self._task is not None:
            total = None if done is None else self._total
            self._bar.start()
            self._bar.update(self._task, description=title, total=total, completed=done or 0)
            return
        if now - self._last >= SPARSE_SECONDS:
            self._last = now
            say(title if done is None else f"{title} ({share(done / self._total, 0)})")


def quiet_libraries() -> None:
    """No chatter of transformers and the hub on our output; a download's bar only on a terminal."""
    if not sys.stderr.isatty():
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    for library, variable in LIBRARIES.items():
        os.environ.setdefault(variable, "error")  # read when it is imported, which may never be
        if (loaded := sys.modules.get(f"{library}.utils.logging")) is not None:
            loaded.set_verbosity_error()
