"""The one exception a user is meant to read."""


class UserError(Exception):
    """Bad input, said in one clear sentence; the command line exits with code 2."""
