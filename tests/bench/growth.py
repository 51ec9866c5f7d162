"""How a round's time and memory grow with the context and the budget, beside the roofline.

    python -m tests.bench.growth [--contexts 256 … 8192] [--budgets 16 64 256 1024] [--threads 2]
    python -m tests.bench.growth --quick

The text is this repository's LICENSE in the target's tokens, repeated up to each context. The
rounds are those of the decoding loop itself, which goes on and writes after it: 32 to 128 tokens,
then the text is read anew; near the model's limit the context is shorter by as much. In every turn
each context decodes one round at each budget, in an order that changes; medians over the turns.

``rest`` is all that is neither drafting, building nor verifying. ``attn`` is the time inside the
target's attention function and the drafters' attention layers (with their projections). ``peak``
is the most memory that the tensors of one part took beyond what was held when the part began;
``beside`` is the most outside attention. The last table says what is not attention and grows with
the context nevertheless: nothing should.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile, record_function
from transformers import AttentionInterface

from analysis.experiments.roofline import Drafting, Forward, Gauge, Machine, Work, round_work
from app.command_line import option, run
from app.commands import common
from app.commands.options import POSITIVE, Model
from app.terminal import FittingTable, ProgressBar, console
from core.decoding.decode import Decoder, decode
from core.decoding.engine import Engine
from core.decoding.request import Settings
from core.drafting.session import Drafter, DraftSession, FunctionBuilder
from core.errors import UserError, as_script
from core.methods.names import DEFAULT
from core.models import cache, layers
from core.models.hugging_face import ATTENTION
from core.models.language import Language
from core.models.target import Target
from core.rounds.draft import Draft
from core.rounds.round import Round
from tests import ROOT
from tests.bench.rounds import Inside

LICENSE_TEXT = ROOT / "LICENSE"
CONTEXTS, BUDGETS = (256, 512, 1024, 2048, 4096, 8192), (16, 64, 256, 1024)
PARTS = ("draft", "build", "verify", "rest")


def long_text(language: Language, length: int) -> list[int]:
    """The license's tokens, repeated."""
    ids = language.tokenizer(LICENSE_TEXT.read_text("utf-8"), add_special_tokens=False).input_ids
    return (ids * (length // len(ids) + 1))[:length]


# ── memory ───────────────────────────────────────────────────────────────────────────────────────


ATTENDING = "attention"


@dataclass(frozen=True)
class Peak:
    """Bytes beyond what was held at the beginning: at most, and at most outside attention."""

    whole: float = 0.0
    beside: float = 0.0

    def __or__(self, other: Peak) -> Peak:
        return Peak(max(self.whole, other.whole), max(self.beside, other.beside))


class Peaks:
    """The peaks of calls that were ``marked``, by label and part, while there is a label.

    On a GPU from its allocator, which does not tell attention apart; on a CPU from the profiler's
    record of every allocation, which knows nothing of other programs and of numpy.
    """

    def __init__(self, device: torch.device):
        self._device, self.label = device, ""
        self.found: dict[str, Peak] = {}

    def marked(self, part: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any, **kwargs: Any) -> Any:
            if not self.label:
                return call(*args, **kwargs)
            name = f"{self.label} {part}"
            if self._device.type != "cuda":
                with record_function(name):
                    return call(*args, **kwargs)
            torch.cuda.reset_peak_memory_stats(self._device)
            before = torch.cuda.memory_allocated(self._device)
            result = call(*args, **kwargs)
            self._note(name, Peak(torch.cuda.max_memory_allocated(self._device) - before))
            return result

        return noted

    def _note(self, name: str, peak: Peak) -> None:
        self.found[name] = peak | self.found.get(name, Peak())

    @contextmanager
    def watching(self) -> Iterator[None]:
        if self._device.type == "cuda":
            yield
            return
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
            yield
        results: Any = seen.profiler and seen.profiler.kineto_results
        events = sorted(results.events(), key=lambda e: e.start_ns())
        changes = [(e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]"]
        times, held = np.array([t for t, _ in changes]), np.cumsum([0, *(b for _, b in changes)])
        beside = held.astype(float)
        for event in events:
            if event.name().split(" ")[-1] == ATTENDING:
                low, high = np.searchsorted(times, [event.start_ns(), event.end_ns()])
                beside[low + 1 : high] = -np.inf
        for event in events:
            if event.name().split(" ")[-1] in PARTS:
                low, high = np.searchsorted(times, [event.start_ns(), event.end_ns()])
                whole, apart = held[low : high + 1].max(), beside[low : high + 1].max()
                self._note(event.name(), Peak(float(whole - held[low]), float(apart - held[low])))


# ── one context ──────────────────────────────────────────────────────────────────────────────────


@dataclass(eq=False)
class AnyBudget(Drafter):
    """A drafter and a builder whose budget may be another one every round."""

    method: Decoder
    peaks: Peaks
    budget: int = 1

    def __post_init__(self) -> None:
        self.drafter: Any = copy.copy(self.method.drafter)  # its weights are shared, its text not
        self.drafter.begin = self.peaks.marked("draft", self.drafter.begin)
        self.drafter.extend = self.peaks.marked("rest", self.drafter.extend)
        self.builder = self.peaks.marked("build", self.method.builder or (lambda *_: None))

    @property
    def max_depth(self) -> int:
        return self.drafter.max_depth

    @property
    def layers(self) -> tuple[int, ...]:
        return self.drafter.layers

    def reset(self, capacity: int) -> None:
        self.drafter.reset(capacity)

    def extend(self, tokens: Sequence[int], features: Tensor) -> None:
        self.drafter.extend(tokens, features)

    def begin(self, root: int, width: int) -> DraftSession:
        assert self.method.builder is not None
        return self.drafter.begin(root, self.method.builder.width(self.budget))

    def build(self, session: DraftSession, text: Sequence[int], budget: int) -> Draft:
        return self.builder(session, text, self.budget)


@dataclass(frozen=True)
class TimedRound:
    """Seconds of one round by part, of those inside attention, and the round's floor's work."""

    record: Round
    parts: dict[str, float]
    attention: dict[str, float]  # of "draft" and "verify"
    work: tuple[Work, ...]

    @property
    def seconds(self) -> float:
        return sum(self.parts.values())

    @property
    def outside(self) -> dict[str, float]:
        """Seconds by part, without attention."""
        return {part: s - self.attention.get(part, 0.0) for part, s in self.parts.items()}


@dataclass(eq=False)
class Watch:
    """The clocks that time every context's rounds."""

    forward: Forward
    drafting: Drafting | None
    peaks: Peaks
    verify: Inside = field(default_factory=Inside)
    draft: Inside = field(default_factory=Inside)

    def install(self) -> None:
        """Time attention from here on. Not on a GPU, where a call returns before it is done."""
        own: Any = self.peaks.marked(ATTENDING, self.verify.wrap(cache.grouped_attention))
        cache.grouped_attention = own  # the embedded target's
        AttentionInterface.register(ATTENTION, own)
        drafters: Any = layers.Attention
        drafters.forward = self.peaks.marked(ATTENDING, self.draft.wrap(drafters.forward))

    @property
    def attention(self) -> dict[str, float]:
        return {"draft": self.draft.seconds, "verify": self.verify.seconds}


class Place:
    """A text of one length, decoded on and on."""

    def __init__(self, language: Language, method: Decoder, context: int, watch: Watch):
        self.any, self._watch = AnyBudget(method, watch.peaks), watch
        self._target = Target(_endless(language), self.any.layers)
        for name, part in (("score", "verify"), ("commit", "rest")):
            setattr(self._target, name, watch.peaks.marked(part, getattr(self._target, name)))
        self._more = min(128, max(32, context // 8))
        self.context = min(context, self._target.context_limit - self._more)
        self._text = long_text(language, self.context)
        self._rounds: Iterator[Round] = iter(())
        self._before: Round | None = None

    def round(self, budget: int, most: int) -> TimedRound:
        """The next round; one that takes in the prompt is passed over."""
        self.any.budget = budget
        while True:
            before, began = self._watch.attention, time.perf_counter()
            record = next(self._rounds, None)  # timed: it has waited for the device
            wall = time.perf_counter() - began
            last, self._before = self._before, record
            if record is not None and last is not None:
                return self._timed(record, last, wall, before)
            if record is None:
                method = Decoder("any", self.any, FunctionBuilder(self.any.build))
                settings = Settings(most, self._more)
                self._rounds = decode(self._target, method, self._text, settings)

    def _timed(
        self, record: Round, last: Round, wall: float, before: dict[str, float]
    ) -> TimedRound:
        staged = {part: getattr(record.times, part) for part in PARTS[:-1]}
        now = self._watch.attention
        work = round_work(self._watch.forward, self._watch.drafting, record, last.accepted + 1)
        return TimedRound(
            record,
            staged | {"rest": wall - sum(staged.values())},
            {part: now[part] - before[part] for part in before},
            work.passes,
        )


def _endless(language: Language) -> Any:
    """The model without stop tokens; weights are shared."""
    model: Any = copy.copy(language.model)
    model.generation_config = copy.deepcopy(model.generation_config)
    model.generation_config.eos_token_id = None
    return model


# ── measuring ────────────────────────────────────────────────────────────────────────────────────

Cell = tuple[int, int]  # context, budget


@dataclass(frozen=True)
class Measured:
    """Every cell's rounds, one a turn; bytes of its parts by part; the machine's limits."""

    rounds: dict[Cell, list[TimedRound]]
    peaks: dict[Cell, dict[str, Peak]]
    machine: Machine


def measure(engine: Engine, args: Options, progress: ProgressBar) -> Measured:
    language, method = engine.prepare(), engine.method(args.method)
    if method.drafter is None:
        raise UserError("plain decoding drafts nothing: name a method with a drafter")
    peaks = Peaks(language.device)
    watch = Watch(Forward.of(language.model), Drafting.of(method.drafter), peaks)
    if language.device.type != "cuda":
        watch.install()
    places = [Place(language, method, context, watch) for context in args.contexts]
    cells = [(place, budget) for place in places for budget in args.budgets]
    most, rng = max(args.budgets), np.random.default_rng(0)
    for place, budget in cells:  # reads the texts, and pays for the first of each size
        progress.at(None, f"warming up {place.context} tokens, B = {budget}")
        place.round(budget, most)
    with peaks.watching():
        for place, budget in cells:
            peaks.label = f"{place.context} {budget}"
            place.round(budget, most)
    peaks.label = ""
    rounds: dict[Cell, list[TimedRound]] = {(p.context, b): [] for p, b in cells}
    gauge = Gauge(language.device, language.model.dtype)
    for turn in range(args.repeats):
        gauge.sample()
        for at, place in enumerate(rng.permutation(len(cells)).tolist()):
            where, budget = cells[place]
            progress.at(turn * len(cells) + at, f"{where.context} tokens, B = {budget}")
            rounds[where.context, budget].append(where.round(budget, most))
    found = {
        (c, b): {part: peaks.found.get(f"{c} {b} {part}", Peak()) for part in PARTS}
        for c, b in rounds
    }
    return Measured(rounds, found, gauge.machine)


# ── what is printed ──────────────────────────────────────────────────────────────────────────────


def show_times(measured: Measured, on_cpu: bool) -> None:
    columns = ("context", "B", *PARTS, "attn", "round ms")
    rows = []
    for (context, budget), timed in measured.rounds.items():
        attention = median(sum(t.attention.values()) for t in timed)
        rows.append([
            str(context), str(budget),
            *(f"{1e3 * median(t.parts[part] for t in timed):.2f}" for part in PARTS),
            f"{1e3 * attention:.1f}" if on_cpu else "–",
            f"{1e3 * median(t.seconds for t in timed):.1f}",
        ])  # fmt: skip
    console().print(FittingTable(columns, rows))


def show_limits(measured: Measured, on_cpu: bool) -> None:
    columns = ("context", "B", "MB", "GFLOP", "floor ms", "bound", "reached", "peak MB", "beside")
    rows, machine = [], measured.machine
    for (context, budget), timed in measured.rounds.items():
        work = [sum(t.work, Work()) for t in timed]
        floor = median(machine.floor(t.work) for t in timed)
        peaks = measured.peaks[context, budget].values()
        rows.append([
            str(context), str(budget),
            f"{median(w.bytes for w in work) / 1e6:.0f}",
            f"{median(w.flops for w in work) / 1e9:.1f}",
            f"{1e3 * floor:.1f}", machine.bound(timed[0].work),
            f"{floor / median(t.seconds for t in timed):.0%}",
            f"{max(p.whole for p in peaks) / 1e6:.1f}",
            f"{max(p.beside for p in peaks) / 1e6:.1f}" if on_cpu else "–",
        ])  # fmt: skip
    print("\nwhat a round must at least move and compute, the share of that floor, and memory")
    console().print(FittingTable(columns, rows, left=("bound",)))


def show_growth(measured: Measured) -> None:
    """The longest context against the shortest, outside attention: seconds and bytes by part."""
    contexts = sorted({context for context, _ in measured.rounds})
    budgets = sorted({budget for _, budget in measured.rounds})
    short, long = contexts[0], contexts[-1]
    print(
        f"\noutside attention, {long} tokens of context ÷ {short}: medians of the turns' ratios by"
    )
    print("part and together (middle half); milliseconds per 1,000 tokens, least squares over all")
    print("contexts; bytes of peak memory that a token of context adds for each row of the draft")
    rows = []
    for budget in budgets:
        pairs = list(
            zip(measured.rounds[short, budget], measured.rounds[long, budget], strict=True)
        )
        whole = [sum(b.outside.values()) / sum(a.outside.values()) for a, b in pairs]
        low, high = np.quantile(whole, [0.25, 0.75])
        parts = (median(b.outside[p] / a.outside[p] for a, b in pairs) for p in PARTS)
        ends = [max(p.beside for p in measured.peaks[c, budget].values()) for c in (short, long)]
        nodes = len(pairs[0][0].record.draft)
        rows.append([
            str(budget), *(f"{ratio:.2f}" for ratio in parts),
            f"{median(whole):.3f} ({low:.2f}–{high:.2f})",
            f"{1e3 * _slope(measured, budget):+.2f}",
            f"{(ends[1] - ends[0]) / (long - short) / nodes:+.2f}",
        ])  # fmt: skip
    console().print(FittingTable(("B", *PARTS, "together", "ms per 1k", "bytes"), rows))


def _slope(measured: Measured, budget: int) -> float:
    """Seconds outside attention per 1,000 tokens of context."""
    found = [
        (median(t.record.position for t in timed), median(sum(t.outside.values()) for t in timed))
        for (_, own), timed in measured.rounds.items()
        if own == budget
    ]
    contexts, seconds = np.array(found).T
    return 1e3 * float(np.polyfit(contexts, seconds, 1)[0])


@dataclass(frozen=True, kw_only=True)
class Options(Model):
    """Measure how a round grows with the context and the budget."""

    contexts: tuple[int, ...] = option(CONTEXTS, "tokens before the round", POSITIVE)
    budgets: tuple[int, ...] = option(BUDGETS, "drafted nodes a round", POSITIVE)
    method: str = option(DEFAULT, "a drafter and a builder")
    repeats: int = option(9, "turns", POSITIVE)
    threads: int = option(torch.get_num_threads(), "threads of torch", POSITIVE)
    quick: bool = option(False, "256 and 1024 tokens, 16 and 64 nodes")


def main(args: Options) -> int:
    if args.quick:
        args = replace(args, contexts=(256, 1024), budgets=(16, 64), repeats=5)
    torch.set_num_threads(args.threads)
    engine = common.load_engine(args)
    cells = len(args.contexts) * len(args.budgets)
    with ProgressBar("measuring", args.repeats * cells) as progress:
        measured = measure(engine, args, progress)
    language, machine = engine.prepare(), measured.machine
    print(
        f"{language.name} · {args.method} · {language.device} · {args.threads} threads · "
        f"medians of {args.repeats} turns · copies {machine.bandwidth / 1e9:.1f} GB/s, "
        f"matrices {machine.rate / 1e9:.0f} GFLOP/s"
    )
    on_cpu = language.device.type != "cuda"
    show_times(measured, on_cpu)
    show_limits(measured, on_cpu)
    if on_cpu and len(args.contexts) > 1:
        show_growth(measured)
    return 0


if __name__ == "__main__":
    as_script(lambda: run(Options, main, "python -m tests.bench.growth"))
