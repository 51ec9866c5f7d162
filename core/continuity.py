"""DART's continuity-aware search (Algorithm 1, Appendix D): q weighed against an n-gram model.

    score of a node = its parent's + w_level · (decay^level · log(q̂ + ε) + w_ngram · log(P + ε))

with w_level = (level + 1)^−power, level from 0, q̂ the softmax over the ``width`` best tokens of a
depth only, and P the n-gram probability of the token behind the text and the path so far. Every
node of every beam counts; the ``budget`` best make the draft. The score is no probability: it is
kept beside q, with both its terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numba
import numpy as np

from core import ASSETS, embedded
from core.builders import Rows, Table, draft
from core.errors import UserError
from core.methods import TargetFacts
from core.ngram import NgramStore, lookup_each
from core.types import Array, Candidates, Draft

# What a node's notes say: its score's two terms, the tokens of n-gram context, the gram's count.
NOTES: tuple[str, ...] = (
    "score: q term", "score: n-gram term", "n-gram context", "n-gram count",
)  # fmt: skip


@dataclass(frozen=True)
class Weights:
    """The search's constants, by default the paper's.

    width           tokens looked at per depth
    beam            sequences kept per depth; those that end the text come last
    ngram_weight    w_ngram; 0 searches without n-grams
    logit_decay     the q term of level l weighs decay^l
    level_power     a level weighs (level + 1)^−power
    epsilon         added to probabilities before the logarithm
    ngram_at_first  whether level 0 has an n-gram term (the paper; released builds leave it out)
    """

    width: int = 25
    beam: int = 20
    ngram_weight: float = 0.5
    logit_decay: float = 0.9
    level_power: float = 0.7
    epsilon: float = 1e-10
    ngram_at_first: bool = True

    def check(self) -> None:
        """Raises UserError with one sentence when a constant is out of range."""
        for name, value in (("width", self.width), ("beam", self.beam)):
            if not 1 <= value <= 1024:
                raise UserError(f"the option {name} must be 1 to 1024, not {value}")
        for name in ("ngram_weight", "logit_decay", "level_power"):
            if not 0 <= (value := getattr(self, name)) <= 100:
                raise UserError(f"the option {name} must be 0 to 100, not {value}")
        if not 0 < self.epsilon < 1:
            raise UserError(f"the option epsilon must be between 0 and 1, not {self.epsilon}")


@dataclass(frozen=True, eq=False)
class ContinuitySearch:
    """The search as a builder. ``stops`` int64 [E] are the tokens that end a text."""

    store: NgramStore
    stops: Array
    weights: Weights = Weights()

    @property
    def width(self) -> int:
        """Tokens it reads per depth, whatever the budget (see ``core.builders.width_for``)."""
        return self.weights.width

    def __call__(self, candidates: Candidates, text: Sequence[int], budget: int) -> Draft:
        """The draft's ``budget`` best nodes, parents before children, best first."""
        w = self.weights
        table = Table.marginals(candidates)
        width = min(w.width, table.ids.shape[-1])
        log_q = table.log_q[:, 0, :width].astype(np.float64)
        peak = log_q.max(-1, keepdims=True)
        odds = np.exp(log_q - np.where(np.isfinite(peak), peak, 0))  # a depth may offer nothing
        odds /= np.maximum(odds.sum(-1, keepdims=True), np.finfo(float).tiny)
        level = np.arange(len(odds))
        constants = np.array([w.ngram_weight, w.epsilon, float(w.ngram_at_first)])
        found = _search(
            np.ascontiguousarray(table.ids[:, 0, :width], np.int64),
            np.log(odds + w.epsilon) * (w.logit_decay**level)[:, None],
            (level + 1.0) ** -w.level_power,
            np.array(text[-2:] if len(text) > 1 else [-1, *text], np.int64),
            self.stops,
            self.store.arrays,
            constants,
            w.beam,
            budget,
        )
        parents, depths, ranks, scores, terms = found
        states = np.zeros(len(parents), np.int32)
        notes = dict(zip(NOTES, terms.T, strict=True))
        return draft(table, text[-1], Rows(parents, depths, ranks, scores, states, notes))


