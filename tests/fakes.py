"""A fake engine for the studio: instant rounds of every shape, made without torch.

Its prompts steer it: ``slow`` waits between rounds, ``fail`` breaks with a sentence, ``big`` drafts
as many nodes as the budget allows at any depth, ``hostile`` speaks in attacks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import Any

import numpy as np

from core.embedded import Progress
from core.errors import UserError
from core.trace import Header
from core.types import Beliefs, Candidates, Draft, Probe, Round, Times, Verdict

WORDS = (
    " the", " tree", " grows", " one", " leaf", " at", " a", " time", ",", " and", " each",
    " branch", " asks", " what", " the", " target", " would", " say", ".", "\n", " So", " it",
    " waits", "    ", " 42", "def", "(x)", ":", " return", " x", " *", " 2",
)  # fmt: skip
HOSTILE = (
    '<img src=x onerror="window.__pwned=1">',
    "<script>window.__pwned=1</script>",
    "${window.__pwned=1}",
    "{{constructor.constructor('window.__pwned=1')()}}",
    "`+(window.__pwned=1)+`",
    "javascript:window.__pwned=1",
    "\x1b[31m\x00\x07\u202eevil",
    "</script><svg onload=window.__pwned=1>",
    "A" * 10_000,
    "\\x \\u ${ `",
    '\'" onmouseover=window.__pwned=1 x="',
    "]]>&lt;&#x3c;",
)
DEPTHS, WIDTH = 15, 64


def words(hostile: bool = False) -> tuple[str, ...]:
    return HOSTILE + WORDS[: 32 - len(HOSTILE)] if hostile else WORDS


def make_round(
    seed: int = 0,
    budget: int = 64,
    index: int = 0,
    position: int = 10,
    root: int = 3,
    hostile: bool = False,
) -> Round:
    """A round whose numbers are plausible: best-first draft, a walk through p, all probes."""
    rng = np.random.default_rng(seed)
    names = words(hostile)
    ids = np.stack([rng.permutation(len(names)) for _ in range(DEPTHS)])
    odds = np.sort(rng.dirichlet(np.full(len(names), 0.12), DEPTHS), 1)[:, ::-1] + 1e-7
    candidates = Candidates(ids, np.log(odds).astype(np.float32))
    draft = best_first(candidates, root, budget)
    log_p_all = np.log(rng.dirichlet(np.full(len(names), 0.15), len(draft)) + 1e-9)
    for row in range(1, len(draft)):  # the target agrees with the drafter, more or less
        parent = int(draft.parents[row])
        log_p_all[parent, draft.tokens[row]] += 4.0 * np.exp(draft.log_q[row])
    log_p_all -= np.log(np.exp(log_p_all).sum(1, keepdims=True))
    choices = log_p_all.argmax(1)
    path = [0]
    while (below := draft.child(path[-1], int(choices[path[-1]]))) is not None:
        path.append(below)
    verdict = Verdict(tuple(path), choices)
    top = np.argsort(-log_p_all, 1)[:, :10]
    own = np.full(len(draft), np.nan, np.float32)
    rank = np.zeros(len(draft), np.int32)
    above = log_p_all[draft.parents[1:]]
    own[1:] = above[np.arange(len(above)), draft.tokens[1:]]
    rank[1:] = (above > own[1:, None]).sum(1) + 1
    beliefs = Beliefs(
        own,
        rank,
        top,
        np.take_along_axis(log_p_all, top, 1).astype(np.float32),
        -(np.exp(log_p_all) * log_p_all).sum(1).astype(np.float32),
    )
    seen = min(len(path), DEPTHS)
    probe = Probe(
        tvd=rng.uniform(0.1, 0.7, seen).astype(np.float32),
        coverage=np.linspace(0.4, 0.95, 16, dtype=np.float32)[None].repeat(seen, 0),
        entropy_q=rng.uniform(0.5, 3, seen).astype(np.float32),
        rank_q=rng.integers(1, 30, seen).astype(np.int32),
    )
    committed = (*draft.tokens[path[1:]].tolist(), verdict.bonus)
    return Round(
        index, position, draft, verdict, committed, candidates, beliefs, probe,
        Times(0.012, 0.0003, 0.087, 0.002), dict(enumerate(names)),
    )  # fmt: skip


def best_first(candidates: Candidates, root: int, budget: int) -> Draft:
    """The B most probable prefixes, the slow and obvious way; no numba in the fake's process."""
    import heapq

    log_q, ids = candidates.log_q, candidates.ids
    rows: list[tuple[int, int, int, float, float]] = [(-1, 0, 0, 0.0, 0.0)]
    heap = [(-float(log_q[0, 0]), 0, 0, 0)]  # −score, parent, depth, rank
    while heap and len(rows) <= budget:
        key, parent, depth, rank = heapq.heappop(heap)
        row = len(rows)
        rows.append((parent, depth + 1, rank + 1, float(log_q[depth, rank]), -key))
        if rank + 1 < log_q.shape[1]:
            step = float(log_q[depth, rank] - log_q[depth, rank + 1])
            heapq.heappush(heap, (key + step, parent, depth, rank + 1))
        if depth + 1 < len(log_q):
            heapq.heappush(heap, (key - float(log_q[depth + 1, 0]), row, depth + 1, 0))
    parents, depths, ranks, logs, scores = (np.array(c) for c in zip(*rows, strict=True))
    tokens = np.append([root], ids[depths[1:] - 1, ranks[1:] - 1])
    return Draft(
        tokens.astype(np.int64), parents.astype(np.int32), depths.astype(np.int32),
        ranks.astype(np.int32), logs.astype(np.float32), scores.astype(np.float32),
    )  # fmt: skip


