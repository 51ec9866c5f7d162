"""Rounds made by hand, each with few nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from core.rounds.draft import CHILDLESS, NOT_ASKED, Candidates, Draft, Proposal
from core.rounds.round import Probe, Round, TargetProbs, Times, Verdict
from core.traces.schema import Header, Trace

TEXTS = {0: "The", 1: " sky", 2: " sea", 3: " is", 4: "\n", 5: " was", 6: " blue"}


def small_round(bonus: int = 6, path: tuple[int, ...] = (0, 1, 3)) -> Round:
    """The → sky (is, ⏎) · sea (was); accepted: sky, is; the target then wanted " blue"."""
    log = np.log(np.array([1, 0.6, 0.3, 0.5, 0.25, 0.02], np.float32))
    depths = np.array([0, 1, 1, 2, 2, 2], np.int32)
    by_depth = Candidates(np.array([[1, 2], [3, 4], [5, 0]]), np.zeros((3, 2), np.float32))
    draft = Draft(
        tokens=np.array([0, 1, 2, 3, 4, 5]),
        parents=np.array([-1, 0, 0, 1, 1, 2], np.int32),
        depths=depths,
        ranks=np.array([0, 1, 2, 1, 2, 3], np.int32),
        log_q=log,
        scores=log,
        proposal=Proposal.factorised(by_depth, depths),
    )
    choices = np.array([1, 3, 5, 0, 0, 0])
    choices[path[-1]] = bonus
    probs = TargetProbs(
        log_p=np.log(np.array([1, 0.9, 0.05, 0.8, 0.0004, 0.5], np.float32)),
        rank=np.array([0, 1, 2, 1, 5, 1], np.int32),
        top_ids=np.tile(np.array([bonus, 0]), (6, 1)),
        top_log_p=np.log(np.tile(np.array([0.7, 0.1], np.float32), (6, 1))),
        entropy=np.ones(6, np.float32),
    )
    committed = (*[int(draft.tokens[r]) for r in path[1:]], bonus)
    return Round(
        4, 20, draft, Verdict(path, choices), committed, probs,
        times=Times(0.01, 0, 0.03, 0.001), texts=TEXTS,
    )  # fmt: skip


def side_round() -> Round:
    """The small round with its last two rows scored and never accepted."""
    record = small_round()
    return replace(record, draft=replace(record.draft, side=frozenset({4, 5})))


def full_round(index: int = 0, texts: dict[int, str] | None = None) -> Round:
    """Four rows with every part a tree's round can have. Odd ones are of a drafter that conditions
    on the path, and verified by speculative sampling. The numbers are random, so no p or q."""
    rng = np.random.default_rng(index)
    odd = index % 2 == 1

    def f32(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32)

    def lists() -> Candidates:
        return Candidates(rng.integers(0, 50, (2, 3)), f32(2, 3))

    log_p = f32(4)
    log_p[0] = np.nan
    after = np.array([0, NOT_ASKED if odd else CHILDLESS, 1, CHILDLESS], np.int32)
    return Round(
        index=index,
        position=5 + 2 * index,
        draft=Draft(
            tokens=np.array([9, 1, 2, 3]),
            parents=np.array([-1, 0, 0, 2], np.int32),
            depths=np.array([0, 1, 1, 2], np.int32),
            ranks=np.array([0, 1, 2, 1], np.int32),
            log_q=f32(4),
            scores=f32(4),
            notes={"n-gram count": f32(4), "log q (marginal)": f32(4)},
            side=frozenset({3}) if odd else frozenset(),
            proposal=Proposal(lists(), after, 2, None if odd else lists(), read=None if odd else 2),
        ),
        verdict=Verdict((0, 2), np.array([2, 7, 8, -1]), 6 if odd else None),
        committed=(2, 8),
        target_probs=TargetProbs(
            log_p, np.array([0, 1, 4, 2], np.int32), rng.integers(0, 50, (4, 2)), f32(4, 2), f32(4)
        ),
        probe=Probe(f32(2), f32(2, 16), f32(2), np.array([1, 30], np.int32)),
        times=Times(0.1, 0.2, 0.3, 0.4),
        texts={9: "nine", 1: "one"} if texts is None else texts,
    )


def small_trace(rounds: int = 3, **header: Any) -> Trace:
    fixed = {"method": "any", "settings": {"budget": 3}, "model": {"name": "toy"}}
    whole = Header(**(fixed | {"prompt_text": "hi", "prompt_ids": (1, 2)} | header))
    return Trace(whole, tuple(full_round(i) for i in range(rounds)), {})
