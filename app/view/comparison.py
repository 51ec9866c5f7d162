"""Runs side by side: sentences about what can be compared of them, by their headers.

The page aligns rounds by their place in the text (app/web/align.js), which is sound only where the
text is the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.charts.palette import LETTERS
from analysis.labels import sampling, set_apart, temperature, token_limit
from core.journal import key_of
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
    told = [facts(header)["tokenizer"] for header in headers]
    return not any(_differ(told[0], other) for other in told)


def shared_prompts(headers: Sequence[Header]) -> list[int]:
    """Give for each run the first one whose text begins as its own."""
    told = [facts(header) for header in headers]
    return [next(at for at, other in enumerate(told) if _same_start(other, own)) for own in told]


def _same_start(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    return not any(_differ(one[name], other[name]) for name in ("text", "prompt", "tokenizer"))


def cautions(one: Header, other: Header) -> list[str]:
    """List what two runs do not share, most serious first; empty for two runs of one request."""
    mine, theirs = facts(one), facts(other)
    return [
        sentence
        for sentence, names in CAUTIONS.items()
        if any(_differ(mine[name], theirs[name]) for name in names)
    ]


# Each caution, and the facts of which one must differ.
CAUTIONS: Mapping[str, tuple[str, ...]] = {
    "the tokenizers differ: a token of one may be several of the other": ("tokenizer",),
    "the prompts differ: p and q answer different questions, even at equal tokens":
        ("text", "prompt"),
    "the targets differ: p is another model's": ("target",),
    "the precisions differ: two tokens may tie in one and not in the other": ("dtype",),
    "the blocks differ": ("block",),
    "the tokens per step differ": ("pace",),
    "the orders of unmasking differ": ("ahead",),
    "the token limits differ: one text may end before the other": ("limit",),
    "the temperatures differ": ("temperature",),
    "the top-k settings differ": ("top-k",),
    "the top-p settings differ": ("top-p",),
    "the seeds differ": ("seed",),
}  # fmt: skip


def facts(header: Header) -> dict[str, str]:
    """Return what two runs may share or not, each as a short hash; "" where it is not known: older
    traces do not know everything."""
    rule, told = sampling(header), temperature(header) is not None
    known = {
        "tokenizer": header.tokenizer_hash,
        "prompt": header.prompt_ids,
        "target": header.model.get("name"),
        "dtype": header.dtype,
        "limit": token_limit(header),
        "block": header.settings.get("block"),
        "pace": header.settings.get("pace"),
    }
    drawn = {
        "temperature": rule.temperature, "top-k": rule.top_k, "top-p": rule.top_p,
        "seed": rule.seed,
    }  # fmt: skip
    always = {"text": header.prompt_text, "ahead": header.settings.get("ahead") or 0}
    return (
        {name: _short(value) if value else "" for name, value in known.items()}
        | {name: _short(value) for name, value in always.items()}
        | {name: _short(value) if told else "" for name, value in drawn.items()}
    )


def _short(value: object) -> str:
    """Equal values have equal hashes: 0, 0.0 and False too."""
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        value = int(value)
    return key_of(value)


def _differ(one: str, other: str) -> bool:
    """Both are known and not the same."""
    return bool(one) and bool(other) and one != other
