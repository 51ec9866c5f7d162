"""τ of a drafter on prompts, simulated over the target's own texts (see ``core.train.simulate``).

    python -m core.train.report --prompts prompts-eval.jsonl --work runs/evaluation

The texts are made once, greedy and at T = 1, 128 new tokens, and kept in ``--work``; after that a
drafter is judged in a minute. The intervals are 95 % bootstrap intervals over prompts.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from core import embedded
from core.drafters.dflash import DFlashConfig, DFlashModel, load_model
from core.errors import UserError
from core.models import Language, load_language, shipped_drafter
from core.train.collect import Collector, CollectSettings, batches, collect
from core.train.fit import TargetParts
from core.train.shards import Document, read_shard, shard_paths
from core.train.simulate import CHAIN, Score, score
from core.train.texts import Sample, read_samples

NEW_TOKENS = 128
BUDGETS = (CHAIN, 16, 64)


@dataclass(frozen=True, eq=False)
class Text:
    """One text the target wrote on a held-out prompt."""

    sampling: str  # "greedy" or "T=1"
    source: str
    document: Document


def evaluation_texts(
    language: Language, config: DFlashConfig, prompts: Path, folder: Path
) -> list[Text]:
    """The target's own texts on the prompts, greedy and at T = 1; made once, then read."""
    texts = []
    for name, temperature in (("greedy", 0.0), ("T=1", 1.0)):
        settings = CollectSettings(
            config.target_layer_ids,
            (temperature,),
            max_new_tokens=NEW_TOKENS + config.block_size,  # the last round's tree needs a text too
            top_k=0,
            max_prompt_tokens=1 << 20,
        )
        collector = Collector(language.model, language.tokenizer, settings)
        samples = [Sample(s.user, None, s.source) for s in read_samples(prompts)]
        order = batches(settings, samples)
        bar = progress_bar(len(order), f"evaluation texts ({name})", "batch")
        for _ in collect(collector, samples, folder / name, "text"):
            bar.update()
        bar.close()
        documents = [d for path in shard_paths(folder / name) for d in read_shard(path)]
        sources = [sample.source for batch in order for sample in batch]
        texts += [Text(name, s, d) for s, d in zip(sources, documents, strict=True)]
    return texts


def score_by_source(
    model: DFlashModel, parts: TargetParts, texts: Sequence[Text]
) -> list[dict[str, Any]]:
    """A row for each sampling and source, and one over all sources."""
    rows = []
    for sampling in dict.fromkeys(t.sampling for t in texts):
        some = [t for t in texts if t.sampling == sampling]
        scores = {
            source: score(model, parts, [t.document for t in some if t.source == source], BUDGETS)
            for source in dict.fromkeys(t.source for t in some)
        }
        rows += [row(sampling, source, result) for source, result in scores.items()]
        rows.append(row(sampling, "all", reduce(add, scores.values())))
    return rows


def row(sampling: str, source: str, result: Score) -> dict[str, Any]:
    """One line of the report."""
    numbers: dict[str, Any] = {"sampling": sampling, "source": source, "loss": result.loss}
    for budget, runs in result.rounds.items():
        name = "dflash" if budget == CHAIN else f"ddtree {budget}"
        numbers[name] = result.tau[budget]
        numbers[f"{name} interval"] = bootstrap(runs)
    return numbers


def bootstrap(runs: Sequence[Sequence[int]], draws: int = 2000) -> tuple[float, float]:
    """95 % interval of τ = Σ lengths ÷ Σ rounds when whole prompts are drawn anew."""
    sums = np.array([sum(run) for run in runs], float)
    counts = np.array([len(run) for run in runs], float)
    picks = np.random.default_rng(0).integers(0, len(runs), (draws, len(runs)))
    taus = sums[picks].sum(1) / np.maximum(counts[picks].sum(1), 1)
    low, high = np.quantile(taus, [0.025, 0.975])
    return float(low), float(high)


def print_rows(rows: Sequence[dict[str, Any]]) -> None:
    for numbers in rows:
        cells = [f"{numbers['sampling']:7} {numbers['source']:10} KL {numbers['loss']:.3f}"]
        for name in (n for n in numbers if f"{n} interval" in numbers):
            low, high = numbers[f"{name} interval"]
            cells.append(f"{name} {numbers[name]:.2f} [{low:.2f}, {high:.2f}]")
        print("  ".join(cells))


def progress_bar(total: int, text: str, unit: str) -> tqdm:
    """A bar on a terminal, nothing elsewhere."""
    return tqdm(total=total, desc=text, unit=unit, file=sys.stderr, disable=not sys.stderr.isatty())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="where the texts are kept")
    parser.add_argument("--model", default=embedded.NAME)
    parser.add_argument("--drafter", type=Path)
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    language = load_language(args.model, args.device, pack=False)
    folder = args.drafter or shipped_drafter(language.name)
    if folder is None:
        raise UserError("no drafter ships for this target: name one with --drafter")
    model = load_model(folder, torch.float32, language.device)
    texts = evaluation_texts(language, model.config, args.prompts, args.work)
    print_rows(score_by_source(model, TargetParts(language.model), texts))


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
