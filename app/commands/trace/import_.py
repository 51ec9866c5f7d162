"""``trace import``: what another engine counted of served drafts, or DDTree's saved trees."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from app.command_line import CommandOptions, option, words
from app.report.counted import sheets, strips
from app.terminal import console, one_line, print_lines, say
from core.errors import UserError
from core.traces.schema import ENDINGS

if TYPE_CHECKING:
    from analysis.measures.counts import Counts

STRIP = 240  # rounds that the terminal shows


@dataclass(frozen=True, kw_only=True)
class Options(CommandOptions):
    """Read what an engine counted of its drafts, without trees.

    It reads a log with vLLM's lines 'SpecDecoding metrics', SGLang's 'accept len', llama.cpp's
    'draft acceptance' or TensorRT-LLM's iterations; a metrics page (Prometheus) of the four; their
    responses, or what `vllm bench serve` saved, as .json or one a line in .jsonl; LM Studio's
    fragments; a dump of verifications (LLAMA_SPEC_DUMP); a speculation_profile.json.
    docs/record.md has the forms.

    It shows τ and acceptance by place. Sentences say what follows and what does not. DDTree's saved
    trees become a trace: name it with --out.
    """

    file: Path = words("what an engine wrote: a log, a metrics page, .json or .jsonl")
    json: bool = option(False, "the counts and sentences as JSON")
    out: Path | None = option(None, "the trace of saved trees")


def main(args: Options) -> int:
    from analysis.engines.served import read_served
    from analysis.engines.trees import write_trees
    from analysis.kinds import BENCHED, TREES, kind_of
    from analysis.measures.counts_in_words import sentences
    from analysis.numbers import plural

    kind = kind_of(args.file)
    if kind == BENCHED:  # before its Infinity is refused as no number of JSON
        raise UserError(f"{args.file} is {kind}")
    if kind == TREES:
        if args.out is None or not args.out.name.endswith(ENDINGS):
            raise UserError("these are trees: name a trace for them, --out FILE.jsonl.gz")
        rounds = plural(write_trees(args.file, args.out), "round")
        say(f"{args.out}: {rounds}, without q and p")
        return 0
    counts = read_served(args.file)
    if args.out is not None:
        raise UserError(f"{args.file} holds counts without trees: no trace can be made of them")
    said = list(sentences(counts))
    if args.json:
        print(json.dumps(counts.to_json() | {"sentences": said}))
    else:
        _show(counts, said)
    return 0


def _show(counts: Counts, said: Sequence[str]) -> None:
    from analysis.measures.counts import LABEL

    out = console()
    out.print(f"{counts.engine}, {LABEL}", style="bold")
    for sheet in sheets(counts):
        if sheet.title:
            out.print(f"\n{sheet.title}", style="bold")
        out.print(sheet)
    for title, marks in strips(counts):
        out.print(f"\n{title}", style="bold")
        out.print(one_line(marks, STRIP), soft_wrap=True)
    out.print()
    print_lines(out, said, 600)
