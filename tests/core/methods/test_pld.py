"""Prompt lookup: what it copies, by the rules of the original, transformers and vLLM."""

from itertools import takewhile

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.generation.candidate_generator import PromptLookupCandidateGenerator

from analysis.measures.probe import observe
from core.decoding.decode import Decoder
from core.drafting.builders import Chain, SampledChain
from core.methods.pld import MATCHED, PLACE
from core.rounds.causes import Cause
from core.traces.writer import round_to_json
from core.verification.rules import SpeculativeSampling
from tests.engines.ngram import looked_up
from tests.helpers import toys
from tests.helpers.fakes import round_from_json
from tests.helpers.toys import PROMPT, plain, run

TEXTS = st.lists(st.integers(0, 3), min_size=1, max_size=40)  # few tokens: most n-grams repeat


def drafted(text, **options):
    drafter = toys.pld_drafter([2], **options)
    drafter.extend(text[:-1], None)
    return Chain()(drafter.begin(text[-1], 1), text, 64).tokens[1:].tolist()


def slowly(text, longest, count):
    """The original's rule, told position by position."""
    for n in range(longest, 0, -1):
        for at in range(len(text)):
            start, end = at + n, at + n + count
            if text[at:start] == text[-n:] and end <= len(text) and start < len(text) - n:
                return text[start:end]
    return []


@settings(max_examples=300, deadline=None)
@given(TEXTS, st.integers(1, 4), st.integers(1, 6))
def test_it_copies_what_the_originals_rule_copies(text, longest, count):
    assert drafted(text, longest=longest, copied=count) == slowly(text, longest, count)


@settings(max_examples=300, deadline=None)
@given(TEXTS, st.integers(1, 4), st.integers(1, 6))
def test_it_copies_what_transformers_copies(text, longest, count):
    theirs = PromptLookupCandidateGenerator(torch.tensor([2]), count, longest, max_length=1000)
    ids, _ = theirs.get_candidates(torch.tensor([text]))
    expected = ids[0, len(text) :].tolist()
    assert drafted(text, longest=longest, copied=count, whole=False) == expected


@settings(max_examples=300, deadline=None)
@given(TEXTS, st.integers(1, 4), st.integers(1, 6))
def test_it_copies_what_vllm_copies_as_far_as_a_stop_token(text, longest, count):
    expected = list(takewhile(lambda token: token != 2, looked_up(text, 1, longest, count, 1000)))
    assert drafted(text, longest=longest, copied=count, whole=False) == expected


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("sampling", [toys.GREEDY, toys.HOT], ids=["greedy", "hot"])
def test_rounds_say_where_a_token_was_copied_from(sampling, whole):
    drafter = toys.pld_drafter(longest=2, copied=4, whole=whole)
    found = run(Decoder("pld", drafter, Chain()), 120, sampling, 10, observe=observe)
    text, copies = [*PROMPT, *found.tokens], 0
    assert found.tokens == plain(120, sampling)
    for record in found.rounds:
        draft = record.draft
        for row in range(1, len(draft)):
            assert text[int(draft.notes[PLACE][row])] == draft.tokens[row]
            assert draft.notes[MATCHED][row] in (1, 2)
        assert draft.nodes or (record.stop_reason == Cause.NO_DRAFT and record.probe is None)
        copies += draft.nodes > 0
        if record.probe is not None:
            first = record.target_probs.log_p[1]
            np.testing.assert_allclose(record.probe.tvd[0], 1 - np.exp(first), atol=1e-5)
            np.testing.assert_allclose(record.probe.coverage[0], np.exp(first), atol=1e-5)
        again = round_from_json(round_to_json(record))
        assert again.stop_reason == record.stop_reason
        for row in range(len(draft)):
            one, two = record.candidates_after(row), again.candidates_after(row)
            assert (one is None) == (two is None)
            assert one is None or one.ids.tolist() == two.ids.tolist()
    assert copies > 10


def test_a_copy_can_be_verified_by_speculative_sampling():
    """q is 1 for the copied token, so it is accepted with p; where nothing is copied, p decides."""
    drafter = toys.pld_drafter(longest=1, copied=3)
    found = run(Decoder("m", drafter, SampledChain(), SpeculativeSampling), 80, toys.HOT, 5)
    assert len(found.tokens) == 80 and len(set(found.tokens)) > 10
    assert {r.draft.nodes for r in found.rounds} == {0, 3}
