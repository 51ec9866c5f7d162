"""``trace import``: what another engine counted of served drafts, or DDTree's saved trees."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.numbers import UNKNOWN, interval, number, share
from app.command_line import CommandOptions, option, words
from app.terminal import bar, console, one_line, say, table
from core.errors import UserError
from core.traces.schema import ENDINGS

if TYPE_CHECKING:
    from analysis.measures.counts import Counts

STRIP = 240  # rounds that the terminal shows


@dataclass(frozen=True, kw_only=True)
class Options(CommandOptions):
    """Read what an engine counted of its drafts, without trees.

    A log with vLLM's lines 'SpecDecoding metrics', SGLang's 'accept len' or llama.cpp's 'draft
    acceptance'; a metrics page (Prometheus) of the three; their responses, or what `vllm bench
    serve` saved, as .json or one a line in .jsonl; LM Studio's fragments, a dump of verifications
    (LLAMA_SPEC_DUMP), a speculation_profile.json. Shows τ and acceptance by place; sentences say
    what follows and what does not. DDTree's saved trees become a trace: name it with --out.
    docs/record.md has the forms.
    """

    file: Path = words("a log, a metrics page, .json or .jsonl")
    json: bool = option(False, "the counts and sentences as JSON")
    out: Path | None = option(None, "the trace of saved trees")


def main(args: Options) -> int:
    from analysis.engines.served import read_served
    from analysis.engines.trees import write_trees
    from analysis.kinds import TREES, kind_of

    if kind_of(args.file) == TREES:
        if args.out is None or not args.out.name.endswith(ENDINGS):
            raise UserError("these are trees: name a trace for them, --out FILE.jsonl.gz")
        say(f"{args.out}: {write_trees(args.file, args.out)} rounds, without q and p")
        return 0
    counts = read_served(args.file)
    if args.out is not None:
        raise UserError(f"{args.file} holds counts without trees: no trace can be made of them")
    if args.json:
        print(json.dumps(counts.to_json()))
    else:
        _show(counts)
    return 0


def _show(counts: Counts) -> None:
    from analysis.measures.counts import LABEL, sentences, strip

    out = console()
    out.print(f"{counts.engine}, {LABEL}", style="bold")
    sums = (counts.rounds, counts.drafted, counts.accepted, counts.tokens)
    names = (f"{counts.kind}s", "rounds", "drafted", "accepted", "tokens", "τ")
    values = [str(counts.records), *(UNKNOWN if n is None else str(n) for n in sums)]
    values += [number(counts.tau), number(counts.accepted_of_drafted)]
    out.print(table((*names, "accepted ÷ drafted"), [values]))
    if counts.histogram:
        _histogram(counts.histogram)
    if counts.by_depth:
        out.print("\nBy place of the draft, as a chain", style="bold")
        columns = (
            "place",
            "tested",
            "accepted",
            "acceptance",
            "95 %",
            "of all drafts",
            "τ to here",
        )
        out.print(table(columns, list(_places(counts))))
    orders = [order for order in counts.order if order]
    for order in orders[:1]:
        of = f", of the first of {len(orders)}" if len(orders) > 1 else ""
        out.print(f"\nShare of each round's draft that was accepted, in order{of}", style="bold")
        out.print(one_line(strip(order), STRIP), soft_wrap=True)
    out.print()
    for line in sentences(counts):
        out.print(one_line(line, 600), soft_wrap=True)


def _places(counts: Counts) -> Iterator[tuple[str, ...]]:
    for d in counts.by_depth:
        known = (UNKNOWN if n is None else str(n) for n in (d.tested, d.accepted))
        shares = (number(d.conditional), interval(d.low, d.high), number(d.marginal, 3))
        yield (str(d.depth), *known, *shares, number(d.tau))


def _histogram(counts: Sequence[int]) -> None:
    total, most = sum(counts), max(counts)
    rows = [
        (str(n), str(count), share(count / total if total else 0.0), bar(count, most or 1))
        for n, count in enumerate(counts)
    ]
    console().print("\nAccepted tokens per round", style="bold")
    console().print(table(("accepted", "rounds", "share", " "), rows, left=(" ",)))
