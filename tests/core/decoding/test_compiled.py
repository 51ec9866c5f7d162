"""Compiled functions where nothing can be kept, as with a read-only home."""

from types import FunctionType

import numba
import pytest

from core.compiled import compiled


def twice(number):
    return 2 * number


def test_a_function_is_compiled_where_nothing_can_be_kept():
    code = twice.__code__.replace(co_filename="/no/such/folder/twice.py")
    away = FunctionType(code, {"__name__": "twice"})
    with pytest.raises(RuntimeError, match="cannot cache"):
        numba.njit(cache=True)(away)
    found = compiled(away)
    assert found(21) == 42 and found.signatures
