"""DART's continuity-aware search (Algorithm 1, Appendix D): q weighed against an n-gram model.

    score of a node = its parent's + w_level · (decay^level · log(q̂ + ε) + w_ngram · log(P + ε))

with w_level = (level + 1)^−power, level from 0, q̂ the softmax over the ``width`` best tokens of a
depth only, and P the n-gram probability of the token after the text and the path so far. Every
node of every beam counts; the ``budget`` best make the draft. The score is not a probability. It is
recorded beside q, with both its terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from core import ASSETS
from core.compiled import compiled
from core.drafting.session import Builder, DraftSession, FactorisedSession
from core.drafting.states import Rows, StateTable
from core.errors import UserError
from core.methods.dart import NOTES, ContinuityOptions
from core.methods.method import TargetFacts
from core.models import embedded
from core.ngram import NgramStore, lookup_each
from core.rounds.draft import Array, Candidates, Draft


@dataclass(frozen=True, eq=False)
class ContinuitySearch(Builder):
    """The search as a builder. ``stops`` int64 [E] are the tokens that end a text."""

    store: NgramStore
    stops: Array
    options: ContinuityOptions = ContinuityOptions()  # noqa: RUF009 (frozen)

    @property
    def reads(self) -> int:
        """Tokens it reads per depth, whatever the budget."""
        return self.options.width

    def __call__(self, session: DraftSession, text: Sequence[int], budget: int) -> Draft:
        """The draft's ``budget`` best nodes, parents before children, best first.

        Raises UserError for a drafter whose q always depends on the path.
        """
        if session.by_depth is None:
            raise UserError("the builder continuity needs a drafter that lists tokens by depth")
        o, table = self.options, StateTable(FactorisedSession(session.by_depth))
        if table.empty:
            return table.draft(text[-1], Rows.none(), self.reads)
        width = min(o.width, table.ids.shape[-1])
        log_q = table.log_q[:, :width].astype(np.float64)
        peak = log_q.max(-1, keepdims=True)
        odds = np.exp(log_q - np.where(np.isfinite(peak), peak, 0))  # a depth may offer nothing
        odds /= np.maximum(odds.sum(-1, keepdims=True), np.finfo(float).tiny)
        level = np.arange(len(odds))
        parents, depths, ranks, scores, terms = _search(
            np.ascontiguousarray(table.ids[:, :width], np.int64),
            np.log(odds + o.epsilon) * (o.logit_decay**level)[:, None],
            (level + 1.0) ** -o.level_power,
            np.array(text[-2:] if len(text) > 1 else [-1, *text], np.int64),
            self.stops,
            self.store.arrays,
            np.array([o.ngram_weight, o.epsilon, float(o.ngram_at_first)]),
            o.beam,
            budget,
        )
        notes: dict[str, Array] = dict(zip(NOTES, terms.T, strict=True))
        states = (depths - 1).astype(np.int32)  # a factorised session's states are depths
        rows = Rows(parents, depths, ranks, scores, states, notes)
        return table.draft(text[-1], rows, self.reads, o.beam)


def load(facts: TargetFacts, options: ContinuityOptions) -> ContinuitySearch:
    """The search for a target: with the n-gram store of the options, or the one that ships.

    Raises UserError for a store of another vocabulary or tokenizer, or none where one is needed.
    """
    vocabulary = facts.vocabulary
    path = Path(options.ngram).expanduser() if options.ngram else shipped_store(facts.name)
    if options.ngram_weight == 0:
        store = NgramStore.empty(vocabulary)
    elif path is None:
        raise UserError(
            f"no n-gram store ships for {facts.name!r}: build one with "
            "python -m app model ngram and give it as ngram=PATH, or set ngram_weight=0"
        )
    else:
        store = NgramStore.open(path)
    if store.vocabulary != vocabulary:
        raise UserError(
            f"the n-gram store {path} has a vocabulary of {store.vocabulary}, "
            f"but {facts.name!r} has {vocabulary}"
        )
    counted, own = store.metadata.get("tokenizer"), getattr(facts, "tokenizer_hash", None)
    if counted and own and counted != own:
        raise UserError(f"the n-gram store {path} counts another tokenizer's tokens")
    search = ContinuitySearch(store, np.array(sorted(facts.stop_ids), np.int64), options)
    lists = Candidates(np.zeros((2, 1), np.int64), np.zeros((2, 1), np.float32))
    search(FactorisedSession(lists), [0, 0], 1)  # compiles it, so that no round pays for that
    return search


def shipped_store(target: str) -> Path | None:
    """The n-gram store that ships for the target of this name, if one does."""
    path = ASSETS / "models" / embedded.NAME / "ngram.safetensors"
    return path if target == embedded.NAME and path.is_file() else None


@compiled
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
    made = np.int64(0)
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


@compiled
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


@compiled
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
        for each in range(4):  # compiled in a second less than a whole row
            own[row, each] = terms[node, each]
    return parents, depths, ranks, scores, own
