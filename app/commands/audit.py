"""``audit``: decode both ways, plainly and with a method, and report the first difference."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from analysis.numbers import plural
from app.command_line import option
from app.commands import common
from app.commands.options import BUDGETS, POSITIVE, MethodOptions, RequestOptions
from app.commands.prompts import prompts_of
from app.terminal import ProgressBar, one_line
from core.chat import last_message
from core.methods.method import file_name
from core.methods.registry import deciding_budget
from core.ranges import Range

if TYPE_CHECKING:
    from analysis.experiments.audit import Comparison, Mismatch
    from core.decoding.request import RunRequest


@dataclass(frozen=True, kw_only=True)
class Options(MethodOptions, RequestOptions):
    """Check that a method writes exactly what plain decoding writes, greedy and sampled.

    On a CPU in float32 no token may differ. In bfloat16 a token may differ only where the two best
    scores tie within 4 units in the last place; such ties are counted and shown. A method whose
    verification rule keeps only the distribution writes another text when it samples. Then the
    distribution of its tokens is tested against the target's. Exit code 1 when a token differs
    and no tie explains it, or when a distribution differs.
    """

    budget: tuple[int, ...] = option((7, 64), "drafted nodes a round", BUDGETS)
    max_new_tokens: int = option(64, "tokens to write at most", POSITIVE)
    temperature: float = option(
        1.0, "temperature of the sampled texts; 0: check only greedy ones", Range(0)
    )
    json: bool = option(False, "one JSON object per check on stdout")


def main(args: Options) -> int:
    from analysis.experiments.prompts import PROMPTS

    requests = _requests(args, prompts_of(args, PROMPTS))
    engine = common.load_engine(args, [requests[0].method])
    chosen = requests[0].resolved.chosen
    drafter = engine.load(chosen).drafter
    requests = _apart(requests, drafter.max_depth if drafter else 0, chosen.method.is_chain)
    from analysis.experiments.audit import audit

    findings, width = [], max(len(_name(request)) for request in requests)
    with ProgressBar("auditing", len(requests)) as progress:
        progress.at(0)
        for finding in audit(engine, requests):
            findings.append(finding)
            print(json.dumps(_to_json(finding)) if args.json else _line(finding, width), flush=True)
            progress.at(len(findings))
    if not args.json:
        print(_conclusion(findings))
    return 0 if all(finding.lossless for finding in findings) else 1


def _requests(args: Options, prompts: Sequence[str]) -> list[RunRequest]:
    """Every prompt × greedy and sampled × budget. Raises UserError for a setting out of range."""
    sampled = common.request_of(args, args.method)
    greedy = replace(sampled, temperature=0.0, top_k=0, top_p=1.0)
    requests = [
        replace(request, prompt=prompt, budget=budget)
        for prompt in prompts
        for request in dict.fromkeys((greedy, sampled))
        for budget in args.budget
    ]
    for request in requests:
        request.check()
    return requests


def _apart(requests: Sequence[RunRequest], depth: int, chain: bool) -> list[RunRequest]:
    """Leave out repeats: a budget that decides nothing for a drafter of this depth becomes None."""
    return list(
        dict.fromkeys(
            replace(each, budget=deciding_budget(each.method, each.budget, depth, chain))
            for each in requests
        )
    )


def _name(request: RunRequest) -> str:
    size = "" if request.budget is None else f" B={request.budget}"
    return one_line(file_name(request.method), 40) + size


def _line(finding: Comparison, width: int) -> str:
    request = finding.request
    sampling = f"T={request.temperature:g} seed {request.seed}" if request.temperature else "greedy"
    tokens, prompt = f"{finding.tokens} tokens", one_line(last_message(request.prompt), 30)
    row = f"{_name(request):<{width}}  {sampling:<12}  {tokens:<10}  {prompt:<30}"
    return f"{row}  {_verdict(finding)}"


def _verdict(finding: Comparison) -> str:
    if finding.distribution is not None:
        from analysis.experiments.distribution import sentence

        verdict = "same distribution" if finding.lossless else "ANOTHER DISTRIBUTION"
        return f"{verdict}: {sentence(finding.distribution)}"
    found = finding.difference
    return "same" if found is None else _difference(found, finding.request.method)


def _difference(found: Mismatch, method: str) -> str:
    return (
        f"{'tie' if found.tied else 'DIFFERENT'} at new token {found.index}: plain {found.plain}, "
        f"{method} {found.method}; top-1/top-2 gap {found.margin.gap:.3g}, "
        f"tie bound {found.margin.bound:.3g}"
    )


def _conclusion(findings: Sequence[Comparison]) -> str:
    texts = [f for f in findings if f.distribution is None]
    tested = len(findings) - len(texts)
    wrong = sum(not f.lossless for f in findings)
    ties = sum(f.difference is not None and f.difference.tied for f in texts)
    tokens = sum(f.tokens for f in texts)
    parts = [f"{plural(len(texts), 'comparison')}, {tokens} tokens, {ties} differences in ties"]
    if tested:
        parts = parts if texts else []
        parts.append(f"{plural(tested, 'test')} of the distribution: no token is compared there")
    verdict = f"{wrong} of {len(findings)} differ" if wrong else "lossless"
    if tested and not wrong:
        verdict = "lossless in distribution"
    return f"{verdict}: {'; '.join(parts)}"


def _to_json(finding: Comparison) -> dict[str, Any]:
    found, tested = finding.difference, finding.distribution
    return {
        **asdict(finding.request),
        "tokens": finding.tokens,
        "rounds": finding.rounds,
        "same": tested is None and found is None,
        "lossless": finding.lossless,
        # a text that differs in its first token has no measured gap: null, JSON knows no NaN
        "difference": _finite(asdict(found)) | {"tied": found.tied} if found else None,
        "distribution": _finite(asdict(tested)) if tested else None,
    }


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    return None if value != value else value
