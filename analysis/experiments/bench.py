"""End-to-end comparison of methods and budgets, on the same prompts in one run.

Compared are plain decoding with our engine, Hugging Face's ``generate`` on the same weights (with
its own SDPA attention, cache and layers) without and with prompt lookup, and every method × budget.
On every prompt and repeat each decodes once, in an order that changes every time, so that a slow
minute of the machine hits all of them. Timers wait for the device between stages only where the
plan's request is ``timed``. Between turns the machine's own limits are measured, for the roofline
beside the figures.

Seconds run from the prompt's ids to the last new token, prefill included.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import torch
from transformers import PreTrainedModel

from analysis.experiments.roofline import (
    Drafting,
    Forward,
    Gauge,
    Machine,
    Passes,
    Work,
    passes_of,
    plain_passes,
)
from analysis.experiments.variants import Variant, variants_of
from core.decoding.engine import Engine
from core.decoding.request import RunRequest
from core.methods.method import Value
from core.methods.names import PLAIN
from core.models.fast_layers import can_pack
from core.models.language import load_language
from core.rounds.round import new_tokens
from core.traces.schema import summary

GENERATE = "generate"
LOOKUP = 10  # prompt_lookup_num_tokens, the value transformers' own documentation uses
Report = Callable[[int, str], None]  # (decodings done, what comes next)


@dataclass(frozen=True)
class Plan:
    """What is decoded: prompts, the requests' common settings, how often."""

    prompts: tuple[str, ...]
    request: RunRequest
    repeats: int = 3


@dataclass(frozen=True)
class Timing:
    """One decoding.

    lengths  accepted + 1 of every round; None for generate, whose rounds are not known
    passes   its forwards; None where they are not known (prompt lookup)
    stages   seconds of each stage over all rounds; None where they are not known
    """

    variant: Variant
    prompt: int
    seconds: float
    tokens: tuple[int, ...]
    lengths: tuple[int, ...] | None
    passes: Passes | None = None
    stages: Mapping[str, float] | None = None

    @property
    def rounds(self) -> float | None:
        """Seconds of its rounds, without prefill."""
        return sum(self.stages.values()) if self.stages is not None else None


@dataclass(frozen=True)
class Row:
    """One variant's result: medians over repeats, then over prompts.

    tau  Σ acceptance lengths ÷ rounds, of all runs together; None where they are not known
    plain_ratio, generate_ratio  how many times its tokens/s is that of plain / of generate, the
    median over prompts of the ratios of medians. same, prompts  on how many prompts the tokens
    equal plain decoding's in every repeat
    """

    name: str
    method: str
    budget: int
    tau: float | None
    seconds: float
    tokens_per_second: float
    plain_ratio: float
    generate_ratio: float
    same: int
    prompts: int

    @property
    def identical(self) -> bool:
        return self.same == self.prompts


@dataclass(frozen=True)
class Roof:
    """A variant beside the machine's limits; numbers of a round are means over its rounds.

    rows     that the target scored, root included
    bytes, flops  of a round's forwards, the drafter's included
    floor    seconds a round takes at least, ``bound`` by "memory" or "compute"
    seconds  a round took, and ``reached``, the floor's share of it: medians as in ``Row``; None
             for generate, whose prompt is not timed apart
    whole    the share of a whole decoding, prefill included
    """

    name: str
    rows: float
    bytes: float
    flops: float
    floor: float
    bound: str
    seconds: float | None
    reached: float | None
    whole: float


def with_baselines(
    methods: Sequence[str], budgets: Sequence[int], options: Mapping[str, Value] | None = None
) -> tuple[Variant, ...]:
    """Baselines first, then every method × budget (``variants_of``, which raises UserError)."""
    baselines = (
        Variant("plain", PLAIN),
        Variant("generate", None),
        Variant("generate + lookup", None, lookup=LOOKUP),
    )
    drafting = [name for name in methods if name != PLAIN]
    return baselines + variants_of(drafting, budgets, options)


@dataclass(frozen=True)
class Result:
    """What a benchmark measured."""

    timings: list[Timing]
    machine: Machine


