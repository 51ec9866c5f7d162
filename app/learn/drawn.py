"""The walk of one recorded round at other temperatures and seeds.

What the target draws after a row depends on nothing but p, the temperature, the seed and the
position, but on all of the vocabulary. So the draws themselves are recorded, of one pass of the
target (``app.maintainers.recording``), with what is needed to say p at each temperature.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from app.learn.figures import CHOSEN, SEEN, tree
from app.learn.steps import answered, noise, tree_of
from app.learn.words import ChapterStep, Json, Slider, Span, moved, scene, series
from app.view.rounds import round_view
from core.errors import UserError
from core.rounds.draft import Array
from core.rounds.round import Round, TargetProbs
from core.visible import visible

FILE = "drawn.json"


def wavering(rounds: Sequence[Round]) -> int:
    """The number of the round, from 0, after whose root the target is least sure which of the
    drafted tokens it wants: the second of them has the largest p."""

    def second(record: Round) -> float:
        assert record.target_probs is not None, "a shipped trace keeps p"
        found = record.target_probs.log_p[list(record.draft.children[0])]
        return sorted(found.tolist(), reverse=True)[1] if len(found) > 1 else -math.inf

    return max(range(len(rounds)), key=lambda at: second(rounds[at]))


TEMPERATURES = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5)
SEEDS = tuple(range(1, 11))
START = (1.0, 1)  # where the sliders stand at first
LISTED = 4  # tokens of a table


@dataclass(frozen=True, eq=False)
class Draws:
    """Draws of the target after each of N rows, at T temperatures and S seeds.

    rows     the tokens of the rows, the root's first
    tokens   int64 [T, S, N]
    log_p    float64 [T, S, N], of these tokens at temperature 1
    log_sum  float64 [T, N], log Σ_v p_v^(1/T), which makes p at a temperature add up to 1
    texts    token id → text
    """

    temperatures: tuple[float, ...]
    seeds: tuple[int, ...]
    rows: tuple[int, ...]
    tokens: Array
    log_p: Array
    log_sum: Array
    texts: Mapping[int, str]

    @staticmethod
    def read(path: Path) -> Draws:
        """Raises UserError when the file is missing or broken."""
        try:
            told: Any = json.loads(path.read_text("utf-8"))
            return Draws(
                tuple(told["temperatures"]), tuple(told["seeds"]), tuple(told["rows"]),
                np.array(told["tokens"], np.int64), np.array(told["log_p"]),
                np.array(told["log_sum"]), {int(k): str(v) for k, v in told["texts"].items()},
            )  # fmt: skip
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{path.parent}: {path.name} cannot be read: {error}") from None

    def log_odds(self, at: int, row: int, log_p: float) -> float:
        """log of a token's p after a row at the temperature of this number."""
        return log_p / self.temperatures[at] - float(self.log_sum[at, row])


