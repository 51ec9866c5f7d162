"""``audit``: decode both ways, plainly and with a method, and report the first difference.

Exit code 1 when a token differs beyond a tie.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from app.commands import common
from app.terminal import Progress, one_line

if TYPE_CHECKING:
    from analysis.audit import Finding
    from core.decoding.engine import RunRequest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Check that a method writes exactly what plain decoding writes, greedy and sampled.\n"
        "On a CPU in float32 no token may differ. In bfloat16 a token may differ only where the\n"
        "two best scores tie within 4 units in the last place; such ties are counted and shown.\n"
        "Exit code 1 when a token differs beyond that."
    )
    common.add_method_options(parser)
    common.add_prompt_options(parser, required=False)
    group = parser.add_argument_group("decoding")
    group.add_argument(
        "--budget",
        type=common.whole,
        nargs="+",
        metavar="N",
        help="one or several budgets (default 7 64)",
    )
    group.add_argument(
        "--max-new-tokens", type=common.whole, default=64, metavar="N", help="default 64"
    )
    common.add_sampling_options(parser, temperature=1.0)
    common.add_model_options(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object per check on stdout")


def main(args: argparse.Namespace) -> int:
    prompts = common.chosen_prompts(args)
    if not prompts:
        from analysis.prompts import PROMPTS

        prompts = list(PROMPTS)
    requests = _requests(args, prompts)
    engine = common.load_engine(args, [request.method for request in requests])
    engine.method(requests[0].method, dict(requests[0].options))
    from analysis.audit import audit

    findings = []
    with Progress("auditing", len(requests)) as progress:
        progress.at(0)
        for finding in audit(engine, requests):
            findings.append(finding)
            if args.json:
                print(json.dumps(_as_json(finding)), flush=True)
            else:
                print(_line(finding), flush=True)
            progress.at(len(findings))
    return _conclude(findings, args.json)


def _requests(args: argparse.Namespace, prompts: Sequence[str]) -> list[RunRequest]:
    """Every prompt × greedy and sampled × budget. Raises UserError for a setting out of range."""
    asked = common.asked(args, common.chosen_method(args))
    greedy = replace(asked, temperature=0.0, top_k=0, top_p=1.0)
    requests = [
        replace(rule, prompt=prompt, budget=budget)
        for prompt in prompts
        for rule in dict.fromkeys((greedy, asked))
        for budget in args.budget or (7, 64)
    ]
    for request in requests:
        request.settings()
    return requests


def _line(finding: Finding) -> str:
    asked, found = finding.request, finding.difference
    rule = "greedy" if asked.temperature == 0 else f"T={asked.temperature:g} seed {asked.seed}"
    if found is None:
        verdict = "same"
    else:
        gap, bound = found.margin.gap, found.margin.bound
        kind = "tie" if found.tied else "DIFFERENT"
        verdict = (
            f"{kind} at new token {found.index}: plain {found.plain}, {asked.method} "
            f"{found.method}; top-1/top-2 gap {gap:.3g}, tie bound {bound:.3g}"
        )
    what = f"{asked.method} B={asked.budget}"
    count = f"{finding.tokens} tokens"
    return f"{what:<14} {rule:<14} {count:<11} {verdict}  {one_line(asked.prompt, 40)}"


def _conclude(findings: Sequence[Finding], as_json: bool) -> int:
    """The last line, and the exit code."""
    ties = sum(f.difference is not None and f.difference.tied for f in findings)
    wrong = sum(not f.lossless for f in findings)
    tokens = sum(f.tokens for f in findings)
    if not as_json:
        verdict = f"{wrong} of {len(findings)} differ" if wrong else "lossless"
        counts = f"{len(findings)} comparisons, {tokens} tokens, {ties} differences in ties"
        print(f"{verdict}: {counts}")
    return 1 if wrong else 0


def _as_json(finding: Finding) -> dict[str, Any]:
    asked, found = finding.request, finding.difference
    return {
        **asdict(asked),
        "tokens": finding.tokens,
        "rounds": finding.rounds,
        "same": found is None,
        "lossless": finding.lossless,
        # a text that differs in its first token has no measured gap: null, JSON knows no NaN
        "difference": _finite(asdict(found)) | {"tied": found.tied} if found else None,
    }


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    return None if value != value else value
