"""A fake engine for the studio: instant rounds of every shape, made without torch.

Its prompts steer it: ``slow`` waits between rounds, ``fail`` breaks with a sentence, ``big`` drafts
as many nodes as the budget allows at any depth, ``hostile`` speaks in attacks. The same prompt and
seed give the same text by every method; "treeflash" and "dart" explain their nodes as those do.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import Any

import numpy as np

from core.models.embedded import Progress
from core.errors import UserError
from core.methods.registry import settle
from core.traces.schema import Header
from core.rounds.draft import Candidates, Draft, Offers
from core.rounds.round import TargetProbs, Probe, Round, Times, Verdict

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
DEPTHS = 15
WIDTH = 8  # M and S of the conditioned drafter


def words(hostile: bool = False) -> tuple[str, ...]:
    return HOSTILE + WORDS[: 32 - len(HOSTILE)] if hostile else WORDS


def make_round(
    seed: int = 0,
    budget: int = 64,
    index: int = 0,
    position: int = 10,
    root: int = 3,
    hostile: bool = False,
    method: str = "ddtree",
    ahead: Sequence[int] = (),
) -> Round:
    """A round whose numbers are plausible: best-first draft, a walk through p, all probes.

    ``ahead`` is the text to come, if the target is to write a given one.
    """
    rng = np.random.default_rng(seed)
    names = words(hostile)
    ids = np.stack([rng.permutation(len(names)) for _ in range(DEPTHS)])
    odds = np.sort(rng.dirichlet(np.full(len(names), 0.12), DEPTHS), 1)[:, ::-1] + 1e-7
    foresee(rng, ids, ahead)
    candidates = Candidates(ids, np.log(odds).astype(np.float32))
    draft = make_draft(rng, candidates, root, budget, method)
    log_p_all = target_s_view(rng, draft, len(names), ahead)
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
    beliefs = TargetProbs(
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


def target_s_view(
    rng: np.random.Generator, draft: Draft, words_known: int, ahead: Sequence[int]
) -> np.ndarray:
    """log p after every row [N, V]: near the drafter's q, and along the text to come ``ahead``."""
    log_p_all = np.log(rng.dirichlet(np.full(words_known, 0.15), len(draft)) + 1e-9)
    for row in range(1, len(draft)):  # the target agrees with the drafter, more or less
        parent = int(draft.parents[row])
        log_p_all[parent, draft.tokens[row]] += 4.0 * np.exp(draft.log_q[row])
    true: list[int] = [0]
    while len(true) <= len(ahead):  # and says what it is told to
        log_p_all[true[-1], ahead[len(true) - 1]] = log_p_all[true[-1]].max() + 2
        below = draft.child(true[-1], ahead[len(true) - 1])
        if below is None:
            break
        true.append(below)
    log_p_all -= np.log(np.exp(log_p_all).sum(1, keepdims=True))
    return log_p_all


def foresee(rng: np.random.Generator, ids: np.ndarray, ahead: Sequence[int]) -> None:
    """Put the text to come among a depth's best, as often as a fair drafter would."""
    for depth, token in enumerate(ahead[: len(ids)]):
        rank = int(rng.choice([0, 1, 2, 5, 12], p=[0.5, 0.2, 0.1, 0.1, 0.1]))
        old = int(np.flatnonzero(ids[depth] == token)[0])
        ids[depth, [rank, old]] = ids[depth, [old, rank]]


def make_draft(
    rng: np.random.Generator, candidates: Candidates, root: int, budget: int, method: str
) -> Draft:
    if method == "ar":
        return Draft.root_only(root)
    if method.startswith("treeflash"):
        return conditioned(rng, candidates, root, budget)
    draft = best_first(candidates, root, budget)
    return weighed(rng, draft) if method.startswith("dart") or "continuity" in method else draft


@dataclass(frozen=True)
class Given:
    """q′ behind each of the WIDTH best: log q′ [L, M, V] and its best places [L, M, S]."""

    log_q: np.ndarray
    best: np.ndarray

    def at(self, depth: int, state: int, rank: int) -> float:
        return float(self.log_q[depth, state, self.best[depth, state, rank]])

    def follow(self, depth: int, state: int, rank: int) -> int:
        """The candidate a row is for the next depth; −1: none, a leaf."""
        place = int(self.best[depth, state, rank])
        return place if place < WIDTH and depth + 1 < len(self.log_q) else -1


def conditioned(rng: np.random.Generator, candidates: Candidates, root: int, budget: int) -> Draft:
    """TreeFlash's kind: q′ behind each of the M best, leaves outside them."""
    log_q, ids = candidates.log_q, candidates.ids
    bent = log_q[:, None] + rng.normal(0, 0.9, (len(ids), WIDTH, ids.shape[1]))
    bent -= np.log(np.exp(bent).sum(-1, keepdims=True))
    best = np.argsort(-bent, -1)[..., :WIDTH]
    best[0], bent[0] = best[0, :1], bent[0, :1]
    given = Given(bent, best)
    rows = given_rows(given, budget)
    parents, depths, states, ranks, scores = (np.array(c) for c in zip(*rows, strict=True))
    level = depths[1:] - 1
    place = best[level, states[1:], ranks[1:]]
    behind = np.where(level > 0, states[1:] + 1.0, np.nan)
    follow = [0, *(given.follow(*row) for row in zip(level, states[1:], ranks[1:], strict=True))]
    inner = [(d, f) for d, f in zip(depths, follow, strict=True) if f >= 0]
    offers = Offers(
        np.stack([ids[d][best[d, f]] for d, f in inner]),
        np.stack([bent[d, f][best[d, f]] for d, f in inner]),
        np.where(np.array(follow) >= 0, np.cumsum(np.array(follow) >= 0) - 1, -1).astype(np.int32),
    )
    columns = (log_q[level, place], behind, bent[level, states[1:], place])
    marginal, behind, own = (c.astype(np.float32) for c in columns)
    return Draft(
        np.append([root], ids[level, place]).astype(np.int64),
        parents.astype(np.int32), depths.astype(np.int32),
        np.append([0], ranks[1:] + 1).astype(np.int32),
        np.append(np.float32(0), own), scores.astype(np.float32),
        {
            "log q (marginal)": np.append(np.float32(np.nan), marginal),
            "behind candidate": np.append(np.float32(np.nan), behind),
        },
        offers,
    )  # fmt: skip


