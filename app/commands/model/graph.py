"""``model graph``: find the draft graphs that would have saved most (Spiffy, Algorithm 2).

Every prompt is denoised plainly once and its sets of (i, j) are counted; then an exact search
chooses the best graph of every size. Counts are stored beside the graphs, prompt by prompt: an
interrupted run continues, and another ``--score`` or size needs no model. Search on other prompts
than those the graphs are judged on.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from app.command_line import REQUIRED, one_of, option
from app.commands.denoise import Denoising, DiffusionModel, load, settings_of
from app.commands.options import POSITIVE
from app.commands.prompts import read_prompts
from app.terminal import ProgressBar, console, say, table
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
from core.files import replacing
from core.json_input import parse_json
from core.methods.method import Range
from core.samples import read_lines

if TYPE_CHECKING:
    from core.diffusion.models import DiffusionLanguage
    from core.diffusion.request import DenoiseSettings

RANKED = 8  # tokens ranked per position while counting: larger j are so rare that they never win
MAX_LOOKAHEAD = 20


@dataclass(frozen=True, kw_only=True)
class Options(Denoising, DiffusionModel):
    """Find the draft graphs that would have saved a diffusion model most calls.

    Every prompt is denoised plainly once; then an exact search chooses the best graph of every
    size. Counts are stored beside the graphs: an interrupted run continues, and another --score or
    size needs no model. Search on other prompts than those the graphs are judged on.
    """

    out: Path = option(REQUIRED, "where the graphs are written", metavar="FOLDER")
    prompts: Path = option(
        REQUIRED,
        '.jsonl with a "prompt" field, or .txt with one prompt a line; 10 to 50 are enough',
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
    settings_of(args, args.length, 0.0)
    language = load(args)
    settings = replace(settings_of(args, language.block, language.ahead), width=RANKED)
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
    counts: SetCounts = Counter()
    steps = 0
    with ProgressBar("counting", len(prompts)) as progress:
        made = _counted(args.out, about, language, settings, prompts)
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
    folder: Path,
    about: dict[str, Any],
    language: DiffusionLanguage,
    settings: DenoiseSettings,
    prompts: Sequence[str],
) -> Iterator[tuple[SetCounts, int]]:
    """The counts and steps of each prompt, read where an earlier run wrote them."""
    from core.diffusion.denoise import denoise

    key = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:8]
    path = folder / f"collected-{about['pace']}-{key}.jsonl"
    older = _read(path)[: len(prompts)]
    yield from older
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(path) as unfinished, unfinished.open("w", encoding="utf-8") as file:
            for sets, steps in older:  # all but a last line cut short
                _write(file, sets, steps)
        with path.open("a", encoding="utf-8") as file:
            for prompt in prompts[len(older) :]:
                ids = language.encode_chat(prompt)
                rounds = tuple(denoise(language.target, ids, settings))
                sets, steps = count_sets(rounds, about["lookahead"]), len(rounds)
                _write(file, sets, steps)
                yield sets, steps
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}") from None


def _write(file: IO[str], sets: SetCounts, steps: int) -> None:
    file.write(json.dumps({"steps": steps, "sets": sets_to_json(sets)}) + "\n")
    file.flush()


def _read(path: Path) -> list[tuple[SetCounts, int]]:
    """Read the counts that an earlier run wrote; a last line cut short is made again."""
    found = []
    try:
        lines = read_lines(path)
    except UserError:
        return []
    for _, line in lines:
        try:
            value = parse_json(line, "a line")
            found.append((sets_from_json(value["sets"]), int(value["steps"])))
        except (ValueError, KeyError, TypeError, UserError):
            break
    return found


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
    console().print(table(("graph", "nodes", "levels", "formulas"), rows, left=left))
