"""A text as it is read: p and features against a plain forward."""

from __future__ import annotations

import pytest
import torch

from core.decoding.along import Reading, read_along
from core.errors import UserError
from tests.helpers import toys

TEXT, ANSWER = (3, 1, 4, 1, 5, 9, 2, 6, 5), 4


@pytest.fixture(scope="module")
def reading() -> Reading:
    return read_along(toys.target(), TEXT, ANSWER)


def test_p_and_the_best_tokens_are_a_plain_forward_s(reading):
    slow = toys.full_forward(TEXT).logits
    torch.testing.assert_close(reading.p, slow[ANSWER:].softmax(-1).float(), check_dtype=False)
    assert reading.best.tolist() == slow[ANSWER:].argmax(-1).tolist()


@pytest.mark.parametrize("end", range(ANSWER + 1, len(TEXT) + 1))
def test_a_beginning_of_a_reading_is_that_of_the_shorter_text(reading, end):
    part, whole = reading.until(end), read_along(toys.target(), TEXT[:end], ANSWER)
    torch.testing.assert_close(part.p, whole.p)
    for layer, states in whole.states.items():
        torch.testing.assert_close(part.states[layer], states)


def test_a_layer_that_was_not_read_is_named(reading):
    with pytest.raises(UserError, match="no features of layer 77"):
        reading.after((*toys.LAYERS, 77))
