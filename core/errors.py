"""The one exception a user is meant to read."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NoReturn


class UserError(Exception):
    """Bad input, said in one clear sentence; the command line exits with code 2."""


def first_line(error: Exception) -> str:
    """An error's first line, or its kind when it says nothing."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def as_script(main: Callable[[], int | None]) -> NoReturn:
    """Exit as a module run by ``python -m`` does: with what ``main`` returns, or with code 2 after
    the one sentence of a UserError."""
    try:
        sys.exit(main())
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
