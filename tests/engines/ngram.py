"""vLLM's prompt lookup, slowly."""

from collections.abc import Sequence


def looked_up(text: Sequence[int], least: int, most: int, count: int, longest: int) -> list[int]:
    """The draft of vLLM's ``ngram`` (0.32, ``v1/spec_decode/ngram_proposer.py``), place by place.

    Of the n-grams that end the text and stood before, the longest one of ``least`` to ``most``
    tokens, where it stood first: at most ``count`` tokens that follow it there, a stop token among
    them or not, so that the text stays within the ``longest`` of the model.
    """
    count = max(0, min(count, longest - len(text)))
    for n in range(most, least - 1, -1):
        for start in range(n, len(text)):
            if text[start - n : start] == text[-n:]:
                return list(text[start : start + count])
    return []
