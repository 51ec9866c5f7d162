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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Generic

from analysis.numbers import milliseconds, number, rate, share, tau
from app.command_line import option
from app.commands import common
from app.commands.options import BUDGETS, Logged, MethodOptions, RequestOptions
from app.commands.prompts import prompts_of
from app.decoding import Asked, DecodedPrompt, Decoding, decode
from app.terminal import GrowingText, ProgressBar, bar, console, one_line, say, table
from app.trace_log import check_trace, nth_path
from core.decoding.request import RunRequest
from core.errors import UserError
from core.traces.schema import summary


@dataclass(frozen=True, kw_only=True)
class Options(MethodOptions, RequestOptions, Logged):
    """Decode prompts with one method: text, τ, acceptance, tokens/s."""

    budget: int | None = option(None, "drafted nodes a round (default: the method's)", BUDGETS)
    no_probe: bool = option(False, "log without p, TVD and coverage")


def main(args: Options) -> int:
    prompts = prompts_of(args)
    check_trace(args.trace, len(prompts))
    return decode_all(_job(args), prompts, args.json, args.max_new_tokens, SHOWN)


def _job(args: Options) -> Decoding[RunRequest]:
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
    return Decoding(engine.start, request, args.trace, probe=not args.no_probe)


# ── any command that writes texts ────────────────────────────────────────────────────────────────


Found = dict[str, Any]  # what is found of a prompt, as JSON


@dataclass(frozen=True)
class Shown(Generic[Asked]):
    """How a command shows the texts it writes. The JSON of a prompt is all that stays of it.

    report   prints the tables below the text of a single prompt
    columns  of the lines of several prompts, each cell read off the prompt's JSON
    total    of all of them
    """

    to_json: Callable[[DecodedPrompt[Asked]], Found]
    report: Callable[[DecodedPrompt[Asked]], None]
    columns: Mapping[str, Callable[[Found], str]]
    total: Callable[[Sequence[Found]], str]


def decode_all(
    job: Decoding[Asked],
    prompts: Sequence[str],
    as_json: bool,
    length: int,
    shown: Shown[Asked],
) -> int:
    """Write the text of every prompt, of at most ``length`` tokens; returns the exit code."""
    if len(prompts) > 1:
        return _several(job, prompts, as_json, shown)
    if as_json:
        with ProgressBar("decoding", length) as progress:
            result = decode(job, prompts[0], lambda _, count: progress.at(count))
        print_json(shown.to_json(result))
    else:
        text = GrowingText(sys.stdout)
        try:
            result = decode(job, prompts[0], lambda so_far, _: text.show(so_far))
        except KeyboardInterrupt:
            print(flush=True)  # the shell's prompt does not continue the model's line
            raise
        text.show(result.text, final=True)
        print("\n")
        shown.report(result)
    if job.trace is not None:
        say(f"trace written to {job.trace}")
    return 0


def _several(
    job: Decoding[Asked], prompts: Sequence[str], as_json: bool, shown: Shown[Asked]
) -> int:
    """One prompt after the other. One that fails is reported, the others continue; then exit 2."""
    results, failed = list[Found](), 0
    if not as_json:
        print(_line("prompt", shown.columns, "text"))
    with ProgressBar("decoding", len(prompts)) as progress:
        for index, prompt in enumerate(prompts, 1):
            progress.at(index - 1, f"prompt {index} of {len(prompts)}")
            own = replace(job, trace=nth_path(job.trace, index))
            try:
                result = shown.to_json(decode(own, prompt))
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
                cells = [cell(result) for cell in shown.columns.values()]
                print(_line(str(index), cells, one_line(result["text"], 60)), flush=True)
    print(shown.total(results), file=sys.stderr if as_json else sys.stdout, flush=True)
    if failed:
        raise UserError(f"{failed} of {len(prompts)} prompts could not be decoded")
    return 0


def _line(prompt: str, cells: Iterable[str], text: str) -> str:
    return f"{prompt:>8} {' '.join(f'{cell:>8}' for cell in cells)}  {text}"


def print_json(value: Found) -> None:
    print(json.dumps(value), flush=True)


def stage_rows(stages: Mapping[str, float], rounds: int) -> Iterator[tuple[str, ...]]:
    """Each stage's seconds in all, ms per round, and share of the rounds; prefill is in none."""
    total = sum(stages.values()) - stages.get("prefill", 0.0)
    for name, seconds in stages.items():
        per_round = None if name == "prefill" else seconds / rounds
        part = None if name == "prefill" or not total else seconds / total
        ms = milliseconds(per_round, 2).removesuffix(" ms")
        yield name, number(seconds, 3), ms, share(part)


# ── output ───────────────────────────────────────────────────────────────────────────────────────


def _to_json(result: DecodedPrompt[RunRequest]) -> Found:
    numbers, asked = summary(result.rounds), asdict(result.request)
    keys = ("prompt", "method", "max_new_tokens", "temperature", "top_k", "top_p", "seed")
    return {
        **{key: asked[key] for key in keys},
        "options": dict(asked["options"]),
        "budget": result.header.settings["budget"],
        "token_ids": list(result.tokens),
        "text": result.text,
        "tokens": len(result.tokens),
        "rounds": numbers["rounds"],
        "tau": numbers["tau"],
        "acceptance_lengths": numbers["acceptance_lengths"],
        "seconds": result.seconds,
        "stage_seconds": result.stages,
        "tokens_per_second": result.tokens_per_second,
    }


def _report(result: DecodedPrompt[RunRequest]) -> None:
    out, numbers = console(), summary(result.rounds)
    pace = f"{rate(result.tokens_per_second)}  ({number(result.seconds)} s, "
    facts = [
        ("method", f"{result.request.method}, budget {result.header.settings['budget']}"),
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


def _histogram(lengths: Sequence[int]) -> Iterator[tuple[str, ...]]:
    """Rounds by acceptance length (accepted nodes + 1), gaps included."""
    counts = Counter(lengths)
    for length in range(1, max(lengths) + 1):
        yield str(length), str(counts[length]), bar(counts[length], max(counts.values()))


def _total(results: Sequence[Found]) -> str:
    tokens, seconds = (sum(r[name] for r in results) for name in ("tokens", "seconds"))
    lengths = [length for r in results for length in r["acceptance_lengths"]]
    whole = sum(lengths) / len(lengths) if lengths else None
    return (
        f"{len(results)} prompts · {tokens} tokens · {len(lengths)} rounds · τ {tau(whole)} · "
        f"{number(seconds, 1)} s · {rate(tokens / seconds if seconds else 0.0)} tokens/s"
    )


COLUMNS: Mapping[str, Callable[[Found], str]] = {
    "tokens": lambda found: str(found["tokens"]),
    "rounds": lambda found: str(found["rounds"]),
    "τ": lambda found: tau(found["tau"]),
    "s": lambda found: number(found["seconds"]),
    "tokens/s": lambda found: rate(found["tokens_per_second"]),
}
SHOWN = Shown(_to_json, _report, COLUMNS, _total)
