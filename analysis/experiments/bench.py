"""End-to-end comparison of methods and budgets, on the same prompts in one run.

Compared are plain decoding with our engine, Hugging Face's ``generate`` on the same weights (with
its own SDPA attention, cache and layers) without and with prompt lookup, llama.cpp on the file that
the weights come from where it is asked for, and every method × budget. On every prompt and repeat
each decodes once, in an order that changes every time, so that a slow minute of the machine hits
all of them. Timers wait for the device between stages only where the plan's request is ``timed``.
Between turns the machine's own limits are measured, for the roofline beside the figures.

Seconds run from the prompt's ids to the last new token, prefill included. Those after the prompt's
own pass, which gives the first token, are kept beside them.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from statistics import median
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.generation.streamers import BaseStreamer

from analysis.experiments.llama_cpp import LlamaCpp
from analysis.experiments.roofline import (
    Drafting,
    Forward,
    Gauge,
    Machine,
    Passes,
    RoundWork,
    Work,
    passes_of,
    plain_passes,
)
from analysis.experiments.variants import GENERATE, LLAMA_CPP, Variant, variants_of
from analysis.measures.checkpoints import common_length
from core.decoding.engine import Engine
from core.decoding.request import RunRequest
from core.methods.method import Value, shown_name
from core.methods.names import PLAIN
from core.methods.registry import choose
from core.models.fast_layers import can_pack
from core.models.language import load_language
from core.progress import Steps, silent
from core.rounds.round import Times, new_tokens
from core.traces.schema import summary

LOOKUP = 10  # prompt_lookup_num_tokens, the value transformers' own documentation uses


@dataclass(frozen=True)
class Workload:
    """The work of a benchmark: prompts, the requests' common settings, how often."""

    prompts: tuple[str, ...]
    request: RunRequest
    repeats: int = 3


