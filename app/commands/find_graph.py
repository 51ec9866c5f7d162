"""``calibrate-graph``: find the draft graphs that would have saved most (Spiffy, Algorithm 2).

Every prompt is denoised plainly once and its sets of (i, j) are counted; then an exact search
chooses the best graph of every size. Counts are kept beside the graphs, prompt by prompt: an
interrupted run goes on where it stopped, and another ``--score`` or size needs no model. Calibrate
on other prompts than those the graphs are judged on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.commands import common
from app.commands.denoise import (
    BUDGETS,
    add_denoising_options,
    add_diffusion_model,
    asked_settings,
    load,
)
from app.terminal import Progress, console, say, table
from core.diffusion.calibrate import (
    KEPT_SETS,
    LOOKAHEAD,
    SCORES,
    Sets,
    calibrated,
    count_sets,
    sets_from_json,
    sets_to_json,
)
from core.diffusion.graph import MAX_FORMULAS, DraftGraph, label, write_graph
from core.errors import UserError

RANKED = 8  # tokens ranked per position while counting: larger j are so rare that they never win
MAX_LOOKAHEAD = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", type=Path, metavar="FOLDER", help="where the graphs are written")
    parser.add_argument(
        "--prompts", type=Path, required=True, metavar="FILE",
        help='.jsonl with a "prompt" field, or .txt with one prompt a line; 10 to 50 are enough',
    )  # fmt: skip
    parser.add_argument("--count", type=common.whole, metavar="N", help="only the first N prompts")
    parser.add_argument(
        "--budget", type=common.whole, nargs="+", default=list(BUDGETS), metavar="D",
        help=f"drafts per call (default {' '.join(map(str, BUDGETS))})",
    )  # fmt: skip
    parser.add_argument(
        "--score", choices=SCORES, default="degree-1",
        help="a node counts with its parents' counts (degree-1, the default), alone, or with the "
        "totals of all above it",
    )  # fmt: skip
    parser.add_argument(
        "--lookahead", type=common.whole, default=LOOKAHEAD, metavar="K",
        help=f"steps looked ahead, the deepest level (default {LOOKAHEAD})",
    )  # fmt: skip
    parser.add_argument(
        "--keep", type=common.whole, default=KEPT_SETS, metavar="N",
        help=f"most frequent sets kept per step ahead, to choose from (default {KEPT_SETS})",
    )  # fmt: skip
    add_denoising_options(parser)
    add_diffusion_model(parser)


def main(args: argparse.Namespace) -> int:
    _check(args)
    prompts = common.read_prompts(args.prompts)[: args.count]
    asked_settings(args, args.length)
    language = load(args)
    settings = replace(asked_settings(args, language.block), width=RANKED)
    about = {
        "model": language.name,
        "block": settings.block,
        "length": settings.length,
        "pace": settings.pace.name,
        "temperature": settings.temperature,
        "seed": settings.seed,
        "lookahead": args.lookahead,
        "prompts": len(prompts),
        "prompts_sha256": hashlib.sha256(json.dumps(prompts).encode()).hexdigest()[:16],
    }
    counts: Sets = Counter()
    steps = 0
    with Progress("counting", len(prompts)) as progress:
        for done, (sets, number) in enumerate(
            _collected(args.out, about, language, settings, prompts)
        ):
            counts += sets
            steps += number
            progress.at(done + 1, f"prompt {done + 1} of {len(prompts)}")
    graphs = list(
        calibrated(counts, settings.pace, sorted(set(args.budget)), args.score, args.keep)
    )
    for graph in graphs:
        made = replace(graph, provenance={**about, "steps": steps, **graph.provenance})
        write_graph(args.out / f"{graph.name}.json", made)
    _print(graphs)
    say(f"{len(graphs)} graphs written to {args.out}")
    return 0


def _check(args: argparse.Namespace) -> None:
    if args.count is not None and args.count < 1:
        raise UserError(f"--count must be at least 1, not {args.count}")
    if not 1 <= args.lookahead <= MAX_LOOKAHEAD:
        raise UserError(f"the look-ahead must be 1 to {MAX_LOOKAHEAD}, not {args.lookahead}")
    if args.keep < 1:
        raise UserError(f"--keep must be at least 1, not {args.keep}")
    for budget in args.budget:
        if not 1 <= budget <= MAX_FORMULAS:
            raise UserError(f"a draft graph has 1 to {MAX_FORMULAS} nodes, not {budget}")


def _collected(
    folder: Path, about: dict[str, Any], language: Any, settings: Any, prompts: list[str]
) -> Iterator[tuple[Sets, int]]:
    """Each prompt's counts and steps: read where an earlier run wrote them, else made and kept."""
    from core.diffusion.denoise import denoise
    from core.files import replacing

    key = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:8]
    path = folder / f"collected-{about['pace']}-{key}.jsonl"
    kept = _read(path)[: len(prompts)]
    yield from kept
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(path) as whole, whole.open("w", encoding="utf-8") as file:
            for sets, steps in kept:  # all but a last line cut short
                _write(file, sets, steps)
        with path.open("a", encoding="utf-8") as file:
            for prompt in prompts[len(kept) :]:
                ids = language.encode_chat(prompt)
                rounds = tuple(denoise(language.target, ids, settings))
                sets, steps = count_sets(rounds, about["lookahead"]), len(rounds)
                _write(file, sets, steps)
                yield sets, steps
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}") from None


def _write(file: Any, sets: Sets, steps: int) -> None:
    file.write(json.dumps({"steps": steps, "sets": sets_to_json(sets)}) + "\n")
    file.flush()


def _read(path: Path) -> list[tuple[Sets, int]]:
    """What an earlier run kept; a last line cut short is made again."""
    found = []
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
    for line in lines:
        try:
            value = json.loads(line)
            found.append((sets_from_json(value["sets"]), int(value["steps"])))
        except (ValueError, KeyError, TypeError, RecursionError, UserError):
            break
    return found


def _print(graphs: list[DraftGraph]) -> None:
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
