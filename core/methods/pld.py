"""PLD, prompt lookup decoding (apoorvumang/prompt-lookup-decoding): what followed the last tokens
before, follows again.

It copies the tokens that stand after an earlier occurrence of the text's last n tokens: the first
one from the left, n from the longest down to 1. Two rules: the original's, and transformers'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from core.drafting.session import Drafter, FactorisedSession
from core.methods.method import DrafterInfo, Explanation, Method, Note, Options, Range, option
from core.models.presets import Value
from core.rounds.draft import Array

if TYPE_CHECKING:
    from core.models.language import Language

PLACE, MATCHED = "copied from", "matched tokens"  # notes of a node


@dataclass(frozen=True)
class PldOptions:
    """The original's rule; transformers' is ``longest=2 whole=no``."""

    longest: int = option(
        3, "the last tokens that are looked for: this many, else fewer", Range(1, 64),
        label="longest match",
    )  # fmt: skip
    copied: int = option(10, "tokens that are copied", Range(1, 64), label="tokens copied")
    whole: bool = option(
        True,
        "copy only from where all tokens can be copied, as the original does; no: fewer too, as "
        "far as the next stop token, as transformers does",
        label="whole copies only",
    )


def lookup(
    text: Sequence[int], options: PldOptions, stops: frozenset[int] = frozenset()
) -> tuple[int, int, int]:
    """Where a copy starts and ends in the text, and how many tokens matched; (0, 0, 0): nowhere."""
    tokens = np.asarray(text)
    size = len(tokens)
    for matched in range(min(options.longest, size - 1), 0, -1):
        windows = np.lib.stride_tricks.sliding_window_view(tokens, matched)
        starts = np.flatnonzero((windows == tokens[-matched:]).all(1)) + matched
        last = min(size - options.copied, size - matched - 1) if options.whole else size - 1
        if len(starts) and starts[0] <= last:
            start = int(starts[0])
            end = min(start + options.copied, size)
            if not options.whole:
                end = next((at for at in range(start, end) if text[at] in stops), end)
            return start, end, matched
    return 0, 0, 0


class PromptLookup(Drafter):
    """The text so far; q is 1 for a copied token."""

    def __init__(self, language: Language, folder: None, options: PldOptions):
        self.options, self.vocabulary = options, language.vocabulary
        self.stops, self.text = language.stop_ids, list[int]()

    @property
    def max_depth(self) -> int:
        return self.options.copied

    def reset(self, capacity: int) -> None:
        self.text = []

    def extend(self, tokens: Sequence[int], features: object) -> None:
        self.text += tokens

    def begin(self, root: int, width: int) -> FactorisedSession:
        text = [*self.text, root]
        start, end, matched = lookup(text, self.options, self.stops)
        notes: dict[str, Array] = {
            PLACE: np.arange(start, end),
            MATCHED: np.full(end - start, matched),
        }
        return FactorisedSession.sure(text[start:end], self.max_depth, self.vocabulary, notes)


EXPLAIN = Explanation(
    lead="Copied from earlier in the text: token {depth} after the match.",
    notes=(
        Note(PLACE, "copied from position", "count", "of the text with its prompt, from 0"),
        Note(MATCHED, "tokens that matched", "count", "at the text's end, of {longest} at most"),
    ),
    closing="A copy has no probability of its own: q counts as 1.",
)


def vllm_fields(options: Options) -> dict[str, Value]:
    """How many last tokens vLLM's ``ngram`` looks for: at most and at least."""
    return {"prompt_lookup_max": options["longest"], "prompt_lookup_min": 1}


DRAFTER = DrafterInfo(
    "pld", "what followed the text's last tokens before", PromptLookup, PldOptions,
    explain=EXPLAIN, depends="text", vllm="ngram", vllm_fields=vllm_fields,
)  # fmt: skip
METHOD = Method(
    "PLD", "pld", "chain", 64, "prompt lookup: a copy of what followed the last tokens before",
)  # fmt: skip
