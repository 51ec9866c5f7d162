"""``run``: decode prompts with one method.

One prompt streams its text and ends with a table; several print a line each and a total; with
``--json`` stdout carries one JSON object per prompt and nothing else.

``seconds`` is decoding alone, from the prompt's first forward to the last round: observing, logging
and printing are left out.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analysis.numbers import milliseconds, number, rate, share, tau
from app.command_line import option
from app.commands import common
from app.commands.options import BUDGETS, MethodOptions, RequestOptions
from app.commands.prompts import prompts_of
from app.decoding import DecodedPrompt, Decoding, decode
from app.terminal import GrowingText, ProgressBar, bar, console, one_line, say, table
from app.trace_log import check_trace, nth_path
from core.errors import UserError
from core.traces.schema import summary


@dataclass(frozen=True, kw_only=True)
class Options(MethodOptions, RequestOptions):
    """Decode prompts with one method: text, τ, acceptance, tokens/s."""

    budget: int | None = option(None, "drafted nodes a round (default: the method's)", BUDGETS)
    trace: Path | None = option(
        None,
        "log every round (.jsonl or .jsonl.gz); several prompts: FILE-1, FILE-2, …",
        metavar="FILE",
    )
    json: bool = option(False, "one JSON object per prompt on stdout")
    no_probe: bool = option(False, "log without p, TVD and coverage")


def main(args: Options) -> int:
    prompts = prompts_of(args)
    check_trace(args.trace, len(prompts))
    job = _job(args)
    if len(prompts) > 1:
        return _several(job, prompts, args.json)
    if args.json:
        with ProgressBar("decoding", args.max_new_tokens) as progress:
            result = decode(job, prompts[0], lambda _, count: progress.at(count))
        print_json(result.to_json())
        return 0
    text = GrowingText(sys.stdout)
    try:
        result = decode(job, prompts[0], lambda so_far, _: text.show(so_far))
    except KeyboardInterrupt:
        print(flush=True)  # the shell's prompt does not continue the model's line
        raise
    text.show(result.text, final=True)
    print("\n")
    _print_report(result)
    if args.trace is not None:
        say(f"trace written to {args.trace}")
    return 0


def _job(args: Options) -> Decoding:
    """Check the settings, then load the models: a typo must not cost half a minute."""
    request = common.request_of(args, args.method, args.budget)
    request.check()
    engine = common.load_engine(args, [request.method])
    method = engine.load(request.resolved.chosen)
    target = engine.target(method)
    if target.device.type == "cuda" and target.no_graph_reason is not None:
        say(f"{args.model} is read without CUDA graphs: {target.no_graph_reason}")
    if method.drafter is not None and (covered := method.drafter.covered) is not None:
        say(f"{args.method} drafts {len(covered.ids):,} of the target's {covered.size:,} tokens")
    return Decoding(engine, request, args.trace, probe=not args.no_probe)


# ── output ───────────────────────────────────────────────────────────────────────────────────────


def print_json(value: dict[str, Any]) -> None:
    print(json.dumps(value), flush=True)


def _print_report(result: DecodedPrompt) -> None:
    out, numbers = console(), summary(result.rounds)
    pace = f"{rate(result.tokens_per_second)}  ({number(result.seconds)} s, "
    facts = [
        ("method", f"{result.request.method}, budget {result.budget}"),
        ("tokens", str(len(result.tokens))),
        ("rounds", str(numbers["rounds"])),
        ("τ", tau(numbers["tau"])),
        ("tokens/s", f"{pace}prefill {number(result.prefill)} s)"),
    ]
    out.print(table(("", ""), facts, left=("",)))
    if not numbers["rounds"]:
        return
    out.print()
    rows = list(stage_rows(result.stages, len(result.rounds)))
    out.print(table(("stage", "s", "ms/round", "share"), rows, left=("stage",)))
    out.print()
    columns = ("acceptance length", "rounds", "")
    out.print(table(columns, list(_histogram(numbers["acceptance_lengths"])), left=("",)))


def stage_rows(stages: Mapping[str, float], rounds: int) -> Iterator[tuple[str, ...]]:
    """Each stage's seconds in all, ms per round, and share of the rounds; prefill is in none."""
    total = sum(stages.values()) - stages.get("prefill", 0.0)
    for name, seconds in stages.items():
        per_round = None if name == "prefill" else seconds / rounds
        part = None if name == "prefill" or not total else seconds / total
        ms = milliseconds(per_round, 2).removesuffix(" ms")
        yield name, number(seconds, 3), ms, share(part)


def _histogram(lengths: Sequence[int]) -> Iterator[tuple[str, ...]]:
    """Rounds by acceptance length (accepted nodes + 1), gaps included."""
    counts = Counter(lengths)
    for length in range(1, max(lengths) + 1):
        yield str(length), str(counts[length]), bar(counts[length], max(counts.values()))


def _several(job: Decoding, prompts: Sequence[str], as_json: bool) -> int:
    """One prompt after the other. One that fails is reported, the others continue; then exit 2."""
    results, failed = list[dict[str, Any]](), 0
    if not as_json:
        print(f"{'prompt':>8} {'tokens':>7} {'rounds':>7} {'τ':>6} {'s':>7} {'tokens/s':>9}  text")
    with ProgressBar("decoding", len(prompts)) as progress:
        for index, prompt in enumerate(prompts, 1):
            progress.at(index - 1, f"prompt {index} of {len(prompts)}")
            own = replace(job, trace=nth_path(job.trace, index))
            try:
                result = decode(own, prompt).to_json()
            except UserError as error:
                failed += 1
                say(f"prompt {index}: {error}")
                if as_json:
                    print_json({"prompt": prompt, "error": str(error)})
                continue
            results.append(result)
            if as_json:
                print_json(result)
            else:
                print(_line(index, result), flush=True)
    print(_total(results), file=sys.stderr if as_json else sys.stdout, flush=True)
    if failed:
        raise UserError(f"{failed} of {len(prompts)} prompts could not be decoded")
    return 0


def _line(index: int, result: Mapping[str, Any]) -> str:
    return (
        f"{index:>8} {result['tokens']:>7} {result['rounds']:>7} {tau(result['tau']):>6} "
        f"{number(result['seconds']):>7} {rate(result['tokens_per_second']):>9}  "
        f"{one_line(result['text'], 60)}"
    )


def _total(results: Sequence[Mapping[str, Any]]) -> str:
    tokens, seconds = (sum(r[name] for r in results) for name in ("tokens", "seconds"))
    lengths = [length for r in results for length in r["acceptance_lengths"]]
    whole = sum(lengths) / len(lengths) if lengths else 1.0
    return (
        f"{len(results)} prompts · {tokens} tokens · {len(lengths)} rounds · τ {tau(whole)} · "
        f"{number(seconds, 1)} s · {rate(tokens / seconds if seconds else 0.0)} tokens/s"
    )
