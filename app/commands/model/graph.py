"""``model graph``: find the draft graphs that would have saved most (Spiffy, Algorithm 2)."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.command_line import REQUIRED, one_of, option
from app.commands.diffusion import Denoising, DiffusionModel, load, request_of
from app.commands.options import POSITIVE
from app.commands.prompts import read_prompts
from app.terminal import FittingTable, ProgressBar, console, say
from core.diffusion.draft_graph import MAX_FORMULAS, DraftGraph, label
from core.diffusion.draft_graph_search import (
    BUDGETS,
    LOOKAHEAD,
    SCORES,
    SETS_PER_STEP,
    SetCounts,
    count_sets,
    find_graphs,
    sets_from_json,
    sets_to_json,
)
from core.diffusion.graph_files import write_graph
from core.errors import UserError
from core.journal import Journal, alone, key_of
from core.ranges import Range

if TYPE_CHECKING:
    from core.diffusion.models import DiffusionLanguage
    from core.diffusion.request import DenoiseSettings

RANKED = 8  # tokens ranked per position while counting: larger j are so rare that they never win
MAX_LOOKAHEAD = 20


@dataclass(frozen=True, kw_only=True)
class Options(Denoising, DiffusionModel):
    """Find the draft graphs that would have saved a diffusion model the most calls.

    Every prompt is denoised once without drafts. Then an exact search chooses the best graph of
    every size. Counts are stored beside the graphs, so an interrupted run continues, and another
    --score or size needs no model. Use other prompts than those that judge the graphs.
    """

    out: Path = option(REQUIRED, "where the graphs are written", metavar="FOLDER")
    prompts: Path = option(
        REQUIRED,
        "prompts to denoise, as every command reads them (docs/commands.md); 10 to 50 are enough",
        metavar="FILE",
    )
    count: int | None = option(None, "only the first N prompts", POSITIVE)
    budget: tuple[int, ...] = option(BUDGETS, "drafts per call", Range(1, MAX_FORMULAS))
    score: str = option(
        "degree-1",
        f"{', '.join(SCORES)}: a node counts with its parents' counts (degree-1), alone, or with "
        "the totals of all above it",
        read=one_of(SCORES),
        metavar="NAME",
    )
    lookahead: int = option(
        LOOKAHEAD, "steps ahead, the deepest level", Range(1, MAX_LOOKAHEAD), metavar="K"
    )
    keep: int = option(SETS_PER_STEP, "most frequent sets kept per step ahead", POSITIVE)


def main(args: Options) -> int:
    prompts = read_prompts(args.prompts)[: args.count]
    request = request_of(args)
    request.check(args.model)
    language = load(args)
    settings = replace(request.settings(language.block, language.ahead), width=RANKED)
    about = {
        "model": language.name,
        "block": settings.block,
        "length": settings.length,
        "pace": settings.pace.name,
        "temperature": settings.temperature,
        "seed": settings.seed,
        "ahead": settings.ahead,
        "lookahead": args.lookahead,
        "prompts": len(prompts),
        "prompts_sha256": hashlib.sha256(json.dumps(prompts).encode()).hexdigest()[:16],
    }
    key = key_of(about)[:8]
    counts: SetCounts = Counter()
    steps = 0
    with alone(args.out, "search", resumes=True):
        journal = Journal(args.out / f"collected-{about['pace']}-{key}.jsonl")
        with ProgressBar("counting", len(prompts)) as progress:
            made = _counted(journal, args.lookahead, language, settings, prompts)
            for done, (sets, number) in enumerate(made, 1):
                counts += sets
                steps += number
                progress.at(done, f"prompt {done} of {len(prompts)}")
        budgets = sorted(set(args.budget))
        graphs = list(find_graphs(counts, settings.pace, budgets, args.score, args.keep))
        for graph in graphs:
            graph = replace(graph, provenance={**about, "steps": steps, **graph.provenance})
            write_graph(args.out / f"{graph.name}.json", graph)
    _print(graphs)
    say(f"{len(graphs)} graphs written to {args.out}")
    return 0


def _counted(
    journal: Journal,
    lookahead: int,
    language: DiffusionLanguage,
    settings: DenoiseSettings,
    prompts: Sequence[str],
) -> Iterator[tuple[SetCounts, int]]:
    """The counts and steps of each prompt; those of earlier runs are kept in the journal."""
    from core.diffusion.denoise import denoise

    def count(prompt: str) -> dict[str, Any]:
        rounds = tuple(denoise(language.target, language.encode_chat(prompt), settings))
        return {"steps": len(rounds), "sets": sets_to_json(count_sets(rounds, lookahead))}

    for number, prompt in enumerate(prompts):
        found = journal.made(f"prompt {number}", lambda prompt=prompt: count(prompt))
        try:
            yield sets_from_json(found["sets"]), int(found["steps"])
        except (KeyError, TypeError, ValueError):
            raise UserError(
                f"{journal.path} does not hold the counts of prompt {number + 1}: remove it"
            ) from None


def _print(graphs: Sequence[DraftGraph]) -> None:
    rows = [
        (
            graph.name,
            str(len(graph)),
            str(int(graph.outline().depths.max())),
            ", ".join(label(formula) for formula in graph.formulas),
        )
        for graph in graphs
    ]
    left = ("graph", "formulas")
    console().print(FittingTable(("graph", "nodes", "levels", "formulas"), rows, left=left))
