"""Sentences on other engines' counts: what they mean and what they leave open."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from analysis.measures.counts import FULLY, Counts
from analysis.numbers import number, plural, share
from core.stats import FEW_SEEN

SHOWN = 8  # places that a sentence lists
_MORE = {  # what else an engine has that tells acceptance by place
    "vLLM": "a response with --per-request-spec-decode-metrics, its log and its /metrics tell it",
    "SGLang": "meta_info of its responses tells it",
    "llama.cpp": "its log at -lv 4 and its /metrics tell it",
    "TensorRT-LLM": "/prometheus/metrics of newer versions tell it, with return_perf_metrics",
}


def sentences(counts: Counts) -> Iterator[str]:
    """Say what the counts mean, what they leave open, and which command answers that."""
    yield from counts.notes
    yield from _over_what(counts)
    if counts.by_depth:
        yield from _acceptance(counts)
        if counts.rounds is not None and counts.rounds < FEW_SEEN:
            yield f"Only {plural(counts.rounds, 'draft')}: too few rounds to say what would help."
        else:
            yield from _ends(counts)
            yield from _chain(counts)
    else:
        more = _MORE.get(counts.engine)
        yield "Acceptance by place is not told" + (f"; {more}." if more else ".")
    yield (
        "Which tokens a tree would have added is not told. What a tree or another drafter accepts "
        "of a served text: collect --out FILE --answer response.json, then whatif FILE. Which "
        "length pays at which batch, with the flags for it: advise FILE --cost STEPS.csv."
    )


def _over_what(counts: Counts) -> Iterator[str]:
    if counts.rounds is None and counts.tau is None:
        yield "Over how many drafts is not told, so τ is unknown."
    elif counts.rounds is None:
        several = f"; it is the plain mean of {counts.records} {counts.kind}s"
        mean = several if counts.records > 1 else ""
        yield f"Over how many drafts is not told, so τ has no interval{mean}."
    elif counts.fits:
        few, most = counts.fits
        fit = f"The engine's rounded figures fit {few} to {most} drafts"
        yield f"{fit}: those here are for {counts.rounds}."
    if counts.span and len(span := dict.fromkeys(map(number, counts.span))) > 1:
        yield f"By {counts.kind}, τ is {' to '.join(span)}."
    tells_all = counts.kind == "response" and counts.engine != "vLLM"
    if not tells_all and counts.kind != "profile" and counts.engine != "SGLang":
        yield "Passes of the target without a draft are not counted."


def _acceptance(counts: Counts) -> Iterator[str]:
    shown = counts.by_depth[:SHOWN]
    marginal = ", ".join(number(d.marginal, 3) for d in shown)
    given = ", ".join(number(d.conditional) for d in shown)
    rest = " …" if len(shown) < len(counts.by_depth) else ""
    yield (
        f"Shares of all drafts that accept place 1, 2 …: {marginal}{rest}. Shares of those that "
        f"accepted all before, as training counts (`report --trained` compares): {given}{rest}."
    )
    if len(counts.by_depth) > 1 and counts.lengths_untold:
        known = counts.full is False
        shorter = "Some drafts were shorter" if known else "If some drafts were shorter (not told)"
        from_here = f"from place {counts.first_untold} on"
        yield f"{shorter}: {from_here}, acceptance is at least what is shown."
    told, accepted = sum(d.accepted or 0 for d in counts.by_depth), counts.accepted
    if counts.rounds and accepted and told < FULLY * accepted:
        yield f"The places told hold {told} of {accepted} accepted tokens: there are deeper ones."
    if counts.engine == "SGLang":
        yield "If SGLang drafted trees, a place counts any token that the tree had there."


def _ends(counts: Counts) -> Iterator[str]:
    """Where drafts end, which says what could help them."""
    lost = [before - d.marginal for before, d in zip(
        (1.0, *(d.marginal for d in counts.by_depth)), counts.by_depth, strict=False
    )]  # fmt: skip
    if counts.exact and counts.rounds:  # a draft that was too short is not refused there
        lost = [((d.tested or 0) - (d.accepted or 0)) / counts.rounds for d in counts.by_depth]
    if counts.undrafted:
        return
    told = counts.full or counts.exact  # otherwise shorter drafts end deeper, too
    at = int(np.argmax(lost)) if told else 0
    exactly = counts.rounds is not None and not counts.fits
    drafts = plural(counts.rounds or 0, "draft") if exactly else "the drafts"
    most = f"{share(lost[at])} of {drafts} end at place {at + 1}"
    if lost[at] > 0:
        yield f"{most}: another token there, of a tree or a better drafter, could help them."
    last = counts.by_depth[-1]
    if counts.full and last.is_zero is False:
        yield f"{share(last.marginal)} are accepted whole: only they could use a longer chain."
    elif counts.full and last.is_zero:
        yield "None is accepted whole: a longer chain would not help."


def _chain(counts: Counts) -> Iterator[str]:
    """Say how much the last place adds; nothing where what the engine rounded may be none."""
    last = counts.by_depth[-1]
    before = last.tau - last.marginal
    if last.is_zero:
        used = sum(d.marginal > 0 for d in counts.by_depth)
        several = (
            f"s {used + 1} to {last.depth} were" if used + 1 < last.depth else f" {last.depth} was"
        )
        enough = f"; a chain of {used} would have accepted the same" if used else ""
        yield f"Place{several} never accepted{enough}."
    elif last.is_zero is False:
        adds = f"Place {last.depth} adds {number(last.marginal)} to a τ of {number(before)}"
        if counts.full is False:
            yield f"{adds} over all drafts, of which some had no such place."
            return
        yield (
            f"{adds}: it pays while it makes a round less than {share(last.marginal / before)} "
            "longer, which `cost` measures. With another length rounds begin at other tokens, so "
            "these τ are near values."
        )
