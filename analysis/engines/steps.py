"""Counts of one text, where each line or item is one verification or one token. Never torch.

llama.cpp's forks write a line for each verification (``LLAMA_SPEC_DUMP``). LM Studio's SDK gives a
fragment for each token, which says whether the draft model wrote it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from analysis.measures.counts import Served, by_length
from core.declared import BadField, Count, read
from core.errors import UserError
from core.readers import Item

MOST = 1 << 10  # tokens of a draft


class _Verification(Struct):
    n_draft: Count
    n_accept: Count
    replay: bool | Count = False


class _Fragment(Struct, rename="camel"):
    tokens_count: Count
    contains_drafted: bool | None = None
    from_draft_model: bool | None = None
    is_structural: bool = False


def of_items(values: Sequence[Item]) -> tuple[Served, str, list[str]] | None:
    """The counts of a file whose items are verifications or fragments, the kind of record, and
    sentences about them; None: they are something else. Raises UserError, one sentence."""
    if _all_have(values, _VERIFICATION):
        return _verifications(values)
    if _all_have(values, *_FRAGMENT):
        return _fragments(values)
    return None


_VERIFICATION = {"n_draft", "n_accept"}
_FRAGMENT = {"tokensCount", "containsDrafted"}, {"tokensCount", "fromDraftModel"}


def is_item(value: object) -> bool:
    """Whether a value of JSON is one verification or fragment."""
    return _all_have([(value, "")], _VERIFICATION, *_FRAGMENT)


def _all_have(values: Sequence[Item], *any_of: set[str]) -> bool:
    return bool(values) and all(
        isinstance(value, dict) and any(names <= value.keys() for names in any_of)
        for value, _ in values
    )


def _verifications(values: Sequence[Item]) -> tuple[Served, str, list[str]]:
    """A step that is computed again for a cache (``replay``) is left out, and so is one without a
    draft, as in llama.cpp's own counts."""
    order = list[tuple[int, int]]()
    left_out = 0
    for value, where in values:
        step = _read(value, where, _Verification)
        if step.n_draft > MOST:
            raise UserError(f"{where}: a draft of {step.n_draft} tokens is too long")
        if step.n_accept > step.n_draft:
            raise UserError(f"{where}: more tokens are accepted than drafted")
        if step.replay or not step.n_draft:
            left_out += 1
        else:
            order.append((step.n_accept, step.n_draft))
    accepted, drafted = (sum(each) for each in zip(*order, strict=True)) if order else (0, 0)
    notes = []
    if left_out:
        notes.append(
            f"{left_out} of {len(values)} steps are replays or drafted nothing: τ is of the others."
        )
    histogram = by_length(Counter(taken for taken, _ in order)) or None
    served = Served(
        "llama.cpp", len(order), drafted, accepted, histogram=histogram, order=tuple(order)
    )
    return served, "dump", notes


def _fragments(values: Sequence[Item]) -> tuple[Served, str, list[str]]:
    """A token that the draft model did not write ends a round: the target's own pass gave it. The
    first of a text is of the prompt's pass, which verified nothing."""
    lengths, run, tokens = list[int](), 0, 0
    for value, where in values:
        each = _read(value, where, _Fragment)
        if each.is_structural or not each.tokens_count:
            continue
        if each.tokens_count > 1:
            raise UserError(
                f"{where}: a fragment of {each.tokens_count} tokens does not tell which of them "
                "were drafted"
            )
        drafted = each.contains_drafted or each.from_draft_model
        if drafted:
            run += 1
            if run > MOST:
                raise UserError(f"{where}: more than {MOST} drafted tokens in a row")
        elif tokens:
            lengths.append(run)
            run = 0
        tokens += 1
    if run:  # the text's end cut this round's last token off
        lengths.append(run)
    note = "A pass without a draft looks like a draft that was refused at once: both are rounds."
    histogram = by_length(Counter(lengths)) or None
    served = Served("LM Studio", len(lengths), None, sum(lengths), tokens, histogram=histogram)
    return served, "response", [note]


def _read(value: Any, where: str, kind: Any) -> Any:
    try:
        return read(value, kind)
    except BadField as why:
        raise UserError(f"{where}: {why}") from None
