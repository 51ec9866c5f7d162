"""Small language models as masked-diffusion targets."""

from __future__ import annotations

import copy
from functools import cache

from core.diffusion.draft_graph import make_graph
from core.diffusion.target import BidirectionalTarget, BlockCausalTarget
from tests.helpers import toys

MASK = toys.VOCABULARY - 1


@cache
def own_model(family="llama", layers=4):
    """A toy of our own: a target takes its model over."""
    made = copy.deepcopy(toys.model(family))
    del made.model.layers[layers:]
    made.config.num_hidden_layers = layers
    return made


MAKERS = [
    lambda model: BlockCausalTarget(model, MASK),
    lambda model: BidirectionalTarget(model, MASK),
]
GRAPH = make_graph(
    [((1, 1),), ((1, 2),), ((2, 1),), ((1, 1), (2, 1)), ((1, 2), (2, 1)), ((1, 1), (2, 1), (3, 1))]
)
