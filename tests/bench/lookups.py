"""The cost of a token and a round for drafters that look things up, by the length of the text.

    python -m tests.bench.lookups [--tokens 1024 … 32768]

The texts: the license's tokens, repeated; one token again and again; tokens at random out of 64, as
a text whose last tokens occurred often; and of 49,152. A token's cost is the mean over the whole
text; a round's the median over its last 64 tokens, each a root.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from app.command_line import CommandOptions, option, run
from app.commands.options import POSITIVE
from app.terminal import FittingTable, console
from core.drafting.builders import Chain, best_first, warm_up
from core.drafting.session import Drafter
from core.errors import as_script
from core.methods.ngram_mod import NgramMod, NgramModOptions, Table
from core.methods.suffix import SuffixOptions
from core.methods.suffix.automaton import SuffixAutomaton
from core.methods.suffix.drafter import SuffixDrafter
from core.models.embedded import NAME
from core.models.language import load_vocabulary
from tests import ROOT

LICENSE_TEXT = ROOT / "LICENSE"
ROUNDS, BUDGET = 64, 64


def texts(size: int) -> Mapping[str, list[int]]:
    """Texts of this many tokens, by what they are."""
    own = load_vocabulary(NAME)
    ids = own.tokenizer(LICENSE_TEXT.read_text("utf-8"), add_special_tokens=False).input_ids
    drawn = random.Random(0)
    return {
        "the license, repeated": (ids * (size // len(ids) + 1))[:size],
        "one token": [7] * size,
        "64 tokens": [drawn.randrange(64) for _ in range(size)],
        "all tokens": [drawn.randrange(own.size) for _ in range(size)],
    }


def drafters(vocabulary: int) -> Mapping[str, Drafter]:
    suffix, mod = SuffixOptions(), NgramModOptions(n_min=1)
    return {
        "suffix": SuffixDrafter(vocabulary, suffix, SuffixAutomaton(suffix.max_tree_depth)),
        "ngram-mod": NgramMod(vocabulary, mod, Table(mod.n_match)),
    }


def costs(drafter: Drafter, text: Sequence[int]) -> tuple[float, float]:
    """Microseconds of a token, and of a round with its tree."""
    builder = best_first if isinstance(drafter, SuffixDrafter) else Chain()
    drafter.reset(len(text))
    begun, known = time.perf_counter(), len(text) - ROUNDS
    drafter.extend(list(text[:known]), None)  # type: ignore[arg-type]
    token, rounds = (time.perf_counter() - begun) / known, list[float]()
    for root in range(known, len(text)):
        so_far = text[: root + 1]
        begun = time.perf_counter()
        builder(drafter.begin(text[root], BUDGET), so_far, BUDGET)
        rounds.append(time.perf_counter() - begun)
        drafter.extend([text[root]], None)  # type: ignore[arg-type]
    return 1e6 * token, 1e6 * median(rounds)


@dataclass(frozen=True, kw_only=True)
class Options(CommandOptions):
    """Measure what a token and a round cost the drafters that look things up."""

    tokens: tuple[int, ...] = option((1024, 4096, 32768), "lengths of the texts", POSITIVE)


def main(args: Options) -> int:
    warm_up()
    rows = list[tuple[str, ...]]()
    for size in args.tokens:
        for what, text in texts(size).items():
            for name, drafter in drafters(max(text) + 1).items():
                token, whole = costs(drafter, text)
                rows.append((name, what, f"{size:,}", f"{token:.1f}", f"{whole:.0f}"))
    columns = ("drafter", "text", "tokens", "µs/token", "µs/round")
    console().print(FittingTable(columns, rows, ("drafter", "text")))
    return 0


if __name__ == "__main__":
    as_script(lambda: run(Options, main, "python -m tests.bench.lookups"))
