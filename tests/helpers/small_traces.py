"""Traces of fakes: of some methods, of two checkpoints, and such as hold next to nothing."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from analysis.engines.texts import read_texts
from core.rounds.blocks import Block
from core.rounds.draft import Draft
from core.rounds.round import Round, Times, Verdict
from core.traces.schema import Trace
from core.traces.writer import TraceWriter
from tests.helpers import fakes
from tests.helpers.fakes import make_header, make_round, make_run

METHODS = ("ddtree", "treeflash", "dart")


def fake_trace(method="ddtree", seed=0, rounds=12, budget=24, prompt="why?", **more) -> Trace:
    found = tuple(islice(fakes.rounds_of(budget, False, seed, method), rounds))
    header = fakes.make_header(prompt, method, budget=budget, **more)
    return Trace(header, found, {"wall_seconds": 2.0})


def plain_round(index: int, token: int) -> Round:
    verdict = Verdict((0,), np.array([token + 1]))
    return Round(
        index, 3 + index, Draft.root_only(token), verdict, (token + 1,), times=Times(verify=0.1)
    )


def denoised_round() -> Round:
    record = fakes.make_round()
    return replace(record, block=Block(0, 0, np.zeros(4, np.int64), ()))


NOTHING = {
    "no trace": {},
    "no round": {"a": Trace(fakes.make_header(), (), None)},
    "plain decoding": {
        "a": Trace(fakes.make_header(method="ar"), tuple(plain_round(i, i) for i in range(4)), {})
    },
    "a text that ended at once": {
        "a": Trace(
            fakes.make_header(),
            (Round(0, 3, Draft.root_only(5), Verdict((0,), np.array([-1])), ()),),
            {},
        )
    },
    "denoising": {"a": Trace(fakes.make_header(method="spiffy"), (denoised_round(),), {})},
}


def two_drafters(seeds=(1, 2, 3, 4, 6)) -> dict[str, Trace]:
    """Two drafters on the same texts, which the first drafts better."""
    found = {}
    for text, seed in enumerate(seeds):
        tokens = np.random.default_rng(seed).integers(0, 32, 400).tolist()
        for name, budget in (("good", 40), ("bad", 3)):
            rounds, position = [], 10
            while position < 150:
                ahead = tokens[position + 1 : position + 14]
                made = make_round(
                    seed * 1000 + position, budget, len(rounds), position, tokens[position],
                    ahead=ahead,
                )  # fmt: skip
                rounds.append(made)
                position += made.accepted + 1
            header = replace(
                make_header(f"prompt {text}"), drafter={"kind": "dflash", "sha256": name}
            )
            found[f"{name} {text}"] = Trace(header, tuple(rounds), {})
    return found


def made(count: int = 4, budget: int = 16, hostile: bool = False, **more: Any) -> Trace:
    rounds = tuple(make_run(count, budget, hostile))
    header = make_header("</script><b>" if hostile else "why?", **more)
    return Trace(header, rounds, {})


def saved(path, trace: Trace):
    writer = TraceWriter(path, trace.header)
    for record in trace.rounds:
        writer.write(record)
    writer.finish()
    return path


def read_one(path):
    (found,) = read_texts(path, 1)
    return found
