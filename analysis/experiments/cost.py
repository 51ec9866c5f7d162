"""The cost of a round on this machine against its budget, and which budget is worth it.

Verify time is measured against the rows of a draft (root included), fitted, and put together with
what drafting and building take and with the rounds that what-if finds: expected tokens/s at every
budget. The arithmetic is light; only measuring loads torch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, islice
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from msgspec import Meta

from analysis.collected.whatif import SimulatedRun, Simulation
from core.declared import BadField, Count, Size, read
from core.decoding.request import RunRequest, Settings
from core.drafting.builders import best_first
from core.drafting.session import FactorisedSession
from core.errors import UserError
from core.progress import Steps
from core.rounds.draft import Array, Candidates, Draft
from core.rounds.round import Times

if TYPE_CHECKING:
    from core.decoding.decode import Decoder
    from core.decoding.engine import Engine
    from core.models.target import Target

LARGEST = 4096  # points of a fit, or stages
ROUNDS = 8  # of a decoding that times the stages, at least
Seconds = Annotated[float, Meta(ge=0, lt=1e9)]


@dataclass(frozen=True)
class ForwardTime:
    """Seconds of a forward of ``size`` rows: the median of the repeats, and the middle half."""

    size: int
    seconds: float
    low: float
    high: float


# ── the fit ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class VerifyFit:
    """Verify seconds as a function of rows.

    form       "a + b·n + c·n²" (terms that would be negative left out), or "piecewise": straight
               lines between the medians, where steps of the hardware matter more
    terms      a, b, c in seconds; the points' sizes and seconds for "piecewise"
    residual   median |predicted ÷ measured − 1| when each point is predicted from the others
    worst      the largest of these
    """

    form: str
    terms: tuple[Seconds, ...]
    sizes: Annotated[tuple[Size, ...], Meta(min_length=2, max_length=LARGEST)]
    residual: Seconds = 0.0
    worst: Seconds = 0.0

    def seconds(self, rows: float) -> float:
        """Predicted seconds of a forward of ``rows`` rows, or of as many in the mean."""
        if self.form == PIECEWISE:
            return float(np.interp(rows, self.sizes, self.terms))
        a, b, c = self.terms
        return a + b * rows + c * rows**2


QUADRATIC, PIECEWISE = "a + b·n + c·n²", "piecewise"


def fit(points: Sequence[ForwardTime]) -> VerifyFit:
    """The form that predicts left-out points best. Raises UserError for fewer than three."""
    if len(points) < 3:
        raise UserError("a fit of verify time needs at least three sizes")
    sizes = np.array([p.size for p in points], float)
    seconds = np.array([p.seconds for p in points], float)
    found = (_fit(form, sizes, seconds) for form in (QUADRATIC, PIECEWISE))
    return min(found, key=lambda f: f.residual)


def _fit(form: str, sizes: Array, seconds: Array) -> VerifyFit:
    errors = []
    for out in range(1, len(sizes) - 1):  # the ends would be extrapolated
        some = np.arange(len(sizes)) != out
        law = VerifyFit(form, _terms(form, sizes[some], seconds[some]), _whole_sizes(sizes[some]))
        errors.append(abs(law.seconds(int(sizes[out])) / seconds[out] - 1))
    terms = _terms(form, sizes, seconds)
    return VerifyFit(form, terms, _whole_sizes(sizes), float(np.median(errors)), float(max(errors)))


def _whole_sizes(sizes: Array) -> tuple[int, ...]:
    return tuple(int(size) for size in sizes)


def _terms(form: str, sizes: Array, seconds: Array) -> tuple[float, ...]:
    """The points themselves, or least squares of relative errors without negative terms."""
    if form == PIECEWISE:
        return tuple(seconds.tolist())
    powers = np.stack([sizes**0, sizes, sizes**2], 1) / seconds[:, None]
    best, least = (0.0, 0.0, 0.0), np.inf
    for count in (1, 2, 3):
        for chosen in combinations(range(3), count):
            some, *_ = np.linalg.lstsq(powers[:, chosen], np.ones(len(sizes)), rcond=None)
            error = float(np.square(powers[:, chosen] @ some - 1).sum())
            if (some >= 0).all() and error < least:
                terms = np.zeros(3)
                terms[list(chosen)] = some
                best, least = tuple(terms.tolist()), error
    return best


# ── what it is worth ─────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Stage:
    """Seconds of a method's round besides the verification, at one budget.

    draft   the drafter reads what was committed before, and drafts
    commit  verification's walk, the target's cache and what the drafter does with new tokens
    rows    mean rows of its drafts, root included
    """

    budget: Count
    draft: Seconds
    build: Seconds
    commit: Seconds
    rows: Annotated[float, Meta(ge=0, lt=1e9)]

    @property
    def seconds(self) -> float:
        return self.draft + self.build + self.commit


@dataclass(frozen=True)
class Estimate:
    """One budget: new tokens per round, seconds of a round and of its parts, tokens/s after the
    prompt. ``exact``: whether the simulated rounds are a real run's."""

    budget: int
    tokens_per_round: float
    seconds: float
    draft: float
    build: float
    verify: float
    exact: bool

    @property
    def tokens_per_second(self) -> float:
        return self.tokens_per_round / self.seconds


