"""Advice in words: every cell of its tables is written out here, from numbers that all differ."""

from __future__ import annotations

import math
from itertools import pairwise
from types import SimpleNamespace

import pandas as pd

from analysis.experiments.advise import choices
from app.report.advised import MOST_SIZES, advice_sheets, size_words

TREE = SimpleNamespace(drafts=SimpleNamespace(chain=False), few=False, rounds=(40, 40))


def line(context, batch, size, ratio, best, **more):
    """A row of ``advise``, no two numbers of which are the same."""
    at = 10 * batch + size
    row = {
        "context": context, "batch": batch, "size": size, "tau": 1 + size / 10,
        "seconds": at / 1e4, "plain": 100.0 + at, "tokens_per_second": 200.0 + at,
        "low": 300.0 + at, "high": 400.0 + at, "ratio": ratio, "ratio_low": ratio - 0.25,
        "ratio_high": ratio + 0.5, "best": best, "chosen": at / 100, "measured": size == 4,
        "doubt": "",
    }  # fmt: skip
    return row | more


def sheets(rows, shorter=TREE):
    found = pd.DataFrame(rows)
    return list(advice_sheets(found, choices(found), shorter))


def test_the_tables_have_each_number_where_its_head_says():
    rows = [
        line(100, 1, 2, 1.25, False), line(100, 1, 4, 1.5, True),
        line(100, 8, 2, 1.75, True, doubt="at least this"), line(100, 8, 4, 1.4, False),
        line(900, 1, 2, 0.75, False), line(900, 1, 4, 0.875, False),
        line(900, 8, 2, 1.125, True),
    ]  # fmt: skip
    every, best = sheets(rows)
    assert every.title == "× plain decoding · * the best · ~ between measured steps"
    assert every.heads == ("context", "batch", "B=2", "B=4")
    assert every.rows == [
        ["100", "1", "~1.25 ", "1.50*"],
        ["100", "8", "~1.75*", "1.40 "],
        ["900", "1", "~0.75 ", "0.88 "],
        ["900", "8", "~1.13*", "–"],
    ]
    assert best.heads == (
        "context", "batch", "B",
        "tokens/round", "step", "tokens/s", "95 %", "plain", "×", "95 %", "drawn best", "times",
    )  # fmt: skip
    assert best.rows == [
        ["100", "1", "4", "1.40", "1.4 ms", "214.0", "[314.0, 414.0]", "114.0", "1.50×",
         "[1.25, 2.00]", "14%", "measured"],
        ["100", "8", "2", "1.20", "8.2 ms", "282.0", "[382.0, 482.0]", "182.0", "1.75×",
         "[1.50, 2.25]", "82%", "between measured, rounds not exact"],
        ["900", "1", "plain (4)", "1.40", "1.4 ms", "214.0", "[314.0, 414.0]", "114.0", "0.88×",
         "[0.63, 1.38]", "–", "measured"],
        ["900", "8", "2", "1.20", "8.2 ms", "282.0", "[382.0, 482.0]", "182.0", "1.13×",
         "[0.88, 1.63]", "82%", "between measured"],
    ]  # fmt: skip


def test_of_too_few_rounds_the_best_is_not_shown():
    few = SimpleNamespace(drafts=SimpleNamespace(chain=True), few=True, rounds=(4, 3))
    (only,) = sheets([line(math.nan, 1, 2, 1.25, False)], few)
    assert only.title == "× plain decoding · of only 3 rounds · ~ between measured steps"
    assert only.heads == ("batch", "K=2") and only.rows == [["1", "~1.25 "]]


def test_of_many_sizes_the_first_the_last_and_the_best_are_shown():
    sizes = range(1, 3 * MOST_SIZES + 1)
    rows = [line(math.nan, 1, size, 2 - abs(size - 12) / 100, size == 12) for size in sizes]
    every, _ = sheets(rows)
    shown = [int(head.removeprefix("B=")) for head in every.heads[1:]]
    assert shown[0] == 1 and shown[-1] == sizes[-1] and 12 in shown
    assert len(shown) <= MOST_SIZES + 1 and shown == sorted(shown)
    assert {b - a for a, b in pairwise(shown)} <= {1, 2, 3, 4}


def test_a_tree_s_size_is_a_budget_and_a_chain_s_a_length():
    words = [size_words(SimpleNamespace(chain=chain)) for chain in (True, False)]
    assert words == ["draft length K", "draft budget B"]
