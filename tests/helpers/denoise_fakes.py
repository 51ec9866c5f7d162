"""Made-up denoising runs without torch: a plain one, and what a draft graph would have saved of it.

A block is filled from a known text; confidence grows when neighbours are known, and a position that
has none may first bet on another token. Spiffy's calls come from ``core.diffusion.nfe.simulate``.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from app.studio.engine import Started
from core.diffusion.draft_graph import DraftGraph, draft_block, make_graph
from core.diffusion.graph_files import graph_to_json
from core.diffusion.nfe import simulate
from core.diffusion.pace import Pace
from core.diffusion.request import DenoiseRequest
from core.diffusion.verify import Cursor, Verification, make_round
from core.errors import UserError
from core.progress import Progress, silent
from core.rounds.blocks import MASKED, Ranking, Step
from core.rounds.round import Round, Times
from core.traces.schema import Header, Trace
from tests.helpers.fakes import HOSTILE

TEXT = (
    "The| baker| makes| |24| rolls| an| hour|,| so| in| |5| hours| she| makes| |120| rolls|.|\n|"
    "She| sells| |87| of| them|,| which| leaves| |120| -| |87| =| |33| rolls|.| There| are| |33|"
    " rolls| left|.| That| is| the| answer|:| |33|.|\n|You| can| check| it| by| adding| |33|"
    " and| |87|."
)
WORDS = tuple(dict.fromkeys([*TEXT.split("|"), " a", " the", " and", " dozen", "!", " bread"]))
GRAPH = make_graph(
    [[(1, 1)], [(2, 1)], [(1, 2)], [(1, 1), (2, 1)], [(1, 1), (3, 1)], [(1, 1), (2, 1), (3, 1)],
     [(1, 1), (2, 2)], [(1, 1), (2, 1), (3, 1), (4, 1)]],
    name="d8-total",
)  # fmt: skip
WIDTH = 4


def plain_rounds(
    pace: Pace = GRAPH.pace, block: int = 32, blocks: int = 2, hostile: bool = False, seed: int = 0
) -> tuple[Round, ...]:
    """Plain denoising of the text, one step a call."""
    words = tokens(hostile)
    text = [words.index(w) for w in TEXT.split("|")] if not hostile else list(range(64))
    rng = np.random.default_rng(seed)
    rounds: list[Round] = []
    for index in range(blocks):
        wanted = np.resize(np.array(text, np.int64), blocks * block)[index * block :][:block]
        state = np.full(block, MASKED, np.int64)
        base = rng.normal(size=block)
        while MASKED in state:
            step = _step(state, wanted, base, pace, len(words))
            cursor = Cursor(40 + index * block, len(rounds), index, len(rounds))
            after = state.copy()
            after[step.positions] = step.tokens
            draft = draft_block(None, state, None, pace, len(words))
            result = Verification((0,), (step,), after)
            made = make_round(cursor, draft, state, result, Times(0, 0, 0.08))
            rounds.append(made.with_texts(dict(enumerate((*words, "<mask>")))))
            state = after
    return tuple(rounds)


def _step(state: np.ndarray, wanted: np.ndarray, base: np.ndarray, pace: Pace, known: int) -> Step:
    masked = np.flatnonzero(state == MASKED)
    near = np.convolve(state != MASKED, [0.4, 1, 0, 1.6, 0.4], "same")
    sure = 1 / (1 + np.exp(-(base + near)))[masked]
    order = np.lexsort((masked, -sure))
    positions, p = masked[order], np.zeros((len(masked), WIDTH), np.float32)
    p[:, 0] = sure[order]
    for j in range(1, WIDTH):
        p[:, j] = (1 - p[:, :j].sum(1)) * 0.6
    ids = (wanted[positions, None] + np.array([0, 1, 7, 3])) % known
    unsure = p[:, 0] < 0.45  # bets on another token until something near is known
    ids[unsure, :2] = ids[unsure, 1::-1]
    ranking = Ranking(positions.astype(np.int32), ids.astype(np.int64), p)
    return Step(ranking, pace.next_size(ranking.p[:, 0], len(state)))


def tokens(hostile: bool) -> tuple[str, ...]:
    return (*HOSTILE, *(f" w{i}" for i in range(64 - len(HOSTILE)))) if hostile else WORDS


def spiffy_rounds(
    plain: Sequence[Round], graph: DraftGraph = GRAPH, pace: Pace = GRAPH.pace
) -> tuple[Round, ...]:
    """The calls this graph would have needed for the same text."""
    made = simulate(plain, graph, pace)
    return tuple(replace(r, texts=plain[0].texts, times=Times(0, 1e-4, 0.2)) for r in made)


def make_header(graph: DraftGraph | None = None, pace: Pace = GRAPH.pace, **other: Any) -> Header:
    """As the engine writes it, without what no view needs."""
    told = graph and graph_to_json(graph)
    settings = {"length": 64, "block": 32, "pace": pace.to_json(), "temperature": 0.0,
                "seed": 0, "go_on": False, "graph": told}  # fmt: skip
    given: dict[str, Any] = {
        "method": "spiffy" if graph else "denoise", "settings": settings | other,
        "model": {"name": "smollm2-135m"}, "drafter": {}, "prompt_text": "How many are left?",
        "prompt_ids": (1, 2, 3), "seed": 0, "tokenizer_hash": "x", "dtype": "float32",
        "device": "cpu", "created": "2026-11-21T12:00:00+00:00",
        "creator": {"name": "draftscope", "version": "0"}, "libraries": {},
    }  # fmt: skip
    return Header(**given)


def traces(hostile: bool = False, **how: Any) -> tuple[Trace, Trace]:
    """(Spiffy, plain) on one prompt."""
    plain = plain_rounds(hostile=hostile, **how)
    return (
        Trace(make_header(GRAPH), spiffy_rounds(plain), {}),
        Trace(make_header(), plain, {}),
    )


def paused(rounds: Sequence[Round], seconds: float) -> Generator[Round, None, None]:
    """Made-up rounds, one after another."""
    for record in rounds:
        time.sleep(seconds)
        yield record


class DenoiseEngine:
    """The studio's engine as it is without a model: instant denoising runs of the made-up text."""

    def prepare(self, report: Progress) -> None:
        report(1.0, "ready")

    def start(self, request: Any, report: Progress = silent) -> Started:
        if not isinstance(request, DenoiseRequest):
            raise UserError("this engine only denoises")
        if "fail" in request.prompt:
            raise UserError("no denoiser ships for 'smollm2-135m': name a diffusion model's folder")
        block = request.block or 16
        made = plain_rounds(
            request.pace, block, request.length // block, "hostile" in request.prompt
        )
        graph = GRAPH if request.graph else None
        rounds = spiffy_rounds(made, graph, request.pace) if graph else made
        header = replace(make_header(graph, request.pace), prompt_text=request.prompt)
        return Started(header, paused(rounds, 0.4 if "slow" in request.prompt else 0.0))


def walk(rounds: Sequence[Round]) -> Iterator[Step]:
    """All steps of a run, whichever call decided them."""
    for record in rounds:
        assert record.block is not None
        yield from record.block.steps
