"""A sweep: its settings, its plan, and running what remains of it. All commands of grids use it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from app.command_line import REQUIRED, option
from app.commands import common
from app.commands.options import (
    BUDGETS,
    POSITIVE,
    Conversations,
    MethodsOptions,
    Model,
    Placement,
    Samplings,
)
from app.commands.prompts import check_turns, conversations_of
from app.interrupts import delayed_interrupt
from app.terminal import ProgressBar, one_line, say
from core.errors import UserError, reading
from core.files import sha256
from core.methods.registry import runnable, split

if TYPE_CHECKING:
    from analysis.experiments.prompts import Prompt
    from analysis.experiments.sweep import Job, Plan
    from analysis.experiments.sweep_folder import Folder
    from analysis.experiments.variants import Variant
    from app.ray_workers import Note
    from app.sweep_runner import Outcome, Outcomes

TABLE_EVERY = 60.0  # seconds that the table may lag behind the runs


@dataclass(frozen=True, kw_only=True)
class Grid(MethodsOptions, Conversations, Model):
    """The settings of a sweep, all but the sampling."""

    out: Path = option(REQUIRED, "the folder that is written", metavar="FOLDER")
    budget: tuple[int, ...] = option((8, 16, 64), "drafted nodes; a chain has its own", BUDGETS)
    max_new_tokens: int = option(128, "tokens to write at most", POSITIVE)


@dataclass(frozen=True, kw_only=True)
class Sweep(Grid, Samplings, Placement):
    """All settings of a sweep."""

    no_probe: bool = option(False, "write traces without p, TVD and coverage")


def carry_out(args: Sweep, conclude: Callable[[Folder], int]) -> int:
    """Run all that remains, then ``conclude``, whose exit code it returns."""
    from analysis.experiments.sweep_folder import open_folder

    _check_place(args)
    plan = plan_of(args)
    with open_folder(args.out, plan) as folder:
        with ProgressBar("reading what is there") as progress:
            folder.read(lambda done: progress.at(done) if done else None)
        try:
            _run(folder, args)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"{how_far(folder)}; the same command continues") from None
        finally:
            folder.write_table()
        return conclude(folder)


def _check_place(args: Sweep) -> None:
    """Raises UserError for a place the sweep cannot run in."""
    common.check_drafter(args.drafter)
    common.check_weights(args.methods)
    args.cluster(args.device)


# ── the plan ─────────────────────────────────────────────────────────────────────────────────────


def plan_of(args: Sweep, own_budgets: bool = False) -> Plan:
    """Make the plan of a sweep; with ``own_budgets`` every method also runs at its own budget.

    Raises UserError for a setting out of range, before anything is loaded.
    """
    from analysis.experiments.sweep import Job, Plan, Terms, grid_variants
    from app.sweep_runner import request_of

    methods = list(args.methods) or runnable(args.model, args.drafter)
    budgets = [*args.budget, *([None] if own_budgets else [])]
    variants = grid_variants(methods, budgets, args.set)
    terms = Terms(
        model=_as_path(args.model),
        drafter=None if args.drafter is None else _as_path(args.drafter),
        template=common.template_of(args),
        max_new_tokens=args.max_new_tokens,
        temperature=args.temperature,
        top_k=args.top_k,
        top_p=args.top_p,
        probe=not args.no_probe,
    )
    seeds = tuple(dict.fromkeys(args.seed))
    for number in (*seeds, args.max_new_tokens, args.top_k):
        if not -(1 << 63) <= number < 1 << 63:
            raise UserError(f"{number} does not fit in the 64 bits of a column")
    plan = Plan(terms, variants, _prompts(args), seeds, tuple(_files(variants, args)))
    for variant in variants:
        request_of(terms, Job(variant, plan.prompts[0], 0, seeds[0])).check()
    return plan


def _as_path(model: str) -> str:
    """A checkpoint's folder by its whole path: the plan may be looked at from elsewhere."""
    folder = Path(model).expanduser()
    return str(folder.resolve()) if folder.is_dir() else model


