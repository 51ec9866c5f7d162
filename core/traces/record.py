"""Recording a decoding loop of one's own as a trace. Needs numpy only.

    with Recorder(Path("mine.jsonl.gz"), "my method", prompt_ids, budget=16) as record:
        for each round:
            record.round(tokens, parents, path, bonus)

A loop that has p and q as arrays hands them over: the recorder reads off them what views show.
What a loop does not know is left out: without q there is no calibration, and without lists the
cause of a missing token is unknown. Everything else of the report, the page and the exports works.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UserError
from ..rounds.draft import NOT_KNOWN, Array, Candidates, Draft, Proposal
from ..rounds.round import Round, Times, Verdict
from .distributions import distributions, proposal, token_log_q, with_measures
from .schema import Header
from .writer import TraceWriter

NOT_TIMED = Times()


class Recorder:
    """Writes rounds as they happen; leaving the ``with`` block writes the footer, an error none.

    path        .jsonl or .jsonl.gz
    method      what tables call it
    prompt_ids  the prompt's tokens; the first round's root comes after them
    budget      the most nodes a round may draft; 0: not known
    read        how many tokens of a list the builder looks at whatever its budget; None: 1 where a
                round's draft is a chain of several nodes and none has branched yet, else as many
                as the budget lets it
    text        the text of a token id; None: ids are shown
    header      other fields of ``core.traces.schema.Header``, such as model={"name": …};
                drafter={"depths": L} tells the drafter's last depth, where no lists do
    """

    def __init__(
        self,
        path: Path | str,
        method: str,
        prompt_ids: Sequence[int],
        budget: int = 0,
        text: Callable[[int], str] | None = None,
        read: int | None = None,
        **header: Any,
    ):
        settings = {**header.pop("settings", {}), **({"budget": budget} if budget else {})}
        fields = {"model": {}, "prompt_text": "", **header}
        self._header = Header(method, settings, prompt_ids=tuple(map(int, prompt_ids)), **fields)
        self._writer = TraceWriter(Path(path), self._header)
        self._text, self._read, self._count = text, read, 0
        self._trees = False  # whether a round has branched: a chain is then one of its trees
        sampling = settings.get("sampling", settings)
        heat = sampling.get("temperature") if isinstance(sampling, Mapping) else None
        self._sampled, self._greedy = bool(heat), heat == 0  # neither where it is not told
        depths = self._header.drafter.get("depths")
        self._last = depths if type(depths) is int else 0
        self._position, self._root = len(self._header.prompt_ids), -1

    def round(
        self,
        tokens: Sequence[int],
        parents: Sequence[int],
        path: Sequence[int],
        bonus: int,
        log_q: Sequence[float] | None = None,
        lists: tuple[Array, Array] | None = None,
        times: Times = NOT_TIMED,
        committed: Sequence[int] | None = None,
        more: Callable[[Round], Round] = lambda record: record,
        p: Array | None = None,
        q: Array | None = None,
        drawn: bool | None = None,
    ) -> Round:
        """Write one round and return it.

        tokens     [N], the root first: the bonus token of the round before
        parents    [N], the row of each one's parent, before it; −1 for the root
        path       the accepted rows from the root on: [0, …]
        bonus      the token after the last of them, which the next round begins with
        log_q      [N], natural logarithms; the root's is not read. None: q's, or not known
        lists      the drafter's best tokens by depth and their log q, [L, K] each, best first
        committed  the tokens that stand in the text; None: the accepted ones and the bonus
        more       adds to the round what else is known of it
        p          [N, V], the target's distribution after every row, at temperature 1
        q          [n, V], the drafter's after each of the first n rows, at temperature 1; a row
                   after which it was not asked holds NaN
        drawn      whether the bonus token was drawn from what a refused token left of p, and is not
                   the target's own. None: yes where the text is sampled and all tokens that were
                   drafted there are refused

        Raises UserError, one sentence, for data that are not a round of this text.
        """
        tokens, parents, path = map(self._whole, (tokens, parents, path))
        (bonus,) = self._whole([bonus])
        self._check(tokens, parents, path, times)
        p, q = self._both(p, q, tokens)
        draft = self._drafted(tokens, parents, log_q, lists, q)
        answers = np.full(len(draft), -1, np.int64)
        answers[list(path[:-1])] = draft.tokens[list(path[1:])]
        if drawn is None:
            drawn = self._sampled and bonus >= 0 and bool(draft.children[path[-1]])
        answers[path[-1]] = -1 if drawn else bonus
        accepted = [tokens[row] for row in path[1:]]
        written = [*accepted, bonus]
        record = Round(
            index=self._count,
            position=self._position,
            draft=draft,
            verdict=Verdict(tuple(path), answers, bonus if drawn else None),
            committed=tuple(written if committed is None else self._beginning(committed, written)),
            times=times,
            budget=self._header.stated("budget", int),
        )
        record = more(with_measures(record, p, q))
        if self._text is not None:
            record = record.with_texts({token: self._text(token) for token in record.mentioned})
        self._writer.write(record)
        self._count, self._root = self._count + 1, bonus
        self._position += len(accepted) + 1
        return record

    def _drafted(
        self,
        tokens: Sequence[int],
        parents: Sequence[int],
        log_q: Sequence[float] | None,
        lists: tuple[Array, Array] | None,
        q: Array | None,
    ) -> Draft:
        """The draft with its lists, which go before those of q."""
        if q is not None and log_q is None:
            log_q = token_log_q(q, np.array(tokens), np.array(parents)).tolist()
        draft = replace(_draft(tokens, parents, log_q, self._greedy), last=self._last)
        self._trees |= any(len(below) > 1 for below in draft.children)
        read = self._read if self._trees else _read_of(draft, self._read)
        if lists is not None:
            return _listed(draft, *lists, read)
        if q is not None and draft.nodes:
            return with_proposal(draft, proposal(q, draft, read, self._last))
        return draft

    def _whole(self, values: Iterable[int]) -> list[int]:
        """As numbers of Python: numpy's and torch's are taken, too."""
        try:
            return [operator.index(each) for each in values]
        except TypeError:
            raise UserError(
                f"round {self._count + 1} has a token or a row that is not a whole number"
            ) from None

    def _beginning(self, committed: Iterable[int], written: list[int]) -> list[int]:
        """Raises UserError for tokens that are not a beginning of what a round writes."""
        found = self._whole(committed)
        if found != written[: len(found)]:
            raise UserError(
                f"what round {self._count + 1} commits is not a beginning of its accepted tokens "
                "and the bonus token"
            )
        return found

    def _both(
        self, p: Array | None, q: Array | None, tokens: Sequence[int]
    ) -> tuple[Array | None, Array | None]:
        """p and q as distributions. Raises UserError for others, and for two vocabularies."""
        p, q = self._told("p", p, tokens), self._told("q", q, tokens)
        if p is not None and q is not None and p.shape[1] != q.shape[1]:
            raise UserError(
                f"p of round {self._count + 1} is of {p.shape[1]} tokens and q of {q.shape[1]}: "
                "both are over the target's whole vocabulary"
            )
        return p, q

    def _told(self, name: str, values: Array | None, tokens: Sequence[int]) -> Array | None:
        where = f"round {self._count + 1}"
        found = None if values is None else distributions(values, name, len(tokens), where)
        if found is not None and max(tokens) >= found.shape[1]:
            raise UserError(
                f"{where} has token {max(tokens)}, and its {name} is of {found.shape[1]} tokens"
            )
        return found

    def _check(
        self, tokens: Sequence[int], parents: Sequence[int], path: Sequence[int], times: Times
    ) -> None:
        where = f"round {self._count + 1}"
        for stage, seconds in vars(times).items():
            if not 0 <= seconds < math.inf:  # no reader would open the file
                raise UserError(
                    f"{where} says that {stage} took {seconds} s: time.perf_counter() never goes "
                    "back, as other clocks do"
                )
        if not tokens or len(tokens) != len(parents):
            raise UserError(f"{where} has {len(tokens)} tokens and {len(parents)} parents")
        if self._count and tokens[0] != self._root:
            raise UserError(
                f"{where} begins with token {tokens[0]}, but the bonus token before is {self._root}"
            )
        if parents[0] != -1 or any(not 0 <= p < row for row, p in enumerate(parents) if row):
            raise UserError(f"{where} has a parent that does not stand before its node")
        sound = path[:1] == [0] and all(0 <= row < len(tokens) for row in path)
        if not sound or any(parents[b] != a for a, b in pairwise(path)):
            raise UserError(f"the accepted path of {where} is not a path from the root")

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind: type | None, error: object, traceback: object) -> None:
        if kind is None:
            self._writer.finish()
        else:
            self._writer.close()


def _draft(
    tokens: Sequence[int],
    parents: Sequence[int],
    log_q: Sequence[float] | None,
    greedy: bool,
) -> Draft:
    """Depths follow from the parents; a node's rank is its place among its siblings by log q. Where
    that is not told of them all, ranks are not known, but that of the only token after another: it
    is the best of a ``greedy`` text; of another it may have been drawn from q."""
    above = np.array(parents, np.int32)
    depths = np.zeros(len(above), np.int32)
    for row, parent in enumerate(above[1:].tolist(), 1):
        depths[row] = depths[parent] + 1
    odds = np.full(len(above), np.nan, np.float32) if log_q is None else np.array(log_q, np.float32)
    odds[0] = 0.0
    ranks = np.zeros(len(above), np.int32)
    for parent in set(above[1:].tolist()):
        rows = np.flatnonzero(above == parent)
        is_known = (len(rows) == 1 and greedy) or not np.isnan(odds[rows]).any()
        places = 1 + np.arange(len(rows))
        ranks[rows[np.argsort(-odds[rows], kind="stable")]] = places if is_known else NOT_KNOWN
    scores = odds.astype(np.float64)
    for row, parent in enumerate(above[1:].tolist(), 1):
        scores[row] += scores[parent]
    return Draft(
        tokens=np.array(tokens, np.int64),
        parents=above,
        depths=depths,
        ranks=ranks,
        log_q=odds,
        scores=scores.astype(np.float32),
    )


def _listed(draft: Draft, ids: Array, log_q: Array, read: int | None) -> Draft:
    """The draft with the drafter's lists by depth, [L, K]."""
    lists = Candidates(np.array(ids, np.int64), np.array(log_q, np.float32))
    return with_proposal(draft, Proposal.factorised(lists, draft.depths, read))


def _read_of(draft: Draft, read: int | None) -> int | None:
    """How many tokens of a list the builder looks at: a chain is taken to read one."""
    chain = draft.nodes > 1 and max(map(len, draft.children)) == 1
    return 1 if read is None and chain else read


def with_proposal(draft: Draft, proposal: Proposal) -> Draft:
    """The draft with the drafter's lists; a node's rank is its place in the list after its parent,
    and not known where that list lacks it. A chain may hold tokens that were drawn from q."""
    ranks = draft.ranks.copy()
    for row, parent in enumerate(draft.parents[1:].tolist(), 1):
        if (listed := proposal.candidates(parent)) is not None and row not in draft.side:
            found = np.flatnonzero(listed.ids == draft.tokens[row])
            ranks[row] = found[0] + 1 if len(found) else NOT_KNOWN
    return replace(draft, ranks=ranks, proposal=proposal)