def speed_estimates(
    cost: VerifyFit, stages: Sequence[Stage], runs: Sequence[SimulatedRun]
) -> list[Estimate]:
    """Tokens/s of each simulated run whose budget was timed, in the runs' order."""
    timed = {stage.budget: stage for stage in stages}
    found = []
    for run in runs:
        if (stage := timed.get(run.budget)) is None or not run.rounds:
            continue
        verify = cost.seconds(stage.rows)
        found.append(
            Estimate(
                budget=run.budget,
                tokens_per_round=(run.new_tokens - 1) / run.rounds,
                seconds=stage.seconds + verify,
                draft=stage.draft,
                build=stage.build,
                verify=verify,
                exact=run.exact,
            )
        )
    return found


def best_budget(found: Sequence[Estimate]) -> Estimate:
    """The budget of most tokens/s; of equal ones the smallest."""
    if not found:
        raise UserError("no budget was measured")
    return max(found, key=lambda e: (e.tokens_per_second, -e.budget))


# ── a result as JSON ──────────────────────────────────────────────────────────────────────────────

FORMAT, VERSION = "draftscope-cost", 1


@dataclass(frozen=True)
class Cost:
    """The cost of a method's rounds on one machine: verification by rows, all else by budget."""

    model: str
    method: str
    verify: VerifyFit
    # by budget, smallest first
    stages: Annotated[tuple[Stage, ...], Meta(min_length=1, max_length=LARGEST)]

    @property
    def most(self) -> int:
        """The largest budget whose verification was timed."""
        return self.verify.sizes[-1] - 1

    def stage(self, budget: int, rows: float) -> Stage:
        """Drafting and building at a budget, between those that were timed."""
        at = [s.budget for s in self.stages]
        seconds = {
            name: float(np.interp(budget, at, [getattr(s, name) for s in self.stages]))
            for name in ("draft", "build", "commit")
        }
        return Stage(budget, **seconds, rows=rows)

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, "version": VERSION, **asdict(self)}


def cost_from_json(value: object) -> Cost:
    """Read what ``Cost.to_json`` gave, other keys beside it allowed. Raises UserError."""
    wrong = UserError("this is not a result of `cost --json`")
    try:
        found: Cost = read(value, Cost)
        told = read(value, dict[str, Any])
    except BadField:
        raise wrong from None
    law, stages = found.verify, sorted(found.stages, key=lambda stage: stage.budget)
    terms = {QUADRATIC: 3, PIECEWISE: len(law.sizes)}.get(law.form)
    whole = len(law.terms) == terms and list(law.sizes) == sorted(set(law.sizes))
    ours = (told.get("format"), told.get("version")) == (FORMAT, VERSION)
    if not (ours and whole and min(map(law.seconds, law.sizes)) > 0):
        raise wrong
    return Cost(found.model[:200], found.method[:200], law, tuple(stages))


# ── measuring ────────────────────────────────────────────────────────────────────────────────────


