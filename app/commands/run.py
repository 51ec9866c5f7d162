"""``run``: decode prompts with one method.

``seconds`` is decoding alone, from the prompt's first forward to the last round: observing, logging
and printing are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from analysis.experiments.prompts import Prompt, count_turns
from analysis.labels import budget
from analysis.numbers import number, rate, tau
from app.command_line import option
from app.commands import common
from app.commands.options import BUDGETS, Conversations, Logged, MethodOptions, RequestOptions
from app.commands.prompts import check_turns, conversations_of
from app.decoding import DecodedPrompt, Decoding
from app.printed_texts import Found, Shown, decode_all, stage_rows
from app.terminal import FittingTable, bar, console, say
from app.trace_log import check_trace
from core.decoding.request import RunRequest
from core.traces.schema import summary


@dataclass(frozen=True, kw_only=True)
class Options(MethodOptions, RequestOptions, Conversations, Logged):
    """Decode prompts with one method: text, τ, acceptance, tokens/s."""

    budget: int | None = option(None, "drafted nodes a round (default: the method's)", BUDGETS)
    no_probe: bool = option(False, "do not measure p, TVD and coverage")


def main(args: Options) -> int:
    prompts = conversations_of(args)
    check_trace(args.trace, count_turns(prompts))
    return decode_all(_job(args, prompts), prompts, args.json, args.max_new_tokens, SHOWN)


def _job(args: Options, prompts: Sequence[Prompt]) -> Decoding[RunRequest]:
    """Check the settings, then load the models: a typo must not cost half a minute."""
    request = common.request_of(args, args.method, args.budget)
    chosen = request.resolved.chosen
    engine = common.load_engine(args, [chosen.name])
    check_turns(prompts, engine.prepare())
    method = engine.load(chosen)
    target = engine.target(method)
    if target.device.type == "cuda" and target.no_graph_reason is not None:
        say(f"{args.model} is read without CUDA graphs: {target.no_graph_reason}")
    if method.drafter is not None and (covered := method.drafter.covered) is not None:
        say(f"{args.method} drafts {len(covered.ids):,} of the target's {covered.size:,} tokens")
    return Decoding(engine.start, request, args.trace, probe=not args.no_probe)


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
    method, size = result.request.method, budget(result.header)
    facts = [
        ("method", method if size is None else f"{method}, budget {size}"),
        ("tokens", str(len(result.tokens))),
        ("rounds", str(numbers["rounds"])),
        ("τ", tau(numbers["tau"])),
        ("tokens/s", f"{pace}prefill {number(result.prefill)} s)"),
    ]
    out.print(FittingTable(("", ""), facts, left=("",)))
    if not numbers["rounds"]:
        return
    out.print()
    rows = list(stage_rows(result.stages, len(result.rounds)))
    out.print(FittingTable(("stage", "s", "ms/round", "share"), rows, left=("stage",)))
    out.print()
    columns = ("acceptance length", "rounds", "")
    out.print(FittingTable(columns, list(_histogram(numbers["acceptance_lengths"])), left=("",)))


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
