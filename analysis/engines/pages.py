"""Counts in metrics pages (Prometheus) of vLLM, llama.cpp and TensorRT-LLM. Never torch."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Sequence
from itertools import pairwise

from analysis.engines.rounded import MAX_PLACES, whole_of
from analysis.measures.counts import Served
from core.declared import BadField

Line = tuple[int, str]
Found = tuple[list[Served], list[str]]  # and sentences about what was left out
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], int]  # by name and labels
TENSORRT = "TensorRT-LLM"
NAMES = r"\w+:spec_decode_num_(drafts|draft_tokens|accepted_tokens|accepted_tokens_per_pos)"
TENSORRT_NAMES = r"trtllm_spec_decode_(num_draft|num_accepted|drafted|accepted)_tokens"
_VALUE = r"(?:_total)?(?:\{(.{0,1000})\})? +(\S{1,40})(?: +-?\d{1,20})?$"
_LABEL_PAIR = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')


def counters(engine: str) -> Callable[[Sequence[Line]], Found]:
    """vLLM's counters, which llama.cpp has too."""

    def read(lines: Sequence[Line]) -> Found:
        record = _of_samples(engine, _samples(NAMES, lines))
        return [record] if record.rounds else [], []

    return read


def _samples(names: str, lines: Sequence[Line]) -> Samples:
    """Prometheus counters since the server's start. Of a page that is in the file several times,
    the last values count."""
    found, sample = Samples(), re.compile(names + _VALUE)
    for number, line in lines:
        told = sample.match(line)
        if told is None:
            raise BadField(f"line {number} is not a sample of a counter")
        labels = tuple(sorted(_LABEL_PAIR.findall(told[2] or "")))
        found[told[1], labels] = whole_of(told[3], f"line {number}")
    models = {dict(labels).get("model_name", "") for _, labels in found}
    if len(models) > 1:
        raise BadField(f"it counts {len(models)} models: keep the lines of one model_name")
    return found


def _sums(samples: Samples, names: Container[str], label: str) -> dict[str, tuple[int, ...]]:
    """The counters of these names by place, summed over all other labels. Raises BadField where the
    places do not count from 0 without a gap."""
    sums = dict[str, dict[int, int]]()
    for (name, labels), value in samples.items():
        if name in names:
            places = sums.setdefault(name, {})
            at = whole_of(dict(labels).get(label, ""), label)
            places[at] = places.get(at, 0) + value
    for places in sums.values():
        if sorted(places) != list(range(len(places))) or len(places) > MAX_PLACES:
            raise BadField("its positions do not count from 0 without a gap")
    return {name: tuple(places[n] for n in range(len(places))) for name, places in sums.items()}


def _total(samples: Samples, name: str) -> int | None:
    """A counter's sum over all labels; None: the page lacks it."""
    values = [value for (each, _), value in samples.items() if each == name]
    return sum(values) if values else None


def _of_samples(engine: str, samples: Samples) -> Served:
    by_place = "accepted_tokens_per_pos"
    kept = _sums(samples, (by_place,), "position").get(by_place, ())
    rounds, drafted, accepted = (
        _total(samples, name) for name in ("drafts", "draft_tokens", "accepted_tokens")
    )
    if rounds is None:
        raise BadField("it lacks spec_decode_num_drafts_total")
    wrong = accepted is not None and sum(kept) > accepted
    if wrong or any(a < b for a, b in pairwise((rounds, *kept))):
        raise BadField("its positions count more accepted tokens than there can be")
    if drafted is not None and (accepted or 0) > drafted:
        raise BadField("more tokens are accepted than drafted")
    return Served(engine, rounds, drafted, accepted, places=kept or None)


def tensorrt_counters(lines: Sequence[Line]) -> Found:
    """TensorRT-LLM's counters: by place, of requests that ended, or totals of iterations.

    A place that no round accepted is not on the page. With place 0 alone, either drafts had one
    token or the server counts all tokens there, so the counts are totals.
    """
    samples = _samples(TENSORRT_NAMES, lines)
    places = _sums(samples, ("drafted", "accepted"), "token_position")
    drafted, kept = places.get("drafted", ()), places.get("accepted", ())
    if not drafted:
        tokens = _total(samples, "num_draft"), _total(samples, "num_accepted")
        return _tensorrt_totals(*tokens), []
    kept += (0,) * (len(drafted) - len(kept))
    if len(kept) > len(drafted) or any(a < b for a, b in zip(drafted, kept, strict=True)):
        raise BadField("more tokens are accepted than drafted")
    if len(drafted) == 1:
        return _tensorrt_totals(drafted[0], kept[0]), []
    if any(a < b for each in (drafted, kept) for a, b in pairwise(each)):
        raise BadField("its counts by position rise")
    counts = (drafted[0], sum(drafted), sum(kept))
    return [Served(TENSORRT, *counts, places=kept)] if drafted[0] else [], []


def _tensorrt_totals(drafted: int | None, accepted: int | None) -> list[Served]:
    if drafted is not None and (accepted or 0) > drafted:
        raise BadField("more tokens are accepted than drafted")
    return [Served(TENSORRT, drafted=drafted, accepted=accepted or 0)] if drafted else []
