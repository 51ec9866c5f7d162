"""Weights in int8: each within half a step of its group's scale, and what is read back stays."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from core.models.int8 import GROUP, compress, expand, expanded_shapes


@pytest.mark.parametrize("width", [GROUP, 2 * GROUP, 100, 3])
def test_every_weight_is_within_half_a_step_of_its_own_group(width):
    """The step is the smallest power of two of which the group's largest weight is at most 127."""
    weights = torch.randn(5, width, generator=torch.Generator().manual_seed(0))
    weights[1] *= 1000
    weights[:, -3:] *= 1e-4
    weights[2] = 0
    state = {"a": weights, "bias": weights[0]}
    packed = compress(state)
    found = expand(packed)
    assert {n: tuple(t.shape) for n, t in found.items()} == {"a": (5, width), "bias": (width,)}
    assert expanded_shapes({n: tuple(t.shape) for n, t in packed.items()}) == {
        "a": (5, width),
        "bias": (width,),
    }
    for row in range(5):
        for low in range(0, width, GROUP):
            group = weights[row, low : low + GROUP].double().numpy()
            back = found["a"][row, low : low + GROUP].double().numpy()
            peak = np.abs(group).max()
            step = 2.0**-200 if peak == 0 else 1.0
            while peak > 0 and peak / step <= 127:
                step /= 2
            while peak / step > 127:
                step *= 2
            assert np.abs(back - group).max() <= step / 2
            assert (back == np.round(back / step) * step).all()


def test_what_was_read_is_written_again_without_loss():
    found = expand(compress({"a": torch.randn(7, 150)}))
    assert torch.equal(expand(compress(found))["a"], found["a"])
    assert found["a"].dtype == torch.bfloat16 and expand(found) == found