def make_run(count: int = 8, budget: int = 64, hostile: bool = False, seed: int = 0) -> list[Round]:
    rounds: list[Round] = []
    root, position = 3, 12
    for index in range(count):
        made = make_round(seed + index, budget, index, position, root, hostile)
        rounds.append(made)
        root, position = made.verdict.bonus, position + len(made.committed)
    return rounds


def make_header(prompt: str = "why?", method: str = "ddtree", **settings: Any) -> Header:
    return Header(
        method=method,
        settings={"budget": 64, "max_new_tokens": 32} | settings,
        model={"name": "fake"},
        prompt_text=prompt,
        prompt_ids=(1, 2, 3),
        device="cpu",
        dtype="float32",
    )


class FakeRun:
    def __init__(self, header: Header, rounds: Generator[Round, None, None]):
        self.header, self._rounds = header, rounds

    def __iter__(self) -> Generator[Round, None, None]:
        return self._rounds


class FakeEngine:
    """Speaks like ``app.studio.engine.LiveEngine``; ``start`` reads its orders from the prompt."""

    def __init__(self, load_seconds: float = 0.0, broken: str = ""):
        self.load_seconds, self.broken = load_seconds, broken
        self.closed = 0

    def prepare(self, report: Callable[[Progress], None]) -> None:
        for step in range(4):
            report(Progress("pretending to load", step / 4))
            time.sleep(self.load_seconds / 4)
        if self.broken:
            raise UserError(self.broken)

    def start(self, ask: Any) -> FakeRun:
        if "refuse" in ask.prompt:
            raise UserError("the fake refuses this prompt")
        header = make_header(ask.prompt, ask.method, budget=ask.budget)
        return FakeRun(header, self._rounds(ask))

    def _rounds(self, ask: Any) -> Generator[Round, None, None]:
        hostile, left = "hostile" in ask.prompt, ask.max_new_tokens
        budget = 1 if ask.method == "ar" else ask.budget
        try:
            for record in make_run(max(1, left // 2), budget, hostile, ask.seed):
                if left <= 0:
                    return
                if "slow" in ask.prompt:
                    time.sleep(0.25)
                if "fail" in ask.prompt and record.index == 2:
                    raise UserError("the fake broke in round 2")
                if "crash" in ask.prompt and record.index == 2:
                    raise RuntimeError("something internal with a /secret/path")
                left -= len(record.committed)
                yield record
        finally:
            self.closed += 1
