"""``denoise``: write with a masked-diffusion model, plainly or with Spiffy's draft graphs.

One prompt: its text, then model calls (NFE) beside those plain denoising makes, acceptance by
level, speedup by block and stage times. With ``--table`` all prompts of a file, at several paces
and graph sizes: the calls foretold by one recorded plain run, and real runs beside them, each
compared with plain denoising token for token.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.commands import common
from app.commands.run import Clock, Log, check_trace, numbered, print_json
from app.terminal import Progress, console, one_line, say, table
from core.diffusion.graph import Pace, find_graph
from core.diffusion.steps import Saved, saved, written
from core.errors import UserError
from core.rounds.blocks import MASKED
from core.rounds.round import Round
from core.traces.schema import summary
from core.verification.walk import until_stop

if TYPE_CHECKING:
    from analysis.nfe import Cell
    from core.diffusion.denoise import Denoising
    from core.diffusion.graph import DraftGraph
    from core.diffusion.models import DiffusionLanguage

BUDGETS = (3, 5, 8, 10)
PACES = ("k1", "k2", "t0.9")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    common.add_prompt_options(parser, required=True)
    parser.add_argument(
        "--spiffy", metavar="GRAPH|D", help="draft: a calibrated graph's file, or of D nodes"
    )
    add_denoising_options(parser)
    add_diffusion_model(parser)
    group = parser.add_argument_group("output")
    group.add_argument(
        "--trace", type=Path, metavar="FILE",
        help="log every call (.jsonl or .jsonl.gz); several prompts: FILE-1, FILE-2, …",
    )  # fmt: skip
    group.add_argument("--json", action="store_true", help="JSON on stdout and nothing else")
    group = parser.add_argument_group("table of speedups over all prompts")
    group.add_argument("--table", action="store_true", help="compare graphs and paces")
    group.add_argument(
        "--graphs", nargs="+", metavar="GRAPH|D", default=[str(d) for d in BUDGETS],
        help=f"default {' '.join(map(str, BUDGETS))}",
    )  # fmt: skip
    group.add_argument(
        "--paces", nargs="+", type=pace, metavar="PACE", default=[pace(name) for name in PACES],
        help=f"k2: two tokens a step, t0.9: a threshold (default {' '.join(PACES)})",
    )  # fmt: skip
    group.add_argument(
        "--real", type=common.whole, metavar="N",
        help="prompts really run with every graph (default all; the others are foretold)",
    )  # fmt: skip


def add_denoising_options(parser: argparse.ArgumentParser) -> None:
    """Pace, block, length, temperature: what a text is denoised with."""
    group = parser.add_argument_group("denoising")
    how = group.add_mutually_exclusive_group()
    how.add_argument(
        "--tokens-per-step", type=common.whole, default=1, metavar="K", help="default 1"
    )
    how.add_argument(
        "--threshold", type=common.number, metavar="P",
        help="instead: all positions at least this sure, and always one",
    )  # fmt: skip
    group.add_argument("--block", type=common.whole, metavar="L", help="default: the model's own")
    group.add_argument(
        "--length", type=common.whole, default=128, metavar="W", help="tokens to write, default 128"
    )
    group.add_argument(
        "--temperature", type=common.number, default=0.0, metavar="T", help="0 is greedy (default)"
    )
    group.add_argument("--seed", type=common.whole, default=0, metavar="S", help="default 0")
    group.add_argument(
        "--go-on", action="store_true", help="also the blocks behind the first end-of-text"
    )


def add_diffusion_model(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("model")
    group.add_argument(
        "--model", default=common.EMBEDDED, metavar="NAME|PATH",
        help=f"{common.EMBEDDED} (its denoiser, the default), a folder, or a Hugging Face id",
    )  # fmt: skip
    group.add_argument("--device", default="auto", help="auto (default), cpu, cuda, cuda:1, …")
    group.add_argument(
        "--shared", action="store_true",
        help="a bidirectional model's drafts share one context: the paper's mask, not exact",
    )  # fmt: skip


def pace(text: str) -> Pace:
    """argparse type: k2 or t0.9."""
    try:
        found = Pace(int(text[1:])) if text[:1] == "k" else Pace(threshold=float(text[1:]))
        if text[:1] not in "kt" or len(text) < 2:
            raise ValueError
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no pace like k2 or t0.9") from None
    found.check()
    return found


def asked_pace(args: argparse.Namespace) -> Pace:
    return (
        Pace(threshold=args.threshold) if args.threshold is not None else Pace(args.tokens_per_step)
    )


def load(args: argparse.Namespace) -> DiffusionLanguage:
    """The diffusion model, progress shown."""
    with Progress("preparing " + args.model) as progress:
        progress.at(None, "loading libraries")
        common.quiet_libraries()
        from core.diffusion import models

        return models.load_diffusion(
            args.model, args.device, lambda step: progress.at(step.fraction, step.stage),
            shared=args.shared,
        )  # fmt: skip


def asked_settings(args: argparse.Namespace, block: int) -> Denoising:
    """Raises UserError for settings out of range."""
    from core.diffusion.denoise import MAX_LENGTH, Denoising

    if not 1 <= args.length <= MAX_LENGTH:  # first: until the model is here it is the block too
        raise UserError(f"the length must be 1 to {MAX_LENGTH} tokens, not {args.length}")
    settings = Denoising(
        length=args.length,
        block=block if args.block is None else args.block,
        pace=asked_pace(args),
        temperature=args.temperature,
        seed=args.seed,
        go_on=args.go_on,
    )
    settings.check()
    return settings


def main(args: argparse.Namespace) -> int:
    prompts = common.chosen_prompts(args)
    asked_pace(args).check()
    if args.table and (args.trace is not None or args.spiffy):
        raise UserError("--table compares what --graphs names, and writes no trace")
    if args.real is not None and args.real < 0:
        raise UserError(f"--real must be at least 0 prompts, not {args.real}")
    check_trace(args.trace, len(prompts))
    asked_settings(args, args.length)  # a typo must not cost the time a model takes to load
    graph = find_graph(args.spiffy, args.model, asked_pace(args)) if args.spiffy else None
    language = load(args)
    settings = asked_settings(args, language.block)
    if args.table:
        return _table(args, language, settings, prompts)
    failed = 0
    for number, prompt in enumerate(prompts, 1):
        trace = args.trace if len(prompts) == 1 else numbered(args.trace, number)
        try:
            done = _denoise(language, settings, graph, prompt, trace)
        except UserError as error:
            if len(prompts) == 1:
                raise
            failed += 1
            say(f"prompt {number}: {error}")
            continue
        if args.json:
            print_json(done.as_json())
        elif len(prompts) == 1:
            _print(done)
        else:
            print(done.line(number), flush=True)
        if trace is not None:
            say(f"trace written to {trace}")
    if failed:
        raise UserError(f"{failed} of {len(prompts)} prompts could not be denoised")
    return 0


# ── one prompt ───────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class Done:
    """One denoised prompt."""

    prompt: str
    settings: Denoising
    graph: DraftGraph | None
    rounds: tuple[Round, ...]
    tokens: tuple[int, ...]  # up to the first end-of-text
    text: str
    saved: Saved
    seconds: float

    def as_json(self) -> dict[str, Any]:
        from core.diffusion.run import settings_to_json

        return {
            "prompt": self.prompt,
            **settings_to_json(self.settings),
            "graph": [[list(c) for c in f] for f in self.graph.formulas] if self.graph else None,
            "token_ids": list(self.tokens),
            "text": self.text,
            **saved_to_json(self.saved),
            "seconds": self.seconds,
            "stage_seconds": summary(self.rounds)["seconds"],
        }

    def line(self, number: int) -> str:
        numbers = f"{self.saved.calls:>5} {self.saved.plain:>6} {self.saved.speedup:>5.2f}×"
        return f"{number:>8} {numbers} {self.seconds:>7.2f} s  {one_line(self.text, 60)}"


def saved_to_json(found: Saved) -> dict[str, Any]:
    return {
        "nfe": found.calls,
        "plain_nfe": found.plain,
        "nfe_speedup": found.speedup,
        "levels": [{"drafted": x.drafted, "accepted": x.accepted} for x in found.levels],
        "blocks": [{"nfe": calls, "plain_nfe": plain} for calls, plain in found.blocks],
    }


def _denoise(
    language: DiffusionLanguage,
    settings: Denoising,
    graph: DraftGraph | None,
    prompt: str,
    trace: Path | None,
) -> Done:
    from core.diffusion.run import DenoiseRequest, start

    run = start(language, DenoiseRequest(prompt, settings, graph))
    clock, rounds, stops = Clock(run.rounds, None), list[Round](), language.target.stop_ids
    with Log(trace, run) as log, Progress("denoising", settings.length) as progress:
        for record in clock:
            rounds.append(record)
            log.write(record)
            tokens = [t for t in written(rounds) if t != MASKED]
            progress.at(len(tokens))
        tokens = until_stop(written(rounds), stops)
        log.finish(language.text(tokens), clock.seconds)
    found = saved(rounds, stops)
    text = language.text(tokens)
    return Done(
        prompt, settings, graph, tuple(rounds), tuple(tokens), text, found, clock.seconds
    )  # fmt: skip


def _print(done: Done) -> None:
    from app.view.text import flowing

    out = console()
    print(f"{flowing(done.text)}\n")
    graph = f"{len(done.graph)} drafts ({done.graph.name})" if done.graph else "none (plain)"
    block = f"{done.settings.block}, {done.settings.pace.name}"
    facts = [
        ("drafts", graph),
        ("block, pace", block),
        ("tokens", str(len(done.tokens))),
        ("model calls (NFE)", str(done.saved.calls)),
        ("plain calls", str(done.saved.plain)),
        ("NFE speedup", f"{done.saved.speedup:.2f}×"),
        ("seconds", f"{done.seconds:.2f}"),
    ]
    out.print(table(("", ""), facts, left=("",)))
    _print_saved(done.saved)
    stages, calls = summary(done.rounds)["seconds"], len(done.rounds)
    total = sum(stages.values())
    rows = [
        (name, f"{s:.3f}", f"{s / calls * 1e3:.2f}", f"{s / total:.1%}" if total else "–")
        for name, s in stages.items()
        if name != "draft"
    ]
    out.print()
    out.print(table(("stage", "s", "ms/call", "share"), rows, left=("stage",)))


def _print_saved(found: Saved) -> None:
    """Acceptance by level and speedup by block."""
    out = console()
    if found.levels:
        rows = [
            (str(n), str(x.drafted), str(x.accepted), f"{x.rate:.0%}")
            for n, x in enumerate(found.levels, 1)
        ]
        out.print()
        out.print(table(("level", "calls that drafted it", "accepted", ""), rows))
    rows = [
        (str(n), str(calls), str(plain), f"{plain / calls:.2f}×")
        for n, (calls, plain) in enumerate(found.blocks, 1)
    ]
    out.print()
    out.print(table(("block", "calls", "plain", "speedup"), rows))


# ── the table ────────────────────────────────────────────────────────────────────────────────────


def _table(
    args: argparse.Namespace, language: DiffusionLanguage, settings: Denoising, prompts: list[str]
) -> int:
    """Print the table; exit code 1 when a real run of an exact target wrote another text."""
    from analysis.nfe import measure

    ids = [language.encode_chat(prompt) for prompt in prompts]
    jobs = []
    for at in args.paces:
        own = replace(settings, pace=at)
        own.check()
        jobs.append((own, [find_graph(name, args.model, at) for name in args.graphs]))
    cells = list[Any]()
    with Progress("measuring", len(prompts) * len(jobs)) as progress:
        for number, (own, graphs) in enumerate(jobs):
            first = number * len(prompts)

            def told(done: int, what: str, first: int = first, name: str = own.pace.name) -> None:
                progress.at(first + done, f"{name}, prompt {done + 1} of {len(prompts)}, {what}")

            cells += measure(language.target, ids, own, graphs, args.real, told)
    if args.json:
        print_json({"prompts": len(prompts), "cells": [_cell_to_json(cell) for cell in cells]})
    else:
        _print_cells(cells, language.target.exact)
    parted = any(not run.identical for cell in cells for run in cell.real)
    return 1 if parted and language.target.exact else 0


def _cell_to_json(cell: Cell) -> dict[str, Any]:
    spiffy, plain = cell.seconds
    return {
        "pace": cell.pace.name,
        "graph": cell.graph.name,
        "drafts": len(cell.graph),
        **saved_to_json(cell.saved),
        "really_run": len(cell.real),
        "identical": sum(bool(run.identical) for run in cell.real),
        "parted_tokens": sum(parting.tokens for parting in cell.partings),
        "as_foretold": sum(bool(run.foretold) for run in cell.real),
        "seconds": spiffy,
        "plain_seconds": plain,
        "wall_speedup": cell.speedup,
    }


def _print_cells(cells: Sequence[Cell], exact: bool) -> None:
    out = console()
    columns = ("pace", "graph", "NFE", "plain", "NFE speedup", "s", "plain s", "wall speedup",
               "same text", "accepted by level")  # fmt: skip
    left = ("pace", "graph", "accepted by level")
    out.print(table(columns, [_row(cell) for cell in cells], left=left))
    if not exact:
        out.print("this target is not exact: a text may differ from plain denoising's")
    for cell in cells:
        if cell.partings:
            first = 1 + min(parting.block for parting in cell.partings)
            tokens = sum(parting.tokens for parting in cell.partings)
            texts = f"{len(cell.partings)} of {len(cell.real)} texts"
            out.print(
                f"{cell.pace.name} {cell.graph.name}: {texts} leave plain denoising's, in {tokens} "
                f"tokens, the earliest in block {first}"
            )
        blocks = "  ".join(f"{plain / calls:.2f}×" for calls, plain in cell.saved.blocks)
        out.print(f"{cell.pace.name} {cell.graph.name}: speedup by block {blocks}")


def _row(cell: Cell) -> tuple[str, ...]:
    found, (spiffy, plain), real = cell.saved, cell.seconds, len(cell.real)
    same = sum(bool(run.identical) for run in cell.real)
    return (
        cell.pace.name,
        cell.graph.name,
        str(found.calls),
        str(found.plain),
        f"{found.speedup:.2f}×",
        f"{spiffy:.1f}" if real else "–",
        f"{plain:.1f}" if real else "–",
        f"{cell.speedup:.2f}×" if real else "–",
        f"{same} of {real}" if real else "–",
        " ".join(f"{level.rate:.0%}" for level in found.levels),
    )
