"""Words on the progress of work that takes long."""

from __future__ import annotations

import pytest

from core.progress import Progress, told


@pytest.mark.parametrize(
    ("fraction", "seconds", "said"),
    [
        (None, 100, "at work: 0%"),
        (0.5, 1, "at work: 50%"),  # too early to say
        (0.01, 100, "at work: 1%"),
        (0.25, 10, "at work: 25%, about 30 s left"),
        (0.9, 20, "at work: 90%, about 5 s left"),
        (0.99, 20, "at work: 99%, about 5 s left"),
        (0.2, 60, "at work: 20%, about 4 min left"),
        (1.0, 60, "at work: 100%"),
    ],
)
def test_the_time_left_follows_from_the_time_it_took(fraction, seconds, said):
    assert told(Progress("at work", fraction), seconds) == said
