"""The exception whose message is meant for the user."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NoReturn


class UserError(Exception):
    """Bad input, described in one sentence. The command line prints it and exits with code 2."""


def first_line(error: Exception) -> str:
    """The first line of an error's message, or its type's name when the message is empty."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def as_script(main: Callable[[], int | None]) -> NoReturn:
    """Run ``main`` and exit with the code it returns; a UserError is printed, with exit code 2."""
    try:
        sys.exit(main())
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
