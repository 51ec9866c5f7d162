"""One table of all methods: what each accepts, how far its q is from p, and what it costs.

A row is a method with a budget at a temperature on the prompts of a source, or on all of them. What
was accepted is known for every prompt, times for some of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import reduce
from itertools import zip_longest
from statistics import median
from typing import Any

from analysis.experiments.prompts import Prompt
from analysis.experiments.sweep import variant_label
from analysis.experiments.variants import Variant, variant_name
from core.methods.names import PLAIN
from core.methods.registry import find_method
from core.rounds.node import known
from core.rounds.round import Probe
from core.stats import rounds_by_length, tau_interval

ALL = "all"  # the source of rows over all prompts
KEPT = 16  # K of the coverage
DRAFTING = ("draft", "build")


@dataclass
class Accepted:
    """The acceptance of a method on one text.

    lengths   accepted + 1 of every round
    probed    positions with a probe, at depth 1, 2, …
    tvd, coverage  sums over them: ½ Σ_v |q − p|, and p of the drafter's 16 best tokens
    """

    lengths: list[int] = field(default_factory=list)
    probed: list[int] = field(default_factory=list)
    tvd: list[float] = field(default_factory=list)
    coverage: list[float] = field(default_factory=list)

    def add(self, length: int, probe: Probe | None) -> None:
        self.lengths.append(length)
        if probe is None:
            return
        self.probed = _sums(self.probed, [1] * len(probe.tvd))
        self.tvd = _sums(self.tvd, probe.tvd.tolist())
        self.coverage = _sums(self.coverage, probe.coverage[:, KEPT - 1].tolist())


def _sums(some: Sequence[float], more: Sequence[float]) -> list[Any]:
    """Depth by depth; the shorter one has nothing at the last depths."""
    return [a + b for a, b in zip_longest(some, more, fillvalue=0)]


@dataclass(frozen=True)
class Timed:
    """One timed decoding of a prompt, as an ``analysis.experiments.bench.Timing`` has it."""

    seconds: float
    tokens: Sequence[int]
    lengths: Sequence[int] | None
    stages: Mapping[str, float] | None

    @property
    def pace(self) -> float:
        """Tokens per second."""
        return len(self.tokens) / self.seconds


@dataclass(frozen=True)
class Cell:
    """A variant on one prompt. ``timed`` None: this prompt was not timed."""

    accepted: Accepted
    timed: Timed | None = None


@dataclass(frozen=True)
class Entry:
    """A row of the table of methods.

    method, budget, options  the variant; ``options`` those that were set
    own          whether the budget is the method's own
    temperature  of the target
    source       of the prompts, or "all"
    texts        prompts that τ, TVD and coverage are of, each turn of a conversation by itself
    ran          whether those are of real runs; else they follow from the target's texts
    tau, low, high  block efficiency Σ (accepted + 1) ÷ rounds and its 95 % bootstrap interval;
                 None for fewer than 5 prompts, or rounds of a single one
    tvd          mean ½ Σ_v |q − p| at depth 1, 2, …, where accepted paths came by
    coverage     mean p of the drafter's 16 best tokens, by depth
    probed       how many positions these two are of, by depth
    timed        prompts that all that follows is of; without any it is None or 0
    draft_ms     drafting and building, a round
    round_ms     all stages, a round; ``forward_ms``: a round of plain decoding
    speed, generate  tokens per second ÷ those of plain decoding, and of transformers' generate, on
                 the same prompt: the median over prompts
    same         timed runs whose tokens are plain decoding's
    agree        timed runs whose rounds are those that τ is of; None where τ is of runs
    lengths      rounds of 1, 2, … tokens (accepted + 1); empty: not known
    """

    method: str
    budget: int
    own: bool
    options: dict[str, Any]
    temperature: float
    source: str
    texts: int
    ran: bool
    tau: float
    low: float | None
    high: float | None
    tvd: tuple[float, ...]
    coverage: tuple[float, ...]
    timed: int
    draft_ms: float | None
    round_ms: float | None
    forward_ms: float | None
    speed: float | None
    generate: float | None
    same: int
    agree: int | None
    lengths: tuple[int, ...] = ()
    probed: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Numbers at four digits: more is noise."""
        return {name: _short(value) for name, value in asdict(self).items()}


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    return [_short(each) for each in value] if isinstance(value, (list, tuple)) else value


