"""One way along a text that is there already.

``read_along`` has the target read the text once; what it says may also come from hidden states that
were kept (``core.decoding.dumps``). ``along`` opens a drafter's sessions at places of the text.
``rounds`` are those that decoding would take: the text is the target's own, so a round that starts
at some token accepts exactly the prefix of the drafted tree that agrees with the text.

Shapes: T tokens, h hidden width, F layers that a drafter reads, A roots, L drafted depths,
V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from core.decoding.decode import Decoder
from core.drafting.session import (
    Builder,
    Children,
    Drafter,
    DraftSession,
    WrappedSession,
    sessions_along,
)
from core.drafting.states import StateTable
from core.errors import UserError
from core.models.target import Target
from core.progress import At, Progress, silent
from core.rounds.draft import Array, Draft
from core.rounds.round import Verdict
from core.verification.rules import TargetTokens
from core.verification.walk import verdict

AT_ONCE = 16  # roots that share a pass of a drafter, at most
NUMBERS = 1 << 23  # of log q that a pass may hold: 32 MB


@dataclass(frozen=True, eq=False)
class Reading:
    """A text and what the target says of it.

    tokens  int64 [T]
    answer  index of the first new token: p is known after it and after all later ones
    states  layer → [T, h], its output after every token; −1 is the embedding. The last layer's is
            after the final norm
    rows    of the text's last tokens, those from the answer on or more; ``head`` makes logits
            [·, V] of them
    before  [T, h], the last layer's output before the final norm; None: not known
    """

    tokens: Tensor
    answer: int
    states: Mapping[int, Tensor]
    rows: Tensor
    head: Callable[[Tensor], Tensor] = lambda rows: rows
    before: Tensor | None = None

    def after(self, layers: Sequence[int]) -> Tensor:
        """Features [T, F·h] after these layers. Raises UserError for a layer that is not there."""
        if missing := set(layers) - set(self.states):
            raise UserError(f"the text holds no features of layer {min(missing)}")
        parts = [self.states[layer] for layer in layers]
        return torch.cat(parts, -1) if parts else self.rows.new_empty(len(self.tokens), 0)

    def logits(self, first: int, last: int) -> Tensor:
        """The target's logits [last − first, V] after the tokens at ``first`` … ``last`` − 1."""
        known = len(self.tokens) - len(self.rows)
        return self.head(self.rows[first - known : last - known])

    def until(self, end: int) -> Reading:
        """The same of the tokens before ``end``."""
        states = {layer: each[:end] for layer, each in self.states.items()}
        rows = self.rows[: max(0, len(self.rows) - (len(self.tokens) - end))]
        before = None if self.before is None else self.before[:end]
        return Reading(self.tokens[:end], self.answer, states, rows, self.head, before)

    @cached_property
    @torch.inference_mode()
    def p(self) -> Tensor:
        """float32 [T − answer, V] after every token from the answer on."""
        return self.logits(self.answer, len(self.tokens)).float().softmax(-1)

    @cached_property
    def best(self) -> Tensor:
        """The target's best token after every token from the answer on, int64 [T − answer]."""
        return self.p.argmax(-1)


@torch.inference_mode()
def read_along(
    target: Target,
    tokens: Sequence[int],
    answer: int,
    norm: nn.Module | None = None,
    report: Progress = silent,
    reserve: int = 1,
) -> Reading:
    """Read a text of token ids: the target's p after it, and the states after its ``layers``.

    The tokens before ``answer`` are prefilled, the others scored in one forward; with ``answer`` at
    the text's end p is not known. ``norm``: the target's final one, for ``Reading.before``.
    ``report`` hears before each forward, and what it raises ends the reading. ``reserve``: rows
    that the target's cache keeps free after the text.
    """
    new = tuple(tokens[answer:])
    with _entering(norm) as entered:
        report(0.0, "reading the text")
        scores = target.prefill(list(tokens[:answer]), len(new) + reserve, report)
        features, logits = scores.features, scores.logits[:0]
        if new:
            report(answer / len(tokens), "reading the text")
            scores = target.score(Draft.chain(new))
            features, logits = torch.cat([features, scores.features]), scores.logits
    parts = features.chunk(len(target.layers), -1) if target.layers else ()
    return Reading(
        tokens=torch.tensor(tokens, device=target.device),
        answer=answer,
        states=dict(zip(target.layers, parts, strict=True)),
        rows=logits,
        before=torch.cat(entered) if entered else None,
    )


@contextmanager
def _entering(module: nn.Module | None) -> Iterator[list[Tensor]]:
    """Collect the input of a module while the context is open: [N, h] of every call."""
    found = list[Tensor]()
    if module is None:
        yield found
        return
    hook = module.register_forward_pre_hook(lambda _, given: found.append(given[0][0]))
    try:
        yield found
    finally:
        hook.remove()


