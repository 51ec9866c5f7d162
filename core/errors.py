"""The one exception a user is meant to read."""


class UserError(Exception):
    """Bad input, said in one clear sentence; the command line exits with code 2."""


def first_line(error: Exception) -> str:
    """An error's first line, or its kind when it says nothing."""
    return str(error).strip().partition("\n")[0] or type(error).__name__
