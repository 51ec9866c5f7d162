"""What-if: sliders over a collected text; every setting is simulated, no model runs.

A file is opened once and memory-mapped. A simulation is reused while its budget changes, since it
searches every position once. numba and the tables load on first use, torch never.
"""

from __future__ import annotations

import math
import secrets
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import numpy as np

from app.studio import shipped
from app.studio.collecting import Collecting
from app.studio.components import Studio, connect_upload, hidden_upload, view
from app.studio.examples import Examples
from app.studio.files import graph_file
from app.studio.methods import form_options
from app.studio.routes import Question, Route, get, parquet, whole
from app.view.explanation import Explainer
from app.view.rounds import round_view
from app.view.text import flowing, visible
from core import ASSETS
from core.errors import UserError
from core.json_input import read_json
from core.methods.method import Method, Option, Range
from core.methods.names import BUILDERS, DEFAULT, METHODS
from core.methods.registry import built_in, find, split
from core.models.presets import Value
from core.rounds.round import Round
from core.traces.reader import read_trace
from core.traces.schema import Header

if TYPE_CHECKING:
    from analysis.collection import Collection, Limits
    from analysis.cost import Cost
    from analysis.whatif import SimulatedRun, Simulation

SHIPPED = ASSETS / "collected"
OPEN_FILES, OPEN_SIMULATIONS = 12, 24
BUDGETS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
MAX_COST_FILE = 4 << 20  # bytes
PARTS = ("draft", "build", "commit")  # of a round, beside its verification
PLACES = 6  # positions whose drafts are counted for the rows of a budget
SLIDER_STEPS = 128  # a slider of a longer range takes its beginning

T = TypeVar("T")


def build(studio: Studio) -> None:
    simulations = Simulations(studio.examples)
    collection = hidden_upload("Open a collected text…", "ds-w-open")
    cost = hidden_upload("Open a result of cost…", "ds-w-cost")
    collecting = Collecting(studio.runs, studio.methods, simulations.add)
    routes = simulations.routes() | collecting.routes()
    shown = view("whatif", "ds-w-scope", routes)
    connect_upload(collection, shown, lambda files: {"file": simulations.add(files[0])})
    connect_upload(cost, shown, lambda files: simulations.add_cost(files[0]))


class Recent(OrderedDict[Any, T], Generic[T]):
    """The last ``size`` things that were used; the least recently used goes first."""

    def __init__(self, size: int):
        super().__init__()
        self._size = size

    def find(self, key: object) -> T | None:
        if key in self:
            self.move_to_end(key)
        return self.get(key)

    def put(self, key: object, thing: T) -> T:
        self[key] = thing
        while len(self) > self._size:
            self.popitem(last=False)
        return thing


