"""The exception whose message is meant for the user."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NoReturn

from .visible import flowing

LONGEST_WORD, LONGEST = 300, 2000  # characters of a message's words, and of all of it
_LONG_WORD = re.compile(rf"\S{{{LONGEST_WORD},}}")
# What transformers says of a config for whose class it has no model of the kind that is asked for.
_NO_CLASS = re.compile(r"Unrecognized configuration class <class '[\w.]*?(\w+)'> .*")


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Of a path that is not there, or that nobody may write: a home folder that can only be read.
REFUSED = (
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.ELOOP,
    errno.ENAMETOOLONG,
)  # fmt: skip


class UserError(Exception):
    """Bad input, described in one sentence. The command line prints it and exits with code 2.

    Names and other errors' words come from files: very long ones are shortened, and what cannot be
    seen is shown, since a notebook prints the sentence as it is.
    """

    def __init__(self, message: object = ""):
        text = _LONG_WORD.sub(
            lambda found: f"{found[0][:200]}…{found[0][-60:]}", flowing(str(message))
        )
        super().__init__(text if len(text) <= LONGEST else text[: LONGEST - 1] + "…")


class WrongKind(UserError):
    """A file is not of the kind that its reader reads.

    path  the file, where it is known: ``analysis.kinds`` can say what it is
    """

    def __init__(self, message: object = "", path: Path | None = None):
        super().__init__(message)
        self.path = path


def reading(place: object) -> AbstractContextManager[None]:
    """Raises UserError for an OSError inside: ``place`` cannot be read."""
    return _refused(f"{place} cannot be read")


def writing(place: object) -> AbstractContextManager[None]:
    """Raises UserError for an OSError inside: ``place`` cannot be written."""
    return _refused(f"{place} cannot be written")


@contextmanager
def _refused(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"{what}: {_full(error) or error.strerror or first_line(error)}") from None


def first_line(error: Exception) -> str:
    """The first line of an error's message, or its type's name when the message is empty."""
    line = str(error).strip().partition("\n")[0]
    return _NO_CLASS.sub(r"transformers makes no language model of a \1", line) or (
        type(error).__name__
    )


def in_one_line(error: Exception) -> str:
    """Why something failed, in one line: a UserError's words, another error's with its type."""
    text = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())[:300] or type(error).__name__


def unwritable(error: Exception) -> str | None:
    """A sentence where the disk or the output has no room, or the system refuses a path, whoever
    found out; else None."""
    place = getattr(error, "filename", None) or "the output"
    if (why := _full(error)) is not None:
        return f"{place} cannot be written: {why}"
    if isinstance(error, OSError) and error.filename and error.errno in REFUSED:
        return f"{place} cannot be used: {error.strerror}"
    return None


def _full(error: Exception) -> str | None:
    """The system's words for a full disk, where a library says them among its own."""
    return next((words for words in map(os.strerror, FULL) if words in str(error)), None)


def as_script(main: Callable[[], int | None]) -> NoReturn:
    """Run ``main`` and exit with the code it returns; a UserError is printed, with exit code 2, and
    so is a full disk."""
    try:
        sys.exit(main())
    except Exception as error:
        sentence = error if isinstance(error, UserError) else unwritable(error)
        if sentence is None:
            raise
        print(sentence, file=sys.stderr)
        sys.exit(2)