@dataclass(frozen=True, eq=False)
class _Decoders:
    """Our engine and transformers' model on the same weights; ``forward``: what either computes."""

    engine: Engine
    reference: PreTrainedModel
    forward: Forward


def bench(
    engine: Engine, plan: Plan, variants: Sequence[Variant], report: Report = lambda *_: None
) -> Result:
    """All timings, in the order they were taken. The first decoding of each is not counted."""
    language, found = engine.prepare(), list[Timing]()
    gauge = Gauge(language.device, language.model.dtype)
    for timing in timings(engine, plan, variants, report):
        if len(found) % len(variants) == 0:
            gauge.sample()
        found.append(timing)
    return Result(found, gauge.machine)


def timings(
    engine: Engine,
    plan: Plan,
    variants: Sequence[Variant],
    report: Report = lambda *_: None,
    done: Callable[[int, Variant], bool] = lambda prompt, variant: False,
) -> Iterator[Timing]:
    """Timings as they are taken, in an order that changes from prompt to prompt. What is ``done``
    (the prompt's number, the variant) is left out."""
    remaining = [turn for turn in _schedule(plan, variants) if not done(*turn)]
    if not remaining:
        return
    forward = Forward.of(engine.prepare().model)
    decoders = _Decoders(engine, as_transformers_runs_it(engine), forward)
    for variant in dict.fromkeys(variant for _, variant in remaining):
        report(0, f"warming up {variant.name}")
        short = replace(plan.request, prompt=plan.prompts[0], max_new_tokens=4)
        _decode(decoders, variant, short)
    for turn, (prompt, variant) in enumerate(remaining):
        report(turn, variant.name)
        request = replace(plan.request, prompt=plan.prompts[prompt])
        yield replace(_decode(decoders, variant, request), prompt=prompt)


def _schedule(plan: Plan, variants: Sequence[Variant]) -> Iterator[tuple[int, Variant]]:
    """Every prompt in every repeat; the order rotates from one to the next and turns around."""
    turn = 0
    for _ in range(plan.repeats):
        for prompt in range(len(plan.prompts)):
            start = turn // 2 % len(variants)
            order = [*variants[start:], *variants[:start]]
            yield from ((prompt, c) for c in (order if turn % 2 == 0 else reversed(order)))
            turn += 1


def _decode(decoders: _Decoders, variant: Variant, request: RunRequest) -> Timing:
    if variant.method is None:
        return _generate(decoders, variant, request)
    own = replace(
        request,
        method=variant.method,
        budget=variant.budget,
        options=variant.options,
    )
    run = decoders.engine.start(own)
    start = time.perf_counter()
    rounds = list(run.rounds)
    seconds, numbers = time.perf_counter() - start, summary(rounds)
    drafting = Drafting.of(decoders.engine.drafter(variant.method, dict(variant.options)))
    return Timing(
        variant,
        0,
        seconds,
        tokens=tuple(new_tokens(rounds)),
        lengths=tuple(numbers["acceptance_lengths"]),
        passes=passes_of(decoders.forward, drafting, len(run.header.prompt_ids), rounds),
        stages=numbers["seconds"],
    )


def _generate(decoders: _Decoders, variant: Variant, request: RunRequest) -> Timing:
    model, language = decoders.reference, decoders.engine.prepare()
    ids = torch.tensor([language.encode_chat(request.prompt)], device=model.device)
    more: dict[str, Any] = {"prompt_lookup_num_tokens": LOOKUP} if variant.lookup else {}
    if request.temperature > 0:
        more |= {"do_sample": True, "temperature": request.temperature}
        more |= {"top_k": request.top_k, "top_p": request.top_p}
        torch.manual_seed(request.seed)
    else:
        more |= {"do_sample": False, "temperature": None, "top_k": None, "top_p": None}
    stops = model.generation_config.eos_token_id if model.generation_config else None
    pad = stops[0] if isinstance(stops, list) else stops
    start = time.perf_counter()
    out = model.generate(  # pyright: ignore[reportCallIssue]
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=request.max_new_tokens,
        pad_token_id=pad,
        **more,
    )
    tokens = tuple(out[0, ids.shape[1] :].tolist())  # this waits for the device
    seconds = time.perf_counter() - start
    counted = None
    if not variant.lookup:
        counted = plain_passes(decoders.forward, ids.shape[1], len(tokens))
    return Timing(variant, 0, seconds, tokens, None, counted)