def sizes_up_to(rows: int) -> list[int]:
    """1, 2, 3, 5, 9, 13, 17, 25, 33, … up to ``rows``, which is among them; at least the three
    that a fit needs."""
    rows = max(rows, 3)
    steps = [1, 2, 3, 5, 9]
    while steps[-1] < rows:
        double = 2 * (steps[-1] - 1) + 1
        steps += [(steps[-1] + double) // 2, double]
    return [s for s in steps if s < rows] + [rows]


def bushy(rows: int, vocabulary: int, root: int = 0) -> Draft:
    """A draft of ``rows`` rows, root included, eight deep at most and as wide as it must be."""
    if rows == 1:
        return Draft.root_only(root)
    ids = np.random.default_rng(0).integers(0, vocabulary, (8, rows))
    lists = Candidates(ids, np.full(ids.shape, -1.0, np.float32))
    return best_first(FactorisedSession(lists), [root], rows - 1)


def verify_times(
    target: Target, text: Sequence[int], sizes: Sequence[int], repeats: int, report: Steps
) -> list[ForwardTime]:
    """Seconds of one scoring forward after ``text`` at each size; the order changes every time, so
    that a slow moment of the machine hits all sizes alike."""
    from analysis.experiments.roofline import seconds_of
    from core.models.cuda_graphs import bucket

    drafts = {n: bushy(n, target.vocabulary, int(text[-1])) for n in sizes}
    target.prefill(list(text), bucket(max(sizes)))  # room for a padded forward
    for draft in drafts.values():
        target.score(draft)  # the first of a size pays for its memory
    seconds: dict[int, list[float]] = {n: [] for n in sizes}
    rng = np.random.default_rng(0)
    for turn in range(repeats):
        report(turn / repeats, "verify")
        for n in rng.permutation(list(sizes)).tolist():
            seconds[n].append(seconds_of(target.device, lambda n=n: target.score(drafts[n])))
    quarters = {n: np.quantile(seconds[n], [0.25, 0.75]).tolist() for n in sizes}
    return [ForwardTime(n, median(seconds[n]), *quarters[n]) for n in sizes]


def stages(
    simulation: Simulation, method: Decoder, target: Target, budgets: Sequence[int], repeats: int
) -> Iterator[Stage]:
    """Drafting, building and committing by budget: medians of as many real rounds as there are
    repeats, in the middle of the collected text and after it."""
    from analysis.collected.collect import EndlessTarget

    # without stop tokens, or a short text would hold too few rounds
    endless = EndlessTarget(target.model, target.layers)
    for budget in budgets:
        times = list(islice(_rounds(simulation, method, endless, budget), repeats))
        of = {n: median(getattr(t, n) for t in times) for n in ("draft", "build", "commit")}
        rows = np.mean([simulation.draft(p, budget).nodes for p in _some(simulation)])
        yield Stage(budget, **of, rows=1 + float(rows))


def _rounds(
    simulation: Simulation, method: Decoder, endless: Target, budget: int
) -> Iterator[Times]:
    """Stage times of a decoding's rounds, one decoding after the other.

    The first round of each takes in the whole text before it, and in the second a GPU may capture
    its graphs: no other round is like them, and they are left out.
    """
    from core.decoding.decode import decode

    collection = simulation.collection
    most = 1 + ROUNDS * (simulation.limits.max_depth + 1)
    middle = collection.positions[len(collection.positions) // 2]
    text = collection.tokens[: max(1, min(middle, endless.context_limit - most))].tolist()
    settings = Settings(budget, most, collection.header.sampling)
    while True:
        rounds = decode(endless, method, text, settings)
        yield from (record.times for record in islice(rounds, 2, None))


def _some(simulation: Simulation) -> Sequence[int]:
    places = simulation.collection.positions
    return places[:: max(1, len(places) // 8)]


@dataclass(frozen=True)
class RealRun:
    """A real run beside what was expected of it.

    tokens_per_second  None where the run took a single round
    rounds_equal       whether it took exactly the simulated rounds
    """

    budget: int
    tokens_per_second: float | None
    rounds: int
    rounds_equal: bool


def check_simulated(
    engine: Engine, simulation: Simulation, budget: int, repeats: int = 3
) -> RealRun:
    """Decode the collected text ``repeats`` times more and compare its rounds with the simulated.

    Tokens/s are those after a run's first round, whose end starts the clock. They are the median
    of the repeats, for the fastest would flatter.
    """
    header = simulation.collection.header
    run = simulation.run(budget)
    request = RunRequest(
        header.prompt_text,
        simulation.method,
        budget,
        run.new_tokens,
        timed=False,
        **asdict(header.sampling),
        options=tuple(simulation.options.items()),
    )
    rates, equal, rounds = [], True, 0
    for _ in range(repeats):
        lengths, stamps, tokens = [], [], []
        for record in engine.start(request).rounds:
            stamps.append(time.perf_counter())
            lengths.append(record.accepted + 1)
            tokens.append(len(record.committed))
        rounds, equal = len(lengths), equal and tuple(lengths) == run.lengths
        if rounds > 1:
            rates.append(sum(tokens[1:]) / (stamps[-1] - stamps[0]))
    return RealRun(budget, median(rates) if rates else None, rounds, equal)