# ── along a text ─────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class Position:
    """A place of a text. ``root``: index of the last token that the session knows."""

    reading: Reading
    root: int
    session: DraftSession

    def path(self, reach: int) -> list[int]:
        """The text's own tokens from the root on, at most ``reach``."""
        return self.reading.tokens[self.root : self.root + reach].tolist()

    def logits(self, count: int) -> Tensor:
        """The target's [count, V] after each of the first tokens of ``path``."""
        return self.reading.logits(self.root, self.root + count)


@torch.inference_mode()
def along(
    drafter: Drafter, reading: Reading, roots: Tensor | Iterable[int], width: int
) -> Iterator[Position]:
    """The drafter at some places of a text; ``width``: tokens listed after a state, at least.

    roots  ascending. Those of a tensor [A] may share passes. Others are asked for one by one, each
           after the position before it was used, and the drafter walks along the text as in a run

    Raises UserError for a text without the features that the drafter reads.
    """
    features = reading.after(drafter.layers)
    if isinstance(roots, Tensor):
        sessions = drafter.begin_each(reading.tokens, features, roots, width)
        found = zip(roots.tolist(), sessions, strict=True)
    else:
        found = sessions_along(drafter, reading.tokens.tolist(), features, roots, width)
    for root, session in found:
        yield Position(reading, root, session)


def log_q_along(
    drafter: Drafter,
    reading: Reading,
    roots: Tensor,
    features: Tensor | None = None,
    tick: At = silent,
) -> Iterator[Tensor]:
    """log q [A, L, V] of the text's own tokens, for some roots at a time in the order of ``roots``.

    features  [T, F·h] that the drafter is given; None: the reading's. ``tick`` hears the share that
              is done before each pass

    Raises UserError for a drafter that does not tell q.
    """
    given = reading.after(drafter.layers) if features is None else features
    most = NUMBERS // (drafter.max_depth * reading.p.shape[1])
    done = 0
    for some in roots.split(min(AT_ONCE, max(1, most))):
        tick(done / len(roots))
        log_q = drafter.log_q_at(reading.tokens, given, some)
        if log_q is None:
            raise UserError("this drafter does not tell q: its wiring cannot be probed")
        yield log_q
        done += len(some)


# ── the rounds of a run ──────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Setup:
    """A builder with its budget, by the name that a report gives it."""

    name: str
    builder: Builder
    budget: int


@dataclass(frozen=True, eq=False)
class Simulated:
    """A round that a setup takes from a position on."""

    setup: Setup
    at: Position
    draft: Draft
    verdict: Verdict


def rounds(
    drafter: Drafter, reading: Reading, span: tuple[int, int], setups: Sequence[Setup]
) -> Iterator[Simulated]:
    """The rounds that each setup takes on the target's text.

    A run's first round has its root at the ``span``'s first token; it ends when the next root would
    be the last one or a later one. The drafter walks once for all setups.
    """
    first, last = span
    tokens, depth = reading.tokens.tolist(), drafter.max_depth
    next_root = {setup.name: first for setup in setups}

    def roots() -> Iterator[int]:
        while (root := min(next_root.values())) < last:
            yield root

    width = max(setup.builder.width(setup.budget) for setup in setups)
    for at in along(drafter, reading, roots(), width):
        session = SharedSession(at.session)
        for setup in (s for s in setups if next_root[s.name] == at.root):
            draft = setup.builder(session, tokens[: at.root + 1], setup.budget)
            found = verdict(draft, tokens[at.root + 1 : at.root + 1 + depth])
            next_root[setup.name] += found.accepted + 1
            yield Simulated(setup, at, draft, found)


def why_run(method: Decoder) -> str:
    """Why the rounds of a method do not follow from the target's text; "" where they do."""
    if method.drafter is not None and method.drafter.learns:
        return "learns from its own run"
    if method.builder is not None and method.builder.learns:
        return "measures its own rounds"
    return "" if method.rule is TargetTokens else "accepts by a rule of its own"


class SharedSession(WrappedSession):
    """A session that several builders use in turn: no state is expanded twice."""

    def __init__(self, session: DraftSession):
        super().__init__(session)
        self._table = StateTable(session)

    def expand(self, states: Array) -> Children:
        """Every state known by then, these among them."""
        table = self._table
        table.expand(states)
        known = np.flatnonzero(table.row_of >= 0).astype(np.int32)
        rows = table.row_of[known]
        notes = {name: values[rows] for name, values in table.notes.items()}
        return Children(known, table.ids[rows], table.log_q[rows], table.next[rows], notes)