def given_rows(given: Given, budget: int) -> list[tuple[int, int, int, int, float]]:
    """(parent, depth, state, rank, score) of the B most probable prefixes behind the root."""
    import heapq

    rows: list[tuple[int, int, int, int, float]] = [(-1, 0, 0, 0, 0.0)]
    heap = [(-given.at(0, 0, 0), 0, 0, 0, 0)]  # −score, parent, depth, state, rank
    while heap and len(rows) <= budget:
        key, parent, depth, state, rank = heapq.heappop(heap)
        row, follow = len(rows), given.follow(depth, state, rank)
        rows.append((parent, depth + 1, state, rank, -key))
        if rank + 1 < WIDTH:
            step = given.at(depth, state, rank) - given.at(depth, state, rank + 1)
            heapq.heappush(heap, (key + step, parent, depth, state, rank + 1))
        if follow >= 0:
            child = (key - given.at(depth + 1, follow, 0), row, depth + 1, follow, 0)
            heapq.heappush(heap, child)
    return rows


def weighed(rng: np.random.Generator, draft: Draft) -> Draft:
    """The draft with DART's two score terms; the order of its rows stays what it was."""
    size = len(draft)
    context = rng.integers(0, 3, size).astype(np.float32)
    seen = np.where(context > 0, rng.integers(1, 90, size), 0).astype(np.float32)
    level = np.maximum(draft.depths, 1).astype(np.float32)
    term_q = draft.log_q * 0.9 ** (level - 1) / level**0.7
    term_ngram = np.where(seen > 0, -rng.uniform(0.2, 2.5, size), -11.5) / level**0.7
    scores = np.zeros(size, np.float32)
    for row in range(1, size):
        scores[row] = scores[draft.parents[row]] + term_q[row] + term_ngram[row]
    notes = {
        "score: q term": term_q, "score: n-gram term": term_ngram,
        "n-gram context": context, "n-gram count": seen,
    }  # fmt: skip
    for values in notes.values():
        values[0] = np.nan
    return replace(draft, scores=scores, notes=notes)


def make_run(count: int = 8, budget: int = 64, hostile: bool = False, seed: int = 0) -> list[Round]:
    return list(islice(rounds_of(budget, hostile, seed), count))


def rounds_of(
    budget: int, hostile: bool, seed: int, method: str = "ddtree", text: Sequence[int] = ()
) -> Iterator[Round]:
    """Rounds one after the other, without end; ``text`` is what they write, if that matters."""
    root, position = text[0] if text else 3, 12
    for index in count():
        ahead = text[position - 11 :]
        made = make_round(seed + index, budget, index, position, root, hostile, method, ahead)
        yield made
        root, position = made.verdict.bonus, position + len(made.committed)


def make_text(prompt: str, seed: int, length: int) -> list[int]:
    """What the fake's target writes to a prompt, whatever the method."""
    return np.random.default_rng([seed, *prompt.encode()[:64]]).integers(0, 32, length).tolist()


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


ENDLESS = 10_000  # tokens


class FakeEngine:
    """Speaks like ``app.studio.engine.LiveEngine``; ``start`` reads its orders from the prompt."""

    def __init__(self, broken: str = "", may_load: threading.Event | None = None):
        self.broken, self.may_load = broken, may_load
        self.closed = 0

    def prepare(self, report: Callable[[Progress], None]) -> None:
        for step in range(4):
            report(Progress("pretending to load", step / 4))
        if self.may_load is not None:
            self.may_load.wait()
        if self.broken:
            raise UserError(self.broken)

    def start(self, ask: Any) -> FakeRun:
        if "refuse" in ask.prompt:
            raise UserError("the fake refuses this prompt")
        sampling = {"temperature": ask.temperature, "seed": ask.seed}
        own = settle(ask.method, dict(ask.options))
        header = make_header(
            ask.prompt, ask.method, budget=ask.budget, sampling=sampling, options=own
        )
        return FakeRun(header, self._rounds(ask))

    def _rounds(self, ask: Any) -> Generator[Round, None, None]:
        hostile, slow = "hostile" in ask.prompt, "slow" in ask.prompt
        left = ENDLESS if slow else ask.max_new_tokens  # a slow run goes on until it is stopped
        try:
            text = make_text(ask.prompt, ask.seed, left + DEPTHS + 2)
            seed = ask.seed + len(ask.method)  # another method, another draft
            left -= 1
            for record in rounds_of(ask.budget, hostile, seed, ask.method, text):
                if left <= 0:
                    return
                record = replace(record, committed=record.committed[:left])
                if slow or "patient" in ask.prompt:
                    time.sleep(0.25)
                if "fail" in ask.prompt and record.index == 2:
                    raise UserError("the fake broke in round 2")
                if "crash" in ask.prompt and record.index == 2:
                    raise RuntimeError("something internal with a /secret/path")
                left -= len(record.committed)
                yield record
        finally:
            self.closed += 1