@dataclass(frozen=True)
class TemperatureResults:
    """The results at one temperature, by the text's number.

    prompts   of each text; turns of a conversation have the same
    cells     of each variant, of the prompts that are done
    generate  transformers' own decoding
    ran       variants that were run on all prompts
    """

    temperature: float
    prompts: Sequence[Prompt]
    cells: Mapping[Variant, Mapping[int, Cell]]
    generate: Mapping[int, Timed]
    ran: frozenset[Variant] = frozenset()


def entries(found: TemperatureResults) -> Iterator[Entry]:
    """The rows of one temperature: all prompts, then source by source."""
    sources = dict.fromkeys(prompt.source for prompt in found.prompts if prompt.source)
    for source in (ALL, *(sources if len(sources) > 1 else ())):
        some = {n for n, p in enumerate(found.prompts) if source in (ALL, p.source)}
        for variant, cells in found.cells.items():
            own = {number: cell for number, cell in cells.items() if number in some}
            if any(cell.accepted.lengths for cell in own.values()):
                yield _entry(found, variant, source, own)


def _entry(
    found: TemperatureResults, variant: Variant, source: str, own: Mapping[int, Cell]
) -> Entry:
    units: dict[Prompt, list[int]] = {}  # all turns of a conversation are one
    for number, cell in own.items():
        units.setdefault(found.prompts[number], []).extend(cell.accepted.lengths)
    value, *span = tau_interval(list(filter(None, units.values())))
    assert value is not None, "a row is made of cells with rounds"
    low, high = map(known, span)
    some = [cell.accepted for cell in own.values()]
    ran = variant in found.ran
    return Entry(
        method=str(variant.method),
        budget=variant.budget,
        own=variant.budget == find_method(str(variant.method)).budget,
        options=dict(variant.options),
        temperature=found.temperature,
        source=source,
        texts=sum(bool(cell.accepted.lengths) for cell in own.values()),
        ran=ran,
        tau=value,
        low=low,
        high=high,
        tvd=_means(some, "tvd"),
        coverage=_means(some, "coverage"),
        **_times(found, own),
        agree=None if ran else sum(_agree(cell) for cell in own.values()),
        lengths=rounds_by_length(units.values()),
        probed=tuple(reduce(_sums, (each.probed for each in some), [])),
    )


def _means(some: Sequence[Accepted], name: str) -> tuple[float, ...]:
    """Over all probed positions, by depth."""
    sums, counts = list[float](), list[float]()
    for each in some:
        sums, counts = _sums(sums, getattr(each, name)), _sums(counts, each.probed)
    return tuple(a / b for a, b in zip(sums, counts, strict=True))


def _agree(cell: Cell) -> bool:
    return cell.timed is not None and list(cell.timed.lengths or ()) == cell.accepted.lengths


def _times(found: TemperatureResults, own: Mapping[int, Cell]) -> dict[str, Any]:
    """The columns that are measured with a clock."""
    timed = {number: cell.timed for number, cell in own.items() if cell.timed is not None}
    plain = _timed(found.cells, timed)
    ratios = [each.pace / plain[n].pace for n, each in timed.items() if n in plain]
    others = [
        each.pace / found.generate[n].pace for n, each in timed.items() if n in found.generate
    ]
    return {
        "timed": len(timed),
        "draft_ms": _round_ms(timed.values(), DRAFTING),
        "round_ms": _round_ms(timed.values()),
        "forward_ms": _round_ms([plain[n] for n in timed if n in plain]),
        "speed": median(ratios) if ratios else None,
        "generate": median(others) if others else None,
        "same": sum(n in plain and plain[n].tokens == each.tokens for n, each in timed.items()),
    }


def _timed(
    cells: Mapping[Variant, Mapping[int, Cell]], numbers: Mapping[int, Timed]
) -> dict[int, Timed]:
    """Plain decoding on these prompts."""
    plain = next((own for variant, own in cells.items() if variant.method == PLAIN), {})
    return {n: each for n in numbers if n in plain and (each := plain[n].timed) is not None}


def _round_ms(some: Iterable[Timed], stages: Sequence[str] = ()) -> float | None:
    """Milliseconds of these stages a round; none named: of all."""
    seconds, rounds = 0.0, 0
    for each in some:
        times = each.stages or {}
        seconds += sum(times[name] for name in stages or times)
        rounds += len(each.lengths or ())
    return 1e3 * seconds / rounds if rounds else None


def title(entry: Entry) -> str:
    """The method with its budget and what was set, as in every other table."""
    name = variant_name(entry.method, entry.budget)
    options = tuple(entry.options.items())
    return variant_label(Variant(name, entry.method, entry.budget, options=options))
