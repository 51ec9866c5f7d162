"""Runs side by side: sentences about what can be compared of them, by their headers.

The page aligns rounds by their place in the text (app/web/align.js), which is sound only where the
text is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from analysis.charts.palette import LETTERS
from analysis.labels import set_apart
from core.traces.schema import Header
from core.visible import visible


def comparison_view(headers: Sequence[Header]) -> dict[str, Any]:
    """Return the page's view of runs side by side: what they do not share, whether nodes can be
    linked, which of them begin with one text, and what sets runs of one method apart."""
    if len(headers) < 2:
        return {"cautions": [], "linkable": False, "prompts": [], "apart": [""] * len(headers)}
    return {
        "apart": apart(headers),
        "cautions": differences(headers),
        "linkable": same_tokens(headers),
        "prompts": shared_prompts(headers),
    }


def apart(headers: Sequence[Header]) -> list[str]:
    """Say what tells each run from the others of its method beside the budget; "" for nothing."""
    found = set_apart({str(at): header for at, header in enumerate(headers)})
    return [visible(words, 60) if words else "" for words in found.values()]


def differences(headers: Sequence[Header]) -> list[str]:
    """List what the runs do not share with the first of them; of several, each with letters."""
    if len(headers) < 3:
        return cautions(*headers) if len(headers) == 2 else []
    found: dict[str, list[str]] = {}
    for letter, other in zip(LETTERS[1:], headers[1:], strict=False):
        for sentence in cautions(headers[0], other):
            found.setdefault(sentence, []).append(letter)
    return [f"A against {' and '.join(letters)}: {words}" for words, letters in found.items()]


def same_tokens(headers: Sequence[Header]) -> bool:
    """Whether a token id means the same token in all of them."""
    return not any(_differ(headers[0].tokenizer_hash, other.tokenizer_hash) for other in headers)


def shared_prompts(headers: Sequence[Header]) -> list[int]:
    """For each run the first one whose text begins as its own."""
    firsts = range(len(headers))
    return [next(at for at in firsts if _same_start(headers[at], own)) for own in headers]


def _same_start(one: Header, other: Header) -> bool:
    same = one.prompt_text == other.prompt_text and not _differ(one.prompt_ids, other.prompt_ids)
    return same and not _differ(one.tokenizer_hash, other.tokenizer_hash)


def cautions(one: Header, other: Header) -> list[str]:
    """List what two runs do not share, most serious first; empty for two runs of one request."""
    found = []
    if _differ(one.tokenizer_hash, other.tokenizer_hash):
        found.append("the tokenizers differ: a token of one may be several of the other")
    if one.prompt_text != other.prompt_text or _differ(one.prompt_ids, other.prompt_ids):
        found.append("the prompts differ: p and q answer different questions, even at equal tokens")
    if _differ(one.model.get("name"), other.model.get("name")):
        found.append("the targets differ: p is another model's")
    if _differ(one.dtype, other.dtype):
        found.append("the precisions differ: two tokens may tie in one and not in the other")
    if _differ(_limit(one), _limit(other)):
        found.append("the token limits differ: one text may end before the other")
    mine, theirs = _sampling(one), _sampling(other)
    return found + [f"the {name} differ" for name in mine if mine[name] != theirs[name]]


def _differ(one: object, other: object) -> bool:
    """Both are known and not the same; older traces do not know everything."""
    return bool(one) and bool(other) and one != other


def _limit(header: Header) -> object:
    """The most tokens the text may have; a denoising run calls it the text's length."""
    return header.settings.get("max_new_tokens", header.settings.get("length"))


def _sampling(header: Header) -> dict[str, Any]:
    """Return what decides the target's own tokens; at temperature 0 nothing else. A denoising run
    has its sampling among its settings."""
    found = header.settings.get("sampling", header.settings)
    sampling = found if isinstance(found, dict) else {}
    warm = bool(sampling.get("temperature"))
    return {
        "temperatures": sampling.get("temperature") or 0,
        "top-k settings": warm and (sampling.get("top_k") or 0),
        "top-p settings": warm and (sampling.get("top_p") or 1),
        "seeds": warm and header.seed,
    }
