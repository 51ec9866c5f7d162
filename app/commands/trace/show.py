"""``trace show``: a trace in the terminal, its rounds or one round's tree. Never imports torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from analysis.labels import flat
from analysis.numbers import milliseconds, number, plural, tau
from app.command_line import option, words
from app.commands.common import pick, read_one
from app.commands.options import Large
from app.object_stores import here
from app.terminal import FittingTable, console, one_line, say
from app.view.explanation import Explainer
from app.view.tree import text_tree
from core.chat import last_message
from core.rounds.round import Round
from core.traces.schema import Trace, summary

COLUMNS = (
    "round", "position", "nodes", "accepted", "committed", "TVD₁", "ms", "why it stopped", "text",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Options(Large):
    """Show a trace in the terminal: its rounds, or one round's tree."""

    file: Path = words("a trace: .jsonl or .jsonl.gz", read=here)
    round: int | None = option(None, "the tree of round N, from 1 (default: all)")


def main(args: Options) -> int:
    trace = read_one(args.file, args.limits)
    out = console()
    if args.round is not None:
        record = pick(trace, args.round)
        print(text_tree(record, Explainer.of(trace.header)))
        if record.faults:
            say(f"this round counts in no figure: it holds {', '.join(record.faults)}")
        return 0
    for name, value in _header(trace):
        out.print(f"{name:<10}{value}", soft_wrap=True)
    if trace.rounds:
        out.print()
        rows = [_row(record) for record in trace.rounds]
        out.print(FittingTable(COLUMNS, rows, left=COLUMNS[-2:]))
    return 0


def _header(trace: Trace) -> Iterator[tuple[str, str]]:
    """Name and value of each line above the table."""
    head = trace.header
    settings = (f"{k} {v}" for k, v in flat(head.settings))
    yield "method", one_line(" · ".join([head.method, *settings]), 300)
    model = " ".join(str(head.model[k]) for k in ("name", "revision") if k in head.model)
    target = filter(None, (model or "unknown", head.dtype, head.device))
    yield "target", one_line(" · ".join(target), 300)
    if head.drafter:
        yield "drafter", one_line(" · ".join(f"{k} {v}" for k, v in head.drafter.items()), 300)
    if head.created:
        yield "made", one_line(head.created, 60)
    yield (
        "prompt",
        f"{one_line(last_message(head.prompt_text), 200)} ({len(head.prompt_ids)} tokens)",
    )
    rounds, numbers = len(trace.rounds), summary(trace.sound)
    told = f"{plural(numbers['tokens'], 'token')} · τ {tau(numbers['tau'])} · "
    end = "complete" if trace.complete else "interrupted: no footer"
    if trace.mark:
        yield "marked", trace.mark
    if trace.emptiness:
        yield "note", one_line(trace.emptiness, 300)
    yield "rounds", f"{rounds} · {told if trace.sound else ''}{end}"


def _row(record: Round) -> tuple[str, ...]:
    """One line of the table; the text is what the round committed."""
    tvd = record.probe.tvd if record.probe is not None else None
    text = "".join(record.text(token) for token in record.committed)
    return (
        str(record.number),
        str(record.position),
        str(record.draft.nodes),
        str(record.accepted),
        str(len(record.committed)),
        number(tvd[0] if tvd is not None and len(tvd) else None),
        milliseconds(record.times.recorded).removesuffix(" ms"),
        record.stop_reason.words if record.draft.nodes else "–",
        one_line(text, 60),
    )
