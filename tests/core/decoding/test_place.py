"""Targets of one model that keep other layers' features share one text and one cache."""

from __future__ import annotations

import pytest
import torch

from core.models.target import Place, Target
from core.rounds.draft import Draft
from tests.helpers import toys

CONTEXT = [5, 17, 3, 44, 9, 28, 3, 11, 40, 2]


def test_targets_of_one_place_have_one_text():
    """A run on one shows that the other's text is gone."""
    place, model = Place(), toys.model()
    first, second = (Target(model, layers, place=place) for layers in ((0,), (1, 2)))
    first.prefill(CONTEXT, 8)
    cache = place.cache
    assert second.length == first.length == len(CONTEXT) and second.texts == 1
    features = second.prefill(CONTEXT[:-1], 8).features
    assert place.cache is cache and first.length == len(CONTEXT) - 1 and first.texts == 2
    expected = toys.full_forward(CONTEXT[:-1], layers=(1, 2)).features
    torch.testing.assert_close(features, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("longer", [False, True])
def test_padded_targets_of_one_place_score_as_one_alone(longer):
    place, model, draft = Place(), toys.model(), Draft.chain([3, 9, 4])
    targets = [Target(model, layers, True, place) for layers in ((0,), (1, 2))]
    for number, each in enumerate([*targets, *targets]):
        text = CONTEXT * (40 * number + 1 if longer else 1)
        each.prefill(text, 40)
        alone = Target(model, each.layers, False)
        alone.prefill(text, 40)
        mine, theirs = each.score(draft), alone.score(draft)
        torch.testing.assert_close(mine.logits, theirs.logits)
        torch.testing.assert_close(mine.features, theirs.features)
