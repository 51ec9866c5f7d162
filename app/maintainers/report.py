"""Block efficiency τ of methods on prompts, simulated over the target's own texts.

python -m app.maintainers.report --prompts prompts-eval.jsonl --out runs/evaluation
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from app.command_line import REQUIRED, one_of, option, run
from app.commands.options import BUDGETS as ALLOWED
from app.commands.options import POSITIVE, Model, Set, method
from app.commands.train import print_rows
from core.decoding.engine import Engine
from core.errors import as_script
from core.methods.method import Range
from core.samples import read_samples
from core.train.evaluation import SAMPLINGS, evaluation_texts
from core.train.report import (
    BUDGETS,
    by_drafter,
    default_methods,
    load,
    score_by_source,
    text_layers,
)


@dataclass(frozen=True, kw_only=True)
class Options(Set, Model):
    """Say the block efficiency of methods on prompts, simulated over the target's own texts.

    The texts are made once, greedy and at T = 1, up to 128 new tokens, and stored in the folder;
    after that a drafter is judged in minutes. The intervals are 95 % bootstrap intervals over
    prompts.
    """

    prompts: Path = option(REQUIRED, "whose answers are the texts", metavar="FILE")
    out: Path = option(REQUIRED, "where the texts are stored", metavar="FOLDER")
    methods: tuple[str, ...] = option(
        tuple(default_methods()), "what is judged", read=method, metavar="METHOD"
    )
    sampling: tuple[str, ...] = option(
        tuple(SAMPLINGS), "how the texts are sampled", read=one_of(tuple(SAMPLINGS))
    )
    budget: tuple[int, ...] = option(BUDGETS, "drafted nodes a round", ALLOWED)
    layers: tuple[int, ...] = option((), "feature layers of new texts", Range(0))
    every: int = option(1, "judge on every n-th text only", POSITIVE)
    json: Path | None = option(None, "also write the rows here", metavar="FILE")


def main(args: Options) -> int:
    prompts = read_samples(args.prompts)
    engine = Engine(args.model, args.device, args.drafter)
    decoders = load(engine, args.methods, args.values)
    language = engine.prepare()
    layers = args.layers or text_layers(args.out, language, decoders)
    texts = evaluation_texts(language, layers, prompts, args.out, args.sampling)[:: args.every]
    found = []
    for drafter, own in by_drafter(decoders, args.budget):
        found += print_rows(score_by_source(language, drafter, texts, own))
    if args.json:
        lines = [json.dumps(row | {"options": args.values}) for row in found]
        args.json.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    return 0


if __name__ == "__main__":
    as_script(lambda: run(Options, main, "python -m app.maintainers.report"))