def as_transformers_runs_it(engine: Engine) -> PreTrainedModel:
    """The target as users of transformers run it: its own SDPA attention, plain linear layers.

    On a GPU it shares the engine's weights; a CPU's are packed, so there it is loaded once more.
    """
    language = engine.prepare()
    if can_pack(language.model.dtype, language.device):
        model = load_language(engine.model, engine.device, fast=False).model
        model.set_attn_implementation("sdpa")
        return model
    shared = {id(t): t for t in (*language.model.parameters(), *language.model.buffers())}
    model = copy.deepcopy(language.model, shared)
    model.set_attn_implementation("sdpa")
    return model


def rows(timings: Sequence[Timing], variants: Sequence[Variant]) -> list[Row]:
    """The table, in the order of ``variants``."""
    by: dict[Variant, dict[int, list[Timing]]] = {}
    for timing in timings:
        by.setdefault(timing.variant, {}).setdefault(timing.prompt, []).append(timing)
    pace = {
        c: {p: median(len(t.tokens) / t.seconds for t in ts) for p, ts in prompts.items()}
        for c, prompts in by.items()
    }
    plain = next(c for c in by if c.method == PLAIN)
    generate = next((c for c in by if c.method is None and not c.lookup), plain)
    texts = {p: ts[0].tokens for p, ts in by[plain].items()}

    def row(variant: Variant) -> Row:
        prompts, own = by[variant], pace[variant]
        lengths = [n for ts in prompts.values() for t in ts for n in t.lengths or ()]
        return Row(
            name=variant.name,
            method=variant.method or GENERATE,
            budget=variant.budget,
            tau=sum(lengths) / len(lengths) if lengths else None,
            seconds=median(median(t.seconds for t in ts) for ts in prompts.values()),
            tokens_per_second=median(own.values()),
            plain_ratio=median(own[p] / pace[plain][p] for p in own),
            generate_ratio=median(own[p] / pace[generate][p] for p in own),
            same=sum(all(t.tokens == texts[p] for t in ts) for p, ts in prompts.items()),
            prompts=len(prompts),
        )

    return [row(variant) for variant in variants]


def roofs(result: Result, variants: Sequence[Variant]) -> list[Roof]:
    """The roofline beside ``rows``, for those whose forwards are known."""
    found = []
    for variant in variants:
        own = [
            (timing, timing.passes)
            for timing in result.timings
            if timing.variant == variant and timing.passes and timing.passes.rounds
        ]
        if own:
            found.append(_roof(variant, own, result.machine))
    return found


def _roof(variant: Variant, own: Sequence[tuple[Timing, Passes]], machine: Machine) -> Roof:
    rounds = [r for _, passes in own for r in passes.rounds]
    total = sum((passes.total for _, passes in own), Work())

    def floor(passes: Passes) -> float:
        return sum(map(machine.floor, passes.rounds))

    def middle(value: Callable[[Timing, Passes], float]) -> float:
        """The median over repeats, then over prompts."""
        by: dict[int, list[float]] = {}
        for timing, passes in own:
            by.setdefault(timing.prompt, []).append(value(timing, passes))
        return median(map(median, by.values()))

    timed = all(timing.rounds for timing, _ in own)
    return Roof(
        name=variant.name,
        rows=sum(passes.rows for _, passes in own) / len(rounds),
        bytes=total.bytes / len(rounds),
        flops=total.flops / len(rounds),
        floor=sum(floor(passes) for _, passes in own) / len(rounds),
        bound=machine.bound([work for r in rounds for work in r]),
        seconds=middle(lambda t, p: (t.rounds or 0) / len(p.rounds)) if timed else None,
        reached=middle(lambda t, p: floor(p) / (t.rounds or 1)) if timed else None,
        whole=middle(lambda t, p: (machine.floor(p.prompt) + floor(p)) / t.seconds),
    )
