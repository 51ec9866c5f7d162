"""``diagnose``: why a drafter is bad – its wiring tried out, its checkpoint checked."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from analysis.numbers import number, ratio, signed
from app.command_line import option, words
from app.commands import common
from app.commands.options import POSITIVE, Model, Prompts, Set, method
from app.commands.prompts import prompts_of
from app.commands.states import StatesOptions
from app.terminal import FittingTable, ProgressBar, console, one_line, print_lines, say
from core.errors import UserError
from core.methods.registry import choose, find_method

if TYPE_CHECKING:
    from analysis.drafters.diagnosis import Diagnosis
    from analysis.drafters.lint import Remark
    from analysis.drafters.signatures import Signature, Wiring
    from core.decoding.engine import Engine

SHOWN = 4  # depths in the terminal
MOST = 40  # trials of one mistake in the terminal
SAME = (
    "accepted: times as much as configured; nearer: mean TVD less. Both are of the trial's own "
    "places; τ and TVD of fewer places do not compare with other lines"
)


@dataclass(frozen=True, kw_only=True)
class Options(Set, StatesOptions, Prompts, Model):
    """Say why a drafter is bad: try its wiring under every named mistake.

    The command checks the drafter's checkpoint. Then it runs the drafter on the target's own text
    as configured, and again under every named mistake of wiring that applies to it: other layers,
    positions, norms, template, … docs/wiring.md explains each mistake. Several drafters share the
    text and the target's passes.

    With --states the texts and the target's states are read from files. Then only the layers that
    were kept are tried, and no other chat template.

    Exit code 0: nothing is wrong. 1: a mistake is named, or something in the file is wrong. 3: the
    drafter is bad and no mistake explains it, or a mistake makes it better but not yet good. With
    several drafters the largest code counts.
    """

    methods: tuple[str, ...] = words(
        "whose drafters are examined; METHOD@FOLDER names a checkpoint", read=method
    )
    max_new_tokens: int = option(96, "tokens of each text", POSITIVE)
    stride: int = option(3, "tokens between two places that are measured", POSITIVE)
    json: bool = option(False, "signatures and verdict as JSON; for several drafters, JSON lines")


def main(args: Options) -> int:
    from analysis.experiments.prompts import PROMPTS

    for name in args.methods:
        if find_method(name).drafter_info is None:
            raise UserError(f"{name} has no drafter")
    files = args.files()
    if files and prompts_of(args, ()):
        raise UserError("--states gives the prompts and answers: name no others")
    prompts = prompts_of(args, PROMPTS)
    engine = common.load_engine(args, ends=bool(files))
    with ProgressBar("preparing the drafters", late=True) as progress:
        engine.fetch(*args.methods, report=progress.at)
    from analysis.drafters.diagnosis import diagnose
    from analysis.drafters.measuring import Kept, dumped
    from analysis.drafters.wiring import ProbePlan

    plan, kept = ProbePlan(args.max_new_tokens, args.stride), Kept()
    if files:
        plan.check()
        layers = {layer for name in args.methods for layer in _layers(engine, name, args.values)}
        told = (sorted(layers), args.max_new_tokens, args.layers or None, args.begins)
        prompts, kept = dumped(engine.prepare(), files, *told)
    heard: list[Remark] = []

    def hear(remarks: Sequence[Remark]) -> None:
        heard.extend(remarks)
        if not args.json:
            _list(remarks)

    parts = {"options": args.values, "hear": hear, "kept": kept}
    code = 0
    for name in args.methods:
        if len(args.methods) > 1 and not args.json:
            console().print(one_line(name, 200), soft_wrap=True)
        heard.clear()
        with ProgressBar("probing the wiring") as progress:
            found = diagnose(engine, name, prompts, plan, progress.at, **parts)
        if args.json:
            print(json.dumps(found.to_json()))
        else:
            if files:
                say("not tried: layers that were not kept, other chat templates")
            _list([remark for remark in found.seen if remark not in heard])
            _show(found.wiring)
            _next(found)
        code = max(code, found.code)
    return code


def _layers(engine: Engine, method: str, options: Mapping[str, str]) -> tuple[int, ...]:
    drafter = engine.load_drafter(choose(method, options))
    assert drafter is not None  # main refuses a method without one
    return drafter.layers


def _list(remarks: Sequence[Remark]) -> None:
    out = console()
    for remark in remarks:
        mark = "wrong: " if remark.wrong else "       "
        out.print(mark + one_line(remark.text, 300), soft_wrap=True)


def _show(found: Wiring) -> None:
    """The configuration first, then the mistakes from the best to the worst; of one that has very
    many trials, the best few."""
    by_fit = sorted(found.mistakes, key=lambda each: -found.gain(each).mean())
    seen: Counter[str] = Counter()
    shown: list[Signature] = []
    for each in by_fit:
        seen[each.trial.mistake] += 1
        if seen[each.trial.mistake] <= MOST or found.better(each):
            shown.append(each)
    rows = [_row(found, each) for each in (found.configured, *shown)]
    depths = range(1, 1 + min(SHOWN, found.configured.tvd.shape[1]))
    columns = ["", "τ", "accepted", "nearer", *(f"TVD {d}" for d in depths), "places", " "]
    out = console()
    out.print(FittingTable(columns, rows, left=("", " ")))
    out.print(SAME, soft_wrap=True)
    if left := len(by_fit) - len(shown):
        out.print(f"and {left} trials that fit worse than others of their mistake (--json has all)")
    print_lines(out, (*found.said, *found.notes), 600)


def _next(found: Diagnosis) -> None:
    if found.code:
        say("docs/wiring.md says how each mistake comes about, and how to mend it")
        return
    say(f"next: python -m app run {found.method} … --trace run.jsonl.gz, with the same options;")
    say("then: python -m app report run.jsonl.gz says what the tree loses, and what the drafter")


def _row(found: Wiring, each: Signature) -> list[str]:
    own = each is found.configured
    mark = "" if own or not found.better(each) else "fits better"
    if not own and found.unchanged(each):
        mark = "changes nothing"
    often = "" if own else ratio(found.ratio(each))
    nearer = "" if own else signed(float(found.gain(each).mean()), 3)
    far = [number(x, 3) for x in each.tvd.mean(0)[:SHOWN]]
    return [each.trial.name, number(each.tau, 2), often, nearer, *far, str(len(each.at)), mark]
