"""Measures of a round off its distributions: p at every row, lists of q, TVD, coverage. Numpy only.

The decoding loop here reads the same numbers off logits on their device, before they are freed
(``analysis.measures.probe``). This is for whoever holds p and q as arrays.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import UserError
from ..rounds.draft import CHILDLESS, NOT_ASKED, Array, Candidates, Draft, Proposal
from ..rounds.round import Probe, Round, TargetProbs

TOP = 10  # tokens of p that a row keeps
COVERAGE = 16  # K = 1 … 16; at least so many tokens of q are listed
# Engines that compute in bfloat16 round a sum of probabilities to 1.0078 or 1.0156.
ROUNDING = 0.02


def distributions(values: Array, name: str, rows: int, where: str) -> Array:
    """[rows, V] in float64; rows that are missing or not a number are NaN.

    Raises UserError for anything that is not a distribution at each of at most ``rows`` rows.
    """
    tensor: Any = values
    if hasattr(tensor, "detach"):  # torch's, which is not needed here
        values = tensor.detach().cpu().double().numpy()
    given = np.asarray(values, np.float64)
    if given.ndim != 2 or not given.size:
        raise UserError(
            f"{name} of {where} has the shape {given.shape}, and not [rows, vocabulary]"
        )
    if len(given) > rows:
        raise UserError(f"{where} has {rows} rows, and its {name} {len(given)}")
    known = np.isfinite(given).all(1)
    sums = given[known].sum(1)
    wrong = (np.abs(sums - 1) > ROUNDING) | (given[known] < 0).any(1)
    if wrong.any():
        row = int(np.flatnonzero(known)[wrong][0])
        raise UserError(
            f"{name} after row {row} of {where} is not a distribution: "
            f"its sum is {given[row].sum():.3g} and its least value {given[row].min():.3g}"
        )
    whole = np.full((rows, given.shape[1]), np.nan)
    whole[: len(given)][known] = given[known]
    return whole


def logarithms(values: Array) -> Array:
    with np.errstate(divide="ignore"):
        return np.log(values)


def token_log_q(q: Array, tokens: Array, parents: Array) -> Array:
    """log q [N] of each row's token after its parent; the root's is 0."""
    odds = np.zeros(len(tokens))
    odds[1:] = logarithms(q[parents[1:], tokens[1:]])
    return odds


def target_probs(p: Array, draft: Draft) -> TargetProbs:
    """p [N, V] as a round keeps it."""
    above, own = draft.parents[1:], draft.tokens[1:]
    log_p, ranks = np.full(len(draft), np.nan), np.zeros(len(draft), np.int32)
    log_p[1:] = logarithms(p[above, own])
    ranks[1:] = _ranks(p[above], own)
    best = _best(p, TOP)
    return TargetProbs(
        log_p=log_p.astype(np.float32),
        rank=ranks,
        top_ids=best,
        top_log_p=logarithms(np.take_along_axis(p, best, 1)).astype(np.float32),
        entropy=_entropy(p),
    )


def proposal(q: Array, draft: Draft, read: int | None, last: int) -> Proposal:
    """The lists after rows whose q is known: as long as the draft has nodes, 16 tokens at least.

    last  the drafter's last depth, which q does not tell: a leaf may not have been asked; 0: not
          known
    """
    asked = np.isfinite(q).all(1)
    ends = (draft.depths >= last) & (last > 0)
    after = np.where(ends, CHILDLESS, NOT_ASKED).astype(np.int32)
    after[asked] = np.arange(asked.sum())
    best = _best(q[asked], max(COVERAGE, draft.nodes))
    odds = logarithms(np.take_along_axis(q[asked], best, 1)).astype(np.float32)
    return Proposal(Candidates(best, odds), after, last, read=read)


def with_measures(record: Round, p: Array | None, q: Array | None) -> Round:
    """The round with p at every row and, where q is known too, TVD and coverage by depth."""
    if p is None:
        return record
    draft = record.draft
    assert isinstance(draft, Draft)
    unknown = np.flatnonzero(np.isnan(p).any(1))
    if len(unknown):
        raise UserError(
            f"p of round {record.number} is not told after row {unknown[0]}: "
            "it is told after every row, or not at all"
        )
    record = replace(record, target_probs=target_probs(p, draft))
    rows: list[int] = []
    for row in record.verdict.path:
        if q is None or not np.isfinite(q[row]).all():
            break
        rows.append(row)
    if q is None or not rows:
        return record
    return replace(record, probe=_probe(p[rows], q[rows], record.verdict.target_tokens[rows]))


def _probe(p: Array, q: Array, own: Array) -> Probe:
    """p and q [d, V] after the accepted rows; the target's own token after each, −1: not known."""
    best = _best(q, COVERAGE)
    listed = np.take_along_axis(p, best, 1) * (np.take_along_axis(q, best, 1) > 0)
    covered = np.empty((len(p), COVERAGE))
    covered[:, : best.shape[1]] = listed.cumsum(1)
    covered[:, best.shape[1] :] = covered[:, best.shape[1] - 1, None]
    asked = np.maximum(own, 0)
    ranks = np.where(q[np.arange(len(q)), asked] > 0, _ranks(q, asked), 0)
    return Probe(
        tvd=(np.abs(q - p).sum(1) / 2).astype(np.float32),
        coverage=covered.astype(np.float32),
        entropy_q=_entropy(q),
        rank_q=np.where(own < 0, -1, ranks).astype(np.int32),
    )


def _ranks(x: Array, tokens: Array) -> Array:
    """The place of a token of each row [R, V], from 1; of equals the first, as in the lists."""
    held = x[np.arange(len(x)), tokens][:, None]
    ties = (x == held) & (np.arange(x.shape[1]) < tokens[:, None])
    return (x > held).sum(1) + ties.sum(1) + 1


def _best(x: Array, count: int) -> Array:
    """The tokens of the largest ``count`` values of each row, best first; of equals the first."""
    count = min(count, x.shape[1])
    some = np.argpartition(-x, count - 1, axis=1)[:, :count]
    held = np.take_along_axis(x, some, 1)
    least = held.min(1, keepdims=True)
    for row in np.flatnonzero((x == least).sum(1) > (held == least).sum(1)):
        more = np.flatnonzero(x[row] > least[row])  # not all equals were taken
        equals = np.flatnonzero(x[row] == least[row])
        some[row] = np.concatenate([more, equals[: count - len(more)]])
    some.sort(axis=1)
    order = np.argsort(-np.take_along_axis(x, some, 1), axis=1, kind="stable")
    return np.take_along_axis(some, order, 1)


def _entropy(x: Array) -> Array:
    """[R] in nats; a token without any probability adds nothing."""
    return -(x * np.where(x > 0, logarithms(x), 0)).sum(1).astype(np.float32)