def load(target: TargetFacts, ngram: str = "", **constants) -> ContinuitySearch:
    """The search for a target: with its shipped n-gram store, or the one at the path ``ngram``.

    Raises UserError for a store of another vocabulary or tokenizer, or none where one is needed.
    """
    weights = Weights(**constants)
    weights.check()
    vocabulary = target.vocabulary
    path = Path(ngram).expanduser() if ngram else shipped_store(target.name)
    if weights.ngram_weight == 0:
        store = NgramStore.empty(vocabulary)
    elif path is None:
        raise UserError(
            f"no n-gram store ships for {target.name!r}: build one with "
            "python -m app ngram and give it as ngram=PATH, or set ngram_weight=0"
        )
    else:
        store = NgramStore.open(path)
    if store.vocabulary != vocabulary:
        raise UserError(
            f"the n-gram store {path} has a vocabulary of {store.vocabulary}, "
            f"but {target.name!r} has {vocabulary}"
        )
    counted, own = store.metadata.get("tokenizer"), getattr(target, "tokenizer_hash", None)
    if counted and own and counted != own:
        raise UserError(f"the n-gram store {path} counts another tokenizer's tokens")
    made = ContinuitySearch(store, np.array(sorted(target.stop_ids), np.int64), weights)
    made(Candidates(np.zeros((2, 1), np.int64), np.zeros((2, 1), np.float32)), [0, 0], 1)
    return made  # its search is compiled: no round pays for that


def shipped_store(target: str) -> Path | None:
    """The n-gram store that ships for the target of this name, if one does."""
    path = ASSETS / "models" / embedded.NAME / "ngram.safetensors"
    return path if target == embedded.NAME and path.is_file() else None


@numba.njit(cache=True)
def _search(ids, q_terms, level_weights, text, stops, grams, constants, beam, budget):
    """Nodes are numbered in the order they are found: level by level, beam by beam, best q first.

    ids and q_terms [L, K]; text [2] the two tokens before depth 1 (−1: none). Equal scores keep
    that order. Returns parents, depths, ranks, scores and [n, 4] terms of the chosen nodes.
    """
    depths, width = ids.shape
    ngram_weight, epsilon, at_first = constants
    room = width + (depths - 1) * beam * width
    parent = np.empty(room, np.int64)  # −1: the root
    rank = np.empty(room, np.int32)
    depth_of = np.empty(room, np.int32)
    score = np.empty(room, np.float64)
    terms = np.full((room, 4), np.nan, np.float32)
    counts = np.empty(width, np.int64)
    contexts = np.empty(width, np.int64)
    lengths = np.empty(width, np.int64)
    front = np.full(1, -1, np.int64)
    made = 0
    for level in range(depths):
        low = made
        with_ngram = ngram_weight > 0 and (level > 0 or at_first > 0)
        for node in front:
            last, before = text[1], text[0]
            base = 0.0
            if node >= 0:
                base = score[node]
                last = ids[level - 1, rank[node]]
                above = parent[node]
                before = ids[level - 2, rank[above]] if above >= 0 else text[1]
            if with_ngram:
                lookup_each(grams, before, last, ids[level], counts, contexts, lengths)
            for place in range(width):
                q_term = level_weights[level] * q_terms[level, place]
                gram_term = 0.0
                if with_ngram:
                    p = counts[place] / max(contexts[place], 1)
                    gram_term = level_weights[level] * ngram_weight * np.log(p + epsilon)
                    terms[made, 2], terms[made, 3] = lengths[place], counts[place]
                parent[made], rank[made], depth_of[made] = node, place, level + 1
                score[made] = base + q_term + gram_term
                terms[made, 0], terms[made, 1] = q_term, gram_term
                made += 1
        if level + 1 < depths:
            front = _beam(score, ids[level], rank, stops, low, made, beam)
    return _chosen(parent[:made], depth_of, rank, score, terms, budget)


@numba.njit(cache=True)
def _beam(score, ids, rank, stops, low, high, beam):
    """The best nodes of one level, best first; those that end the text after all others."""
    order = np.argsort(-score[low:high], kind="mergesort") + low
    kept = np.empty(min(beam, len(order)), np.int64)
    size = 0
    for ends in (False, True):
        for node in order:
            if size == len(kept):
                break
            token, is_stop = ids[rank[node]], False
            for stop in stops:
                is_stop = is_stop or token == stop
            if is_stop == ends:
                kept[size] = node
                size += 1
    return kept


@numba.njit(cache=True)
def _chosen(parent, depth, rank, score, terms, budget):
    """The best nodes of all levels. A node counts as no better than its parent: rounding (or a
    term of +ε) must not choose it alone; parents are found before children, and so stay first."""
    made = len(parent)
    bound = np.empty(made, np.float64)
    for node in range(made):
        bound[node] = score[node]
        if parent[node] >= 0:
            bound[node] = min(bound[node], bound[parent[node]])
    order = np.argsort(-bound, kind="mergesort")[: min(budget, made)]
    row_of = np.zeros(made, np.int32)
    count = len(order)
    parents, depths = np.empty(count, np.int32), np.empty(count, np.int32)
    ranks, scores = np.empty(count, np.int32), np.empty(count, np.float64)
    own = np.empty((count, 4), np.float32)
    for row in range(count):
        node = order[row]
        row_of[node] = row + 1
        parents[row] = row_of[parent[node]] if parent[node] >= 0 else 0
        depths[row], ranks[row], scores[row] = depth[node], rank[node], score[node]
        own[row] = terms[node]
    return parents, depths, ranks, scores, own