class Simulations:
    """Open files and the simulations made of them."""

    def __init__(self, examples: Examples, folder: Path = SHIPPED):
        self._examples, self._folder, self._lock = examples, folder, threading.Lock()
        self._files: Recent[Collection] = Recent(OPEN_FILES)
        self._simulations: Recent[Simulation] = Recent(OPEN_SIMULATIONS)
        self._costs: Recent[Cost] = Recent(OPEN_FILES)

    def routes(self) -> dict[str, Route]:
        return {
            "files": lambda _: {"files": self._list()},
            "about": self._about,
            "simulate": self._simulate,
            "curve": self._curve,
            "export": self._export,
            "parquet": parquet,
        }

    # ── files ────────────────────────────────────────────────────────────────────────────────────

    def add(self, file: Path) -> str:
        """Open an uploaded file; its name from now on. Raises UserError for any other file."""
        from analysis.collection import Collection

        try:
            opened = Collection.load(file)
        except UserError as error:
            raise UserError(str(error).replace(str(file), "this file")) from None
        with self._lock:
            name = secrets.token_urlsafe(12)
            self._files.put(name, opened)
        return name

    def add_cost(self, file: Path) -> dict[str, str]:
        """Open an uploaded result of ``cost``; its name from now on, and what it is of.

        Raises UserError for any other file, or a method that does not come with Draftscope.
        """
        cost = read_cost(file)
        with self._lock:
            name = secrets.token_urlsafe(12)
            self._costs.put(name, cost)
        return {"cost": name, "of": f"{find(cost.method).title} on {visible(cost.model, 120)}"}

    def _shipped(self) -> dict[str, Path]:
        return {file.stem: file for file in sorted(self._folder.glob("*.safetensors"))}

    def _list(self) -> list[dict[str, str]]:
        return [{"name": name, "title": name.replace("-", " ")} for name in self._shipped()]

    def _file(self, name: object) -> Collection:
        from analysis.collection import Collection

        if not isinstance(name, str):
            raise UserError("there is no such collected text")
        with self._lock:
            if (opened := self._files.find(name)) is not None:
                return opened
            if (path := self._shipped().get(name)) is None:
                raise UserError("this collected text is no longer on the server: open it again")
            return self._files.put(name, Collection.load(path))

    def _cost(self, name: object) -> Cost | None:
        """The opened result of that name; None, and so the estimate, where none is named."""
        if name is None:
            return None
        with self._lock:
            cost = self._costs.find(name) if isinstance(name, str) else None
        if cost is None:
            raise UserError("this result of cost is no longer on the server: open it again")
        return cost

    def _about(self, question: Question) -> Any:
        """The text, and every method with its knobs."""
        file = self._file(get(question, "file"))
        tokens = file.tokens.tolist()[file.answer : file.end]
        return {
            "model": visible(file.header.name, 120),
            "prompt": flowing(file.header.prompt_text, 2000),
            "text": [flowing(file.piece(token), 400) for token in tokens],
            "methods": [_method(name, file.limits(name)) for name in _methods(file)],
            "method": DEFAULT,
        }

    # ── what would have been ─────────────────────────────────────────────────────────────────────

    def _simulation(self, question: Question) -> Simulation:
        from analysis.whatif import Simulation

        name, method = get(question, "file"), get(question, "method")
        file = self._file(name)
        if not isinstance(method, str) or method not in _methods(file):
            raise UserError("this text was not collected for that method")
        options = _options(method, get(question, "options"))
        key = (name, method, *sorted(options.items()))
        with self._lock:
            made = self._simulations.find(key)
            return made or self._simulations.put(key, Simulation(file, method, options))

    def _run(self, question: Question) -> tuple[Simulation, SimulatedRun, Round]:
        """The run of one budget, and its round at a place of the text."""
        simulation, place = self._simulation(question), whole(get(question, "place")) or 0
        budget = whole(get(question, "budget"))
        with self._lock:
            run = simulation.run(budget)
            return simulation, run, simulation.round(_start(simulation, run, place), budget)

    def _simulate(self, question: Question) -> Any:
        simulation, run, record = self._run(question)
        first = simulation.collection.answer
        explainer = Explainer.of(_header(simulation))
        drawn = round_view(record, explainer, first=record.position == first)
        return _run_json(run) | {"round": drawn, "starts": [s - first for s in run.starts]}

    def _export(self, question: Question) -> Any:
        """The draft that is shown, as DOT or GraphML."""
        simulation, _, record = self._run(question)
        return graph_file(record, get(question, "form"), simulation.method)

    def _curve(self, question: Question) -> Any:
        """τ of every budget, and the speed that may be expected of it."""
        simulation, cost = self._simulation(question), self._cost(get(question, "cost"))
        with self._lock:
            runs = simulation.curve(BUDGETS)
            found = speeds(simulation, runs, cost or _example_cost(self._examples, simulation))
        return {"points": [_run_json(run) for run in runs], "cost": found}


def _start(simulation: Simulation, run: SimulatedRun, place: int) -> int:
    """Where the round at a place of the answer begins."""
    first = simulation.collection.answer
    return max((start for start in run.starts if start - first <= place), default=first)


def _run_json(run: SimulatedRun) -> dict[str, Any]:
    return {
        "budget": run.budget, "tau": run.tau, "rounds": run.rounds,
        "lengths": list(run.lengths), "tokens": run.new_tokens, "exact": run.exact,
        "note": flowing(run.note, 600),
    }  # fmt: skip


def _header(simulation: Simulation) -> Header:
    """A header as a real run of the simulated settings would have it."""
    about = simulation.collection.header
    settings = {"options": simulation.options}
    return Header(simulation.method, settings, {"name": about.name}, about.prompt_text, ())


# ── methods and their knobs ──────────────────────────────────────────────────────────────────────


def _methods(file: Collection) -> list[str]:
    """What the file can answer: its listed methods, then their drafters with other builders."""
    drafters = dict.fromkeys((find(n).drafter, split(n)[1]) for n in file.methods)
    return [
        *file.methods,
        *(
            f"{drafter}+{builder}{'@' if weights else ''}{weights}"
            for drafter, weights in drafters
            for builder in BUILDERS
        ),
    ]


def _method(name: str, limits: Limits) -> dict[str, Any]:
    method = find(name)
    knobs = [
        knob(option, limits.setting(option.name))
        for option in form_options(method)
        # other drafter options change what the drafter says, which the file does not hold
        if option not in method.drafter_options or option.collect is not None
    ]
    title = method.title if name in METHODS else name
    return {"name": name, "title": title, "budget": method.budget, "knobs": knobs}


def knob(option: Option, collected: Value | None = None) -> dict[str, Any]:
    """An option as a number with a slider, or a tick, by its declaration.

    ``collected`` is the option's value in the file, and then the largest. ``log``: the slider moves
    in powers of ten.
    """
    made = {"name": option.name, "label": option.label, "help": option.help}
    if option.type is bool or option.range is None:
        return made | {"flag": option.type is bool, "value": option.default}
    own, value = option.range, cast(float, option.default)
    if collected is not None:
        own, value = replace(own, high=cast(float, collected)), min(value, cast(int, collected))
    ends = {"min": own.low, "max": own.high if math.isfinite(own.high) else None}
    slider = _powers(own, value) if own.log else _beginning(own, value)
    return made | ends | {"value": value, "step": own.step, "log": own.log, "slider": slider}