def _prompts(args: Sweep) -> tuple[Prompt, ...]:
    """Each once: the same text is the same run."""
    from analysis.experiments.prompts import PROMPTS

    first: dict[tuple[str, ...], Prompt] = {}
    for prompt in conversations_of(args, PROMPTS):
        first.setdefault((prompt.text, *prompt.more), prompt)
    return tuple(first.values())


def _files(variants: Sequence[Variant], args: Sweep) -> Iterator[tuple[str, str]]:
    """The user's own files that decide runs, as they are named, with their SHA-256."""
    names = {str(v.method) for v in variants if str(v.method).endswith(".py")}
    names |= {value for v in variants for _, value in v.options if isinstance(value, str) and value}
    files = {name: Path(name).expanduser() for name in sorted(names)}
    presets = args.model.partition("#")[0]
    if presets.endswith(".toml"):
        files[presets] = Path(presets).expanduser()
    files |= {f"drafter: {name}": file for name, file in _weights(args.drafter)}
    for method in dict.fromkeys(str(variant.method) for variant in variants):
        files |= {f"{method}: {name}": file for name, file in _weights(split(method)[1])}
    for name, file in files.items():
        if not file.is_file():
            continue
        with reading(file):
            yield name, sha256(file)


def _weights(drafter: str | None) -> Iterator[tuple[str, Path]]:
    """The files of a drafter's folder that decide runs; nothing for a path that is not a folder."""
    if drafter and (folder := Path(drafter).expanduser()).is_dir():
        for file in sorted({*folder.glob("*.safetensors"), *folder.glob("*.json")}):
            yield file.name, file


# ── the runs ─────────────────────────────────────────────────────────────────────────────────────


def _run(folder: Folder, args: Sweep) -> None:
    """Run all that remains; each run is kept as it ends. Finished turns of conversations bring the
    next ones."""
    remaining, everything = folder.remaining(), folder.size
    if not remaining:
        return
    if folder.done:
        say(f"{folder.done} of {everything} runs are there already")
    written, tried = time.monotonic(), set[str]()
    progress, begun = ProgressBar("sweeping", everything), folder.done

    def report(note: str) -> None:
        progress.at(begun, note)

    outcomes_of = _runner(folder, args, report)  # loads the engine, with its own bar
    with progress:
        while jobs := [job for job in folder.remaining() if job.name not in tried]:
            tried |= {job.name for job in jobs}
            with closing(outcomes_of(jobs)) as outcomes:
                for outcome in outcomes:
                    begun += 1
                    _keep(folder, outcome)
                    if time.monotonic() - written > TABLE_EVERY:
                        folder.write_table()
                        written = time.monotonic()
            folder.read()  # the next turns may have been run before an answer was lost


def _runner(folder: Folder, args: Sweep, report: Note) -> Callable[[list[Job]], Outcomes]:
    """The way in which jobs are run, here or on a cluster."""
    from app.sweep_runner import Runner, Spec, run_here, run_on_ray

    plan, place = folder.plan, folder.unfinished
    cluster = args.cluster(args.device)
    if cluster is None:
        engine = common.load_engine(args, [str(v.method) for v in plan.variants])
        check_turns(plan.prompts, engine.prepare())
        runner = Runner(engine, plan.terms)
        return lambda jobs: run_here(runner, jobs, place, report)
    spec = Spec(args.model, args.device, args.drafter, plan.terms)
    return lambda jobs: run_on_ray(cluster, spec, jobs, place, report)


def _keep(folder: Folder, outcome: Outcome) -> None:
    """A signal waits for it: what has a name on disk is also in the table."""
    if outcome.error:
        say(f"failed: {outcome.job.title}: {one_line(outcome.error, 200)}")
    with delayed_interrupt():
        if outcome.error:
            folder.fail(outcome.job, outcome.error)
        else:
            folder.finish(outcome.job)


def how_far(folder: Folder) -> str:
    failed = f", {len(folder.failures)} failed" if folder.failures else ""
    return f"{folder.done} of {folder.size} runs are done{failed}: {folder.path}"
