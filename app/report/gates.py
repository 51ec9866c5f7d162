"""Gates: bounds on the table of τ that a report must keep, for a CI."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from analysis.numbers import number
from app.terminal import one_line
from core.errors import UserError

if TYPE_CHECKING:
    from analysis.measures.tables import Tables

BOUNDS = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}
GATED = (
    "tau", "low", "high", "committed_per_round", "nodes_per_round", "tokens_per_second",
    "round_pace", "rounds", "tokens",
)  # fmt: skip


@dataclass(frozen=True)
class Gate:
    """A bound on a column of the table of τ, which every method must keep."""

    name: str
    sign: str
    bound: float

    def __str__(self) -> str:
        return f"{self.name} {self.sign} {self.bound:g}"

    def missed(self, tables: Tables) -> Iterator[str]:
        """A sentence for each method that misses it. A number that is not known misses it."""
        from analysis.measures.acceptance import tau

        for row in tau(tables).to_dict("records"):
            value = row[self.name]
            if not BOUNDS[self.sign](value, self.bound):
                method = one_line(str(row["method"]), 60)
                yield f"gate missed: {method} has {self.name} {number(value, 3)}, not {self}"


def gate(text: str) -> Gate:
    """Read NAME>=NUMBER. Raises UserError."""
    found = re.fullmatch(r"(\w+)(>=|<=|>|<)(\S+)", text.replace(" ", ""))
    if not found or found[1] not in GATED:
        raise UserError(
            f"{text!r} is not a gate: write one of {', '.join(GATED)}, then one of "
            f"{' '.join(BOUNDS)}, and a number, as in tau>=2.5"
        )
    try:
        bound = float(found[3])
    except ValueError:
        bound = math.nan
    if not math.isfinite(bound):
        raise UserError(f"{found[3]!r} in the gate {text!r} is not a finite number")
    return Gate(found[1], found[2], bound)