def _powers(own: Range, value: float) -> list[float]:
    """A slider's ends and step, as exponents of ten."""
    return [math.floor(math.log10(value)) - 2, math.floor(math.log10(own.high)) - own.below, 1]


def _beginning(own: Range, value: float) -> list[float]:
    """A slider's ends and step: the range, or of a long one its beginning, with the default in its
    first quarter. The number beside the slider takes all of it."""
    if own.high - own.low <= SLIDER_STEPS * own.step:
        return [own.low, own.high, own.step]
    end = max(own.low + SLIDER_STEPS / 4 * own.step, 4 * value)
    return [own.low, min(own.high, round(end, 6)), own.step]


def _options(method: str, sent: object) -> dict[str, Value]:
    """The method's own options among what a page sent. Raises UserError for a bad value."""
    values = sent if isinstance(sent, dict) else {}
    return {
        option.name: option.read(values[option.name])
        for option in form_options(find(method))
        if isinstance(values.get(option.name), (bool, int, float))
    }


# ── what it would cost ───────────────────────────────────────────────────────────────────────────


def read_cost(path: Path) -> Cost:
    """An uploaded result of ``cost --json``, of a method that comes with Draftscope.

    Raises UserError for anything else.
    """
    from analysis.cost import cost_from_json

    if path.is_file() and path.stat().st_size > MAX_COST_FILE:
        raise UserError("this file is too large for a result of `cost`")
    try:
        cost = cost_from_json(read_json(path))
    except (UserError, ValueError):
        raise UserError("this is no result of `cost --json`") from None
    if built_in(cost.method) is None:
        raise UserError("this result is of a method that does not come with Draftscope")
    return cost


def speeds(
    simulation: Simulation, runs: Sequence[SimulatedRun], cost: Cost | None
) -> dict[str, Any] | None:
    """Expected tokens/s of each run as far as rows were timed, the best budget, plain decoding's.

    None where the drafter was not timed.
    """
    from analysis.cost import best, estimate

    if cost is None or find(cost.method).drafter != find(simulation.method).drafter:
        return None
    timed = [run for run in runs if run.budget <= cost.most]
    stages = [cost.stage(run.budget, _rows(simulation, run.budget)) for run in timed]
    found = estimate(cost.verify, stages, timed)
    if not found:
        return None
    points = [{"budget": e.budget, "speed": e.tokens_per_second} for e in found]
    plain = 1 / cost.verify.seconds(1)
    return {"points": points, "best": best(found).budget, "plain": plain}


def _rows(simulation: Simulation, budget: int) -> float:
    """Mean rows of the drafts, root included."""
    places = simulation.collection.positions
    some = places[:: max(1, len(places) // PLACES)]
    return 1 + sum(simulation.draft(at, budget).nodes for at in some) / len(some)


def _example_cost(examples: Examples, simulation: Simulation) -> Cost | None:
    """An estimate from the example runs that ship: their times are of the machine that made them.

    None where no example drafts a tree with this drafter.
    """
    from analysis.cost import Cost, Stage

    drafter = find(simulation.method).drafter
    stages = []
    for method, rounds in _timed(examples):
        if method.drafter == drafter and method.builder != "chain":
            nodes, times = rounds[0].draft.nodes, [record.times for record in rounds]
            parts = (median(getattr(each, part) for each in times) for part in PARTS)
            stages.append(Stage(nodes, *parts, rows=nodes + 1))
    stages.sort(key=lambda stage: stage.budget)
    return Cost("", simulation.method, _verify_cost(examples), tuple(stages)) if stages else None


@cache
def _timed(examples: Examples) -> list[tuple[Method, tuple[Round, ...]]]:
    """The examples that are timed: each one's method and rounds."""
    return [
        (method, read_trace(examples.path(run.name)).rounds)
        for run in examples.runs
        if run.topic == shipped.TIMED and (method := built_in(run.method)) is not None
    ]


@cache
def _verify_cost(examples: Examples) -> Any:
    """Verify seconds by rows. Each median with the middle half of the rounds."""
    from analysis.cost import Point, fit

    seconds: dict[int, list[float]] = {}
    for _, rounds in _timed(examples):
        seconds.setdefault(len(rounds[0].draft), []).extend(r.times.verify for r in rounds)
    quartiles = {rows: np.quantile(s, [0.25, 0.5, 0.75]).tolist() for rows, s in seconds.items()}
    return fit([Point(rows, q[1], q[0], q[2]) for rows, q in sorted(quartiles.items())])
