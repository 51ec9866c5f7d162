"""TensorRT-LLM's statistics of iterations and requests. Never torch.

An iteration runs a batch. Its ``specDecodingStats`` sum over the requests that had a draft, so each
of these requests is a round.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from analysis.engines.pages import TENSORRT
from analysis.measures.counts import Served
from analysis.numbers import plural
from core.declared import BadField, Count, read
from core.errors import UserError
from core.json_input import parse_json
from core.readers import Item

STATS, RANKS = "specDecodingStats", ("rank", "attentionDpRank")
MARK = re.compile(rf"[\"']{STATS}[\"']: ?\{{")
_STATS = re.compile(rf"{MARK.pattern[:-2]}(\{{[^{{}}]{{0,2000}}\}})")
_RANK = re.compile(rf"[\"'](?:{'|'.join(RANKS)})[\"']: ?(\d{{1,9}})\b")
_ITERATION = {"iter", "iterLatencyMS"}  # of one that may have had no draft


class IterationStats(Struct, rename="camel"):
    num_draft_tokens: Count
    num_accepted_tokens: Count
    num_requests_with_draft_tokens: Count | None = None

    def served(self, response: dict[str, Any]) -> Served:
        rounds = self.num_requests_with_draft_tokens
        if rounds is not None and rounds > self.num_draft_tokens:
            raise BadField("more requests have a draft than there are drafted tokens")
        return Served(TENSORRT, rounds or None, self.num_draft_tokens, self.num_accepted_tokens)


class RequestStats(Struct):
    """The counts that the server has of a request (/perf_metrics)."""

    total_draft_tokens: Count
    total_accepted_draft_tokens: Count

    def served(self, response: dict[str, Any]) -> Served:
        counts = (self.total_draft_tokens, self.total_accepted_draft_tokens)
        return Served(TENSORRT, None, *counts)


def iteration(line: str) -> Served | None:
    """A line of ``trtllm-bench --iteration_log``: a dict as Python prints it, or as JSON. None:
    nothing was drafted, or the line repeats rank 0."""
    found = _STATS.search(line)
    if found is None:
        raise BadField("it ends before its counts")
    if any(int(rank) for rank in _RANK.findall(line)):
        return None
    try:
        stats = read(parse_json(found[1].replace("'", '"'), "the line"), IterationStats)
    except UserError:
        raise BadField("its counts are not an object") from None
    if stats.num_accepted_tokens > stats.num_draft_tokens:
        raise BadField("more tokens are accepted than drafted")
    return stats.served({}) if stats.num_draft_tokens else None


def drafting(values: Sequence[Item]) -> tuple[list[Item], list[str]]:
    """The iterations of rank 0 that drafted, and sentences on the others. Of a file without
    iterations all values, as they are."""
    if not any(is_iteration(value) for value, _ in values):
        return list(values), []
    first = [each for each in values if not _of_other_rank(each[0])]
    drafted = [each for each in first if _drafts(each[0])]
    notes = []
    if others := len(values) - len(first):
        notes.append(f"{plural(others, 'iteration')} of other ranks left out: they repeat rank 0.")
    if plain := len(first) - len(drafted):
        notes.append(f"{plain} of {plural(len(first), 'iteration')} drafted nothing.")
    return drafted, notes


def is_iteration(value: object) -> bool:
    return isinstance(value, dict) and (STATS in value or value.keys() >= _ITERATION)


def _of_other_rank(value: object) -> bool:
    return isinstance(value, dict) and any(value.get(name) for name in RANKS)


def _drafts(value: object) -> bool:
    stats = value.get(STATS) if isinstance(value, dict) else None
    return isinstance(stats, dict) and stats.get("numDraftTokens") != 0
