"""``bench``: methods × budgets against plain decoding, transformers' ``generate`` and llama.cpp."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from analysis.experiments.llama_cpp import LlamaCpp, check_installed
from analysis.experiments.variants import ENGINES, LLAMA_CPP
from analysis.numbers import milliseconds, number, plural, rate, share, size, tau
from app.command_line import option, words
from app.commands import common
from app.commands.options import (
    BUDGETS,
    METHOD_HELP,
    POSITIVE,
    RUNNABLE,
    Printed,
    RequestOptions,
    method,
)
from app.commands.prompts import prompts_of
from app.terminal import FittingTable, ProgressBar, console, say
from core.errors import UserError
from core.methods.names import PLAIN
from core.methods.registry import runnable
from core.models import embedded

if TYPE_CHECKING:
    from rich.console import Console

    from analysis.experiments.bench import BenchRow, Floor, Result, Roof, Workload
    from analysis.experiments.roofline import Machine
    from core.decoding.engine import Engine
    from core.decoding.request import RunRequest

COLUMNS = (
    "", "τ", "s", "tokens/s", "after prompt", "× plain", "turns", "× generate", "as plain",
)  # fmt: skip
ROOFLINE = ("a round", "rows", "ms", "floor ms", "reached", "whole run", "the floor is")
SHOWN = 10  # prompts whose first other token is named


def contestant(text: str) -> str:
    """A method, or the word llama.cpp. Raises UserError."""
    return text if text == LLAMA_CPP else method(text)


@dataclass(frozen=True, kw_only=True)
class Options(Printed, RequestOptions):
    """Time methods and budgets end to end against plain decoding and transformers' generate().

    All run on the same prompts, in an order that changes every time. generate() runs without and
    with prompt lookup (not on targets that carry a state). The table has medians over repeats,
    ratios by prompt, and the smallest and largest ratio of a single turn. `bench llama.cpp` adds
    llama.cpp on the file that the embedded target was made from: the same token ids, as many
    threads, greedy, on the CPU. Only its time and text are used.

    Below the table is the roofline: what a round and each of its stages must at least move and
    compute (without activations), how long that takes at the copy bandwidth and matrix rate
    measured in the same run, and which share of that speed was reached, in the rounds and in the
    whole run with its prefill. Exit code 1 when a greedy or seeded text differs from plain
    decoding's in any token.
    """

    methods: tuple[str, ...] = words(
        f"{METHOD_HELP}; {RUNNABLE}; {LLAMA_CPP} decodes plainly beside them",
        (),
        contestant,
    )
    budget: tuple[int, ...] = option((8, 16, 64), "drafted nodes a round", BUDGETS)
    max_new_tokens: int = option(64, "tokens to write at most", POSITIVE)
    repeats: int = option(3, "how often every decoding is timed", POSITIVE)
    json: bool = option(False, "one JSON object on stdout, no table")


def main(args: Options) -> int:
    methods = list(args.methods) or runnable(args.model, args.drafter)
    if LLAMA_CPP in methods:
        _check_llama(args)
    plan = _plan(args)
    from analysis.experiments.bench import bench, roofs, rows, that_run, with_baselines

    every = with_baselines(methods, args.budget, dict(args.set))
    engine = common.load_engine(args, [v.method for v in every if v.method])
    variants = that_run(every, engine.prepare().model)
    left_out = [v.name for v in every if v not in variants]
    for variant in variants:
        if variant.method is not None:
            engine.method(variant.method, dict(variant.options))
    llama = _llama(engine, plan) if LLAMA_CPP in methods else None
    with ProgressBar("timing", plan.repeats * len(plan.prompts) * len(variants)) as progress:
        result = bench(engine, plan, variants, progress.at, llama)
    found, limits = rows(result.timings, variants, plan.request), roofs(result, variants)
    facts = _facts(engine, plan, llama) | {"left_out": left_out}
    if left_out:
        say(
            f"left out: {', '.join(left_out)}; transformers does not run prompt lookup on a target "
            "whose layers carry a state along the text"
        )
    if args.json:
        written = [asdict(row) | {"same": row.same, "prompts": row.prompts} for row in found]
        facts |= {"rows": written, "machine": asdict(result.machine)}
        print(json.dumps(facts | {"roofline": [asdict(roof) for roof in limits]}))
    else:
        out = console(tables=args.tables)
        _print_rows(out, facts, plan, found)
        _print_roofs(out, result, limits)
    return _conclude(found, exact=facts["dtype"] in ("float32", "float64"))


def _check_llama(args: Options) -> None:
    """Raises UserError, before anything is loaded, for what llama.cpp cannot be set beside."""
    if args.model != embedded.NAME:
        raise UserError(f"{LLAMA_CPP} is compared with the embedded target only: leave --model out")
    if args.temperature > 0:
        raise UserError(f"{LLAMA_CPP} decodes greedily here: leave --temperature at 0")
    if args.device not in ("auto", "cpu"):
        raise UserError(f"{LLAMA_CPP} runs on the CPU here: leave --device out or say cpu")
    check_installed()


def _llama(engine: Engine, plan: Workload) -> LlamaCpp:
    """llama.cpp on the embedded target's file, with room for the longest text."""
    import torch

    language = engine.prepare()
    if language.device.type != "cpu":
        raise UserError(f"{LLAMA_CPP} runs on the CPU here: add --device cpu")
    longest = max(len(language.encode_chat(prompt)) for prompt in plan.prompts)
    with ProgressBar(f"preparing {LLAMA_CPP}") as progress:
        file = embedded.gguf_file(progress.at)
    return LlamaCpp.load(file, torch.get_num_threads(), longest + plan.request.max_new_tokens)