@dataclass(frozen=True)
class Timing:
    """One decoding.

    lengths  accepted + 1 of every round; None for another engine
    passes   its forwards; None where they are not known (prompt lookup)
    stages   seconds of each stage over all rounds, of another engine all in "verify"; None where
             they are not known (prompt lookup, generate on a GPU)
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
class BenchRow:
    """One variant's result: medians over repeats, then over prompts.

    tau  Σ acceptance lengths ÷ rounds, of all runs together; None where they are not known
    decoding  tokens per second after the first, which the prompt's own pass gives; None where that
    pass is not timed apart
    plain_ratio, generate_ratio  how many times its tokens/s is that of plain / of generate, the
    median over prompts of the ratios of medians
    turns  the smallest and the largest ratio to plain of single decodings, each beside plain's of
    the same turn
    same, prompts  on how many prompts the tokens equal plain decoding's in every repeat; parts  by
    prompt, how many tokens they have in common with plain decoding's before they part, None where
    they do not. keeps_text  whether they must
    not part
    """

    name: str
    method: str
    budget: int
    tau: float | None
    seconds: float
    tokens_per_second: float
    decoding: float | None
    plain_ratio: float
    generate_ratio: float
    turns: tuple[float, float]
    parts: tuple[int | None, ...]
    keeps_text: bool

    @property
    def prompts(self) -> int:
        return len(self.parts)

    @property
    def same(self) -> int:
        return self.parts.count(None)

    @property
    def identical(self) -> bool:
        return self.same == self.prompts


@dataclass(frozen=True, kw_only=True)
class Floor:
    """The least work that must be done, beside the time it took; means over rounds.

    bytes, flops  to move and to compute, at least
    floor    seconds that takes at least, ``bound`` by "memory" or "compute"; None where nothing is
             counted
    seconds  it took, and ``reached``, the floor's share of it: medians as in ``Row``; None where
             the prompt is not timed apart
    """

    bytes: float
    flops: float
    floor: float | None
    bound: str | None
    seconds: float | None
    reached: float | None


@dataclass(frozen=True, kw_only=True)
class Roof(Floor):
    """A variant's rounds beside the machine's limits.

    rows    that the target scored, root included
    whole   the floor's share of a whole decoding, prefill included
    stages  each stage that took time; empty where stages are not timed apart
    """

    name: str
    rows: float
    whole: float
    stages: Mapping[str, Floor]


def with_baselines(
    methods: Sequence[str], budgets: Sequence[int], options: Mapping[str, Value] | None = None
) -> tuple[Variant, ...]:
    """Baselines first, llama.cpp if ``methods`` name it, then every method × budget
    (``variants_of``, which raises UserError)."""
    baselines = (
        Variant(shown_name(PLAIN), PLAIN),
        Variant("generate", None),
        Variant("generate + lookup", None, lookup=LOOKUP),
    )
    if LLAMA_CPP in methods:
        baselines += (Variant(LLAMA_CPP, None, engine=LLAMA_CPP),)
    drafting = [name for name in methods if name not in (PLAIN, LLAMA_CPP)]
    return baselines + variants_of(drafting, budgets, options)


def that_run(variants: Sequence[Variant], model: PreTrainedModel) -> tuple[Variant, ...]:
    """Those that can decode with this target: transformers' prompt lookup takes back what it
    guessed, and it does not know how where layers carry a state."""
    stateful = getattr(model, "_is_stateful", False)
    return tuple(v for v in variants if not (v.lookup and stateful))


@dataclass(frozen=True)
class Result:
    """The timings of a benchmark. ``staged``: whether stages were timed apart."""

    timings: list[Timing]
    machine: Machine
    staged: bool = True


@dataclass(frozen=True, eq=False)
class _Decoders:
    """Our engine and transformers' model on the same weights; ``forward``: what either computes.
    ``llama`` where llama.cpp decodes too."""

    engine: Engine
    reference: PreTrainedModel
    forward: Forward
    llama: LlamaCpp | None


def bench(
    engine: Engine,
    plan: Workload,
    variants: Sequence[Variant],
    report: Steps = silent,
    llama: LlamaCpp | None = None,
) -> Result:
    """All timings, in the order they were taken. The first decoding of each is not counted."""
    language, found = engine.prepare(), list[Timing]()
    gauge = Gauge(language.device, language.model.dtype)
    for timing in timings(engine, plan, variants, report, llama=llama):
        if len(found) % len(variants) == 0:
            gauge.sample()
        found.append(timing)
    return Result(found, gauge.machine, plan.request.timed or language.device.type == "cpu")


def timings(
    engine: Engine,
    plan: Workload,
    variants: Sequence[Variant],
    report: Steps = silent,
    done: Callable[[int, Variant], bool] = lambda prompt, variant: False,
    llama: LlamaCpp | None = None,
) -> Iterator[Timing]:
    """Timings as they are taken, in an order that changes from prompt to prompt. What is ``done``
    (the prompt's number, the variant) is left out. A variant of llama.cpp needs ``llama``."""
    remaining = [turn for turn in _schedule(plan, variants) if not done(*turn)]
    if not remaining:
        return
    forward = Forward.of(engine.prepare().model)
    decoders = _Decoders(engine, as_transformers_runs_it(engine), forward, llama)
    for variant in dict.fromkeys(variant for _, variant in remaining):
        report(0, f"warming up {variant.name}")
        short = replace(plan.request, prompt=plan.prompts[0], max_new_tokens=4)
        _decode(decoders, variant, short)
    for turn, (prompt, variant) in enumerate(remaining):
        report(turn, variant.name)
        request = replace(plan.request, prompt=plan.prompts[prompt])
        yield replace(_decode(decoders, variant, request), prompt=prompt)


def _schedule(plan: Workload, variants: Sequence[Variant]) -> Iterator[tuple[int, Variant]]:
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
        other = _llama if variant.engine == LLAMA_CPP else _generate
        return other(decoders, variant, request)
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
    chosen = choose(variant.method, dict(variant.options))
    drafting = Drafting.of(decoders.engine.load_drafter(chosen))
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
    # handing out every token makes a GPU wait for it: there the prompt is not timed apart
    first = _FirstToken() if model.device.type == "cpu" and not variant.lookup else None
    start = time.perf_counter()
    out = model.generate(  # pyright: ignore[reportCallIssue]
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=request.max_new_tokens,
        pad_token_id=pad,
        streamer=first,
        **more,
    )
    tokens = tuple(out[0, ids.shape[1] :].tolist())  # this waits for the device
    end = time.perf_counter()
    counted = None
    if not variant.lookup:
        counted = plain_passes(decoders.forward, ids.shape[1], len(tokens))
    stages = {"verify": end - first.at} if first else None
    return Timing(variant, 0, end - start, tokens, None, counted, stages)


class _FirstToken(BaseStreamer):
    """When ``generate`` had its first new tokens: it hands out the prompt before."""

    def __init__(self) -> None:
        self._handed, self.at = 0, 0.0

    def put(self, value: Any) -> None:
        self._handed += 1
        if self._handed == 2:
            self.at = time.perf_counter()

    def end(self) -> None:
        """Nothing waits."""


def _llama(decoders: _Decoders, variant: Variant, request: RunRequest) -> Timing:
    language, llama = decoders.engine.prepare(), decoders.llama
    assert llama is not None, "a variant of llama.cpp needs it loaded"
    prompt = language.encode_chat(request.prompt)
    text = llama.decode(prompt, request.max_new_tokens, language.stop_ids)
    stored = decoders.forward.stored(llama.bytes, cache=torch.float16)
    counted = plain_passes(stored, len(prompt), len(text.tokens))
    seconds, stages = text.prompt_seconds + text.seconds, {"verify": text.seconds}
    return Timing(variant, 0, seconds, text.tokens, None, counted, stages)


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


def rows(
    timings: Sequence[Timing], variants: Sequence[Variant], request: RunRequest
) -> list[BenchRow]:
    """The table, in the order of ``variants``, which decoded as ``request`` says."""
    by: dict[Variant, dict[int, list[Timing]]] = {}
    for timing in timings:
        by.setdefault(timing.variant, {}).setdefault(timing.prompt, []).append(timing)
    pace = {
        c: {p: median(len(t.tokens) / t.seconds for t in ts) for p, ts in prompts.items()}
        for c, prompts in by.items()
    }
    plain = next(c for c in by if c.method == PLAIN)
    generate = next((c for c in by if c == Variant(GENERATE, None)), plain)
    texts = {p: ts[0].tokens for p, ts in by[plain].items()}

    def row(variant: Variant) -> BenchRow:
        prompts, own = by[variant], pace[variant]
        lengths = [n for ts in prompts.values() for t in ts for n in t.lengths or ()]
        return BenchRow(
            name=variant.name,
            method=variant.method or variant.engine,
            budget=variant.budget,
            tau=sum(lengths) / len(lengths) if lengths else None,
            seconds=median(median(t.seconds for t in ts) for ts in prompts.values()),
            tokens_per_second=median(own.values()),
            decoding=_decoding(prompts.values()),
            plain_ratio=median(own[p] / pace[plain][p] for p in own),
            generate_ratio=median(own[p] / pace[generate][p] for p in own),
            turns=(min(ratios := _by_turn(prompts, by[plain])), max(ratios)),
            parts=tuple(_parts(texts[p], ts) for p, ts in sorted(prompts.items())),
            keeps_text=_keeps_text(variant, request),
        )

    return [row(variant) for variant in variants]


def _by_turn(
    own: Mapping[int, Sequence[Timing]], plain: Mapping[int, Sequence[Timing]]
) -> list[float]:
    """Tokens per second ÷ plain decoding's, of every decoding in the turn that both had."""
    pairs = (pair for prompt in own for pair in zip(own[prompt], plain[prompt], strict=True))
    return [len(a.tokens) / a.seconds / (len(b.tokens) / b.seconds) for a, b in pairs]


def _keeps_text(variant: Variant, request: RunRequest) -> bool:
    """Another engine does where it is as exact and decodes greedily: it draws other noise."""
    if variant.method is None:
        return variant.engine == GENERATE and request.temperature == 0
    return replace(request, method=variant.method, options=variant.options).keeps_text


def _decoding(prompts: Iterable[Sequence[Timing]]) -> float | None:
    """Tokens per second after the first of each text; None where no time or no token is known."""
    paces = [
        [(len(t.tokens) - 1) / t.rounds for t in timings if t.rounds and len(t.tokens) > 1]
        for timings in prompts
    ]
    return median(map(median, paces)) if all(paces) else None


def _parts(text: Sequence[int], timings: Sequence[Timing]) -> int | None:
    """After how many tokens one of the timings' first leaves a text; None: all are that text."""
    return next((common_length(text, t.tokens) for t in timings if t.tokens != text), None)


def roofs(result: Result, variants: Sequence[Variant]) -> list[Roof]:
    """The roofline beside ``rows``, for those whose forwards are known."""
    found = []
    for variant in variants:
        own = [
            _Held(timing, timing.passes)
            for timing in result.timings
            if timing.variant == variant and timing.passes and timing.passes.rounds
        ]
        if own:
            found.append(_roof(variant, own, result))
    return found


@dataclass(frozen=True)
class _Held:
    """A timing held against what it had to do."""

    timing: Timing
    passes: Passes

    def floor(self, machine: Machine, stage: str | None = None) -> float:
        """Seconds of its rounds, or of one stage of them, at least."""
        return sum(machine.floor(_works(work, stage)) for work in self.passes.rounds)

    def seconds(self, stage: str | None = None) -> float | None:
        """Seconds they took; None where that is not known."""
        if stage is None or self.timing.stages is None:
            return self.timing.rounds
        return self.timing.stages.get(stage)


def _works(work: RoundWork, stage: str | None) -> tuple[Work, ...]:
    return work.passes if stage is None else work.stage(stage)


def _roof(variant: Variant, own: Sequence[_Held], result: Result) -> Roof:
    machine, rounds = result.machine, sum(len(held.passes.rounds) for held in own)
    stages = [f.name for f in fields(Times)] if variant.method and result.staged else []
    taking = [name for name in stages if all(held.seconds(name) for held in own)]
    return Roof(
        **vars(_floor(own, machine)),
        name=variant.name,
        rows=sum(held.passes.rows for held in own) / rounds,
        whole=_middle(
            own,
            lambda h: (machine.floor(h.passes.prompt) + h.floor(machine)) / h.timing.seconds,
        ),
        stages={name: _floor(own, machine, name) for name in taking},
    )


def _floor(own: Sequence[_Held], machine: Machine, stage: str | None = None) -> Floor:
    """Of whole rounds, or of one stage of them."""
    rounds = [work for held in own for work in held.passes.rounds]
    works = [each for work in rounds for each in _works(work, stage)]
    total, timed = sum(works, Work()), all(held.seconds(stage) for held in own)
    return Floor(
        bytes=total.bytes / len(rounds),
        flops=total.flops / len(rounds),
        floor=machine.floor(works) / len(rounds) if works else None,
        bound=machine.bound(works) if works else None,
        seconds=_middle(own, lambda h: (h.seconds(stage) or 0) / len(h.passes.rounds))
        if timed
        else None,
        reached=_middle(own, lambda h: h.floor(machine, stage) / (h.seconds(stage) or 1))
        if timed and works
        else None,
    )


def _middle(own: Sequence[_Held], value: Callable[[_Held], float]) -> float:
    """The median over repeats, then over prompts."""
    by: dict[int, list[float]] = {}
    for held in own:
        by.setdefault(held.timing.prompt, []).append(value(held))
    return median(map(median, by.values()))
