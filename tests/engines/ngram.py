"""vLLM's prompt lookup, slowly."""

from collections.abc import Sequence


def looked_up(text: Sequence[int], least: int, most: int, count: int, longest: int) -> list[int]:
    """The draft of ``ngram`` in vLLM's V1 runner (0.32, ``v1/spec_decode/ngram_proposer.py``).

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


def looked_up_last(text: Sequence[int], least: int, most: int, count: int) -> list[int]:
    """The draft of ``ngram`` in its V2 runner (0.32, ``v1/worker/gpu/spec_decode/ngram``).

    It takes the place where the longest n-gram stood last, and fills the draft up to ``count`` with
    the text's last token, which is all of it where there is no such place.
    """
    found: list[int] = []
    for n in range(most, least - 1, -1):
        for start in reversed(range(n, len(text))):
            if not found and list(text[start - n : start]) == list(text[-n:]):
                found = list(text[start : start + count])
    return found + [text[-1]] * (count - len(found))