@dataclass(frozen=True, eq=False)
class DrawnWalks:
    """The round with the walk of every temperature and seed.

    Raises ValueError for draws that are of another tree.
    """

    record: Round
    draws: Draws

    def __post_init__(self) -> None:
        if self.draws.rows != tuple(self.record.draft.tokens.tolist()):
            raise ValueError("the draws are of another tree: record them anew")

    def round(self, at: int, seed: int) -> Round:
        """The round with its draws at a temperature and a seed, each by its number."""
        record, tokens = self.record, self.draws.tokens[at, seed]
        told = replace(record, texts={**record.texts, **self.draws.texts})
        own = answered(told, tree_of(record), tokens.tolist())
        return own if not at else replace(own, target_probs=self._heated(at))

    def _heated(self, at: int) -> TargetProbs:
        """p of the rows at a temperature."""
        probs, parents = self.record.target_probs, self.record.draft.parents
        assert probs is not None
        heat, sums = self.draws.temperatures[at], self.draws.log_sum[at]
        return replace(
            probs,
            log_p=probs.log_p / heat - np.where(parents < 0, 0, sums[parents]),
            top_log_p=probs.top_log_p / heat - sums[:, None],
        )

    @cached_property
    def _views(self) -> tuple[Mapping[tuple[int, int], str], Mapping[str, Json]]:
        """The name of each state's tree, and the trees: equal ones once."""
        names, views, known = {}, {}, {}
        for at, seed in self._places:
            own = self.round(at, seed)
            key = at, own.verdict.path, own.verdict.bonus
            if key not in known:
                known[key] = f"drawn-{len(known) + 1}"
                views[known[key]] = self._view(own, at, seed)
            names[at, seed] = known[key]
        return names, views

    def _view(self, own: Round, at: int, seed: int) -> Json:
        view = round_view(own)
        if at and "ghost" in view:  # it may be none of the listed ones
            last = own.verdict.path[-1]
            log_p = float(self.draws.log_p[at, seed, last])
            view["ghost"]["p"] = math.exp(self.draws.log_odds(at, last, log_p))
        return view

    @property
    def _places(self) -> Iterator[tuple[int, int]]:
        draws = self.draws
        return ((t, s) for t in range(len(draws.temperatures)) for s in range(len(draws.seeds)))

    @property
    def trees(self) -> Mapping[str, Json]:
        return self._views[1]

    def step(self) -> ChapterStep:
        """The step with a slider for each; the seed moves fastest."""
        draws = self.draws
        sliders = (
            Slider("temperature T", tuple(f"{t:g}" for t in draws.temperatures),
                   draws.temperatures.index(START[0])),
            Slider("seed", tuple(map(str, draws.seeds)), draws.seeds.index(START[1])),
        )  # fmt: skip
        states = [self._state(at, seed) for at, seed in self._places]
        return moved("drawn", sliders, states, number=self.record.number)

    def _state(self, at: int, seed: int) -> ChapterStep:
        own = self.round(at, seed)
        taken: list[Span] = [{"token": visible(own.text(token))} for token in own.committed]
        return scene(
            "drawn-now", tree(self._views[0][at, seed]), side=self._tables(own, at, seed),
            heat=f"{self.draws.temperatures[at]:g}", seed=self.draws.seeds[seed],
            drawn=series(taken), accepted=own.accepted, any=own.accepted > 0, kept=len(taken),
            cold=not at,
        )  # fmt: skip

    def _tables(self, own: Round, at: int, seed: int) -> Json:
        """log p / T + g = sum of the target's likeliest tokens, for each row of the walk."""
        heads = ["", "log p / T", "g", "sum"] if at else ["", "log p"]
        lists = [self._table(own, row, at, seed) for row in own.verdict.path]
        note = "Rounded after adding." if at else ""
        return {"kind": "noise", "heads": heads, "lists": lists, "note": note}

    def _table(self, own: Round, row: int, at: int, seed: int) -> Json:
        probs, draws = self.record.target_probs, self.draws
        assert probs is not None
        drawn = int(draws.tokens[at, seed, row])
        logs = dict(zip(probs.top_ids[row].tolist(), probs.top_log_p[row].tolist(), strict=True))
        logs = dict(list(logs.items())[:LISTED]) | {drawn: float(draws.log_p[at, seed, row])}
        place = own.position + int(own.draft.depths[row]) + 1
        added = noise(draws.seeds[seed], place, list(logs)) if at else [0.0] * len(logs)
        heat = draws.temperatures[at] or 1.0
        rows = []
        for (token, log_p), g in zip(logs.items(), added, strict=True):
            terms = [log_p / heat, g] if at else []
            rows.append({
                "label": visible(own.text(token)), "terms": [round(x, 2) for x in terms],
                "sum": round(log_p / heat + g, 2), "mark": CHOSEN if token == drawn else SEEN,
            })  # fmt: skip
        return {"title": "after " + visible(own.text(int(own.draft.tokens[row]))), "rows": rows}