def _plan(args: Options) -> Workload:
    """Raises UserError for a setting out of range, before anything is loaded."""
    from analysis.experiments.bench import Workload
    from analysis.experiments.prompts import PROMPTS

    # each variant has its own options; whole decodings are compared, not their stages
    request = replace(common.request_of(args, PLAIN), options=(), timed=False)
    request.check()
    return Workload(tuple(prompts_of(args, PROMPTS)), request, args.repeats)


def _print_rows(
    out: Console, facts: dict[str, Any], plan: Workload, found: Sequence[BenchRow]
) -> None:
    out.print(
        f"{facts['model']} · {facts['device']} · {facts['dtype']} · {facts['threads']} threads · "
        f"{plural(len(plan.prompts), 'prompt')} × {plural(plan.repeats, 'repeat')} · "
        f"up to {plan.request.max_new_tokens} new tokens · {_sampled(plan.request)}",
        soft_wrap=True,
    )
    for name, weights in facts["weights"].items():
        out.print(f"{name}: {weights}", soft_wrap=True)
    out.print(FittingTable(COLUMNS, [_cells(row) for row in found], left=("",)))
    for row in found:
        if row.method == LLAMA_CPP and not row.identical:
            out.print(_parting(row), soft_wrap=True)


def _sampled(request: RunRequest) -> str:
    """How the target chooses its tokens."""
    if request.temperature == 0:
        return "greedy"
    top = f", top-k {request.top_k}" if request.top_k else ""
    top += f", top-p {request.top_p:g}" if request.top_p < 1 else ""
    return f"T = {request.temperature:g}{top}, seed {request.seed}"


def _parting(row: BenchRow) -> str:
    """After how many tokens llama.cpp leaves plain decoding's text."""
    parting = [f"{n} (prompt {i})" for i, n in enumerate(row.parts, 1) if n is not None]
    more = f" and on {plural(len(parting) - SHOWN, 'more prompt')}" if len(parting) > SHOWN else ""
    return (
        f"{row.name} parts from plain decoding after new token {', '.join(parting[:SHOWN])}{more}: "
        "it rounds activations to 8 bits and its cache to float16, we its weights to bfloat16"
    )


def _cells(row: BenchRow) -> tuple[str, ...]:
    is_told = row.keeps_text or row.method == LLAMA_CPP
    return (
        row.name,
        tau(row.tau),
        number(row.seconds),
        rate(row.tokens_per_second),
        rate(row.decoding),
        number(row.plain_ratio),
        "–".join(map(number, row.turns)),
        number(row.generate_ratio),
        f"{row.same} of {row.prompts}" if is_told else "–",
    )


def _print_roofs(out: Console, result: Result, limits: Sequence[Roof]) -> None:
    machine = result.machine
    out.print()
    out.print(
        f"roofline: copies {number(machine.bandwidth / 1e9, 1)} GB/s, "
        f"matrices {number(machine.rate / 1e9, 0)} GFLOP/s, measured between the turns",
        soft_wrap=True,
    )
    lines = [line for roof in limits for line in _roof_lines(roof, machine)]
    out.print(FittingTable(ROOFLINE, lines, left=("a round", "the floor is")))


def _roof_lines(roof: Roof, machine: Machine) -> Iterator[tuple[str, ...]]:
    """A variant's round, then its stages."""
    yield roof.name, number(roof.rows, 1), *_held(roof), share(roof.whole, 0), _says(roof, machine)
    for name, stage in roof.stages.items():
        yield f"  {name}", "", *_held(stage), "", _says(stage, machine)


def _held(floor: Floor) -> tuple[str, str, str]:
    """Time, floor and share."""
    ms = [milliseconds(s, 2).removesuffix(" ms") for s in (floor.seconds, floor.floor)]
    return ms[0], ms[1], share(floor.reached, 0)


def _says(floor: Floor, machine: Machine) -> str:
    """Name the limit that makes most of the floor: memory or compute, and its rate."""
    if floor.bound is None:
        return "not counted"
    if floor.bound == "memory":
        return f"{size(round(floor.bytes))} at {number(machine.bandwidth / 1e9, 1)} GB/s"
    return f"{number(floor.flops / 1e9)} GFLOP at {number(machine.rate / 1e9, 0)} GFLOP/s"


def _facts(engine: Engine, plan: Workload, llama: LlamaCpp | None) -> dict[str, Any]:
    import torch

    from analysis.experiments.roofline import Forward

    language = engine.prepare()
    forward, dtype = Forward.of(language.model), str(language.model.dtype).removeprefix("torch.")
    weights = {"here": f"{dtype}, {size(forward.body.bytes + forward.head.bytes)}"}
    if llama is not None:
        weights["here"] += ", computed from the same file's numbers, rounded to bfloat16"
        weights[LLAMA_CPP] = f"{llama.weights} as stored, {size(llama.bytes)} ({llama.version})"
    settings = asdict(plan.request)
    del settings["prompt"], settings["method"], settings["budget"]
    return {
        "model": language.name,
        "device": str(language.device),
        "dtype": dtype,
        "weights": weights,
        "threads": torch.get_num_threads(),
        "repeats": plan.repeats,
        "settings": settings,
        "prompts": list(plan.prompts),
    }


def _conclude(found: Sequence[BenchRow], exact: bool) -> int:
    """Exit code 1 when a method of ours wrote another text than plain decoding, whose text it
    must keep, in numbers that are ``exact`` enough to tell: in bfloat16 two tokens may tie, and
    drafts round differently."""
    ours = [row for row in found if row.method not in ENGINES]
    wrong = [row.name for row in ours if row.keeps_text and not row.identical]
    if wrong:
        say(f"not plain decoding's tokens: {', '.join(wrong)}; `audit` shows where, and if a tie")
    return int(exact and bool(wrong))
